"""Plans keep the policy that they are made with, and verify names what breaks it."""

import json
from typing import Any

import pytest

from planner import plan
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 1000 * (i + 1), "dim": 32, "name": f"{'ab'[i % 2]}{i}"} for i in range(6)]
"""a0, b1, a2, b3, a4, b5."""


def policy(**fields: Any) -> Policy:
    return Policy.model_validate(fields)


POLICIES: dict[str, dict[str, Any]] = {
    "pin": {"tables": [{"match": "a*", "ranks": "1-2"}]},
    "node": {"tables": [{"match": "a*", "nodes": 1}]},
    "forbid": {"forbid_ranks": [0, 3]},
    "colocate": {"colocate": [["a0", "b1", "a2"]]},
    "colocate on a node": {"colocate": [{"tables": "*", "on": "node"}]},
    "separate": {"separate": [["a0", "b1", "a2", "b3"]]},
    "separate on nodes": {"separate": [{"tables": ["a0", "b5"], "on": "node"}]},
    "max_shards": {"max_shards": 2, "shardings": ["column_wise", "table_row_wise", "row_wise"]},
    "column_multiple": {"column_multiple": 16, "shardings": ["column_wise", "grid_shard"]},
    "reserve": {"reserve": {"hbm": "50%", "ddr": "1GB"}},
}


@pytest.fixture(scope="module")
def planned() -> dict[str, Plan]:
    """Large enough a batch that tables are cut where they may be."""
    cluster, model = topology(node_group("g", nodes=2)), workload(TABLES, global_batch=262144)
    return {
        name: plan(cluster, model, policy=policy(**fields), effort=0, gap=0.5, simulate=False)
        for name, fields in POLICIES.items()
    }


@pytest.mark.parametrize("name", list(POLICIES))
def test_plans_keep_their_policy(planned: dict[str, Plan], name: str) -> None:
    """The policy is in the document, and verify, which reads it there, finds nothing."""
    found = planned[name]
    assert found.status in ("optimal", "feasible")
    assert verify(found) == []
    assert found.provenance.policy == policy(**POLICIES[name])
    assert Plan.model_validate(json.loads(found.to_json())) == found
    assert verify(Plan.model_validate(json.loads(found.to_json()))) == []


def ranks_of(found: Plan, table: str) -> set[int]:
    return next(set(each.shards.rank.tolist()) for each in found.tables if each.name == table)


def test_plans_do_what_the_words_say(planned: dict[str, Plan]) -> None:
    """Seen in the document itself."""
    assert set().union(*(ranks_of(planned["pin"], f"a{i}") for i in (0, 2, 4))) <= {1, 2}
    assert set().union(*(ranks_of(planned["node"], f"a{i}") for i in (0, 2, 4))) <= {2, 3}
    assert set().union(*(ranks_of(planned["forbid"], table["name"]) for table in TABLES)) <= {1, 2}
    assert len(set().union(*(ranks_of(planned["colocate"], name) for name in ("a0", "b1", "a2")))) == 1
    assert len({rank // 2 for table in TABLES for rank in ranks_of(planned["colocate on a node"], table["name"])}) == 1
    apart = [ranks_of(planned["separate"], name) for name in ("a0", "b1", "a2", "b3")]
    assert [len(ranks) for ranks in apart] == [1, 1, 1, 1]
    assert len(set().union(*apart)) == 4
    first, last = ({rank // 2 for rank in ranks_of(planned["separate on nodes"], name)} for name in ("a0", "b5"))
    assert not first & last
    assert all(len(table.shards) <= 2 for table in planned["max_shards"].tables)
    assert all((table.shards.columns % 16 == 0).all() for table in planned["column_multiple"].tables)
    assert any(len(table.shards) > 1 for table in planned["column_multiple"].tables)
    assert planned["reserve"].ranks[0].capacity.hbm == pytest.approx(0.5e9, abs=1)
    assert planned["reserve"].ranks[0].capacity.ddr == pytest.approx(9e9, abs=1)


@pytest.mark.parametrize(
    ("name", "wanted", "words"),
    [
        ("separate", {"tables": [{"match": "a0", "ranks": [0, 1, 2, 3]}], "colocate": [["a0", "b1"]]}, "away from a0"),
        ("colocate", {"separate": [["a0", "b1"]]}, "beside a0"),
        ("pin", {"tables": [{"match": "a0", "ranks": 0}]}, "against the policy: ranks 0 (tables.0)"),
        ("max_shards", {"max_shards": 1, "shardings": ["column_wise", "table_wise"]}, "policy"),
        ("column_multiple", {"column_multiple": 32}, "policy"),
        ("separate", {"tiers": ["ddr"]}, "in hbm is not what the policy allows: tiers ddr"),
        ("reserve", {"reserve": {"hbm": "90%"}}, "capacity"),
    ],
)
def test_verify_names_what_breaks_a_policy(planned: dict[str, Plan], name: str, wanted: Any, words: str) -> None:
    """A plan that was made under another policy than the one it carries: the table, the rank, the limit."""
    found = planned[name]
    origin = found.provenance.model_copy(update={"policy": policy(**wanted)})
    violations = verify(found.model_copy(update={"provenance": origin}))
    assert any(words in violation for violation in violations), violations


def test_a_policy_that_contradicts_itself_is_a_violation(planned: dict[str, Plan]) -> None:
    """Such a document was edited; verify says so instead of failing."""
    origin = planned["pin"].provenance.model_copy(update={"policy": policy(tables=[{"match": "x", "ranks": 0}])})
    assert any(
        "no table is called" in text for text in verify(planned["pin"].model_copy(update={"provenance": origin}))
    )


@pytest.mark.parametrize(("stated", "fixed", "held"), [(0.07, None, 0.07), (0.07, 0.1, 0.1), (None, 0.1, 0.1)])
def test_caches_are_as_large_as_kernels_are_told(stated: float | None, fixed: float | None, held: float) -> None:
    """Of tables that are cached, where the policy says no other size; a plan of another size is refused."""
    kernel = {} if stated is None else {"kernel": {"cache_params": {"load_factor": stated}}}
    tables = [{"rows": 10_000_000, "dim": 64, "zipf_alpha": 1.05, **kernel}, {"rows": 1000, "dim": 64}]
    limits = {"tiers": ["hbm", "ddr_cached"]} | ({} if fixed is None else {"cache_fraction": fixed})
    cluster = topology(node_group("g", ddr_bytes=1e11))
    found = plan(cluster, workload(tables, software="torchrec"), policy=policy(**limits), effort=0, simulate=False)
    assert [table.cache_fraction for table in found.tables] == [held, None]
    assert verify(found) == []
    tables_of_half = (found.tables[0].model_copy(update={"cache_fraction": held / 2}), found.tables[1])
    faults = verify(found.model_copy(update={"tables": tables_of_half}))
    assert any(f"HBM holds {held / 2:g} of its rows" in fault for fault in faults)
