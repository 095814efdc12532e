"""`planner import`: plans and clusters of other planners."""

import json
import pickle

import pytest

from cost_models.simulator import simulation
from planner.document.plan import read_plan


@pytest.fixture
def theirs(tmp_path):
    """A TorchRec plan of MLPerf's tables, all on the first GPUs."""
    parameters = {
        f"cat_{i}": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [i % 8]} for i in range(26)
    }
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps({"plan": {"sparse.ebc": parameters}}))
    return file


INPUTS = ("-t", "dgx-a100-80", "-w", "dlrm-dcnv2")


def test_a_plan_is_written_and_verifies(run, theirs, tmp_path):
    """With its distance from the bound; simulate, diff and verify take it."""
    ours = tmp_path / "ours.json"
    done = run("import", theirs, "--from", "torchrec", *INPUTS, "-o", ours)
    assert done.exit_code == 0, done.stderr
    assert "gap" in done.stdout
    plan = read_plan(ours)
    assert plan.objective.gap > 0.05
    assert plan.provenance.solver == "imported: torchrec"
    assert run("verify", ours).exit_code == 0
    assert run("simulate", ours).exit_code == 0


def test_the_step_is_played_once_or_not_at_all(run, theirs, tmp_path, monkeypatch):
    """An import does not verify what it has just computed: that would play the step, and check the proof, once more."""
    played = []

    def counted(*words, **more):
        played.append(words)
        return simulation.simulate(*words, **more)

    monkeypatch.setattr("planner.verification.simulation.simulate", counted)
    words = ("import", theirs, "--from", "torchrec", *INPUTS, "-o", tmp_path / "ours.json")
    for flags, times in (((), 1), (("--no-simulate",), 0)):
        played.clear()
        assert run(*words, *flags).exit_code == 0
        assert len(played) == times


def test_what_does_not_hold_ends_with_6(run, theirs, tmp_path):
    """A plan that does not fit into memory is written, and said to be wrong."""
    document = json.loads(theirs.read_text())
    for entry in document["plan"]["sparse.ebc"].values():
        entry["ranks"] = [0]
    theirs.write_text(json.dumps(document))
    done = run("import", theirs, "--from", "torcheasyrec", *INPUTS, "-o", tmp_path / "ours.json", "--no-simulate")
    assert done.exit_code == 6
    assert "hbm of rank 0" in " ".join(done.stdout.split())
    assert read_plan(tmp_path / "ours.json").status == "feasible"


def test_a_pickle_needs_trust(run, tmp_path):
    """Without the flag nothing of it is read."""
    file = tmp_path / "plan.pkl"
    file.write_bytes(pickle.dumps([1]))
    words = ("import", file, "--from", "torchrec-pickle", *INPUTS, "-o", tmp_path / "ours.json")
    refused = run(*words)
    assert refused.exit_code == 2
    assert "--trust-pickle" in refused.stderr
    assert run(*words, "--trust-pickle").exit_code == 3


def test_a_topology_is_written_and_checks(run, tmp_path):
    """As YAML that every command takes."""
    file = tmp_path / "theirs.json"
    file.write_text('{"world_size": 16, "local_world_size": 8}')
    done = run("import", file, "--from", "torchrec-topology", "-o", tmp_path / "cluster.yaml")
    assert done.exit_code == 0, done.stderr
    assert run("check", tmp_path / "cluster.yaml").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "torchrec"), "is needed: the plan is for these inputs"),
        (("--from", "torchrec", "--trust-pickle", *INPUTS), "has no effect with --from torchrec"),
        (("--from", "torchrec-topology", *INPUTS), "has no effect with --from torchrec-topology"),
        (("--from", "hugectr", "--like", "dgx-h100", *INPUTS), "has no effect with --from hugectr"),
    ],
)
def test_flags_that_do_not_fit_are_refused(run, theirs, tmp_path, words, said):
    """With 2, before anything is read."""
    result = run("import", theirs, *words, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_faults_of_an_imported_file_have_line_and_column(run, tmp_path):
    """HugeCTR's lists of tables: an unknown one is at the list of its GPU."""
    file, lists = tmp_path / "sharding.json", [["cat_0"], *([[]] * 6), ["cat_99"]]
    file.write_text('{"shard_matrix": [\n' + ",\n".join(map(json.dumps, lists)) + '],\n "shard_strategy": []}')
    done = run("import", file, "--from", "hugectr", "-t", "dgx-h100", "-w", "dlrm-dcnv2", "-o", tmp_path / "again.json")
    assert done.exit_code == 3
    assert "sharding.json:9:1: shard_matrix.7: 'cat_99'" in " ".join(done.stderr.split())


def test_a_plan_for_hugectr_goes_out_and_comes_back(run, tmp_path):
    """Node-wide rows too, with no flag: nothing differs; under the rating it is said what to change."""
    inputs = ("-t", "dgx-h100", "-w", "dlrm-dcnv2", "--nodes", "2")
    ours, file, again = tmp_path / "ours.json", tmp_path / "sharding.json", tmp_path / "again.json"
    words = ("--runtime", "hugectr", "--effort", "0", "--gap", "50%", "--shardings", "table_row_wise,data_parallel")
    assert run("plan", *inputs, *words, "-o", ours).exit_code == 0
    assert "table_row_wise" in {table.sharding for table in read_plan(ours).tables}
    assert run("export", ours, "--to", "hugectr", "-o", file).exit_code == 0
    done = run("import", file, "--from", "hugectr", *inputs, "-o", again)
    assert done.exit_code == 0, done.stderr
    assert "--cost-model" not in done.stderr
    assert run("diff", ours, again, "--exit-code").exit_code == 0
    rated = run("import", file, "--from", "hugectr", *inputs, "--cost-model", "hugectr", "-o", again)
    said = " ".join(rated.stderr.split())
    assert "this one is costed under hugectr: --cost-model physical" in said
    assert "has its rows cut over some GPUs" in said
