"""The report of measured tables: how skewed their reads are, how long their lists, and what both suggest."""

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import pandas as pd

from planner.profiling.measured import MeasuredTable, shortened, warnings_of
from planner.reports.pages.charts import Chart, Json, View, axis, escaped, hover, layout, legend_px, line
from planner.reports.pages.page import Page, PageColumn, Table
from planner.reports.pages.palette import SERIES
from topologies.sentences import counted
from topologies.units import format_bytes

MOST_CURVES = 8
CACHED = 0.1
CACHEABLE = 0.9
"""Share of the reads from which on a cache of `CACHED` of the rows is named."""
SMALL_BYTES = 16e6
"""Size in fp32 up to which a table is named as small: a copy on every rank costs little memory."""


def profile_page(tables: Sequence[MeasuredTable], source: str, dim: int | None = None) -> Page:
    """Measured tables as a page."""
    ids = sum(table.statistics.rows.total for table in tables)
    facts = [f"{counted(len(tables), 'table')}, {ids:,.0f} ids read from {source}."]
    facts += [f"Warning: {warning}." for warning in warnings_of(tables)]
    return Page(
        title="Table profiles",
        description=f"How the rows of {counted(len(tables), 'table')} are read",
        facts=facts,
        findings=_findings(tables, dim),
        charts=[_curves(tables), *_lengths(tables)],
        tables=[_table(tables)],
    )


def _findings(tables: Sequence[MeasuredTable], dim: int | None) -> list[str]:
    """What the curves suggest; the plan decides."""
    found = []
    small, cacheable = [], []
    for table in tables:
        width = int(table.stated.get("dim") or dim or 0)
        if width and table.rows * width * 4 <= SMALL_BYTES:
            small.append(table.name)
        elif (share := table.hottest(CACHED)) >= CACHEABLE and not table.is_short:
            cacheable.append(f"{table.name} ({share:.0%})")
    if cacheable:
        found.append(
            f"A cache of a tenth of the rows serves {CACHEABLE:.0%} of the reads or more of"
            f" {shortened(cacheable)}: these tables can live below HBM (ddr_cached)."
        )
    if small:
        words = f"Up to {format_bytes(SMALL_BYTES)} in fp32, so that a copy on every rank (data_parallel) costs little"
        found.append(f"{words}: {shortened(small)}.")
    if not found:
        found.append("No table is small, and none is known to be skewed enough for a cache of a tenth of its rows.")
    return found


def _curves(tables: Sequence[MeasuredTable]) -> Chart:
    """Share of the reads against the share of the hottest rows, of the tables with the most reads."""
    shown = sorted(tables, key=lambda table: -table.statistics.rows.total)[:MOST_CURVES]
    data: list[Json] = []
    for table, colour in zip(shown, cycle(SERIES), strict=False):
        points = [(0.0, 0.0), *table.profile()["access_cdf"]]
        x, y = ([100 * point[k] for point in points] for k in (0, 1))
        texts = [
            hover(table.name, {"hottest rows": f"{a:.3g}%", "of the reads": f"{b:.1f}%"})
            for a, b in zip(x, y, strict=True)
        ]
        data.append(line(table.name, x, y, colour, texts) | {"mode": "lines"})
    least = min(point for trace in data for point in trace["x"] if point > 0)
    drawn = [
        layout(
            480 + legend_px([table.name for table in shown]),
            showlegend=True,
            xaxis=axis("share of the rows, the hottest first", ticksuffix="%", **kind),
            yaxis=axis("share of the reads", ticksuffix="%", range=[0, 102]),
        )
        for kind in ({"range": [0, 100]}, {"type": "log", "range": [float(np.log10(least)), 2]})
    ]
    note = "" if len(shown) == len(tables) else f"The {len(shown)} tables with the most reads."
    views = (View("even", data, drawn[0]), View("hottest rows enlarged", data, drawn[1]))
    return Chart("curves", "Which share of the reads the hottest rows take", views, note)


def _lengths(tables: Sequence[MeasuredTable]) -> list[Chart]:
    """How many ids samples have, of the tables whose samples differ."""
    differing = [table for table in tables if (lengths := table.statistics.lengths) is not None and len(lengths) > 1]
    if not differing:
        return []
    shown = sorted(differing, key=lambda table: -table.statistics.rows.total)[:MOST_CURVES]
    data = []
    for table, colour in zip(shown, cycle(SERIES), strict=False):
        lengths = table.statistics.lengths
        assert lengths is not None
        shares = (100 * (1 - (np.cumsum(lengths.counts) - lengths.counts) / lengths.total)).tolist()
        texts = [
            hover(table.name, {"ids": f"{value:,}", "samples with as many or more": f"{share:.3g}%"})
            for value, share in zip(lengths.values.tolist(), shares, strict=True)
        ]
        trace = line(escaped(table.name), lengths.values.tolist(), shares, colour, texts)
        data.append(trace | {"mode": "lines", "line": {"color": colour, "width": 2, "shape": "vh"}})
    drawn = layout(
        420 + legend_px([table.name for table in shown]),
        showlegend=True,
        xaxis=axis("ids of a sample", rangemode="tozero"),
        yaxis=axis("samples with as many or more", ticksuffix="%", range=[0, 102]),
    )
    return [Chart("lengths", "How many ids samples have", (View("lengths", data, drawn),))]


def _table(tables: Sequence[MeasuredTable]) -> Table:
    rows = []
    for table in tables:
        record = table.record()
        record |= {"distinct_ids": round(table.statistics.rows.distinct), **table.lengths_at()}
        rows.append(record)
    columns = [
        PageColumn("table", "table"),
        PageColumn("rows", "rows"),
        PageColumn("rows_are", "rows are"),
        PageColumn("distinct_ids", "distinct ids seen"),
        PageColumn("ids", "ids of a sample"),
        *(PageColumn(name, name) for name in ("spread", "p50", "p99", "most")),
        PageColumn("distinct", "distinct in a batch", "share"),
        PageColumn("top_1%", "reads of the hottest 1%", "share"),
        PageColumn("top_10%", "of the hottest 10%", "share"),
    ]
    frame = pd.DataFrame(rows)
    return Table("tables", "Tables", frame, [column for column in columns if column.name in frame])
