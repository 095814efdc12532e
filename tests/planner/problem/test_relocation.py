"""What moves when one plan follows another: counted cell by cell, and in the order of columns that keeps most."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.goals import HbmMemories
from planner.problem.placement import Placement
from planner.problem.relocation import (
    EXACT_BLOCKS,
    IncumbentPlacement,
    Rectangles,
    best_order,
    existing_cells,
    kept_cells,
)
from tests.oracles.incumbents import incumbent, table_bytes, whole_tables
from tests.oracles.instances import node_group, topology, workload

WORLD, ROWS, COLUMNS = 3, 6, 8


def _parts(rectangles: list[tuple[int, int, int, int, int, int, int, int]]) -> Rectangles:
    return Rectangles(*(np.array(column, dtype=np.int64) for column in zip(*rectangles, strict=True)))


@st.composite
def _held(draw: st.DrawFn) -> Rectangles:
    """Draw rectangles of two tables on three ranks; those of one table on one rank are bands that do not overlap."""
    rectangles = []
    for table, rank in itertools.product(range(2), range(WORLD)):
        start = 0
        for _ in range(draw(st.integers(0, 2))):
            first = draw(st.integers(start, ROWS))
            rows = draw(st.integers(0, ROWS - first))
            column = draw(st.integers(0, COLUMNS))
            columns = draw(st.integers(0, COLUMNS - column))
            memory, state = draw(st.integers(0, 1)), draw(st.integers(0, 1))
            rectangles.append((table, rank, first, rows, column, columns, memory, state))
            start = first + rows
    return _parts(rectangles or [(0, 0, 0, 0, 0, 0, 0, 0)])


def _cells(parts: Rectangles, i: int) -> set[tuple[int, int]]:
    """Return the (row, column) of the cells of a part."""
    rows = range(int(parts.row_start[i]), int(parts.row_start[i] + parts.rows[i]))
    columns = range(int(parts.column_start[i]), int(parts.column_start[i] + parts.columns[i]))
    return set(itertools.product(rows, columns))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(new=_held(), before=_held())
def test_kept_cells_are_those_that_the_rank_held(new: Rectangles, before: Rectangles) -> None:
    """In any memory, in the same one, and with the optimizer state in the same one; by sets of cells."""
    found = kept_cells(new, before.sorted_by_place(WORLD), WORLD)
    for i in range(len(new)):
        expected = [0, 0, 0]
        for j in range(len(before)):
            if (before.table[j], before.rank[j]) == (new.table[i], new.rank[i]):
                cells = len(_cells(new, i) & _cells(before, j))
                same, state = before.memory[j] == new.memory[i], before.state_memory[j] == new.state_memory[i]
                expected = [expected[0] + cells, expected[1] + cells * bool(same), expected[2] + cells * bool(state)]
        assert [of_sort[i] for of_sort in found] == expected


@settings(max_examples=100, deadline=None, derandomize=True)
@given(parts=_held(), rows=st.lists(st.integers(0, ROWS), min_size=2, max_size=2))
def test_cells_of_rows_that_were_there_exist(parts: Rectangles, rows: list[int]) -> None:
    """A table that has grown has new rows, a new table has no old ones."""
    found = existing_cells(parts, np.array(rows))
    for i in range(len(parts)):
        assert found[i] == sum(row < rows[parts.table[i]] for row, _ in _cells(parts, i))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(widths=st.lists(st.integers(1, 3), min_size=1, max_size=5), seed=st.integers(0, 10**6))
def test_the_best_order_keeps_most(widths: list[int], seed: int) -> None:
    """As much as the best of all permutations of a few blocks."""
    width = np.array(widths)
    gains = np.random.default_rng(seed).integers(0, 9, size=(len(width), int(width.sum())))
    kept_before = np.concatenate([np.zeros((len(width), 1)), gains.cumsum(axis=1)], axis=1)

    def kept(order: tuple[int, ...]) -> float:
        starts = np.cumsum([0, *width[list(order)]])
        return sum(kept_before[i, starts[k + 1]] - kept_before[i, starts[k]] for k, i in enumerate(order))

    order = tuple(best_order(kept_before, width).tolist())
    assert sorted(order) == list(range(len(width)))
    assert kept(order) == max(map(kept, itertools.permutations(range(len(width)))))


def test_many_blocks_are_ordered_where_they_were() -> None:
    """More blocks than are ordered exactly, each of which kept all at one place: that order is found."""
    blocks, random = 2 * EXACT_BLOCKS, np.random.default_rng(0)
    wanted = random.permutation(blocks)
    kept_before = np.zeros((blocks, blocks + 1))
    for position, block in enumerate(wanted.tolist()):
        kept_before[block, position + 1 :] = 1.0
    assert best_order(kept_before, np.ones(blocks, dtype=np.int64)).tolist() == wanted.tolist()


def test_moved_bytes_are_those_of_tables_that_change_ranks() -> None:
    """Whole tables: nothing moves where all stay, and the whole table where one goes elsewhere."""
    problem = whole_tables(5)
    held = np.arange(5) % problem.world
    before = incumbent(problem, held)
    assert before.moved_bytes(problem, before.start) == pytest.approx(np.zeros(5))
    place = before.start.item_place.copy()
    place[2] = (place[2] + 1) % problem.world
    moved = before.moved_bytes(problem, type(before.start)(before.start.item_block, place))
    assert moved == pytest.approx(np.where(np.arange(5) == 2, table_bytes(problem), 0.0))


def _in_parts(rows: int, ranks: int) -> Problem:
    """A table whose rows are cut into equal parts, but for a shorter last one, on some of the ranks of a node."""
    policy = Policy(tiers=("hbm",), shardings=("multi_rank_row_wise",))
    cluster = topology(node_group("n", nodes=1, ranks=ranks, hbm_bytes=10e9))
    model = planning_model("physical", cluster, workload([{"rows": rows, "dim": 64}]), policy)
    return build_problem(model, enumerate_options(model, policy))


def _held_in_parts(problem: Problem, ranks: tuple[int, ...], size: int) -> IncumbentPlacement:
    """As an earlier plan, so many rows at a time on each of these ranks."""
    n, blocks = len(ranks), len(problem.block_option)
    zeros, of_blocks = np.zeros(n, dtype=np.int64), np.zeros(blocks, dtype=np.int64)
    start = np.arange(n) * size
    rows = np.minimum(size, problem.table_rows[0] - start)
    held = Rectangles(zeros, np.array(ranks), start, rows, zeros, zeros + 64, zeros, zeros)
    return IncumbentPlacement(
        rectangles=held.sorted_by_place(problem.world),
        rows_before=problem.table_rows,
        table_columns=np.array([64]),
        replicated=np.zeros(1, dtype=bool),
        start=Placement(zeros[:0], zeros[:0]),
        loose=zeros[:0],
        block_columns=of_blocks + 64,
        block_memory=of_blocks,
        block_state_memory=of_blocks,
        memories=np.arange(len(problem.pool_capacity)),
        block_bytes=np.full(blocks, problem.table_rows[0] * 64 * 4.0),
        hbm=HbmMemories(),
    )


@pytest.mark.parametrize("option", [0, 1, 2])
def test_parts_of_rows_stay_where_their_rows_were(option: int) -> None:
    """Of a table in two, three or four parts of its rows, on any ranks before and after: what moves is the least of
    all orders in which the parts could be given to their ranks, the shorter part being last."""
    problem, random = _in_parts(1003, 6), np.random.default_rng(option)
    full, last = range(*problem.block_start[option : option + 2].tolist())
    parts, size = option + 2, int(problem.block_rows[full])
    assert size * (parts - 1) + problem.block_rows[last] == 1003
    for _ in range(30):
        before, after = (tuple(random.permutation(6)[:parts].tolist()) for _ in range(2))
        kept = {rank: set(range(k * size, min((k + 1) * size, 1003))) for k, rank in enumerate(before)}

        def moved_rows(order: tuple[int, ...], kept: dict[int, set[int]] = kept) -> int:
            places = ((rank, range(k * size, min((k + 1) * size, 1003))) for k, rank in enumerate(order))
            return sum(len(set(rows) - kept.get(rank, set())) for rank, rows in places)

        least = min(moved_rows((*order, after[-1])) for order in itertools.permutations(after[:-1]))
        placement = Placement(np.array([full] * (parts - 1) + [last]), np.array(after))
        moved = _held_in_parts(problem, before, size).moved_bytes(problem, placement)
        assert moved == pytest.approx([least * 64 * 4])


def test_a_block_of_some_columns_stands_for_a_whole_table() -> None:
    """Whole tables have the bytes of their one block; one that is cut in four has four times those of a block."""
    problem = whole_tables(3)
    before = incumbent(problem, np.zeros(3, dtype=np.int64))
    assert before.whole_bytes(problem) == pytest.approx(table_bytes(problem))
    quarters = dataclasses.replace(before, block_columns=before.block_columns // 4)
    assert quarters.whole_bytes(problem) == pytest.approx(4 * table_bytes(problem))
