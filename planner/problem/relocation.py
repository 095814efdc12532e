"""What moves when one plan follows another: parts of tables on ranks as arrays, and where they overlap.

A cell is one row of one column of a table. A cell that a rank holds in the new plan is

* kept, if the rank held it before in the same memory (rows and optimizer state each in theirs);
* copied, if the rank held it before in another memory of its host;
* moved, if the rank did not hold it before, but some rank did;
* new, if no rank held it: its table, or its row, was not there.
"""

import itertools
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.goals import HbmMemories
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.products import product
from planner.problem.row_shares import part_at

COLUMN_UNIT = 4
"""Columns of blocks are multiples of 4."""
EXACT_BLOCKS = 9
"""Column blocks up to which all orders are compared (2^9 sets); more are ordered in windows of so many."""


@dataclass(frozen=True)
class Rectangles:
    """Rectangles of tables on ranks. Arrays of [n]."""

    table: Ints
    rank: Ints
    row_start: Ints
    rows: Ints
    column_start: Ints
    columns: Ints
    memory: Ints
    """Index into the memory tiers: where the weights are."""
    state_memory: Ints
    """Index into the memory tiers: where the optimizer state is."""

    def __len__(self) -> int:
        return len(self.table)

    def take(self, index: Ints) -> "Rectangles":
        """Those at these positions."""
        return Rectangles(*(getattr(self, field.name)[index] for field in fields(self)))

    def sorted_by_place(self, world: int) -> "Rectangles":
        """In order of table, then rank."""
        return self.take(np.argsort(self.table * world + self.rank, kind="stable"))


def kept_cells(parts: Rectangles, before: Rectangles, world: int) -> tuple[Floats, Floats, Floats]:
    """Cells of each of the `parts` [n] that its rank held before: in any memory, in the same memory, and with its
    optimizer state in the same memory.

    `before` is sorted by place. Rectangles of one table on one rank do not overlap.
    """
    key, old_key = parts.table * world + parts.rank, before.table * world + before.rank
    first, last = np.searchsorted(old_key, key, side="left"), np.searchsorted(old_key, key, side="right")
    count = last - first
    new = np.repeat(np.arange(len(key)), count)
    old = np.repeat(first - np.cumsum(count) + count, count) + np.arange(len(new))
    cells = _shared(parts.row_start, parts.rows, before.row_start, before.rows, new, old)
    cells *= _shared(parts.column_start, parts.columns, before.column_start, before.columns, new, old)
    same = parts.memory[new] == before.memory[old]
    same_state = parts.state_memory[new] == before.state_memory[old]

    def counted(which: Bools) -> Floats:
        return np.bincount(new, weights=np.where(which, cells, 0), minlength=len(key)).astype(float)

    return counted(np.ones(len(new), dtype=bool)), counted(same), counted(same_state)


def _shared(start: Ints, length: Ints, old_start: Ints, old_length: Ints, new: Ints, old: Ints) -> Ints:
    """How many rows, or columns, two parts have in common."""
    stop = np.minimum(start[new] + length[new], old_start[old] + old_length[old])
    return np.asarray(np.maximum(stop - np.maximum(start[new], old_start[old]), 0))


def existing_cells(parts: Rectangles, rows_before: Ints) -> Floats:
    """[n] cells of each part that some rank held before; `rows_before` [T] is 0 for a new table."""
    stop = np.minimum(parts.row_start + parts.rows, rows_before[parts.table])
    return np.asarray(np.maximum(stop - parts.row_start, 0) * parts.columns, dtype=float)


