"""The best way through the stages of a run: on how many nodes each runs, and under which plan.

A way is a path through a layered graph: a layer for each stage, a node of it for each number of nodes with each plan
that fits there, an edge for what changes between two stages. Its figures add up, so the shortest path is found layer by
layer (dynamic programming), and is exact among the plans that it is given. Where other figures are limited, the ways to
a node that none beats in all of them are kept (labels; Desrochers and Soumis, A generalized permanent labelling
algorithm for the shortest path problem with time windows, 1988).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from planner.document.plan import Plan
from planner.runs.plans import Move, Setting, Timed
from planner.runs.results import RunFigures
from planner.runs.run import FIGURES, Figure
from planner.runs.schedule import ScheduledStage


@dataclass(frozen=True)
class Candidate:
    """A plan that a stage can run under."""

    plan: Plan
    setting: Setting
    """Of the stage, on so many nodes."""
    made_for: Setting
    """What the plan was made for."""
    timed: Timed


@dataclass(frozen=True)
class Leg:
    """A stage on its way: the plan, and what changes before it."""

    stage: ScheduledStage
    candidate: Candidate
    move: Move
    evaluation_s: float
    """One evaluation."""

    @property
    def steps_s(self) -> Fraction:
        """All of its steps, exactly."""
        return self.stage.steps * Fraction(self.candidate.timed.whole_s)

    @property
    def evaluations_s(self) -> Fraction:
        """All of its evaluations, exactly."""
        return self.stage.evaluations * Fraction(self.evaluation_s)

    @property
    def seconds(self) -> Fraction:
        """From the beginning of what changes to the end of its last step, exactly."""
        return self.steps_s + self.evaluations_s + Fraction(self.move.seconds)


Way = tuple[Leg, ...]
Rates = Mapping[Figure, float | None]
"""What a second takes of each figure on some number of nodes; None where that is unknown."""


def takes(legs: Iterable[Leg], rates: Callable[[int], Rates]) -> RunFigures:
    """What stages take together: exact sums, rounded once, so that a stage in two parts takes what it took."""
    sums: dict[Figure, Fraction | None] = dict.fromkeys(FIGURES, Fraction(0))
    for leg in legs:
        of_second = rates(leg.candidate.setting.nodes)
        for name, so_far in sums.items():
            rate = of_second[name]
            sums[name] = None if so_far is None or rate is None else so_far + leg.seconds * Fraction(rate)
    return RunFigures.model_validate({name: None if exact is None else float(exact) for name, exact in sums.items()})


@dataclass(frozen=True)
class Graph:
    """What there is to choose from, and what counts."""

    stages: tuple[ScheduledStage, ...]
    candidates: tuple[tuple[Candidate, ...], ...]
    """Of each stage."""
    move: Callable[[Candidate, Candidate, ScheduledStage], Move]
    evaluation_s: Callable[[ScheduledStage, Candidate], float]
    rates: Callable[[int], Rates]
    """By the number of nodes."""
    objective: Figure
    limits: Mapping[Figure, float]

    @property
    def counted(self) -> tuple[Figure, ...]:
        """The objective, then the figures that are limited."""
        return (self.objective, *(name for name in FIGURES if name in self.limits and name != self.objective))

    def leg(self, before: Candidate | None, number: int, candidate: Candidate) -> Leg:
        """A stage under a plan, after another."""
        stage = self.stages[number]
        move = Move() if before is None else self.move(before, candidate, stage)
        return Leg(stage, candidate, move, self.evaluation_s(stage, candidate))

    def way(self, candidates: Sequence[Candidate]) -> Way:
        """The stages under these plans."""
        befores = (None, *candidates[:-1])
        return tuple(self.leg(before, i, own) for i, (before, own) in enumerate(zip(befores, candidates, strict=True)))

    def figures(self, way: Way) -> tuple[float, ...]:
        """Those that are counted; infinite where unknown."""
        return tuple(sum(column) for column in zip(*(self._of_leg(leg) for leg in way), strict=True))

    def keeps(self, figures: Sequence[float]) -> bool:
        """Whether no counted figure is above its limit."""
        return all(value <= self.limits.get(name, math.inf) for name, value in zip(self.counted, figures, strict=True))

    def _of_leg(self, leg: Leg) -> tuple[float, ...]:
        rates = self.rates(leg.candidate.setting.nodes)
        seconds = float(leg.seconds)
        return tuple(math.inf if rates[name] is None else seconds * (rates[name] or 0.0) for name in self.counted)

    def best(self) -> Way | None:
        """The way with the least objective that keeps the limits; None where none does."""
        labels: list[list[_Label]] = [[_Label((0.0,) * len(self.counted))]]
        for number, candidates in enumerate(self.candidates):
            layer = labels if number else [[labels[0][0]]]
            labels = [self._reached(layer, number, candidate) for candidate in candidates]
        last = [label for state in labels for label in state]
        if not last:
            return None
        return self.way([*min(last, key=lambda label: label.figures).path])

    def _reached(self, layer: Sequence[Sequence["_Label"]], number: int, candidate: Candidate) -> "list[_Label]":
        """The ways to a candidate that none beats."""
        kept: list[_Label] = []
        found = [
            replace(label, figures=figures, before=label, candidate=candidate)
            for state in layer
            if state
            for leg in [self._of_leg(self.leg(state[0].candidate, number, candidate))]
            for label in state
            if self.keeps(figures := tuple(map(sum, zip(label.figures, leg, strict=True))))
        ]
        for label in sorted(found, key=lambda label: label.figures):
            if not any(all(a <= b for a, b in zip(other.figures, label.figures, strict=True)) for other in kept):
                kept.append(label)
        return kept


@dataclass(frozen=True)
class _Label:
    """A way to a candidate, by what it takes so far."""

    figures: tuple[float, ...]
    before: "_Label | None" = None
    candidate: Candidate | None = None

    @property
    def path(self) -> Iterator[Candidate]:
        """From the first stage on."""
        label: _Label | None = self
        back = []
        while label is not None and label.candidate is not None:
            back.append(label.candidate)
            label = label.before
        yield from reversed(back)
