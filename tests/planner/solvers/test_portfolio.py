"""Restrictions beside the whole: a wider choice is never worse, nor is more effort."""

import gc
import itertools

import numpy as np
import pytest

from cost_models.shards import PLACEMENT_TIERS, SHARDINGS
from cost_models.step import StepModel
from cost_models.workload import load_workload
from cost_models.workload.models import Workload
from planner.formulation.allowed_choices import planning_model
from planner.formulation.formulation import Formulation
from planner.formulation.options import Options, build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.formulation.restrictions import restrictions
from planner.planning.caches import with_own_fractions
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.solvers.incumbent import OPTIMAL_GAP
from planner.solvers.limits import SearchLimits
from planner.solvers.portfolio import Portfolio
from planner.solvers.search import solve
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.loading import load_topology

SAME = 1e-9
ALONE = [
    *(Policy(tiers=(tier,)) for tier in ("hbm", "ddr_cached", "ddr")),
    *(Policy(shardings=(sharding,)) for sharding in SHARDINGS),
    Policy(max_shards=1),
]
"""One tier, one sharding, whole tables."""


def inputs(seed: int) -> tuple[Topology, Workload]:
    """A cluster of 2 to 16 ranks whose HBM is short or ample, and 6 to 30 tables of very unlike sizes."""
    random = np.random.default_rng([seed, 16])
    nodes, ranks = int(random.choice([1, 2, 4])), int(random.choice([2, 4]))
    tables: list[dict[str, object]] = [
        {
            "rows": int(10 ** random.uniform(3, 6)),
            "dim": int(random.choice([16, 32, 64])),
            "pooling_factor": float(random.choice([1, 5, 20, 80])),
            "zipf_alpha": float(random.choice([0.0, 0.8, 1.1])),
        }
        for _ in range(int(random.integers(6, 30)))
    ]
    size = sum(int(str(table["rows"])) * int(str(table["dim"])) * 4 for table in tables)
    hbm_bytes = size * float(random.choice([0.4, 0.8, 4.0])) / (nodes * ranks) + 2e8
    group = node_group("n", nodes=nodes, ranks=ranks, hbm_bytes=hbm_bytes, ddr_bytes=size * 3 + 1e9)
    return topology(group), workload(tables, global_batch=2048 * nodes * ranks)


def question(seed: int, policy: Policy) -> tuple[Options, Problem] | None:
    """Options and problem under a policy; None where it leaves a table out."""
    model = planning_model("physical", *inputs(seed), policy)
    options = enumerate_options(model, policy)
    if len(np.unique(options.table)) < len(model.tables.rows):
        return None
    return options, build_problem(model, options)


def step_s(options: Options, problem: Problem, limits: SearchLimits) -> float:
    """Of the plan found; infinite where there is none."""
    outcome = solve(problem, limits, restrictions=restrictions(options))
    return np.inf if outcome.step_s is None else outcome.step_s


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_restricted_policy_has_a_better_plan(seed: int) -> None:
    """One sharding, one tier, whole tables: each asked on its own, within the gap that is usual."""
    whole = question(seed, Policy())
    assert whole is not None
    default_s = step_s(*whole, SearchLimits())
    for policy in ALONE:
        alone = question(seed, policy)
        if alone is not None:
            assert default_s <= step_s(*alone, SearchLimits()) * (1 + max(SAME, OPTIMAL_GAP)), policy


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 4])
def test_more_effort_is_never_worse(seed: int) -> None:
    """Every pass begins with what the ones before found."""
    whole = question(seed, Policy())
    assert whole is not None
    steps = [step_s(*whole, SearchLimits(gap=0.0, effort=effort)) for effort in range(3)]
    assert all(more <= less * (1 + SAME) for less, more in itertools.pairwise(steps)), steps


def test_more_time_is_never_worse() -> None:
    """On a clock that counts how often it is read: a longer search makes the same steps, and more."""
    whole = question(3, Policy())
    assert whole is not None
    steps = [step_s(*whole, timed(reads)) for reads in (50, 400, 1200)]
    assert all(more <= less * (1 + SAME) for less, more in itertools.pairwise(steps)), steps
    assert steps[-1] < np.inf


