"""Which of several clusters, and which of several changes to them, does with the least: the smallest size of each case,
what it costs and draws, whether it keeps the constraints, and which comes first.

Price and power grow with the nodes. So where the smallest size that reaches the target breaks a constraint, every
larger one does too, and the case has no answer: one search over the nodes serves the question with and without
constraints.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from cost_models.workload.models import Workload
from planner.capacity.candidates import Candidate
from planner.capacity.prices import Bill, PriceSheet, bill
from planner.capacity.sizing import DEFAULT_MAX_NODES, Sizing, group_index, size
from planner.formulation.policy import Policy, policy_document
from planner.planning.integer_solution import Solver
from planner.solvers.incumbent import Progress
from topologies.cluster import Topology
from topologies.documents import Document, validate
from topologies.errors import Fault, InputError

PRICE_TOLERANCE = 1e-9
"""Relative: sums of prices may miss what a user writes by this much."""


@dataclass(frozen=True)
class Case:
    """A cluster and a workload under a name; `group` names the node group that is sized, where there are several."""

    label: str
    topology: Topology
    workload: Workload
    group: str | None = None


@dataclass(frozen=True)
class ClusterQuestion:
    """What a cluster must do, what it may cost, and what is best. Throughput and step are by the estimate."""

    target_samples_per_s: float | None = None
    max_step_s: float | None = None
    """Both None: that the tables fit is enough."""
    max_usd_per_hour: float | None = None
    max_kilowatts: float | None = None
    by: Literal["size", "price"] = "size"
    """`size`: the fewest ranks, then the lowest price. `price`: the lowest price per hour, then the fewest ranks."""
    max_nodes: int = DEFAULT_MAX_NODES

    @property
    def is_constrained(self) -> bool:
        """Whether price or power is limited."""
        return self.max_usd_per_hour is not None or self.max_kilowatts is not None

    def broken(self, cost: Bill) -> list[str]:
        """Words for each constraint that a cluster of this price and power does not keep, or that cannot be told."""
        return [
            *_broken("it costs", "price", cost.usd_per_hour, self.max_usd_per_hour, "USD/h"),
            *_broken("it draws", "power", cost.kilowatts, self.max_kilowatts, "kW"),
        ]


def _broken(verb: str, noun: str, value: float | None, most: float | None, unit: str) -> Iterable[str]:
    if most is None:
        return
    if value is None:
        yield f"its {noun} is unknown, so {most:,.10g} {unit} cannot be kept"
    elif value > most * (1 + PRICE_TOLERANCE):
        yield f"{verb} {value:,.2f} {unit}, above {most:,.10g}"


@dataclass(frozen=True)
class ClusterChoice:
    """A case with some tiers allowed: its smallest size that reaches the target, and what that costs and draws."""

    case: Case
    sizing: Sizing
    question: ClusterQuestion
    sheet: PriceSheet | None = None

    @cached_property
    def bill(self) -> Bill:
        """What the answer costs and draws; unknown where there is none."""
        return self.bill_of(self.sizing.answer) if self.sizing.answer else Bill(None, None)

    @cached_property
    def broken(self) -> list[str]:
        """Words for each constraint that the answer breaks."""
        return self.question.broken(self.bill) if self.sizing.answer else []

    @property
    def does(self) -> bool:
        """Whether there is an answer that keeps the constraints."""
        return self.sizing.answer is not None and not self.broken

    def bill_of(self, candidate: Candidate) -> Bill:
        """What a size costs and draws; unknown where there is no such cluster."""
        if not candidate.ranks:
            return Bill(None, None)
        return bill(
            self.case.topology.resized(group_index(self.case.topology, self.case.group), candidate.nodes), self.sheet
        )


def size_all(
    cases: Sequence[Case],
    question: ClusterQuestion,
    *,
    policy: Policy | Document | str | Path | None = None,
    prices: PriceSheet | None = None,
    each_tier: bool = False,
    effort: int = 1,
    gap: float = 0.01,
    seed: int = 0,
    solver: Solver = "search",
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[ClusterChoice, ...]:
    """The smallest size of each case, in the order of the cases; with `each_tier` several choices for each.

    See `sizing.size` for how one case is sized. A case that cannot be planned for at any size is a choice without an
    answer; raises InputError where no case can, for a node group that is not named well, and for two cases that are
    the same.
    """
    faults = _faults(cases)
    if faults:
        raise InputError(dict.fromkeys(faults))
    rules = policy if isinstance(policy, Document) else policy_document(policy)
    tiers = validate(rules, Policy).tiers
    choices: list[ClusterChoice] = []
    refused = 0
    for case in cases:
        try:
            sizings = size(
                case.topology,
                case.workload,
                target_samples_per_s=question.target_samples_per_s,
                max_step_s=question.max_step_s,
                group=case.group,
                max_nodes=question.max_nodes,
                policy=rules,
                each_tier=each_tier,
                effort=effort,
                gap=gap,
                seed=seed,
                solver=solver,
                progress=_named(progress, case.label) if len(cases) > 1 else progress,
                stop=stop,
            )
        except InputError as error:
            refused += 1
            faults += error.faults
            none = Candidate(question.max_nodes, 0, False, "input", reason=error.faults[0].message)
            sizings = (Sizing("all tiers", tiers, None, None, (none,)),)
        choices += [ClusterChoice(case, sizing, question, prices) for sizing in sizings]
    if refused == len(cases):
        raise InputError(dict.fromkeys(faults))
    return tuple(choices)


def _faults(cases: Sequence[Case]) -> list[Fault]:
    faults: list[Fault] = []
    seen: list[tuple[Topology, Workload]] = []
    for case in cases:
        try:
            content = case.topology.resized(group_index(case.topology, case.group), 1), case.workload
        except InputError as error:
            faults += error.faults
            continue
        if content in seen:
            faults += InputError.at(case.label, "is the same as another case, but for the nodes that are sized").faults
        seen.append(content)
    return faults


def _named(tell: Progress | None, label: str) -> Progress | None:
    """Progress of a case: each size that is begun is named with it."""
    if tell is None:
        return None
    return lambda step, best_s, bound_s: tell(
        f"{label}: {step}" if best_s is None and bound_s is None else step, best_s, bound_s
    )


def ranked(choices: Iterable[ClusterChoice], *, constrained: bool = True) -> list[ClusterChoice]:
    """Best first; after those that do come those that break a constraint (unless not `constrained`), then the others.

    A price that is unknown comes after every price that is known. What ties in all stays in its order.
    """

    def key(choice: ClusterChoice) -> tuple[int, float, float]:
        answer = choice.sizing.answer
        if answer is None:
            return 2, 0.0, 0.0
        price = math.inf if choice.bill.usd_per_hour is None else choice.bill.usd_per_hour
        figures = (price, answer.ranks) if choice.question.by == "price" else (answer.ranks, price)
        return int(constrained and not choice.does), *figures

    return sorted(choices, key=key)
