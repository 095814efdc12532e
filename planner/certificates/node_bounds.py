"""The least that the plans of a case take, by multipliers: undecided tables cost their cheapest option where it may be.

Every rank has weights and prices of its own; equal ranks share them and are priced once. A free option is tiled by
whole blocks, by dynamic programming over its column units.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from planner.certificates.branch_nodes import Cases, State
from planner.certificates.node_weights import Multipliers
from planner.certificates.parts import Part
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.rounding import ROUNDING


class NodeChoice(NamedTuple):
    """What attains a bound: how often each block is taken on each group of ranks."""

    seconds: Floats
    """[G, C] on the ranks of each group, by all undecided blocks."""
    size: Floats
    """[G, M]"""
    of_table: Floats
    """[T] least value of what each table still needs."""
    lead: Ints
    """[T] the block with which that begins; -1 where nothing is needed."""


class CaseBounds:
    """Bounds of the cases of one problem."""

    def __init__(self, cases: Cases) -> None:
        self.cases, problem = cases, cases.problem
        self.widths = widths_of(problem)

    def bound(self, state: State, multipliers: Multipliers) -> float:
        """What the multipliers prove of a case: no plan of it is faster. Infinite where it holds none at all."""
        return self.priced(state, multipliers, with_choice=False)[0]

    def priced(
        self, state: State, multipliers: Multipliers, *, with_choice: bool = True
    ) -> tuple[float, NodeChoice | None]:
        """The bound of a case and the choice that attains it."""
        even = self.cases.weights.evened(state.labels, multipliers)
        value, choice = _Pricing(self, state, even).undecided(with_choice=with_choice)
        decided = float((even.weight * state.load)[self.cases.weights.first_of_instance].sum())
        paid = float((even.byte * np.maximum(state.free, 0.0))[self.cases.first_of_pool].sum())
        decided += float(self.cases.weights.idle_shares(even) @ state.stage_seconds)
        total = value + decided - paid + float(self.cases.problem.stage_constants.sum())
        if np.isinf(total):
            return np.inf, None
        return total - ROUNDING * (abs(value) + decided + paid), choice


class Widths:
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

    def count(self, width: Ints, chosen: Bools, taken: Floats) -> None:
        """Add the blocks of the cheapest tilings of the `chosen` [n] options to `taken` [B]."""
        rows = np.flatnonzero(chosen)
        left = np.full(len(rows), self.units)
        while len(rows):
            step = width[rows, left]
            np.add.at(taken, self.block[rows, step], 1.0)
            left = left - step
            rows, left = rows[left > 0], left[left > 0]


def widths_of(problem: Problem) -> list[Widths]:
    """The free options by their number of column units."""
    numbers = np.unique(problem.option_units[problem.option_units > 0])
    return [Widths(problem, np.flatnonzero(problem.option_units == units)) for units in numbers]


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

    def __init__(self, bounds: CaseBounds, state: State, multipliers: Multipliers) -> None:
        cases, self.widths = bounds.cases, bounds.widths
        self.cases, self.problem, self.state, self.labels = cases, cases.problem, state, state.labels
        problem, room = cases.problem, cases.room(state)
        self.room, self.ranks, self.count, self.nodes = room, room.ranks, room.count, room.nodes
        self.kind = problem.kind_of_rank[room.ranks]
        both = np.concatenate([multipliers.weight, multipliers.byte])[:, room.ranks]
        self.fixed = np.stack([cases.fixed[k] @ both[:, g] for g, k in enumerate(self.kind)], axis=1)
        self.rows = np.stack([cases.by_rows[k] @ both[:, g] for g, k in enumerate(self.kind)], axis=1)
        of_kind = np.stack([multipliers.weight[:, problem.kind_of_rank == k].sum(axis=1) for k in range(problem.kinds)])
        self.everywhere = np.einsum("kbc,kc->b", problem.everywhere, of_kind)
        self._values()

    def _values(self) -> None:
        """[B + 1] least value of each block where it may be, and which group or sort of node that is."""
        problem, cases, room = self.problem, self.cases, self.room
        values = np.full(len(problem.block_option) + 1, np.inf)
        self.where = np.zeros(len(values), dtype=np.int64)
        own, node, world = cases.of_rank, cases.of_node, cases.of_world
        self.on_rank = np.where(room.on_rank, (self.fixed + self.rows)[own], np.inf)
        self.where[own], values[own] = self.on_rank.argmin(axis=1), self.on_rank.min(axis=1)
        if len(node):
            on_node = np.stack([self._on_node(int(n)) for n in room.nodes], axis=1)
            on_node[~room.on_node] = np.inf
            self.where[node], values[node] = on_node.argmin(axis=1), on_node.min(axis=1)
        share = cases.world_share[:, room.ranks]
        on_world = self.fixed[world] @ room.count + (self.rows[world] * share) @ room.count
        values[world] = np.where(room.on_world, on_world, np.inf)
        values[:-1] += self.everywhere
        self.values = values

    def _on_node(self, node: int) -> Floats:
        """[NODE blocks] value of each on a node."""
        blocks, start = self.cases.of_node, self.problem.node_start
        labels = self.labels[start[node] : start[node + 1]]
        groups = np.unique(labels)
        times = (labels[:, None] == groups).astype(float)
        share = self.cases.node_share[len(labels)] @ times
        return np.asarray(
            self.fixed[blocks][:, groups] @ times.sum(axis=0) + (self.rows[blocks][:, groups] * share).sum(axis=1)
        )

    # -- tables ---------------------------------------------------------------------------------------------------

    def undecided(self, *, with_choice: bool) -> tuple[float, NodeChoice | None]:
        """The least value of all that is not decided, and its loads."""
        problem, cases = self.problem, self.cases
        option_value = np.full(len(problem.option_table), np.inf)
        whole = self.values[:-1] * problem.block_count
        total = np.add.reduceat(whole, problem.block_start[:-1])
        option_value[cases.fixed_options] = total[cases.fixed_options]
        for option in cases.tied.tolist():
            option_value[option] = self._tied_value(cases.parts.sequence(option), None, [])[0]
        tiled = [widths.cheapest(self.values) for widths in self.widths]
        for widths, (best, _) in zip(self.widths, tiled, strict=True):
            option_value[widths.options] = best[:, -1]
        cheapest = np.minimum.reduceat(option_value, problem.option_start[:-1])
        is_open = np.ones(problem.tables, dtype=bool)
        is_open[list(self.state.decisions)] = False
        rest = [self._rest(parts) for parts in self.state.decisions.values()]
        value = float(cheapest[is_open].sum()) + sum(value for value, _ in rest)
        if not with_choice or np.isinf(value):
            return value, None
        taken = np.zeros(len(problem.block_option))
        seconds = np.zeros((len(self.ranks), cases.columns))
        size = np.zeros((len(self.ranks), len(problem.pool_capacity)))
        chosen = self._chosen_options(option_value, cheapest, is_open)
        for option in chosen[problem.option_tied[chosen]].tolist():
            for block, group in self._tied_value(cases.parts.sequence(option), None, [])[1]:
                if group is not None:
                    self._charge(seconds, size, block, group)
        is_fixed = np.zeros(len(problem.option_table), dtype=bool)
        is_fixed[chosen] = (problem.option_units[chosen] == 0) & ~problem.option_tied[chosen]
        taken += np.where(is_fixed[problem.block_option], problem.block_count, 0)
        for widths, (_, width) in zip(self.widths, tiled, strict=True):
            widths.count(width, np.isin(widths.options, chosen), taken)
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
        return value, NodeChoice(seconds, size, of_table, lead)

    def _leads(self, chosen: Ints, tiled: list[tuple[Floats, Ints]]) -> Ints:
        """The first block of each chosen option: of a free one the widest of its cheapest tiling."""
        found = self.problem.block_start[chosen].copy()
        for widths, (_, width) in zip(self.widths, tiled, strict=True):
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
            left = cases.parts.sequence(option)[len(placed) :]
            if problem.option_tied[option] and left:
                used = [part.place for part in placed if part.place is not None]
                node = int(problem.node_of_rank[used[0]])
                return self._tied_value(left, node, used)
            return float(sum(self.values[block] for block in left)), [(block, None) for block in left]
        fewest, most = cases.parts.units_left(parts)
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
            sequence = self.cases.parts.sequence(option)
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
                cost = self.on_rank[self.cases.row_of[block]]
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
        ask = cases.fixed[self.kind[group], block] + cases.by_rows[self.kind[group], block]
        seconds[group] += ask[: cases.columns]
        size[group] += ask[cases.columns :]
        seconds += self.count[:, None] * problem.everywhere[self.kind, block]

    def _charge_all(self, seconds: Floats, size: Floats, taken: Floats) -> None:
        """Blocks taken so often, each where it is cheapest."""
        cases, problem = self.cases, self.problem
        total = np.zeros((len(self.ranks), cases.fixed.shape[2]))
        for g in range(len(self.ranks)):
            here = cases.of_rank[self.where[cases.of_rank] == g]
            here = here[taken[here] > 0]
            total[g] += taken[here] @ cases.whole[self.kind[g], here]
        on_node = np.flatnonzero(taken[cases.of_node])
        for i in on_node.tolist():
            block = int(cases.of_node[i])
            node = int(self.nodes[self.where[block]])
            ranks = np.arange(problem.node_start[node], problem.node_start[node + 1])
            for rank, share in zip(ranks, cases.node_share[len(ranks)][i], strict=True):
                kind, group = problem.kind_of_rank[rank], self.labels[rank]
                total[group] += taken[block] * (cases.fixed[kind, block] + cases.by_rows[kind, block] * share)
        world = np.flatnonzero(taken[cases.of_world])
        if len(world):
            blocks, share = cases.of_world[world], cases.world_share[world][:, self.ranks]
            ask = cases.fixed[self.kind][:, blocks] + cases.by_rows[self.kind][:, blocks] * share.T[..., None]
            total += self.count[:, None] * np.einsum("gbc,b->gc", ask, taken[blocks])
        seconds += total[:, : cases.columns]
        seconds += self.count[:, None] * np.einsum("gbc,b->gc", problem.everywhere[self.kind], taken)
        size += total[:, cases.columns :]
