"""A page of text, charts and tables as one HTML file that opens without a network."""

import base64
import gzip
import html
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd

from planner._version import VERSION
from planner.reports.pages.charts import Chart, LeftOut
from planner.reports.pages.palette import DARK
from planner.studies.scales import aligned, scale_of, value_text
from topologies.errors import MissingPackageError, printable

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""The browser itself refuses whatever would come from elsewhere."""
UNKNOWN = "unknown"
MOST_LETTERS = 2_400_000
"""What all tables of a page may take, so that it stays below 5 MB."""
LONG = 40
"""A column whose longest text is longer than this may take several lines."""


@dataclass(frozen=True)
class PageColumn:
    """One column of a table: of a data frame, with a heading and a unit."""

    name: str
    title: str
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """A table that sorts by a click on a heading."""

    name: str
    title: str
    frame: pd.DataFrame
    columns: Sequence[PageColumn]
    note: str = ""


@dataclass(frozen=True)
class Page:
    """What a report says, from top to bottom."""

    title: str
    description: str
    facts: Sequence[str]
    findings: Sequence[str]
    charts: Sequence[Chart | LeftOut]
    tables: Sequence[Table]


def to_html(page: Page, source: str = "") -> str:
    """The page, with plotly.js inside; equal pages give equal text. `source` names its file in the footer.

    Raises InputError where plotly is missing (extra `report`).
    """
    drawn = [chart for chart in page.charts if isinstance(chart, Chart)]
    left_out = [chart for chart in page.charts if isinstance(chart, LeftOut)]
    body = [_header(page)]
    if page.findings:
        body.append(f"<section><h2>Findings</h2>\n{_list(page.findings)}</section>")
    body += [_chart(chart) for chart in drawn]
    if left_out:
        reasons = [f"{chart.title}: {chart.reason}." for chart in left_out]
        body.append(f"<section><h2>Not shown</h2>\n{_list(reasons)}</section>")
    body += [_table(table, MOST_LETTERS // len(page.tables)) for table in page.tables]
    origin = f"Made from {source} by planner {VERSION}." if source else f"Made by planner {VERSION}."
    packed = {"plotly": _plotly_js(), "views": _views(drawn)} if drawn else {}
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            f"<title>{_text(page.title)}</title>",
            f"<style>\n{_read('page.css')}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            f"<footer>{_text(origin)} It holds all that it shows and loads nothing.</footer>",
            "<noscript><footer>Charts need JavaScript, which this browser does not run.</footer></noscript>",
            *(f'<script type="text/plain" id="{name}">{_packed(text)}</script>' for name, text in packed.items()),
            f"<script>{_read('page.js')}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _plotly_js() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingPackageError("reports need plotly", "report") from None
    return str(get_plotlyjs())


def _views(charts: Sequence[Chart]) -> str:
    """The views of all charts by their names, and the colours of a dark page, as JSON."""
    views = {
        chart.name: [{"data": view.data, "layout": view.layout, "rows": view.rows} for view in chart.views]
        for chart in charts
    }
    return json.dumps({"views": views, "dark": DARK}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _packed(text: str) -> str:
    """Text that the browser unpacks: a third of its length."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _text(value: object) -> str:
    return html.escape(printable(str(value), keep="\n"))


