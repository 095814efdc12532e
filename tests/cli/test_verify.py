"""`planner verify` names the inputs that a plan was not made for, and the fields that it takes as stated."""

import json

import pytest

from planner.cli.verify import SHOWN_DIFFERENCES, other_input
from planner.document.differences import differences
from planner.formulation.policy import Policy
from topologies.cluster import NodeGroup

GROUP = {
    "name": "a",
    "accelerators": {
        "count": 8,
        "device": "X",
        "hbm": {"capacity": "40GB", "bandwidth": "1555GB/s"},
        "flops": {"fp32": "19.5TFLOP/s"},
    },
    "links": {"pcie": {"bandwidth": "32GB/s"}},
}


def test_equal_documents_have_no_difference():
    """Whatever they hold."""
    document = {"a": [1, {"b": None}], "c": "x"}
    assert list(differences(document, document)) == []


def test_every_leaf_that_differs_is_named():
    """Changed, added and removed leaves, by their path."""
    was = {"nodes": [{"count": 1}, {"count": 2}], "name": "x"}
    now = {"nodes": [{"count": 4}], "name": "x", "price": 3}
    assert list(differences(was, now)) == [
        ("nodes.0.count", 1, 4),
        ("nodes.1", {"count": 2}, None),
        ("price", None, 3),
    ]


def test_only_the_first_differences_are_shown():
    """Another model differs in every table; a few say enough."""
    planned = NodeGroup.model_validate(GROUP)
    given = NodeGroup.model_validate(
        GROUP
        | {"count": 2, "name": "b", "price": "1USD/h", "power": "1kW"}
        | {"reserve": {"hbm": "1%", "ddr": "1%", "ssd": "1%"}}
    )
    assert other_input("topology", planned, planned) == []
    found = other_input("topology", planned, given)
    assert len(found) == SHOWN_DIFFERENCES
    assert "made for another topology: count was 1 and is 2" in found


@pytest.fixture
def files(run, starter, tmp_path):
    """The flags of the starter with its policy, narrowed, and the plan that they give."""
    words = ["-t", starter / "topology.yaml", "-w", starter / "workload.yaml"]
    rules = ["--policy", starter / "policy.yaml", "--max-shards", "4"]
    path = tmp_path / "plan.json"
    result = run("plan", *words, *rules, "--effort", "0", "--gap", "100%", "-q", "-o", path)
    assert result.exit_code == 0, result.stderr
    return path, words, rules


def test_the_question_is_held_against_the_users_own_files(run, files):
    """Topology, workload and policy as they were given to `plan`: everything holds."""
    path, words, rules = files
    result = run("verify", path, *words, *rules)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "everything holds; as stated, not recomputed: planner_version, " in result.stderr
    document = json.loads(path.read_text())
    assert document["provenance"]["policy_fingerprint"].startswith("sha256:")


@pytest.mark.parametrize(
    "rules",
    [
        ["--replicas", "2,1", "--sync-every", "5", "--tiers", "hbm"],
        ["--dense", "auto", "--checkpointing", "auto", "--tiers", "hbm", "--shardings", "table_wise"],
        ["--dense", "fsdp=node", "--checkpointing", "full", "--goals", "step"],
    ],
)
def test_every_flag_of_plan_is_repeated(run, starter, tmp_path, rules):
    """Of replicas and the dense part, too: everything holds, and without the flags the policy is another."""
    path, words = tmp_path / "plan.json", ["-t", starter / "topology.yaml", "-w", "dlrm-v1"]
    words += ["--set", "workload.software=torchrec", "--nodes", "1"]
    result = run("plan", *words, *rules, "--effort", "0", "--gap", "100%", "-q", "--no-simulate", "-o", path)
    assert result.exit_code == 0, result.stderr
    assert run("verify", path, *words, *rules).exit_code == 0
    result = run("verify", path, *words, "--max-shards", "1000")
    assert result.exit_code == 6
    assert "made for another policy: " in result.stdout


def test_another_policy_is_named_by_its_first_fields(run, files):
    """A flag left out, another one, or no file: exit 6, and in which fields they differ."""
    path, words, rules = files
    for given, said in (
        (rules[:2], "made for another policy: max_shards was 4 and is unset"),
        ([*rules, "--runtime", "hugectr"], "made for another policy: runtime was"),
        (["--max-shards", "4"], "made for another policy: "),
    ):
        result = run("verify", path, *words, *given)
        assert result.exit_code == 6
        assert said in " ".join(result.stdout.split())


def test_a_policy_that_was_edited_in_the_document_is_a_violation(run, files):
    """Its fingerprint is over all its fields."""
    path, _, _ = files
    document = json.loads(path.read_text())
    document["provenance"]["policy"]["max_shards"] = 400
    path.write_text(json.dumps(document))
    result = run("verify", path, "--format", "json")
    assert result.exit_code == 6
    found = json.loads(result.stdout)
    assert any("policy: the content hashes to" in text for text in found["violations"])


def test_the_fields_that_are_taken_as_stated_are_data(run, files):
    """With the reason, also where everything holds."""
    found = json.loads(run("verify", files[0], "--format", "json").stdout)
    assert set(found) == {"kind", "violations", "unchecked"}
    assert found["violations"] == []
    why = {one["field"]: one["why"] for one in found["unchecked"]}
    assert why["provenance.seed"] == "a search is not repeated"


def test_a_key_that_stands_twice_is_an_invalid_file(run, files):
    """Whichever reader takes the first and whichever the last: with its line, before anything is computed."""
    path, _, _ = files
    text = path.read_text()
    path.write_text(text.replace('"status":"feasible"', '"status":"optimal","status":"feasible"', 1))
    result = run("verify", path)
    assert result.exit_code == 3
    assert ":1:" in result.stderr
    assert "status: the key 'status' stands twice" in result.stderr


def test_a_plan_under_a_runtime_is_that_of_its_workload(run, tmp_path):
    """The catalog says torchrec, the runtime is hugectr, by the document or by flag: it is what the plan was made for;
    a profile that the user chooses is another workload."""
    path, inputs = tmp_path / "plan.json", ("-t", "zionex", "-w", "nv-tiny")
    assert run("plan", *inputs, "--runtime", "hugectr", "--effort", 0, "--gap", "50%", "-o", path).exit_code == 0
    assert run("verify", path, *inputs).exit_code == 0
    assert run("verify", path, *inputs, "--runtime", "hugectr").exit_code == 0
    result = run("verify", path, *inputs, "--set", "workload.software=torchrec")
    assert result.exit_code == 6
    assert "made for another workload: software was 'hugectr' and is 'torchrec'" in result.stdout


def test_csv_of_a_sound_plan_is_a_header_alone(run, plan_file):
    """So that what reads the table finds its column, with no row in it."""
    result = run("verify", plan_file, "--format", "csv")
    assert (result.exit_code, result.stdout) == (0, "violation\n")


def test_what_another_policy_leaves_unset_is_not_listed():
    """A rule that the plan does not know is shown by what it says, not by all that it might say."""
    given = Policy.model_validate({"tables": [{"match": "user_id", "max_shards": 2}]})
    (said,) = other_input("policy", Policy(), given)
    assert said == "made for another policy: tables.0 was unset and is {'max_shards': 2, 'match': ['user_id']}"
