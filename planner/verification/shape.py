"""Whether a document is a plan of its own inputs at all, whatever its figures are."""

from collections.abc import Iterator

from cost_models.model import CostModel
from planner.document.plan import Plan
from planner.verification.figures import TOLERANCE, table_faults

OPTIMAL_GAP = 1e-6
"""The largest gap of a plan that may be called optimal."""


def shape_faults(plan: Plan, model: CostModel) -> list[str]:
    """What keeps a document from being a plan of its own inputs at all, whatever its figures are, in words.

    Where this is empty, every table, rank and stage of the inputs is there once, and every shard on a rank.
    """
    return [*status_faults(plan), *(structure_faults(plan, model) if plan.objective is not None else ())]


def status_faults(plan: Plan) -> Iterator[str]:
    """A status that does not go with what else the document has."""
    is_placed = plan.status in ("optimal", "feasible")
    if is_placed != (plan.objective is not None):
        yield f"status: {plan.status} {'without' if is_placed else 'with'} an objective"
    if plan.objective is None and (plan.stages or plan.tables or plan.ranks):
        yield "status: stages, tables or ranks without an objective"
    if plan.objective is None and (plan.simulated or plan.proof or plan.other_exchange):
        yield "status: a simulated step or the proof of a bound without an objective"
    if plan.status == "optimal" and plan.objective is not None and plan.objective.gap > OPTIMAL_GAP + TOLERANCE:
        yield f"status: optimal, with a gap of {plan.objective.gap!r}"
    for status, reason, key in (
        ("infeasible", plan.infeasibility, "infeasibility"),
        ("timeout", plan.unplaced, "unplaced"),
    ):
        if (plan.status == status) != (reason is not None):
            yield f"status: {plan.status} {'with' if reason else 'without'} {key}"


def placement_faults(plan: Plan, model: CostModel) -> Iterator[str]:
    """Whether a plan that places something has all tables and ranks that there should be, and no others; its stages
    may be those of another batch."""
    yield from table_faults(plan, model)
    world = model.topology.world_size
    if [rank.rank for rank in plan.ranks] != list(range(world)):
        yield f"ranks: not 0 to {world - 1} in order"


def structure_faults(plan: Plan, model: CostModel) -> Iterator[str]:
    """Whether there are all tables, ranks and stages that there should be, and no others."""
    yield from placement_faults(plan, model)
    world, stages = model.topology.world_size, model.stages
    if tuple(stage.name for stage in plan.stages) != stages:
        yield f"stages: {[stage.name for stage in plan.stages]}, not {list(stages)}"
    for rank in plan.ranks:
        if rank.seconds.keys() != set(stages):
            yield f"rank {rank.rank}: has seconds of {list(rank.seconds)}, not of {list(stages)}"
    for stage in plan.stages:
        if stage.critical_rank is not None and not 0 <= stage.critical_rank < world:
            yield f"stage {stage.name}: there is no rank {stage.critical_rank}"
