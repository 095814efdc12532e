"""Files that hold another kind of document than the one that was asked for, told by what stands at their top."""

from typing import Any

from topologies.documents import Document
from topologies.errors import InputError

_STATED = ("plan", "policy", "study", "run")
"""Kinds that a document may state itself."""
_CHANGED = {"nodes": "topology"} | dict.fromkeys(
    ("tables", "embedding", "dense", "communication", "global_batch", "batch_per_rank"), "workload"
)
"""What the first keys of changed paths (`set`) are of."""


def kind_of(data: Any) -> str | None:
    """The kind of a document that says so, or has keys of no other kind; None where that is not certain."""
    if not isinstance(data, dict):
        return None
    if data.get("kind") in _STATED:
        return str(data["kind"])
    if "kind" in data:
        return None
    nodes, tables = data.get("nodes"), data.get("tables")
    if isinstance(nodes, list) and nodes and all(isinstance(group, dict) for group in nodes) and tables is None:
        return "topology"
    if "nodes" not in data and tables is not None and data.keys() & {"global_batch", "batch_per_rank"}:
        return "workload"
    if "base" in data and isinstance(data.get("set"), dict):
        changed = {_CHANGED.get(str(path).partition(".")[0]) for path in data["set"]}
        return changed.pop() if len(changed) == 1 else None
    return None


def expect_kind(document: Document, kind: str) -> None:
    """Refuse, in one sentence, a document that is certain to be of another kind. Raises InputError."""
    found = kind_of(document.data)
    if found is None or found == kind:
        return
    words = f"is a {found}, not a {kind}"
    if found == "plan" and kind in ("topology", "workload", "policy"):
        words += f"; planner export {document.source} --to inputs -o FOLDER writes the {kind} that it was made for"
    elif found in ("study", "run"):
        words += f"; planner {found} {document.source} reads it"
    raise InputError.at(document.source, words)
