"""`planner init` leaves files that work as they are, and never destroys any."""

import json

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
    schemas = [f"schemas/{kind}.schema.json" for kind in ("topology", "workload", "policy")]
    assert result.stdout.split() == [str(directory / name) for name in (*STARTERS, *schemas)]
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


@pytest.mark.parametrize("template", ["dlrm", "dcnv2", "wukong"])
def test_templates_are_plans_to_be(run, tmp_path, template):
    """A cluster of the catalog with so many nodes, a known model on its tables, a policy: valid without a warning."""
    result = run("init", tmp_path, "--from", "dgx-h100", "--nodes", 4, "--template", template)
    assert result.exit_code == 0, result.stderr
    checked = run("check", *(tmp_path / name for name in STARTERS))
    assert (checked.exit_code, checked.stdout.count(": ok (")) == (0, len(STARTERS)), checked.stdout
    assert "warning" not in checked.stdout
    assert load_topology(tmp_path / "topology.yaml").world_size == 32
    workload = load_workload(tmp_path / "workload.yaml")
    assert (len(workload.tables), workload.name) == (26, "my-model")
    files = ["-t", tmp_path / "topology.yaml", "-p", tmp_path / "policy.yaml"]
    assert run("plan", *files, "--effort", 0, "--gap", "100%", "-q").exit_code == 0


def test_a_template_is_what_the_catalog_has(run, tmp_path):
    """But for its name and the comments: dcnv2 is MLPerf's."""
    assert run("init", tmp_path, "--template", "dcnv2").exit_code == 0
    mine, theirs = load_workload(tmp_path / "workload.yaml"), load_workload("dlrm-dcnv2")
    assert mine.model_copy(update={"name": theirs.name}) == theirs


def test_files_name_their_schemas(run, starter):
    """In the line that YAML language servers read; the schema is that of `planner schema`, and the file keeps to it."""
    for name in STARTERS:
        if name.endswith(".yaml"):
            first = (starter / name).read_text().splitlines()[0]
            file = first.removeprefix("# yaml-language-server: $schema=")
            kind = name.removesuffix(".yaml")
            assert file == f"schemas/{kind}.schema.json"
            assert json.loads((starter / file).read_text()) == json.loads(run("schema", kind).stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", 4], "without --from"),
        (["--from", "dgx-h10"], "did you mean 'dgx-h100'"),
        (["--template", "dcn"], "did you mean 'dcnv2'"),
        (["--template", "dcnv2", "--tables", "tables.csv"], "--template"),
        (["--from", "gb200-nvl72-36x2", "--nodes", 0], "--nodes"),
    ],
)
def test_what_cannot_be_started_from_is_refused(run, tmp_path, words, said):
    """By name, and nothing is written."""
    result = run("init", tmp_path / "new", *words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert not (tmp_path / "new").exists()


def test_a_part_of_racks_is_written_with_its_domains(run, tmp_path):
    """Equal ones, of which a note speaks; the file is planned for as `--nodes` is."""
    made = run("init", tmp_path, "--from", "gb200-nvl72", "--nodes", 32)
    assert made.exit_code == 0
    assert "2 scale-up domains of 64 ranks each" in made.stderr
    assert "  nodes.0.links.scale_up.domain: 64\n" in (tmp_path / "topology.yaml").read_text()
    shown = run("topology", "show", tmp_path / "topology.yaml")
    assert shown.exit_code == 0
    whole = run("init", tmp_path, "--from", "gb200-nvl72", "--nodes", 36, "--force")
    assert "domains" not in whole.stderr
