"""Finishing: of plans that are nearly as fast, one with no crowded rank, few blocks and a fullest rank less full."""

from dataclasses import replace

import numpy as np
import pytest

from planner import plan
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.goals import CROWDED, GIVE, USUAL
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.finishing import Ends, finished
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.instances import confined_instance, node_group, tiny_instance, topology, unlike_tables, workload
from tests.oracles.placements import faults


def problem_of(*, hbm_bytes: float = 1e9, ranks: int = 4, tables: int = 4, rows: int = 500_000) -> Problem:
    """Equal tables of 64 columns, in HBM."""
    cluster = topology(node_group("n", ranks=ranks, hbm_bytes=hbm_bytes))
    trained = workload([{"rows": rows, "dim": 64} for _ in range(tables)])
    policy = Policy(tiers=("hbm",), shardings=("table_wise", "column_wise"))
    model = planning_model("physical", cluster, trained, policy)
    return build_problem(model, enumerate_options(model, policy))


def outcome_of(problem: Problem, placement: Placement, *, is_optimal: bool = False) -> Outcome:
    """As a search would tell it, with a bound that is its step or far away."""
    outcome = solve(problem, SearchLimits(effort=0))
    assert outcome.bound is not None
    step_s = load_state(problem, placement).step_s()
    bound = replace(outcome.bound, seconds=step_s if is_optimal else outcome.bound.seconds / 2)
    return Outcome("optimal" if is_optimal else "feasible", placement, step_s, bound, None)


def placed(problem: Problem, parts: int, first_rank: int = 0) -> Placement:
    """Every table in so many equal blocks, on one rank after the other."""
    blocks, places = [], []
    for table in range(problem.tables):
        types = np.arange(*problem.table_block_start[table : table + 2])
        width = int(problem.option_units[problem.block_option[types[0]]]) // parts
        block = int(types[problem.block_units[types] == width][0])
        blocks += [block] * parts
        places += [(table * parts + first_rank + part) % problem.world for part in range(parts)]
    return Placement(np.array(blocks), np.array(places))


def fullest(problem: Problem, placement: Placement) -> float:
    """The largest share of a rank's HBM that is taken."""
    free = load_state(problem, placement).free[0]
    return float((1 - free / problem.pool_capacity[0][problem.pool_of_rank[0]]).max())


def all_on_one(problem: Problem) -> Placement:
    """Every table whole, on rank 0."""
    whole = placed(problem, 1)
    return Placement(whole.item_block, np.zeros_like(whole.item_place))


def without_time(problem: Problem) -> Problem:
    """The same, with tables that cost no time: only what is wanted besides decides."""
    none = np.zeros_like(problem.fixed)
    return replace(problem, fixed=none, by_rows=none, everywhere=none)


def test_several_blocks_become_one() -> None:
    """A table that gains nothing by being cut is held as a whole."""
    problem = without_time(problem_of())
    before = placed(problem, 4)
    after = finished(problem, outcome_of(problem, before)).outcome.placement
    assert after is not None
    assert len(after.item_block) == problem.tables
    assert faults(problem, after) == []


def test_no_rank_stays_crowded_that_need_not() -> None:
    """All tables on one rank, which they fill to more than nine tenths: others take some."""
    problem = without_time(problem_of(hbm_bytes=10e9))
    taken = 10e9 - load_state(problem, all_on_one(problem)).free[0][0]
    problem = without_time(problem_of(hbm_bytes=taken / 0.97))
    before = all_on_one(problem)
    assert fullest(problem, before) > CROWDED
    after = finished(problem, outcome_of(problem, before)).outcome.placement
    assert after is not None
    assert fullest(problem, after) <= CROWDED


def test_the_fullest_rank_becomes_emptier() -> None:
    """Where nothing else is at stake, tables are shared out."""
    problem = without_time(problem_of(tables=8))
    before = all_on_one(problem)
    after = finished(problem, outcome_of(problem, before)).outcome.placement
    assert after is not None
    assert fullest(problem, after) < fullest(problem, before) - 0.05
    assert len(after.item_block) == 8


