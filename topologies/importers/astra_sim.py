"""ASTRA-sim's analytical networks: `topology: [ Ring, Switch ]`, one to several dimensions, the first the nearest."""

import math
import re
from typing import Any

from topologies.documents import Document, parse_yaml
from topologies.errors import InputError
from topologies.importers.facts import Fact, Facts, Level, Text

KIND = "astra-sim"
GB = 2**30
"""ASTRA-sim's GB in bytes."""
MOST_RANKS = 1 << 18
KEYS = ("topology", "npus_count", "bandwidth", "latency")


def recognises_yaml(data: Any) -> bool:
    """Whether YAML is a network of ASTRA-sim."""
    return isinstance(data, dict) and "npus_count" in data


def all_to_all_share(shape: str, count: int) -> float:
    """What an accelerator sends in an exchange of all with all, as a multiple of the rate of one link.

    A switch has one link to each; all pairs have one; in a ring of n every way round carries n/8 of what an accelerator
    sends, rounded to whole accelerators, and (n − 1) receive it.
    """
    if shape == "switch" or count <= 2:
        return 1.0
    if shape == "fullyconnected":
        return float(count - 1)
    hops = (count * count if count % 2 == 0 else count * count - 1) / 8
    return (count - 1) / hops


def read(text: Text) -> Facts:
    """The dimensions as a scale-up fabric, cards and levels. Raises InputError with the line."""
    document = parse_yaml(text.text, text.source)
    if not isinstance(document.data, dict):
        text.refuse(1, "must be a mapping of topology, npus_count, bandwidth and latency")
    shapes, counts, rates, latencies = (_list(document, key) for key in KEYS)
    names = [_shape(document, index, each) for index, each in enumerate(shapes)]
    sizes = [_number(document, "npus_count", index, each, whole=True) for index, each in enumerate(counts)]
    each = [_number(document, "bandwidth", index, rate) * GB for index, rate in enumerate(rates)]
    seconds = [_number(document, "latency", index, wait, least=0.0) * 1e-9 for index, wait in enumerate(latencies)]
    if len({len(names), len(sizes), len(each), len(seconds)}) > 1:
        said = ", ".join(
            f"{len(values)} in {key}" for key, values in zip(KEYS, (shapes, counts, rates, latencies), strict=True)
        )
        raise InputError([document.fault(("topology",), f"every dimension needs a value in each list, not {said}")])
    world = math.prod(int(size) for size in sizes)
    if world > MOST_RANKS:
        raise InputError([document.fault(("npus_count",), f"{world:,} accelerators are more than can be planned for")])
    effective = [rate * all_to_all_share(name, int(size)) for rate, name, size in zip(each, names, sizes, strict=True)]
    return _facts(text, document, names, [int(size) for size in sizes], effective, seconds)


def _facts(
    text: Text, document: Document, names: list[str], sizes: list[int], rates: list[float], seconds: list[float]
) -> Facts:
    lines = {key: (document.locate((key,)) or (1, 1))[0] for key in KEYS}
    facts: dict[str, Fact] = {}
    remarks = [
        f"dimension {index + 1} is a {name}; taken as the switch that exchanges all with all as fast"
        for index, name in enumerate(names)
        if name != "switch" and sizes[index] > 2
    ]
    words = f"dimension 1, {names[0]} of {sizes[0]}; GB of 2^30 bytes"
    if sizes[0] > 1:
        facts["links.scale_up.bandwidth"] = text.fact(rates[0], lines["bandwidth"], words)
        facts["links.scale_up.latency"] = text.fact(seconds[0], lines["latency"], "dimension 1")
    else:
        facts["links.scale_up"] = text.fact(None, lines["npus_count"], "dimension 1 has one accelerator")
    levels: list[Level] = []
    if len(sizes) > 1:
        words = f"dimension 2, {names[1]} of {sizes[1]}, for each accelerator; GB of 2^30 bytes"
        facts["links.scale_out.rank_bandwidth"] = text.fact(rates[1], lines["bandwidth"], words)
        facts["links.scale_out.latency"] = text.fact(seconds[1], lines["latency"], "dimension 2")
    for index in range(2, len(sizes)):
        together = math.prod(sizes[:index])
        ratio = rates[index - 1] / rates[index]
        if ratio < 1:
            remarks.append(f"dimension {index + 1} is faster than the one below it; taken as equally fast")
        if sizes[index] > 1:
            levels.append(
                Level(f"level-{index - 1}", together, max(1.0, ratio), seconds[index], f"dimension {index + 1}")
            )
    facts["scale_up_ranks"] = text.fact(sizes[0], lines["npus_count"], f"npus_count, dimension 1: {sizes[0]}")
    facts["world"] = text.fact(math.prod(sizes), lines["npus_count"], " x ".join(map(str, sizes)) + " accelerators")
    found = text.fact(tuple(levels), lines["npus_count"]) if levels else None
    return Facts(KIND, text.source, facts, levels=found, remarks=tuple(remarks))


def _list(document: Document, key: str) -> list[Any]:
    value = document.data.get(key)
    if not isinstance(value, list) or not value:
        message = "is missing" if key not in document.data else "must be a list with a value for each dimension"
        raise InputError([document.fault((key,), f"{message}; write for example {key}: [ … ]")])
    return value


def _shape(document: Document, index: int, value: Any) -> str:
    name = re.sub(r"[^a-z]", "", str(value).lower())
    if name not in ("ring", "switch", "fullyconnected"):
        message = f"{str(value)[:40]!r} is no topology that is known here: Ring, FullyConnected or Switch"
        raise InputError([document.fault(("topology", index), message)])
    return name


def _number(document: Document, key: str, index: int, value: Any, *, whole: bool = False, least: float = 1e-9) -> float:
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not is_number or not (least <= value <= 1e9) or (whole and value < 1):
        kind = "a whole number of at least 1" if whole else "a number above 0" if least else "a number of at least 0"
        raise InputError([document.fault((key, index), f"must be {kind}, not {str(value)[:40]!r}")])
    return float(value)
