"""Cases: plans told apart by what they do with some tables, and the least that each case takes.

A case decides parts of tables: which block the largest part is, or between which widths, and where it is. Its bound is
the Lagrangian one with a weight for every instance of a resource and a price for every memory pool: the decided parts
load their places, and every other table costs at least its cheapest option where that may be. A block may not be where
it overfills the memory or makes the step as long as the threshold. Ranks that nothing tells apart are equal: a case
that places a part on one of them stands for all.

Nothing here searches: the branching solver and the check of a proof both take their arithmetic from this module.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from planner.problem import (
    NODE,
    RANK,
    WORLD,
    Bools,
    Floats,
    Ints,
    LoadState,
    Placement,
    Problem,
    place_block,
    row_shares,
)
from planner.symmetry import labels, node_labels, rank_symmetry

ROUNDING = 1e-9
"""Relative amount by which a bound is rounded down, and a filter is held back: above the rounding of sums."""


class Part(NamedTuple):
    """One decided block of a table: a type from `first` to `last`, on a place (rank, node, -1: the world) or open.

    The first part of a free option is its widest block, the next one the widest of the rest, and so on; those of a
    fixed option are its blocks in order. A range over several options says only with which block the option begins.
    """

    first: int
    last: int
    place: int | None


Decisions = Mapping[int, tuple[Part, ...]]
"""Parts of some tables. Only the last part of a table may be without a place, and only after parts of one width."""


class Multipliers(NamedTuple):
    """Of a case: what a second and a byte are worth."""

    weight: Floats
    """[C, W] of a second on the instance that the rank uses; over the instances of a stage at most one in all."""
    byte: Floats
    """[M, W] of a byte of the pool that the rank uses."""


class CaseNode(NamedTuple):
    """A case of a tree."""

    parent: int
    """-1 for the root."""
    part: Part | None
    """What the case decides of the table and the part by which its parent is divided; None for the root."""
    divides: tuple[int, int] | None
    """Table and number of the part by which the case is divided; None for a leaf."""
    multipliers: Multipliers | None
    """None for those of the parent."""


class CaseTree(NamedTuple):
    """Cases that together hold every plan below the threshold; parents come before their children."""

    threshold_s: float
    nodes: tuple[CaseNode, ...]


class Choice(NamedTuple):
    """What attains a bound: how often each block is taken on each group of ranks."""

    seconds: Floats
    """[G, C] on the ranks of each group, by all undecided blocks."""
    size: Floats
    """[G, M]"""
    of_table: Floats
    """[T] least value of what each table still needs."""
    lead: Ints
    """[T] the block with which that begins; -1 where nothing is needed."""


@dataclass(frozen=True)
class State:
    """A case on its ranks."""

    decisions: Decisions
    load: Floats
    """[C, W] of the instance that the rank uses, by base and decided parts."""
    free: Floats
    """[M, W] of the pool that the rank uses."""
    labels: Ints
    """[W] equal for ranks that are interchangeable; numbered in the order of their first rank."""
    node_labels: Ints
    """[N] equal for nodes that are."""
    step_s: float
    """That the decided parts take by themselves."""
    stage_seconds: Floats
    """[S] and no plan takes less in any stage."""
    rooms: "list[Room]"
    """Where blocks may be, once it was asked for."""


@dataclass(frozen=True)
class Room:
    """Where the blocks may be in a case: by memory, by the threshold, by the kind of rank. G groups of equal ranks."""

    ranks: Ints
    """[G] first rank of each group."""
    count: Ints
    """[G] ranks of each group."""
    nodes: Ints
    """First node of each sort."""
    on_rank: Bools
    """[RANK blocks, G]"""
    on_node: Bools
    """[NODE blocks, sorts of node]"""
    on_world: Bools
    """[WORLD blocks]"""
    usable: Bools
    """[B] whether the block may be somewhere."""


class Cases:
    """All cases of one problem under a threshold: no plan that takes `threshold_s` or more is of interest.

    `least` [S] are seconds that every plan takes in each stage.
    """

    def __init__(self, problem: Problem, threshold_s: float, least: Floats) -> None:
        self.problem, self.threshold_s, self.least = problem, threshold_s, least
        self._columns = len(problem.stage_of_column)
        self._is_confined = problem.is_confined
        self._blank = LoadState(problem)
        self._fixed = np.concatenate([problem.fixed, problem.bytes_fixed], axis=2)
        self._by_rows = np.concatenate([problem.by_rows, problem.bytes_by_rows], axis=2)
        extent = problem.block_extent
        self._of_rank, self._of_node = np.flatnonzero(extent == RANK), np.flatnonzero(extent == NODE)
        self._of_world = np.flatnonzero(extent == WORLD)
        self._row_of = np.cumsum(extent == RANK) - 1
        self._sequences = [
            [int(block) for block in np.repeat(types, problem.block_count[types])]
            for types in map(np.arange, problem.block_start[:-1].tolist(), problem.block_start[1:].tolist())
        ]
        self._whole = self._fixed + self._by_rows
        rows = problem.table_rows[problem.option_table[problem.block_option]]
        nodes = np.diff(problem.node_start)
        self._node_share = {
            int(n): np.array([row_shares(int(r), int(n)) for r in rows[self._of_node]]).reshape(-1, int(n))
            for n in np.unique(nodes)
        }
        world_shares = [problem.world_share(int(block)) for block in self._of_world]
        self._world_share = np.array(world_shares).reshape(-1, problem.world)
        self._first_of_instance = _opens(problem.resource_of_rank)
        self._first_of_pool = _opens(problem.pool_of_rank)
        self._fixed_options = np.flatnonzero(problem.option_units == 0)
        self._tied = np.flatnonzero(problem.option_tied)
        self._widths = [
            _Widths(problem, np.flatnonzero(problem.option_units == units))
            for units in np.unique(problem.option_units[problem.option_units > 0])
        ]

    # -- the places of a case ------------------------------------------------------------------------------------

    @cached_property
    def _colors(self) -> Ints:
        """[W] equal where ranks are alike before anything is placed."""
        return rank_symmetry(self.problem).color

    def state(self, decisions: Decisions) -> State:
        """Loads, free memory and equal ranks of a case."""
        state = self._blank.copy()
        for table in sorted(decisions):
            for part in self.placed(decisions[table]):
                self._add(state, part)
        return self._settled(decisions, state)

    def _settled(self, decisions: Decisions, state: LoadState) -> State:
        """A case by its loads."""
        problem = self.problem
        held = []
        for table in sorted(decisions):
            placed = self.placed(decisions[table])
            if problem.grouped[table]:
                held.append(self._ranks_held(placed).astype(float))
            if placed and problem.option_tied[problem.block_option[placed[0].first]]:
                mark = np.zeros(problem.world)
                mark[[part.place for part in placed if part.place is not None]] = 1.0
                held.append(mark)
        color = self._colors
        of_rank = labels(np.concatenate([[color.astype(float)], state.load, state.free, *[[mark] for mark in held]]))
        of_node = node_labels(problem, of_rank)
        both = labels(np.stack([of_node[problem.node_of_rank], of_rank]).astype(float))
        longest = np.zeros(len(problem.stage_constants))
        np.maximum.at(longest, problem.stage_of_column, state.load.max(axis=1))
        stages = np.maximum(longest, self.least)
        alone = float((longest + problem.stage_constants).sum())
        return State(decisions, state.load, state.free, both, of_node, alone, stages, [])

    def _add(self, state: LoadState, part: Part) -> None:
        """Charge a decided part with the least of its range."""
        problem, place = self.problem, part.place
        assert place is not None
        types = np.arange(part.first, part.last + 1)
        state.add_everywhere(problem.everywhere[:, types].min(axis=1))
        if part.first == part.last:
            place_block(problem, state, part.first, place)
            return
        kind = problem.kind_of_rank[place]
        load = (problem.fixed[kind, types] + problem.by_rows[kind, types]).min(axis=0)
        size = (problem.bytes_fixed[kind, types] + problem.bytes_by_rows[kind, types]).min(axis=0)
        state.add_on_rank(load, size, place)

    def _ranks_held(self, placed: Iterable[Part]) -> Bools:
        """[W] ranks that hold decided parts of one table."""
        problem, found = self.problem, np.zeros(self.problem.world, dtype=bool)
        for part in placed:
            extent = problem.block_extent[part.first]
            if extent == RANK:
                found[part.place] = True
            else:
                found |= extent == WORLD or problem.node_of_rank == part.place
        return found

    def _open_ranks(self, state: State, table: int) -> Bools:
        """[W] ranks that the policy leaves to a table, by its rank set and by what tables of its groups hold."""
        problem = self.problem
        found: Bools = problem.rank_sets[problem.table_rank_set[table]].copy()
        for groups, stay in ((problem.together, True), (problem.apart, False)):
            for group in groups:
                if table not in group.tables:
                    continue
                for other in group.tables.tolist():
                    if stay or other != table:
                        held = self._ranks_held(self.placed(state.decisions.get(other, ())))
                        near = np.isin(group.zone_of_rank, group.zone_of_rank[held])
                        found &= (near | (not held.any())) if stay else ~near
        return found

    def places(self, state: State, block: int) -> list[int]:
        """One place of each sort at which a block may be; the smallest of its sort."""
        problem, extent = self.problem, self.problem.block_extent[block]
        table = int(problem.table_of_block[block])
        may = problem.allowed[problem.kind_of_rank, block] & self._open_ranks(state, table)
        if extent == WORLD:
            return [-1] if may.all() else []
        if extent == NODE:
            nodes = np.unique(state.node_labels, return_index=True)[1]
            whole = np.logical_and.reduceat(may, problem.node_start[:-1])
            return sorted(nodes[whole[nodes]].tolist())
        ranks = np.unique(state.labels, return_index=True)[1]
        return sorted(ranks[may[ranks]].tolist())

    def stands_for(self, state: State, block: int, place: int) -> int:
        """The smallest place of its sort."""
        if self.problem.block_extent[block] == WORLD:
            return -1
        labels = state.node_labels if self.problem.block_extent[block] == NODE else state.labels
        return int(np.flatnonzero(labels == labels[place])[0])

    def child(self, state: State, table: int, index: int, part: Part) -> State | None:
        """The case with one more decision: the table's part number `index`; None where no plan is of it."""
        problem, place = self.problem, part.place
        before = state.decisions.get(table, ())[:index]
        if before and place is not None and problem.option_tied[problem.block_option[part.first]]:
            ranks = [other.place for other in before if other.place is not None]
            if place in ranks or problem.node_of_rank[place] != problem.node_of_rank[ranks[0]]:
                return None
        decisions = {**state.decisions, table: (*before, part)}
        if place is None:
            return replace(state, decisions=decisions)
        if self._is_confined and (self._ranks_held([part]) & ~self._open_ranks(state, table)).any():
            return None
        if index < len(state.decisions.get(table, ())) and state.decisions[table][index].place is not None:
            after = self.state(decisions)
        else:
            loads = self._blank.copy()
            loads.load[:], loads.free[:] = state.load, state.free
            self._add(loads, part)
            after = self._settled(decisions, loads)
        return after if self.is_possible(after) else None

    def is_possible(self, state: State) -> bool:
        """Whether a plan below the threshold may be of the case: its parts fit and are not too slow."""
        capacity = max(float(of_pool.max(initial=0.0)) for of_pool in self.problem.pool_capacity)
        if state.free.min() < -(1.0 + ROUNDING * capacity):
            return False
        step_s = float((state.stage_seconds + self.problem.stage_constants).sum())
        return bool(step_s * (1 - ROUNDING) < self.threshold_s)

    # -- tables ---------------------------------------------------------------------------------------------------

    def sequence(self, option: int) -> list[int]:
        """Blocks of a fixed option in the order of its parts."""
        return self._sequences[option]

    def units_left(self, parts: tuple[Part, ...]) -> tuple[int, int]:
        """Fewest and most column units of a free option that its placed parts leave."""
        problem = self.problem
        whole = int(problem.option_units[problem.block_option[parts[0].first]])
        placed = self.placed(parts)
        most = whole - sum(int(problem.block_units[part.first]) for part in placed)
        fewest = whole - sum(int(problem.block_units[part.last]) for part in placed)
        return max(fewest, 0), most

    def open_range(self, table: int, parts: tuple[Part, ...]) -> tuple[int, int] | None:
        """Block types from which a table's next undecided part is taken; None where nothing is left or not known."""
        problem = self.problem
        if not parts:
            return int(problem.table_block_start[table]), int(problem.table_block_start[table + 1]) - 1
        if parts[-1].place is None:
            return parts[-1].first, parts[-1].last
        option = int(problem.block_option[parts[0].first])
        if not problem.option_units[option]:
            sequence = self.sequence(option)
            return (sequence[len(parts)],) * 2 if len(parts) < len(sequence) else None
        fewest, most = self.units_left(parts)
        if fewest != most or not most:
            return None
        return int(problem.block_start[option]), parts[-1].last

    def placed(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Those that have a place."""
        return tuple(part for part in parts if part.place is not None)

    def is_inexact(self, parts: tuple[Part, ...]) -> bool:
        """Whether the last part is placed with more than one width."""
        return bool(parts) and parts[-1].place is not None and parts[-1].first < parts[-1].last

    def spread(self, multipliers: Multipliers, part: Part) -> float:
        """What the widest block of a part's range is worth above the narrowest."""
        rank = part.place
        kind = self.problem.kind_of_rank[rank]
        both = np.concatenate([multipliers.weight[:, rank], multipliers.byte[:, rank]])
        ask = self._whole[kind, [part.first, part.last]] @ both
        return float(abs(ask[1] - ask[0]))

    def plan(self, state: State) -> Placement | None:
        """The placement that a case is, where it decides everything."""
        if len(state.decisions) < self.problem.tables:
            return None
        if any(self.is_inexact(parts) or self._is_unfinished(parts) for parts in state.decisions.values()):
            return None
        every = [part for table in sorted(state.decisions) for part in state.decisions[table]]
        return Placement(np.array([part.first for part in every]), np.array([part.place for part in every]))

    def _is_unfinished(self, parts: tuple[Part, ...]) -> bool:
        if parts[-1].place is None:
            return True
        option = int(self.problem.block_option[parts[0].first])
        if self.problem.option_units[option]:
            return self.units_left(parts)[1] > 0
        return len(parts) < len(self.sequence(option))

    def gap_in(self, state: State, table: int, index: int, parts: list[Part]) -> str | None:
        """What a case can do with a table's part number `index` that none of the `parts` covers; None for nothing."""
        before = state.decisions.get(table, ())
        around = self._undecided_range(table, before, index)
        if around is None:
            return f"its part {index} is not to be decided"
        fixed_place = before[index].place if index < len(before) else None
        for part in parts:
            if not (around[0] <= part.first <= part.last <= around[1]) or not self._is_part(part, before[:index]):
                return f"block types {part.first} to {part.last} are no part of it"
            if fixed_place is not None and part.place != fixed_place:
                return f"its part {index} has another place"
        usable = self.room(state).usable
        for block in range(around[0], around[1] + 1):
            covering = [part.place for part in parts if part.first <= block <= part.last]
            if fixed_place is not None:
                places = [] if covering else [fixed_place]
            elif None in covering or not usable[block] or not self._is_part(Part(block, block, 0), before[:index]):
                places = []
            else:
                held = {self.stands_for(state, block, place) for place in covering if place is not None}
                places = [place for place in self.places(state, block) if place not in held]
            for place in places:
                if self.child(state, table, index, Part(block, block, place)) is not None:
                    return f"block type {block} on place {place} is left out"
        return None

    def _undecided_range(self, table: int, before: tuple[Part, ...], index: int) -> tuple[int, int] | None:
        """Block types among which a part is still to be decided."""
        if index == len(before) - 1 and (before[-1].place is None or self.is_inexact(before)):
            return before[-1].first, before[-1].last
        if index == len(before) and not (before and before[-1].place is None):
            return self.open_range(table, before)
        return None

    def _is_part(self, part: Part, before: tuple[Part, ...]) -> bool:
        """Whether a part with a place is of one option, and of a fixed one the block whose turn it is."""
        if part.place is None:
            return True
        option = int(self.problem.block_option[part.first])
        if self.problem.option_units[option]:
            return bool(option == self.problem.block_option[part.last])
        turn = self.sequence(option)[len(before) : len(before) + 1]
        return bool(part.first == part.last and [part.first] == turn)

    # -- where blocks may be --------------------------------------------------------------------------------------

    def room(self, state: State) -> Room:
        """Where the blocks may be in a case."""
        if not state.rooms:
            state.rooms.append(self._room(state))
        return state.rooms[0]

    def _room(self, state: State) -> Room:
        problem = self.problem
        _, ranks, count = np.unique(state.labels, return_index=True, return_counts=True)
        nodes = np.unique(state.node_labels, return_index=True)[1]
        kind = problem.kind_of_rank[ranks]
        ask = self._whole[kind][:, self._of_rank].transpose(1, 0, 2)
        on_rank = problem.allowed[kind][:, self._of_rank].T & self._fits(state, ask, ranks)
        on_node = np.zeros((len(self._of_node), len(nodes)), dtype=bool)
        for i, node in enumerate(nodes.tolist()):
            members = np.arange(problem.node_start[node], problem.node_start[node + 1])
            first = np.unique(state.labels[members], return_index=True)[1]
            share = self._node_share[len(members)][:, first]
            of = problem.kind_of_rank[members[0]]
            ask = self._fixed[of][self._of_node][:, None] + self._by_rows[of][self._of_node][:, None] * share[..., None]
            on_node[:, i] = self._fits(state, ask, members[first]).all(axis=1) & problem.allowed[of, self._of_node]
        share = self._world_share[:, ranks].T[..., None]
        ask = (self._fixed[kind][:, self._of_world] + self._by_rows[kind][:, self._of_world] * share).transpose(1, 0, 2)
        on_world = np.asarray(
            self._fits(state, ask, ranks).all(axis=1) & problem.allowed[:, self._of_world].all(axis=0)
        )
        if self._is_confined:
            self._confine(state, ranks, nodes, on_rank, on_node, on_world)
        usable = np.zeros(len(problem.block_option), dtype=bool)
        usable[self._of_rank], usable[self._of_node] = on_rank.any(axis=1), on_node.any(axis=1)
        usable[self._of_world] = on_world
        return Room(ranks, count, nodes, on_rank, on_node, on_world, usable)

    def _confine(self, state: State, ranks: Ints, nodes: Ints, on_rank: Bools, on_node: Bools, on_world: Bools) -> None:
        """Take away what the policy does not leave to the tables."""
        problem = self.problem
        leaves = np.stack([self._open_ranks(state, table) for table in range(problem.tables)])
        whole = np.logical_and.reduceat(leaves, problem.node_start[:-1], axis=1)
        on_rank &= leaves[problem.table_of_block[self._of_rank]][:, ranks]
        on_node &= whole[problem.table_of_block[self._of_node]][:, nodes]
        on_world &= leaves[problem.table_of_block[self._of_world]].all(axis=1)

    def _fits(self, state: State, ask: Floats, ranks: Ints) -> Bools:
        """[n, g] whether blocks that add seconds and bytes `ask` [n, g, C + M] to these ranks may be there."""
        free = state.free[:, ranks].T
        room = (ask[..., self._columns :] <= free + 1.0 + ROUNDING * np.abs(free)).all(axis=2)
        busy = ask[..., : self._columns] + state.load[:, ranks].T
        step = np.full(busy.shape[:2], float(self.problem.stage_constants.sum()))
        for stage, least in enumerate(state.stage_seconds):
            of_stage = busy[:, :, self.problem.stage_of_column == stage]
            step += np.maximum(of_stage.max(axis=2, initial=0.0), least)
        return np.asarray(room & (step * (1 - ROUNDING) < self.threshold_s))

    # -- the bound ------------------------------------------------------------------------------------------------

    def evened(self, state: State, multipliers: Multipliers) -> Multipliers:
        """The same multipliers for equal ranks: the mean of what they have. That proves no less than any other."""
        count = np.bincount(state.labels)
        mean = [
            np.stack([np.bincount(state.labels, weights=row) / count for row in table])[:, state.labels]
            for table in multipliers
        ]
        return Multipliers(*mean)

    def excess_weight(self, multipliers: Multipliers) -> float:
        """By how much the weights of the worst stage sum to more than one; infinite for weights that are none."""
        problem, weight = self.problem, multipliers.weight
        first = np.maximum.accumulate(np.where(self._first_of_instance, np.arange(problem.world), 0), axis=1)
        of_instance = np.take_along_axis(weight, first, axis=1)
        if weight.min() < 0 or multipliers.byte.min() < 0 or np.abs(weight - of_instance).max() > ROUNDING:
            return np.inf
        total = np.zeros(len(problem.stage_constants))
        np.add.at(total, problem.stage_of_column, (weight * self._first_of_instance).sum(axis=1))
        return float(total.max() - 1.0)

    def bound(self, state: State, multipliers: Multipliers) -> float:
        """What the multipliers prove of a case: no plan of it is faster. Infinite where it holds none at all."""
        return self.priced(state, multipliers, with_choice=False)[0]

    def priced(
        self, state: State, multipliers: Multipliers, *, with_choice: bool = True
    ) -> tuple[float, Choice | None]:
        """The bound of a case and the choice that attains it."""
        even = self.evened(state, multipliers)
        value, choice = _Pricing(self, state, even).undecided(with_choice=with_choice)
        decided = float((even.weight * state.load)[self._first_of_instance].sum())
        paid = float((even.byte * np.maximum(state.free, 0.0))[self._first_of_pool].sum())
        total = value + decided - paid + float(self.problem.stage_constants.sum())
        if np.isinf(total):
            return np.inf, None
        return total - ROUNDING * (abs(value) + decided + paid), choice


class _Widths:
    """Free options of one number of column units: which block has which width."""

    def __init__(self, problem: Problem, options: Ints) -> None:
        self.options, self.units = options, int(problem.option_units[options[0]])
        self.block = np.full((len(options), self.units + 1), len(problem.block_option))
        for row, option in enumerate(options.tolist()):
            types = np.arange(problem.block_start[option], problem.block_start[option + 1])
            self.block[row, problem.block_units[types]] = types

    def cheapest(self, values: Floats) -> tuple[Floats, Ints]:
        """[n, U + 1] the least cost of each number of units by whole blocks, and the last block's width there.

        `values` [B + 1] ends with an infinite one for widths that do not exist.
        """
        return tilings(values[self.block])


def tilings(values: Floats) -> tuple[Floats, Ints]:
    """[n, U + 1] the least sum of `values` [n, U + 1], one per width, over widths that add up; and one width of it."""
    best = np.full(values.shape, np.inf)
    width = np.zeros(values.shape, dtype=np.int64)
    best[:, 0] = 0.0
    every = np.arange(len(values))
    for units in range(1, values.shape[1]):
        sums = values[:, 1 : units + 1] + best[:, units - 1 :: -1][:, :units]
        chosen = sums.argmin(axis=1)
        best[:, units], width[:, units] = sums[every, chosen], chosen + 1
    return best, width


class _Pricing:
    """One evaluation of the Lagrangian of a case."""

    def __init__(self, cases: Cases, state: State, multipliers: Multipliers) -> None:
        self.cases, self.problem, self.state, self.labels = cases, cases.problem, state, state.labels
        problem, room = cases.problem, cases.room(state)
        self.room, self.ranks, self.count, self.nodes = room, room.ranks, room.count, room.nodes
        self.kind = problem.kind_of_rank[room.ranks]
        both = np.concatenate([multipliers.weight, multipliers.byte])[:, room.ranks]
        self.fixed = np.stack([cases._fixed[k] @ both[:, g] for g, k in enumerate(self.kind)], axis=1)
        self.rows = np.stack([cases._by_rows[k] @ both[:, g] for g, k in enumerate(self.kind)], axis=1)
        of_kind = np.stack([multipliers.weight[:, problem.kind_of_rank == k].sum(axis=1) for k in range(problem.kinds)])
        self.everywhere = np.einsum("kbc,kc->b", problem.everywhere, of_kind)
        self._values()

    def _values(self) -> None:
        """[B + 1] least value of each block where it may be, and which group or sort of node that is."""
        problem, cases, room = self.problem, self.cases, self.room
        values = np.full(len(problem.block_option) + 1, np.inf)
        self.where = np.zeros(len(values), dtype=np.int64)
        own, node, world = cases._of_rank, cases._of_node, cases._of_world
        self.on_rank = np.where(room.on_rank, (self.fixed + self.rows)[own], np.inf)
        self.where[own], values[own] = self.on_rank.argmin(axis=1), self.on_rank.min(axis=1)
        if len(node):
            on_node = np.stack([self._on_node(int(n)) for n in room.nodes], axis=1)
            on_node[~room.on_node] = np.inf
            self.where[node], values[node] = on_node.argmin(axis=1), on_node.min(axis=1)
        share = cases._world_share[:, room.ranks]
        on_world = self.fixed[world] @ room.count + (self.rows[world] * share) @ room.count
        values[world] = np.where(room.on_world, on_world, np.inf)
        values[:-1] += self.everywhere
        self.values = values

    def _on_node(self, node: int) -> Floats:
        """[NODE blocks] value of each on a node."""
        blocks, start = self.cases._of_node, self.problem.node_start
        labels = self.labels[start[node] : start[node + 1]]
        groups = np.unique(labels)
        times = (labels[:, None] == groups).astype(float)
        share = self.cases._node_share[len(labels)] @ times
        return np.asarray(
            self.fixed[blocks][:, groups] @ times.sum(axis=0) + (self.rows[blocks][:, groups] * share).sum(axis=1)
        )

    # -- tables ---------------------------------------------------------------------------------------------------

    def undecided(self, *, with_choice: bool) -> tuple[float, Choice | None]:
        """The least value of all that is not decided, and its loads."""
        problem, cases = self.problem, self.cases
        option_value = np.full(len(problem.option_table), np.inf)
        whole = self.values[:-1] * problem.block_count
        total = np.add.reduceat(whole, problem.block_start[:-1])
        option_value[cases._fixed_options] = total[cases._fixed_options]
        for option in cases._tied.tolist():
            option_value[option] = self._tied_value(cases.sequence(option), None, [])[0]
        tiled = [widths.cheapest(self.values) for widths in cases._widths]
        for widths, (best, _) in zip(cases._widths, tiled, strict=True):
            option_value[widths.options] = best[:, -1]
        cheapest = np.minimum.reduceat(option_value, problem.option_start[:-1])
        is_open = np.ones(problem.tables, dtype=bool)
        is_open[list(self.state.decisions)] = False
        rest = [self._rest(parts) for parts in self.state.decisions.values()]
        value = float(cheapest[is_open].sum()) + sum(value for value, _ in rest)
        if not with_choice or np.isinf(value):
            return value, None
        taken = np.zeros(len(problem.block_option))
        seconds = np.zeros((len(self.ranks), cases._columns))
        size = np.zeros((len(self.ranks), len(problem.pool_capacity)))
        chosen = self._chosen_options(option_value, cheapest, is_open)
        for option in chosen[problem.option_tied[chosen]].tolist():
            for block, group in self._tied_value(cases.sequence(option), None, [])[1]:
                if group is not None:
                    self._charge(seconds, size, block, group)
        is_fixed = np.zeros(len(problem.option_table), dtype=bool)
        is_fixed[chosen] = (problem.option_units[chosen] == 0) & ~problem.option_tied[chosen]
        taken += np.where(is_fixed[problem.block_option], problem.block_count, 0)
        for widths, (_, width) in zip(cases._widths, tiled, strict=True):
            _take_tilings(widths, width, np.isin(widths.options, chosen), taken)
        for _, blocks in rest:
            for block, group in blocks:
                if group is None:
                    taken[block] += 1
                else:
                    self._charge(seconds, size, block, group)
        self._charge_all(seconds, size, taken)
        of_table, lead = np.where(is_open, cheapest, 0.0), np.full(problem.tables, -1)
        for table, (needed, blocks) in zip(self.state.decisions, rest, strict=True):
            of_table[table], lead[table] = needed, max((block for block, _ in blocks), default=-1)
        lead[problem.option_table[chosen]] = self._leads(chosen, tiled)
        return value, Choice(seconds, size, of_table, lead)

    def _leads(self, chosen: Ints, tiled: list[tuple[Floats, Ints]]) -> Ints:
        """The first block of each chosen option: of a free one the widest of its cheapest tiling."""
        found = self.problem.block_start[chosen].copy()
        for widths, (_, width) in zip(self.cases._widths, tiled, strict=True):
            for row in np.flatnonzero(np.isin(widths.options, chosen)).tolist():
                units, widest = widths.units, 0
                while units:
                    widest = max(widest, int(width[row, units]))
                    units -= int(width[row, units])
                found[chosen == widths.options[row]] = widths.block[row, widest]
        return found

    def _chosen_options(self, option_value: Floats, cheapest: Floats, is_open: Bools) -> Ints:
        """The first cheapest option of every open table."""
        table = self.problem.option_table
        best = np.flatnonzero((option_value == cheapest[table]) & is_open[table])
        _, first = np.unique(table[best], return_index=True)
        return best[first]

    def _rest(self, parts: tuple[Part, ...]) -> tuple[float, list[tuple[int, int | None]]]:
        """Value of what a table with decided parts still needs, and its blocks (with a group where that is known)."""
        problem, cases = self.problem, self.cases
        last = parts[-1]
        placed = [part for part in parts if part.place is not None]
        if not placed:
            leads = np.arange(last.first, last.last + 1)
            options = np.unique(problem.block_option[leads])
            found = [self._led_by(int(option), leads[problem.block_option[leads] == option]) for option in options]
            return min(found, key=lambda each: each[0])
        option = int(problem.block_option[last.first])
        if not problem.option_units[option]:
            left = cases.sequence(option)[len(placed) :]
            if problem.option_tied[option] and left:
                used = [part.place for part in placed if part.place is not None]
                node = int(problem.node_of_rank[used[0]])
                return self._tied_value(left, node, used)
            return float(sum(self.values[block] for block in left)), [(block, None) for block in left]
        fewest, most = cases.units_left(parts)
        if most < 0:
            return np.inf, []
        values = self._by_width(option, widest=last.last)
        best, width = tilings(values)
        if last.place is None:
            units = problem.block_units[last.first : last.last + 1]
            units = units[units <= most]
            sums = values[0, units] + best[0, most - units]
            if not len(sums) or np.isinf(sums.min()):
                return np.inf, []
            at = int(sums.argmin())
            first_units = int(units[at])
            return float(sums[at]), [
                (self._type(option, first_units), None),
                *self._tiling(option, width, most - first_units),
            ]
        units = np.arange(fewest, most + 1)
        at = int(best[0, units].argmin())
        return float(best[0, units[at]]), self._tiling(option, width, int(units[at]))

    def _led_by(self, option: int, leads: Ints) -> tuple[float, list[tuple[int, int | None]]]:
        """The least value of an option that begins with one of the blocks."""
        problem = self.problem
        if not problem.option_units[option]:
            sequence = self.cases.sequence(option)
            if leads[0] != sequence[0]:
                return np.inf, []
            if problem.option_tied[option]:
                return self._tied_value(sequence, None, [])
            return float(sum(self.values[block] for block in sequence)), [(block, None) for block in sequence]
        values = self._by_width(option, widest=int(leads[-1]))
        best, width = tilings(values)
        whole = int(problem.option_units[option])
        units = problem.block_units[leads]
        sums = values[0, units] + best[0, whole - units]
        at = int(sums.argmin())
        if np.isinf(sums[at]):
            return np.inf, []
        return float(sums[at]), [(int(leads[at]), None), *self._tiling(option, width, whole - int(units[at]))]

    def _by_width(self, option: int, widest: int) -> Floats:
        """[1, U + 1] values of a free option's blocks up to the widest."""
        problem = self.problem
        values = np.full((1, int(problem.option_units[option]) + 1), np.inf)
        types = np.arange(problem.block_start[option], widest + 1)
        values[0, problem.block_units[types]] = self.values[types]
        return values

    def _type(self, option: int, units: int) -> int:
        start, stop = self.problem.block_start[option : option + 2]
        return int(start + np.searchsorted(self.problem.block_units[start:stop], units))

    def _tiling(self, option: int, width: Ints, units: int) -> list[tuple[int, int | None]]:
        found: list[tuple[int, int | None]] = []
        while units:
            found.append((self._type(option, int(width[0, units])), None))
            units -= int(width[0, units])
        return found

    def _tied_value(
        self, blocks: list[int], node: int | None, used: list[int]
    ) -> tuple[float, list[tuple[int, int | None]]]:
        """The least value of blocks on different ranks of one node, those of each type told apart only there."""
        best: tuple[float, list[tuple[int, int | None]]] = (np.inf, [])
        types = sorted(set(blocks))
        for n in self.nodes.tolist() if node is None else [node]:
            groups = self._groups_of_node[n]
            if used:
                groups = groups.copy()
                np.subtract.at(groups, self.labels[used], 1)
            if groups.sum() < len(blocks):
                continue
            total, found = 0.0, []
            for block in types:
                cost = self.on_rank[self.cases._row_of[block]]
                wanted = blocks.count(block)
                total += wanted * float(self.everywhere[block])
                for group in np.argsort(cost, kind="stable").tolist():
                    here = min(wanted, int(groups[group]))
                    if here:
                        total += here * float(cost[group])
                        found += [(block, group)] * here
                        wanted -= here
                    if not wanted:
                        break
            if total < best[0]:
                best = total, found
        return best

    @cached_property
    def _groups_of_node(self) -> dict[int, Ints]:
        """Of each sort of node, [G] its ranks of each group."""
        start, groups = self.problem.node_start, len(self.ranks)
        of_node = self.problem.node_of_rank[self.ranks]
        nodes = {*self.nodes.tolist(), *of_node.tolist(), *self._decided_nodes()}
        return {n: np.bincount(self.labels[start[n] : start[n + 1]], minlength=groups) for n in nodes}

    def _decided_nodes(self) -> set[int]:
        places = {part.place for parts in self.state.decisions.values() for part in parts}
        return {int(self.problem.node_of_rank[place]) for place in places if place is not None and place >= 0}

    # -- loads of a choice ----------------------------------------------------------------------------------------

    def _charge(self, seconds: Floats, size: Floats, block: int, group: int) -> None:
        """One RANK block on one rank of a group."""
        cases, problem = self.cases, self.problem
        ask = cases._fixed[self.kind[group], block] + cases._by_rows[self.kind[group], block]
        seconds[group] += ask[: cases._columns]
        size[group] += ask[cases._columns :]
        seconds += self.count[:, None] * problem.everywhere[self.kind, block]

    def _charge_all(self, seconds: Floats, size: Floats, taken: Floats) -> None:
        """Blocks taken so often, each where it is cheapest."""
        cases, problem = self.cases, self.problem
        total = np.zeros((len(self.ranks), cases._fixed.shape[2]))
        for g in range(len(self.ranks)):
            here = cases._of_rank[self.where[cases._of_rank] == g]
            here = here[taken[here] > 0]
            total[g] += taken[here] @ cases._whole[self.kind[g], here]
        on_node = np.flatnonzero(taken[cases._of_node])
        for i in on_node.tolist():
            block = int(cases._of_node[i])
            node = int(self.nodes[self.where[block]])
            ranks = np.arange(problem.node_start[node], problem.node_start[node + 1])
            for rank, share in zip(ranks, cases._node_share[len(ranks)][i], strict=True):
                kind, group = problem.kind_of_rank[rank], self.labels[rank]
                total[group] += taken[block] * (cases._fixed[kind, block] + cases._by_rows[kind, block] * share)
        world = np.flatnonzero(taken[cases._of_world])
        if len(world):
            blocks, share = cases._of_world[world], cases._world_share[world][:, self.ranks]
            ask = cases._fixed[self.kind][:, blocks] + cases._by_rows[self.kind][:, blocks] * share.T[..., None]
            total += self.count[:, None] * np.einsum("gbc,b->gc", ask, taken[blocks])
        seconds += total[:, : cases._columns]
        seconds += self.count[:, None] * np.einsum("gbc,b->gc", problem.everywhere[self.kind], taken)
        size += total[:, cases._columns :]


def _take_tilings(widths: _Widths, width: Ints, chosen: Bools, taken: Floats) -> None:
    """Count the blocks of the cheapest tilings of some options."""
    rows = np.flatnonzero(chosen)
    left = np.full(len(rows), widths.units)
    while len(rows):
        step = width[rows, left]
        np.add.at(taken, widths.block[rows, step], 1.0)
        left = left - step
        rows, left = rows[left > 0], left[left > 0]


def _opens(instances: Ints) -> Bools:
    """[R, W] whether the rank is the first to use its instance; instances ascend along the ranks."""
    first = np.ones(instances.shape, dtype=bool)
    first[:, 1:] = instances[:, 1:] != instances[:, :-1]
    return first


def tree_faults(problem: Problem, tree: CaseTree, least: Floats) -> Iterator[str]:
    """What keeps a tree from being a proof: cases that leave something out, or weights that are none."""
    yield from _Walk(problem, tree, least).faults


def tree_bound_s(problem: Problem, tree: CaseTree, least: Floats) -> float:
    """What a tree without faults proves: no plan is faster. Every plan takes `least` [S] seconds in the stages."""
    return _Walk(problem, tree, least).bound_s


class _Walk:
    """One walk over a tree, from the root to the leaves."""

    def __init__(self, problem: Problem, tree: CaseTree, least: Floats) -> None:
        self.cases = Cases(problem, tree.threshold_s, least)
        self.faults: list[str] = []
        self.bound_s = tree.threshold_s
        children: dict[int, list[int]] = {}
        for number, node in enumerate(tree.nodes):
            if (node.parent < 0) != (number == 0) or node.parent >= number or (node.part is None) != (number == 0):
                self.faults.append(f"case {number}: not in the order of a tree")
                return
            children.setdefault(node.parent, []).append(number)
        found: dict[int, tuple[State, Multipliers, float]] = {}
        for number, node in enumerate(tree.nodes):
            entered = self._enter(tree, number, found)
            if entered is None:
                continue
            state, multipliers, bound = entered
            bound = max(bound, self.cases.bound(state, multipliers))
            found[number] = state, multipliers, bound
            below = children.get(number, [])
            if node.divides is None:
                self.bound_s = min(self.bound_s, bound)
                gap = "is a leaf with cases below it" if below else None
            else:
                parts = [part for part in (tree.nodes[child].part for child in below) if part is not None]
                gap = self._gap(state, node.divides, parts)
            if gap:
                self.faults.append(f"case {number}: {gap}")
                return

    def _gap(self, state: State, divides: tuple[int, int], parts: list[Part]) -> str | None:
        table, index = divides
        if not 0 <= table < self.cases.problem.tables:
            return "is divided by a table that does not exist"
        return self.cases.gap_in(state, table, index, parts)

    def _enter(
        self, tree: CaseTree, number: int, found: dict[int, tuple[State, Multipliers, float]]
    ) -> tuple[State, Multipliers, float] | None:
        """State, multipliers and the parent's bound of a case; None where no plan below the threshold is of it."""
        node = tree.nodes[number]
        if number == 0:
            state, inherited, bound = self.cases.state({}), node.multipliers, -np.inf
        else:
            parent = tree.nodes[node.parent]
            if node.parent not in found or parent.divides is None or node.part is None:
                return None
            above, inherited, bound = found[node.parent]
            after = self.cases.child(above, *parent.divides, node.part)
            if after is None:
                return None
            state = after
        multipliers = node.multipliers or inherited
        if multipliers is None:
            self.faults.append("the first case has no multipliers")
            return None
        even = self.cases.evened(state, multipliers)
        if self.cases.excess_weight(even) > ROUNDING:
            self.faults.append(f"case {number}: weights of a stage sum to more than 1, or are below 0")
            return None
        return state, even, bound
