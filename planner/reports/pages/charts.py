"""Charts as plotly's own JSON, made without plotly: what a page draws and what a picture is made of.

Text from files is escaped here, as plotly reads `<b>` and the like in every label.
"""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.reports.pages.palette import FAINT, GRID, INK, PAPER, SEQUENTIAL
from topologies.errors import printable

Json = dict[str, Any]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
LABEL_LENGTH, MOST_TICKS = 32, 12
BAR_PX, SURROUNDINGS_PX, LEGEND_PX = 24, 96, 760


@dataclass(frozen=True)
class View:
    """One drawing of a chart."""

    label: str
    """What it is called among the views of its chart."""
    data: Sequence[Json]
    layout: Json
    group: str = ""
    """Views of one group stand together where one is chosen."""
    rows: Sequence[Sequence[str]] = ()
    """Its values as a table, the heading first; empty: what its data say of themselves."""


@dataclass(frozen=True)
class Chart:
    """A chart with one view or several to choose from."""

    name: str
    """The name of its picture files, and of its anchor in a page."""
    title: str
    views: tuple[View, ...]
    note: str = ""
    words: str = ""
    """What it shows, in a sentence or two, for those who do not see it."""
    first: int = 0
    """The number of the view that a page shows first."""


@dataclass(frozen=True)
class LeftOut:
    """A chart that cannot be drawn, and why."""

    title: str
    reason: str


@dataclass(frozen=True)
class Bars:
    """One series of horizontal bars."""

    name: str
    values: Sequence[float | None]
    colour: str | Sequence[str]
    """The colour of all bars, or of each."""
    hovers: Sequence[str]
    texts: Sequence[str] = field(default_factory=tuple)
    width: float | None = None


def escaped(text: object) -> str:
    """Text as plotly shows it as it stands; hidden characters, which pictures cannot hold, as their escapes."""
    return html.escape(printable(str(text)), quote=False)


def shortened(text: str) -> str:
    """A label that leaves room for the chart."""
    return text if len(text) <= LABEL_LENGTH else f"{text[: LABEL_LENGTH - 1].rstrip()}…"


def layout(height: int, **more: Any) -> Json:
    """What all charts have in common, and `more` of this one."""
    common: Json = {
        "height": height,
        "autosize": True,
        "font": {"family": FONT, "size": 13, "color": INK},
        "margin": {"l": 56, "r": 16, "t": 24, "b": 48},
        "paper_bgcolor": PAPER,
        "plot_bgcolor": PAPER,
        "hoverlabel": {"bgcolor": PAPER, "bordercolor": FAINT, "font": {"color": INK}, "align": "left"},
        "showlegend": False,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hovermode": "closest",
    }
    return common | more


def axis(title: str = "", **more: Any) -> Json:
    """An axis of a chart."""
    common: Json = {
        "title": {"text": title, "standoff": 8},
        "automargin": True,
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": FAINT,
        "ticks": "outside",
        "tickcolor": FAINT,
        "ticklen": 4,
    }
    return common | more


def legend_px(names: Sequence[str]) -> int:
    """How much higher a chart is for the lines of its legend after the first; its columns are equally wide."""
    columns = max(1, LEGEND_PX // (8 * max(map(len, names), default=1) + 50))
    return 19 * ((len(names) - 1) // columns)


def spread_ticks(values: Sequence[float], *, is_logarithmic: bool) -> list[float]:
    """Those of ascending values that have room for a label each, the last among them."""
    places = [math.log(value) for value in values] if is_logarithmic else list(values)
    room = (places[-1] - places[0]) / MOST_TICKS
    kept = [len(values) - 1]
    for number in range(len(values) - 2, -1, -1):
        if places[kept[-1]] - places[number] >= room:
            kept.append(number)
    return [values[number] for number in reversed(kept)]


def named_axis(names: Sequence[str], title: str = "", **more: Any) -> Json:
    """An axis of positions 0, 1, … with these names."""
    texts = [escaped(shortened(name)) for name in names]
    return axis(title, tickmode="array", tickvals=list(range(len(names))), ticktext=texts, showgrid=False, **more)


def bars(
    names: Sequence[str], series: Sequence[Bars], title: str, *, stacked: bool = True, **more: Any
) -> tuple[list[Json], Json]:
    """Data and layout of horizontal bars, the first name on top; values in the unit of the `title`."""
    places = list(range(len(names)))
    data: list[Json] = []
    for bar_series in series:
        trace: Json = {
            "type": "bar",
            "orientation": "h",
            "name": escaped(bar_series.name),
            "y": places,
            "x": list(bar_series.values),
            "marker": {"color": bar_series.colour, "line": {"width": int(stacked and len(series) > 1), "color": PAPER}},
            "hovertext": list(bar_series.hovers),
            "hoverinfo": "text",
        }
        if bar_series.texts:
            trace |= {"text": [escaped(text) for text in bar_series.texts], "textposition": "auto", "cliponaxis": False}
            trace |= {"textangle": 0}
        if bar_series.width is not None:
            trace["width"] = bar_series.width
        data.append(trace)
    drawn = layout(
        SURROUNDINGS_PX
        + legend_px([bar_series.name for bar_series in series])
        + max(BAR_PX * len(names) * (1 if stacked else max(1, len(series) // 2)), 2 * BAR_PX),
        barmode="stack" if stacked else "group",
        bargap=0.3,
        showlegend=len(series) > 1,
        xaxis=axis(title, rangemode="tozero"),
        yaxis=named_axis(names, range=[len(names) - 0.5, -0.5], ticks=""),
    )
    return data, drawn | more


def line(
    name: str, x: Sequence[float], y: Sequence[float | None], colour: str, hovers: Sequence[str] = (), **more: Any
) -> Json:
    """A line with a mark at each point."""
    trace: Json = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": escaped(name),
        "x": list(x),
        "y": list(y),
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 7},
    }
    trace |= {"hovertext": list(hovers), "hoverinfo": "text"} if hovers else {"hoverinfo": "skip"}
    return trace | more


def heat_map(
    columns: Sequence[str],
    rows: Sequence[str],
    values: Sequence[Sequence[float | None]],
    texts: Sequence[Sequence[str]],
    hovers: Sequence[Sequence[str]],
    unit: str = "",
    **more: Any,
) -> Json:
    """Cells of a colour each, with the text in them where they are few, else a scale of colours; None is left empty."""
    trace: Json = {
        "type": "heatmap",
        "x": list(range(len(columns))),
        "y": list(range(len(rows))),
        "z": [list(row) for row in values],
        "hovertext": [list(row) for row in hovers],
        "hoverinfo": "text",
        "colorscale": SEQUENTIAL,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "colorbar": {"title": {"text": escaped(unit), "side": "top"}, "thickness": 12, "outlinewidth": 0},
    }
    if len(columns) * len(rows) <= MOST_TEXTS and len(columns) <= MOST_TEXT_COLUMNS:
        trace |= {"text": [[escaped(cell) for cell in row] for row in texts], "texttemplate": "%{text}"}
        trace |= {"textfont": {"size": 12}, "showscale": False}
    return trace | more


MOST_TEXTS, MOST_TEXT_COLUMNS = 240, 14


def hover(title: str, facts: Mapping[str, str]) -> str:
    """What is shown of a point under the pointer."""
    lines = [f"<b>{escaped(title)}</b>"] if title else []
    return "<br>".join([*lines, *(f"{escaped(name)}: {escaped(text)}" for name, text in facts.items())])
