"""What a plan's page says: the stages, loads and bytes of the plan, rank by rank, and every table."""

import numpy as np
import pytest

from cost_models.resources import DEVICE, Resource
from cost_models.step import StepModel
from planner import Plan, plan
from planner.document.planned import placed_shards, planned_inputs
from planner.reports.pages import plan_page, to_html
from planner.reports.pages.charts import Chart
from planner.reports.pages.page import Page
from planner.reports.timeline.slices import critical_rank
from planner.verification.simulation import simulate_plan
from tests.oracles.instances import node_group, topology, workload

CHARTS = ["stages", "timeline", "cluster", "ranks", "memory", "treemap", "top"]
TABLES = [
    {"rows": 2_000_000, "dim": 64},
    {"rows": 5_000, "dim": 32, "name": "<b>small</b>"},
    {"rows": 6_000_000, "dim": 128, "zipf_alpha": 1.1},
]


@pytest.fixture(scope="module")
def found() -> Plan:
    """Some of it below HBM, on two nodes of two ranks."""
    return plan(topology(node_group("a", nodes=2, hbm_bytes=0.9e9)), workload(TABLES), effort=0, gap=1.0)


@pytest.fixture(scope="module")
def page(found: Plan) -> Page:
    return plan_page(found)


def chart(page: Page, name: str) -> Chart:
    (one,) = [each for each in page.charts if isinstance(each, Chart) and each.name == name]
    return one


def test_stages_are_those_of_the_plan(found: Plan, page: Page) -> None:
    (data,) = chart(page, "stages").views[0].data
    shown = [stage for stage in found.stages if stage.seconds]
    assert data["x"] == pytest.approx([stage.seconds * 1e3 for stage in shown])
    bands = [stage.error_bar for stage in shown]
    assert data["error_x"]["array"] == pytest.approx(
        [1e3 * (bar.high_s - stage.seconds) if bar else 0 for bar, stage in zip(bands, shown, strict=True)]
    )


def test_every_rank_shows_its_seconds(found: Plan, page: Page) -> None:
    against, tables, whole = chart(page, "ranks").views
    data = whole.data
    *parts, totals = against.data
    busy = np.array([sum(rank.seconds.values()) for rank in found.ranks])
    unit = 1e6 if "µs" in against.layout["yaxis"]["title"]["text"] else 1e3
    assert totals["y"] == pytest.approx(unit * (busy - busy.mean()))
    assert np.sum([trace["y"] for trace in parts], axis=0) == pytest.approx(totals["y"], abs=unit * 1e-6 * busy.mean())
    assert np.sum([trace["y"] for trace in data], axis=0) == pytest.approx(
        [1e3 * sum(rank.seconds.values()) for rank in found.ranks]
    )
    alone, every = (np.sum([trace["y"] for trace in view.data], axis=0) for view in (tables, whole))
    scale = 1e-3 if "µs" in tables.layout["yaxis"]["title"]["text"] else 1.0
    assert np.ptp(every - scale * alone) == pytest.approx(0, abs=1e-9), "ranks are alike but for their tables"
    assert (scale * alone > 0).all()
    assert (scale * alone < every).all()


def test_hbm_belongs_to_ranks_and_ddr_to_nodes(found: Plan, page: Page) -> None:
    hbm, ddr = chart(page, "memory").views
    assert hbm.label == "HBM of each rank"
    assert hbm.data[1]["y"] == pytest.approx([rank.bytes.hbm / 2**20 for rank in found.ranks])
    assert ddr.label == "DDR of each node"
    assert ddr.data[0]["y"] == pytest.approx([10e9 / 2**30] * 2)
    taken = [sum(rank.bytes.ddr for rank in found.ranks if rank.node == node) for node in (0, 1)]
    assert ddr.data[1]["y"] == pytest.approx([size / 2**30 for size in taken])
    assert sum(taken) > 0


def test_every_table_is_listed_with_its_bytes(found: Plan, page: Page) -> None:
    counts, tables = page.tables
    assert counts.frame["tables"].sum() == len(found.tables)
    assert tables.frame["table"].tolist() == ["t0", "<b>small</b>", "t2"]
    assert tables.frame["hbm"].tolist() == [table.shards.bytes[:, 0].sum() for table in found.tables]
    titles = {column.title for column in tables.columns}
    assert "cached rows" in titles
    assert "hot rows" not in titles


