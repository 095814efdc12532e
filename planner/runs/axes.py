"""A run in many ways: fields of its file and of its inputs that vary, each combination a run."""

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from planner.runs.inputs import RunInputs
from planner.runs.run import Run
from planner.studies.fields import ROOTS, Cell, StudyField, field_at, repeated, repetition, values_between
from planner.studies.study import Range
from topologies.documents import Document, Key, Origin, assign_everywhere, validate
from topologies.errors import Fault, InputError

MOST_RUNS = 1_000
"""Runs of one file at most."""


@dataclass(frozen=True)
class AxisValue:
    """One value of an axis, and where the file says it."""

    field: StudyField
    value: Any
    where: tuple[Key, ...]

    @property
    def is_of_input(self) -> bool:
        """Whether it changes a field inside an input, not the run's own file."""
        return self.field.root in ROOTS and bool(self.field.inside)


@dataclass(frozen=True)
class Variant:
    """One of the runs."""

    cells: dict[str, Cell]
    """The axes' columns."""
    inputs: RunInputs | InputError
    """What is wrong with it, where it cannot be."""


def variants(run: Run, document: Document) -> list[Variant]:
    """All of them, the last axis changing fastest. Raises InputError for fields that do not exist, for values that are
    none, for axes that every stage overrides, and where no run of all can be."""
    faults: list[Fault] = []
    axes = [_axis(run, document, path, faults) for path in run.axes]
    count = 1
    for values in axes:
        count *= len(values)
    if count > MOST_RUNS:
        faults.append(document.fault(("axes",), f"makes {count:,} runs, more than {MOST_RUNS:,}; name fewer values"))
    if faults:
        raise InputError(faults)
    made = [_variant(document, values) for values in itertools.product(*axes)]
    if all(isinstance(each.inputs, InputError) for each in made):
        raise InputError(
            dict.fromkeys(f for each in made if isinstance(each.inputs, InputError) for f in each.inputs.faults)
        )
    return made


def _axis(run: Run, document: Document, path: str, faults: list[Fault]) -> list[AxisValue]:
    where = ("axes", path)
    try:
        field = _field(path)
        _expect_effect(run, path)
        values = list(_values(field, run.axes[path]))
    except (LookupError, ValueError) as error:
        faults.append(document.fault(where, str(error.args[0])))
        return []
    if not values:
        faults.append(document.fault(where, "has no values"))
    is_range = isinstance(run.axes[path], Range)
    for number, before in repeated([field.identity(value) for value in values]):
        faults.append(document.fault((*where, number), repetition(before)))
    return [AxisValue(field, value, where if is_range else (*where, i)) for i, value in enumerate(values)]


def _field(path: str) -> StudyField:
    """The field that a path means; those of the file itself are looked for when they are set."""
    root, dot, _ = path.partition(".")
    if root in ROOTS and dot:
        return field_at(path)
    if root in {"axes", "kind", "schema_version", "name", "description"}:
        raise LookupError(f"{path!r} is nothing that a run depends on; vary stages, inputs, limits or the search")
    return StudyField(path, None, False)


def _expect_effect(run: Run, path: str) -> None:
    """Raise LookupError for a field of an input that every stage says itself."""
    is_count = path.startswith("topology.nodes.") and path.endswith(".count")
    if is_count and run.group is None and all(stage.nodes is not None for stage in run.stages):
        raise LookupError("every stage says its own nodes; vary stages.*.nodes, or leave nodes out of a stage")
    is_batch = path in ("workload.global_batch", "workload.batch_per_rank")
    if is_batch and all(stage.global_batch is not None for stage in run.stages):
        raise LookupError("every stage says its own batch; vary stages.*.global_batch, or leave it out of a stage")


def _values(field: StudyField, values: Any) -> Iterator[Any]:
    if not isinstance(values, Range):
        yield from values
        return
    spaced = {"step": values.step, "factor": values.factor, "points": values.points}
    yield from values_between(field, values.first, values.last, **spaced, log=values.spacing == "log", most=MOST_RUNS)


def _variant(document: Document, values: tuple[AxisValue, ...]) -> Variant:
    cells = {each.field.column: each.field.cell(each.value) for each in values}
    own = replace(document, data=copy.deepcopy(document.data), overridden=dict(document.overridden))
    changes: dict[str, list[tuple[str, Any, Origin]]] = {}
    try:
        for each in values:
            origin = (document, each.where)
            if each.is_of_input:
                changes.setdefault(each.field.root, []).append((each.field.inside, each.value, origin))
            else:
                assign_everywhere(own, each.field.path, each.value, Run, origin)
        return Variant(cells, RunInputs(validate(own, Run), own, changes))
    except InputError as error:
        return Variant(cells, error)
