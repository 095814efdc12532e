"""The plan document: stable bytes, a schema that it keeps, and files that are whole or not there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import plan
from planner.document.files import faults_located
from planner.document.plan import Plan, read_plan, write_plan
from planner.document.shards import Shards
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def faults(schema: dict[str, Any], value: Any, root: dict[str, Any], path: str = "$") -> list[str]:
    """Where a value does not keep to the part of JSON Schema that our documents use."""
    if "$ref" in schema:
        return faults(root["$defs"][schema["$ref"].rpartition("/")[2]], value, root, path)
    if "anyOf" in schema:
        tried = [faults(each, value, root, path) for each in schema["anyOf"]]
        return [] if any(not found for found in tried) else tried[0]
    found = []
    if "type" in schema and not (isinstance(value, TYPES[schema["type"]]) and not isinstance(value, bool)):
        return [f"{path}: {value!r} is no {schema['type']}"]
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        found.append(f"{path}: {value!r}")
    if isinstance(value, int | float) and value < schema.get("minimum", value):
        found.append(f"{path}: {value!r} is too small")
    if isinstance(value, dict):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        found += [f"{path}.{name}: missing" for name in schema.get("required", []) if name not in value]
        for name, item in value.items():
            if name in properties or isinstance(rest, dict):
                found += faults(properties.get(name, rest), item, root, f"{path}.{name}")
            elif rest is False:
                found.append(f"{path}.{name}: unknown")
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            found += faults(schema["items"], item, root, f"{path}[{number}]")
    return found


@pytest.fixture(scope="module")
def planned() -> Plan:
    tables = [{"rows": 50_000, "dim": 64}, {"rows": 400_000, "dim": 128}, {"rows": 100, "dim": 16}]
    return plan(topology(node_group("a", nodes=2, ssd_bytes=1e12)), workload(tables))


@pytest.fixture(scope="module")
def impossible() -> Plan:
    return plan(topology(node_group("a")), workload([{"rows": 10**9, "dim": 128}]))


@pytest.fixture(scope="module")
def split() -> Plan:
    tables = [{"rows": 50_000, "dim": 64}, {"rows": 400_000, "dim": 128}, {"rows": 100, "dim": 16}]
    return plan(topology(node_group("a", nodes=2)), workload(tables), tiers=["ddr_split"])


def test_a_file_comes_back_as_it_was(planned: Plan, impossible: Plan, split: Plan, tmp_path: Path) -> None:
    """Written and read again: equal, and written again: the same bytes."""
    for name, document in (("plan", planned), ("none", impossible), ("split", split)):
        write_plan(document, tmp_path / name)
        again = read_plan(tmp_path / name)
        assert again == document
        assert again.to_json() == document.to_json() == (tmp_path / name).read_text()


def test_the_text_is_the_model(planned: Plan, impossible: Plan, split: Plan) -> None:
    """The hand-made text of large lists says what the model says, key by key."""
    for document in (planned, impossible, split):
        assert json.loads(document.to_json()) == document.model_dump(mode="json")


def test_same_inputs_and_seed_same_bytes(planned: Plan) -> None:
    """Nothing of the moment, nor of the machine, is in a plan."""
    again = plan(
        topology(node_group("a", nodes=2, ssd_bytes=1e12)),
        workload([{"rows": 50_000, "dim": 64}, {"rows": 400_000, "dim": 128}, {"rows": 100, "dim": 16}]),
    )
    assert again.to_json() == planned.to_json()
    assert planned.provenance.wall_s is None


def test_the_schema_describes_the_document(planned: Plan, impossible: Plan, split: Plan) -> None:
    """What we write keeps to the schema that we publish, and a broken document does not."""
    schema = Plan.model_json_schema()
    for document in (planned, impossible, split):
        assert faults(schema, json.loads(document.to_json()), schema) == []
    broken = json.loads(planned.to_json())
    broken["tables"][0]["shards"][0]["rank"] = -1
    broken["tables"][1]["sharding"] = "diagonal"
    broken["stages"][0]["seconds"] = "long"
    del broken["tables"][2]["dtype"]
    broken["surprise"] = 1
    assert len(faults(schema, broken, schema)) == 5


def test_the_keys_are_those_of_the_contract(planned: Plan) -> None:
    """Names and order that other tools read; the proof of the bound comes last."""
    document = json.loads(planned.to_json())
    head = ["kind", "schema_version", "status", "objective", "simulated"]
    assert list(document) == [*head, "stages", "tables", "ranks", "provenance", "proof"]
    assert list(document["objective"]) == ["step_s", "lower_bound_s", "gap", "error_bar"]
    assert list(document["stages"][0]) == ["name", "seconds", "critical_rank", "error_bar"]
    assert list(document["objective"]["error_bar"]) == ["low_s", "high_s", "coverage", "basis", "spec_only"]
    assert list(document["tables"][0]) == ["name", "sharding", "tier", "dtype", "cache_fraction", "shards"]
    shard = document["tables"][0]["shards"][0]
    assert list(shard) == ["rank", "row_start", "rows", "column_start", "columns", "bytes"]
    assert list(shard["bytes"]) == ["hbm", "ddr", "ssd"]
    assert list(document["ranks"][0]) == ["rank", "node", "bytes", "capacity", "seconds"]
    inputs = {"topology", "workload", "coefficients", "policy", "seed"}
    assert inputs | {"planner_version", "cost_model", "solver", "wall_s"} <= set(document["provenance"])


def test_split_tables_say_where_each_row_is(split: Plan) -> None:
    """In keys that no other table has."""
    table = json.loads(split.to_json())["tables"][1]
    assert list(table) == ["name", "sharding", "tier", "dtype", "cache_fraction", "remap", "shards"]
    assert table["remap"] == {"hot_rows": round(table["cache_fraction"] * 400_000), "ids": "ranked"}
    assert list(table["shards"][0]) == ["rank", "row_start", "rows", "column_start", "columns", "bytes", "hot_rows"]


def test_the_gap_is_step_over_bound(planned: Plan) -> None:
    """Of the planner's own objective; the stages sum to the step."""
    objective = planned.objective
    assert objective is not None
    assert objective.gap == pytest.approx(objective.step_s / objective.lower_bound_s - 1)
    assert sum(stage.seconds for stage in planned.stages) == pytest.approx(objective.step_s, rel=1e-12)


