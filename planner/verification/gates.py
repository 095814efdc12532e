"""Limits that a plan must keep to, as a pipeline checks them: step, memory, evenness, gap, another plan's placement."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from cost_models.evaluation import Evaluation
from cost_models.model import CostModel
from cost_models.registry import COST_MODELS
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_model, seconds_without_tables
from planner.document.table_differences import dense_of, groups_of, tables_held_otherwise
from planner.errors import UnsoundPlanError
from planner.verification.figures import figure_faults
from planner.verification.shape import shape_faults
from topologies.errors import Fault, InputError
from topologies.sentences import counted
from topologies.units import format_seconds

SHOWN = 3
"""Faults in a message."""


@dataclass(frozen=True)
class Limits:
    """What is demanded of a plan; None where nothing is."""

    max_step: float | None = None
    """Seconds: the longest step."""
    max_hbm: float | None = None
    """The largest share of its usable HBM that a rank may take."""
    max_imbalance: float | None = None
    """The largest ratio of slowest to mean rank (see `_imbalance`)."""
    max_gap: float | None = None
    """The largest gap between step, or rating, and lower bound."""
    same_as: tuple[str, Plan] | None = None
    """A name, and the plan of this name that must be placed alike."""


@dataclass(frozen=True)
class Gate:
    """One limit, and whether a plan keeps to it."""

    name: str
    """That of the limit."""
    figure: float | None
    """In the unit of the limit; of `same_as` the tables that are placed otherwise. None: the plan places nothing."""
    limit: float
    """The largest figure that passes."""
    passed: bool
    words: str
    """Figure and limit: `step 88.200 ms, at most 90.000 ms`."""


Place = str
"""Which rank it is, as the end of a phrase; empty where none is to blame."""


@dataclass(frozen=True)
class Figure:
    """A number of a plan that can be limited."""

    words: str
    write: Callable[[float], str]
    find: Callable[[Plan, CostModel, Evaluation], tuple[float, Place]]


def gates_of(plan: Plan, limits: Limits, source: str) -> list[Gate]:
    """Every limit with the plan's figure, recomputed from its shards; only the lower bound is taken as stated, which
    `verify` proves. A plan that places nothing keeps to no limit.

    Raises UnsoundPlanError where the document's figures are not those of its shards, and InputError where a step is
    demanded of a plan that minimises a rating, or the placement of one that places nothing. Messages call the plan
    `source`.
    """
    name = plan.provenance.cost_model
    if limits.max_step is not None and name in COST_MODELS and COST_MODELS[name].quantity != "step":
        raise InputError.at(source, f"minimises the rating of {name}, which is no time: no step can be limited")
    if limits.same_as is not None and not limits.same_as[1].tables:
        raise InputError.at(limits.same_as[0], f"is {limits.same_as[1].status}: it places no tables", path="status")
    model = planned_model(plan)
    _expect_none(shape_faults(plan, model), source, "was changed: {}")
    if plan.objective is None:
        return _gates_of_nothing(plan, limits)
    placed = placed_shards(plan)
    model = model.linearised_at(placed)
    evaluation = model.evaluate(placed)
    _expect_none(
        figure_faults(plan, model, evaluation), source, "its shards do not give what it states: {}; plan again"
    )
    gates = [_gate(name, kind, kind.find(plan, model, evaluation), limit) for name, kind, limit in _demanded(limits)]
    return gates if limits.same_as is None else [*gates, _placed_alike(plan, *limits.same_as)]


def _expect_none(faults: Iterable[str], source: str, message: str) -> None:
    """Raise UnsoundPlanError for the first faults."""
    if first := list(islice(faults, SHOWN)):
        raise UnsoundPlanError(Fault(source, 0, 0, "", message.format(text)) for text in first)


def _gates_of_nothing(plan: Plan, limits: Limits) -> list[Gate]:
    words = f"the plan is {plan.status}: it places no tables"
    demanded = {name: (f"no {kind.words}", limit) for name, kind, limit in _demanded(limits)}
    if limits.same_as is not None:
        demanded["same_as"] = (f"not placed as {limits.same_as[0]}", 0.0)
    return [Gate(name, None, limit, False, f"{lack}: {words}") for name, (lack, limit) in demanded.items()]


def _step(plan: Plan, _model: CostModel, _evaluation: Evaluation) -> tuple[float, Place]:
    assert plan.objective is not None
    return plan.objective.step_s, ""


def _gap(plan: Plan, _model: CostModel, _evaluation: Evaluation) -> tuple[float, Place]:
    assert plan.objective is not None
    return plan.objective.gap, ""


def _hbm(plan: Plan, _model: CostModel, _evaluation: Evaluation) -> tuple[float, Place]:
    """The share of the fullest rank."""
    shares = [rank.bytes["hbm"] / max(rank.capacity["hbm"], 1) for rank in plan.ranks]
    return max(shares), f" on rank {shares.index(max(shares))}"


def _imbalance(plan: Plan, model: CostModel, evaluation: Evaluation) -> tuple[float, Place]:
    """The seconds that tables add on the slowest rank of each stage, over those of the mean rank.

    Everybody waits for the slowest rank of a stage, so both are summed over stages. What a stage takes without any
    table (the dense part, launches, the overhead) is the same whatever is placed, and left out.
    """
    added = np.maximum(evaluation.rank_stage_seconds - seconds_without_tables(plan, model), 0.0)  # [W, S]
    slowest, mean = added.max(axis=0), added.mean(axis=0)
    if not mean.sum():
        return 1.0, ""
    worst = int((slowest - mean).argmax())
    return float(slowest.sum() / mean.sum()), f", most in {model.stages[worst]} on rank {added[:, worst].argmax()}"


def _percent(share: float) -> str:
    return f"{share:.2%}"


FIGURES = {
    "max_step": Figure("step", format_seconds, _step),
    "max_hbm": Figure("fullest HBM", _percent, _hbm),
    "max_imbalance": Figure("slowest to mean rank", "{:.3f}".format, _imbalance),
    "max_gap": Figure("gap", _percent, _gap),
}
"""The limits that are numbers."""


def _demanded(limits: Limits) -> Iterator[tuple[str, Figure, float]]:
    for name, kind in FIGURES.items():
        if (limit := getattr(limits, name)) is not None:
            yield name, kind, limit


def _gate(name: str, kind: Figure, found: tuple[float, Place], limit: float) -> Gate:
    figure, place = found
    shown, most = kind.write(figure), kind.write(limit)
    if figure > limit and shown == most:
        shown, most = repr(figure), repr(limit)
    return Gate(name, figure, limit, figure <= limit, f"{kind.words} {shown}{place}; at most {most}")


def _placed_alike(plan: Plan, name: str, other: Plan) -> Gate:
    """Whether all tables are placed as in the other plan, in the same groups of ranks, beside the same dense part."""
    differing = tables_held_otherwise(other, plan)
    differences = [f"{counted(len(differing), 'table')} placed otherwise than in {name}"]
    for what, there, here in (
        ("groups of ranks", groups_of(other), groups_of(plan)),
        ("dense part", dense_of(other), dense_of(plan)),
    ):
        if there != here:
            differences.append(f"{what}: {here}, there {there}")
    passed = not differing and len(differences) == 1
    return Gate("same_as", float(len(differing)), 0.0, passed, f"{'; '.join(differences)}; none may be")
