"""Shards of a table as arrays, and as the objects of the document."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from cost_models.shards import EVERYWHERE, MEMORY_TIERS, Ints, MemoryTier
from topologies.documents import Record, with_fields

_SHARD_KEYS = ("rank", "row_start", "rows", "column_start", "columns", "bytes")
_HOT_ROWS = "hot_rows"
"""The key that only shards of split tables have."""


@dataclass(frozen=True, eq=False)
class Shards:
    """The shards of one table as arrays of [n], in the order of their columns, then rows."""

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
        rank, row_start, rows, column_start, columns = matrix[:, :5].T
        size = np.zeros((len(matrix), len(MEMORY_TIERS)), dtype=np.int64)
        tiers = MEMORY_TIERS[: matrix.shape[1] - 5] if memories is None else memories
        size[:, [MEMORY_TIERS.index(tier) for tier in tiers]] = matrix[:, 5:]
        return cls(rank, row_start, rows, column_start, columns, size)

    def to_json(self) -> str:
        """The list of objects of the document, one to a line."""
        tiers = self._tiers()
        sizes = ",".join(f'"{tier}":%d' for tier in tiers)
        hot = "" if self.hot_rows is None else f',"{_HOT_ROWS}":%d'
        line = '{"rank":%d,"row_start":%d,"rows":%d,"column_start":%d,"columns":%d,"bytes":{' + sizes + "}" + hot + "}"
        matrix = np.concatenate([self.as_matrix(named=True), self._hot_rows()], axis=1)
        if len(matrix) > 1 and (matrix[:, 1:] == matrix[0, 1:]).all():  # replicas differ in their rank only
            head, tail = line.split("%d", maxsplit=1)
            rest = tail % tuple(matrix[0, 1:].tolist())
            return head + f"{rest},\n{head}".join(map(str, self.rank.tolist())) + rest
        return ",\n".join(line % tuple(row) for row in matrix.tolist())

    def _tiers(self) -> list[MemoryTier]:
        """Whose bytes are written."""
        used: list[bool] = np.asarray(self.bytes.any(axis=0)).tolist()
        return [tier for tier, any_bytes in zip(MEMORY_TIERS, used, strict=True) if tier in EVERYWHERE or any_bytes]

    def to_list(self) -> list[dict[str, Any]]:
        """The list of objects of the document."""
        tiers, hot_rows = self._tiers(), self._hot_rows().tolist()
        return [
            dict(zip(_SHARD_KEYS, (*row[:5], dict(zip(tiers, row[5:], strict=True))), strict=True))
            | dict(zip((_HOT_ROWS,), hot, strict=False))
            for row, hot in zip(self.as_matrix(named=True).tolist(), hot_rows, strict=True)
        ]

    @classmethod
    def _from_list(cls, items: Any) -> "Shards":
        if isinstance(items, Shards):
            return items
        if not isinstance(items, list):
            raise ValueError("must be a list of shards")
        rows = []
        keys = (*_SHARD_KEYS, _HOT_ROWS) if any(map(_is_split, items[:1])) else _SHARD_KEYS
        for number, item in enumerate(items):
            try:
                size = item["bytes"]
                row = [item[key] for key in _SHARD_KEYS[:5]] + [size[tier] for tier in EVERYWHERE]
                row += [size.get(tier, 0) for tier in MEMORY_TIERS[len(EVERYWHERE) :]]
                row += [item[key] for key in keys[len(_SHARD_KEYS) :]]
            except (KeyError, TypeError) as error:
                raise ValueError(f"shard {number} lacks {error} or is no mapping") from None
            if not all(type(value) is int and 0 <= value < 2**63 for value in row):
                raise ValueError(f"shard {number} must hold whole numbers, none below 0")
            if len(item) != len(keys) or not set(size) <= set(MEMORY_TIERS):
                raise ValueError(f"shard {number} has unknown keys")
            rows.append(row)
        width = 5 + len(MEMORY_TIERS)
        matrix = np.array(rows, dtype=np.int64).reshape(len(rows), width + len(keys) - len(_SHARD_KEYS))
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
        size = {"type": "object", "properties": dict.fromkeys(MEMORY_TIERS, whole), "required": list(EVERYWHERE)}
        words = "Of a split table: the first so many rows of the shard are in HBM, the others at home; else unset."
        properties = {**dict.fromkeys(_SHARD_KEYS[:5], whole), "bytes": size}
        properties[_HOT_ROWS] = {**whole, "description": words}
        return {
            "type": "array",
            "items": {"type": "object", "properties": properties, "required": list(_SHARD_KEYS)},
        }


def _is_split(shard: object) -> bool:
    return isinstance(shard, dict) and _HOT_ROWS in shard


_WHERE_ANY = Annotated[int, Field(default=0, exclude_if=lambda size: size == 0)]


@with_fields({memory: int if memory in EVERYWHERE else _WHERE_ANY for memory in MEMORY_TIERS})
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
