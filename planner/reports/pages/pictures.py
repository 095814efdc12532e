"""The charts of a page as PNG or SVG files."""

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from planner.document.files import write_file
from planner.reports.pages.charts import Chart, Json, LeftOut, View, escaped, legend_px
from planner.reports.pages.drawing import drawn
from planner.reports.pages.page import Page
from topologies.errors import InputError, MissingPackageError

PictureFormat = Literal["png", "svg"]
WIDTH_PX, DENSITY = 960, 2
"""The width of a picture, and the pixels that a PNG has for each of its pixels."""
TITLE_PX = 44


def write_pictures(page: Page, directory: str | Path, picture_format: PictureFormat = "png") -> list[Path]:
    """Write every view of every chart into a directory, which is made where there is none; returns the files.

    Drawn by the same plotly.js as the page, in a Chrome or Chromium of this machine without a window. Raises InputError
    without plotly and kaleido (extra `report`), without a browser, and for a place that cannot be written.
    """
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError.at(str(directory), f"cannot be made: {error.strerror}") from None
    files, figures = [], []
    for chart in page.charts:
        if isinstance(chart, LeftOut):
            continue
        for view in chart.views:
            files.append(directory / f"{_file_name(chart, view)}.{picture_format}")
            figures.append(_figure(chart, view))
    for file, content in zip(files, _drawn(figures, directory, picture_format), strict=True):
        write_file(file, content)
    return files


def _drawn(figures: Sequence[Json], directory: Path, picture_format: PictureFormat) -> list[bytes]:
    """The pictures of all figures, by one browser."""
    if not all(importlib.util.find_spec(package) for package in ("kaleido", "plotly")):
        # without plotly, kaleido would fetch plotly.js from elsewhere
        raise MissingPackageError("pictures need plotly and kaleido", "report")
    try:
        images = drawn(figures, [_options(figure, picture_format) for figure in figures])
    except FileNotFoundError:
        words = "pictures need Chrome or Chromium, and there is none on this machine; the page itself needs none"
        raise InputError.at(str(directory), words) from None
    except ChildProcessError as error:
        words = f"pictures need a browser, and that of this machine fails: {error}"
        raise InputError.at(str(directory), words) from None
    return [_with_steady_ids(content) for content in images] if picture_format == "svg" else images


def _options(figure: Json, picture_format: PictureFormat) -> dict[str, Any]:
    scale = DENSITY if picture_format == "png" else 1
    return {"format": picture_format, "width": WIDTH_PX, "height": figure["layout"]["height"], "scale": scale}


def _figure(chart: Chart, view: View) -> Json:
    """The view with the words that stand around it in a page."""
    words = " – ".join(filter(None, (chart.title, view.group, view.label)))
    title = {"text": escaped(words), "x": 0.02, "xanchor": "left", "y": 0.985, "yanchor": "top", "font": {"size": 16}}
    names = [trace.get("name", "") for trace in view.data if trace.get("showlegend", True)]
    legend = legend_px(names) if view.layout["showlegend"] else 0
    margin = view.layout["margin"] | {"t": view.layout["margin"]["t"] + TITLE_PX + legend}
    layout = view.layout | {"title": title, "margin": margin, "height": view.layout["height"] + TITLE_PX}
    traces = [{**trace, "uid": f"{number:06d}"} for number, trace in enumerate(view.data, start=1)]
    return {"data": traces, "layout": layout}


def _file_name(chart: Chart, view: View) -> str:
    """`heat-map-throughput`; without what stands in brackets."""
    if len(chart.views) == 1:
        return chart.name
    words = re.sub(r"\([^)]*\)", "", f"{view.group} {view.label}").lower()
    return "-".join([chart.name, *re.findall(r"[\w.]+", words)])


def _with_steady_ids(content: bytes) -> bytes:
    """An SVG without the number that plotly draws anew for the ids of each drawing."""
    match = re.search(rb'id="defs-([0-9a-f]{6})"', content)
    return content.replace(match[1], b"drawn") if match else content