@dataclass(frozen=True)
class IncumbentPlacement:
    """What an earlier plan held, in the words of a new problem: its tables, blocks and ranks."""

    rectangles: Rectangles
    """On the ranks that are still there, sorted by place."""
    rows_before: Ints
    """[T] rows that the table had; 0 for a new one."""
    table_columns: Ints
    """[T]"""
    replicated: Bools
    """[T] whether every rank held the whole table."""
    start: Placement
    """Blocks of the new problem that are held as they were, of all tables that can stay in part or whole."""
    loose: Ints
    """Blocks of the same tables whose ranks are gone: with those of `start` they make up an option."""
    block_columns: Ints
    """[B]"""
    block_memory: Ints
    """[B] index into the memory tiers."""
    block_state_memory: Ints
    """[B] the same of the optimizer state."""
    memories: Ints
    """[M] the memory tier of each memory of the problem, ascending."""
    block_bytes: Floats
    """[B] weights and optimizer state of all rows of the block."""
    hbm: HbmMemories
    """The memories that are HBM; at one of its moments all of a table is there, stashed or not."""

    def parts_of(self, problem: Problem, placement: Placement) -> tuple[Rectangles, Ints]:
        """The parts of placed blocks, each block's at the columns where the most cells are kept; and their blocks."""
        block, place = self.in_column_order(problem, placement)
        table = problem.option_table[problem.block_option[block]]
        width = self.block_columns[block]
        end = np.cumsum(width)
        opens = np.searchsorted(table, table)
        column = end - width - (end - width)[opens]
        rows_before = _rows_before(problem, block)
        column[problem.option_apart[problem.block_option[block]]] = 0
        item, rank, position, ranks = ranks_of(problem, block, place)
        row_start, rows = _rows(problem, block[item], ranks[item], position)
        parts = Rectangles(
            table=table[item],
            rank=rank,
            row_start=rows_before[item] + row_start,
            rows=rows,
            column_start=column[item],
            columns=width[item],
            memory=self.block_memory[block[item]],
            state_memory=self.block_state_memory[block[item]],
        )
        return parts, block[item]

    def in_column_order(self, problem: Problem, placement: Placement) -> tuple[Ints, Ints]:
        """Blocks and places in order of table and of the columns that they get."""
        table = problem.option_table[problem.block_option[placement.item_block]]
        order = np.lexsort((placement.item_place, placement.item_block, table))
        table = table[order]
        start = np.searchsorted(table, table, side="left")
        stop = np.searchsorted(table, table, side="right")
        cut = np.flatnonzero((stop - start > 1) & (start == np.arange(len(table))))
        for first, last, of in zip(start[cut].tolist(), stop[cut].tolist(), table[cut].tolist(), strict=True):
            if self._table_start[of + 1] > self._table_start[of]:
                items = order[first:last]
                is_part = problem.option_apart[problem.block_option[placement.item_block[items[0]]]]
                ordered = self._row_order if is_part else self._best_order
                order[first:last] = items[ordered(problem, of, placement, items)]
        return placement.item_block[order], placement.item_place[order]

    @cached_property
    def _table_start(self) -> Ints:
        """[T + 1] where each table's parts begin."""
        return np.searchsorted(self.rectangles.table, np.arange(len(self.rows_before) + 1))

    def _row_order(self, problem: Problem, table: int, placement: Placement, items: Ints) -> Ints:
        """An order of the parts of one table's rows in which those that held a part of the same rows do so again; the
        last part, where it is shorter, stays last."""
        block, place = placement.item_block[items], placement.item_place[items]
        before = self.rectangles.take(np.arange(*self._table_start[table : table + 2]))
        count, size = int((block == block[0]).sum()), int(problem.block_rows[block[0]])
        slots: dict[int, int] = {}
        for item in range(count):
            here = np.flatnonzero(before.rank == problem.sites_of(int(block[item])).first[place[item]])
            slot = int(before.row_start[here[0]]) // size if len(here) else count
            if slot < count:
                slots.setdefault(slot, item)
        left = iter(sorted(set(range(count)) - set(slots.values())))
        return np.array([*(slots[s] if s in slots else next(left) for s in range(count)), *range(count, len(items))])

    def _best_order(self, problem: Problem, table: int, placement: Placement, items: Ints) -> Ints:
        """The order of some blocks of one table in which the most cells are kept."""
        block, place = placement.item_block[items], placement.item_place[items]
        width = self.block_columns[block] // COLUMN_UNIT
        before = self.rectangles.take(np.arange(*self._table_start[table : table + 2]))
        profile = np.zeros((len(items), int(width.sum()) + 1))
        for i in range(len(items)):
            ranks = problem.sites_of(int(block[i])).members(int(place[i]))
            here = np.flatnonzero(np.isin(before.rank, ranks))
            position = np.searchsorted(ranks, before.rank[here])
            row_start, rows = _rows(problem, np.full(len(here), block[i]), np.full(len(here), len(ranks)), position)
            every = np.arange(len(here))
            common = _shared(row_start, rows, before.row_start[here], before.rows[here], every, every)
            starts = before.column_start[here] // COLUMN_UNIT
            np.add.at(profile[i], starts, common)
            np.add.at(profile[i], starts + before.columns[here] // COLUMN_UNIT, -common)
        kept_before = np.zeros_like(profile)
        kept_before[:, 1:] = np.cumsum(profile[:, :-1], axis=1).cumsum(axis=1)
        return best_order(kept_before, width)

    def whole_bytes(self, problem: Problem) -> Floats:
        """[B] weights and optimizer state of a whole table cut into blocks like this one."""
        parts = self.table_columns[problem.option_table[problem.block_option]] / self.block_columns
        return np.asarray(self.block_bytes * parts)

    def moved_bytes(self, problem: Problem, placement: Placement) -> Floats:
        """[T] bytes that move into ranks which did not hold them; 0 for tables that have no block in the placement."""
        parts, block = self.parts_of(problem, placement)
        kept, _, _ = kept_cells(parts, self.rectangles, problem.world)
        moved = existing_cells(parts, self.rows_before) - kept
        cell_bytes = self.block_bytes[block] / (problem.table_rows[parts.table] * parts.columns)
        return np.asarray(np.bincount(parts.table, weights=moved * cell_bytes, minlength=problem.tables), dtype=float)

    def least_moved_bytes(self, problem: Problem) -> float:
        """Bytes that any placement moves: those on ranks that are gone, and those for which their host has no room.

        Ranks that share a memory count together; a rank's bytes may go into any memory that tables may use.
        """
        table = problem.option_table[problem.block_option]
        cheapest = np.full(problem.tables, np.inf)
        np.minimum.at(cheapest, table, self.block_bytes / (problem.table_rows[table] * self.block_columns))
        cheapest[np.isinf(cheapest)] = 0.0
        before, rows = self.rectangles, np.minimum(self.rows_before, problem.table_rows)
        last_row = np.minimum(before.row_start + before.rows, rows[before.table])
        cells = (np.maximum(last_row - before.row_start, 0) * before.columns).astype(float)
        covered = np.bincount(before.table, weights=cells, minlength=problem.tables)
        copies = np.bincount(before.table, minlength=problem.tables)
        covered = np.where(self.replicated, covered / np.maximum(copies, 1), covered)
        lost = np.maximum(rows * self.table_columns - covered, 0.0)
        single = np.where(self.replicated[before.table], 0.0, cells * cheapest[before.table])
        stored = np.bincount(before.rank, weights=single, minlength=problem.world).astype(float)
        is_allowed = problem.allowed.any(axis=0)
        usable = np.union1d(self.block_memory[is_allowed], self.block_state_memory[is_allowed])
        usable = np.searchsorted(self.memories, usable).tolist()
        moments = self.hbm.moments
        base_bytes = [min(problem.base_bytes[each] for each in (moments if m in moments else (m,))) for m in usable]
        return float(product(lost, cheapest)) + _excess_bytes(problem, stored, usable, base_bytes)


def _excess_bytes(problem: Problem, stored: Floats, memories: list[int], base_bytes: list[float]) -> float:
    """Bytes [W] stored on ranks beyond what all memories of the ranks that share one have for tables, beside the base
    bytes on each rank."""
    if not memories:
        return 0.0
    group = min((problem.pool_of_rank[m] for m in memories), key=lambda pool: int(pool[-1]))
    room = np.zeros(problem.world)
    for m, base in zip(memories, base_bytes, strict=True):
        pool, capacity = problem.pool_of_rank[m], problem.pool_capacity[m]
        first = np.unique(pool, return_index=True)[1]
        np.add.at(room, group[first], capacity[pool[first]])
        np.add.at(room, group, -base)
    taken = np.bincount(group, weights=stored, minlength=problem.world)
    return float(np.maximum(taken - np.maximum(room, 0.0), 0.0).sum())


def first_ranks(problem: Problem, block: Ints, place: Ints) -> Ints:
    """[n] the first rank of each of the placed blocks."""
    firsts = [sites.first for sites in problem.sites]
    extents = problem.block_extent[block].tolist()
    return np.array([firsts[extent][at] for extent, at in zip(extents, place.tolist(), strict=True)], dtype=np.int64)


def ranks_of(problem: Problem, block: Ints, place: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Of each rank [n] of each of the placed blocks: the number of the block, the rank, its position among those of the
    block, and how many these are, of each block."""
    extent, start, size = problem.block_extent[block], np.empty_like(place), np.empty_like(place)
    for number in np.unique(extent).tolist():
        here, sites = extent == number, problem.sites[number]
        start[here], size[here] = sites.start[place[here]], sites.sizes[place[here]]
    item = np.repeat(np.arange(len(block)), size)
    position = np.arange(len(item)) - np.repeat(np.cumsum(size) - size, size)
    orders = np.stack([sites.order for sites in problem.sites])
    return item, orders[extent[item], start[item] + position], position, size


def _rows(problem: Problem, block: Ints, ranks: Ints, position: Ints) -> tuple[Ints, Ints]:
    """First of the block's rows, and how many of them, that the rank at a position of its site holds."""
    rows, copies = problem.block_rows[block], problem.block_copies[block]
    size = -(-rows // np.where(problem.block_replicated[block], 1, ranks // copies))
    part = part_at(position, ranks, copies, apart=problem.copies_apart)
    start = np.minimum(np.where(problem.block_replicated[block], 0, part * size), rows)
    return start, np.minimum(size, rows - start)


def _rows_before(problem: Problem, block: Ints) -> Ints:
    """[n] rows of its table that come before those of each block, of blocks in order of table."""
    rows = np.where(problem.option_apart[problem.block_option[block]], problem.block_rows[block], 0)
    before = np.cumsum(rows) - rows
    return np.asarray(before - before[np.searchsorted(problem.table_of_block[block], problem.table_of_block[block])])


def best_order(kept_before: Floats, width: Ints) -> Ints:
    """The order of n column blocks that keeps most.

    `kept_before` [n, U + 1]: what block i would keep of the columns before each position, so that it keeps
    `kept_before[i, u + width[i]] - kept_before[i, u]` where it begins at u. Exact for a few blocks; more are sorted by
    where they kept most and then ordered window by window.
    """
    n = len(width)
    if n <= EXACT_BLOCKS:
        return np.array(_exact_order(kept_before, width, 0))
    total = kept_before[:, -1]
    middle = np.array([int(np.searchsorted(row, row[-1] / 2)) for row in kept_before])
    order = np.argsort(np.where(total > 0, middle, kept_before.shape[1] // 2), kind="stable")
    for first in itertools.chain(range(0, n - 1, EXACT_BLOCKS // 2), range(0, n - 1, EXACT_BLOCKS // 2)):
        window = order[first : first + EXACT_BLOCKS]
        begin = int(width[order[:first]].sum())
        order[first : first + EXACT_BLOCKS] = window[_exact_order(kept_before[window], width[window], begin)]
    return order


def _exact_order(kept_before: Floats, width: Ints, begin: int) -> list[int]:
    """The best order from the position `begin` on, by dynamic programming over the sets of blocks that come first."""
    n = len(width)
    sets = np.arange(1 << n)
    members = (sets[:, None] >> np.arange(n)) & 1
    position = begin + members @ width
    reach = np.minimum(position[:, None] + width, kept_before.shape[1] - 1)
    gain = kept_before[np.arange(n), reach] - kept_before[np.arange(n), position[:, None]]
    best, last = np.full(1 << n, -np.inf), np.zeros(1 << n, dtype=np.int64)
    best[0] = 0.0
    size = members.sum(axis=1)
    for level in range(1, n + 1):
        here = sets[size == level]
        before = here[:, None] ^ (1 << np.arange(n))
        is_member = members[here] == 1
        before = np.where(is_member, before, 0)
        value = np.where(is_member, best[before] + gain[before, np.arange(n)], -np.inf)
        last[here] = value.argmax(axis=1)
        best[here] = value.max(axis=1)
    order, left = [], (1 << n) - 1
    while left:
        order.append(int(last[left]))
        left ^= 1 << order[-1]
    return order[::-1]
