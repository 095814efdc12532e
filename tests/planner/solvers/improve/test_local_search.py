"""Local search of one placement: never worse, near the optimum of brute force, and the incumbent hears of it."""

import numpy as np
import pytest

from cost_models.registry import cost_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.site_bins import MANY
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.fallback import fallback_placement
from planner.solvers.improve import local_search
from planner.solvers.improve.local_search import LATER_SQUARINGS, SQUARINGS, LocalSearch
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import Clock, SearchLimits
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.optima import solvable_problems
from tests.oracles.placements import faults


def test_placements_become_better_and_stay_legal() -> None:
    """The step that is returned is the placement's, at most the start's and at least the optimum; most get near it."""
    near = 0
    for problem, best_s in solvable_problems():
        fluid = Fluid(problem)
        relaxed = relaxed_optimum(fluid)
        start = fallback_placement(fluid, relaxed, Clock(SearchLimits()))
        if start is None:
            continue
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
        placement, step_s = LocalSearch(fluid, relaxed.multipliers, incumbent).improve(start[0], 0, SQUARINGS)
        state = load_state(problem, placement)
        assert faults(problem, placement) == []
        assert state.overflow_bytes() <= 1e-3
        assert abs(state.step_s() - step_s) <= 1e-9 * step_s
        assert best_s * (1 - 1e-9) <= step_s <= start[1] * (1 + 1e-9)
        assert incumbent.best_s == step_s
        near += step_s <= best_s * 1.2
    assert near >= len(solvable_problems()) / 2


def test_the_same_seed_ends_in_the_same_placement() -> None:
    """To the last bit."""
    problem, _ = solvable_problems()[3]
    fluid = Fluid(problem)
    relaxed = relaxed_optimum(fluid)
    start = fallback_placement(fluid, relaxed, Clock(SearchLimits()))
    assert start is not None
    ends = []
    for _ in range(2):
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
        ends.append(LocalSearch(fluid, relaxed.multipliers, incumbent).improve(start[0], 5, LATER_SQUARINGS))
    assert ends[0][1] == ends[1][1]
    assert np.array_equal(ends[0][0].item_place, ends[1][0].item_place)
    assert np.array_equal(ends[0][0].item_block, ends[1][0].item_block)


def test_a_search_that_is_over_returns_what_it_was_given() -> None:
    """Told to stop, it makes no more than one round."""
    problem, _ = solvable_problems()[3]
    fluid = Fluid(problem)
    relaxed = relaxed_optimum(fluid)
    start = fallback_placement(fluid, relaxed, Clock(SearchLimits()))
    assert start is not None
    limits = SearchLimits(gap=0.0, stop=lambda: True)
    incumbent = Incumbent(bound_of(relaxed), limits, lambda *_: None)
    _, step_s = LocalSearch(fluid, relaxed.multipliers, incumbent).improve(start[0], 0, ())
    assert step_s == start[1]


def test_where_only_nodes_swap_a_later_pass_takes_options_beside_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a problem that counts as large: from tables cut in four in two memories, a first search and then others
    end in legal plans, each no worse, and the same with the same seeds; the bound stays below."""
    monkeypatch.setattr(local_search, "REDUCED_BLOCKS", 0)
    monkeypatch.setattr(local_search, "SITE_ROUNDS", 15)
    tables: list[dict[str, object]] = [
        {"rows": 20_000 + 137 * i, "dim": 64, "pooling_factor": (1 + 3 * i % 8) * (10 if i % 8 == 0 else 1)}
        for i in range(4 * MANY)
    ]
    model = cost_model("physical", topology(node_group("a", nodes=MANY, ranks=2, hbm_bytes=4e7)), workload(tables))
    policy = Policy(tiers=("hbm", "ddr"), shardings=("table_row_wise", "grid_shard"))
    problem = build_problem(model, enumerate_options(model, policy))
    count = np.add.reduceat(problem.block_count, problem.block_start[:-1])
    options = np.flatnonzero(count == 4)
    _, first = np.unique(problem.option_table[options], return_index=True)
    last = np.append(first[1:], len(options)) - 1
    taken = options[np.where(np.arange(len(first)) % 2, first, last)]
    blocks = np.concatenate([problem.blocks_of_choice(int(problem.block_start[option])) for option in taken])
    start = Placement(blocks, np.arange(len(blocks)) % MANY)
    assert load_state(problem, start).overflow_bytes() == 0
    fluid = Fluid(problem, integrality_floors(problem))
    relaxed = relaxed_optimum(fluid)
    ends = []
    for _ in range(2):
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
        search = LocalSearch(fluid, relaxed.multipliers, incumbent)
        steps, placement = [load_state(problem, start).step_s()], start
        for seed, norms in ((0, SQUARINGS), (0, LATER_SQUARINGS), (1, LATER_SQUARINGS)):
            placement, step_s = search.improve(placement, seed, norms)
            assert faults(problem, placement) == []
            assert load_state(problem, placement).overflow_bytes() <= 1e-3
            assert load_state(problem, placement).step_s() == pytest.approx(step_s)
            steps.append(step_s)
        assert steps == sorted(steps, reverse=True)
        assert relaxed.bound_s <= steps[-1] == incumbent.best_s
        ends.append((steps, placement.item_block.tolist(), placement.item_place.tolist()))
    assert ends[0] == ends[1]
    assert ends[0][0][2] < ends[0][0][1] < ends[0][0][0]
