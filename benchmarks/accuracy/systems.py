"""The clusters that MLPerf's submissions describe in words: accelerator, nodes, accelerators of a node, network."""

import re
import sys
from functools import cache

from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import TOPOLOGIES, load_topology

FORMS = ("SXM", "PCIE", "NVL")


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


def _between_nodes(network: str) -> str:
    """The part of a submission's words that is about the cards between accelerators."""
    return next((part for part in re.split(r"[;,]", network) if "COMPUTE" in part.upper()), network)


def network_kind(network: str) -> str | None:
    """The kind of the cards between nodes by a submission's words; None where they do not tell."""
    words = _between_nodes(network).upper()
    if re.search(r"INFINIBAND|\bIB\b|\bNDR\b|\bHDR\b|\bXDR\b", words):
        return "infiniband"
    return "roce" if re.search(r"ROCE|ETHERNET", words) else None


def stated_cards(network: str) -> str | None:
    """The cards of a node by a submission's words, such as "8x ConnectX-7 IB NDR 400Gb/s", as a topology has them: one
    where no number is told. None where kind or rate is not."""
    words = _between_nodes(network)
    rate, number = re.search(r"\b(\d+) ?G(?:b|bE|bps|bit)?\b", words), re.search(r"\b(\d+) ?x\b", words)
    if rate is None or (kind := network_kind(network)) is None:
        return None
    return f"{{kind: {kind}, count: {number[1] if number else 1}, bandwidth: {rate[1]}Gb/s}}"


def stated_parts(network: str) -> dict[str, str]:
    """What a submission tells of the cards between nodes by the keys that a topology has for it: kind, bandwidth and
    count, each where it is told."""
    words, found = _between_nodes(network), {}
    rate, number = re.search(r"\b(\d+) ?G(?:b|bE|bps|bit)?\b", words), re.search(r"\b(\d+) ?x\b", words)
    if (kind := network_kind(network)) is not None:
        found["kind"] = kind
    if kind is not None or (rate is not None and "NVLINK" not in words.upper()):
        found |= {} if rate is None else {"bandwidth": f"{rate[1]}Gb/s"}
        found |= {} if number is None else {"count": number[1]}
    return found


def network_of(accelerator: str, nodes: int, each: int, words: str) -> str:
    """What a submission tells of the cards between nodes, as far as `topology_of` needs it: nothing of one node, or of
    nodes in one scale-up domain. Raises UnknownSystemError."""
    if nodes == 1:
        return ""
    name, _ = _nearest(accelerator, each)
    group = load_topology(name).nodes[0]
    cards, told = group.links.scale_out, stated_parts(words)
    if cards is None:
        return words if _lacks_cards(name) else ""
    if _spans_nodes(name) and nodes * each <= group.domain_ranks:
        return told.get("kind", "")
    own = {"count": str(cards.count), "bandwidth": f"{cards.bandwidth * 8e-9:g}Gb/s"}
    if each != group.accelerators.count or any(key in told and told[key] != own[key] for key in own):
        number = f"{told['count']}x " if "count" in told else ""
        return f"{number}{told.get('kind', '')} {told.get('bandwidth', '')}".strip()
    return told.get("kind", "")


def _say_note(words: str) -> None:
    print(f"systems: {words}", file=sys.stderr)


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
        overrides += [f"nodes.0.links.scale_out.{key}={value}" for key, value in stated_parts(network).items()]
    try:
        return load_topology(name, nodes=nodes, overrides=overrides, say=_say_note)
    except InputError as error:
        raise UnknownSystemError(f"{accelerator}, {nodes} x {each}: {error.faults[0].message}") from None
