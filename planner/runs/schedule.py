"""The stages of a run one by one, growth spelled out, with their steps and evaluations counted.

What stages add up to does not change where one of them is cut in two: steps are counted over neighbours of one batch,
and evaluations over the whole run, by the samples that went before.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from planner.runs.run import MOST_STAGES, Growth, Lbfgs, Run, Stage
from topologies.documents import Document, Key
from topologies.errors import InputError


@dataclass(frozen=True)
class Passes:
    """What each step of a stage does beyond a training step."""

    forward_passes: float = 0.0
    """Of the whole model."""
    pairs: int = 0
    """Of L-BFGS; 0 without it."""
    compares_gradients: bool = False
    """Whether neighbouring batches overlap, so that gradients of the samples they share are summed by themselves."""
    hessian_products: float = 0.0

    @property
    def are_any(self) -> bool:
        """Whether a step does anything beyond a training step."""
        return bool(self.forward_passes or self.pairs or self.hessian_products)


@dataclass(frozen=True)
class ScheduledStage:
    """A stage, counted."""

    name: str
    where: tuple[Key, ...]
    """Where the run's file says so."""
    global_batch: int
    node_choices: tuple[int, ...]
    samples: int
    """Trained on, those that it reads again included."""
    steps: int
    evaluations: int
    passes: Passes

    @property
    def samples_read(self) -> int:
        """Samples of all its batches: those that batches share count as often."""
        return self.steps * self.global_batch


@dataclass(frozen=True)
class Schedule:
    """The stages of a run in their order."""

    stages: tuple[ScheduledStage, ...]
    distinct_samples: int
    """Without those that stages read again."""


@dataclass(frozen=True)
class _Grown:
    """A stage as it stands in the file, or one that grew from it."""

    name: str
    where: tuple[Key, ...]
    stage: Stage
    is_reread: bool = False
    """Whether the stage after it reads its samples again."""


def scheduled(run: Run, document: Document, own_batch: int | None, own_nodes: int) -> Schedule:
    """The stages of a run, where a stage that does not say otherwise has `own_batch` and `own_nodes`.

    Raises InputError where a stage has no batch, or batches that overlap in all their samples.
    """
    grown = [each for number, stage in enumerate(run.stages) for each in _grown(number, stage)]
    if len(grown) > MOST_STAGES:
        message = f"there are {len(grown):,} stages, more than {MOST_STAGES:,}; take larger factors"
        raise InputError([document.fault(("stages",), message)])
    batches = [_batch(each, own_batch, document) for each in grown]
    fresh = [_fresh(each, batch, document) for each, batch in zip(grown, batches, strict=True)]
    samples = [each.stage.samples or (each.stage.steps or 0) * new for each, new in zip(grown, fresh, strict=True)]
    steps = list(_steps(batches, fresh, samples))
    every = None if run.evaluation is None else run.evaluation.every
    evaluations = list(_evaluations(samples, every))
    stages = tuple(
        ScheduledStage(
            name=each.name,
            where=each.where,
            global_batch=batches[i],
            node_choices=each.stage.node_choices or (own_nodes,),
            samples=samples[i],
            steps=steps[i],
            evaluations=evaluations[i],
            passes=_passes(each.stage),
        )
        for i, each in enumerate(grown)
    )
    again = sum(number for number, each in zip(samples, grown, strict=True) if each.is_reread)
    return Schedule(stages, sum(samples) - again)


def _grown(number: int, stage: Stage) -> Iterator[_Grown]:
    """The stage, and those that grow from it."""
    name, where = stage.name or f"stage {number + 1}", ("stages", number)
    if stage.grow is None:
        yield _Grown(name, where, stage)
        return
    grow = stage.grow
    count = _count(stage, grow)
    for i in range(count):
        values: dict[str, Any] = {
            each: _value(getattr(stage, each), factor, i) for each, factor in grow.factors.items()
        }
        last = i == count - 1
        if last and grow.until is not None:
            values |= {str(each): reached for each, reached in grow.until.items()}
        yield _Grown(f"{name}.{i + 1}", where, stage.model_copy(update=values), grow.rereads and not last)


def _count(stage: Stage, grow: Growth) -> int:
    """How many stages there are: as said, or until the last one is reached."""
    if grow.stages is not None:
        return grow.stages
    ((name, last),) = (grow.until or {}).items()
    first, factor = getattr(stage, name), grow.factors[name]
    count = 1
    while count <= MOST_STAGES and _value(first, factor, count - 1) < last:
        count += 1
    return count


def _value(first: int, factor: float, times: int) -> int:
    """`first` multiplied so often, to the nearest whole number."""
    return round(first * Fraction(factor) ** times)


def _batch(each: _Grown, own_batch: int | None, document: Document) -> int:
    batch = each.stage.global_batch or own_batch
    if batch is None:
        message = "the workload says the batch of a rank, so that more nodes would train another batch; give one here"
        raise InputError([document.fault((*each.where, "global_batch"), message)])
    return batch


def _fresh(each: _Grown, batch: int, document: Document) -> int:
    """Samples of a step that the one before it did not have."""
    shared = _shared(each.stage.lbfgs, batch)
    if shared >= batch:
        message = f"the {batch:,} samples of a batch are all those of the one before; take a smaller overlap"
        raise InputError([document.fault((*each.where, "lbfgs", "overlap"), message)])
    return batch - shared


def _shared(lbfgs: Lbfgs | None, batch: int) -> int:
    return 0 if lbfgs is None else math.ceil(batch * Fraction(str(lbfgs.overlap)))


def _steps(batches: Sequence[int], fresh: Sequence[int], samples: Sequence[int]) -> Iterator[int]:
    """Steps of each stage: batches begun by the end of it less those begun before, among neighbours of one batch."""
    seen, before = (0, 0), 0
    for batch, new, number in zip(batches, fresh, samples, strict=True):
        if (batch, new) != seen:
            seen, before = (batch, new), 0
        yield -(-(before + number) // new) - -(-before // new)
        before += number


def _evaluations(samples: Iterable[int], every: int | None) -> Iterator[int]:
    """Evaluations in each stage: one whenever so many samples more were trained on."""
    before = 0
    for number in samples:
        yield 0 if every is None else (before + number) // every - before // every
        before += number


def _passes(stage: Stage) -> Passes:
    return Passes(
        forward_passes=0.0 if stage.line_search is None else stage.line_search.forward_passes,
        pairs=0 if stage.lbfgs is None else stage.lbfgs.pairs,
        compares_gradients=stage.lbfgs is not None and stage.lbfgs.overlap > 0,
        hessian_products=stage.hessian_products,
    )
