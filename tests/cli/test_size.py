"""`planner size`: answers in every format, exit codes, wrong flags."""

import csv
import io
import json

import pytest
import yaml

from planner.cli import values
from planner.cli.exits import ExitCode

QUICK = ("--effort", 0, "--gap", "5%")


@pytest.fixture
def size(run, starter):
    """`size(*flags)`: size the starter's cluster."""
    return lambda *words: run("size", "-t", starter / "topology.yaml", "--max-nodes", 4, *QUICK, *words)


def test_the_answer_is_shown_with_what_decided(size):
    """Within 80 columns, progress on stderr; the same figures in JSON and CSV."""
    result = size("--fits")
    assert result.exit_code == 0, result.stderr
    assert "The smallest cluster that holds the tables" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "all tiers: 1 node" in result.stderr
    data = json.loads(size("--fits", "--no-each-tier", "--format", "json", "-q").stdout)
    answer = data["sizes"][0]["answer"]
    assert answer["verdict"] == "smallest"
    assert answer["simulated_samples_per_s"] > 0
    assert f"{answer['samples_per_s']:,.0f}" in result.stdout
    rows = list(csv.DictReader(io.StringIO(size("--fits", "--no-each-tier", "--format", "csv").stdout)))
    (first,) = [row for row in rows if row["allowed"] == "all tiers" and row["verdict"] == "smallest"]
    assert int(first["nodes"]) == answer["nodes"]
    assert float(first["samples_per_s"]) == answer["samples_per_s"]


def test_a_target_out_of_reach_exits_with_4(size):
    """With the reason for each size, or for all of them at once; also beside a CSV without rows."""
    for step, reason in (
        ("7.17ms", "1: no step is shorter than"),
        ("1us", "Note: no size does: no step is shorter than"),
    ):
        result = size("--max-step", step, "--no-each-tier")
        assert result.exit_code == ExitCode.INFEASIBLE
        assert "none up to 4" in result.stdout
        assert reason in result.stdout
    result = size("--target-qps", 1e15, "--format", "csv")
    assert result.exit_code == ExitCode.INFEASIBLE
    assert "note: no size does" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give either --target-qps and --max-step, or --fits"),
        (["--fits", "--target-qps", "5"], "give either --target-qps and --max-step, or --fits"),
        (["--target-qps", "-1"], "must be above 0"),
        (["--target-qps", "nan"], "must be above 0"),
        (["--target-qps", "1 million"], "write for example 2e6, 2M or 500k/s"),
        (["--target-qps", "1m"], "write for example 2e6, 2M or 500k/s"),
        (["--fits", "--max-step", "5ms"], "give either --target-qps and --max-step, or --fits"),
        (["--max-step", "0s"], "must be above 0"),
        (["--max-step", "5"], "has no unit; write for example 30s"),
        (["--fits", "--solver", "cplex"], "'cplex' is not known"),
        (["--fits", "--max-price", "500"], "has no unit; write for example 500USD/h"),
        (["--fits", "--max-price", "-1USD/h"], "is below 0"),
        (["--fits", "--max-power", "5USD/h"], "is not in watt; write for example 300kW"),
        (["--fits", "--try", "workload.embedding.dtype"], "is not PATH=VALUE"),
        (["--fits", "--try", "wrkload.embedding.dtype=fp16"], "did you mean 'workload'"),
        (["--fits", "--try", "workload.global_batch=8", "--try", "workload.global_batch=8"], "is given twice"),
    ],
)
def test_wrong_flags_are_refused(size, words, said):
    """Before anything is computed."""
    result = size(*words)
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE
    assert said in " ".join(result.stderr.split())


def test_an_unknown_group_is_an_input_error(size):
    """With its name."""
    result = size("--fits", "--group", "nosuch")
    assert result.exit_code == ExitCode.INVALID_INPUT
    assert "--group: 'nosuch' is not a node group" in result.stderr


@pytest.fixture
def size_several(run, starter):
    """`size_several(*flags)`: the starter's cluster and DGX H100, each also with a change."""
    clusters = ("-t", starter / "topology.yaml", "-t", "dgx-h100", "-w", "dlrm-v1")
    tries = ("--try", "workload.embedding.dtype=fp16;topology.nodes.0.power=5kW")
    searched = ("--max-nodes", 4, *QUICK, "--prices", "example-2025-01", "-q")
    return lambda *words: run("size", *clusters, *tries, *searched, *words)


