"""`planner export`: files for runtimes, and what it refuses."""

import json

import pytest


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    """A plan that TorchRec and HugeCTR both execute."""
    from planner.api import plan
    from planner.document import write_plan
    from planner.policy import Policy

    file = tmp_path_factory.mktemp("plans") / "plan.json"
    policy = Policy(runtime="hugectr")
    write_plan(plan("dgx-a100-80", "dlrm-dcnv2", policy=policy, effort=0, simulate=False), file)
    return file


@pytest.mark.parametrize("to", ["torchrec", "torchrec-constraints", "hugectr"])
def test_writes_json_to_a_file_or_stdout(run, plan_file, tmp_path, to):
    """The same document both ways."""
    shown = run("export", plan_file, "--to", to)
    assert shown.exit_code == 0
    assert run("export", plan_file, "--to", to, "-o", tmp_path / "out.json").exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(shown.stdout)


def test_torcheasyrec_writes_two_files(run, plan_file, tmp_path):
    """Its plan, and the variables of its environment."""
    done = run("export", plan_file, "--to", "torcheasyrec", "--module", "m.ebc", "-o", tmp_path / "plan")
    assert done.exit_code == 0
    assert list(json.loads((tmp_path / "plan").read_text())) == ["m.ebc"]
    assert "export INTRA_NODE_BANDWIDTH=300000000\n" in (tmp_path / "plan.env").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "hugectr", "--module", "a"), "has no effect with --to hugectr"),
        (("--to", "torchrec", "--names", "index"), "has no effect with --to torchrec"),
        (("--to", "torcheasyrec"), "is needed"),
        (("--to", "torch"), "'torch' is not known"),
    ],
)
def test_flags_that_do_not_fit_are_refused(run, plan_file, words, said):
    """With 2, before anything is written."""
    result = run("export", plan_file, *words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_what_cannot_run_ends_with_3(run, plan_file, tmp_path):
    """Every table is named."""
    document = json.loads(plan_file.read_text())
    for table in document["tables"][:2]:
        table["tier"], table["cache_fraction"] = "ssd_cached", 0.1
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(document))
    result = run("export", bad, "--to", "torchrec")
    assert result.exit_code == 3
    assert result.stderr.count("cannot execute table") == 2
