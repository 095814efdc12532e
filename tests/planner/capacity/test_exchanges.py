"""Sizes are judged under every exchange of vectors that the policy leaves open."""

import math

import pytest

from planner import plan
from planner.capacity.size_searches import SizeSearches
from planner.capacity.sizing import size
from planner.formulation.policy import Policy, policy_document
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 100_000 * (i + 1), "dim": 64, "pooling_factor": 5.0} for i in range(4)]
CLUSTER = topology(node_group("a", nodes=16, ranks=2, nic_bytes_per_s=5e9))
TRAINED = workload(TABLES, global_batch=2**18, overhead="100us", pipeline="none")


def rules(exchange: str) -> Policy:
    shardings = ("table_wise", "column_wise", "table_row_wise")
    return Policy(exchange=exchange, shardings=shardings, tiers=("hbm",))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_size_does_where_one_exchange_does() -> None:
    """A step that only towers reach: flat is rejected by its bound, `auto` accepted by their plan; and none reaches one
    below both bounds, which the lower of the two says."""
    limits = {"effort": 0, "gap": 0.01, "simulate": False}
    flat, sptt = (plan(CLUSTER, TRAINED, policy=rules(name), **limits).objective for name in ("flat", "sptt"))  # type: ignore[arg-type]
    assert flat is not None
    assert sptt is not None
    assert sptt.step_s < 0.99 * flat.lower_bound_s

    def searches(exchange: str, longest_s: float) -> SizeSearches:
        policy = rules(exchange)
        document = policy_document(None)
        return SizeSearches(CLUSTER, TRAINED, policy, document, 0, None, longest_s, 0, 0.01, 0, lambda: False)

    between_s = math.sqrt(sptt.step_s * flat.lower_bound_s)
    rejected = searches("flat", between_s).judge(("hbm",), 16)
    assert (rejected.suffices, rejected.judged_by) == (False, "bound")
    either = searches("auto", between_s)
    accepted = either.judge(("hbm",), 16)
    assert (accepted.suffices, accepted.judged_by) == (True, "plan")
    answer, found = either.finished(("hbm",), accepted)
    assert found.provenance.exchange == "sptt"
    assert found.other_exchange is not None
    assert answer.suffices
    assert answer.lower_bound_s == found.objective.lower_bound_s  # type: ignore[union-attr]
    none = searches("auto", 0.9 * sptt.lower_bound_s).judge(("hbm",), 16)
    assert (none.suffices, none.judged_by) == (False, "bound")
    assert none.lower_bound_s is not None
    assert none.lower_bound_s <= sptt.lower_bound_s * (1 + 1e-9)


@pytest.mark.slow
def test_the_answer_says_which_exchange_it_takes() -> None:
    """A note where the policy leaves it open, and none where it does not."""
    for exchange, is_told in (("flat", False), ("auto", True)):
        (found,) = size(
            CLUSTER, TRAINED, max_step_s=0.1, policy=rules(exchange), max_nodes=2, each_tier=False, effort=0
        )
        assert found.answer is not None
        assert any("exchange auto: flat" in note for note in found.notes) == is_told


def test_sizes_are_those_that_towers_divide() -> None:
    """Two towers are on an even number of hosts; no other is judged."""
    tables = [{"rows": 50_000, "dim": 64}] * 4
    trained = workload(tables, global_batch=65_536, towers={"count": 2, "module": "linear", "compression": 2})
    at = topology(node_group("a", nodes=2, ranks=2))
    (sizing,) = size(at, trained, policy=Policy(exchange="sptt"), max_nodes=5, each_tier=False)
    assert sizing.answer is not None
    assert sizing.answer.nodes % 2 == 0
    assert {candidate.nodes for candidate in sizing.candidates} <= {2, 4}
