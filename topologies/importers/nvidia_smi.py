"""`nvidia-smi topo -m`, with `nvidia-smi --query-gpu=name,memory.total --format=csv` or `nvidia-smi -L`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from topologies.importers.cards import Card, scale_out
from topologies.importers.devices import card_kind
from topologies.importers.facts import Fact, Facts, Text
from topologies.importers.neighbours import run_length, scale_up_links
from topologies.importers.nvidia_names import has_names, read_names

KIND = "nvidia-smi"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RELATION = re.compile(r"X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV\d{1,3}")
_GPU = re.compile(r"GPU\d+")
_NEAR = ("PIX", "PXB", "PSB")
_PREFIX = re.compile(r"^\s*(?!NIC\d+:)[\w.-]+:\s+(?=GPU ?\d|NIC\d|name\b|index\b|NVIDIA |Tesla )")
"""What `srun -l` and pdsh put before a line: the rank or the host."""


def recognises(text: str) -> bool:
    """Whether a text is what nvidia-smi prints of links or names."""
    lines = [_bare(line) for line in text.splitlines()]
    return has_names(lines) or any(_is_header(line.split()) for line in lines)


def read(text: Text) -> Facts:
    """The facts of one node. Raises InputError with the line for a matrix that is cut off or names that differ."""
    lines = [(number, _bare(line)) for number, line in text.lines()]
    names, remarks = read_names(text, lines)
    matrix = _matrix(text, lines)
    if matrix is None and not names:
        text.refuse(
            1, "holds neither the matrix of nvidia-smi topo -m nor names of accelerators; paste the whole output"
        )
    node = dict(names)
    if matrix is not None:
        count = names.get("accelerators.count")
        if count is not None and count.value != len(matrix.gpus):
            text.refuse(
                matrix.line,
                f"the matrix has {len(matrix.gpus)} accelerators and line {count.line} names {count.value}; paste both"
                f" outputs of one node",
            )
        facts, said = _of_matrix(text, matrix)
        node |= facts
        remarks += said
    return Facts(KIND, text.source, node, remarks=tuple(remarks))


@dataclass(frozen=True)
class _Matrix:
    """What stands between every two devices. `rows`: for each accelerator the relation to every device."""

    line: int
    gpus: list[str]
    cards: list[str]
    rows: list[list[str]]
    legend: dict[str, str]
    tells_links: bool
    """Whether it may name NVLinks; that of `topo -mp` does not, and its legend lacks NV#."""


def _bare(line: str) -> str:
    """A line without what colours it and without the rank or host that stands before it."""
    return _PREFIX.sub("", _ESCAPE.sub("", line)).strip()


def _is_header(words: Sequence[str]) -> bool:
    return bool(words) and bool(_GPU.fullmatch(words[0])) and (len(words) == 1 or not _RELATION.fullmatch(words[1]))


def _matrix(text: Text, lines: Sequence[tuple[int, str]]) -> _Matrix | None:
    """The matrix of the text; several of equal nodes count as one. Raises InputError for one that is cut off."""
    starts = [index for index, (_, line) in enumerate(lines) if _is_header(line.split())]
    if not starts:
        return None
    legend = {
        found[1]: found[2] for _, line in lines if (found := re.fullmatch(r"(NIC\d+):\s*(\S+)", line)) is not None
    }
    # where the legend is missing: interfaces that a script printed beside the matrix, if they are of one kind
    beside = {card_kind(line): line for _, line in lines if re.fullmatch(r"(?:roce|ib|rdma)P?p?\d\w+", line)}
    if not legend and len(beside) == 1:
        name = next(iter(beside.values()))
        legend = {f"NIC{number}": name for number in range(64)}
    of_legend = " ".join(line for _, line in lines if re.match(r"(?:X|SYS|NODE|PHB|PXB|PIX|NV#)\s+= ", line))
    tells_links = "NV#" in of_legend or "PIX" not in of_legend
    matrices = [_one_matrix(text, lines[start:], legend, tells_links=tells_links) for start in starts]
    first = matrices[0]
    for other in matrices[1:]:
        if (other.gpus, other.rows) != (first.gpus, first.rows):
            text.refuse(other.line, f"is another matrix than that of line {first.line}; import one kind of node a file")
    return first