@pytest.mark.slow
@pytest.mark.parametrize("is_optimal", [False, True])
def test_no_more_is_given_up_than_may_be(is_optimal: bool) -> None:
    """0.1 % of the best step, and of a plan that was proven optimal only what the word allows; all stays legal."""
    instances = [tiny_instance(seed) for seed in range(30)] + [confined_instance(seed) for seed in range(10)]
    problems = [each.problem for each in instances if len(each.options.table)]
    for problem in problems:
        outcome = solve(problem, SearchLimits(gap=0.0 if is_optimal else 1.0))
        if outcome.placement is None or outcome.step_s is None:
            continue
        final = finished(problem, outcome)
        assert final.best_step_s == outcome.step_s
        assert final.outcome.placement is not None
        assert final.outcome.step_s is not None
        assert final.outcome.step_s <= outcome.step_s * (1 + GIVE)
        assert load_state(problem, final.outcome.placement).step_s() == pytest.approx(final.outcome.step_s, rel=1e-12)
        assert faults(problem, final.outcome.placement) == []
        assert load_state(problem, final.outcome.placement).overflow_bytes() <= 1e-3
        assert len(final.outcome.placement.item_block) <= len(outcome.placement.item_block)
        if outcome.status == "optimal":
            assert final.outcome.status == "optimal"
            assert final.outcome.bound is not None
            assert final.outcome.step_s <= final.outcome.bound.seconds * (1 + OPTIMAL_GAP) * (1 + 1e-12)


@pytest.mark.parametrize("seed", [10, 21, 25])
def test_a_default_plan_crowds_no_rank_without_need(seed: int) -> None:
    """Tables of very unlike sizes fill 40 % of the HBM, one rank to more than nine tenths if only the step counts: no
    rank is crowded, for at most 0.1 % of the step; with room for a longest step, not even that."""
    default = plan(*unlike_tables(seed), effort=1, simulate=False)
    assert default.objective is not None
    assert max(rank.bytes.hbm / rank.capacity.hbm for rank in default.ranks) <= CROWDED
    assert (default.objective.given_up_s or 0.0) <= GIVE * default.objective.step_s


def test_a_longest_step_is_kept() -> None:
    """Nothing is given up that would make a step longer than was asked for."""
    model = planning_model("physical", *unlike_tables(1), Policy())
    problem = build_problem(model, enumerate_options(model, Policy()))
    before = solve(problem, SearchLimits())
    assert before.step_s is not None
    free, limited = finished(problem, before), finished(problem, before, ends=Ends(longest_s=before.step_s))
    assert free.outcome.step_s is not None
    assert free.outcome.step_s > before.step_s
    assert limited.outcome.step_s is not None
    assert limited.outcome.step_s <= before.step_s


def test_a_gap_that_was_asked_for_is_kept() -> None:
    """Half of what would be given up leaves the gap that was asked for: no more is, unless a tolerance is stated."""
    model = planning_model("physical", *unlike_tables(1), Policy())
    problem = build_problem(model, enumerate_options(model, Policy()))
    before = solve(problem, SearchLimits())
    free = finished(problem, before)
    assert before.step_s is not None
    assert before.bound is not None
    assert free.outcome.step_s is not None
    gap = (before.step_s + free.outcome.step_s) / 2 / before.bound.seconds - 1
    kept = finished(problem, before, ends=Ends(gap=gap)).outcome
    assert kept.step_s is not None
    assert before.step_s <= kept.step_s <= before.bound.seconds * (1 + gap) < free.outcome.step_s
    missed = finished(problem, before, ends=Ends(gap=before.step_s / before.bound.seconds - 1 - 1e-6)).outcome
    assert missed.step_s == free.outcome.step_s
    stated = [replace(USUAL[0], tolerance=GIVE), *USUAL[1:]]
    assert finished(problem, before, ends=Ends(stated, gap=gap)).outcome.step_s == free.outcome.step_s


def test_it_repeats() -> None:
    """The same plan gives the same plan."""
    problem = problem_of(tables=6)
    outcome = solve(problem, SearchLimits())
    first, second = (finished(problem, outcome).outcome.placement for _ in range(2))
    assert first is not None
    assert second is not None
    assert np.array_equal(first.item_block, second.item_block)
    assert np.array_equal(first.item_place, second.item_place)


def test_without_a_plan_there_is_nothing_to_finish() -> None:
    """What was found stays as it is."""
    nothing = Outcome("timeout", None, None, None, None)
    assert finished(problem_of(), nothing).outcome is nothing
