"""Shards of a table as arrays, and as the objects of the document."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Annotated, Any

import numpy as np
from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from cost_models.shards import EVERYWHERE, MEMORY_TIERS, Ints, MemoryTier
from topologies.documents import Record, with_fields

_SHARD_KEYS = ("rank", "row_start", "rows", "column_start", "columns", "bytes")
_SHARD_WORDS = (
    "The rank that holds the shard.",
    "Its first row in the table.",
    "How many rows it has.",
    "Its first column in the table.",
    "How many columns it has.",
)
_own_values, _sizes_everywhere = itemgetter(*_SHARD_KEYS[:5]), itemgetter(*EVERYWHERE)
_HOT_ROWS = "hot_rows"
"""The key that only shards of split tables have."""
REPLICAS = "replicas"
"""The key of a shard that this many consecutive ranks hold alike, the first of which is its `rank`."""
_MOST_RANKS = 1 << 24
"""Ranks above which no cluster is thought of: a number in a document must not take all memory."""


@dataclass(frozen=True, eq=False)
class Shards:
    """The shards of one table as arrays of [n], in the order of their columns, then rows.

    A replicated table has one on every rank here; in a document they are one object (`REPLICAS`).
    """

    rank: Ints
    row_start: Ints
    rows: Ints
    column_start: Ints
    columns: Ints
    bytes: Ints
    """[n, M] in each memory: weights, optimizer state, cache, and the ids and outputs in flight."""
    hot_rows: Ints | None = None
    """Rows of each shard of a split table that are in HBM, its first ones; None for any other table."""

    def __len__(self) -> int:
        return len(self.rank)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shards) or (self.hot_rows is None) != (other.hot_rows is None):
            return False
        own, theirs = self._hot_rows(), other._hot_rows()
        return np.array_equal(self.as_matrix(), other.as_matrix()) and np.array_equal(own, theirs)

    def _hot_rows(self) -> Ints:
        """[n, 1] what is written of them, [n, 0] where nothing is."""
        return np.zeros((len(self), 0), dtype=np.int64) if self.hot_rows is None else self.hot_rows[:, None]

    def as_matrix(self, *, named: bool = False) -> Ints:
        """[n, 5 + M] in the order of the keys of the document; with the memories that it names only, if so wanted."""
        own = np.stack([self.rank, self.row_start, self.rows, self.column_start, self.columns], axis=1)
        kept = [MEMORY_TIERS.index(tier) for tier in (self._tiers() if named else MEMORY_TIERS)]
        return np.concatenate([own, self.bytes[:, kept]], axis=1)

    @classmethod
    def from_matrix(cls, matrix: Ints, memories: Sequence[MemoryTier] | None = None) -> "Shards":
        """The inverse of `as_matrix`; of a matrix with the bytes in some `memories` only, else the first ones."""
        own = [matrix[:, key].copy() for key in range(5)]
        size = np.zeros((len(matrix), len(MEMORY_TIERS)), dtype=np.int64)
        tiers = MEMORY_TIERS[: matrix.shape[1] - 5] if memories is None else memories
        size[:, [MEMORY_TIERS.index(tier) for tier in tiers]] = matrix[:, 5:]
        return cls(*map(_kept_once, [*own, size]))

    def _runs(self) -> tuple[Ints, Ints]:
        """[r] the first of each run of shards that are alike but for ranks that follow one another; how many they
        are."""
        values = np.concatenate([self.as_matrix(), self._hot_rows()], axis=1)
        goes_on = (values[1:, 1:] == values[:-1, 1:]).all(axis=1) & (values[1:, 0] == values[:-1, 0] + 1)
        first = np.flatnonzero(np.append(True, ~goes_on)) if len(self) else np.zeros(0, dtype=np.int64)
        return first, np.diff(first, append=len(self))

    def to_json(self) -> str:
        """The list of objects of the document, one to a line; what consecutive ranks hold alike is one of them."""
        sizes = ",".join(f'"{tier}":%d' for tier in self._tiers())
        hot = "" if self.hot_rows is None else f',"{_HOT_ROWS}":%d'
        rest = '"row_start":%d,"rows":%d,"column_start":%d,"columns":%d,"bytes":{' + sizes + "}" + hot + "}"
        single, several = '{"rank":%d,' + rest, '{"rank":%d,' + f'"{REPLICAS}":%d,' + rest
        first, count = self._runs()
        rows = np.concatenate([self.as_matrix(named=True), self._hot_rows()], axis=1)[first].tolist()
        return ",\n".join(
            single % tuple(row) if n == 1 else several % (row[0], n, *row[1:])
            for row, n in zip(rows, count.tolist(), strict=True)
        )

    def _tiers(self) -> list[MemoryTier]:
        """Whose bytes are written."""
        used: list[bool] = np.asarray(self.bytes.any(axis=0)).tolist()
        return [tier for tier, any_bytes in zip(MEMORY_TIERS, used, strict=True) if tier in EVERYWHERE or any_bytes]

    def to_list(self) -> list[dict[str, Any]]:
        """The list of objects of the document."""
        tiers, (first, count) = self._tiers(), self._runs()
        rows, hot_rows = self.as_matrix(named=True)[first].tolist(), self._hot_rows()[first].tolist()
        return [
            {"rank": row[0]}
            | ({} if n == 1 else {REPLICAS: n})
            | dict(zip(_SHARD_KEYS[1:], (*row[1:5], dict(zip(tiers, row[5:], strict=True))), strict=True))
            | dict(zip((_HOT_ROWS,), hot, strict=False))
            for row, n, hot in zip(rows, count.tolist(), hot_rows, strict=True)
        ]

    @classmethod
    def _from_list(cls, items: Any) -> "Shards":
        if isinstance(items, Shards):
            return items
        if not isinstance(items, list):
            raise ValueError("must be a list of shards")
        rows, counts = list[list[int]](), list[int]()
        keys = (*_SHARD_KEYS, _HOT_ROWS) if any(map(_is_split, items[:1])) else _SHARD_KEYS
        for number, item in enumerate(items):
            try:
                size = item["bytes"]
                row = [*_own_values(item), *_sizes_everywhere(size)]
                row += [size.get(tier, 0) for tier in MEMORY_TIERS[len(EVERYWHERE) :]]
                row += [item[key] for key in keys[len(_SHARD_KEYS) :]]
                count = item.get(REPLICAS, 1)
            except (KeyError, TypeError) as error:
                raise ValueError(f"shard {number} lacks {error} or is no mapping") from None
            values = [*row, count]
            if [*map(type, values)].count(int) < len(values) or not 0 <= min(values) <= max(values) < 2**63:
                raise ValueError(f"shard {number} must hold whole numbers, none below 0")
            if len(item) != len(keys) + (REPLICAS in item) or not set(size) <= set(MEMORY_TIERS):
                raise ValueError(f"shard {number} has unknown keys")
            if REPLICAS in item and not 2 <= count <= _MOST_RANKS:
                raise ValueError(f"shard {number} has {count:,} {REPLICAS}; where the key stands, they are 2 to 2^24")
            rows.append(row)
            counts.append(count)
        width = 5 + len(MEMORY_TIERS)
        matrix = np.array(rows, dtype=np.int64).reshape(len(rows), width + len(keys) - len(_SHARD_KEYS))
        count_of = np.array(counts, dtype=np.int64)
        first = np.repeat(np.cumsum(count_of) - count_of, count_of)
        matrix = np.repeat(matrix, count_of, axis=0)
        matrix[:, 0] += np.arange(len(matrix)) - first
        shards = cls.from_matrix(matrix[:, :width])
        return shards if keys == _SHARD_KEYS else replace(shards, hot_rows=matrix[:, width])

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._from_list, serialization=core_schema.plain_serializer_function_ser_schema(cls.to_list)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        whole = {"type": "integer", "minimum": 0}
        of_memories = {memory: {**whole, "description": f"Bytes in {memory}."} for memory in MEMORY_TIERS}
        words = "What the shard takes, optimizer state and cache included."
        size = {"type": "object", "properties": of_memories, "required": list(EVERYWHERE), "description": words}
        words = "Of a split table: the first so many rows of the shard are in HBM, the others at home; else unset."
        properties: dict[str, object] = {
            key: {**whole, "description": what} for key, what in zip(_SHARD_KEYS[:5], _SHARD_WORDS, strict=True)
        }
        properties["bytes"] = size
        properties[_HOT_ROWS] = {**whole, "description": words}
        words = "So many ranks, this one and those that follow it, hold the same; else unset."
        properties[REPLICAS] = {"type": "integer", "minimum": 2, "maximum": _MOST_RANKS, "description": words}
        return {
            "type": "array",
            "items": {"type": "object", "properties": properties, "required": list(_SHARD_KEYS)},
        }


def _kept_once(values: Ints) -> Ints:
    """Values [n] or [n, M], of which those that all n shards share, as replicas do, take memory once."""
    if len(values) < 2 or (values != values[0]).any():
        return values
    return np.broadcast_to(values[:1].copy(), values.shape)


def _is_split(shard: object) -> bool:
    return isinstance(shard, dict) and _HOT_ROWS in shard


_IF_ANY = Field(default=0, exclude_if=lambda size: size == 0)


@with_fields(
    {
        memory: Annotated[int, Field(description=f"Bytes in {memory}."), *(() if memory in EVERYWHERE else [_IF_ANY])]
        for memory in MEMORY_TIERS
    }
)
class TierBytes(Record):
    """Bytes in each memory tier."""

    @classmethod
    def of(cls, memories: Iterable[MemoryTier], sizes: Iterable[float]) -> "TierBytes":
        """The bytes in each of some memories, rounded."""
        return cls.model_validate(dict(zip(memories, (round(size) for size in sizes), strict=True)))

    def __getitem__(self, memory: MemoryTier) -> int:
        size: int = getattr(self, memory)
        return size

    @property
    def total(self) -> int:
        """In all tiers."""
        return sum(self[memory] for memory in MEMORY_TIERS)
