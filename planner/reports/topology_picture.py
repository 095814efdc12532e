"""A cluster as an SVG: the levels of the network above one panel for each node group. Equal topologies, equal bytes."""

from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from planner.reports.topology import cards_words, duration, memory_words, network_lines, rate
from topologies.cluster import NodeGroup, Topology
from topologies.errors import printable
from topologies.sentences import counted

PANEL, GAP, MARGIN = 560, 24, 24
ROW = 20
MOST_DRAWN = 16
"""Accelerators and cards of a node that are drawn one by one."""
COLOURS = {
    "accelerator": "#d8ecd2",
    "hbm": "#8cc07c",
    "scale_up": "#f3d9a4",
    "pcie": "#dcdcdc",
    "card": "#c3d7ee",
    "host": "#e6d5ea",
    "switch": "#aac4e3",
    "panel": "#fafafa",
}


@dataclass
class _Canvas:
    """Shapes and text in the order in which they are drawn."""

    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, kind: str, title: str) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{COLOURS[kind]}"'
            f' stroke="#555" stroke-width="0.8"><title>{_text(title)}</title></rect>'
        )

    def text(self, x: float, y: float, words: str, *, size: int = 12, middle: bool = False, bold: bool = False) -> None:
        anchor = ' text-anchor="middle"' if middle else ""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}"{anchor}{weight}>{_text(words)}</text>')

    def line(self, x: float, y: float, to_x: float, to_y: float) -> None:
        self.parts.append(f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="#555" stroke-width="1"/>')


def picture(topology: Topology) -> str:
    """The SVG as text."""
    canvas = _Canvas()
    columns = min(len(topology.nodes), 3)
    width = 2 * MARGIN + columns * PANEL + (columns - 1) * GAP
    head = f"{topology.name}: {counted(topology.node_count, 'node')}, {counted(topology.world_size, 'accelerator')}"
    canvas.text(MARGIN, MARGIN + 12, _cut(head, 90), size=16, bold=True)
    y: float = MARGIN + 2 * ROW
    middle = width / 2
    if topology.node_count > 1:
        for number, (label, words) in enumerate(network_lines(topology)):
            if number:
                canvas.line(middle, y - ROW, middle, y)
            canvas.box(MARGIN, y, width - 2 * MARGIN, ROW + 8, "switch", label)
            canvas.text(middle, y + 19, _cut(f"{label}: {words}", 76 * columns), middle=True)
            y += 2 * ROW + 8
    else:
        y += 4
    top = bottom = y
    for number, group in enumerate(topology.nodes):
        if number and number % columns == 0:
            top = bottom + GAP
        x = MARGIN + number % columns * (PANEL + GAP)
        bottom = max(bottom, _panel(canvas, group, x, top, joined=topology.node_count > 1))
    height = bottom + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
        f' viewBox="0 0 {width:g} {height:g}"'
        f' font-family="sans-serif" fill="#222" role="img" aria-label={quoteattr(_plain(head))}>\n'
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>\n' + "\n".join(canvas.parts) + "\n</svg>\n"
    )


def _panel(canvas: _Canvas, group: NodeGroup, x: float, top: float, *, joined: bool) -> float:
    """One node of a group; where its panel ends."""
    place = len(canvas.parts)
    inner, width = x + 12, PANEL - 24
    words = f"{group.name}: {counted(group.count, 'node')} of {group.accelerators.count} x {group.accelerators.device}"
    canvas.text(inner, top + 18, _cut(words, 70), size=13, bold=True)
    y = top + 30
    nics = group.links.scale_out
    if nics is not None:
        if joined:
            canvas.line(x + PANEL / 2, top - ROW, x + PANEL / 2, top)
        _row(canvas, inner, y, width, nics.count, "card", "NIC", 20)
        canvas.text(inner, y + 34, f"scale-out: {cards_words(nics)}")
        y += 46
    per_switch, count = group.links.pcie.accelerators_per_switch, group.accelerators.count
    _row(canvas, inner, y, width, count // per_switch, "pcie", "PCIe switch" if per_switch > 1 else "PCIe", 20)
    shared = f", {per_switch} share an uplink" if per_switch > 1 else ""
    canvas.text(inner, y + 34, f"PCIe: {rate(group.links.pcie.bandwidth)} each{shared}")
    y = _accelerators(canvas, group, inner, y + 46, width)
    for label, memory in (
        ("host memory", group.host.ddr),
        ("drives", group.host.ssd),
        ("storage-class", group.host.scm),
    ):
        if memory is not None:
            canvas.box(inner, y, width, 24, "host", label)
            canvas.text(inner + 8, y + 16, f"{label}: {memory_words(memory)}")
            y += 30
    if group.remote is not None:
        canvas.box(inner, y, width, 24, "host", "remote hosts")
        canvas.text(inner + 8, y + 16, f"remote: {memory_words(group.remote)}")
        y += 30
    if group.links.front_end is not None:
        canvas.text(inner, y + 12, f"front-end: {cards_words(group.links.front_end)}")
        y += 20
    height = y + 8 - top
    outline = _Canvas()
    outline.box(x, top, PANEL, height, "panel", group.name)
    canvas.parts[place:place] = outline.parts
    return top + height


def _accelerators(canvas: _Canvas, group: NodeGroup, x: float, y: float, width: float) -> float:
    """The accelerators of a node with their HBM, above the fabric that joins them; where they end."""
    count = group.accelerators.count
    hbm = memory_words(group.accelerators.hbm)
    _row(canvas, x, y, width, count, "accelerator", "", 44)
    _row(canvas, x, y + 22, width, count, "hbm", "HBM", 22, inset=6)
    canvas.text(x, y + 58, _cut(f"each {group.accelerators.device}: HBM {hbm}", 76))
    y += 68
    up = group.links.scale_up
    if up is None:
        return y
    domain = group.domain_ranks
    _row(canvas, x, y, width, max(1, count // domain), "scale_up", "", 24)
    spans = f", a domain of {domain} spans {domain // count} nodes" if domain > count else f", {domain} together"
    words = f"{up.kind}: {rate(up.bandwidth)} each{spans}, {duration(up.latency)}"
    canvas.text(x + width / 2, y + 16, words, middle=True)
    return y + 34


def _row(
    canvas: _Canvas,
    x: float,
    y: float,
    width: float,
    count: int,
    kind: str,
    label: str,
    height: float,
    inset: float = 0,
) -> None:
    """Equal boxes side by side; beyond MOST_DRAWN one that says how many there are."""
    drawn = count if count <= MOST_DRAWN else 1
    step = width / drawn
    for number in range(drawn):
        words = label if drawn == count and count <= 8 else f"{count} x {label}" if drawn != count else ""
        title = f"{label or kind} {number}" if drawn == count else f"{count} x {label or kind}"
        canvas.box(x + number * step + 2 + inset, y, step - 4 - 2 * inset, height - (4 if inset else 0), kind, title)
        if kind == "accelerator":
            canvas.text(x + (number + 0.5) * step, y + 15, str(number) if drawn == count else f"{count} x", middle=True)
        elif words:
            canvas.text(x + (number + 0.5) * step, y + height / 2 + (2 if inset else 4), words, size=10, middle=True)


def _cut(words: str, limit: int) -> str:
    return words if len(words) <= limit else f"{words[: limit - 1]}…"


def _plain(words: str) -> str:
    return printable(words)


def _text(words: str) -> str:
    return escape(_plain(words))
