"""What a study asks: a cluster and a workload, what varies, what must hold, and what is best."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from planner.planning.integer_solution import Solver
from topologies.document_kinds import expect_kind
from topologies.documents import Document, Record, read_yaml, validate
from topologies.errors import InputError, shown
from topologies.shelf import Shelf
from topologies.units import Share, Unit

STUDIES = Shelf("study", Path(__file__).parent / "catalog")
"""The studies that are shipped."""

Figure = Literal[
    "samples_per_s",
    "step_s",
    "nodes",
    "ranks",
    "usd_per_hour",
    "usd_per_billion_samples",
    "kilowatts",
    "joules_per_sample",
    "kg_co2e_per_hour",
    "kg_co2e_per_billion_samples",
]
LARGER_IS_BETTER: frozenset[Figure] = frozenset({"samples_per_s"})
_UNITS: Mapping[str, tuple[Unit, float]] = {
    "step_s": (Unit("second", "s", "_s", "20ms"), 1.0),
    "usd_per_hour": (Unit("dollar / hour", "USD/h", "_usd_per_hour", "500USD/h"), 1.0),
    "kilowatts": (Unit("watt", "W", "_watts", "500kW"), 1e-3),
}
"""Figures that may be written with a unit, and what the parsed number is multiplied by."""
Name = Annotated[str, Field(min_length=1, max_length=120)]
Source = Annotated[str, Field(min_length=1)]
"""A catalog name, or a file beside the study's own, or from where the command runs."""


class Range(Record):
    """Values from `first` up to `last`, by a constant step or factor, or as a number of points."""

    first: Any
    """The first value."""
    last: Any
    """The last value, which a step or factor may fall short of."""
    step: Any = None
    """What is added, in the unit of the field."""
    factor: Annotated[float, Field(gt=1)] | None = None
    """What is multiplied by."""
    points: Annotated[int, Field(ge=2, le=100_000, strict=True)] | None = None
    """Number of values, both ends among them."""
    spacing: Literal["linear", "log"] = "linear"
    """How the `points` are spaced."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [name for name in ("step", "factor", "points") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give one of step, factor and points" + (f", not {' and '.join(given)}" if given else ""))
        if self.spacing == "log" and self.points is None:
            raise ValueError("spacing goes with points")
        return self


Values = Annotated[tuple[Any, ...] | Range, Field(union_mode="left_to_right")]


class Scenario(Record):
    """A named set of changes."""

    name: Name
    """What results call it."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Values by dotted path, as under `axes`."""


