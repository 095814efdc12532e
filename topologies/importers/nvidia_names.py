"""What nvidia-smi calls the accelerators of a node: `--query-gpu=name,memory.total --format=csv`, or `-L`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from topologies.importers.devices import device_of_name
from topologies.importers.facts import Fact, Text

ASK = "nvidia-smi --query-gpu=name,memory.total --format=csv"
_ROW = re.compile(r"(?:(?P<index>\d+),\s*)?(?P<name>[^,]+),\s*(?P<mib>\d+)\s*MiB")
_BARE_ROW = re.compile(r"(?:(?P<index>\d+),\s*)?(?P<name>(?:NVIDIA|Tesla) [^,]+),\s*(?P<mib>\d{4,7})")
"""The query without a header; without units, too."""
_LISTED = re.compile(r"GPU (?P<index>\d+): (?P<name>.+?) \(UUID: ")
_SLICE = re.compile(r"MIG \S+\s+Device\s+\d+:")


@dataclass
class _Listing:
    """One output of one node. `form` is the command's, so that a query beside `-L` is no second node."""

    form: str
    rows: list[tuple[int, str, int | None]] = field(default_factory=list)
    """The line, the name and the memory in MiB of each accelerator."""
    last_index: int = -1


def has_names(lines: Sequence[str]) -> bool:
    """Whether lines are what nvidia-smi prints of names."""
    return any(_columns(line) or _row(line) or _LISTED.match(line) for line in lines)


def read_names(text: Text, lines: Sequence[tuple[int, str]]) -> tuple[dict[str, Fact], list[str]]:
    """Device, its memory and how many a node has, and remarks. Raises InputError for unequal ones.

    Outputs of several nodes, one after the other, count as one.
    """
    listings = [listing for listing in _listings(text, lines) if listing.rows]
    if not listings:
        if head := next((number for number, line in lines if _columns(line)), 0):
            text.refuse(head, f"names no accelerator below its header; run {ASK} on a node that has some")
        return {}, []
    rows = [row for listing in listings for row in listing.rows]
    first, name, _ = rows[0]
    for number, other, _ in rows:
        if other != name:
            message = f"{other!r} beside {name!r} (line {first}): the accelerators of a node must be alike"
            text.refuse(number, message, "name")
    for before, after in pairwise(listings):
        if len(after.rows) != len(before.rows):
            message = f"lists {len(after.rows)} accelerators and line {before.rows[0][0]} {len(before.rows)}"
            text.refuse(after.rows[0][0], f"{message}; import one kind of node a file", "name")
    count = len(listings[0].rows)
    facts = {
        "accelerators.count": text.fact(count, first, "names in the list"),
        "accelerators.device": text.fact(device_of_name(name), first, name),
    }
    if sizes := [size for _, _, size in rows if size]:
        facts["accelerators.hbm.capacity"] = text.fact(min(sizes) << 20, first, "memory.total")
    remarks = []
    nodes = max(sum(listing.form == each.form for listing in listings) for each in listings)
    if nodes > 1:
        remarks.append(f"lists {count} accelerators {nodes} times; taken as equal nodes, whose number --nodes says")
    if slices := sum(bool(_SLICE.match(line)) for _, line in lines):
        remarks.append(f"{slices} MIG devices are listed; whole accelerators are taken, as with MIG switched off")
    return facts, remarks


def _listings(text: Text, lines: Sequence[tuple[int, str]]) -> Iterator[_Listing]:
    """The outputs in a text: another begins at a header, at an index that was there, with another command's form."""
    columns: list[str] = []
    here = _Listing("")
    for number, line in lines:
        if found := _columns(line):
            columns = found
            yield here
            here = _Listing("header")
            continue
        cells = [cell.strip() for cell in line.split(",")]
        match = _row(line) or _LISTED.match(line)
        if columns and len(cells) == len(columns):
            by_name = dict(zip(columns, cells, strict=True))
            form, name, index, size = "header", by_name["name"], by_name.get("index"), _memory(text, number, by_name)
        elif match:
            form = "list" if match.re is _LISTED else "rows"
            name, index = match["name"].strip(), match["index"]
            size = None if form == "list" else int(match["mib"])
        else:
            continue
        at = int(index) if index and index.isdecimal() else None
        if form != here.form or (at is not None and at <= here.last_index):
            yield here
            here = _Listing(form)
        here.rows.append((number, name, size))
        here.last_index = at if at is not None else here.last_index
    yield here


def _columns(line: str) -> list[str]:
    """The columns of a line that is the query's header; none for another line."""
    cells = [cell.strip() for cell in line.split(",")]
    is_header = "name" in cells and any(
        cell.startswith(("memory.", "index", "uuid", "pci.", "driver_")) for cell in cells
    )
    return cells if is_header else []


def _row(line: str) -> re.Match[str] | None:
    return _ROW.fullmatch(line) or _BARE_ROW.fullmatch(line)


def _memory(text: Text, number: int, row: dict[str, str]) -> int | None:
    """MiB, of a row below a header."""
    memory = next((cell for head, cell in row.items() if head.startswith("memory.total")), "")
    size = re.fullmatch(r"(\d{1,9})(?:\s*MiB)?", memory)
    if memory and size is None and not memory.startswith("["):
        text.refuse(number, f"memory.total is {memory!r}, no number of MiB", "memory.total")
    return int(size[1]) if size else None
