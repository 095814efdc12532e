"""Ways that are no options are told with what forbids them, and are options where that is taken away."""

from typing import Any

import numpy as np
import pytest

from cost_models.shards import PLACEMENT_TIERS, SHARDINGS, PlacementTier, Sharding
from cost_models.step import StepModel
from planner.diagnosis.forbidden_ways import ForbiddenWay, ForbiddenWays
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from tests.oracles.instances import node_group, tiny_instance, topology, workload
from tests.seeds import seeds

TABLES = [{"rows": 1000, "dim": 32, "name": "a"}, {"rows": 1000, "dim": 4, "name": "b"}]


def ways_of(model: StepModel, policy: Policy, table: int = 0) -> dict[tuple[str, str], ForbiddenWay]:
    formulation = Formulation.of(model, policy)
    ways = ForbiddenWays(formulation, policy, table).beside(options_of(formulation, table))
    return {(way.sharding, way.tier): way for way in ways}


def options_of(formulation: Formulation, table: int) -> set[tuple[Sharding, PlacementTier]]:
    """Ways of which every kind of block has room on some rank."""
    options, problem = formulation.options, formulation.problem
    blocks = np.flatnonzero(problem.table_of_block == table)
    blocks = blocks[problem.allowed[:, blocks].any(axis=0)]
    tiers = options.tier[problem.block_option[blocks]]
    return {
        (SHARDINGS[sharding], PLACEMENT_TIERS[tier])
        for sharding, tier in zip(options.block_sharding[blocks].tolist(), tiers.tolist(), strict=True)
    }


def test_a_way_names_every_rule_of_policy_runtime_and_cluster() -> None:
    """Each by its place, and those of the policy's own lists where nobody wrote them; a rule for another table has no
    part in it."""
    rules = [{"match": "a", "tiers": ["hbm"]}, {"match": "b", "forbid_tiers": "hbm"}]
    policy = Policy.model_validate({"runtime": "torchrec", "tables": rules})
    model = StepModel(topology(node_group("g", nodes=2)), workload(TABLES))
    ways = ways_of(model, policy)
    said = {(rule.kind, rule.place) for rule in ways["row_wise", "ssd_cached"].rules}
    assert said == {("policy", "tables.0.tiers"), ("runtime", "runtime"), ("cluster", None)}
    (rule,) = ways["row_wise", "ddr"].rules
    assert (rule.kind, rule.words) == ("policy", "tiers hbm (tables.0)")
    assert "used only where tiers of the policy names it" in [
        rule.words for rule in ways["row_wise", "hbm_mixed"].rules
    ]
    assert ("table_wise", "hbm") not in ways
    (rule,) = ways_of(model, policy, 1)["table_wise", "hbm"].rules
    assert rule.words == "forbid_tiers hbm (tables.1)"


@pytest.mark.parametrize(
    ("fields", "group", "way", "kind", "words"),
    [
        ({"tables": [{"match": "a", "max_shards": 3}]}, {}, "row_wise", "policy", "max_shards 3 (tables.0)"),
        ({"tables": [{"match": "a", "ranks": "0"}]}, {}, "row_wise", "policy", "ranks 0 (tables.0)"),
        ({"separate": [["a", "b"]]}, {}, "data_parallel", "policy", "separate, no two on one rank (separate.0)"),
        ({}, {"hbm_bytes": 1e3}, "table_wise", "memory", "it needs HBM, and no rank has any left for tables"),
        ({"column_multiple": 32}, {}, "column_wise", "table", "its 32 columns cannot be cut into multiples of 32"),
        ({}, {}, "table_column_wise", "search", "column_wise has the same blocks on any ranks, at the same cost"),
        (
            {"shardings": ["table_wise", "table_column_wise"]},
            {"ranks": 1},
            "table_column_wise",
            "cluster",
            "its blocks would be on two ranks or more of one node",
        ),
        (
            {"shardings": ["table_wise", "multi_rank_row_wise"]},
            {"ranks": 4},
            "multi_rank_row_wise",
            "cluster",
            "its rows would be on two ranks or more of a single node, or scale-up domain, of three or more",
        ),
        (
            {"shardings": ["table_wise", "multi_node_row_wise"]},
            {"ranks": 4},
            "multi_node_row_wise",
            "cluster",
            "its rows would be on two nodes or more of three or more of one size",
        ),
    ],
)
def test_each_kind_of_rule_is_told(
    fields: dict[str, Any], group: dict[str, Any], way: str, kind: str, words: str
) -> None:
    """In HBM: numbers and ranks of a policy, groups, memory that no rank has, and columns that cannot be cut."""
    model = StepModel(topology(node_group("g", nodes=2, **group)), workload(TABLES))
    (rule,) = ways_of(model, Policy.model_validate(fields))[way, "hbm"].rules
    assert (rule.kind, rule.words) == (kind, words)


def test_memory_is_told_with_its_figures() -> None:
    """What the smallest block takes, beside what a rank has left."""
    model = StepModel(topology(node_group("g", nodes=2)), workload([{"rows": 10**7, "dim": 128}]))
    (rule,) = ways_of(model, Policy())["table_wise", "hbm"].rules
    assert rule.kind == "memory"
    own = 10**7 * 128 * 4 / 2**30
    takes = float(rule.words.split("takes ")[1].split(" GiB")[0])
    assert own <= takes <= own * 1.05
    assert rule.words.endswith("MiB for tables")


@pytest.mark.parametrize("seed", seeds(range(0, 24, 4), range(24)))
def test_what_a_policy_forbids_is_possible_without_it(seed: int) -> None:
    """Of mixed clusters: every way is an option or has a rule; without the rules that are named, it has another one of
    another kind, or is an option."""
    instance = tiny_instance(seed)
    model, policy = instance.model, instance.policy
    if not isinstance(model, StepModel):
        return
    ways = ways_of(model, policy)
    assert all(way.rules for way in ways.values())
    assert not any(rule.words.startswith("none of the cuts") for way in ways.values() for rule in way.rules)
    every = Policy(tiers=PLACEMENT_TIERS, shardings=SHARDINGS)
    left = ways_of(model, every)
    for at, way in ways.items():
        if any(rule.kind == "policy" for rule in way.rules) and at in left:
            assert {rule.kind for rule in left[at].rules}.isdisjoint({"policy"})
        if not any(rule.kind == "policy" for rule in way.rules) and way.tier != "hbm_mixed":
            assert at in left or way.rules[0].kind == "search"
