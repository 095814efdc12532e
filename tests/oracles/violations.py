"""What `verify` finds in a plan document, as it is or after a change."""

import json
from collections.abc import Callable
from typing import Any

from planner.document.plan import Plan
from planner.verification.verify import verify

Document = dict[str, Any]


def violations(document: Document) -> list[str]:
    """Return the violations of a document."""
    return verify(Plan.model_validate(document))


def violations_after(change: Callable[[Document], None], document: str) -> list[str]:
    """Return the violations of a document, given as JSON, after a change."""
    changed = json.loads(document)
    change(changed)
    return violations(changed)
