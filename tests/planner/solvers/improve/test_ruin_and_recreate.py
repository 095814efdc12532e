"""Tables taken out and put back: offers cost what they say, plans are legal and fit, and get better."""

from dataclasses import replace

import numpy as np
import pytest

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.improve.ruin_and_recreate import Ruin, ruin_steps, temperature_of
from tests.oracles.brute_force import optimum
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.placements import faults, just_large_enough, tiny_placement

STEPS = 150


def cases() -> list[tuple[int, Problem, Placement]]:
    """Seeds of tiny problems, and random placements of these."""
    return [(seed, *found) for seed in range(160) if (found := tiny_placement(seed)) is not None]


def all_of(problem: Problem) -> np.ndarray:
    return np.ones(len(problem.block_option), dtype=bool)


def ruined(problem: Problem, placement: Placement, usable: np.ndarray, steps: int = STEPS, seed: int = 0) -> Ruin:
    relaxed = solve_relaxation(Fluid(problem))
    ruin = Ruin(problem, relaxed.multipliers, usable, load_state(problem, placement).stage_seconds(), seed)
    ruin.start_from(placement)
    ruin.run(steps, 1e-3, lambda: False)
    return ruin


def test_there_are_cases() -> None:
    """Enough random placements to say something."""
    assert len(cases()) >= 15


def test_plans_are_legal_and_never_longer() -> None:
    """Every table stays whole, memory is kept, and the step is the one that is claimed."""
    for seed, problem, placement in cases()[::2]:
        ruin = ruined(problem, placement, all_of(problem))
        best = ruin.best()
        assert best is not None, seed
        assert faults(problem, best) == [], seed
        state = load_state(problem, best)
        assert state.overflow_bytes() <= 1e-3, seed
        assert state.step_s() == pytest.approx(ruin.best_s, rel=1e-9), seed
        assert ruin.best_s <= load_state(problem, placement).step_s() * (1 + 1e-12), seed


@pytest.mark.slow
def test_random_placements_become_nearly_optimal() -> None:
    """Of tiny problems most end within 1 % of the optimum."""
    ratios = []
    for _, problem, placement in cases():
        best = optimum(problem)
        assert best is not None
        ratios.append(ruined(problem, placement, all_of(problem)).best_s / best.step_s)
    assert min(ratios) >= 1 - 1e-9
    assert np.mean(np.array(ratios) <= 1.01) > 0.5


def test_full_memory_is_kept() -> None:
    """Where the pools are just large enough for the placement, no plan is over-full."""
    for seed, problem, placement in cases()[::2]:
        tight = just_large_enough(problem, placement)
        best = ruined(tight, placement, all_of(tight), 40).best()
        assert best is not None
        assert load_state(tight, best).overflow_bytes() <= 1e-3, seed


def test_a_table_in_a_dear_memory_comes_back() -> None:
    """Of tables of one size a fast memory holds a third; the worst third is there. In the end those are that lose
    most by the slow memory: the known optimum."""
    profiles: list[dict[str, object]] = [
        {"rows": 100_000, "dim": 64, "pooling_factor": pooling} for pooling in range(2, 38, 3)
    ]
    policy = Policy(tiers=("hbm", "ddr"), shardings=("table_wise",))
    model = planning_model("physical", topology(node_group("n", ranks=1)), workload(profiles), policy)
    problem = build_problem(model, enumerate_options(model, policy))
    size = problem.whole_bytes[0, :-1]
    is_fast = size[:, 0] > size[:, 0].max() / 2
    fast, slow = np.flatnonzero(is_fast), np.flatnonzero(~is_fast)
    room = float(problem.base_bytes[0] + 4 * size[fast, 0].max() + size[slow, 0].sum())
    tight = replace(problem, pool_capacity=(np.full(1, room), *problem.pool_capacity[1:]))
    rank = np.zeros(len(profiles), dtype=np.int64)
    worst = Placement(np.concatenate([fast[:4], slow[4:]]), rank)
    best = Placement(np.concatenate([slow[:-4], fast[-4:]]), rank)
    optimum_s = load_state(tight, best).step_s()
    assert load_state(tight, worst).step_s() > 1.1 * optimum_s
    assert ruined(tight, worst, all_of(tight), 100).best_s == pytest.approx(optimum_s, rel=1e-9)


def test_repeats_for_a_seed() -> None:
    """The same seed takes the same way."""
    _, problem, placement = cases()[0]
    first, second = (ruined(problem, placement, all_of(problem), seed=3).best() for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.item_block.tolist() == second.item_block.tolist()
    assert first.item_place.tolist() == second.item_place.tolist()


def test_a_built_plan_is_whole() -> None:
    """Built up from nothing, what fits is legal; most tiny problems get a plan that way."""
    built = 0
    for seed, problem, _ in cases():
        relaxed = solve_relaxation(Fluid(problem))
        ruin = Ruin(problem, relaxed.multipliers, all_of(problem), relaxed.stage_seconds, seed)
        ruin.build()
        placement = ruin.best()
        if placement is not None:
            assert faults(problem, placement) == []
            assert load_state(problem, placement).overflow_bytes() <= 1e-3
            built += 1
    assert built >= len(cases()) / 2


def test_passes_are_hot_where_tables_are_few() -> None:
    """Up to three tables for each rank, from the second pass on; the first one is the same whatever there is."""
    profiles: list[dict[str, object]] = [{"rows": 1_000 * (number + 1), "dim": 64} for number in range(7)]
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    problems = []
    for ranks in (4, 2):
        model = planning_model("physical", topology(node_group("n", ranks=ranks)), workload(profiles), policy)
        problems.append(build_problem(model, enumerate_options(model, policy)))
    few, many = problems
    assert temperature_of(few, 0) == temperature_of(many, 0) < temperature_of(many, 2) < temperature_of(few, 1)
    assert {temperature_of(few, number) for number in range(1, 7)} == {temperature_of(few, 1)}
    assert [ruin_steps(few, number) for number in range(5)] == [35, 560, 1120, 1120, 1120]
    assert [ruin_steps(many, number) for number in range(5)] == [35, 140, 560, 2240, 2240]
