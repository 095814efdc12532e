"""No command writes over what it reads: refused before any work, by whatever name the file is reached."""

import os
import shutil
from pathlib import Path

import pytest

from planner.cli.exits import ExitCode


def file(tmp_path: Path, starter: Path, name: str) -> Path:
    """A copy of one of the starter's files, with what it names beside it."""
    shutil.copytree(starter, tmp_path, dirs_exist_ok=True)
    return tmp_path / name


def linked(path: Path, way: str) -> Path:
    """Another name of a file."""
    other = path.with_name(f"other-{path.name}")
    if way == "symlink":
        other.symlink_to(path)
    elif way == "hard link":
        os.link(path, other)
    elif way == "relative":
        return path.parent / "sub" / ".." / path.name
    else:
        return path
    return other


def refuses(run, path: Path, flags: tuple[str, str], *words: object) -> None:
    """The command ends with 2, names both flags, and leaves the file as it was."""
    before = path.read_bytes()
    result = run(*words)
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE == 2, result.output
    assert path.read_bytes() == before
    shown = " ".join(result.stderr.split())
    assert all(flag in shown for flag in flags), shown
    assert result.stdout == ""


@pytest.mark.parametrize("way", ["itself", "symlink", "hard link", "relative"])
@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("topology.yaml", "--topology"),
        ("workload.yaml", "--workload"),
        ("tables.csv", "--workload"),
        ("policy.yaml", "--policy"),
    ],
)
def test_plan_keeps_its_inputs(run, starter, tmp_path, name, flag, way):
    """Also what an input names in turn, as the tables of a workload, and the workload that no flag names."""
    (tmp_path / "sub").mkdir()
    path = file(tmp_path, starter, name)
    words = ("-t", tmp_path / "topology.yaml", "-p", tmp_path / "policy.yaml", "-o", linked(path, way))
    refuses(run, path, ("--output", flag), "plan", *words)


def test_plan_keeps_the_plan_that_it_follows(run, starter, plan_file):
    """`--from plan.json -o plan.json`."""
    words = ("-t", starter / "topology.yaml", "--from", plan_file, "-o", plan_file)
    refuses(run, plan_file, ("--output", "--from"), "plan", *words)


@pytest.mark.parametrize("way", ["itself", "symlink", "hard link", "relative"])
@pytest.mark.parametrize("command", ["export", "report", "simulate", "calibrate", "import"])
def test_commands_keep_the_file_they_read(run, starter, tmp_path, plan_file, command, way):
    """Each by its own flags."""
    (tmp_path / "sub").mkdir()
    path = plan_file.rename(tmp_path / "plan.png") if command == "simulate" else plan_file
    other = linked(path, way)
    words = {
        "export": (("PLAN", "--output"), "export", path, "--to", "torchrec", "-o", other),
        "report": (("RESULTS", "--output"), "report", path, "-o", other),
        "simulate": (("PLAN", "--picture"), "simulate", path, "--picture", other),
        "calibrate": (("FILE", "--output"), "calibrate", path, "--device", "x", "-o", other),
        "import": (("FILE", "--output"), "import", path, "--from", "torchrec-topology", "-o", other),
    }
    both, *rest = words[command]
    refuses(run, path, both, *rest)


def test_import_keeps_its_cluster_and_model(run, starter, tmp_path, plan_file):
    """The tables that a workload names are an input."""
    path = file(tmp_path, starter, "tables.csv")
    words = (plan_file, "--from", "torchrec", "-t", tmp_path / "topology.yaml", "-w", tmp_path / "workload.yaml")
    refuses(run, path, ("--output", "--workload"), "import", *words, "-o", path)


def test_study_keeps_its_inputs(run, starter, tmp_path, monkeypatch):
    """The study and the cluster that it names, for the results, the page, and the folder of plans."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = file(tmp_path, starter, "point-1.json")
    path.write_text("{name: x, topology: topology.json, workload: workload.yaml, axes: {workload.global_batch: [8]}}")
    topology = (tmp_path / "topology.yaml").rename(tmp_path / "topology.json")
    refuses(run, path, ("STUDY", "--output"), "study", path, "-o", path)
    refuses(run, path, ("STUDY", "--plans"), "study", path, "--plans", tmp_path)
    refuses(run, topology, ("STUDY", "--output"), "study", path, "-o", topology)


def test_folders_keep_what_lies_in_them(run, tmp_path, plan_file):
    """A plan called as a trace, or in the folder of remapped ids."""
    refuses(run, plan_file, ("PLAN", "--output"), "export", plan_file, "--to", "remap", "--counts", "x", "-o", tmp_path)
    traces = tmp_path / "traces"
    traces.mkdir()
    path = plan_file.rename(traces / "rank_0.json.gz")
    refuses(run, path, ("PLAN", "--trace"), "simulate", path, "--trace", traces)


def test_two_outputs_are_two_files(run, starter, tmp_path):
    """One would write over the other."""
    result = run("calibrate", "--device", "cpu", "-o", tmp_path / "x.png", "--plot", tmp_path / "x.png")
    assert result.exit_code == 2
    assert "--output" in result.stderr
    assert "--plot" in result.stderr
