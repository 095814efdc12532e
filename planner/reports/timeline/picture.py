"""A picture of one simulated step: the streams of a rank, the critical path, and the load of its links."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cost_models.simulator.program import COMPUTE, HOST, TaskKind
from cost_models.simulator.simulation import Piece, Simulation
from planner.document.files import write_file
from planner.reports.timeline.slices import Load, Slice, critical_rank, loads, slices, streams
from topologies.errors import InputError, MissingPackageError
from topologies.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch
    from matplotlib.text import Text

WIDTH_PX, DPI = 1600, 100
LANE_INCHES, LINK_INCHES, MARGIN_INCHES = 0.6, 0.42, 1.9
FONT, SMALL_FONT = 13, 11
MOST_LOADS = 8
SEEN = 0.01
"""Links of which less is ever used are left out."""
LEGEND_COLUMNS = 6
COLOURS = {
    "overhead": "#bdbdbd",
    "embedding lookup": "#1b7837",
    "embedding update": "#7fbf7b",
    "permute": "#d9f0d3",
    "dense forward": "#2166ac",
    "dense backward": "#67a9cf",
    "dense optimizer": "#bfd9ea",
    "exchange": "#f4a582",
    "all-reduce": "#fddbc7",
    "copy or fetch": "#c2a5cf",
}
LEGEND: dict[TaskKind, str] = {
    "overhead": "overhead",
    "lookup": "embedding lookup",
    "update": "embedding update",
    "permute": "permute",
    "dense forward": "dense forward",
    "dense backward": "dense backward",
    "dense optimizer": "dense optimizer",
    "all-to-all": "exchange",
    "reduce-scatter": "exchange",
    "all-gather": "exchange",
    "all-reduce": "all-reduce",
    "transfer": "copy or fetch",
}
"""What bars of each kind of task are in the legend."""
DARK = {"embedding lookup", "dense forward"}
CRITICAL = "#d6001c"
OUTLINES: dict[str, Literal["-", ":"]] = {"critical path": "-", "critical path, on another rank": ":"}
HATCH = "///"
LINK = "#878787"


def picture(simulation: Simulation, path: str | Path, rank: int | None = None) -> None:
    """Write the first counted step of a rank, of the critical one if none is given, as PNG or SVG.

    Needs matplotlib (extra `plot`). Raises InputError for another ending, an unknown rank, a place that cannot be
    written, and without matplotlib. The same simulation gives the same bytes.
    """
    path = Path(path)
    if path.suffix not in (".png", ".svg"):
        raise InputError.at(str(path), "a picture ends in .png or .svg")
    if rank is not None and not 0 <= rank < simulation.network.world:
        raise InputError.at("rank", f"there is no rank {rank}; ranks are numbered 0 to {simulation.network.world - 1}")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise MissingPackageError("pictures need matplotlib", "plot") from None
    rank = critical_rank(simulation) if rank is None else rank
    step_s = float(simulation.step_seconds[0])
    shown = [work for work in slices(simulation, rank) if work.start < step_s]
    lanes = [name for name in streams(simulation) if any(work.task.stream == name for work in shown)]
    lanes.sort(key=lambda name: (name != HOST, name != COMPUTE))
    links = _links(loads(simulation, [rank])[rank], step_s)
    heights = [LANE_INCHES * len(lanes), *([LINK_INCHES * len(links)] if links else [])]
    with rc_context({"svg.hashsalt": "shardplan", "font.size": FONT, "hatch.linewidth": 0.6}):
        figure = Figure(
            figsize=(WIDTH_PX / DPI, sum(heights) + MARGIN_INCHES),
            dpi=DPI,
            layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1),
        )
        upper, *lower = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        labels = _draw_lanes(upper, shown, lanes, step_s)
        outlines = _outline(upper, simulation, rank, lanes)
        upper.set_title(f"Rank {rank} of {simulation.network.world}: one step, {format_seconds(step_s)}", loc="left")
        for axes in lower:
            _draw_links(axes, links)
        bottom = (lower or [upper])[0]
        unit, scale = ("ms", 1e3) if step_s >= 1e-3 else ("µs", 1e6)
        bottom.set_xlim(0, step_s)
        bottom.xaxis.set_major_formatter(lambda value, _: f"{value * scale:g}")
        bottom.set_xlabel(f"time ({unit})")
        handles = _legend(shown, outlines)
        columns = min(LEGEND_COLUMNS, len(handles))
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL_FONT)
        figure.draw_without_rendering()
        for label in labels:
            label.fit()
        content = BytesIO()
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        figure.savefig(content, format=path.suffix[1:], metadata=metadata)
    write_file(path, content.getvalue())


@dataclass(frozen=True)
class _Label:
    """The text on a bar."""

    text: "Text"
    lasts: float

    def fit(self) -> None:
        """All of it, or what stands before a bracket, or nothing where the bar is too narrow."""
        to_pixels = self.text.axes.transData.transform  # type: ignore[union-attr]
        room = to_pixels((self.lasts, 0))[0] - to_pixels((0, 0))[0] - 8
        for text in (self.text.get_text(), self.text.get_text().partition(" (")[0], ""):
            self.text.set_text(text)
            if self.text.get_window_extent().width <= room:
                return


def _draw_lanes(axes: "Axes", shown: Sequence[Slice], lanes: Sequence[str], step_s: float) -> list[_Label]:
    labels = []
    for work in shown:
        sort, lane, lasts = LEGEND[work.task.kind], lanes.index(work.task.stream), min(work.end, step_s) - work.start
        bar, place = [(work.start, lasts)], (lane - 0.4, 0.8)
        hatch = HATCH if work.task.is_exchange else None
        axes.broken_barh(bar, place, facecolor=COLOURS[sort], edgecolor="white", linewidth=0.6, hatch=hatch)
        text = axes.text(work.start + lasts / 2, lane, work.task.name, ha="center", va="center", zorder=5)
        text.set(fontsize=SMALL_FONT, color="white" if sort in DARK else "black", in_layout=False)
        labels.append(_Label(text, lasts))
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return labels


def _legend(shown: Sequence[Slice], outlines: Sequence[str]) -> "list[Patch]":
    from matplotlib.patches import Patch

    hatched = {LEGEND[work.task.kind]: work.task.is_exchange for work in shown}
    handles = [
        Patch(facecolor=colour, edgecolor="white", hatch=HATCH if hatched[sort] else None, label=sort)
        for sort, colour in COLOURS.items()
        if sort in hatched
    ]
    for label in outlines:
        line = OUTLINES[label]
        handles.append(Patch(facecolor="none", edgecolor=CRITICAL, linewidth=2, linestyle=line, label=label))
    return handles


def _outline(axes: "Axes", simulation: Simulation, rank: int, lanes: Sequence[str]) -> list[str]:
    """Mark what lies on the critical path; where that is another rank, what that rank does at the time.

    Returns the kinds of outline that were drawn.
    """
    low, step_s = simulation.window[0], float(simulation.step_seconds[0])
    pieces = [piece for piece in simulation.path() if piece.start - low < step_s and piece.task.stream in lanes]

    def where(piece: Piece) -> tuple[str, bool]:
        return piece.task.stream, piece.rank not in (None, rank) and not piece.task.is_exchange

    drawn = set()
    for (stream, elsewhere), group in groupby(pieces, key=where):
        run = list(group)
        start, end = run[0].start - low, min(run[-1].end - low, step_s)
        bar, place = [(start, end - start)], (lanes.index(stream) - 0.4, 0.8)
        kind = list(OUTLINES)[elsewhere]
        drawn.add(kind)
        axes.broken_barh(
            bar, place, facecolor="none", edgecolor=CRITICAL, linewidth=2, linestyle=OUTLINES[kind], zorder=4
        )
    return [kind for kind in OUTLINES if kind in drawn]


def _links(loads_of_rank: Sequence[Load], step_s: float) -> list[Load]:
    """The links in use during one step, the most used first; links that are loaded alike are one line."""
    merged: list[Load] = []
    for load in loads_of_rank:
        kept = load.time < step_s
        time, share = np.append(load.time[kept], step_s), load.share[kept]
        if not kept.any() or share.max() < SEEN:
            continue
        share = np.append(share, share[-1])
        for number, other in enumerate(merged):
            if np.array_equal(other.time, time) and np.allclose(other.share, share, atol=SEEN):
                merged[number] = Load(f"{other.name}, {load.name}", time, other.share)
                break
        else:
            merged.append(Load(load.name, time, share))
    return sorted(merged, key=lambda load: -float((np.diff(load.time) * load.share[:-1]).sum()))[:MOST_LOADS]


def _draw_links(axes: "Axes", links: Sequence[Load]) -> None:
    """A lane for each: the filled height is the share of its capacity that is in use."""
    for lane, load in enumerate(links):
        floor = np.full(len(load.time), lane + 0.4)
        axes.fill_between(load.time, floor, floor - 0.8 * load.share, step="post", color=LINK, linewidth=0)
    axes.hlines(np.arange(len(links)) + 0.4, 0, float(links[0].time[-1]), color="#d0d0d0", linewidth=0.8)
    axes.set_ylim(len(links) - 0.5, -0.6)
    axes.set_yticks(range(len(links)), [f"load of {load.name}" for load in links], fontsize=SMALL_FONT)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
