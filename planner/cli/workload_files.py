"""Workload files that are written from what a model or a trainer's file says."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topologies.documents import Document


def workload_text(document: "Document", teller: str, unsaid: Sequence[str], notes: Sequence[str] = ()) -> str:
    """A workload file, with what `teller` does not say as comments above it, and what is to be said beside.

    Raises InputError where the document is no workload.
    """
    import yaml

    from cost_models.workload.models import Workload
    from topologies.documents import validate
    from topologies.errors import printable

    validate(document, Workload)
    head = [f"Read from {document.source}. {teller} does not say, so edit these:", *(f"- {line}" for line in unsaid)]
    head += [f"Note: {line}" for line in notes]
    comments = "".join(f"# {printable(line)}\n" for line in [*head, "All keys: planner schema workload"])
    return comments + str(yaml.safe_dump(document.data, sort_keys=False, width=120, default_flow_style=None))
