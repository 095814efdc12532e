"""The page of a run: its charts are what plotly draws, and say what the document says."""

import pytest

from planner.reports.pages.charts import Chart
from planner.runs.page import run_page
from planner.runs.running import cost_run

graph_objects = pytest.importorskip("plotly.graph_objects")


def test_charts_of_a_run(run_file):
    """The schedule over time, the parts of each stage, and each figure against the number of nodes."""
    stages = [
        {"name": "a", "steps": 100, "nodes": 1, "hessian_products": 1},
        {"name": "b", "global_batch": 16384, "steps": 100, "nodes": [1, 2]},
    ]
    result = cost_run(run_file(stages=stages, prices="sheet.yaml", restart="1s")).result
    page = run_page(result)
    charts = {chart.name: chart for chart in page.charts if isinstance(chart, Chart)}
    assert set(charts) == {"schedule", "stages", "sizes"}
    for chart in charts.values():
        for view in chart.views:
            graph_objects.Figure(view.data, view.layout)
    batch, nodes = charts["schedule"].views[0].data
    assert batch["y"] == [8192, 8192, 16384, 16384]
    assert nodes["y"] == [stage.nodes for stage in result.stages for _ in range(2)]
    assert batch["x"][0] == 0
    (parts,) = charts["stages"].views
    assert result.takes is not None
    drawn = sum(sum(trace["x"]) for trace in parts.data)
    unit = {"s": 1.0, "ms": 1e-3}[parts.layout["xaxis"]["title"]["text"].removeprefix("time (").removesuffix(")")]
    assert drawn * unit == pytest.approx(result.takes.seconds)
    assert [view.label for view in charts["sizes"].views] == ["seconds", "usd", "kwh"]
    assert [table.name for table in page.tables] == ["stages", "choices", "ways"]
