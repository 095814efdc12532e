"""Towers of a model: which tables each has, and the module that turns their vectors into fewer numbers (DMT)."""

import math
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


Affinity = tuple[
    Annotated[str, Field(min_length=1)],
    Annotated[str, Field(min_length=1)],
    Annotated[float, Field(ge=-1e100, le=1e100)],
]


class Towers(Record):
    """Tables in towers, each on a scale-up domain of the cluster or on several (arXiv:2403.00877).

    A module changes the model: the dense part reads what the modules give instead of the tables' vectors.
    """

    count: Annotated[int, Field(ge=2)]
    """Towers. The cluster has as many scale-up domains, or a multiple of that: each tower is on as many, consecutive
    ones."""
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
    """Cross layers of a dcn module."""
    dcn_low_rank: Annotated[int, Field(ge=1)] = 512
    """Columns of their inner product."""
    group: Groups = ()
    """The tower, counted from 0, of tables by name or pattern; others go to the towers with the fewest columns."""
    imbalance: Annotated[float | None, Field(ge=1, exclude_if=lambda value: value is None)] = None
    """Columns of the widest tower over those of the narrowest, at most."""
    affinity: Annotated[tuple[Affinity, ...], Field(exclude_if=lambda pairs: not pairs)] = ()
    """Pairs of tables and what it is worth to have both in one tower, [[a, b, 2.5], ...], or the name of a CSV file
    beside with the columns table, other, affinity. The more of it inside towers the better, within the
    imbalance, which must be given, too."""

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
        if self.affinity and self.imbalance is None:
            raise ConflictError("needs imbalance, or all tables would be in few towers", "affinity", "imbalance")
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
