"""Thresholds that dual feasible functions refute: bounds above the fluid one, and never above the optimum."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import SHIPPED_CASES, torchrec_cases
from planner.certificates.multipliers import Bound
from planner.planning.cache_division import bound_at
from planner.planning.like_bounds import multipliers_at
from planner.planning.planning import plan
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.dual_feasible_cuts import strengthen
from planner.solvers.bound.fluid import Fluid
from planner.verification.verify import verify
from tests.oracles.brute_force import optimum
from tests.oracles.packings import (
    ROUNDING,
    known_optima,
    nine_tables,
    nine_tables_in_stages,
    proven_s,
    strengthened,
    tables_of_two_fifths,
)


def test_sharpening_never_exceeds_the_optimum() -> None:
    """The search for functions ends at most at the optimum, with a proof that gives as much; often above the fluid."""
    better = 0
    for each in known_optima()[::2]:
        fluid = Fluid(each.instance.problem)
        relaxed = solve_relaxation(fluid)
        before = Bound(relaxed.bound_s, relaxed.multipliers, None)
        after = strengthen(fluid, before, each.best.step_s * 1.2)
        assert before.seconds <= after.seconds <= each.best.step_s * (1 + ROUNDING), each.instance.description
        assert proven_s(each.instance, after) == pytest.approx(max(after.seconds, 0.0), rel=1e-6)
        better += after.seconds > before.seconds * 1.001
    assert better > 7


def test_blocks_that_share_no_rank_are_seen() -> None:
    """By their sum nine blocks take little more than one; below two of the shortest, no two are on one rank."""
    nine = nine_tables()
    problem = nine.problem
    shortest = np.sort(problem.whole_load[0, :-1].max(axis=1))[:2].sum()
    before, after = strengthened(nine, 2 * float(shortest))
    assert before.seconds < 0.8 * shortest
    assert shortest * 0.999 < after.seconds <= shortest
    assert proven_s(nine, after) == pytest.approx(after.seconds, rel=1e-9)


def test_blocks_that_share_no_rank_in_all_stages_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables fit a rank in each stage of a step by itself; the functions of several together prove the best plan,
    in which the two of the fewest ids share one, to 0.1 %."""
    nine = nine_tables_in_stages()
    placement = Placement(np.arange(9), np.array([0, 0, 1, 2, 3, 4, 5, 6, 7]))
    step_s = load_state(nine.problem, placement).step_s()
    before, after = strengthened(nine, step_s)
    assert before.seconds < 0.8 * step_s
    assert 0.999 * step_s < after.seconds <= step_s
    assert proven_s(nine, after) == pytest.approx(after.seconds, rel=1e-9)
    assert after.packing is not None
    assert any(len(function.columns) > 1 for function in after.packing.functions)
    monkeypatch.setattr("planner.solvers.bound.dual_feasible_cuts.TOGETHER", 0)
    assert strengthened(nine, step_s)[1].seconds < 0.9 * step_s


def test_tables_that_share_no_memory_are_seen() -> None:
    """Four of five tables fit into HBM, where their bytes let all: what the fifth costs in host memory is proven."""
    five = tables_of_two_fifths()
    best = optimum(five.problem)
    assert best is not None
    before, after = strengthened(five, best.step_s * 1.2)
    assert before.seconds < 0.9 * best.step_s
    assert 0.97 * best.step_s < after.seconds <= best.step_s * (1 + ROUNDING)
    assert proven_s(five, after) == pytest.approx(after.seconds, rel=1e-9)
    assert after.packing is not None
    assert any(function.columns[0] >= len(five.problem.stage_of_column) for function in after.packing.functions)


def test_a_proof_is_made_anew_for_other_costs() -> None:
    """From the functions that are there already, in one go."""
    five = tables_of_two_fifths()
    _, after = strengthened(five, 1.0)
    assert multipliers_at(Fluid(five.problem), after).seconds < 0.95 * after.seconds
    again = bound_at(five.problem, after)
    assert again.seconds == pytest.approx(after.seconds, rel=1e-9)
    assert proven_s(five, again) == pytest.approx(again.seconds, rel=1e-9)


def test_a_proof_is_made_anew_however_little_it_adds() -> None:
    """Of a bound that is known but for some millionths, where no other function would be looked for."""
    five = tables_of_two_fifths()
    before, after = strengthened(five, 1.0)
    known = Bound(after.seconds * (1 - 1e-5), before.multipliers, None)
    fluid = Fluid(five.problem)
    assert strengthen(fluid, known, after.seconds) is known
    again = strengthen(fluid, known, after.seconds, like=after.packing)
    assert again.seconds == after.seconds
    assert proven_s(five, again) == pytest.approx(again.seconds, rel=1e-9)


def test_a_proof_of_slower_blocks_is_none_of_faster_ones() -> None:
    """Multipliers and functions that prove a bound promise no more than the optimum where all blocks take less."""
    five = tables_of_two_fifths()
    _, after = strengthened(five, 1.0)
    parts = {name: 0.7 * getattr(five.problem, name) for name in ("fixed", "by_rows", "everywhere")}
    faster = replace(five.problem, **parts)
    again, best = bound_at(faster, after), optimum(faster)
    assert best is not None
    assert again.seconds <= best.step_s * (1 + ROUNDING)
    assert best.step_s < 0.95 * after.seconds


def test_a_program_that_no_solver_ends_leaves_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solvers that give up prove nothing, and are no crash."""
    fluid = Fluid(nine_tables().problem)
    relaxed = solve_relaxation(fluid)
    before = Bound(relaxed.bound_s, relaxed.multipliers, None)
    monkeypatch.setattr("planner.solvers.bound.master.optimum", lambda *_: None)
    assert strengthen(fluid, before, 2 * before.seconds) is before


@pytest.mark.slow(seconds=15)
def test_a_plan_carries_the_proof() -> None:
    """100 tables on 128 ranks, two or three blocks on each: the document proves its bound by functions, in both cases
    of how far its largest table reaches."""
    case = next(each for each in torchrec_cases(SHIPPED_CASES) if "n100_w128" in each.name)
    limits = {"tiers": case.tiers, "shardings": case.shardings, "effort": 0, "gap": 0.0, "simulate": False}
    found = plan(case.topology(), case.workload(), cost_model=case.cost_model, **limits)
    assert found.proof is not None
    cases = found.proof.reach_cases
    assert cases is not None
    for proof in (cases.inside, cases.outside):
        assert proof.packing is not None
        assert proof.packing.functions
    assert verify(found) == []
    assert found.objective is not None
    assert found.objective.lower_bound_s > 5.22e-3
