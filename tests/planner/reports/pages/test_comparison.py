"""What the page of several plans says: their figures side by side, and of two what differs."""

import numpy as np
import pytest

from planner import Plan, plan
from planner.document.plan_differences import plan_difference
from planner.reports.comparison import compare
from planner.reports.pages import comparison_page, to_html
from planner.reports.pages.charts import Chart, View
from planner.reports.pages.page import Page
from tests.oracles.instances import node_group, topology, workload

TABLES = [
    {"rows": 2_000_000, "dim": 64},
    {"rows": 5_000, "dim": 32, "name": "<b>small</b>"},
    {"rows": 900_000, "dim": 128},
]


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    """On one node, and on four."""
    return {
        f"{nodes} nodes": plan(topology(node_group("a", nodes=nodes)), workload(TABLES), effort=0) for nodes in (1, 4)
    }


@pytest.fixture(scope="module")
def page(plans: dict[str, Plan]) -> Page:
    return comparison_page(plans)


def view(page: Page, name: str, label: str = "") -> View:
    (chart,) = [each for each in page.charts if isinstance(each, Chart) and each.name == name]
    return next(each for each in chart.views if each.label.startswith(label))


def test_stages_of_each_plan_add_up_to_its_step(plans: dict[str, Plan], page: Page) -> None:
    stacked, beside = view(page, "stages", "step"), view(page, "stages", "stage by stage")
    steps = [found.objective.step_s for found in plans.values() if found.objective is not None]
    for drawn, axis in ((stacked, 0), (beside, 1)):
        assert "(ms)" in drawn.layout["xaxis"]["title"]["text"]
        assert np.sum([trace["x"] for trace in drawn.data], axis=axis) == pytest.approx([1e3 * step for step in steps])
    assert stacked.layout["yaxis"]["ticktext"] == ["1 nodes", "4 nodes"] == [trace["name"] for trace in beside.data]


def test_figures_are_those_of_the_comparison(plans: dict[str, Plan], page: Page) -> None:
    one, four = compare(plans)
    (drawn,) = view(page, "figures", "throughput").data
    assert drawn["x"][1] / drawn["x"][0] == pytest.approx(four["samples_per_s_ratio"])
    assert f"Most samples/s: 4 nodes, {four['samples_per_s_ratio']:.3f} times 1 nodes." in page.findings
    room, used = view(page, "memory", "HBM").data
    for n, record in enumerate((one, four)):
        assert used["x"][n] / room["x"][n] == pytest.approx(record["hbm_used_bytes"] / record["hbm_capacity_bytes"])
    assert sum(trace["x"][0] for trace in view(page, "tables-by-kind").data) == len(TABLES)
    assert page.tables[0].frame["ranks"].tolist() == [one["ranks"], four["ranks"]]


def test_two_plans_show_the_tables_that_differ(plans: dict[str, Plan], page: Page) -> None:
    difference = plan_difference(*plans.values(), "1 nodes")
    assert len(page.tables[1].frame) == len(difference.tables) > 0
    (moved,) = view(page, "moved").data
    scale = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    unit = view(page, "moved").layout["xaxis"]["title"]["text"].rpartition("(")[2].rstrip(")")
    assert sum(moved["x"]) * scale[unit] == pytest.approx(difference.moved_bytes)
    assert "<b>small</b>" not in to_html(page)


def test_more_than_two_plans_are_compared_without_moves(plans: dict[str, Plan]) -> None:
    page = comparison_page({**plans, "again": next(iter(plans.values()))})
    assert page.title == "3 plans compared"
    assert [each.name for each in page.charts if isinstance(each, Chart)][-1] == "balance"
    assert len(page.tables) == 1
    assert all(each.words for each in page.charts if isinstance(each, Chart))


def test_a_plan_that_places_nothing_is_compared_all_the_same(plans: dict[str, Plan]) -> None:
    """Unknown is not zero."""
    cramped = plan(topology(node_group("b", hbm_bytes=1e7, ddr_bytes=None)), workload(TABLES), effort=0)
    page = comparison_page({"none": cramped, **plans})
    assert page.facts[0].endswith("infeasible.")
    assert view(page, "stages").layout["yaxis"]["ticktext"] == list(plans)
    assert view(page, "figures").data[0]["x"][0] is None
    assert view(page, "figures").data[0]["text"][0] == "unknown"


def test_a_rating_has_no_step_to_compare(plans: dict[str, Plan]) -> None:
    rated = plan(topology(node_group("a")), workload(TABLES[:1]), cost_model="hugectr", effort=0)
    page = comparison_page({"rated": rated, "again": rated})
    assert "rating" in {column.title for column in page.tables[0].columns}
    assert "stages" not in {each.name for each in page.charts if isinstance(each, Chart)}
    assert "The plans place all tables alike." in page.findings
