"""The points of a study: every scenario with every combination of values, numbered; the last axis changes fastest."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.studies.fields import Cell, StudyField, field_at, repeated, repetition, values_between
from planner.studies.results import Axis
from planner.studies.study import Range, Scenario, Study
from topologies.documents import Document, Key
from topologies.errors import Fault, InputError

MOST_VALUES = 1_000_000
"""The most values of one axis."""


@dataclass(frozen=True)
class AxisChange:
    """A field and its new value, and where the study says so."""

    field: StudyField
    value: Any
    where: tuple[Key, ...]


@dataclass(frozen=True)
class Point:
    """One point of the grid."""

    number: int
    at: tuple[int, ...]
    """Which scenario, and which value of each zip and axis, from 0."""
    scenario: Scenario | None
    changes: tuple[AxisChange, ...]
    """Those of the scenario, then those of the axes."""
    cells: dict[str, Cell]
    """The axes' columns."""


@dataclass(frozen=True)
class _Dimension:
    """What changes together: changes [values][fields]."""

    steps: tuple[tuple[AxisChange, ...], ...]


class Grid:
    """The points of a study, made one by one: there may be millions."""

    def __init__(self, study: Study, document: Document) -> None:
        """Raises InputError with every field that does not exist and every range that is none."""
        self.study = study
        self.document = document
        self._faults: list[Fault] = []
        self._dimensions = [*self._zips(), *self._axes()]
        self._scenarios: list[tuple[Scenario | None, tuple[AxisChange, ...]]] = [(None, ())]
        if study.scenarios:
            self._scenarios = [(scenario, self._scenario(i, scenario)) for i, scenario in enumerate(study.scenarios)]
        if self._faults:
            raise InputError(self._faults)
        self.axes = tuple(self._axis(field) for field in self._fields())
        """The columns of the table that say which point it is; without that of the scenario."""

    def __len__(self) -> int:
        return len(self._scenarios) * math.prod(len(dimension.steps) for dimension in self._dimensions)

    def __iter__(self) -> Iterator[Point]:
        for number in range(len(self)):
            yield self.point(number)

    def point(self, number: int) -> Point:
        """One point, by its number."""
        left, at = number, []
        for dimension in reversed(self._dimensions):
            left, index = divmod(left, len(dimension.steps))
            at.append(index)
        at = [left, *reversed(at)]
        scenario, changes = self._scenarios[left]
        steps = (dimension.steps[index] for dimension, index in zip(self._dimensions, at[1:], strict=True))
        varied = tuple(itertools.chain.from_iterable(steps))
        cells = {change.field.column: change.field.cell(change.value) for change in varied}
        return Point(number, tuple(at), scenario, changes + varied, cells)

    def _field(self, path: str, where: tuple[Key, ...]) -> StudyField | None:
        try:
            return field_at(path)
        except LookupError as error:
            self._faults.append(self.document.fault(where, str(error.args[0])))
            return None

    def _zips(self) -> Iterator[_Dimension]:
        for number, group in enumerate(self.study.zips):
            columns = []
            for path, values in group.items():
                where = ("zips", number, path)
                if (field := self._field(path, where)) is not None:
                    columns.append([AxisChange(field, value, (*where, i)) for i, value in enumerate(values)])
            if columns:
                yield self._distinct(tuple(zip(*columns, strict=True)))

    def _axes(self) -> Iterator[_Dimension]:
        for path, values in self.study.axes.items():
            where = ("axes", path)
            if (field := self._field(path, where)) is None:
                continue
            if isinstance(values, Range):
                yield _Dimension(
                    tuple((AxisChange(field, value, where),) for value in self._between(field, values, where))
                )
            else:
                yield self._distinct(tuple((AxisChange(field, value, (*where, i)),) for i, value in enumerate(values)))

    def _distinct(self, steps: tuple[tuple[AxisChange, ...], ...]) -> _Dimension:
        """What changes together, with a fault for each value that stands twice: its points would be the same."""
        identities = [tuple(change.field.identity(change.value) for change in step) for step in steps]
        for number, before in repeated(identities):
            self._faults.append(self.document.fault(steps[number][0].where, repetition(before)))
        return _Dimension(steps)

    def _between(self, field: StudyField, values: Range, where: tuple[Key, ...]) -> list[Any]:
        try:
            between = values_between(
                field,
                values.first,
                values.last,
                step=values.step,
                factor=values.factor,
                points=values.points,
                log=values.spacing == "log",
                most=MOST_VALUES,
            )
        except ValueError as error:
            self._faults.append(self.document.fault(where, str(error)))
            return []
        if len(between) > MOST_VALUES:
            self._faults.append(self.document.fault(where, f"has more than {MOST_VALUES:,} values; take a wider step"))
            return []
        return between

    def _scenario(self, number: int, scenario: Scenario) -> tuple[AxisChange, ...]:
        changes = []
        for path, value in scenario.set.items():
            where = ("scenarios", number, "set", path)
            if (field := self._field(path, where)) is not None:
                changes.append(AxisChange(field, value, where))
        return tuple(changes)

    def _fields(self) -> Iterator[StudyField]:
        for dimension in self._dimensions:
            yield from (change.field for change in dimension.steps[0])

    def _axis(self, field: StudyField) -> Axis:
        cells = [
            field.cell(change.value)
            for dimension in self._dimensions
            for step in dimension.steps
            for change in step
            if change.field.path == field.path
        ]
        is_number = all(isinstance(cell, int | float) for cell in cells)
        unit = "" if field.unit is None else field.unit.suffix or "share"
        return Axis(field.column, field.label, unit, is_number)