def _list(sentences: Iterable[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{_text(sentence)}</li>" for sentence in sentences) + "\n</ul>\n"


def _header(page: Page) -> str:
    lines = ['<button type="button" id="scheme" hidden></button>', f"<h1>{_text(page.title)}</h1>"]
    if page.description:
        lines.append(f"<p>{_text(page.description)}</p>")
    lines += [f'<p class="facts">{_text(fact)}</p>' for fact in page.facts]
    return "<header>\n" + "\n".join(lines) + "\n</header>"


def _chart(chart: Chart) -> str:
    """A chart, with what it shows in words and its values for those who do not see it."""
    note = f'<p class="note">{_text(chart.note)}</p>\n' if chart.note else ""
    said = f"{chart.words} The values are in the table below.".lstrip()
    words = f'<p class="unseen" id="{chart.name}-words">{_text(said)}</p>\n'
    title = _text(chart.title)
    return (
        f'<section>\n<div class="head"><h2>{title}</h2>{_choice(chart)}</div>\n{note}{words}'
        f'<div class="chart" id="{chart.name}" role="img" aria-label="{title}"'
        f' aria-describedby="{chart.name}-words"></div>\n'
        f'<details id="{chart.name}-values"><summary>Values<span class="unseen"> of {title}</span></summary>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Values of {title}"><table></table></div></details>'
        "\n</section>"
    )


def _choice(chart: Chart) -> str:
    if len(chart.views) < 2:
        return ""
    groups: dict[str, list[str]] = {}
    for number, view in enumerate(chart.views):
        chosen = " selected" if number == chart.first else ""
        groups.setdefault(view.group, []).append(f'<option value="{number}"{chosen}>{_text(view.label)}</option>')
    inside = "".join(
        f'<optgroup label="{_text(group)}">{"".join(options)}</optgroup>' if group else "".join(options)
        for group, options in groups.items()
    )
    words = f"What {_text(chart.title)} shows"
    return f'<select id="{chart.name}-choice" aria-label="{words}" autocomplete="off">{inside}</select>'


def _table(table: Table, most_letters: int) -> str:
    """A table with as many of its rows as take at most so many letters."""
    heads, columns = [], []
    for column in table.columns:
        title, cells = _column(table.frame[column.name], column)
        is_number = cells[0].startswith('<td class="n') if cells else False
        start = '<th class="n">' if is_number else "<th>"
        heads.append(f'{start}<button type="button">{_text(title)}</button></th>')
        columns.append(cells)
    every = ["<tr>" + "".join(cells) + "</tr>" for cells in zip(*columns, strict=True)]
    rows = every[: bisect_right(list(accumulate(map(len, every))), most_letters)]
    words = table.note
    if len(rows) < len(every):
        words += f" The first {len(rows):,} of {len(every):,} rows: the page is kept small."
    note = f'<p class="note">{_text(words)}</p>\n' if words else ""
    return (
        f'<section>\n<div class="head"><h2>{_text(table.title)}</h2></div>\n{note}'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(table.title)}">\n'
        f'<table id="{table.name}">\n<thead><tr>{"".join(heads)}</tr></thead>\n'
        "<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>\n</div>\n</section>"
    )


def _column(values: "pd.Series[Any]", column: PageColumn) -> tuple[str, list[str]]:
    """Heading and cells; numbers in one unit, with their value to sort by."""
    known = values.dropna()
    if pd.api.types.is_bool_dtype(known) or set(known.map(type)) == {bool}:
        return column.title, [f"<td>{'yes' if value else ''}</td>" for value in values.eq(True)]
    if len(known) and all(isinstance(value, int | float) for value in known):
        numbers = [float(value) for value in known]
        if all(number.is_integer() for number in numbers) and column.unit in ("", "samples"):
            return column.title, [_number(value, value_text(value, "")) for value in values]
        scale = scale_of(numbers, column.unit)
        every = [math.nan if pd.isna(value) else float(value) for value in values]
        texts = aligned([value / scale.divisor for value in every], 3 if scale.unit == "%" else 4)
        return scale.titled(column.title), [_number(value, text) for value, text in zip(every, texts, strict=True)]
    is_long = max((len(str(value)) for value in known), default=0) > LONG
    start = '<td class="long">' if is_long else "<td>"
    return column.title, ["<td></td>" if pd.isna(value) else f"{start}{_text(value)}</td>" for value in values]


def _number(value: object, text: str) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return f'<td class="n none">{UNKNOWN}</td>'
    return f'<td class="n">{text}</td>'
