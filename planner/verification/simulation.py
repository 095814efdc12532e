"""A plan as the simulator runs it: its figures in the document, and what each adverse condition costs."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from cost_models.simulator.conditions import Conditions
from cost_models.simulator.simulation import Simulation, simulate
from planner.document.plan import Plan, Simulated
from planner.document.planned import held_workload, placed_shards, planned_replicas, planned_topology
from topologies.sentences import counted
from topologies.units import format_bytes

SIMULATED_TOLERANCE = 1e-6
"""Relative difference that rounding may make of a simulation: events may change places."""
BYTES_PER_STEP_OF_RANK = 20_000
"""Memory that the simulator takes for a step of one rank: of dlrm-dcnv2 on the 128 ranks of zionex-16 2.6 GB for 1,000
steps, 10.3 GB for 4,000."""


@dataclass(frozen=True)
class Effect:
    """What one condition alone does to the mean step."""

    condition: str
    step_s: float
    cost: float
    """Relative to the step without it."""


def simulate_plan(
    plan: Plan,
    *,
    steps: int = 1,
    conditions: Conditions | None = None,
    progress: Callable[[str], None] | None = None,
) -> Simulation:
    """Simulate steps of a plan. Raises ValueError if the plan places nothing, or for conditions that cannot be."""
    if plan.objective is None:
        raise ValueError("the plan places nothing")
    return simulate(
        planned_topology(plan),
        held_workload(plan),
        placed_shards(plan),
        replicas=planned_replicas(plan),
        steps=steps,
        exchange=plan.provenance.exchange,
        conditions=conditions,
        progress=progress,
    )


def simulated(simulation: Simulation) -> Simulated:
    """What the document says of it."""
    return Simulated(
        step_s=simulation.step_s,
        samples_per_s=simulation.samples_per_s,
        exposed_comm_fraction=float(simulation.exposed_comm.mean()),
    )


def with_simulation(plan: Plan) -> Plan:
    """The plan with the figures of its mean step; unchanged where it places nothing."""
    return plan if plan.objective is None else plan.model_copy(update={"simulated": simulated(simulate_plan(plan))})


@dataclass(frozen=True)
class SimulationOutcome:
    """Steps under some conditions, and what each of these costs by itself."""

    simulation: Simulation
    effects: tuple[Effect, ...]
    """The mean step on healthy hardware first; nothing else where nothing else is asked for."""


def simulate_conditions(
    plan: Plan,
    steps: int | None,
    conditions: Conditions,
    default_steps: int,
    progress: Callable[[str], None] | None = None,
) -> SimulationOutcome:
    """Simulate a plan under all conditions together and under each alone.

    It takes `default_steps` where steps differ and no number is given. `progress` hears what is being done. Raises
    ValueError for conditions that cannot be, and for more steps than this machine has memory for.
    """
    workload = held_workload(plan)
    varies = any(table.pooling_std for table in workload.tables)
    conditions = replace(conditions, pooling=conditions.pooling and varies)
    differ = conditions.pooling or conditions.jitter > 0
    count = steps or (default_steps if differ else 1)
    _expect_memory(count, planned_topology(plan).world_size)
    whole = simulate_plan(plan, steps=count, conditions=conditions, progress=progress)
    healthy = simulate_plan(plan).step_s
    effects = [Effect("mean step", healthy, 0.0)]
    parts = list(_parts(conditions))
    for name, condition in parts:
        alone = whole if len(parts) == 1 else simulate_plan(plan, steps=count, conditions=condition, progress=progress)
        effects.append(Effect(name, alone.step_s, alone.step_s / healthy - 1))
    if len(parts) > 1:
        effects.append(Effect("all together", whole.step_s, whole.step_s / healthy - 1))
    return SimulationOutcome(whole, tuple(effects))


def _expect_memory(steps: int, ranks: int) -> None:
    """Raise ValueError for steps that take more memory than there is."""
    needed = steps * ranks * BYTES_PER_STEP_OF_RANK
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return
    if needed > there:
        raise ValueError(
            f"{counted(steps, 'step')} of {counted(ranks, 'rank')} take about {format_bytes(needed)} of memory, and"
            f" this machine has {format_bytes(there)}; simulate at most {there // (ranks * BYTES_PER_STEP_OF_RANK):,}"
        )


def _parts(conditions: Conditions) -> Iterator[tuple[str, Conditions]]:
    plain = Conditions(seed=conditions.seed)
    if conditions.pooling:
        yield "pooling varies", replace(plain, pooling=True)
    if conditions.jitter:
        yield "device time varies", replace(plain, jitter=conditions.jitter)
    for rank, factor in conditions.slow_ranks.items():
        yield f"rank {rank} takes {factor:g} times as long", replace(plain, slow_ranks={rank: factor})
    for (link, number), share in conditions.slow_links.items():
        yield f"{link} {number} at {share:.0%}", replace(plain, slow_links={(link, number): share})
    for card in conditions.lost_cards:
        yield f"card {card} lost", replace(plain, lost_cards=(card,))
    if conditions.data_loading:
        yield "data loading", replace(plain, data_loading=True)
    if conditions.draws_rows:
        yield "rows drawn", replace(plain, draws_rows=True)
    if conditions.with_roots:
        yield "inverse roots in each step", replace(plain, with_roots=True)


def simulation_faults(plan: Plan) -> Iterator[str]:
    """Simulated figures that another simulation does not give."""
    if plan.simulated is None:
        return
    for name, repeated in simulated(simulate_plan(plan)):
        stated = getattr(plan.simulated, name)
        if not np.isclose(stated, repeated, rtol=SIMULATED_TOLERANCE, atol=0.0):
            yield f"simulated: {name} is {stated!r}; simulated again, it is {repeated!r}"
