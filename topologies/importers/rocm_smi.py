"""`rocm-smi --showtopo`, with or without `--showproductname`; `amd-smi topology`, with or without `amd-smi static`."""

import re

from topologies.importers.devices import device_of_name, device_of_pci, known_device
from topologies.importers.facts import Fact, Facts, Text
from topologies.importers.neighbours import scale_up_links

KIND = "rocm-smi"
_TITLE = re.compile(r"=+\s*(.+?)\s*=+$|([A-Z -]+ TABLE):$")
_LINKS = ("Link Type between two GPUs", "LINK TYPE TABLE")
_GPU = re.compile(r"GPU\d+|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_SERIES = re.compile(r"(?:GPU\[\d+\]\s*:\s*Card series|MARKET_NAME):\s*(?P<name>.+)", re.IGNORECASE)
_NUMBER = re.compile(r"(?:GPU\[\d+\]\s*:\s*Card model|DEVICE_ID):\s*(?P<name>0x[0-9a-f]{1,4})\s*$", re.IGNORECASE)
_MOST = 8
"""Accelerators of a node as AMD sells them; more are parts of them."""


def recognises(text: str) -> bool:
    """Whether a text is what rocm-smi prints of links."""
    return any(title in text for title in _LINKS)


def read(text: Text) -> Facts:
    """The facts of one node. Raises InputError with the line for a matrix that is cut off."""
    line, gpus, rows = _matrix(text)
    facts: dict[str, Fact] = {"accelerators.count": text.fact(len(gpus), line, "columns of the link types")}
    joined = scale_up_links([[int(cell == "XGMI") for cell in row] for row in rows])
    if joined.domain == 1:
        facts["links.scale_up"] = text.fact(None, line, "no XGMI between accelerators")
    else:
        facts["links.scale_up.kind"] = text.fact("infinity-fabric", line, "XGMI")
        if joined.domain < len(gpus):
            facts["links.scale_up.domain"] = text.fact(joined.domain, line, "accelerators that XGMI joins")
    _add_device(text, facts)
    remarks = [joined.remark] if joined.remark else []
    if len(gpus) > _MOST:
        remarks.append(
            f"{len(gpus)} accelerators: are they partitions (CPX, DPX) of fewer? Each is taken as a whole one"
        )
    return Facts(KIND, text.source, facts, remarks=tuple(remarks))


def _add_device(text: Text, facts: dict[str, Fact]) -> None:
    """The device by the name of its series, else by its PCI number. Raises InputError for unequal ones."""
    said: list[dict[str, int]] = [{}, {}]
    for number, line in text.lines():
        for pattern, names in zip((_SERIES, _NUMBER), said, strict=True):
            if match := pattern.match(line.strip()):
                names.setdefault(match["name"].strip(), number)
    for names in said:
        if len(names) > 1:
            text.refuse(max(names.values()), f"{' and '.join(sorted(names))}: the accelerators of a node must be alike")
    series, numbers = said
    for name, number in series.items():
        facts["accelerators.device"] = text.fact(device_of_name(name), number, name)
    if any(known_device(name) for name in series):
        return
    for name, number in numbers.items():
        if device := device_of_pci("1002", name):
            facts["accelerators.device"] = text.fact(device, number, f"PCI 1002:{name.lower().removeprefix('0x')}")


def _matrix(text: Text) -> tuple[int, list[str], list[list[str]]]:
    """The line of the header, the accelerators and the type of every link."""
    title, start = "", 0
    gpus: list[str] = []
    rows: list[list[str]] = []
    for number, line in text.lines():
        words = line.split()
        if match := _TITLE.match(line.strip()):
            title = match[1] or match[2]
        elif title not in _LINKS or not words:
            continue
        elif not gpus:
            start, gpus = number, words
            if not all(map(_GPU.fullmatch, gpus)):
                text.refuse(number, "the header of the link types must name the accelerators: GPU0 GPU1 …")
        elif words[0] in gpus and len(rows) < len(gpus):
            cells = words[1:]
            if len(cells) != len(gpus) or not set(cells) <= {"0", "SELF", "XGMI", "PCIE"}:
                text.refuse(
                    number, f"is no row of {len(gpus)} link types (XGMI, PCIE); paste the whole output", words[0]
                )
            rows.append(cells)
    if not gpus or len(rows) < len(gpus):
        text.refuse(start, f"has {len(rows)} of {len(gpus)} rows of link types; paste the whole output")
    return start, gpus, rows
