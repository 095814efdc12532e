"""The problems of a question at many choices of a line for each stage that exchanges, without the costs of each choice.

What blocks exchange in a stage depends on that stage's own line alone, but where lines are those of no exchange: of
stages with three lines each there are many choices, and three numbers of a line. Of what is prefetched other lines show
another share of the same seconds; what blocks wait for that ask for misses is all that others change there.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost_models.exchange_lines import Case
from cost_models.first_answers import CACHE_FETCH
from cost_models.model import CostModel
from planner.formulation.options import Options, exchange_seconds
from planner.problem.arrays import Problem
from planner.problem.numbers import Floats

Protocols = tuple[int, ...]
"""The number of a line of each of `CostModel.protocol_stages`."""
MOST_KEPT = 1 << 18
"""Seconds of block types up to which those at each number of a line are kept: 2 MiB an array."""


def at_lines(problem: Problem, model: CostModel, options: Options, before: Protocols) -> Problem:
    """A problem of the same options and of the same model at other lines than those `before`, which change what its
    exchanges cost."""
    if _are_of_same_exchanges(model, before):
        parts = [problem.fixed.copy(), problem.by_rows.copy(), problem.everywhere.copy()]
    else:
        others = np.flatnonzero(~np.isin(problem.stage_of_column, list(_stages(model).values())))
        parts = list(exchange_seconds(model, options))  # large and not shared: the others are put into them
        for there, here in zip(parts, (problem.fixed, problem.by_rows, problem.everywhere), strict=True):
            for column in others.tolist():
                if here[..., column].any() or there[..., column].any():  # columns of zeros take no memory
                    there[..., column] = here[..., column]
    return _with_seconds(problem, model, options, parts, before)


class SecondsAtLines:
    """What the blocks of one model and its options exchange at each number of a line, worked out when first asked."""

    def __init__(self) -> None:
        self._at: dict[tuple[Case, int], tuple[Floats, Floats, Floats]] = {}

    def problem(self, problem: Problem, model: CostModel, options: Options, before: Protocols) -> Problem:
        """`at_lines` of a problem of these options."""
        if problem.fixed.size > MOST_KEPT or model.case == "nothing" or _are_of_same_exchanges(model, before):
            return at_lines(problem, model, options, before)
        parts = [problem.fixed.copy(), problem.by_rows.copy(), problem.everywhere.copy()]
        numbers, of_stages = dict(zip(model.protocol_stages, model.protocols, strict=True)), _stages(model)
        for number in {numbers[stage] for stage in of_stages}:
            key = model.case, number
            there = self._at.get(key) or self._at.setdefault(key, _seconds_at(number, model, options))
            stages = [index for stage, index in of_stages.items() if numbers[stage] == number]
            columns = np.flatnonzero(np.isin(problem.stage_of_column, stages))
            for part, seconds in zip(parts, there, strict=True):
                part[:, :, columns] = seconds[:, :, columns]
        return _with_seconds(problem, model, options, parts, before)


def _stages(model: CostModel) -> dict[str, int]:
    """The stages with lines of their own, by name and number; what is prefetched has none."""
    return {stage: model.stages.index(stage) for stage in model.protocol_stages if stage in model.stages}


def _are_of_same_exchanges(model: CostModel, before: Protocols) -> bool:
    """Whether a model differs from that at other lines in nothing but what is prefetched."""
    pairs = zip(model.protocol_stages, model.protocols, before, strict=True)
    return all(own == other for stage, own, other in pairs if stage in model.stages)


def without_sums(problem: Problem, model: CostModel, options: Options) -> Problem:
    """A problem at lines with sums around all ranks (`CostModel.around`) at a model's own, which are of placements
    without any: of blocks with such sums, whose rows have no parts, every rank has more."""
    everywhere = problem.everywhere + model.beyond(options.blocks)
    return replace(problem, stage_constants=model.constants, base_loads=model.base_loads, everywhere=everywhere)


def _seconds_at(number: int, model: CostModel, options: Options) -> tuple[Floats, Floats, Floats]:
    """`exchange_seconds` at the lines with that number; of stages that have none such in the model's case, at the first
    or the last."""
    alike = [each for each in model.all_protocols if model.at_protocols(each).case == model.case]
    numbers = np.clip(number, np.min(alike, axis=0), np.max(alike, axis=0))
    return exchange_seconds(model.at_protocols(tuple(numbers.tolist())), options)


def _with_seconds(
    problem: Problem, model: CostModel, options: Options, parts: Sequence[Floats], before: Protocols
) -> Problem:
    """The problem with what its blocks, the three parts of it, and what is there before any, take at the lines of a
    model; what is prefetched shows in `parts` as it does at the lines `before`."""
    more = model.shares_at(model.protocols) / model.shares_at(before)
    for column in np.flatnonzero(more != 1.0).tolist():
        for part in parts:
            if part[..., column].any():
                part[..., column] *= more[column]
    fixed, by_rows, everywhere = parts
    if model.answer_columns:
        numbers = model.protocol_stages.index(CACHE_FETCH)
        if model.protocols[numbers] != before[numbers]:
            everywhere[..., model.answer_columns] = exchange_seconds(model, options)[2][..., model.answer_columns]
    return replace(
        problem,
        stage_constants=model.constants,
        base_loads=model.base_loads,
        fixed=fixed,
        by_rows=by_rows,
        everywhere=everywhere,
    )
