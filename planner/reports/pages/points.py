"""The points of a study as charts need them: what varies, what each is called, which is best."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from planner.reports.pages.charts import hover
from planner.studies.results import FIGURES, Axis, StudyResults
from planner.studies.scales import Scale, scale_of, value_text

TITLES = {
    "samples_per_s": "throughput",
    "step_s": "step",
    "usd_per_billion_samples": "USD per billion samples",
    "gap": "gap to the bound",
    "nodes": "nodes",
    "ranks": "ranks",
    "samples_per_step": "samples per step",
    "lower_bound_s": "bound on the step",
    "simulated_step_s": "simulated step",
    "simulated_samples_per_s": "simulated throughput",
    "measured_samples_per_s": "measured throughput",
    "usd_per_hour": "price per hour",
    "kilowatts": "power",
    "joules_per_sample": "energy per sample",
    "kg_co2e_per_hour": "greenhouse gases per hour (CO2e)",
    "kg_co2e_per_billion_samples": "greenhouse gases per billion samples (CO2e)",
}
CHOSEN = ("samples_per_s", "step_s", "usd_per_billion_samples", "gap")
"""Figures to choose from in a heat map and along an axis."""
LARGER_IS_BETTER = frozenset({"samples_per_s", "simulated_samples_per_s", "measured_samples_per_s"})
SCENARIO = Axis("scenario", "scenario", "", is_number=False)


@dataclass(frozen=True)
class Points:
    """The results of a study in the order of its points."""

    results: StudyResults

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per point, numbered from 0."""
        return self.results.frame.sort_values("point", kind="stable").reset_index(drop=True)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """What differs between points, the scenario included."""
        own = [axis for axis in self.results.axes if self.frame[axis.column].nunique(dropna=False) > 1]
        has_scenarios = "scenario" in self.frame and self.frame["scenario"].nunique(dropna=False) > 1
        every = [*([SCENARIO] if has_scenarios else []), *own]
        labels = [axis.label for axis in every]
        return tuple(axis if labels.count(axis.label) == 1 else replace(axis, label=axis.column) for axis in every)

    @cached_property
    def planned(self) -> NDArray[np.bool_]:
        """[P] whether a point has a plan."""
        known: NDArray[np.bool_] = self.frame["step_s"].notna().to_numpy(dtype=bool)
        return known

    def marked(self, column: str) -> NDArray[np.bool_]:
        """[P] whether a column of truth values is true; where it is unknown, or missing, it is not."""
        values = self.frame[column].tolist() if column in self.frame else [False] * len(self.frame)
        return np.array([not pd.isna(value) and bool(value) for value in values], dtype=bool)

    @cached_property
    def meets(self) -> NDArray[np.bool_]:
        """[P] whether a point has a plan that keeps the constraints."""
        return self.planned & self.marked("meets") if "meets" in self.frame else self.planned

    @cached_property
    def names(self) -> list[str]:
        """[P] what tells a point from the others, short."""
        if not self.axes:
            return [f"point {number}" for number in self.frame["point"]]
        columns = [[value_text(value, axis.unit) for value in self.values(axis)] for axis in self.axes]
        return [" · ".join(parts) for parts in zip(*columns, strict=True)]

    @property
    def name_words(self) -> str:
        """What the parts of a point's name are."""
        return " · ".join(axis.label for axis in self.axes) or "point"

    def values(self, axis: Axis) -> list[Any]:
        """[P] where the points stand on an axis; None where it is unset."""
        return [None if pd.isna(value) else value for value in self.frame[axis.column].tolist()]

    def levels(self, axis: Axis) -> list[Any]:
        """The different values of an axis: numbers ascending, words as they first come."""
        level_values = list(dict.fromkeys(self.values(axis)))
        return sorted(level_values) if self.is_numeric(axis) else level_values

    def is_numeric(self, axis: Axis) -> bool:
        """Whether all points stand at a number."""
        return axis.is_number and all(isinstance(value, int | float) for value in self.values_of[axis.column])

    def full_name(self, point: int) -> str:
        """What tells a point from the others, with the names of the axes."""
        return (
            self.group_name(self.axes, [self.values_of[axis.column][point] for axis in self.axes]) or self.names[point]
        )

    def has(self, column: str) -> bool:
        """Whether any point has this figure."""
        return column in self.frame and bool(self.frame[column].notna().any())

    def scale(self, column: str) -> Scale:
        """How a figure is written, the same for all points."""
        if column not in self._scales:
            self._scales[column] = scale_of(self.frame[column].tolist(), FIGURES.get(column, ""))
        return self._scales[column]

    @cached_property
    def _scales(self) -> dict[str, Scale]:
        return {}

    def numbers(self, column: str) -> list[float | None]:
        """[P] a figure in the unit of its scale; None where unknown."""
        divisor = self.scale(column).divisor
        return [None if value is None else value / divisor for value in _floats(self.frame[column])]

    def texts(self, column: str) -> list[str]:
        """[P] a figure with its unit."""
        values, unit, scale = _floats(self.frame[column]), FIGURES.get(column, ""), self.scale(column)
        is_count = unit in ("", "samples") and all(value is None or value.is_integer() for value in values)
        write = partial(value_text, unit=unit) if is_count else scale.text
        return ["unknown" if value is None else write(value) for value in values]

    def hovers(self, *columns: str) -> list[str]:
        """[P] what is said of a point under the pointer: where it stands, its status, and these figures."""
        if columns not in self._hovers:
            self._hovers[columns] = self._hover_texts(columns)
        return self._hovers[columns]

    @cached_property
    def _hovers(self) -> dict[tuple[str, ...], list[str]]:
        return {}

    def _hover_texts(self, columns: Sequence[str]) -> list[str]:
        figures = {TITLES.get(name, name): self.texts(name) for name in columns if self.has(name)}
        statuses = self.frame["status"].tolist()
        reasons = self.frame["reason"].tolist() if "reason" in self.frame else [None] * len(statuses)
        hovers = []
        for point, (status, reason) in enumerate(zip(statuses, reasons, strict=True)):
            facts = {axis.label: value_text(self.values_of[axis.column][point], axis.unit) for axis in self.axes}
            facts["status"] = str(status)
            if isinstance(reason, str) and reason:
                facts["why"] = _cut(reason)
            if self.planned[point]:
                facts |= {title: texts[point] for title, texts in figures.items()}
            hovers.append(hover("", facts))
        return hovers

    @cached_property
    def values_of(self) -> dict[str, list[Any]]:
        """The values of all axes by column."""
        return {axis.column: self.values(axis) for axis in self.axes}

    def ranked(self, among: NDArray[np.bool_] | None = None) -> list[int]:
        """Points with a plan, the best by the study's objective first; those that keep the constraints come first."""
        objective = self.results.objective
        column = objective if self.has(objective) else "step_s"
        sign = -1 if column in LARGER_IS_BETTER else 1
        value = sign * self.frame[column].to_numpy(dtype=float)
        keep = self.planned if among is None else self.planned & among
        order = np.lexsort((np.arange(len(value)), np.where(np.isnan(value), np.inf, value), ~self.meets))
        return [int(point) for point in order if keep[point]]

    def shown(self, most: int) -> tuple[list[int], str]:
        """At most so many points with a plan, in their order, and a sentence if some are left out."""
        ranked = self.ranked()
        note = f"The best {most} of {len(ranked):,} points by {self.objective_words}." if len(ranked) > most else ""
        return sorted(ranked[:most]), note

    @property
    def objective_words(self) -> str:
        """What is best, in words."""
        words = TITLES.get(self.results.objective, self.results.objective)
        return f"{'highest' if self.results.objective in LARGER_IS_BETTER else 'lowest'} {words}"

    def groups(self, axes: Sequence[Axis]) -> dict[tuple[Hashable, ...], list[int]]:
        """Points that agree on all of these axes, by their values there, ordered level by level."""
        if not axes:
            return {(): list(range(len(self.frame)))}
        members: dict[tuple[Hashable, ...], list[int]] = {}
        for point, key in enumerate(zip(*(self.values_of[axis.column] for axis in axes), strict=True)):
            members.setdefault(key, []).append(point)
        place = [{value: number for number, value in enumerate(self.levels(axis))} for axis in axes]
        return dict(sorted(members.items(), key=lambda item: [place[k][value] for k, value in enumerate(item[0])]))

    def group_name(self, axes: Sequence[Axis], key: Sequence[Hashable]) -> str:
        """What points with these values are called: `batch 65,536 · fp16`."""
        parts = []
        for axis, value in zip(axes, key, strict=True):
            text = value_text(value, axis.unit)
            parts.append(f"{axis.label} {text}" if axis.is_number else text)
        return " · ".join(parts)


def _floats(values: "pd.Series[Any]") -> list[float | None]:
    return [None if pd.isna(value) else float(value) for value in values.tolist()]


def _cut(text: str, most: int = 90) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