def timed(reads: int) -> SearchLimits:
    """A time limit of so many readings of the clock."""
    count = iter(range(10**9))
    return SearchLimits(time_limit_s=float(reads), gap=0.0, effort=None, clock=lambda: float(next(count)))


def test_whole_tables_are_found_where_they_balance() -> None:
    """Equal tables, a multiple of the ranks: no search among their parts ends above the plan of whole tables."""
    model = load_workload("model-i")
    tables = tuple(table.model_copy(update={"rows": table.rows // 2}) for table in model.tables)
    half = model.model_copy(update={"tables": tables, "global_batch": 2048 * 64})
    of = StepModel(load_topology("zionex-16", nodes=8), half)
    steps = []
    for policy in (Policy(), Policy(shardings=("table_wise",))):
        options = enumerate_options(of, policy)
        steps.append(step_s(options, build_problem(of, options), SearchLimits()))
    assert steps[0] <= steps[1] * (1 + SearchLimits().gap)


def test_restrictions_are_masks_of_whole_plans() -> None:
    """Every mask leaves each table some block, of one tier, one sharding, or uncut."""
    whole = question(0, Policy())
    assert whole is not None
    options, problem = whole
    masks = restrictions(options)
    words = {words_of(options, mask) for mask in masks}
    assert {"hbm", "ddr", "ddr_cached", "table_wise", "column_wise", "data_parallel, table_wise"} <= words
    for mask in masks:
        assert len(np.unique(problem.table_of_block[mask])) == problem.tables


def words_of(options: Options, mask: np.ndarray) -> str:
    """The tier, if it is one, or the shardings of the blocks."""
    tiers = np.unique(options.tier[options.block_option[mask]])
    if len(tiers) == 1:
        return PLACEMENT_TIERS[int(tiers[0])]
    return ", ".join(sorted(SHARDINGS[code] for code in np.unique(options.block_sharding[mask]).tolist()))


def test_a_plan_of_a_restriction_is_one_of_the_whole() -> None:
    """What is taken over keeps its step and fits."""
    whole = question(2, Policy())
    assert whole is not None
    options, problem = whole
    outcome = solve(problem, SearchLimits(gap=0.0), restrictions=restrictions(options))
    assert outcome.placement is not None
    state = load_state(problem, outcome.placement)
    assert state.step_s() == pytest.approx(outcome.step_s, rel=1e-9)
    assert state.overflow_bytes() <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("effort", [0, 1])
def test_every_tier_is_no_worse_than_the_cached_one(effort: int) -> None:
    """Neo's Model-F in int8 rows, a twentieth of them in full precision too, whose best plans have all tables behind
    caches: found with any effort, where every tier is allowed, within the usual gap (caches have sizes of their own
    under each policy)."""
    model = load_workload("model-f")
    tables = tuple(table.model_copy(update={"precision_cache": 0.05}) for table in model.tables)
    embedding = model.embedding.model_copy(update={"dtype": "int8_row"})
    model = model.model_copy(update={"tables": tables, "embedding": embedding})
    of, steps = StepModel(load_topology("zionex-16"), model), []
    for policy in (Policy(), Policy(tiers=("ddr_cached",))):
        formulation = with_own_fractions(Formulation.of(of, policy))
        steps.append(step_s(formulation.options, formulation.problem, SearchLimits(effort=effort)))
    assert steps[0] <= steps[1] * (1 + SearchLimits().gap)


def test_a_search_leaves_no_problem_behind() -> None:
    """Nor a portfolio, without Python's look for cycles, which comes too late where arrays have gigabytes."""
    formulation = Formulation.of(planning_model("physical", *inputs(0), Policy()), Policy())
    gc.collect()
    before = _alive()
    gc.disable()
    try:
        found = solve(formulation.problem, SearchLimits(effort=1), None, restrictions(formulation.options))
        after = _alive()
    finally:
        gc.enable()
    assert found.placement is not None
    assert after == before


def _alive() -> list[int]:
    every = gc.get_objects()
    return [sum(type(each) is kind for each in every) for kind in (Problem, Portfolio)]  # a proxy is an instance, too
