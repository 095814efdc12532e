"""`rocm-smi --showtopo`, with or without `--showproductname`."""

import re

from topologies.importers.devices import device_of_name
from topologies.importers.facts import Fact, Facts, Text
from topologies.importers.neighbours import scale_up_links

KIND = "rocm-smi"
_TITLE = re.compile(r"=+\s*(.+?)\s*=+$")
_PRODUCT = re.compile(r"GPU\[\d+\]\s*:\s*Card (?:Series|model):\s*(?P<name>.+)", re.IGNORECASE)


def recognises(text: str) -> bool:
    """Whether a text is what rocm-smi prints of links."""
    return "Link Type between two GPUs" in text


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
    names = {match["name"].strip(): number for number, each in text.lines() if (match := _PRODUCT.match(each.strip()))}
    if len(names) > 1:
        text.refuse(max(names.values()), f"{' and '.join(sorted(names))}: the accelerators of a node must be alike")
    for name, number in names.items():
        facts["accelerators.device"] = text.fact(device_of_name(name), number, name)
    return Facts(KIND, text.source, facts, remarks=(joined.remark,) if joined.remark else ())


def _matrix(text: Text) -> tuple[int, list[str], list[list[str]]]:
    """The line of the header, the accelerators and the type of every link."""
    title, start = "", 0
    gpus: list[str] = []
    rows: list[list[str]] = []
    for number, line in text.lines():
        words = line.split()
        if match := _TITLE.match(line.strip()):
            title = match[1]
        elif title != "Link Type between two GPUs" or not words:
            continue
        elif not gpus:
            start, gpus = number, words
            if not all(re.fullmatch(r"GPU\d+", word) for word in gpus):
                text.refuse(number, "the header of the link types must name the accelerators: GPU0 GPU1 …")
        elif words[0] in gpus and len(rows) < len(gpus):
            cells = words[1:]
            if len(cells) != len(gpus) or not set(cells) <= {"0", "XGMI", "PCIE"}:
                text.refuse(
                    number, f"is no row of {len(gpus)} link types (XGMI, PCIE); paste the whole output", words[0]
                )
            rows.append(cells)
    if not gpus or len(rows) < len(gpus):
        text.refuse(start, f"has {len(rows)} of {len(gpus)} rows of link types; paste the whole output")
    return start, gpus, rows
