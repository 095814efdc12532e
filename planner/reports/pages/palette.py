"""The colours of charts: for a light page as they stand in a chart, for a dark one by `DARK`.

Series and stages stay apart for people with protanopia, deuteranopia and tritanopia (dichromats by the matrices of
Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009), by differences in OKLab. The first six series are those of
Okabe and Ito (Color Universal Design, 2008), without yellow and black. Scales change lightness in one direction.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle

from cost_models.shards import MEMORY_TIERS

PAPER, INK, FAINT, GRID, EMPTY, PALE = "#ffffff", "#222222", "#9a9a9a", "#e6e6e6", "#e4e4e4", "#e4e8ec"
OTHERS = "#c4ccd4"
"""Points that are none of the best."""
SEQUENTIAL = [[0, "#eef3f8"], [0.25, "#bcd2e8"], [0.5, "#7fa9d0"], [0.75, "#4479ad"], [1, "#1f4e79"]]
SERIES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#7a4622", "#6b6b6b")
STAGE_COLOURS = {
    "input_dist": "#f7b84b",
    "cache_fetch": "#8a44c8",
    "copy_contention": "#cf9df0",
    "lookup_forward": "#00796b",
    "output_intra_host": "#e3a08a",
    "tower_forward": "#1b4f9c",
    "output_dist": "#e06c10",
    "dense": "#3f9fe0",
    "gradient_dist": "#8a3214",
    "tower_backward": "#a9dcf7",
    "gradient_intra_host": "#b08d57",
    "lookup_backward": "#86d3b0",
    "all_reduce": "#ead98a",
    "overhead": "#8b9096",
    "batch_copy": "#e37bbd",
    "host": "#b3b8bd",
}
"""Exchanges are orange to brown, tables green, the dense part blue, copies purple, and what the host does grey."""
LIMITS = {
    "hbm": "#009e73",
    "network": "#e69f00",
    "dense": "#56b4e9",
    "host": "#0072b2",
    "storage": "#cc79a7",
    "overhead": "#6b6b6b",
    "memory": "#d55e00",
}
"""The colour of what takes most of a step."""
MEMORY_COLOURS: dict[str, str] = dict(
    zip(MEMORY_TIERS, cycle(("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")), strict=False)
)
"""The colour of each memory, by its position in the one list of memories, so that each has one."""
DARK = {
    PAPER: "#15181d",
    INK: "#e6e8eb",
    FAINT: "#7d848c",
    GRID: "#2c3138",
    EMPTY: "#3a3f46",
    PALE: "#333942",
    OTHERS: "#59626c",
    "#eef3f8": "#1c2733",
    "#bcd2e8": "#25486e",
    "#7fa9d0": "#3676b5",
    "#4479ad": "#74aee3",
    "#1f4e79": "#cfe5fb",
    "#7a4622": "#f0d060",
    "#6b6b6b": "#b3b3b3",
}
"""What stands for a colour on a dark page; all others stay."""


def colours(names: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """A colour for each name; what is not known takes the next of the palette."""
    spare = cycle(SERIES)
    return [known.get(name) or next(spare) for name in names]
