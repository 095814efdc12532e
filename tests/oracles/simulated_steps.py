"""Steps of a few ranks that ask for one thing at a time, so that their times can be worked out by hand."""

import itertools
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from cost_models.coefficients import software_coefficients
from cost_models.collective_laws import Protocol
from cost_models.kinds import RankKind, rank_kinds
from cost_models.shards import EXTENTS, MEMORY_TIERS, WORLD
from cost_models.simulator.builder import Builder
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.demand import Demand
from cost_models.simulator.engine import Engine
from cost_models.simulator.graph import Floats
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.pipelines import ahead_of
from cost_models.simulator.simulation import Simulation
from cost_models.workload.models import Workload
from tests.oracles.instances import workload
from topologies.cluster import Topology

TABLES = [{"rows": 1000, "dim": 64}]
EXACT = 1e-3


def nothing(world: int) -> Demand:
    """A step that asks nothing of any rank."""
    zero = Demand(**{field.name: np.zeros(world) for field in fields(Demand)})  # type: ignore[arg-type]
    per_memory = {
        f"{name}_{what}": np.zeros((len(MEMORY_TIERS), world))
        for name, what in itertools.product(("forward_host", "backward_host", "fetched"), ("bytes", "s"))
    }
    by_tier = {"forward_s": in_hbm(np.zeros(world)), "backward_s": in_hbm(np.zeros(world))}
    sums = in_extent(WORLD, np.zeros(world))
    return replace(zero, **by_tier, **per_memory, sums_bytes=sums, raw_ids_per_sample_bytes=0.0)


def in_extent(extent: int, sums_bytes: Floats) -> Floats:
    """[extents, W] sums of blocks of one extent."""
    return np.stack([np.where(each == extent, sums_bytes, 0.0) for each in range(len(EXTENTS))])


def in_hbm(seconds: Floats) -> Floats:
    """[tiers, W] seconds of kernels for tables in HBM."""
    return np.stack([seconds, *[np.zeros(len(seconds))] * 3])


def steps_of(
    cluster: Topology, model: Workload, demand: Demand, conditions: Conditions | None = None, steps: int = 2
) -> Simulation:
    """The same demand step after step."""
    conditions = conditions or Conditions()
    network = SimulatedNetwork(cluster, rank_kinds(cluster, model), conditions.lost_cards)
    fill = ahead_of(model).fill_steps
    played = fill + steps + fill
    software, capacity = software_coefficients(model.software), conditions.capacity(network)
    builder = Builder(network, model, software, waits_for_data=conditions.data_loading, capacity=capacity)
    program = builder.build([demand] * played, conditions.slowness(network.world, played))
    run = Engine(program.graph, capacity, program.hubs).run()
    return Simulation(network, program, run, model, fill, steps)


def model_of(**given: object) -> Workload:
    """A workload without a pipeline, and without a dense part, unless they are given."""
    return workload(TABLES, **{"pipeline": "none", "dense": {}, **given})


def kind_of(cluster: Topology, model: Workload) -> RankKind:
    """What the first ranks of a cluster achieve."""
    return rank_kinds(cluster, model)[0]


def law_s(protocols: Sequence[Protocol], size: float) -> float:
    """How long a collective takes alone that moves so many bytes over a port, where all protocols were measured."""
    return min((each.latency_s or 0.0) + size / each.bytes_per_s for each in protocols)


def seconds(simulation: Simulation, name: str, rank: int = 0) -> float:
    """How long a task of the first counted step takes a rank."""
    (task,) = (task for task in simulation.program.tasks if task.name == name and task.step == simulation.fill)
    return float(simulation.run.end[task.last[rank]] - simulation.run.start[task.first[rank]])
