"""What the planner promises of its plans, over every placement that the plan document's rules accept.

The judge (`tests.oracles.judge`) shares no code with the planner's options: it writes placements by the words of the
document and the policy, and has the cost model say what they take.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cost_models.registry import cost_model
from planner.document.planned import placed_tables
from tests.oracles import covers, judge, legality
from tests.oracles.choices import Cluster
from tests.oracles.document_rules import rules_of
from tests.oracles.fastest import fastest
from tests.oracles.judge import Verdict, judged
from tests.oracles.questions import Question, from_yaml, question
from tests.oracles.tilings import tilings
from topologies.errors import InputError
from topologies.loading import load_topology


def node_group(nodes: int, ranks: int) -> dict[str, Any]:
    return {
        "name": "a",
        "count": nodes,
        "accelerators": {
            "count": ranks,
            "device": "A100-SXM4-40GB",
            "hbm": {"capacity": "40GB", "bandwidth": "1.5TB/s"},
            "flops": {"fp32": "19.5TFLOP/s", "tf32": "156TFLOP/s"},
        },
        "host": {"ddr": {"capacity": "1TB", "bandwidth": "200GB/s"}},
        "links": {
            "pcie": {"bandwidth": "31.5GB/s"},
            "scale_up": {"kind": "nvlink3", "bandwidth": "300GB/s"},
            "scale_out": {"kind": "infiniband", "count": ranks, "bandwidth": "25GB/s"},
        },
    }


def asked(cluster: dict[str, Any], table: dict[str, Any], policy: dict[str, Any] | None = None) -> Question:
    """A question about one table, trained with 65,536 samples a step."""
    tables = [{"name": "t", "rows": 1_000_000, "pooling_factor": 10, **table}]
    workload = {"name": "one table", "global_batch": 65_536, "software": "hugectr", "tables": tables}
    return Question(cluster, workload, policy or {}, "physical")


def cluster(nodes: int, ranks: int) -> dict[str, Any]:
    return {"name": "cluster", "nodes": [node_group(nodes, ranks)]}


def catalogs(name: str, nodes: int) -> dict[str, Any]:
    return load_topology(name, nodes=nodes).model_dump(mode="json", exclude_defaults=True)


def told(verdict: Verdict, subject: Question) -> str:
    """What is broken, and how to ask again."""
    said = [verdict.kind or "", verdict.words, *verdict.traits, *verdict.refused_by_verify]
    return "\n".join([*said, subject.to_yaml()])


CASES = {
    "a grid in three on three nodes": asked(cluster(3, 2), {"dim": 96, "pooling_factor": 50}),
    "a grid in three on three of a catalog's nodes": asked(
        catalogs("h100-sxm-4", 3), {"dim": 96, "pooling_factor": 40}
    ),
    "a sequence of 8 columns in two": asked(cluster(1, 2), {"dim": 8, "pooling_factor": 50, "pooled": False}),
    "12 columns in three on three ranks": asked(cluster(1, 3), {"dim": 12}),
    "12 columns that must be cut": asked(catalogs("dgx-h100", 1), {"dim": 12}, {"shardings": ["column_wise"]}),
    "20 columns in two at most": asked(
        catalogs("dgx-h100", 1), {"dim": 20}, {"shardings": ["column_wise"], "max_shards": 2}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_promises_hold_where_they_were_broken(name: str) -> None:
    """No placement is below the bound, or fits where nothing is said to, for what options once left out."""
    verdict = judged(CASES[name])
    assert verdict.kind is None, told(verdict, CASES[name])


QUESTIONS = settings(
    deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow]
)


def expect_promises(number: int) -> None:
    """They hold of one random question."""
    subject = question(number)
    verdict = judged(subject, number)
    assert verdict.kind is None, told(verdict, subject)


@settings(QUESTIONS, max_examples=6)
@given(number=st.integers(0, 2**31))
def test_promises_hold(number: int) -> None:
    """No placement is below the bound or beats what is called optimal; nothing fits where nothing is said to."""
    expect_promises(number)


@pytest.mark.slow
@settings(QUESTIONS, max_examples=12)
@given(number=st.integers(0, 2**31))
def test_promises_hold_for_more(number: int) -> None:
    """The same of other questions."""
    expect_promises(number)


@pytest.mark.slow
def test_the_judge_finds_what_the_planner_finds() -> None:
    """Left to itself, it knows a placement as fast as each plan: what the planner uses is no blind spot of it."""
    found = 0
    for number in range(6):
        subject = question(number)
        topology, workload, policy = subject.records
        try:
            plan = judge.asked(subject)
        except InputError:
            continue
        if plan.objective is None or not plan.objective.step_s:
            continue
        model = cost_model(subject.cost_model, topology, workload)
        cluster = Cluster(model, rules_of(model, policy, plan.provenance.cache_fractions))
        best = fastest(cluster, plan.objective.step_s * (1 + 1e-6), start=plan.tables)
        assert best.tables is not None, subject.to_yaml()
        assert legality.faults(model, cluster.rules, best.tables) == []
        taken_s = model.evaluate(placed_tables(best.tables)).step_s
        assert taken_s <= best.step_s * (1 + 1e-9)
        if best.is_exact:
            assert taken_s == pytest.approx(best.step_s, rel=1e-9)
        found += 1
    assert found >= 3


def test_covers_are_all_there() -> None:
    """Of two units on two ranks 5 covers, 2 + 1 of them in one block and in two on different ranks; of three units in
    grids of two nodes 4, and 2 more of one node for both blocks: the wide block and the narrow one have a node each."""
    assert len(covers.on_single_ranks(2, [0, 1], 2, np.inf, 0).counts) == 5
    assert len(covers.on_single_ranks(2, [0, 1], 2, 1, 0).counts) == 2
    assert len(covers.on_single_ranks(2, [1], 2, np.inf, 0).counts) == 2
    assert len(covers.on_different_ranks(2, [[0, 1]], 2, np.inf, even=False, seed=0).counts) == 3
    assert len(covers.on_different_ranks(3, [[0, 1]], 2, np.inf, even=False, seed=0).counts) == 4
    assert len(covers.in_grids(3, [2, 2], [0, 1], np.inf).counts) == 4
    assert len(covers.in_grids(3, [2, 2], [0], np.inf).counts) == 1
    assert len(covers.in_grids(3, [2, 3], [0, 1], 5).counts) == 3


def test_cuts_within_a_limit_are_those_of_all_covers() -> None:
    """Rank by rank, under a limit on a rank's blocks, the same covers as from the list of all of them."""
    random = np.random.default_rng(0)
    pieces = np.zeros((5, 3, 3))
    for rank in range(3):
        pieces[:, rank, rank] = np.sort(random.random(5)) + 0.2
    every = covers.on_single_ranks(5, range(3), 3, 4, 0)
    load = every.counts.reshape(len(every.counts), -1) @ pieces.reshape(15, 3)
    expected = {of.tobytes() for of in every.counts[load.max(axis=1) < 1.0]}
    found = tilings(pieces, np.ones((5, 3), dtype=bool), range(3), 4, lambda load: load.max(axis=1) < 1.0)
    assert found is not None
    assert 0 < len(expected) < len(every.counts)
    assert len(found) == len(expected)
    assert {of.tobytes() for of in found} == expected


def test_a_question_is_asked_again_from_its_text() -> None:
    """What an audit prints is the same question."""
    for number in range(20):
        assert from_yaml(question(number).to_yaml()) == question(number)