def _one_matrix(text: Text, lines: Sequence[tuple[int, str]], legend: dict[str, str], *, tells_links: bool) -> _Matrix:
    head, header = lines[0]
    devices: list[str] = []
    for word in header.split():
        if word in ("CPU", "NUMA", "GPU"):
            break
        devices.append(word)
    gpus = [name for name in devices if _GPU.fullmatch(name)]
    cards = devices[len(gpus) :]
    is_plain = all(re.fullmatch(r"NIC\d+|[a-z][a-z0-9_]*", name) for name in cards)
    if len(set(devices)) != len(devices) or devices[: len(gpus)] != gpus or not is_plain:
        text.refuse(head, "the header must name every accelerator once (GPU0 …), and the cards after them (NIC0 …)")
    rows: dict[str, list[str]] = {}
    for number, line in lines[1:]:
        words = line.split()
        if _is_header(words):
            break
        if not words or words[0] not in gpus or words[0] in rows:
            continue
        cells = words[1 : 1 + len(devices)]
        wrong = next((cell for cell in cells if not _RELATION.fullmatch(cell)), None)
        if len(cells) < len(devices) or wrong is not None:
            said = f"{wrong!r} is no relation" if wrong else f"has {len(cells)} of {len(devices)} columns"
            text.refuse(number, f"{said}; the row is cut off or broken: paste the whole output", words[0])
        rows[words[0]] = cells
    if missing := [name for name in gpus if name not in rows]:
        text.refuse(head, f"the rows of {', '.join(missing)} are missing; paste the whole output")
    return _Matrix(head, gpus, cards, [rows[name] for name in gpus], legend, tells_links)


def _of_matrix(text: Text, matrix: _Matrix) -> tuple[dict[str, Fact], list[str]]:
    count = len(matrix.gpus)
    facts = {"accelerators.count": text.fact(count, matrix.line, "GPU columns of the matrix")}
    remarks = _add_scale_up(text, matrix, facts)
    near = [
        tuple(name for name, cell in zip(matrix.cards, row[count:], strict=True) if cell in _NEAR)
        for row in matrix.rows
    ]
    per_switch = None
    if any(near):
        per_switch = run_length([cards or (gpu,) for cards, gpu in zip(near, matrix.gpus, strict=True)])
        words = "accelerators with the same cards at PIX or PXB"
    elif "links.scale_up" in facts:
        owners = [min([i, *(j for j in range(count) if row[j] in _NEAR)]) for i, row in enumerate(matrix.rows)]
        per_switch, words = run_length(owners), "accelerators at PIX or PXB of each other"
    if per_switch:
        facts["links.pcie.accelerators_per_switch"] = text.fact(per_switch, matrix.line, words)
    cards = [
        Card(
            legend := matrix.legend.get(name, name),
            is_near=any(name in cards for cards in near),
            line=matrix.line,
            kind=card_kind(legend),
        )
        for name in matrix.cards
    ]
    found, said = scale_out(cards, count, text)
    return facts | found, [*remarks, *said]


def _add_scale_up(text: Text, matrix: _Matrix, facts: dict[str, Fact]) -> list[str]:
    """Add what the NV# cells say to the facts; remarks."""
    count = len(matrix.gpus)
    counts = [[int(cell[2:]) if cell.startswith("NV") else 0 for cell in row[:count]] for row in matrix.rows]
    if not any(map(any, counts)) and not matrix.tells_links:
        return ["the matrix of topo -mp leaves NVLinks out; topo -m names them"]
    if not any(map(any, counts)):
        facts["links.scale_up"] = text.fact(None, matrix.line, "no NV# between accelerators")
        return []
    joined = scale_up_links(counts)
    if joined.domain == 1:
        facts["links.scale_up"] = text.fact(None, matrix.line, joined.remark)
        return [joined.remark]
    if joined.domain < count:
        facts["links.scale_up.domain"] = text.fact(joined.domain, matrix.line, "accelerators that NV# joins")
    facts["links.scale_up.pair_links"] = text.fact(joined.of_pair, matrix.line, "NV#")
    facts["links.scale_up.mesh_links"] = text.fact(joined.of_all, matrix.line, "NV#")
    return [joined.remark] if joined.remark else []
