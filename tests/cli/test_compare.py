"""`planner compare`: the figures of plans side by side, in every format, on 80 columns."""

import csv
import io
import json
import os
from pathlib import Path

import pytest

from planner import plan, read_plan, write_plan
from tests.oracles.instances import node_group, topology, workload

GOLDEN = Path(__file__).parents[1] / "golden" / "compare.txt"
TABLES = [{"rows": 2_000_000, "dim": 64}, {"rows": 5_000, "dim": 32}, {"rows": 900_000, "dim": 128}]
PRICES = "name: mine\ndate: 2026-01-02\nsource: a contract\nnodes:\n  a: {price: 20USD/h, power: 4kW}\n"


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Plans of one model on 1, 2 and 4 nodes, one of another model, and one that does not fit."""
    directory = tmp_path_factory.mktemp("plans")
    files = []
    for nodes in (1, 2, 4):
        made = plan(topology(node_group("a", nodes=nodes)), workload(TABLES), effort=0)
        files.append(directory / f"{nodes}-nodes.json")
        write_plan(made, files[-1])
    cramped = node_group("b", hbm_bytes=1e7, ddr_bytes=None)
    for name, cluster in (("other", node_group("a", ranks=4)), ("cramped", cramped)):
        made = plan(topology(cluster), workload([*TABLES, {"rows": 100, "dim": 16}]), effort=0)
        files.append(directory / f"{name}.json")
        write_plan(made, files[-1])
    return files


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    file = tmp_path / "prices.yaml"
    file.write_text(PRICES)
    return file


def test_the_table_is_as_reviewed(run, plans, sheet):
    """UPDATE_GOLDEN=1 after an intended change, then look at the diff."""
    result = run("compare", *plans[:3], "--prices", sheet)
    assert result.exit_code == 0
    table = "\n".join(line.rstrip() for line in result.stdout.splitlines()) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(table, encoding="utf-8")
    assert table == GOLDEN.read_text(encoding="utf-8")


def test_the_figures_are_those_of_the_plans(run, plans, sheet):
    result = json.loads(run("compare", *plans[:2], "--prices", sheet, "--format", "json").stdout)
    assert result["kind"] == "comparison"
    for file, record, nodes in zip(plans, result["plans"], (1, 2), strict=False):
        document = read_plan(file)
        assert record["plan"] == file.stem
        assert record["step_s"] == document.objective.step_s
        assert record["samples_per_s"] == pytest.approx(4096 / document.objective.step_s)
        assert record["hbm_used_bytes"] == sum(rank.bytes.hbm for rank in document.ranks)
        assert record["hbm_capacity_bytes"] == nodes * 2 * 10**9
        assert record["ddr_capacity_bytes"] == nodes * 10**10, "shared by the ranks of a node, counted once"
        assert sum(value for key, value in record.items() if key.startswith("stage_")) == pytest.approx(
            record["step_s"]
        )
        assert record["usd_per_hour"] == nodes * 20
        assert record["usd_per_billion_samples"] == pytest.approx(nodes * 20 / 3600 / record["samples_per_s"] * 1e9)
        assert record["joules_per_sample"] == pytest.approx(nodes * 4000 / record["samples_per_s"])
        assert record["tables"] == 3
    first, second = result["plans"]
    assert first["samples_per_s_ratio"] == 1
    assert second["samples_per_s_ratio"] == pytest.approx(first["step_s"] / second["step_s"])


def test_csv_has_a_row_for_each_plan(run, plans):
    rows = list(csv.DictReader(io.StringIO(run("compare", *plans, "--format", "csv").stdout)))
    assert [row["plan"] for row in rows] == ["1-nodes", "2-nodes", "4-nodes", "other", "cramped"]
    assert {row["usd_per_hour"] for row in rows} == {""}
    assert rows[-1]["step_s"] == ""


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_it_fits_on_80_columns_and_says_what_is_unknown(run, plans, count):
    result = run("compare", *plans[:count])
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "USD/h" in result.stdout
    assert "the price of 'a' is unknown: give a price sheet" in result.stdout
    heads = [line.split() for line in result.stdout.splitlines() if "1-nodes" in line]
    assert [len(head) for head in heads] == ([count] if count <= 4 else [4, 2]), "the first plan heads every block"


def test_long_and_equal_names_are_numbered(run, plans, tmp_path):
    long = tmp_path / "a-plan-with-a-rather-long-name.json"
    long.write_bytes(plans[0].read_bytes())
    result = run("compare", long, plans[1])
    assert result.stdout.startswith("plan 1: a-plan-with-a-rather-long-name\nplan 2: 2-nodes\n")
    twice = run("compare", plans[0], plans[0], "--format", "csv").stdout
    assert f"{plans[0]} (2)" in twice


def test_a_rating_is_not_shown_as_a_time(run, plans, tmp_path):
    made = plan(topology(node_group("a")), workload(TABLES), cost_model="hugectr", effort=0)
    write_plan(made, tmp_path / "rated.json")
    records = json.loads(run("compare", plans[0], tmp_path / "rated.json", "--format", "json").stdout)["plans"]
    assert records[1]["step_s"] is None
    assert records[1]["samples_per_s_ratio"] is None
    assert records[1]["rating"] == made.objective.step_s


def test_what_is_no_plan_is_refused_with_every_fault(run, plans, tmp_path):
    (tmp_path / "no.json").write_text("{}")
    result = run("compare", plans[0], tmp_path / "no.json", tmp_path / "none.json")
    assert result.exit_code == 3
    assert "no.json: kind: is not a plan document" in result.stderr
    assert "none.json: cannot be read: No such file" in result.stderr
    assert run("compare", plans[0]).exit_code == 2
    wrong = run("compare", *plans[:2], "--prices", "example-2025-1")
    assert wrong.exit_code == 3
    assert "did you mean 'example-2025-01'" in wrong.stderr


def test_a_hidden_stage_is_not_unknown(tmp_path, run):
    """A plan whose all-reduce hides behind the dense part says so beside one that waits for it."""
    files = []
    for software in ("hugectr", "torchrec"):
        made = plan(topology(node_group("a")), workload(TABLES, software=software, pipeline="none"), effort=0)
        files.append(tmp_path / f"{software}.json")
        write_plan(made, files[-1])
    shown = run("compare", *files).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("all_reduce")]
    assert line.endswith("in dense")
    for file in files:
        summary = run("explain", file).stdout
        (line,) = [line for line in summary.splitlines() if line.startswith("all_reduce ")]
        assert ("hidden" in line) == (file.stem == "torchrec")
        played = run("simulate", file).stdout
        assert ("all_reduce is hidden; the remainder is in dense." in played) == (file.stem == "torchrec")
        told = json.loads(run("simulate", file, "--format", "json").stdout)["hidden"]
        assert (told.get("all_reduce") == "dense") == (file.stem == "torchrec")