def test_split_tables_are_listed_with_their_hot_rows() -> None:
    """In whole rows; tables that are not split have none."""
    cluster = topology(node_group("a", nodes=2, hbm_bytes=0.9e9))
    found = plan(cluster, workload(TABLES), effort=0, tiers=["hbm", "ddr_split"], simulate=False)
    tables = plan_page(found).tables[1]
    assert "hot rows" in {column.title for column in tables.columns}
    hot_rows = [np.nan if table.remap is None else table.remap.hot_rows for table in found.tables]
    assert 0 < np.isnan(hot_rows).sum() < len(hot_rows)
    np.testing.assert_array_equal(tables.frame["hot_rows"], hot_rows)


def test_the_head_says_how_good_the_plan_is(found: Plan, page: Page) -> None:
    assert found.objective is not None
    assert page.title == "tiny on tiny"
    assert page.description == "3 tables, 4 ranks on 2 nodes, 4,096 samples a step"
    assert f"{found.objective.step_s * 1e3:.3f} ms" in page.facts[1]
    assert page.facts[1].endswith(f"gap {found.objective.gap:.2%}.")
    assert page.facts[-1].startswith("Simulated ")


def test_many_ranks_are_areas() -> None:
    """Thousands of bars would take a browser seconds to draw."""
    many = plan(topology(node_group("a", nodes=40, ranks=8)), workload(TABLES), effort=0, gap=1.0)
    page = plan_page(many)
    (outline,) = chart(page, "ranks").views[0].data
    assert len(outline["y"]) == 320
    data = chart(page, "ranks").views[1].data
    assert {trace["type"] for trace in data} == {"scatter"}
    assert {trace["stackgroup"] for trace in data} == {"all"}
    assert {len(trace["y"]) for trace in data} == {320}
    rows, one = chart(page, "timeline").views
    assert np.shape(rows.data[0]["z"]) == np.shape(rows.data[0]["text"]) == (128, 320)
    assert "128 of 320 ranks" in chart(page, "timeline").note
    named = [row[0].partition(":")[0] for row in rows.data[0]["text"]]
    assert named == [f"rank {row[0]}" for row in rows.rows[1:]]  # under the pointer, also of rows without a name beside
    beside = rows.layout["yaxis"]["tickvals"]
    assert len(set(np.diff(beside))) == 1
    assert rows.layout["yaxis"]["ticktext"] == [named[row] for row in beside]
    assert f"rank {critical_rank(simulate_plan(many))}," in one.label
    use = np.array(chart(page, "cluster").views[0].data[0]["z"], dtype=float)
    assert np.isfinite(use).sum() % 320 == 0
    assert np.isfinite(use).sum() >= 3 * 320


def test_the_timeline_shows_what_ranks_do_as_long_as_they_do_it(found: Plan, page: Page) -> None:
    """Moment by moment for all ranks, and task by task for one."""
    simulation = simulate_plan(found)
    every, one = chart(page, "timeline").views
    does = np.array([[text.partition(": ")[2] for text in row] for row in every.data[0]["text"]])
    assert does.shape == (4, 320)
    low, step_s = simulation.window[0], float(simulation.step_seconds[0])
    updates = [task for task in simulation.program.tasks if task.kind == "update"]
    spans = np.clip(simulation.intervals(updates), low, low + step_s)
    lasts = (spans[:, :, 1] - spans[:, :, 0]).sum(axis=1)
    assert (does == "update").mean(axis=1) == pytest.approx(lasts / step_s, abs=2 * len(updates) / 320)
    rank = int(one.label.removeprefix("rank ").partition(",")[0])
    (bars,) = [trace for trace in one.data if trace["name"] == "update"]
    assert sum(bars["x"]) == pytest.approx(1e3 * lasts[rank])
    assert {trace["name"] for trace in every.data[1:]} == set(does.ravel())
    rows = every.rows[1:]
    assert [sum(map(float, row[1:])) for row in rows] == pytest.approx([1e3 * step_s] * 4, rel=0.01)
    assert sum(float(row[3]) for row in one.rows[1:] if row[0].startswith("embedding update")) == pytest.approx(
        1e3 * lasts[rank], rel=1e-3
    )


