"""Variants of tables in words: a compressor, a format, a cache of full precision, and what each costs in quality."""

import re
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from cost_models.workload import spellings
from cost_models.workload.compressors import Compressor
from cost_models.workload.formats import DTYPES
from cost_models.workload.words import Dtype
from topologies.documents import Record
from topologies.errors import shown
from topologies.units import parse_fraction


@dataclass(frozen=True)
class Variant:
    """One way for a table to be smaller; what is unset is as the workload and the rest of the policy say."""

    compressor: Compressor | None = None
    dtype: Dtype | None = None
    """The format of its rows."""
    cache: float | None = None
    """Share of its rows that a cache of full precision holds beside it in HBM."""

    @classmethod
    def parse(cls, word: object) -> Self:
        """`qr:4`, `fp16`, `int4+cache:1%`, `dim:16+fp16`: parts in any order. Raises ValueError for anything else."""
        if isinstance(word, Variant):
            word = str(word)
        if not isinstance(word, str):
            raise ValueError(f"{shown(word)} is no variant; write for example qr:4, fp16 or int4+cache:1%")
        found: dict[str, object] = {}
        for part in (each.strip() for each in word.split("+")):
            key, value = _part(part, word)
            if key in found:
                raise ValueError(f"{word!r} names two of a kind; give one compressor, one format, one cache")
            found[key] = value
        return cls(**found)  # type: ignore[arg-type]

    def __str__(self) -> str:
        cache = None if self.cache is None else f"cache:{self.cache:.6g}"
        return "+".join(str(part) for part in (self.compressor, self.dtype, cache) if part is not None)


def _part(part: str, word: str) -> tuple[str, object]:
    """Which field of a variant a part of its word is, and the value."""
    if re.match(r"(none$|hash:|qr:|dim:)", part):
        return "compressor", Compressor.parse(part)
    if part.startswith("cache:"):
        share = parse_fraction(part.removeprefix("cache:"))
        if not 0 < share <= 1:
            raise ValueError(f"{word!r}: a cache holds a share above 0 of the rows, at most 100%")
        return "cache", share
    dtype = spellings.dtype(part)
    if dtype not in DTYPES:
        known = "a compressor (hash:C, qr:C, dim:D, none), a format (fp16, int4, ...) or cache:SHARE"
        raise ValueError(f"{part!r} is none of {known}")
    return "dtype", dtype


VariantWord = Annotated[
    Variant,
    BeforeValidator(Variant.parse),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["qr:4", "fp16", "int4+cache:1%", "dim:16+fp16"]}),
]


class VariantLoss(Record):
    """What one variant of some tables costs in quality."""

    table: Annotated[str, Field(min_length=1)]
    """A name, or a pattern such as `cat_*`."""
    variant: VariantWord
    """What a table may become: `qr:4`, `dim:64+fp16`, `int4+cache:1%`, or `none` for the whole table."""
    loss: float
    """In whatever unit the budget has; losses of tables add up. Below 0, the model gets better."""


class VariantChoice(Record):
    """What tables may become, and how much quality the plan may pay for that."""

    losses: Annotated[tuple[VariantLoss, ...], Field(min_length=1)]
    """In files also the name of a CSV file with the columns table, variant and loss."""
    budget: Annotated[float, Field(ge=0)]
    """The losses of all tables together are at most this. A table that is left as the workload says loses nothing,
    unless a row says otherwise."""
