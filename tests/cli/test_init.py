"""`planner init` leaves files that work as they are, and never destroys any."""

import pytest

from cost_models.workload.loading import load_workload
from planner.cli.init import STARTERS
from topologies.loading import load_topology


def test_starters_are_valid(run, starter):
    """What init writes, check passes without a warning."""
    result = run("check", *(starter / name for name in STARTERS))
    assert result.exit_code == 0
    assert "warning" not in result.stdout
    assert result.stdout.count(": ok (") == len(STARTERS)


def test_starters_fit_together(starter):
    """The workload finds its tables beside it, and the cluster can hold them."""
    topology = load_topology(starter / "topology.yaml")
    workload = load_workload(starter / "workload.yaml")
    assert len(workload.tables) > 1
    assert topology.world_size > 1


def test_init_prints_files_and_the_next_command(run, tmp_path):
    """Paths on stdout, what to do with them on stderr; missing directories are made."""
    directory = tmp_path / "a" / "b"
    result = run("init", directory)
    assert result.stdout.split() == [str(directory / name) for name in STARTERS]
    assert f"planner plan --topology {directory / 'topology.yaml'}" in result.stderr


def test_the_next_command_has_the_cluster_that_is_there(run, starter, tmp_path):
    """Beside a cluster's file it is that one; else one of the catalog."""
    for name, expected in ((None, "dgx-h100"), ("cluster.yaml", str(tmp_path / "b" / "cluster.yaml"))):
        directory = tmp_path / ("b" if name else "a")
        directory.mkdir()
        if name:
            (directory / name).write_bytes((starter / "topology.yaml").read_bytes())
        result = run("init", directory, "--tables", starter / "tables.csv")
        assert f"planner plan --topology {expected} --workload" in result.stderr


@pytest.mark.parametrize("name", STARTERS)
def test_init_refuses_to_overwrite(run, tmp_path, name):
    """A file in the way is named, kept, and nothing else is written; --force overwrites it."""
    (tmp_path / name).write_text("mine")
    result = run("init", tmp_path)
    assert result.exit_code == 3
    assert name in result.stderr
    assert "--force" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"
    assert run("init", tmp_path, "--force").exit_code == 0
    assert (tmp_path / name).read_text() != "mine"


def test_a_model_needs_the_extra(run, tmp_path, monkeypatch):
    """Without torch or torchrec: what installs them, and 2 as for every extra that is missing."""
    monkeypatch.setattr("planner.cli.flags.util.find_spec", lambda _: None)
    result = run("init", tmp_path / "new", "--from-model", "model.py:build")
    assert result.exit_code == 2
    assert "--from-model needs torch: pip install 'shardplan[torchrec]'" in result.stderr
    assert not (tmp_path / "new").exists()


def test_flags_of_models_need_one(run, tmp_path):
    """A batch without --from-model would change nothing."""
    result = run("init", tmp_path, "--batch-per-rank", "8")
    assert result.exit_code == 2
    assert "has no effect without --from-model" in " ".join(result.stderr.split())
