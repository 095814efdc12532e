"""A question is what its inputs say: the runtime's software, the policy's limits, the cost model's name."""

import pytest

from cost_models.shards import HBM
from planner.formulation.policy import Policy, policy_document
from planner.formulation.question import Question, narrowed_policy
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

CLUSTER = topology(node_group("a", nodes=2))
TRAINED = workload([{"rows": 1000, "dim": 64}] * 3)


def test_the_formulation_keeps_to_the_policy_and_the_flags() -> None:
    """One sharding in one tier leaves one option for each table; the steps of the work are told in their order."""
    told: list[str] = []
    question = Question.asked(CLUSTER, TRAINED, narrowed_policy(None, ["hbm"], ["row_wise"]))
    formulation = question.formulation(lambda step, *_: told.append(step))
    assert formulation.options.table.tolist() == [0, 1, 2]
    assert formulation.options.tier.tolist() == [HBM] * 3
    assert told == ["ways to hold each table", "what each way costs"]


def test_the_workload_is_priced_as_the_runtime_runs_it() -> None:
    """HugeCTR's profile for a HugeCTR plan; the policy's reserve is kept free."""
    document = policy_document(Policy(runtime="hugectr"))
    assert Question.asked(CLUSTER, TRAINED, document).model().coefficients.software.name == "hugectr"
    plain = Question(CLUSTER, TRAINED, Policy()).model().memory_capacity[0]
    kept = Policy.model_validate({"reserve": {"hbm": "50%"}})
    assert Question(CLUSTER, TRAINED, kept).model().memory_capacity[0] == pytest.approx(0.5 * plain)


@pytest.mark.parametrize(("tiers", "shardings", "word"), [(["hbn"], None, "hbn"), (None, ["tablewise"], "tablewise")])
def test_unknown_names_are_refused(tiers: list[str] | None, shardings: list[str] | None, word: str) -> None:
    """With what was meant."""
    with pytest.raises(InputError, match=f"{word}.*did you mean"):
        narrowed_policy(None, tiers, shardings)
