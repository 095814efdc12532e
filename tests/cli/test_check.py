"""`planner check` finds out what a file is and says everything that is wrong with it."""

import csv
import io
import json

import pytest

from planner.cli import flags


@pytest.fixture
def here(starter, monkeypatch):
    """The starter files, by their bare names."""
    monkeypatch.chdir(starter)
    return starter


@pytest.mark.parametrize("kind", flags.SHELVES)
def test_every_entry_of_the_catalog_is_checked(run, kind):
    """Of each kind one by its name, and all that there are of the kinds with few; none has an error."""
    names = flags.catalog_names(kind)
    result = run("check", *(names if len(names) < 10 else names[:1]), "--format", "json")
    assert result.exit_code == 0, result.stdout
    assert {file["kind"] for file in json.loads(result.stdout)} >= {kind}


def test_a_run_is_known_by_its_stages(run, tmp_path):
    """Its faults are those of a run, by line; one with axes is checked with all of them."""
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\ntopology: dgx-h100\nworkload: dlrm-dcnv2\nstages:\n- {global_batch: 16384, sample: 10}\n"
    )
    result = run("check", file)
    assert result.exit_code == 3
    assert "mine.yaml:5:25: stages.0.sample: unknown key; did you mean 'samples'?" in " ".join(result.stdout.split())
    file.write_text(file.read_text().replace("sample:", "samples:") + "axes: {topology.nodes.0.count: [1, 2]}\n")
    result = run("check", file)
    assert (result.exit_code, "ok (run: 2 runs, 1 field varied)" in result.stdout) == (0, True), result.stdout


def test_kinds_are_found_by_content(run, here):
    """The name of a file does not matter; catalog names are taken too."""
    (here / "topology.yaml").rename(here / "a.yml")
    (here / "profile.yaml").write_text("- {name: t, rows: 10, dim: 4, pooling_factor: 1}\n")
    result = run(
        "check",
        "a.yml",
        "workload.yaml",
        "tables.csv",
        "profile.yaml",
        "zionex-16",
        "dlrm-dcnv2",
        "--format",
        "json",
    )
    assert result.exit_code == 0, result.stdout
    assert [file["kind"] for file in json.loads(result.stdout)] == [
        "topology",
        "workload",
        "table profile",
        "table profile",
        "topology",
        "workload",
    ]


def test_every_fault_of_every_file_is_said_at_once(run, here):
    """Faults stand at their line and column, files without any are still reported, the exit code is 3."""
    text = (here / "topology.yaml").read_text()
    broken = text.replace("nodes:", "nodez:", 1).replace("description:", "descripton:")
    (here / "broken.yaml").write_text(broken)
    result = run("check", "broken.yaml", "workload.yaml")
    assert result.exit_code == 3
    line = 1 + [text.startswith("nodez:") for text in broken.splitlines()].index(True)
    assert f"broken.yaml:{line}:1: nodez: unknown key; did you mean 'nodes'?" in result.stdout
    assert "descripton: unknown key; did you mean 'description'?" in result.stdout
    assert "workload.yaml: ok" in result.stdout


def test_a_fault_in_machine_formats_has_its_place(run, here):
    """JSON and CSV hold line, column, path and message as fields."""
    (here / "tables.csv").write_text("name,rows,dim,pooling_factor\na,0,4,1\n")
    result = run("check", "tables.csv", "--format", "json")
    assert result.exit_code == 3
    (file,) = json.loads(result.stdout)
    (fault,) = file["faults"]
    assert (file["ok"], fault["source"], fault["line"]) == (False, "tables.csv", 2)
    (record,) = csv.DictReader(io.StringIO(run("check", "tables.csv", "--format", "csv").stdout))
    assert (record["severity"], record["line"], record["message"]) == ("fault", "2", fault["message"])


def test_an_implausible_number_is_only_a_warning(run, here):
    """GB/s where Gb/s is meant is legal, and said."""
    path = here / "topology.yaml"
    path.write_text(path.read_text().replace("200Gb/s", "200GB/s"))
    result = run("check", "topology.yaml")
    assert result.exit_code == 0
    line = 1 + ["200GB/s" in text for text in path.read_text().splitlines()].index(True)
    ok, *warnings = result.stdout.splitlines()
    assert ok.startswith("topology.yaml: ok (")
    assert warnings
    for warning in warnings:
        assert warning.startswith(f"topology.yaml:{line}:")
        assert " warning: " in warning


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.yaml", "colour: red\n", "is not a known kind of file"),
        ("x.yaml", "just words\n", "is not a known kind of file"),
        ("x.yaml", "", "is empty"),
        ("x.yaml", "a: [1\n", "x.yaml:"),
        ("x.json", '{"kind": "plan",', "x.json:"),
        ("x.json", "[" * 100_000, "x.json: is nested too deeply"),
    ],
)
def test_an_unknown_file_is_a_fault(run, here, name, content, said):
    """No traceback, whatever the file holds."""
    (here / name).write_text(content)
    result = run("check", name)
    assert result.exit_code == 3
    assert said in result.stdout


def test_a_generated_workload_is_checked_too(run):
    """Whatever `--workload` takes."""
    assert "synthetic:1: ok (workload: 1 table, " in run("check", "synthetic:1").stdout
    result = run("check", "synthetic:10@sed=1")
    assert result.exit_code == 3
    assert "did you mean 'seed'?" in result.stdout


def test_a_path_to_nothing_is_a_fault(run, here):
    """A directory and a file that is not there are told from a misspelt name."""
    assert ".: is a directory; name a file in it" in run("check", ".").stdout
    assert "none/t.yaml: there is no such file" in run("check", "none/t.yaml").stdout


def test_a_name_that_is_nothing_is_a_fault(run):
    """The nearest catalog name is offered."""
    result = run("check", "zionex-61")
    assert result.exit_code == 3
    assert "is neither a file nor a catalog name; did you mean 'zionex-16'?" in result.stdout


def test_a_derived_file_is_what_its_base_or_its_changes_are(run, here):
    """`base` and `set` are keys of both topologies and workloads."""
    (here / "a.yaml").write_text("base: workload.yaml\nset: {tables.user_id.rows: 1000}\n")
    (here / "b.yaml").write_text("name: b\nbase: a.yaml\n")
    (here / "c.yaml").write_text("name: c\nbase: zionex\n")
    (here / "d.yaml").write_text("base: topology.yaml\nset: {nodes.0.count: 3}\n")
    (here / "e.yaml").write_text("name: e\nbase: dlrm-dcnv2\n")
    result = run("check", "a.yaml", "b.yaml", "c.yaml", "d.yaml", "e.yaml", "--format", "json")
    assert result.exit_code == 0, result.stdout
    kinds = [file["kind"] for file in json.loads(result.stdout)]
    assert kinds == ["workload", "workload", "topology", "topology", "workload"]


def test_two_files_that_are_based_on_each_other_end(run, here):
    """With a fault, not with a bug."""
    (here / "a.yaml").write_text("base: b.yaml\n")
    (here / "b.yaml").write_text("base: a.yaml\n")
    result = run("check", "a.yaml")
    assert result.exit_code == 3
    assert "break the circle" in result.stdout
