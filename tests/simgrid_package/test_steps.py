"""Steps in which ranks contend for links, against SimGrid: every exchange of vectors as one message for each pair."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from cost_models.kinds import rank_kinds
from cost_models.resources import Way
from cost_models.shards import HBM, TABLE_WISE, Blocks, Floats, PlacedShards
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from tests.oracles.instances import node_group, topology, workload
from tests.simgrid_package.simgrid_messages import simgrid_ends
from topologies.cluster import Topology

CLOSE = 0.05
SAMPLES, DIM, TABLES = 65_536, 128, 24
EXCHANGES: dict[str, tuple[Way, str]] = {"output_dist": (OUT, "output dist"), "gradient_dist": (IN, "gradient dist")}
"""Stages that exchange vectors: the way that they go from who holds a table, and the words of the simulated task."""


def shared_cards() -> Topology:
    """Four ranks a node over two cards."""
    return topology(node_group("a", nodes=3, ranks=4, cards=2))


def narrow_switches() -> Topology:
    """A network with a third of the bandwidth above the nodes' switches."""
    return topology(node_group("a", nodes=4, ranks=2), oversubscription=3.0)


def unlike_cards() -> Topology:
    """Some nodes have cards of half the rate."""
    slow = node_group("b", nodes=2, ranks=2, nic_bytes_per_s=12.5e9)
    return topology(node_group("a", nodes=2, ranks=2), slow)


def over_pcie() -> Topology:
    """Ranks without scale-up links, whose cards hang on the same links of PCIe."""
    return topology(node_group("a", nodes=2, ranks=4, has_scale_up=False))


@dataclass(frozen=True)
class Exchanged:
    """Seconds of a stage: estimated, simulated and by SimGrid."""

    estimated_s: float
    simulated_s: float
    simgrid_s: float


def dealt(cluster: Topology, *, evenly: bool) -> tuple[StepModel, PlacedShards]:
    """Whole tables, by turns or at random."""
    tables = [{"rows": 1000, "dim": DIM, "pooling_factor": 1.0}] * TABLES
    model = StepModel(cluster, workload(tables, dense={}, batch_per_rank=None, global_batch=SAMPLES))
    world, n = cluster.world_size, np.full(TABLES, TABLE_WISE)
    turns = np.arange(TABLES) % world
    rank = turns if evenly else np.random.default_rng(7).integers(0, world, TABLES)
    blocks = Blocks(np.arange(TABLES), n, np.full(TABLES, HBM), np.full(TABLES, DIM), np.zeros(TABLES))
    return model, PlacedShards(blocks, rank, model.tables.rows, np.ones(TABLES, dtype=bool))


def simgrid_s(network: SimulatedNetwork, to_each: Floats, way: Way) -> float:
    """When the last message is there, of `to_each` [W] bytes from each rank to every other one, or the other way."""
    pairs = [pair for pair in itertools.permutations(range(network.world), 2) if to_each[pair[0]] > 0]
    sent = {((a, b) if way == OUT else (b, a)): int(to_each[a]) for a, b in pairs}
    return float(simgrid_ends(network, Conditions().capacity(network), sent).max())


def exchanges(model: StepModel, placed: PlacedShards) -> tuple[list[Exchanged], float, float]:
    """Each exchange of vectors of a step; the estimated and the simulated step."""
    cluster, evaluation = model.topology, model.evaluate(placed)
    network = SimulatedNetwork(cluster, rank_kinds(cluster, model.workload))
    vectors = np.bincount(placed.rank, minlength=network.world) * SAMPLES / network.world * DIM
    played = simulate(cluster, model.workload, placed, steps=1)
    constants = dict(zip(model.stages, model.linearised_at(placed).constants.tolist(), strict=True))
    found = []
    for stage, (way, words) in EXCHANGES.items():
        (task,) = [each for each in played.program.tasks if each.name.startswith(words) and each.step == played.fill]
        spent_s = played.run.end[task.last].max() - played.run.start[task.first].max()  # once all ranks are there
        seconds = dict(zip(model.stages, evaluation.stage_seconds.tolist(), strict=True))[stage]
        theirs_s = constants[stage] + simgrid_s(network, vectors * 4, way)
        found.append(Exchanged(seconds, float(spent_s), theirs_s))
    return found, evaluation.step_s, played.step_s


@pytest.mark.parametrize("evenly", [True, False])
@pytest.mark.parametrize("cluster", [shared_cards, narrow_switches, unlike_cards, over_pcie])
def test_steps_of_ranks_that_contend_take_as_long(cluster: object, evenly: bool) -> None:
    """Cards that ranks share, narrow switches, unlike cards, one link for cards and neighbours: exchanges and whole
    steps, estimated and simulated, are within 5 % of those in which SimGrid plays the exchanges."""
    model, placed = dealt(cluster(), evenly=evenly)  # type: ignore[operator]
    found, estimated_s, simulated_s = exchanges(model, placed)
    for each in found:
        assert each.estimated_s == pytest.approx(each.simgrid_s, rel=CLOSE)
        assert each.simulated_s == pytest.approx(each.simgrid_s, rel=CLOSE)
    theirs_s = estimated_s + sum(each.simgrid_s - each.estimated_s for each in found)
    assert (estimated_s, simulated_s) == pytest.approx((theirs_s, theirs_s), rel=CLOSE)
