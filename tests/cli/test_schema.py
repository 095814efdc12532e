"""`planner schema` prints JSON Schemas that describe what is read and written."""

import json

import pytest

from planner.cli.schema import SchemaKind


@pytest.mark.parametrize("kind", ["topology", "workload", "policy", "plan"])
def test_schema_is_json_schema(run, kind):
    """A JSON Schema on stdout, nothing on stderr."""
    result = run("schema", kind)
    assert result.exit_code == 0
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document["$schema"].startswith("https://json-schema.org/")
    assert document["type"] == "object"


def test_schema_of_a_workload_allows_a_file_of_tables(run):
    """As `tables: tables.csv` does in YAML."""
    tables = json.loads(run("schema", "workload").stdout)["properties"]["tables"]
    assert {side["type"] for side in tables["anyOf"]} == {"string", "array"}


def test_fields_are_described(run):
    """The words in the code that explain a field reach the schema, and quantities show an example."""
    definitions = json.loads(run("schema", "topology").stdout)["$defs"]
    assert definitions["ScaleUp"]["properties"]["bandwidth"]["examples"]
    assert "one direction" in definitions["ScaleUp"]["properties"]["bandwidth"]["description"]


@pytest.mark.parametrize("kind", ["topology", "workload"])
def test_schema_of_an_input_allows_a_base(run, kind):
    """A file may be built on another."""
    document = json.loads(run("schema", kind).stdout)
    assert {"required": ["base"]} in document["anyOf"]
    assert {"base", "set"} <= set(document["properties"])


def undescribed(node, path=()):
    """The paths of all fields below a part of a schema that have no description."""
    if isinstance(node, list):
        return [found for each in node for found in undescribed(each, path)]
    if not isinstance(node, dict):
        return []
    fields = node.get("properties") if isinstance(node.get("properties"), dict) else {}
    found = [".".join((*path, name)) for name, field in fields.items() if not field.get("description", "").strip()]
    return found + [text for key, part in node.items() for text in undescribed(part, (*path, str(key)))]


@pytest.mark.parametrize("kind", SchemaKind)
def test_every_field_is_described(run, kind):
    """Whoever edits a file is told by the editor what each key means."""
    assert undescribed(json.loads(run("schema", kind).stdout)) == []
