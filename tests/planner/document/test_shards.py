"""Bytes in each memory: one field for each, those of rarer memories written where there are any."""

import json
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from cost_models.shards import EVERYWHERE, MEMORY_TIERS
from planner.document.shards import Shards, TierBytes


def test_rare_memories_are_written_where_they_hold_bytes() -> None:
    """HBM, DDR and SSD stand in every plan; storage-class memory and remote hosts where their bytes are not zero."""
    assert TierBytes.of(("hbm", "ddr", "ssd"), (1.4, 2, 3)).model_dump() == {"hbm": 1, "ddr": 2, "ssd": 3}
    found = TierBytes.of(("hbm", "ddr", "ssd", "scm", "remote"), (1, 2, 3, 4, 0))
    assert found.model_dump() == {"hbm": 1, "ddr": 2, "ssd": 3, "scm": 4}
    assert (found["scm"], found["remote"], found.total) == (4, 0, 10)


def test_usual_memories_must_be_stated() -> None:
    """A document without one of them, or with a memory that there is not, is no plan."""
    with pytest.raises(ValidationError, match="ssd"):
        TierBytes.model_validate({"hbm": 1, "ddr": 2})
    with pytest.raises(ValidationError, match="tape"):
        TierBytes.model_validate({"hbm": 1, "ddr": 2, "ssd": 3, "tape": 4})


def test_what_replicas_share_takes_memory_once() -> None:
    """Of ten thousand replicas nothing but the ranks, and they are read and written as any others."""
    matrix = np.tile(np.array([0, 0, 9, 0, 8, 72, 0, 0]), (10_000, 1))
    matrix[:, 0] = np.arange(10_000)
    shards = Shards.from_matrix(matrix)
    arrays = (shards.rank, shards.row_start, shards.rows, shards.column_start, shards.columns, shards.bytes)
    kept = [each if each.base is None else each.base for each in arrays]
    assert sum(each.nbytes for each in kept) < 1.1 * matrix[:, 0].nbytes
    assert (shards.as_matrix()[:, :8] == matrix).all()
    (written,) = json.loads(f"[{shards.to_json()}]")
    assert written["replicas"] == len(matrix)
    assert READ.validate_python([written]) == shards


SHARD = {"rank": 1, "row_start": 0, "rows": 9, "column_start": 4, "columns": 8, "bytes": {"hbm": 1, "ddr": 2, "ssd": 3}}
READ = TypeAdapter(Shards)


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in SHARD.items() if name != key}


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        ({}, "must be a list of shards"),
        ([SHARD, without("rows")], "shard 1 lacks 'rows' or is no mapping"),
        ([7], "shard 0 lacks .* or is no mapping"),
        ([{**SHARD, "bytes": {"hbm": 1, "ddr": 2}}], "shard 0 lacks 'ssd' or is no mapping"),
        ([{**SHARD, "rank": -1}], "shard 0 must hold whole numbers, none below 0"),
        ([{**SHARD, "rank": 1.0}], "shard 0 must hold whole numbers, none below 0"),
        ([{**SHARD, "rows": True}], "shard 0 must hold whole numbers, none below 0"),
        ([{**SHARD, "rows": 2**63}], "shard 0 must hold whole numbers, none below 0"),
        ([{**SHARD, "colour": 1}], "shard 0 has unknown keys"),
        ([{**SHARD, "bytes": {**SHARD["bytes"], "tape": 1}}], "shard 0 has unknown keys"),  # type: ignore[dict-item]
        ([{**SHARD, "replicas": 1}], "shard 0 has 1 replicas; where the key stands, they are 2 to 2"),
        ([{**SHARD, "replicas": 2**24 + 1}], "shard 0 has 16,777,217 replicas"),
    ],
)
def test_what_is_no_shard_is_said(shards: object, words: str) -> None:
    """By its number in the list, and what is wrong with it."""
    with pytest.raises(ValidationError, match=words):
        READ.validate_python(shards)


def test_numbers_up_to_63_bits_are_read() -> None:
    """As many as an array's elements hold."""
    assert READ.validate_python([{**SHARD, "rows": 2**63 - 1}]).rows.tolist() == [2**63 - 1]


@pytest.mark.parametrize("hot", [None, [3, 3, 3, 2, 1]])
def test_shards_come_back_as_they_were_written(hot: list[int] | None) -> None:
    """As text and as a list; what consecutive ranks hold alike is one object, what others hold is not."""
    rows = [(2, 0, 9), (3, 0, 9), (4, 0, 9), (6, 0, 9), (7, 9, 5)]
    matrix = np.array([(rank, start, count, 0, 4, 10, 0, 0) for rank, start, count in rows])
    plain = Shards.from_matrix(matrix)
    shards = plain if hot is None else Shards(**{**vars(plain), "hot_rows": np.array(hot)})
    objects = json.loads(f"[{shards.to_json()}]")
    assert objects == shards.to_list()
    assert [(each["rank"], each.get("replicas")) for each in objects] == [(2, 3), (6, None), (7, None)]
    assert [each.get("hot_rows") for each in objects] == ([None] * 3 if hot is None else [3, 2, 1])
    assert READ.validate_python(objects) == shards


def test_the_schema_of_shards_is_what_is_read() -> None:
    """Keys, which of them must be there, whole numbers from which value on: each bound of the schema is the reader's;
    and an editor shows a sentence for each."""
    schema = READ.json_schema()
    assert schema["type"] == "array"
    shard = schema["items"]
    size = shard["properties"]["bytes"]
    assert (shard["type"], size["type"]) == ("object", "object")
    assert shard["required"] == list(SHARD)
    assert size["required"] == list(EVERYWHERE)
    assert set(size["properties"]) == set(MEMORY_TIERS)
    assert set(shard["properties"]) == {*SHARD, "hot_rows", "replicas"}
    for key, field in {**shard["properties"], **size["properties"]}.items():
        assert field["description"][0].isupper(), key
        assert field["description"].endswith("."), key
        if key == "bytes":
            continue
        assert field["type"] == "integer"
        for value, is_read in (
            (field["minimum"], True),
            (field["minimum"] - 1, False),
            *([(field["maximum"], True), (field["maximum"] + 1, False)] if key == "replicas" else ()),
        ):
            item = {**SHARD, "bytes": {**SHARD["bytes"], key: value}} if key in MEMORY_TIERS else {**SHARD, key: value}  # type: ignore[dict-item]
            if value == 2**24:
                continue  # read as so many shards
            if is_read:
                assert len(READ.validate_python([item])) == item.get("replicas", 1)
            else:
                with pytest.raises(ValidationError):
                    READ.validate_python([item])
