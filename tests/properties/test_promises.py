"""What the planner promises of its plans, over every placement that the plan document's rules accept.

The judge (`tests.oracles.judge`) shares no code with the planner's options: it writes placements by the words of the
document and the policy, and has the cost model say what they take.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.oracles.judge import Verdict, judged
from tests.oracles.questions import Question, from_yaml, question
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


def dgx_h100(nodes: int) -> dict[str, Any]:
    return load_topology("dgx-h100", nodes=nodes).model_dump(mode="json", exclude_defaults=True)


def told(verdict: Verdict, subject: Question) -> str:
    """What is broken, and how to ask again."""
    said = [verdict.kind or "", verdict.words, *verdict.traits, *verdict.refused_by_verify]
    return "\n".join([*said, subject.to_yaml()])


CASES = {
    "a grid in three on three nodes": asked(cluster(3, 2), {"dim": 96, "pooling_factor": 50}),
    "a grid in three on three of a catalog's nodes": asked(dgx_h100(3), {"dim": 96, "pooling_factor": 40}),
    "a sequence of 8 columns in two": asked(cluster(1, 2), {"dim": 8, "pooling_factor": 50, "pooled": False}),
    "12 columns in three on three ranks": asked(cluster(1, 3), {"dim": 12}),
    "12 columns that must be cut": asked(dgx_h100(1), {"dim": 12}, {"shardings": ["column_wise"]}),
    "20 columns in two at most": asked(dgx_h100(1), {"dim": 20}, {"shardings": ["column_wise"], "max_shards": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_promises_hold_where_they_were_broken(name: str) -> None:
    """No placement is below the bound, or fits where nothing is said to, for what options once left out."""
    verdict = judged(CASES[name])
    assert verdict.kind is None, told(verdict, CASES[name])


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(number=st.integers(0, 2**31))
def test_promises_hold(number: int) -> None:
    """No placement is below the bound or beats what is called optimal; nothing fits where nothing is said to."""
    subject = question(number)
    verdict = judged(subject, number)
    assert verdict.kind is None, told(verdict, subject)


def test_a_question_is_asked_again_from_its_text() -> None:
    """What an audit prints is the same question."""
    for number in range(20):
        assert from_yaml(question(number).to_yaml()) == question(number)