def test_a_failed_write_leaves_nothing_behind(planned: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither half a plan nor a temporary file, and the old plan stays as it was."""
    target = tmp_path / "plan.json"
    target.write_text("old")

    def full_disk(_self: Path, _target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(InputError, match="No space left on device"):
        write_plan(planned, target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_place_that_cannot_be_written_is_an_input_error(planned: Plan, tmp_path: Path) -> None:
    """A directory that is not there, and a directory in the place of the file."""
    with pytest.raises(InputError, match="cannot be written"):
        write_plan(planned, tmp_path / "none" / "plan.json")
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="is not a regular file"):
        write_plan(planned, tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b'{"kind": "plan",\n "schema_version"', r":2:"),
        (b"[]", "is not a plan document"),
        (b'{"kind": "topology"}', "is not a plan document"),
        (b'{"kind": "plan", "schema_version": 4}', "has version 4; this planner reads 1 to 3"),
        (b'{"kind": "plan", "schema_version": true}', "has version True; this planner reads 1 to 3"),
        (b'{"kind": "plan", "schema_version": 1}', "status"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_what_is_no_plan_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    """With an InputError that says what is wrong, and where."""
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_plan(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"a": {"b": 1,\n "c": {"b": 3}},\n  "a": 2}', r":3:3: a: the key 'a' stands twice, first in line 1"),
        ('{"a": [{"x": 1},\n {"y": "{}", "z": {"y": 0}, "y": 2}]}', r":2:29: a.1.y: the key 'y' stands twice"),
        ('{"\\u0061": ",:", "a": 1}', r":1:18: a: the key 'a' stands twice"),
        ('[{"b": 1, "b": 2}]', r":1:11: 0.b: the key 'b' stands twice"),
    ],
)
def test_a_key_that_stands_twice_is_refused(content: str, said: str, tmp_path: Path) -> None:
    """Anywhere in a document, with its path and the place of the second one: readers differ in which of them counts."""
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=said):
        read_plan(tmp_path / "x.json")


def test_faults_of_a_plan_have_line_and_column(planned: Plan, tmp_path: Path) -> None:
    """Of the value itself, or, where a field is missing, of what should hold it; also with names that have dots."""
    document = json.loads(planned.to_json())
    document["tables"][1]["tier"] = "attic"
    document["tables"][1]["name"] = 'a.b: {"[,'
    del document["provenance"]["seed"]
    text = json.dumps(document, indent=1)
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError) as error:
        read_plan(tmp_path / "x.json")
    places = {fault.path: (fault.line, fault.column) for fault in error.value.faults}
    lines = text.splitlines()
    tier = next(number for number, line in enumerate(lines, 1) if "attic" in line)
    origin = next(number for number, line in enumerate(lines, 1) if line.startswith(' "provenance"'))
    assert places == {"tables.1.tier": (tier, lines[tier - 1].index('"') + 1), "provenance.seed": (origin, 2)}


def test_elements_of_lists_have_line_and_column(tmp_path: Path) -> None:
    """Numbers, words and lists in lists, too."""
    text = '{"a": [1, [2,\n   -3e5, true],\n  {"b": []}, null]}'
    (tmp_path / "x.json").write_text(text)
    places = {"a.0": (1, 8), "a.1": (1, 11), "a.1.1": (2, 4), "a.1.2": (2, 10), "a.2.b.7": (3, 4), "a.3": (3, 14)}
    for path, place in places.items():
        with pytest.raises(InputError) as error, faults_located(tmp_path / "x.json"):
            raise InputError.at(str(tmp_path / "x.json"), "is wrong", path=path)
        assert (error.value.faults[0].line, error.value.faults[0].column) == place


def test_a_list_that_is_too_short_is_refused(planned: Plan, tmp_path: Path) -> None:
    """An entry of a fixed length, of which something is missing, is a fault with its path, not a bug."""
    document = json.loads(planned.to_json())
    node = {"parent": None, "decision": None, "branches_on": None, "weights": [["dense"]], "memory_multipliers": None}
    document["proof"]["branching"] = {"threshold_s": 1.0, "nodes": [node]}
    (tmp_path / "x.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"proof\.branching\.nodes\.0\.weights\.0"):
        read_plan(tmp_path / "x.json")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """As an input error, not as a bug."""
    with pytest.raises(InputError, match="cannot be read"):
        read_plan(tmp_path / "none.json")


@pytest.mark.parametrize(
    "shard",
    [{}, 7, {"rank": 0}, {"rank": -1}, {"rank": 0.5}, {"rank": True}, {"bytes": {"hbm": 1}}, {"bytes": None}],
)
def test_a_shard_that_is_none_is_refused(planned: Plan, shard: object, tmp_path: Path) -> None:
    """Missing keys, fractions, negative numbers and other types: the error names the table's shards."""
    document = json.loads(planned.to_json())
    whole = document["tables"][0]["shards"][0]
    is_change = isinstance(shard, dict) and shard and shard != {"rank": 0}
    document["tables"][0]["shards"][0] = {**whole, **shard} if is_change else shard
    (tmp_path / "x.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"tables\.0\.shards"):
        read_plan(tmp_path / "x.json")


def test_shards_are_equal_when_all_their_numbers_are() -> None:
    """As a matrix and back; one number off is another set of shards."""
    matrix = np.arange(16).reshape(2, 8)
    shards = Shards.from_matrix(matrix)
    assert np.array_equal(shards.as_matrix(named=True), matrix)
    assert shards == Shards.from_matrix(matrix.copy())
    other = matrix.copy()
    other[1, 7] += 1
    assert shards != Shards.from_matrix(other)
    assert json.loads(f"[{shards.to_json()}]") == shards.to_list()
