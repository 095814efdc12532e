"""What single change of the inputs would make the tables fit: the smallest of each kind, found by trying.

A check is the planner's own test of feasibility, on a problem of bytes without seconds that is built anew from the
changed inputs. What passes it is then packed, so that a remedy is one that a plan exists for.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from cost_models.memory_model import MemoryModel
from cost_models.model import CostModel
from planner.diagnosis.knobs import Change, Knob, PlanningInputs, knobs_of
from planner.document.reasons import Remedy
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import enumerate_options, uncapped_problem, within_capacity
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.block_sizes import block_shares, smallest_shares
from planner.problem.numbers import Floats
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import fits
from planner.solvers.construct.packing import pack

PLACING_STEPS = (0, 1, 3, 8, 16)
"""Steps beyond the smallest change that may suffice, at which a placement is looked for."""
PLACING_WORK = 2e7
"""Tables x ranks that one packing may take."""


def remedies(
    model: CostModel, policy: Policy, bytes_short: Floats | None, is_over: Callable[[], bool] = lambda: False
) -> tuple[Remedy, ...]:
    """The smallest single change of each kind that makes the tables fit, and what would not.

    `bytes_short` [M] of a proof (see `Shortage`) tells where to begin. `is_over` is asked before each kind whether to
    leave the rest out.
    """
    problems = _ChangedProblems(model, policy, is_over)
    helpful = []
    for knob in knobs_of(model, policy, np.full(len(model.memories), np.nan) if bytes_short is None else bytes_short):
        if is_over():
            break
        helpful.append(_remedy(knob, problems))
    return tuple(helpful)


def _remedy(knob: Knob, problems: "_ChangedProblems") -> Remedy:
    """The first step of the knob that suffices, as the document says it."""
    step = _least(lambda n: problems.fits(knob.at(n)), knob)
    least = knob.at(step) if step is not None else None
    if step is None or least is None:
        unplaceable = problems.unplaceable(knob.at(knob.most))
        words = knob.futile + (f", where {unplaceable} still fits nowhere" if unplaceable else "")
        return Remedy(change=knob.kind, group=knob.group, was=knob.was, value=None, flags=None, least=None, words=words)
    placed = _placed(knob, step, problems)
    change = placed or least
    words = change.words if placed else f"at least {change.words}, for which no placement was found"
    if placed and placed.value != least.value:
        words += f" (at least {least.value}, by proof)"
    return Remedy(
        change=knob.kind,
        group=knob.group,
        was=knob.was,
        value=change.value,
        flags=change.flags,
        least=least.value,
        words=words,
    )


def _least(suffices: Callable[[int], bool], knob: Knob) -> int | None:
    """The first step that suffices; by steps of growing width from the guess, then by bisection."""
    if not knob.ordered:
        return next((n for n in range(1, knob.most + 1) if suffices(n)), None)
    low, high = 0, knob.most + 1
    probe, width = min(max(knob.guess, 1), knob.most), 1
    if suffices(probe):
        high = probe
        while high - width > 0 and suffices(high - width):
            high, width = high - width, width * 2
        low = max(high - width, 0)
    else:
        low = probe
        while low < knob.most:
            probe = min(low + width, knob.most)
            if suffices(probe):
                high = probe
                break
            low, width = probe, width * 2
        else:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _placed(knob: Knob, least: int, problems: "_ChangedProblems") -> Change | None:
    """The first step from `least` on at which a placement is found, if one is near."""
    low = least - 1
    steps = list(range(least, knob.most + 1)) if not knob.ordered else [least + n for n in PLACING_STEPS]
    for step in steps:
        if step > knob.most or not problems.is_placed(knob.at(step)):
            low = step
            continue
        while knob.ordered and step - low > 1:
            middle = (low + step) // 2
            low, step = (low, middle) if problems.is_placed(knob.at(middle)) else (middle, step)
        return knob.at(step)
    return None


class _ChangedProblems:
    """Problems of changed inputs, and whether they fit."""

    def __init__(self, model: CostModel, policy: Policy, is_over: Callable[[], bool]) -> None:
        self._model, self._policy, self._is_over = model, policy, is_over

    def fits(self, change: Change | None) -> bool:
        """Whether the fluid problem fits."""
        return change is not None and fits(Fluid(self._problem(change.inputs)))

    def unplaceable(self, change: Change | None) -> str | None:
        """The first table that fits nowhere even then."""
        if change is None:
            return None
        problem = self._problem(change.inputs)
        nowhere = np.flatnonzero(np.isinf(smallest_shares(problem, block_shares(problem))))
        return self._model.workload.tables[int(nowhere[0])].name if len(nowhere) else None

    def is_placed(self, change: Change | None) -> bool:
        """Whether a placement is found."""
        if change is None:
            return False
        return pack(self._problem(change.inputs), self._is_over, PLACING_WORK) is not None

    @cached_property
    def _uncapped(self) -> Problem:
        model = MemoryModel(self._model)
        return uncapped_problem(model, enumerate_options(model, self._policy))

    def _problem(self, inputs: PlanningInputs) -> Problem:
        """All that is feasible or not about some inputs: the same model, options and problem as a plan's."""
        model = MemoryModel(
            planning_model(self._model.name, inputs.topology, inputs.workload, inputs.policy, self._model.exchange)
        )
        if inputs.same_blocks:
            again = (model.memory_capacity[0],) * (2 * model.stashes)  # HBM, for what is stashed
            sizes = (*model.memory_capacity, *again)
            budget = self._uncapped.pool_capacity[len(sizes) :]  # of losses, where there is one
            return within_capacity(replace(self._uncapped, pool_capacity=(*sizes, *budget)))
        return within_capacity(uncapped_problem(model, enumerate_options(model, inputs.policy)))