class Limit(Record):
    """What a figure may be."""

    min: float | None = None
    """No less than this; units as in the figure's name."""
    max: float | None = None
    """No more than this; units as in the figure's name."""

    @model_validator(mode="after")
    def _some_room(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("says nothing; give min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}: nothing can keep both")
        return self


class Search(Record):
    """How long each point is searched for; never by the clock, so that results repeat."""

    effort: Annotated[int, Field(ge=0, strict=True)] = 0
    """Passes of local search. 0: the best of the starts."""
    gap: Share = 0.01
    """Stop this close to the bound."""
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    """Same study and seed, same results."""
    solver: Solver = "search"
    """What follows the search: `ilp` or `auto` the integer programme, as in `planner plan`; `search` nothing."""
    prove: bool = False
    """Whether branching raises the bound after the search, as `planner plan` does; it takes most of the time
    where tables are few."""
    simulate: bool = True
    """Whether each plan's step is also simulated."""


class Measured(Record):
    """A step that was measured, beside which the point's prediction is shown."""

    at: dict[str, Any]
    """The point: `scenario`, and values of axes as the study writes them."""
    step_s: float
    """The measured step: a quantity, as 20ms, or a number of seconds."""
    source: str
    """Where it was published or measured."""

    @model_validator(mode="before")
    @classmethod
    def _in_seconds(cls, data: Any) -> Any:
        return _parsed(data, "step_s", "step_s")


def _parsed(data: Any, key: str, figure: str) -> Any:
    """The mapping with the quantity at `key` as a number of the figure's unit."""
    if not isinstance(data, dict) or not isinstance(data.get(key), str) or figure not in _UNITS:
        return data
    unit, factor = _UNITS[figure]
    return {**data, key: unit.parse(data[key]) * factor}


def _with_numbers(limits: Any) -> Any:
    if not isinstance(limits, dict):
        return limits
    numbered = {}
    for figure, limit in limits.items():
        for key in ("min", "max"):
            try:
                limit = _parsed(limit, key, figure)
            except ValueError as error:
                raise ValueError(f"{figure}.{key}: {error}") from None
        numbered[figure] = limit
    return numbered


class Study(Record):
    """A grid of points: every scenario with every combination of the axes' values."""

    kind: Literal["study"] = "study"
    """Says what the file is."""
    schema_version: Literal[1] = 1
    """The version of this format."""
    name: Name
    """What results and reports call the study."""
    description: str = ""
    """What it asks."""
    topology: Source | None = None
    """The cluster; unset where an axis or every scenario says it."""
    workload: Source | None = None
    """The model; likewise."""
    policy: Source | None = None
    """A policy file."""
    cost_model: Literal["physical"] = "physical"
    """physical, torchrec or hugectr."""
    prices: Source | None = None
    """A price sheet. Unset: what the topology says."""
    axes: dict[str, Values] = Field(default_factory=dict)
    """What varies, by dotted path: `topology.nodes.0.count`, `workload.global_batch`, `policy.tiers`,
    `growth.rows`, `prices`, … `*` stands for every element of a list. Each is combined with all others."""
    zips: tuple[dict[str, tuple[Any, ...]], ...] = ()
    """Fields that vary together, the first values of all, then the second ones."""
    scenarios: tuple[Scenario, ...] = ()
    """Named sets of changes, each of which is combined with all axes."""
    constraints: Annotated[dict[Figure, Limit], BeforeValidator(_with_numbers)] = Field(default_factory=dict)
    """What a point must keep to count: `samples_per_s: {min: 2e6}`, `step_s: {max: 20ms}`."""
    objective: Figure = "samples_per_s"
    """What is best, among the points that keep the constraints."""
    search: Search = Search()
    """How long each point is searched for."""
    measured: tuple[Measured, ...] = ()
    """Measured steps to show beside predictions."""

    def with_solver(self, solver: Solver) -> Self:
        """The same with another word on what follows each search."""
        return self.model_copy(update={"search": self.search.model_copy(update={"solver": solver})})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for values in self.axes.values():
            if isinstance(values, tuple) and not values:
                raise ValueError("the grid is empty: an axis has no values")
        for group in self.zips:
            lengths = {path: len(values) for path, values in group.items()}
            if len(set(lengths.values())) > 1:
                counts = ", ".join(f"{path} has {count}" for path, count in lengths.items())
                raise ValueError(f"fields that are zipped need equally many values: {counts}")
            if not group or not min(lengths.values()):
                raise ValueError("the grid is empty: a zip has no values")
        names = [scenario.name for scenario in self.scenarios]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"scenario names must differ; these stand twice: {', '.join(map(shown, twice))}")
        paths = [*self.axes, *(path for group in self.zips for path in group)]
        if twice := sorted({path for path in paths if paths.count(path) > 1}):
            raise ValueError(f"each field varies once; these stand twice: {', '.join(twice)}")
        return self


def read_study(source: str | Path) -> tuple[Study, Document]:
    """A study by path or catalog name, and where each of its keys stood. Raises InputError with every fault."""
    document = read_yaml(STUDIES.find(source))
    expect_kind(document, "study")
    if isinstance(document.data, dict) and "stages" in document.data:
        message = f"are those of a training run, not of a study; planner run {source} reads this file, its axes, too"
        raise InputError([document.fault(("stages",), message)])
    return validate(document, Study), document


FIGURES: tuple[Figure, ...] = get_args(Figure)
