"""Every command refuses a plan that was edited into no plan of its own inputs: exit 6, and what is wrong."""

import json

import pytest

from planner import plan, write_plan
from tests.oracles.instances import node_group, topology, workload

COMMANDS = {
    "simulate": ("simulate", "plan.json"),
    "explain": ("explain", "plan.json"),
    "explain --table": ("explain", "plan.json", "--table", "t1"),
    "memory": ("memory", "plan.json"),
    "report": ("report", "plan.json", "-o", "plan.html"),
    "compare": ("compare", "right.json", "plan.json"),
    "diff": ("diff", "right.json", "plan.json"),
    "diff back": ("diff", "plan.json", "right.json"),
    "export torchrec": ("export", "plan.json", "--to", "torchrec"),
    "export hugectr": ("export", "plan.json", "--to", "hugectr"),
    "plan --from": ("plan", "-t", "zionex-16", "-w", "dlrm-dcnv2", "--from", "plan.json"),
    "verify --from": ("verify", "right.json", "--from", "plan.json"),
    "verify": ("verify", "plan.json"),
}


@pytest.fixture(scope="module")
def text():
    tables = [{"rows": 1001, "dim": 64}, {"rows": 5003, "dim": 32}]
    return plan(topology(node_group("a", nodes=2)), workload(tables), tiers=["hbm"], effort=0).to_json()


@pytest.mark.parametrize("edit", ["dropped", "doubled", "renamed", "no such rank"])
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_an_edited_plan_ends_with_6(run, text, tmp_path, monkeypatch, words, edit):
    """Not with a figure that means nothing, nor with a traceback."""
    monkeypatch.chdir(tmp_path)
    document = json.loads(text)
    (tmp_path / "right.json").write_text(text)
    tables = document["tables"]
    if edit == "dropped":
        del tables[0]
    elif edit == "doubled":
        tables.append(tables[0])
    elif edit == "renamed":
        tables[0]["name"] = "ghost"
    else:
        tables[0]["shards"][0]["rank"] = 99
    (tmp_path / "plan.json").write_text(json.dumps(document))
    result = run(*words)
    assert result.exit_code == 6, result.stderr
    said = " ".join((result.stdout + result.stderr).split())
    assert ("table t0: has no shards" if edit == "no such rank" else "tables: missing [") in said
    assert "Traceback" not in said


def test_a_proof_of_something_else_is_not_explained(run, text, tmp_path):
    """A weight on a resource that is not there: exit 6, and which."""
    document = json.loads(text)
    document["proof"]["weights"][0]["stage"] = "ghost"
    (tmp_path / "plan.json").write_text(json.dumps(document))
    result = run("explain", tmp_path / "plan.json")
    assert result.exit_code == 6
    assert "of ghost: negative, or of something that does not exist" in " ".join(result.stderr.split())


def test_an_invalid_file_beside_an_edited_plan_is_an_invalid_input(run, text, tmp_path):
    """Of several plans all faults are said, and the worse one decides the exit."""
    document = json.loads(text)
    del document["tables"][0]
    (tmp_path / "edited.json").write_text(json.dumps(document))
    (tmp_path / "none.json").write_text("{")
    result = run("compare", tmp_path / "edited.json", tmp_path / "none.json")
    assert result.exit_code == 3
    assert "tables: missing" in result.stderr
    assert "is not JSON" in result.stderr


def test_unplaced_plans_are_no_edited_ones(run, tmp_path):
    """What has no plan is explained, compared and shown as before."""
    none = plan(topology(node_group("b", hbm_bytes=1e7, ddr_bytes=None)), workload([{"rows": 10**7, "dim": 64}]))
    write_plan(none, tmp_path / "none.json")
    for words in (("explain",), ("memory",), ("compare", tmp_path / "none.json")):
        assert run(words[0], tmp_path / "none.json", *words[1:]).exit_code == 0