def test_the_cluster_shows_how_busy_each_part_is(found: Plan, page: Page) -> None:
    """Two nodes side by side, one rank a column."""
    busy = simulate_plan(found).busy()
    drawn = chart(page, "cluster").views[0]
    (data,) = drawn.data
    names = dict(zip(drawn.layout["yaxis"]["ticktext"], drawn.layout["yaxis"]["tickvals"], strict=True))
    columns = [0, 1, 3, 4]
    accelerators = [data["z"][names["accelerator"]][column] for column in columns]
    assert accelerators == pytest.approx(100 * busy[DEVICE], abs=0.01)
    cards = [data["z"][names["scale-out card"]][column] for column in columns]
    nic = np.maximum(busy[Resource("nic", "out")], busy[Resource("nic", "in")])
    assert sorted(set(cards)) == pytest.approx(sorted(set((100 * nic).round(2))), abs=0.01)
    assert data["z"][names["accelerator"]][2] is None, "room between nodes"
    assert [each["text"] for each in drawn.layout["annotations"]] == ["0", "1"]
    head, *rows = drawn.rows
    place = head.index("accelerator (%)")
    assert [float(row[place]) for row in rows] == pytest.approx(100 * busy[DEVICE], abs=0.06)
    assert "busiest scale-out card" in chart(page, "cluster").note


def test_tiles_add_up_to_the_bytes_of_the_tables(found: Plan, page: Page) -> None:
    sizes = [int(table.shards.bytes.sum()) for table in found.tables]
    for drawn in chart(page, "treemap").views:
        (data,) = drawn.data
        rows = list(zip(data["ids"], data["parents"], data["values"], strict=True))
        groups = {name: size for name, parent, size in rows if not parent}
        assert sum(groups.values()) == sum(sizes)
        for group, size in groups.items():
            assert sum(own for _, parent, own in rows if parent == group) == size
    assert "&lt;b&gt;small&lt;/b&gt;" in data["labels"]


def test_top_tables_take_what_the_critical_rank_does_for_tables(found: Plan, page: Page) -> None:
    """The seconds of all tables are those of the rank that makes a stage as long as it is, beyond what it does without
    any."""
    by_time, by_size = chart(page, "top").views
    unit = 1e6 if "µs" in by_time.layout["xaxis"]["title"]["text"] else 1e3
    model = StepModel(*planned_inputs(found))
    nothing = model.linearised_at(placed_shards(found)).evaluate_nothing().rank_stage_seconds
    shown = {trace["name"]: sum(trace["x"]) / unit for trace in by_time.data}
    assert {"lookup forward", "lookup backward"} <= set(shown)
    for s, stage in enumerate(found.stages):
        if stage.name in ("lookup_forward", "lookup_backward") and stage.critical_rank is not None:
            rank = found.ranks[stage.critical_rank]
            own = rank.seconds[stage.name] - nothing[stage.critical_rank, s]
            assert shown[stage.name.replace("_", " ")] == pytest.approx(own, rel=1e-6)
    largest = sorted(found.tables, key=lambda table: -table.shards.bytes.sum())
    assert by_size.layout["yaxis"]["ticktext"][0] == largest[0].name


def test_every_chart_of_a_plan_is_said_in_words(page: Page) -> None:
    """For those who do not see it."""
    assert all(each.words for each in page.charts if isinstance(each, Chart))
    assert 'aria-describedby="timeline-words"' in to_html(page)


def test_hidden_stages_are_named(found: Plan, page: Page) -> None:
    """Below the chart, with the stage in which the rest of each shows."""
    model = StepModel(*planned_inputs(found))
    assert model.hidden
    for name, behind in model.hidden.items():
        words = f"{name.replace('_', ' ')} (the remainder is in {behind.replace('_', ' ')})"
        assert words in chart(page, "stages").note


def test_a_rating_has_no_stages_in_time() -> None:
    rated = plan(topology(node_group("a")), workload(TABLES[:2]), cost_model="hugectr", effort=0)
    page = plan_page(rated)
    assert [each.name for each in page.charts if isinstance(each, Chart)] == CHARTS[1:]
    assert page.facts[1].startswith("Rating ")


def test_memory_over_the_step_is_that_of_the_fullest_rank(found: Plan, page: Page) -> None:
    """Bars add up to the course of its rank; a rating of another planner has none."""
    from planner.reports.memory_course import course_of_plan

    course, drawn = course_of_plan(found), chart(page, "course")
    rank, _ = course.fullest
    heights = np.sum([trace["x"] for trace in drawn.views[0].data], axis=0)
    assert heights / heights.max() == pytest.approx(course.totals[rank] / course.totals[rank].max())
    assert f"rank {rank}" in drawn.note
