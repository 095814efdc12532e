"""What is taken as the files say, and looks as if something else was meant."""

from collections.abc import Iterator, Mapping
from typing import Any

from topologies.importers.facts import Fact


def doubts(facts: Mapping[str, Fact], base: Mapping[str, Any], name: str) -> Iterator[str]:
    """Remarks on facts of a node beside the values, by path, of the topology `name` that supplies the rest."""
    device, theirs = facts.get("accelerators.device"), base["accelerators.device"]
    if device is not None and device.value != theirs:
        said = f"{device.place} says {device.value}"
        yield f"{said}; what is assumed of it (memory, FLOP/s, fabric) is that of {theirs} in {name}"
    absent, kind = facts.get("links.scale_up"), base.get("links.scale_up.kind")
    if absent is not None and kind is not None:
        yield f"{absent.place} finds no links between accelerators, where {name} has {kind}: were they up?"
