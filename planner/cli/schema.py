"""`planner schema`: the JSON Schema of a document."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli import streams

if TYPE_CHECKING:
    from pydantic import BaseModel


class SchemaKind(StrEnum):
    """The documents that have a schema."""

    TOPOLOGY = "topology"
    WORKLOAD = "workload"
    POLICY = "policy"
    PLAN = "plan"
    STUDY = "study"
    RUN = "run"
    PRICES = "prices"


def schema(
    kind: Annotated[
        SchemaKind,
        typer.Argument(
            metavar="KIND", help="topology, workload, policy, plan, study, run or prices.", show_default=False
        ),
    ],
) -> None:
    """Print the JSON Schema of a document.

    With it, an editor completes keys and marks mistakes as you type; files
    of planner init name theirs in their first line.

    \b
    Example:
      planner schema topology > topology.schema.json
    """
    streams.write_json(schema_document(kind))


def schema_document(kind: SchemaKind) -> dict[str, Any]:
    """The JSON Schema of a kind."""
    document = _model(kind).model_json_schema()
    if kind is SchemaKind.WORKLOAD:
        _allow_a_file_of_tables(document)
    if kind in (SchemaKind.TOPOLOGY, SchemaKind.WORKLOAD):
        _allow_a_base(document, kind)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}


def _allow_a_file_of_tables(workload: dict[str, Any]) -> None:
    """`tables: tables.csv`, which is resolved before the model sees it."""
    file = {"type": "string", "description": "A CSV, Parquet or YAML file, relative to this one."}
    properties = workload["properties"]
    words = properties["tables"].pop("description")
    properties["tables"] = {"anyOf": [file, properties["tables"]], "description": words}


def _allow_a_base(document: dict[str, Any], kind: SchemaKind) -> None:
    """`base: zionex` with `set: …`, which are merged before the model sees them."""
    own = {"required": document.pop("required")}
    example = "nodes.0.count: 16" if kind is SchemaKind.TOPOLOGY else "embedding.dtype: fp16"
    document["anyOf"] = [own, {"required": ["base"]}]
    document["properties"] |= {
        "base": {"type": "string", "description": f"The catalog name or file of a {kind} to start from."},
        "set": {"type": "object", "description": f"Values for dotted paths of the base, as {example}."},
    }


def _model(kind: SchemaKind) -> "type[BaseModel]":
    if kind is SchemaKind.TOPOLOGY:
        from topologies.cluster import Topology

        return Topology
    if kind is SchemaKind.WORKLOAD:
        from cost_models.workload.models import Workload

        return Workload
    if kind is SchemaKind.POLICY:
        from planner.formulation.policy import Policy

        return Policy
    if kind is SchemaKind.STUDY:
        from planner.studies.study import Study

        return Study
    if kind is SchemaKind.RUN:
        from planner.runs.run import Run

        return Run
    if kind is SchemaKind.PRICES:
        from planner.capacity.prices import PriceSheet

        return PriceSheet
    from planner.document.plan import Plan

    return Plan
