"""Whole tables take the place of a mixture whose kinds of sharding cost more than they gain: against brute force."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.shards import SHARDINGS, TABLE_WISE, Ints
from cost_models.step import StepModel
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.planning.whole_tables import with_whole_tables
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.incumbent import Outcome
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.brute_force import optimum
from tests.oracles.instances import node_group, topology, workload

LIMITS = SearchLimits(gap=0.0, effort=2)
TABLES = [
    {"rows": 600_000, "dim": 32, "pooling_factor": 40},
    {"rows": 500, "dim": 4, "pooling_factor": 3},
    {"rows": 90_000, "dim": 4, "pooling_factor": 8},
]


class _Mixed(StepModel):
    """A step that takes so much longer for each kind of sharding beyond the first."""

    mixing_s = 0.0

    def mixing_seconds(self, shardings: Ints) -> float:
        return self.mixing_s * (len(set(shardings.tolist())) - 1)


def _searched(mixing_s: float, policy: Policy | None = None) -> tuple[Formulation, Outcome]:
    model = _Mixed(topology(node_group("g", ranks=2)), workload(TABLES, global_batch=8192))
    model.mixing_s = mixing_s
    formulation = Formulation.of(model, policy or Policy(tiers=("hbm",), shardings=("table_wise", "column_wise")))
    return formulation, solve(formulation.problem, LIMITS)


def _shardings(formulation: Formulation, placement: Placement) -> set[str]:
    return {SHARDINGS[code] for code in np.unique(formulation.options.block_sharding[placement.item_block])}


@pytest.fixture(scope="module")
def whole_s() -> float:
    """The shortest step of whole tables alone, by trying all of them."""
    formulation, _ = _searched(0.0)
    found = optimum(formulation.with_sharding(TABLE_WISE).problem)
    assert found is not None
    return found.step_s


def test_the_instance_has_something_to_decide(whole_s: float) -> None:
    """The search mixes kinds of sharding, and its step is shorter than that of whole tables."""
    formulation, outcome = _searched(0.0)
    assert outcome.placement is not None
    assert outcome.step_s is not None
    assert len(_shardings(formulation, outcome.placement)) > 1
    assert outcome.step_s < whole_s


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999, 1.001, 2.0, 50.0])
def test_whole_tables_are_taken_where_the_mixture_costs_more(share: float, whole_s: float) -> None:
    """At any price of mixing, the shorter of both steps is taken; that of whole tables is the optimum of these."""
    formulation, outcome = _searched(1e-9)
    assert outcome.placement is not None
    assert outcome.step_s is not None
    kinds = len(_shardings(formulation, outcome.placement))
    model = formulation.model
    assert isinstance(model, _Mixed)
    model.mixing_s = share * (whole_s - outcome.step_s) / (kinds - 1)
    found = with_whole_tables(formulation, outcome, LIMITS)
    assert found.bound is outcome.bound
    if share < 1:
        assert found is outcome
        return
    assert found.placement is not None
    assert found.step_s == pytest.approx(whole_s, rel=1e-9)
    assert _shardings(formulation, found.placement) == {"table_wise"}
    assert load_state(formulation.problem, found.placement).step_s() == pytest.approx(whole_s, rel=1e-9)


def test_a_whole_plan_at_the_bound_is_optimal(whole_s: float) -> None:
    """The bound is one on all plans: a step that meets it is called optimal, one above it feasible."""
    formulation, outcome = _searched(1.0)
    assert outcome.bound is not None
    for bound_s, status in ((whole_s, "optimal"), (whole_s * 0.99, "feasible")):
        bounded = replace(outcome, bound=replace(outcome.bound, seconds=bound_s))
        assert with_whole_tables(formulation, bounded, LIMITS).status == status


@pytest.mark.parametrize(
    "policy",
    [
        Policy(tiers=("hbm",), shardings=("column_wise", "row_wise", "data_parallel")),
        Policy.model_validate({"tiers": ["hbm"], "tables": [{"match": "t1", "shardings": "row_wise"}]}),
    ],
)
def test_tables_that_may_not_be_whole_keep_the_plan(policy: Policy) -> None:
    """Where the policy forbids one table to be whole there is nothing to compare with, at any price."""
    formulation, outcome = _searched(1.0, policy)
    assert outcome.placement is not None
    assert with_whole_tables(formulation, outcome, LIMITS) is outcome


def test_nothing_is_made_of_no_plan() -> None:
    """An outcome without a placement stays what it is."""
    formulation, outcome = _searched(1.0)
    none = replace(outcome, status="infeasible", placement=None, step_s=None)
    assert with_whole_tables(formulation, none, LIMITS) is none


def test_whole_tables_keep_to_memory() -> None:
    """Two ranks of which neither holds the large table whole: the mixture stays, whatever it costs."""
    large = [{"rows": 2_000_000, "dim": 128}, *TABLES[1:]]
    model = _Mixed(topology(node_group("g", ranks=2, hbm_bytes=0.7e9)), workload(large, global_batch=256))
    model.mixing_s = 1.0
    formulation = Formulation.of(model, Policy(tiers=("hbm",)))
    outcome = solve(formulation.problem, LIMITS)
    assert outcome.placement is not None
    assert with_whole_tables(formulation, outcome, LIMITS) is outcome
