"""The HBM of a plan's ranks over the course of a step: records, a table in words, what a picture shows."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cost_models.memory_course import PARTS, TABLES, MemoryCourse, memory_course
from cost_models.shards import Floats
from cost_models.step import StepModel
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_model
from planner.reports.tables import TextGrid
from planner.studies.scales import scale_of
from topologies.errors import InputError
from topologies.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, str | int | float | None]

SHOWN: Mapping[str, tuple[str, ...]] = {
    "tables": (*TABLES, "copies"),
    "dense": ("parameters", "gathered"),
    "activations": ("activations",),
    "ids": ("ids", "next_ids"),
    "vectors": ("vectors", "embeddings"),
}
"""What a table and a picture show together."""


def course_of_plan(plan: Plan) -> MemoryCourse:
    """That of every rank. Raises InputError for a plan without tables placed, and for one of another planner's costs,
    which do not say what is there when."""
    model = planned_model(plan)
    if plan.objective is None:
        raise InputError.at("course", f"a plan that is {plan.status} places no tables")
    if not isinstance(model, StepModel):
        raise InputError.at("course", f"costs as {model.name} counts them do not say what is in HBM when")
    return memory_course(model, placed_shards(plan))


def records(course: MemoryCourse) -> list[Record]:
    """A record for each rank and moment: bytes in all and of each part; whether it is the rank's first with the most,
    and what a plan counts of the rank."""
    peak, found = course.totals.argmax(axis=1), list[Record]()
    for rank, counted in enumerate(course.counted.tolist()):
        for t, name in enumerate(course.moments):
            record: Record = {"rank": rank, "moment": name, "total_bytes": round(float(course.totals[rank, t]))}
            sizes = zip(PARTS, course.bytes[rank, t].tolist(), strict=True)
            record |= {f"{part}_bytes": round(size) for part, size in sizes}
            found.append(record | {"is_peak": int(t == peak[rank]), "counted_bytes": round(counted)})
    return found


def shown_parts(course: MemoryCourse, rank: int) -> dict[str, Floats]:
    """[T] bytes of a rank for each of SHOWN of which it has any."""
    of = {name: course.bytes[rank][:, [PARTS.index(p) for p in parts]].sum(axis=1) for name, parts in SHOWN.items()}
    return {name: size for name, size in of.items() if size.any()}


def render(course: MemoryCourse, console: "Console") -> None:
    """Print the rank that takes the most, moment by moment, below a sentence on its peak and on the plan's figure."""
    rank, _ = course.fullest
    console.print(peak_words(course))
    console.print()
    parts = shown_parts(course, rank)
    scale = scale_of([float(course.totals.max())], "B")
    table = TextGrid((f"rank {rank}, {scale.unit}", "left"), *((name, "right") for name in (*parts, "total")))
    for t, name in enumerate(course.moments):
        sizes = [*(size[t] for size in parts.values()), course.totals[rank, t]]
        table.add_row(name, *(f"{size / scale.divisor:.3f}" if size else "" for size in sizes))
    console.print(table)


def peak_words(course: MemoryCourse) -> str:
    """The peak, its rank and its moments; the spread over ranks; and why a plan counts another number of bytes."""
    rank, moment = course.fullest
    highest, peaks = course.totals[rank, moment], course.totals.max(axis=1)
    names = _span([course.moments[t] for t in np.flatnonzero(course.totals[rank] == highest)])
    words = f"HBM is fullest on rank {rank}, {names}: {format_bytes(float(highest))}."
    if len(peaks) > 1:
        words += f" Peaks of the ranks: {format_bytes(float(peaks.min()))} to {format_bytes(float(peaks.max()))}."
    more = round(float(course.counted[rank])) - round(float(highest))
    if course.is_flat:
        words += " The runtime keeps all of it for the whole step."
    if more == 0:
        return f"{words} The plan counts as many bytes."
    return (
        f"{words} The plan counts {format_bytes(float(course.counted[rank]))} of this rank, {more:,} bytes more:"
        " it takes vectors by a straight line that is at no moment below what is there."
    )


def _span(names: Sequence[str]) -> str:
    return f"at {names[0]!r}" if len(names) == 1 else f"from {names[0]!r} to {names[-1]!r}"
