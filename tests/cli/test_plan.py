"""`planner plan`, from flags to files and exit codes."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner._version import VERSION
from planner.cli import plan as command
from planner.cli.exits import ExitCode

QUICKLY = ("--effort", 0, "--gap", "50%", "--no-simulate")


@pytest.fixture
def plan(run, starter, tmp_path):
    """`plan(*flags)`: plan the starter; `plan.json` is where the document is written."""

    def go(*words):
        return run("plan", "--topology", starter / "topology.yaml", "-o", tmp_path / "plan.json", *words)

    return go


def test_plan_writes_a_document_that_verifies(run, plan, tmp_path):
    """A summary on stdout within 80 columns, talk on stderr, a document that `planner verify` accepts."""
    result = plan()
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "planned in" in result.stderr
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document["kind"] == "plan"
    assert document["objective"]["lower_bound_s"] <= document["objective"]["step_s"]
    assert run("verify", tmp_path / "plan.json").exit_code == 0
    assert [path.name for path in tmp_path.glob("*plan*")] == ["plan.json"]


def test_the_readme_shows_what_is_printed(run, tmp_path):
    """Its first command, word for word but for blanks at the ends of lines."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    block = next(part for part in readme.split("```") if part.startswith("\ndlrm-dcnv2 on zionex-16"))
    shown = run("plan", "--topology", "zionex-16", "--workload", "dlrm-dcnv2", "-o", tmp_path / "plan.json").stdout
    assert [line.rstrip() for line in shown.strip().splitlines()] == block.strip().splitlines()


def test_the_error_bar_is_printed_and_written(plan, tmp_path):
    """Around the step, with what it rests on; hardware without data is named, on paper and in the document."""
    shown = plan("--set", "topology.nodes.0.accelerators.device=NEW-1", *QUICKLY).stdout
    document = json.loads((tmp_path / "plan.json").read_text())
    bar = document["objective"]["error_bar"]
    assert bar["low_s"] < document["objective"]["step_s"] < bar["high_s"]
    assert bar["coverage"] == 0.9
    assert "device NEW-1" in bar["spec_only"]
    assert "90% band" in shown
    assert "device NEW-1" in " ".join(shown.split())
    for stage in document["stages"]:
        assert stage["error_bar"]["low_s"] <= stage["seconds"] <= stage["error_bar"]["high_s"]
    assert "90% band" not in plan("--cost-model", "torchrec", *QUICKLY).stdout


def test_json_on_stdout_is_the_document(plan, tmp_path):
    """`--format json` prints what `-o` writes, and nothing else; so does a second run, byte for byte."""
    first = plan("--format", "json", "--quiet", *QUICKLY)
    written = (tmp_path / "plan.json").read_bytes()
    assert json.loads(first.stdout) == json.loads(written)
    assert first.stderr == ""
    plan("--format", "json", "--quiet", *QUICKLY)
    assert (tmp_path / "plan.json").read_bytes() == written


def test_csv_on_stdout_lists_the_shards(plan, tmp_path):
    """One record per shard."""
    records = list(csv.DictReader(io.StringIO(plan("--format", "csv", *QUICKLY).stdout)))
    document = json.loads((tmp_path / "plan.json").read_text())
    shards = [shard for table in document["tables"] for shard in table["shards"]]
    assert len(records) == sum(shard.get("replicas", 1) for shard in shards)


def test_command_line_and_api_give_the_same_document(plan, starter, tmp_path):
    """The same words in Python and in the shell."""
    import planner

    assert plan("--nodes", "4", "--set", "workload.embedding.dtype=fp16").exit_code == 0
    found = planner.plan(
        planner.load_topology(starter / "topology.yaml", nodes=4),
        planner.load_workload(starter / "workload.yaml", overrides=["embedding.dtype=fp16"]),
    )
    assert json.loads((tmp_path / "plan.json").read_text()) == found.model_dump(mode="json")


def test_what_fits_nowhere_exits_with_4(plan):
    """An answer, not an error: how much is short is said."""
    result = plan("--set", "topology.nodes.0.accelerators.hbm.capacity=1GB", "--tiers", "hbm")
    assert result.exit_code == ExitCode.INFEASIBLE == 4
    assert "GiB" in result.stdout


def test_a_slip_of_a_unit_is_noted(run, starter):
    """What `planner check` warns of; planned for as it stands, and quiet says nothing."""
    slip = ("--set", "topology.nodes.0.accelerators.hbm.capacity=80Gb")
    words = ("plan", "-t", starter / "topology.yaml", "--effort", 0, "--gap", "50%", *slip)
    loud, quiet = run(*words), run(*words, "-q")
    assert "note: my-cluster: nodes.0.accelerators.hbm.capacity: 10GB does not fit" in loud.stderr
    assert "did you mean 80GB" in loud.stderr
    assert (quiet.stderr, quiet.exit_code) == ("", loud.exit_code)


def test_what_is_all_reserved_is_not_blamed_on_the_dense_part(plan):
    """The reserve is."""
    shown = plan("--set", "topology.nodes.0.reserve.hbm=100%", "--tiers", "hbm").stdout
    assert "the reserves leave no HBM" in " ".join(shown.split())
    assert "dense part" not in shown


def test_the_summary_of_a_batch_that_fits_nowhere_is_whole(plan):
    """Sentences wrap at 80 columns; nothing is cut."""
    shown = plan("--global-batch", str(10**20)).stdout
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_an_oversubscribed_level_is_called_by_its_name(plan):
    """Where it binds a stage."""
    shown = plan("--set", "topology.network.levels=[{name: leaf, nodes: 1, oversubscription: 8}]").stdout
    assert "uplink of leaf, sending" in shown


def test_every_status_has_its_exit_code():
    """Each outcome a plan may have."""
    assert command.STATUS_EXITS == {"optimal": 0, "feasible": 0, "infeasible": 4, "timeout": 5}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--set", "topology.nodes.0.cuont=4"], 3, "did you mean 'count'?"),
        (["--set", "workload.global_batch=-1", "--set", "topology.name=[]"], 3, "topology.name"),
        (["--global-batch", "0"], 2, "must be a whole number of at least 1, not '0'"),
        (["--global-batch", "64k"], 2, "not '64k'; write 64000, or 65536 for ki"),
        (["--set", "topolgy.name=x"], 2, "did you mean 'topology'?"),
        (["--tiers", "hbmm"], 2, "did you mean 'hbm'?"),
        (["--shardings", "rowwise"], 2, "did you mean 'row_wise'?"),
        (["--gap", "200%"], 2, "between 0 and 100%"),
        (["--time-limit", "30"], 2, "30s"),
        (["--time-limit", "-5s"], 2, "is below 0"),
        (["--workload", "dlrm-dcnv3"], 3, "did you mean 'dlrm-dcnv2'?"),
    ],
)
def test_bad_input_writes_nothing(plan, tmp_path, words, code, said):
    """The exit code tells a bad file from a bad command line; the message has the remedy; no file appears."""
    result = plan(*words)
    assert result.exit_code == code
    assert said in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("none/plan.json", "there is no directory"),
        (".", "is a directory; name a file in it"),
        ("pipe", "is not a regular file; write --format json > "),
    ],
)
def test_an_output_that_cannot_be_written_is_said_before_the_planning(run, starter, tmp_path, place, said):
    """Not after it; and a pipe or a device is never replaced by a file."""
    os.mkfifo(tmp_path / "pipe")
    result = run("plan", "-t", starter / "topology.yaml", "-o", tmp_path / place)
    assert result.exit_code == 2
    assert said in result.stderr
    assert (tmp_path / "pipe").is_fifo()


def test_a_topology_that_there_is_not_is_said_first(run):
    """Not that it has no workload."""
    result = run("plan", "--topology", "zionex-61")
    assert result.exit_code == 3
    assert "did you mean 'zionex-16'?" in result.stderr


def test_machine_formats_say_on_stderr_why_there_is_no_plan(plan):
    """The list of shards has its header only."""
    result = plan("--set", "topology.nodes.0.accelerators.hbm.capacity=1GB", "--tiers", "hbm", "--format", "csv")
    assert result.exit_code == ExitCode.INFEASIBLE
    assert len(result.stdout.splitlines()) == 1
    assert "There is no plan: " in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["memory", "--nodes", "3"], "--nodes"),
        (["memory", "--workload", "nv-tiny"], "--workload"),
        (["memory", "--set", "workload.global_batch=8"], "--set"),
        (["verify", "--nodes", "3"], "--nodes"),
        (["verify", "--global-batch", "8"], "--global-batch"),
        (["verify", "-w", "nv-tiny", "--set", "topology.name=x"], "--set"),
    ],
)
def test_a_flag_without_effect_is_refused(run, plan_file, words, said):
    """A plan carries its inputs; what would be ignored is not taken."""
    command, *flags = words
    result = run(command, plan_file, *flags)
    assert result.exit_code == 2
    assert f"Invalid value for {said}: has no effect" in result.stderr


def test_without_a_workload_the_catalog_is_offered(run):
    """A catalog topology has no workload beside it."""
    result = run("plan", "--topology", "zionex-16")
    assert result.exit_code == 2
    assert "dlrm-dcnv2" in result.stderr


def test_a_plan_for_other_inputs_is_refused(run, plan_file, starter):
    """`verify --topology` names the field that differs and exits with 6."""
    same = run("verify", plan_file, "--topology", starter / "topology.yaml")
    assert same.exit_code == 0
    other = run("verify", plan_file, "--topology", starter / "topology.yaml", "--nodes", "3")
    assert other.exit_code == ExitCode.GATE_FAILED == 6
    assert "nodes.0.count was 2 and is 3" in " ".join(other.stdout.split())


def test_memory_of_inputs_and_of_a_plan(run, plan_file, starter):
    """Both say who takes which bytes, within 80 columns; one of them must be named."""
    for words in ([plan_file], ["--topology", starter / "topology.yaml"]):
        shown = run("memory", *words)
        assert shown.exit_code == 0, shown.stderr
        assert "weights" in shown.stdout
        assert max(map(len, shown.stdout.splitlines())) <= 80
    assert run("memory").exit_code == 2


@pytest.mark.parametrize("model", ["torchrec", "hugectr"])
def test_memory_of_a_plan_is_counted_as_its_own_planner_counts(run, plan, tmp_path, model):
    """The sum of the ranks of the document, tier by tier."""
    assert plan("--cost-model", model, "--effort", "0", "--gap", "50%").exit_code == 0
    document = json.loads((tmp_path / "plan.json").read_text())
    parts = {
        part["part"]: part for part in json.loads(run("memory", tmp_path / "plan.json", "--format", "json").stdout)
    }
    for tier in ("hbm", "ddr"):
        taken = sum(rank["bytes"][tier] for rank in document["ranks"])
        assert parts["total"][f"{tier}_bytes"] == pytest.approx(taken, abs=len(document["ranks"]))
        assert parts["free"][f"{tier}_bytes"] >= 0
    assert f"tables, as {model} counts" in parts


def test_the_launcher_of_a_checkout_is_the_same_program():
    """`python cli.py` is what the installed command is."""
    launcher = Path(__file__).parents[2] / "cli.py"
    done = subprocess.run(
        [sys.executable, launcher, "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == f"planner {VERSION}\n"


def test_a_runtime_beside_other_software_is_a_warning(plan, tmp_path):
    """The starter chooses torchrec: in the summary, on stderr beside JSON, and in the document; without it, none."""
    result = plan("--runtime", "hugectr", *QUICKLY)
    assert result.exit_code == 0, result.stderr
    words = "the plan is for hugectr (runtime), but its times are those of torchrec (workload.software)"
    assert words in " ".join(result.stdout.split())
    result = plan("--runtime", "hugectr", "--format", "json", *QUICKLY)
    (warning,) = json.loads(result.stdout)["provenance"]["warnings"]
    assert words in warning
    assert words in result.stderr
    result = plan("--runtime", "torchrec", *QUICKLY)
    assert "arning" not in result.stdout + result.stderr
    assert "for software torchrec" in " ".join(result.stdout.split())


def test_one_table_on_one_rank_is_said_so(run, tmp_path):
    """In the first line of a plan."""
    (tmp_path / "one.csv").write_text("name,rows,dim,pooling_factor\na,100,64,1\n")
    words = ("-t", "cpu", "--set", "topology.nodes.0.accelerators.count=1", "-w", tmp_path / "one.csv")
    result = run("plan", *words, "--global-batch", 1, "-q")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0] == "one on cpu: 1 table, 1 rank on 1 node, 1 sample a step"


def test_seeds_give_one_plan_however_many_processes_there_are(run, starter, tmp_path):
    """The document says from how many seeds was searched, and verifies."""
    inputs = ("--topology", starter / "topology.yaml", "--nodes", 1, "-w", "dlrm-v1")
    asked = ("plan", *inputs, *QUICKLY, "--gap", "0%", "--seeds", 2)
    written = [tmp_path / "beside.json", tmp_path / "alone.json"]
    for workers, file in enumerate(written, start=1):
        assert run(*asked, "--workers", workers, "-o", file).exit_code == 0
    assert written[0].read_bytes() == written[1].read_bytes()
    assert json.loads(written[0].read_text())["provenance"]["seeds"] == 2
    assert run("verify", written[0]).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workers", 2), "--workers: has no effect without --seeds"),
        (("--seeds", 2, "--from", "plan.json"), "--seeds: has no effect with --from"),
        (("--seeds", 0), "'--seeds': must be at least 1"),
    ],
)
def test_seeds_that_would_be_ignored_are_refused(plan, words, said):
    result = plan(*words)
    assert result.exit_code == 2
    assert f"Invalid value for {said}" in result.stderr
