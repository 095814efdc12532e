"""Policies on the command line: a file, flags that narrow it, and their faults."""

import json

import pytest


@pytest.fixture
def plan_json(run, starter):
    """`planner plan` of the starter files with more words; the document."""

    def planned(*words):
        result = run(
            "plan", "-t", starter / "topology.yaml", "--effort", 0, "--gap", "50%", "-q", "--format", "json", *words
        )
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return planned


def test_the_starter_policy_is_kept(plan_json, starter):
    """It is in the plan, and the plan keeps it."""
    document = plan_json("--policy", starter / "policy.yaml")
    assert document["provenance"]["policy"]["runtime"] == "torchrec"
    ranks = {table["name"]: {shard["rank"] for shard in table["shards"]} for table in document["tables"]}
    assert len(ranks["country"] | ranks["device_model"]) == 1
    assert not ranks["search_terms"] & ranks["item_history"]


def test_flags_narrow(plan_json):
    """Each in its own words; what was asked is written down."""
    document = plan_json(
        *("--pin", "user_*=0-3", "--forbid", "8-15", "--forbid", "item_*=ddr,ssd_cached", "--max-shards", 4),
        *("--column-multiple", 16, "--runtime", "torchrec", "--reserve", "hbm=2GiB"),
    )
    policy = document["provenance"]["policy"]
    assert policy["max_shards"] == 4
    assert policy["forbid_ranks"] == "8-15"
    assert {"match": ["user_*"], "ranks": "0-3"} in policy["tables"]
    assert {"match": ["item_*"], "forbid_tiers": ["ddr", "ssd_cached"]} in policy["tables"]
    assert {shard["rank"] for table in document["tables"] for shard in table["shards"]} <= set(range(8))


def test_optimizer_state_by_a_flag(plan_json):
    """The state of every table that has any is in DDR, its rows in HBM; the policy says so."""
    document = plan_json("--tiers", "hbm", "--shardings", "table_wise,row_wise", "--optimizer-state", "ddr")
    assert document["provenance"]["policy"]["optimizer_state"] == ["ddr"]
    assert {table.get("optimizer_state") for table in document["tables"]} == {"ddr"}


def test_copies_of_some_tables_by_flags(plan_json, starter):
    """They take the place of a file's rules, one each; other tables have as many as are stated, or one."""
    copies = ("--replicas", "user_*=4", "--sync-every", 20, "--tiers", "hbm")
    stated = plan_json(*copies)["provenance"]["policy"]["replicas"]
    assert (stated["factor"], stated["sync_every"]) == ([1], 20)
    assert stated["rules"] == [{"tables": ["user_*"], "factor": 4}]
    file = starter / "groups.yaml"
    file.write_text("kind: policy\nreplicas: {factor: 2, layout: intra, rules: [{tables: item_*, factor: 4}]}\n")
    document = plan_json("-p", file, *copies)
    assert (document["replicas"]["factor"], document["replicas"]["rules"]) == (2, stated["rules"])


def test_faults_of_file_and_flags_at_once(run, starter):
    """With the line of the file and the words of the flag; exit 3."""
    file = starter / "policy.yaml"
    file.write_text("kind: policy\ntables:\n  - {match: itm_id, ranks: 0}\n")
    result = run("plan", "-t", starter / "topology.yaml", "-p", file, "--pin", "user_id=99")
    assert result.exit_code == 3
    assert f"{file}:3:" in result.stderr
    assert "did you mean 'item_id'" in result.stderr
    assert "--pin user_id=99" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pin", "0-3"), "GLOB=RANKS"),
        (("--forbid", "hmb"), "did you mean 'hbm'"),
        (("--forbid", "user_*="), "names no ranks or tiers"),
        (("--reserve", "10%"), "TIER=SIZE"),
        (("--reserve", "hmb=10%"), "did you mean 'hbm'"),
        (("--replicas", "user_*=few"), "'user_*=few' is not GLOB=COPIES"),
        (("--replicas", "2", "--replicas", "4"), "2 and 4 are of all tables; give one"),
        (("--runtime", "torchrek"), "did you mean 'torchrec'"),
        (("--max-shards", "0"), "must be at least 1, not '0'"),
    ],
)
def test_flags_that_say_nothing_useful(run, starter, words, said):
    """A wrong command line, exit 2, with what to write."""
    result = run("plan", "-t", starter / "topology.yaml", *words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.slow
def test_an_exchange_by_a_flag(run, starter, tmp_path):
    """It is in the plan; `explain` says why, and an export that cannot run it what to do."""
    plan, topology = tmp_path / "plan.json", starter / "topology.yaml"
    whole = ("--tiers", "hbm", "--shardings", "table_wise")
    made = run("plan", "-t", topology, *whole, "--exchange", "sptt", "--effort", 0, "--gap", "50%", "-q", "-o", plan)
    assert made.exit_code == 0, made.stderr
    assert "Vectors are exchanged sptt." in made.stdout
    assert json.loads(plan.read_text())["provenance"]["exchange"] == "sptt"
    explained = run("explain", plan).stdout
    assert "Placed like this, flat takes" in explained
    assert "sptt: permute takes up to" in explained
    assert run("verify", plan).exit_code == 0
    refused = run("export", plan, "--to", "torchrec", "-o", tmp_path / "sharding.json")
    assert refused.exit_code == 3
    assert "plan with --exchange flat" in refused.stderr


def test_an_exchange_that_no_runtime_has_is_refused(run, starter):
    """Beside a runtime, and where there is no such word; sizes take auto."""
    topology = starter / "topology.yaml"
    result = run("plan", "-t", topology, "--exchange", "sptt", "--runtime", "torchrec")
    assert result.exit_code == 3
    assert "sptt is no exchange of torchrec" in result.stderr
    assert run("plan", "-t", topology, "--exchange", "towers").exit_code == 2
    sized = run("size", "-t", topology, "--max-step", "20ms", "--max-nodes", 2, "--no-each-tier", "--exchange", "auto")
    assert "exchange auto: " in sized.stdout


@pytest.mark.parametrize(
    ("text", "dense"),
    [
        ("fsdp=node", {"strategy": "fsdp", "over": "node"}),
        ("auto,inner, heads", {"strategy": "auto", "cuts": ["inner", "heads"]}),
        (
            "zero2,top.0=columns,far*=tokens:queries",
            {
                "strategy": "zero2",
                "layers": [
                    {"match": "top.0", "cut": "columns"},
                    {"match": "far*", "cut": "tokens", "passes": "queries"},
                ],
            },
        ),
    ],
)
def test_dense_strategies_by_a_flag(text, dense):
    """A word for the whole dense part, rules for layers, cuts that may be chosen."""
    from planner.cli.policy_flags import _set_dense
    from topologies.documents import Document

    document = Document({"dense": {"strategy": "auto"}}, "policy")
    _set_dense(document, text)
    assert document.data["dense"] == dense


@pytest.mark.parametrize("text", ["fsdp,top.0=column", "auto,head", "fsdp,far=tokens:query", "all"])
def test_dense_strategies_that_there_are_not(run, starter, text):
    """Each has what was meant."""
    result = run("plan", "-t", starter / "topology.yaml", "--dense", text)
    assert result.exit_code == 2
    assert "is not known" in result.stderr
