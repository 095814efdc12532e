"""Branch nodes: where parts may be beside what is decided, and which children leave nothing out."""

import numpy as np

from planner.certificates.branch_nodes import BranchingRules
from planner.certificates.branch_trees import gap_in
from planner.certificates.parts import PartDecision
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import Policy, build_problem, enumerate_options
from tests.oracles.instances import node_group, topology, workload


def test_only_what_breaks_the_policy_may_be_left_out() -> None:
    """Two tables apart on three ranks: not the case that has them on one; of two equal ranks either."""
    cluster = topology(node_group("a", ranks=3))
    trained = workload([{"rows": 20_000, "dim": 64, "pooling_factor": 5 + i} for i in range(4)])
    policy = Policy.model_validate(
        {"tiers": ("hbm",), "shardings": ("table_wise",), "separate": [{"tables": ["t2", "t3"], "on": "rank"}]}
    )
    model = planning_model("physical", cluster, trained, policy)
    problem = build_problem(model, enumerate_options(model, policy))
    rules = BranchingRules(problem, 1.0, np.zeros(len(problem.stage_constants)))
    beside = rules.child(rules.state({}), 2, 0, PartDecision(2, 2, 0))
    assert beside is not None
    assert rules.child(beside, 3, 0, PartDecision(3, 3, 0)) is None
    assert gap_in(rules, beside, 3, 0, [PartDecision(3, 3, 1)]) is None
    assert gap_in(rules, beside, 3, 0, []) is not None
    assert gap_in(rules, beside, 1, 0, [PartDecision(1, 1, 1)]) is not None
    assert gap_in(rules, beside, 1, 0, [PartDecision(1, 1, 0), PartDecision(1, 1, 1)]) is None
