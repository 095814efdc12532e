"""The clusters that MLPerf's submissions describe in words: accelerator, nodes, accelerators of a node, network."""

import re
import sys
from collections.abc import Callable
from functools import cache

from benchmarks.accuracy.cards import Cards, NotUnderstoodError, cards_of, kind_of
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import TOPOLOGIES, load_topology

FORMS = ("SXM", "PCIE", "NVL")
_WORDS = {"kind": "kind", "count": "number", "bandwidth": "rate"}


class UnknownSystemError(ValueError):
    """No topology of the catalog has the hardware; the message says what is missing."""


@cache
def _single_groups() -> tuple[tuple[str, str, int], ...]:
    """Name, accelerator and accelerators of a node of the catalog's topologies of one kind of node."""
    loaded = [(name, load_topology(name)) for name in TOPOLOGIES.names()]
    groups = [(name, topology.nodes[0]) for name, topology in loaded if len(topology.nodes) == 1]
    return tuple((name, group.accelerators.device, group.accelerators.count) for name, group in groups)


@cache
def _models() -> re.Pattern[str]:
    """The names of the catalog's accelerators: H100 of H100-PCIE-80GB."""
    names = sorted({device.split("-")[0].upper() for _, device, _ in _single_groups()}, key=len, reverse=True)
    return re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")


def _spans_nodes(name: str) -> bool:
    """Whether a scale-up domain of a topology of the catalog is more than one of its nodes."""
    group = load_topology(name).nodes[0]
    return group.domain_ranks > group.accelerators.count


def _model_and_form(words: str) -> tuple[str, str] | None:
    """H100 and PCIE of "NVIDIA H100-PCIe-80GB"; None where no model is named."""
    match = _models().search(words.upper())
    if match is None:
        return None
    form = next((form for form in FORMS if form in words.upper().replace(match[1], "")), "")
    return match[1], form


def _is_like(device: str, model: str, form: str) -> bool:
    own = _model_and_form(device)
    return own is not None and own[0] == model and (form == own[1] or "" in (form, own[1]))


def _distance(entry: tuple[str, str, int], form: str, size: str | None, each: int) -> tuple[bool, bool, bool, int, str]:
    """How far a topology of the catalog is from what is asked. Words that name no form mean modules, not PCIe cards."""
    name, device, count = entry
    is_card = not form and "PCIE" in device.upper()
    return is_card, _gigabytes(device) != size, count != each, -count, name


def _gigabytes(words: str) -> str | None:
    match = re.search(r"(\d+) ?GB", words)
    return match[1] if match else None


def stated_cards(network: str) -> str | None:
    """The cards of a node by a submission's words, such as "8x ConnectX-7 IB NDR 400Gb/s", as a topology has them: one
    where no number is told. None where kind or rate is not."""
    told = {"count": "1", **_told(network)}
    if "kind" not in told or "bandwidth" not in told:
        return None
    return f"{{kind: {told['kind']}, count: {told['count']}, bandwidth: {told['bandwidth']}}}"


def _told(words: str) -> dict[str, str]:
    """What a submission tells of the cards between nodes, by the keys of a topology. Raises UnknownSystemError."""
    return _cards(words).parts


def _cards(words: str) -> Cards:
    try:
        return cards_of(words)
    except NotUnderstoodError as reason:
        raise UnknownSystemError(f"cards between nodes, {reason}") from None


def _say_note(words: str) -> None:
    print(f"systems: {words}", file=sys.stderr)


def network_of(accelerator: str, nodes: int, each: int, words: str, say: Callable[[str], None] = _say_note) -> str:
    """What a submission tells of the cards between nodes, as far as `topology_of` needs it: nothing of one node, or of
    nodes in one scale-up domain. `say` is told what the catalog's cards are taken for. Raises UnknownSystemError."""
    if nodes == 1:
        return ""
    name, _ = _nearest(accelerator, each)
    group = load_topology(name).nodes[0]
    if _spans_nodes(name) and nodes * each <= group.domain_ranks:
        return kind_of(words) or ""
    found, cards = _cards(words), group.links.scale_out
    if cards is None:
        return found.words if _lacks_cards(name) else ""
    told = found.parts
    if lacking := [word for key, word in _WORDS.items() if key not in told]:
        few = f"{', '.join(lacking[:-1])} and {lacking[-1]}" if lacking[1:] else lacking[0]
        which = f"{words!r} does not tell" if words else "nothing tells"
        say(f"{which} the {few} of the cards between nodes; those of {name} are taken")
    own = {"count": str(cards.count), "bandwidth": f"{cards.bandwidth * 8e-9:g}Gb/s"}
    if each != group.accelerators.count or any(key in told and told[key] != own[key] for key in own):
        return found.words
    return told.get("kind", "")


def _lacks_cards(name: str) -> bool:
    """Whether nothing joins the nodes of a topology of the catalog."""
    return load_topology(name).nodes[0].links.scale_out is None and not _spans_nodes(name)


def _nearest(accelerator: str, each: int) -> tuple[str, int]:
    """The topology of the catalog that is nearest to nodes of `each` accelerators, and how many its nodes have.

    Raises UnknownSystemError where none has such accelerators.
    """
    asked = _model_and_form(accelerator)
    if asked is None:
        raise UnknownSystemError(f"{accelerator}: no such accelerator is known")
    model, form = asked
    known = [entry for entry in _single_groups() if _is_like(entry[1], model, form)]
    if not known:
        raise UnknownSystemError(f"{accelerator}: no topology of the catalog has it")
    size = _gigabytes(accelerator)
    name, _, count = min(known, key=lambda entry: _distance(entry, form, size, each))
    return name, count


@cache
def topology_of(accelerator: str, nodes: int, each: int, network: str = "") -> Topology:
    """The cluster of so many nodes with `each` accelerators; cards are those of `network`, and in what it does not
    tell as in the catalog, as many a rank.

    Raises UnknownSystemError where the catalog has no such accelerator, or nothing that is known joins the nodes.
    """
    name, count = _nearest(accelerator, each)
    overrides: list[str] = []
    cards = load_topology(name).nodes[0].links.scale_out
    if count != each:
        overrides += [f"nodes.0.accelerators.count={each}", "nodes.0.links.pcie.accelerators_per_switch=1"]
        if cards is not None:
            overrides.append(f"nodes.0.links.scale_out.count={max(1, cards.count * each // count)}")
    if nodes > 1 and _lacks_cards(name):
        if (stated := stated_cards(network)) is None:
            words = f"{name} has no cards between nodes, and {network!r} does not tell their kind and rate"
            raise UnknownSystemError(f"{accelerator}, {nodes} x {each}: {words}")
        overrides.append(f"nodes.0.links.scale_out={stated}")
    elif nodes > 1:
        overrides += [f"nodes.0.links.scale_out.{key}={value}" for key, value in _told(network).items()]
    try:
        return load_topology(name, nodes=nodes, overrides=overrides, say=_say_note)
    except InputError as error:
        raise UnknownSystemError(f"{accelerator}, {nodes} x {each}: {error.faults[0].message}") from None
