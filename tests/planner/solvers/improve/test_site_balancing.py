"""Swaps between groups of ranks towards ever lower aims."""

import numpy as np
import pytest

from cost_models.registry import cost_model
from cost_models.shards import NODE
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.site_bins import MANY
from planner.solvers.improve.improver import Improver
from planner.solvers.improve.site_balancing import LAST_STEP, SiteBalancer, _best_pair, _fitting
from planner.solvers.improve.state import SearchState
from tests.oracles.instances import node_group, topology, workload

TABLES = 20 * MANY


def _problem(nodes: int) -> Problem:
    tables = [{"rows": 20_000 + 137 * i, "dim": 64, "pooling_factor": 1 + 3 * i % 8} for i in range(TABLES)]
    model = cost_model("physical", topology(node_group("a", nodes=nodes, ranks=2)), workload(tables))
    return build_problem(model, enumerate_options(model, Policy(tiers=("hbm",), shardings=("table_row_wise",))))


def _at_random(problem: Problem, seed: int) -> Placement:
    """One node-wide block of each table, at any node."""
    wide = np.flatnonzero(problem.block_extent == NODE)
    blocks = wide[np.unique(problem.table_of_block[wide], return_index=True)[1]]
    return Placement(blocks, np.random.default_rng(seed).integers(0, len(problem.node_start) - 1, len(blocks)))


@pytest.mark.parametrize("seed", [0, 1])
def test_all_stages_come_near_their_means(seed: int) -> None:
    """From any placement the step comes within 1 per cent of what it takes spread evenly, and the books are right: the
    same blocks, the memory and the step of the placement."""
    problem = _problem(MANY)
    placement = _at_random(problem, seed)
    improver = Improver(problem, placement, seed)
    before = load_state(problem, placement).step_s()
    rounds = 0
    while improver.balance_sites() and rounds < 60:
        rounds += 1
    found = improver.best()
    state = load_state(problem, found)
    assert sorted(found.item_block.tolist()) == sorted(placement.item_block.tolist())
    assert state.step_s() == pytest.approx(improver.best_s)
    assert state.overflow_bytes() == 0
    mean = np.zeros(len(problem.stage_constants))
    np.maximum.at(mean, problem.stage_of_column, state.load.mean(axis=1))
    even_s = float((mean + problem.stage_constants).sum())
    assert state.step_s() - even_s < 0.2 * (before - even_s)
    assert state.step_s() <= 1.01 * even_s


def test_the_same_seed_gives_the_same_places() -> None:
    """Twice from one placement."""
    problem = _problem(MANY)
    places = []
    for _ in range(2):
        improver = Improver(problem, _at_random(problem, 0), 3)
        for _ in range(3):
            assert improver.balance_sites()
        places.append(improver.best().item_place.tolist())
    assert places[0] == places[1]


def test_few_groups_are_left_to_other_moves() -> None:
    """So that plans of small clusters stay as they are."""
    problem = _problem(MANY - 1)
    assert not Improver(problem, _at_random(problem, 0), 0).balance_sites()


@pytest.mark.parametrize("columns", [1, 4, 9])
def test_the_best_swap_is_the_best_one_by_one(columns: int) -> None:
    """Of every pair of blocks of two sites, or a block and none, that fits two memories: by the squares above the aim,
    added up."""
    random, found = np.random.default_rng(columns), 0
    for _ in range(20):
        here, there = random.normal(size=(2, columns)) * 0.3
        here[0], there[0] = 0.4, -0.2
        out, into = (np.vstack([random.random((n, columns)) * 0.3, np.zeros(columns)]) for n in (5, 7))
        out_bytes, into_bytes = (np.vstack([random.random((n, 2)), np.zeros(2)]) for n in (5, 7))
        room, back = np.array([0.3, 9.0]), np.array([9.0, 0.4])
        fitting = _fitting(out_bytes, into_bytes, room, back)
        alone = np.full((6, 8), np.inf)
        for gone, come in np.ndindex(6, 8):
            less, size = out[gone] - into[come], out_bytes[gone] - into_bytes[come]
            assert fitting[gone, come] == ((size <= room).all() and (-size <= back).all())
            if fitting[gone, come]:
                alone[gone, come] = sum(max(a, 0.0) ** 2 for a in [*(here - less).tolist(), *(there + less).tolist()])
        assert 0 < fitting.sum() < fitting.size
        now = float((np.maximum(np.stack([here, there]), 0.0) ** 2).sum())
        best = _best_pair(here, there, out, into, fitting, now)
        assert (best is None) == (alone.min() >= now)
        assert best is None or alone[best] == pytest.approx(alone.min(), rel=1e-12, abs=1e-15)
        found += best is not None
    assert found > 5


def test_where_loads_come_in_steps_sites_aim_at_one() -> None:
    """At the first step that is above the mean, at once; once that is not reached, at what the fullest is on. All other
    stages go half of the way."""
    problem = _problem(MANY)
    state = SearchState(problem, _at_random(problem, 0), 0)
    balancer = SiteBalancer(state)
    full = np.maximum.reduceat(state.loads.load, problem.node_start[:-1], axis=1)
    columns, aim_s = balancer._aim(full)
    in_steps = 0
    for column, target_s in zip(columns.tolist(), aim_s.tolist(), strict=True):
        steps = np.diff(np.unique(np.round(full[column], 12)))
        longest_s, mean_s = full[column].max(), full[column].mean()
        if len(steps) > 20:
            assert target_s == pytest.approx((longest_s + mean_s) / 2, rel=1e-3)
            continue
        in_steps += 1
        assert full[column].min() + np.round((target_s - full[column].min()) / steps.min()) * steps.min() == (
            pytest.approx(target_s, rel=1e-6)
        )
        assert mean_s < target_s < mean_s + 1.1 * steps.min()
    assert 0 < in_steps < len(columns)
    balancer._steps[:], balancer._target_s = LAST_STEP, None
    columns, aim_s = balancer._aim(full)
    assert aim_s == pytest.approx(full[columns].max(axis=1), rel=1e-4)
