"""`planner report`: the page of a study or a plan, and what it refuses."""

import sys

import pytest

from planner import plan, write_plan
from planner.studies.results import write_results
from tests.oracles import studies
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 2_000_000, "dim": 64}, {"rows": 5_000, "dim": 32}]


@pytest.fixture
def results(tmp_path):
    file = tmp_path / "results.parquet"
    write_results(studies.grid(), file)
    return file


def test_results_of_both_formats_give_the_same_page(run, results, tmp_path):
    write_results(studies.grid(), tmp_path / "results.json")
    pages = []
    for suffix in ("parquet", "json"):
        result = run("report", results.with_suffix(f".{suffix}"), "-o", tmp_path / f"{suffix}.html")
        assert result.exit_code == 0
        assert result.stdout == ""
        assert "open it in a browser" in result.stderr
        pages.append((tmp_path / f"{suffix}.html").read_text(encoding="utf-8").replace(f"results.{suffix}", "results"))
    assert pages[0] == pages[1]
    assert "<h1>Nodes and network</h1>" in pages[0]


def test_a_plan_has_a_page(run, tmp_path):
    write_plan(plan(topology(node_group("a", nodes=2)), workload(TABLES), effort=0), tmp_path / "plan.json")
    assert run("report", tmp_path / "plan.json", "-o", tmp_path / "plan.html", "--quiet").stderr == ""
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    for words in ("tiny on tiny", "Where the step goes", "Load of each rank", "Memory", "<td>t0</td>"):
        assert words in text


def test_a_plan_that_does_not_exist_says_why(run, tmp_path):
    cramped = topology(node_group("b", hbm_bytes=1e7, ddr_bytes=None))
    write_plan(plan(cramped, workload(TABLES), effort=0), tmp_path / "plan.json")
    assert run("report", tmp_path / "plan.json", "-o", tmp_path / "plan.html").exit_code == 0
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "Status: infeasible" in text
    assert "This makes room" in text


def test_several_plans_are_one_page(run, results, tmp_path):
    """With prices, which one file of results does not take."""
    for nodes in (1, 2):
        found = plan(topology(node_group("a", nodes=nodes)), workload(TABLES), effort=0)
        write_plan(found, tmp_path / f"{nodes}.json")
    files = tmp_path / "1.json", tmp_path / "2.json"
    sheet = tmp_path / "sheet.yaml"
    prices = "accelerators:\n  A100-SXM4-80GB: {price: 2USD/h}\nnodes:\n  a: {price: 9USD/h}\n"
    sheet.write_text(f"name: ours\ndate: 2026-11-01\nsource: a contract\n{prices}")
    assert run("report", *files, "-o", tmp_path / "page.html", "--prices", sheet).exit_code == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("<h1>1 and 2</h1>", "Made from 1.json, 2.json", "Tables that differ", "price per hour"):
        assert words in text
    refused = run("report", files[0], "-o", tmp_path / "other.html", "--prices", sheet)
    assert refused.exit_code == 2
    assert "with one file of results" in refused.stderr
    assert run("report", files[0], results, "-o", tmp_path / "other.html").exit_code == 3
    assert run("report", *files, "-o", files[1]).exit_code == 2
    assert not (tmp_path / "other.html").exists()


def test_what_is_no_result_is_refused(run, results, tmp_path):
    (tmp_path / "other.json").write_text("{}")
    write_results(studies.grid(), tmp_path / "points.csv")
    for file, words in (
        ("other.json", "holds no results"),
        ("points.csv", "give the .parquet"),
        ("none.parquet", "cannot be"),
    ):
        result = run("report", tmp_path / file, "-o", tmp_path / "page.html")
        assert result.exit_code == 3, file
        assert words in result.stderr
    assert run("report", results, "-o", tmp_path / "none" / "page.html").exit_code == 2
    unused = run("report", results, "-o", tmp_path / "page.html", "--picture-format", "svg")
    assert unused.exit_code == 2
    assert "without --pictures" in unused.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_missing_extra_is_named(run, results, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    result = run("report", results, "-o", tmp_path / "page.html")
    assert result.exit_code == 2
    assert "pip install 'shardplan[report]'" in result.stderr
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "kaleido", None)
    result = run("report", results, "-o", tmp_path / "page.html", "--pictures", tmp_path / "pictures")
    assert result.exit_code == 2
    assert "pictures need plotly and kaleido: pip install 'shardplan[report]'" in result.stderr
    assert (tmp_path / "page.html").exists(), "the page needs no browser"
