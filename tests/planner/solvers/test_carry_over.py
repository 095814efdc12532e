"""An incumbent placement carried over: what fits stays, what does not leaves with few bytes, the rest finds a place."""

from dataclasses import replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.carry_over import CarryOver
from tests.oracles.incumbents import incumbent, table_bytes, whole_tables
from tests.oracles.placements import faults, tiny_placement


def carry_over(problem: Problem, rank: np.ndarray, lost: np.ndarray | None = None) -> Placement | None:
    """Return what becomes of whole tables on these ranks."""
    fluid = Fluid(problem)
    return CarryOver(fluid, solve_relaxation(fluid), incumbent(problem, rank, lost)).start(lambda: False)


def test_what_fits_stays() -> None:
    """A placement that fits is carried over as it is, however uneven."""
    problem = whole_tables(10)
    rank = np.array([0] * 7 + [1, 2, 3])
    placement = carry_over(problem, rank)
    assert placement is not None
    assert placement.item_place.tolist() == rank.tolist()


def test_tables_of_lost_ranks_are_placed_and_no_other_moves() -> None:
    """Those whose rank is gone find a place; all others stay."""
    problem = whole_tables(10)
    rank, lost = np.arange(10) % 4, np.arange(10) % 4 == 3
    placement = carry_over(problem, rank, lost)
    assert placement is not None
    assert faults(problem, placement) == []
    assert (placement.item_place[~lost] == rank[~lost]).all()


def test_the_fewest_bytes_that_are_enough_leave_a_rank_that_is_too_full() -> None:
    """All tables on one rank with room for all but the smallest: that one leaves, as any other would move more."""
    problem = whole_tables(6)
    taken = load_state(problem, Placement(np.arange(6), np.zeros(6, dtype=np.int64)))
    used = problem.pool_capacity[0][0] - taken.free[0, 0]
    size = (problem.bytes_fixed + problem.bytes_by_rows)[0, :, 0]
    tight = replace(problem, pool_capacity=(np.full(4, used - size.min() / 2), *problem.pool_capacity[1:]))
    placement = carry_over(tight, np.zeros(6, dtype=np.int64))
    assert placement is not None
    assert load_state(tight, placement).overflow_bytes() == 0
    assert np.flatnonzero(placement.item_place != 0).tolist() == [int(size.argmin())]
    assert table_bytes(problem)[size.argmin()] == table_bytes(problem).min()


def test_nothing_to_carry_over_is_no_start() -> None:
    """An incumbent placement that holds no table leaves nothing to begin with."""
    problem = whole_tables(3)
    fluid, empty = Fluid(problem), np.zeros(0, dtype=np.int64)
    none = replace(incumbent(problem, np.zeros(3, dtype=np.int64)), start=Placement(empty, empty))
    assert CarryOver(fluid, solve_relaxation(fluid), none).start(lambda: False) is None


def test_a_part_is_completed_around_what_is_kept() -> None:
    """Random tiny placements without half of their tables: the kept half stays, and the whole is legal and fits."""
    completed_count = 0
    for seed in range(120):
        case = tiny_placement(seed)
        if case is None or case[0].tables < 2:
            continue
        problem, placement = case
        kept = problem.table_of_block[placement.item_block] % 2 == 0
        part = Placement(placement.item_block[kept], placement.item_place[kept])
        fluid = Fluid(problem)
        empty = np.zeros(0, dtype=np.int64)
        nothing = replace(incumbent(problem, np.zeros(problem.tables, np.int64)), start=Placement(empty, empty))
        completed = CarryOver(fluid, solve_relaxation(fluid), nothing).completed(part, empty)
        if completed is None:
            continue
        completed_count += 1
        whole, step_s = completed
        assert faults(problem, whole) == []
        assert abs(load_state(problem, whole).step_s() - step_s) <= 1e-9 * step_s
        pairs = set(zip(whole.item_block.tolist(), whole.item_place.tolist(), strict=True))
        assert pairs >= set(zip(part.item_block.tolist(), part.item_place.tolist(), strict=True))
    assert completed_count >= 5
