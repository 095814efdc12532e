"""What a study's page says: every point, every chart that the results allow, and why others are left out."""

import base64
import dataclasses
import gzip
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from planner.reports.pages import study_page, to_html
from planner.reports.pages.charts import Chart, LeftOut, View
from planner.reports.pages.page import Page
from planner.reports.pages.points import TITLES
from planner.studies.results import FIGURES, StudyResults
from tests.oracles import studies
from tests.oracles.studies import BATCH, DTYPE, NIC, NODES, study


def chart(page: Page, name: str) -> Chart:
    (found,) = [one for one in page.charts if isinstance(one, Chart) and one.name == name]
    return found


def names(page: Page) -> list[str]:
    return [one.name for one in page.charts if isinstance(one, Chart)]


def view(one: Chart, label: str, group: str = "") -> View:
    (found,) = [each for each in one.views if each.label.startswith(label) and each.group.startswith(group)]
    return found


def unpacked(text: str, name: str) -> str:
    """What a page holds packed under a name."""
    (packed,) = re.findall(rf'<script type="text/plain" id="{name}">([^<]*)</script>', text)
    return gzip.decompress(base64.b64decode(packed)).decode()


class Cells(HTMLParser):
    """The rows of the tables of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.is_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.is_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.is_cell = self.is_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.is_cell:
            self.rows[-1][-1] += data


def test_charts_of_a_study_are_said_in_words() -> None:
    """For those who do not see them: the best point of a map, the ends of the frontier, the fastest of each curve."""
    results = studies.grid()
    page = study_page(results)
    best = results.frame.loc[results.frame["usd_per_billion_samples"].idxmin()]
    assert f"lowest USD per billion samples at nodes {best[NODES.column]}" in chart(page, "heat-map").words
    assert chart(page, "pareto").words.startswith(f"{results.frame['on_pareto'].sum()} plans on the frontier, from ")
    fastest = results.frame["samples_per_s"].max() / 1e6
    assert f"scale-out bandwidth 100 GB/s {fastest:.4g}." in chart(page, "scaling").words
    assert chart(page, "stages").words.endswith(": dense.")
    assert to_html(page).count("The values are in the table below.") == len(names(page))


def test_a_study_of_two_axes_has_every_chart() -> None:
    page = study_page(studies.grid())
    assert names(page) == ["heat-map", "scaling", "along", "pareto", "stages", "memory", "gains"]
    assert page.findings == studies.grid().findings
    assert page.facts[0] == "20 points: 11 optimal, 5 feasible, 4 infeasible."
    assert page.facts[1] == "Varied: nodes, scale-out bandwidth."


def test_a_heat_map_holds_the_figures_of_the_results_in_their_unit() -> None:
    results = studies.grid()
    heat = chart(study_page(results), "heat-map")
    assert [one.label for one in heat.views] == [
        "throughput (M samples/s)",
        "step (ms)",
        "USD per billion samples (USD)",
        "gap to the bound (%)",
        "what takes most of the step",
    ]
    data, empty = view(heat, "throughput").data
    frame = results.frame.pivot(index=NIC.column, columns=NODES.column, values="samples_per_s").sort_index()
    assert np.array(data["z"], dtype=float) == pytest.approx(frame.to_numpy(dtype=float) / 1e6, nan_ok=True)
    assert view(heat, "throughput").layout["xaxis"]["ticktext"] == ["1", "2", "4", "8", "16"]
    assert view(heat, "throughput").layout["yaxis"]["ticktext"] == ["12.5 GB/s", "25 GB/s", "50 GB/s", "100 GB/s"]
    assert [row[0] for row in empty["text"]] == ["✕"] * 4
    assert {cell for row in empty["text"] for cell in row[1:]} == {""}
    assert "infeasible" in empty["hovertext"][0][0]
    assert "13.4 GiB more" in empty["hovertext"][0][0]
    assert heat.note == "Grey, no plan: ✕ infeasible."


def test_what_breaks_a_constraint_is_marked() -> None:
    results = studies.grid()
    frame = results.frame.assign(meets=results.frame["meets"] & (results.frame["samples_per_s"] < 5e7))
    heat = chart(study_page(dataclasses.replace(results, frame=frame)), "heat-map")
    texts = view(heat, "throughput").data[0]["text"]
    assert [cell for row in texts for cell in row if cell.endswith("†")] == ["52.6†", "62.2†"]
    assert "† breaks a constraint" in heat.note


def test_other_axes_are_views_and_many_of_them_the_best() -> None:
    three = study([(NODES, [2, 4]), (NIC, [25e9, 50e9]), (DTYPE, ["fp32", "fp16"])])
    heat = chart(study_page(three), "heat-map")
    assert [one.label for one in heat.views if one.group.startswith("throughput")] == ["fp32", "fp16"]
    best = three.frame.loc[three.frame["usd_per_billion_samples"].idxmin()]
    assert best[DTYPE.column] == heat.views[heat.first].label == "fp16", "the slice with the best point comes first"
    assert '<option value="1" selected>fp16</option>' in to_html(study_page(three))
    many = study([(NIC, [25e9 + 1e8 * k for k in range(11)]), (NODES, [2, 4]), (BATCH, [8192, 65536])])
    heat = chart(study_page(many), "heat-map")
    assert "Each cell is the best of all scale-out bandwidth." in heat.note
    best = many.frame.groupby([BATCH.column, NODES.column])["usd_per_billion_samples"].min().unstack()
    assert np.array(view(heat, "USD").data[0]["z"]) == pytest.approx(best.to_numpy())


def test_a_heat_map_has_the_axes_that_move_the_objective_most_numbers_before_words() -> None:
    """Whatever the order in the study: here formats come first, and move more than the network does."""
    three = study([(DTYPE, ["fp32", "fp16"]), (NIC, [25e9, 26e9]), (NODES, [2, 4, 8]), (BATCH, [4096, 65536])])
    heat = chart(study_page(three), "heat-map")
    assert heat.title == "Nodes and global batch"
    means = np.log(three.frame["usd_per_billion_samples"]).groupby(three.frame[BATCH.column]).mean()
    assert f"global batch {np.exp(np.ptp(means)):.3g} times, " in heat.note
    assert heat.note.index("embedding dtype") < heat.note.index("scale-out bandwidth")
    two = study([(DTYPE, ["fp32", "fp16"]), (NIC, [25e9, 26e9]), (NODES, [2, 4, 8])])
    assert chart(study_page(two), "heat-map").title == "Scale-out bandwidth and nodes"


def test_two_axes_that_vary_together_leave_one_of_them_to_the_heat_map() -> None:
    three = study([(NODES, [1, 2, 4]), (BATCH, [16384, 32768, 65536]), (NIC, [25e9, 26e9])])
    zipped = three.frame[three.frame[NODES.column] * 16384 == three.frame[BATCH.column]]
    page = study_page(dataclasses.replace(three, frame=zipped.assign(point=range(len(zipped)))))
    assert chart(page, "heat-map").title in ("Nodes and scale-out bandwidth", "Global batch and scale-out bandwidth")


def test_axes_that_vary_together_make_no_heat_map() -> None:
    results = studies.study([(NODES, [1, 2, 4, 8]), (BATCH, [8192, 16384, 32768, 65536])])
    zipped = results.frame[results.frame[NODES.column] * 8192 == results.frame[BATCH.column]]
    page = study_page(dataclasses.replace(results, frame=zipped.assign(point=range(4))))
    assert [one for one in page.charts if isinstance(one, LeftOut)] == [
        LeftOut("Two axes", "nodes and global batch vary together and make no grid")
    ]
    assert len(chart(page, "scaling").views[0].data) == 3, "one curve, though the batch grows with the nodes"


def test_where_the_batch_grows_with_the_cluster_steps_stand_beside_throughput() -> None:
    """One point without a plan is a mark of its own, below every step; a fixed batch has throughput alone."""
    results = studies.study([(NODES, [1, 2, 4]), (BATCH, [8192, 16384, 32768])])
    frame = results.frame[results.frame[NODES.column] * 8192 == results.frame[BATCH.column]].assign(point=range(3))
    frame["samples_per_step"] = frame[BATCH.column]
    planned = frame.assign(step_s=[2e-3, 3e-3, None])
    scaling = chart(study_page(dataclasses.replace(results, frame=planned)), "scaling")
    assert [one.label for one in scaling.views] == ["throughput (M samples/s)", "step (ms)"]
    curve, missing = scaling.views[1].data
    assert (curve["x"], curve["y"]) == ([8, 16], pytest.approx([2, 3]))
    assert missing["x"] == [32]
    assert missing["y"][0] < 2
    assert len(chart(study_page(studies.grid()), "scaling").views) == 1


def test_scaling_shows_ideal_and_efficiency() -> None:
    """One curve, its ideal and its efficiency for each bandwidth; the smallest cluster is the most efficient here."""
    scaling = chart(study_page(studies.grid()), "scaling").views[0]
    assert len(scaling.data) == 3 * 4
    real, ideal, share = scaling.data[:3]
    assert real["name"] == "scale-out bandwidth 12.5 GB/s"
    assert real["x"] == [16, 32, 64, 128]
    assert ideal["y"][1] / ideal["y"][0] == pytest.approx(8)
    assert share["y"][0] == pytest.approx(100)
    assert share["y"][-1] == pytest.approx(100 * real["y"][-1] / ideal["y"][-1])
    assert scaling.layout["yaxis"]["title"]["text"] == "M samples/s"


def test_efficiency_is_that_of_the_best_size_where_small_clusters_lack_memory() -> None:
    """Four ranks from SSD are slower than all others: they are not what 100 % means."""
    results = study([(NODES, [2, 4, 8])])
    frame = results.frame.assign(samples_per_s=[1e5, 2e7, 3e7])
    real, ideal, share = chart(study_page(dataclasses.replace(results, frame=frame)), "scaling").views[0].data
    assert share["y"] == pytest.approx([1, 100, 75])
    assert real["x"] == [16, 32, 64]
    assert ideal["y"] == pytest.approx([10, 40])


def test_scenarios_are_curves_and_measurements_stand_beside_predictions() -> None:
    page = study_page(study([(NODES, [1, 2, 4, 8])], scenarios=("fp32", "fp16"), measured=True))
    assert [trace["name"] for trace in chart(page, "scaling").views[0].data[::3]] == ["fp32", "fp16"]
    predicted, simulated, measured = chart(page, "measured").views[0].data
    assert len(predicted["x"]) == len(simulated["x"]) == len(measured["x"]) == 3
    assert [float(p / m - 1) for p, m in zip(predicted["x"], measured["x"], strict=True)] == pytest.approx(
        [float(text.removesuffix("%")) / 100 for text in predicted["text"]], abs=0.005
    )


def test_one_axis_of_numbers_is_a_curve_with_its_missing_points() -> None:
    results = study([(BATCH, [4096, 8192, 65536])], priced=False)
    frame = results.frame.copy()
    frame.loc[1, ["step_s", "samples_per_s", "gap"]] = np.nan
    frame.loc[1, "status"] = "error"
    page = study_page(dataclasses.replace(results, frame=frame))
    along = view(chart(page, "along"), "throughput")
    assert [trace["x"] for trace in along.data] == [[4096, 65536], [8192]]
    assert along.data[1]["name"] == "no plan"
    assert along.layout["xaxis"]["type"] == "log"
    assert along.layout["xaxis"]["ticktext"] == ["4,096", "8,192", "65,536"]


def test_without_prices_the_chart_is_left_out_with_a_sentence() -> None:
    page = study_page(study([(BATCH, [4096, 8192])], priced=False))
    (left_out,) = [one for one in page.charts if isinstance(one, LeftOut)]
    assert left_out.title == "Pareto front"
    assert left_out.reason.startswith("USD per billion samples is unknown for every point")
    text = to_html(page)
    assert "Pareto front: USD per billion samples is unknown for every point; give prices" in text
    assert "Unknown for every point: measured throughput, price per hour, USD per billion samples." in text


def test_a_frontier_of_one_figure_is_left_out() -> None:
    results = dataclasses.replace(study([(BATCH, [4096, 8192])]), pareto=("ranks", "samples_per_s"))
    assert LeftOut("Pareto front", "all plans have the same ranks") in study_page(results).charts


def test_curves_over_orders_of_magnitude_are_logarithmic_with_missing_points_below() -> None:
    results = study([(BATCH, [4096, 8192, 16384])])
    frame = results.frame.assign(samples_per_s=[2e7, 5e4, np.nan], step_s=[1e-3, 1.0, np.nan])
    along = view(chart(study_page(dataclasses.replace(results, frame=frame)), "along"), "throughput")
    assert along.layout["yaxis"]["type"] == "log"
    assert along.data[1]["y"][0] == pytest.approx(0.05 / 2)


def test_the_frontier_is_joined_and_names_its_points() -> None:
    results = studies.grid()
    others, front = chart(study_page(results), "pareto").views[0].data
    assert len(front["x"]) == results.frame["on_pareto"].sum()
    assert len(others["x"]) + len(front["x"]) == results.frame["step_s"].notna().sum()
    assert front["x"] == sorted(front["x"])
    assert front["text"][-1] == "16 · 100 GB/s"
    assert "nodes: 16<br>scale-out bandwidth: 100 GB/s" in front["hovertext"][-1]


def test_stages_add_up_to_the_step() -> None:
    results = studies.grid()
    bars = chart(study_page(results), "stages").views[0].data
    total = np.sum([trace["x"] for trace in bars], axis=0)
    assert total == pytest.approx(results.frame["step_s"].dropna().to_numpy() * 1e3)
    assert [trace["name"] for trace in bars][:2] == ["input dist", "lookup forward"]
    shares = chart(study_page(results), "stages").views[1].data
    assert np.sum([trace["x"] for trace in shares], axis=0) == pytest.approx(100)


def test_of_many_points_the_best_are_shown_and_it_is_said() -> None:
    results = study([(NODES, list(range(2, 14))), (NIC, [12.5e9, 25e9, 50e9, 100e9])])
    stages = chart(study_page(results), "stages")
    assert stages.note.endswith("The best 40 of 48 points by lowest USD per billion samples.")
    shown = stages.views[0].layout["yaxis"]["ticktext"]
    dearest = results.frame.sort_values("usd_per_billion_samples").iloc[-1]
    assert len(shown) == 40
    assert f"{dearest[NODES.column]} · {dearest[NIC.column] / 1e9:g} GB/s" not in shown


def test_memory_is_shown_against_its_capacity() -> None:
    memory = chart(study_page(studies.grid()), "memory")
    assert [one.label for one in memory.views] == ["HBM", "DDR"]
    room, used = memory.views[0].data
    assert used["x"][0] / room["x"][0] == pytest.approx(float(room["text"][0].removesuffix("%")) / 100, abs=0.005)
    assert memory.views[0].layout["xaxis"]["title"]["text"] == "HBM (TiB)"


def test_gains_are_of_the_best_point_first() -> None:
    results = studies.grid()
    gains = chart(study_page(results), "gains")
    best = results.frame.loc[results.frame["usd_per_billion_samples"].idxmin()]
    (data,) = view(gains, "best").data
    assert data["x"] == pytest.approx(sorted((100 * best[name] for name in results.gains), reverse=True))
    assert view(gains, "best").layout["yaxis"]["ticktext"] == ["FLOP/s", "HBM bandwidth", "NIC bandwidth"]
    assert np.array(view(gains, "all").data[0]["z"]).shape == (16, 3)
    useless = results.frame.assign(plus10_ssd_iops_saves=0.0)
    gains = chart(study_page(dataclasses.replace(results, frame=useless)), "gains")
    assert len(view(gains, "best").data[0]["x"]) == 3
    assert gains.note.endswith("There, more SSD IOPS would save nothing.")


def test_gains_of_nothing_are_left_out() -> None:
    results = studies.grid()
    useless = results.frame.assign(**dict.fromkeys(results.gains, 0.0))
    page = study_page(dataclasses.replace(results, frame=useless))
    assert LeftOut("What 10% more would save", "10% more of any one resource would save nothing") in page.charts


def test_the_table_holds_every_point_and_unknown_is_not_zero() -> None:
    results = studies.grid()
    head, *rows = Cells(to_html(study_page(results))).rows
    assert len(rows) == len(results.frame)
    place = {title: number for number, title in enumerate(head)}
    assert {"nodes", "scale-out bandwidth (GB/s)", "step (ms)", "reason"} <= set(place)
    assert rows[0][place["step (ms)"]] == "unknown"
    assert rows[4][place["step (ms)"]] == f"{results.frame['step_s'][4] * 1e3:.3f}"
    assert head.count("nodes") == 1


def test_a_study_of_one_point_has_what_one_point_allows() -> None:
    page = study_page(study([]))
    assert names(page) == ["stages", "memory", "gains"]
    assert "point 0" in chart(page, "stages").views[0].layout["yaxis"]["ticktext"]


def test_a_study_without_any_plan_is_a_page_all_the_same() -> None:
    results = study([(NODES, [1, 1])])
    frame = results.frame.assign(**{NODES.column: [1, 1]}, point=[0, 1])
    page = study_page(dataclasses.replace(results, frame=frame))
    assert names(page) == []
    assert "infeasible" in to_html(page)


@pytest.mark.parametrize("results", [studies.grid(), studies.hostile(), study([])], ids=lambda one: one.name[:9])
def test_a_page_is_one_file_that_names_nothing_elsewhere(results: StudyResults) -> None:
    """No link, import or address that a browser would load; equal results give equal bytes."""
    text = to_html(study_page(results), "r.parquet")
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    loaded = re.findall(r"<(?:img|link|script|iframe)[^>]*(?:src|href)=[\"']?([^\"'> ]*)", own)
    assert loaded == ["data:,"]
    assert "default-src 'none'" in own
    assert "@import" not in own
    assert "url(" not in own
    assert to_html(study_page(results), "r.parquet") == text
    drawn = [one.name for one in study_page(results).charts if isinstance(one, Chart)]
    assert list(json.loads(unpacked(text, "views"))["views"]) == drawn
    assert "Plotly" in unpacked(text, "plotly")
    assert len(text.encode()) < 5e6


def test_text_of_files_is_escaped() -> None:
    results = studies.hostile()
    text = to_html(study_page(results))
    own = re.sub(r"<script>.*?</script>", "", text[: text.index("<footer>")], flags=re.DOTALL)
    assert "window.stolen" in own
    assert not re.search(r"<script>\s*window\.stolen", text)
    assert "<img" not in own
    ticks = view(chart(study_page(results), "heat-map"), "throughput").layout["xaxis"]["ticktext"]
    assert ticks[0] == "&lt;b&gt;bold&lt;/b&gt; &amp; &lt;i&gt;"


def test_every_figure_of_a_study_has_a_title() -> None:
    assert set(TITLES) == set(FIGURES)


def test_an_axis_may_be_unset_and_two_may_have_the_same_label() -> None:
    """A study may leave a field as it is at some points; node groups may both have `nodes`."""
    results = study([(NODES, [2, 4]), (NIC, [25e9, 50e9])])
    frame = results.frame.replace({NIC.column: {25e9: np.nan}})
    axes = (NODES, dataclasses.replace(NIC, label=NODES.label))
    page = study_page(dataclasses.replace(results, frame=frame, axes=axes))
    assert page.facts[1] == f"Varied: {NODES.column}, {NIC.column}."
    assert view(chart(page, "heat-map"), "throughput").layout["yaxis"]["ticktext"] == ["unset", "50 GB/s"]
    assert "along" not in names(page)
    assert f'<th class="n"><button type="button">{NODES.column}</button>' in to_html(page)


def test_a_table_that_would_make_the_page_large_is_cut_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.reports.pages.page.MOST_LETTERS", 3000)
    text = to_html(study_page(studies.grid()))
    rows = len(Cells(text).rows) - 1
    assert 0 < rows < 20
    assert f"The first {rows} of 20 rows: the page is kept small." in text


def test_of_very_many_points_the_best_are_listed() -> None:
    """A page of 100,000 rows would not open."""
    once = studies.grid().frame
    frame = pd.concat([once] * 300, ignore_index=True).assign(point=range(6000))
    page = study_page(dataclasses.replace(studies.grid(), frame=frame))
    (table,) = page.tables
    assert len(table.frame) == 5000
    assert len(to_html(page).encode()) < 5e6
    assert table.frame["step_s"].notna().sum() == frame["step_s"].notna().sum()
    assert "5,000 of 6,000 points, the best by lowest USD per billion samples." in table.note
