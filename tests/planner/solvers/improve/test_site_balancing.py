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
from planner.solvers.improve.site_balancing import _bar_what_overfills, _penalties
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
def test_swaps_are_priced_as_one_by_one(columns: int) -> None:
    """Every pair of blocks of two sites, or a block and none: the squares above the aim, added up; infinite where one
    of two memories overflows."""
    random = np.random.default_rng(columns)
    here, there = random.normal(size=(2, columns))
    out, into = (np.vstack([random.random((n, columns)), np.zeros(columns)]) for n in (5, 7))
    here[0], there[0] = -9.0, -9.0  # far below the aim, whatever moves
    value = _penalties(here, there, out, into)
    out_bytes, into_bytes = (np.vstack([random.random((n, 2)), np.zeros(2)]) for n in (5, 7))
    room, back = np.array([0.3, 9.0]), np.array([9.0, 0.4])
    barred = value.copy()
    _bar_what_overfills(barred, out_bytes, into_bytes, room, back)
    for gone, come in np.ndindex(6, 8):
        less, size = out[gone] - into[come], out_bytes[gone] - into_bytes[come]
        alone = sum(max(a, 0.0) ** 2 for a in [*(here - less).tolist(), *(there + less).tolist()])
        assert value[gone, come] == pytest.approx(alone, rel=1e-12, abs=1e-15)
        fits = (size <= room).all() and (-size <= back).all()
        assert barred[gone, come] == (value[gone, come] if fits else np.inf)
    assert 0 < np.isinf(barred).sum() < barred.size
