"""Towers of a model: which tables each has, and the module that turns their vectors into fewer numbers (DMT)."""

import fnmatch
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from topologies.documents import Record
from topologies.errors import ConflictError

ModuleKind = Literal["none", "linear", "dcn", "mlp"]
Width = Annotated[int, Field(ge=1)]


def _pairs(value: object) -> object:
    return tuple(value.items()) if isinstance(value, dict) else value


Groups = Annotated[
    tuple[tuple[Annotated[str, Field(min_length=1)], Annotated[int, Field(ge=0)]], ...],
    BeforeValidator(_pairs),
    PlainSerializer(dict, return_type=dict[str, int]),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "integer"}, "examples": [{"user_*": 0}]}),
]


class Towers(Record):
    """Tables in towers, one for each scale-up domain of the cluster (arXiv:2403.00877).

    A module changes the model: the dense part reads what the modules give instead of the tables' vectors.
    """

    count: Annotated[int, Field(ge=2)]
    """Towers, as many as the cluster has scale-up domains."""
    module: ModuleKind = "none"
    """What each tower does with the joined vectors of its tables: nothing, a linear layer, low-rank cross layers and a
    linear layer, or layers of its own."""
    width: Width | None = None
    """Numbers that a linear or dcn module of a tower gives for a sample."""
    compression: Annotated[float, Field(ge=1)] | None = None
    """Columns of a tower over what its module gives, rounded up; instead of width."""
    sizes: Annotated[tuple[Width, ...], Field(exclude_if=lambda sizes: not sizes)] = ()
    """Output widths of the layers of an mlp module."""
    dcn_layers: Annotated[int, Field(ge=1)] = 1
    dcn_low_rank: Annotated[int, Field(ge=1)] = 512
    group: Groups = ()
    """The tower, counted from 0, of tables by name or pattern; others go to the towers with the fewest columns."""

    @property
    def has_modules(self) -> bool:
        """Whether the model is another one than without towers."""
        return self.module != "none"

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        given = [name for name in ("width", "compression", "sizes") if getattr(self, name) not in (None, ())]
        fits = {"none": (), "mlp": ("sizes",)}.get(self.module, ("width", "compression"))
        unfit = [name for name in given if name not in fits]
        if unfit:
            raise ConflictError(f"is not of a module {self.module}; leave it out", unfit[0], "module")
        if fits and len(given) != 1:
            raise ConflictError(f"a module {self.module} needs {' or '.join(fits)}, one of them", "module", *fits)
        if far := [group for group in self.group if group[1] >= self.count]:
            message = f"{far[0][0]!r} is in tower {far[0][1]}, and the last one is {self.count - 1}"
            raise ConflictError(message, "group", "count")
        return self

    def outputs(self, columns: int) -> int:
        """Numbers that a tower with so many columns gives for a sample."""
        if self.module == "none":
            return columns
        if self.sizes:
            return self.sizes[-1]
        return self.width or math.ceil(columns / (self.compression or 1.0))


@dataclass(frozen=True)
class Tower:
    """One tower of a model."""

    tables: tuple[int, ...]
    """Indices of its tables."""
    columns: int
    """Of the vectors of a sample, joined."""
    outputs: int
    """Numbers that it gives for a sample."""


def partition(towers: Towers, names: Sequence[str], columns: Sequence[int]) -> tuple[Tower, ...]:
    """The towers of tables with so many `columns` each: those that are grouped where they are told to be, then the
    widest first to the tower with the fewest columns (Graham's longest processing time first).

    Raises ConflictError for a pattern that names no table, a table of two towers and a tower without tables.
    """
    of_table = _grouped(towers, names)
    taken = [sum(columns[t] for t, tower in of_table.items() if tower == number) for number in range(towers.count)]
    for table in sorted(range(len(names)), key=lambda t: (-columns[t], t)):
        if table not in of_table:
            of_table[table] = min(range(towers.count), key=lambda tower: (taken[tower], tower))
            taken[of_table[table]] += columns[table]
    tables = [tuple(t for t in range(len(names)) if of_table[t] == number) for number in range(towers.count)]
    if empty := [number for number, own in enumerate(tables) if not own]:
        raise ConflictError(f"tower {empty[0]} of {towers.count} has no table", "count", "group")
    return tuple(Tower(own, width, towers.outputs(width)) for own, width in zip(tables, taken, strict=True))


def _grouped(towers: Towers, names: Sequence[str]) -> dict[int, int]:
    """The tower of each table that a pattern names."""
    of_table: dict[int, int] = {}
    for pattern, tower in towers.group:
        named = [t for t, name in enumerate(names) if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        if not named:
            raise ConflictError(f"no table is called {pattern!r}", "group")
        for table in named:
            if of_table.setdefault(table, tower) != tower:
                message = f"table {names[table]!r} is in towers {of_table[table]} and {tower}; leave it in one"
                raise ConflictError(message, "group")
    return of_table