@pytest.mark.slow
def test_several_clusters_and_changes_are_ranked(size_several):
    """The sentence, the table and the data name the same winner; with prices in units."""
    result = size_several("--fits", "--by", "price")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    data = json.loads(size_several("--fits", "--by", "price", "--format", "json").stdout)
    cases = [one["case"] for one in data["sizes"]]
    change = "workload.embedding.dtype=fp16;topology.nodes.0.power=5kW"
    assert cases == ["my-cluster", f"my-cluster ({change})", "dgx-h100", f"dgx-h100 ({change})"]
    assert {one["allowed"] for one in data["sizes"]} == {"all tiers"}
    (best,) = [one for one in data["sizes"] if one["place"] == 1]
    prices = [one["answer"]["usd_per_hour"] for one in data["sizes"]]
    assert best["answer"]["usd_per_hour"] == min(prices) == pytest.approx(8 * 2.305)
    assert max(prices) == pytest.approx(8 * 4.916)
    assert sorted(one["place"] for one in data["sizes"]) == [1, 2, 3, 4]
    assert " ".join(lines[:4]).startswith(f"The cheapest cluster that holds the tables: {best['case']} with 1 node")
    assert "USD/10^9" in result.stdout
    shown = result.stdout.index("\ncheapest")
    assert result.stdout[:shown].endswith(f"\n{best['case']}")
    rows = list(csv.DictReader(io.StringIO(size_several("--fits", "--format", "csv").stdout)))
    assert {(row["case"], float(row["usd_per_hour"])) for row in rows if row["verdict"] == "smallest"} == set(
        zip(cases, prices, strict=True)
    )
    for one, row in zip(data["sizes"], (row for row in rows if row["verdict"] == "smallest"), strict=True):
        answer = one["answer"]
        assert answer["usd_per_billion_samples"] == pytest.approx(
            answer["usd_per_hour"] / 3600 / answer["samples_per_s"] * 1e9
        )
        assert float(row["kilowatts"]) == answer["kilowatts"] > 0
        assert float(row["joules_per_sample"]) == answer["joules_per_sample"] > 0


def test_constraints_reject_with_the_reason(size_several):
    """What is too dear is shown and not taken; where all is, the exit code says so."""
    some = size_several("--fits", "--max-price", "20USD/h")
    assert some.exit_code == 0
    assert "1 node rejected: it costs 39.33 USD/h, above 20" in some.stdout
    assert "within 20 USD/h: my-cluster with 1 node" in " ".join(some.stdout.split())
    none = size_several("--fits", "--max-price", "1USD/h", "--max-power", "1kW")
    assert none.exit_code == ExitCode.INFEASIBLE
    words = " ".join(none.stdout.split())
    assert words.startswith("No cluster of up to 4 nodes that holds the tables, within 1 USD/h and 1 kW.")
    assert "Without constraints: my-cluster with 1 node (8 ranks) at 18.44 USD/h, but it costs 18.44 USD/h" in words


def test_an_unknown_price_is_said(run):
    """It keeps no constraint; what would make it known is named."""
    words = ("size", "-t", "gb200-nvl72", "-w", "criteo-kaggle", "--fits", "--max-nodes", 18, "--no-each-tier", "-q")
    result = run(*words, "--effort", 0, "--max-price", "1000USD/h")
    assert result.exit_code == ExitCode.INFEASIBLE
    said = " ".join(result.stdout.split())
    assert "its price is unknown, so 1,000 USD/h cannot be kept" in said
    assert "is unknown: give a price sheet" in said
    assert "rejected 1" in said
    assert " unknown unknown" in said
    cheapest = " ".join(run(*words, "--effort", 0, "--by", "price").stdout.split())
    assert cheapest.startswith("The smallest cluster that holds the tables")  # nobody knows which is the cheapest


def test_wrong_fields_to_try_are_input_errors(size_several):
    """All at once, by their flag; a change of what is sized anyway is refused."""
    result = size_several("--fits", "--try", "workload.batches=1", "--try", "topology.nodes.0.acelerators.count=2")
    assert result.exit_code == ExitCode.INVALID_INPUT
    assert "--try workload.batches=1" in result.stderr
    assert "did you mean 'accelerators'" in result.stderr
    same = size_several("--fits", "--try", "topology.nodes.0.count=3")
    assert same.exit_code == ExitCode.INVALID_INPUT
    assert "is the same as another case" in same.stderr


@pytest.mark.parametrize(
    ("text", "per_s"), [("2e6", 2e6), ("2M", 2e6), (" 1.5 k/s ", 1500.0), ("20M/s", 2e7), ("3G", 3e9), ("7/s", 7.0)]
)
def test_rates_have_thousands(text: str, per_s: float) -> None:
    """As people say throughputs; `m` is none of them, which might be milli."""
    assert values.rate("--target-qps", text) == per_s


def test_the_nodes_of_one_group_among_several_are_called_by_it(run, tmp_path):
    """Beside the ranks of the whole cluster."""
    spec = yaml.safe_load(run("catalog", "show", "dgx-h100").stdout)
    (group,) = spec["nodes"]
    spec["nodes"] = [{**group, "name": "old"}, {**group, "name": "new", "count": 2}]
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(spec))
    (tmp_path / "t.csv").write_text("name,rows,dim,pooling_factor\na,1000,16,1\n")
    words = ("-t", tmp_path / "two.yaml", "-w", tmp_path / "t.csv", "--global-batch", 4096, "--no-each-tier")
    shown = run("size", *words, "--fits", "--group", "new", "--max-nodes", 2, *QUICK, "-q")
    assert shown.exit_code == 0, shown.stderr
    assert "with 1 node of new (16 ranks in all)" in " ".join(shown.stdout.split())
