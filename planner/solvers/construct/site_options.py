"""Other options for tables of packed sites: what one table takes is chosen anew beside all that stands.

A packing of few blocks has sites that no swap makes shorter. There a table leaves, and returns by the option and to the
sites where a K-norm of all stages grows least (ruin and recreate of one table: Schrimpf et al., 2000).
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Floats, Ints
from planner.problem.products import product
from planner.problem.sites import NOWHERE, Sites

SQUARINGS = 5
"""The norm is 2 to this power."""
OPTIONS = 6
"""Options of a table that are tried, the cheapest by the multipliers."""
DEAR = 3e-3
"""Share of the step that an option may cost more than its table's cheapest one."""
CROWDED = 64
"""Sites whose tables are tried: those that contribute most to the norm."""
WORTH = 1e-7
"""Share of the norm that a change gains at least."""


@dataclass(frozen=True)
class _Option:
    """Blocks of an option on sites [n], as loads [D, n] and bytes [M, n]; and what every site has of it [D], [M]."""

    blocks: Ints
    local: Floats
    size: Floats
    everywhere: Floats
    bytes_everywhere: Floats


class SiteOptions:
    """The options of one problem, of one kind of rank, over its sites or all ranks. D columns, M memories, N sites."""

    def __init__(self, problem: Problem, sites: Sites, columns: Ints, value: Floats) -> None:
        """Look at `columns` [D]; options cost `value` [B], by the block that names them."""
        self._problem, self._sites, self._columns = problem, sites, columns
        self._stage = np.unique(problem.stage_of_column[columns], return_inverse=True)[1]
        is_here = np.array([each is sites or each.reach == "world" for each in problem.sites])[problem.block_extent]
        is_legal = np.logical_and.reduceat(is_here & problem.allowed[0], problem.block_start[:-1])
        named = np.flatnonzero(is_legal[problem.block_option] & np.isfinite(value))
        order = named[np.lexsort((value[named], problem.table_of_block[named]))]
        first = np.searchsorted(problem.table_of_block[order], np.arange(problem.tables + 1))
        self._named = [order[start:stop] for start, stop in zip(first[:-1].tolist(), first[1:].tolist(), strict=True)]
        self._value = value
        self._known: dict[int, _Option] = {}

    def improved(self, block: Ints, place: Ints, full: Floats, room: Floats, step_s: float) -> tuple[Ints, Ints]:
        """Return blocks [I'] and their sites, some tables having other options than those of the blocks [I], which load
        sites by `full` [D, N] and leave them `room` [M, N] bytes."""
        problem = self._problem
        longest = np.zeros(int(self._stage.max()) + 1)
        np.maximum.at(longest, self._stage, full.max(axis=1))
        aim = longest[self._stage, None]
        x, room = full / aim, room.copy()
        powers = np.zeros(len(longest))
        np.add.at(powers, self._stage, _power(x).sum(axis=1))
        weight = longest[self._stage] / powers[self._stage]
        table = problem.table_of_block[block]
        of_table: dict[int, tuple[Ints, Ints]] = {}
        value = product(weight, _power(x))
        crowded = np.argsort(-value, kind="stable")[:CROWDED]
        is_tried = np.zeros(problem.tables, dtype=bool)
        is_tried[table[np.isin(place, crowded) | (place == NOWHERE)]] = True
        for each in np.flatnonzero(is_tried).tolist():
            own = np.flatnonzero(table == each)
            found = self._changed(each, block[own], place[own], x, room, weight, aim, step_s)
            if found is not None:
                of_table[each] = found
        if not of_table:
            return block, place
        stays = ~np.isin(table, np.array(sorted(of_table)))
        block = np.concatenate([block[stays], *(blocks for blocks, _ in of_table.values())])
        place = np.concatenate([place[stays], *(places for _, places in of_table.values())])
        order = np.argsort(problem.table_of_block[block], kind="stable")
        return block[order], place[order]

    def _changed(
        self,
        table: int,
        block: Ints,
        place: Ints,
        x: Floats,
        room: Floats,
        weight: Floats,
        aim: Floats,
        step_s: float,
    ) -> tuple[Ints, Ints] | None:
        """Return other blocks of a table and their sites, and have loads `x` and `room` changed by them; None where
        none make the norm smaller."""
        named = self._named[table]
        near = named[self._value[named] <= self._value[named[0]] + DEAR * step_s][:OPTIONS] if len(named) else named
        present = self._of(block)
        before = float(product(weight, _power(x)).sum())
        without, free = x.copy(), room.copy()
        self._take(present, place, without, free, aim, -1.0)
        best, least = None, before * (1 - WORTH)
        for choice in near.tolist():
            option = self._option(choice)
            after, left = without.copy(), free.copy()
            places = self._inserted(option, after, left, weight, aim)
            if places is None:
                continue
            norm = float(product(weight, _power(after)).sum())
            if norm < least:
                best, least = (option.blocks, places, after, left), norm
        if best is None:
            return None
        x[:], room[:] = best[2], best[3]
        return best[0], best[1]

    def _take(self, option: _Option, place: Ints, x: Floats, room: Floats, aim: Floats, sign: float) -> None:
        """Add an option's blocks on their places to loads and room, or take them away."""
        x += sign * option.everywhere[:, None] / aim
        room -= sign * option.bytes_everywhere[:, None]
        for number, site in enumerate(place.tolist()):
            if site != NOWHERE:
                x[:, site] += sign * option.local[:, number] / aim[:, 0]
                room[:, site] -= sign * option.size[:, number]

    def _inserted(self, option: _Option, x: Floats, room: Floats, weight: Floats, aim: Floats) -> Ints | None:
        """Add an option's blocks where the norm grows least, and return their places; None where they do not fit."""
        x += option.everywhere[:, None] / aim
        room -= option.bytes_everywhere[:, None]
        if (room < 0).any():
            return None
        places = np.full(len(option.blocks), NOWHERE)
        now = product(weight, _power(x))
        for number in np.flatnonzero(~self._problem.is_world_wide[option.blocks]).tolist():
            load = option.local[:, number] / aim[:, 0]
            grown = product(weight, _power(x + load[:, None])) - now
            grown[(room < option.size[:, number, None]).any(axis=0)] = np.inf
            site = int(grown.argmin())
            if np.isinf(grown[site]):
                return None
            places[number] = site
            x[:, site] += load
            now[site] += grown[site]
            room[:, site] -= option.size[:, number]
        return places

    def _option(self, choice: int) -> _Option:
        if choice not in self._known:
            self._known[choice] = self._of(np.array(self._problem.blocks_of_choice(choice), dtype=np.int64))
        return self._known[choice]

    def _of(self, blocks: Ints) -> _Option:
        """Return the loads and bytes of blocks that make up an option."""
        problem, columns = self._problem, self._columns
        wide = problem.is_world_wide[blocks]
        share = problem.row_shares.largest[0, blocks][:, None]
        stored = problem.bytes_fixed[0, blocks] + problem.bytes_by_rows[0, blocks] * share
        held = problem.fixed[0, blocks][:, columns] + problem.by_rows[0, blocks][:, columns] * share
        held *= problem.extremes.sharing[0, columns]
        everywhere = (problem.everywhere[0, blocks][:, columns] + np.where(wide[:, None], held, 0.0)).sum(axis=0)
        return _Option(
            blocks,
            problem.extremes.peak_load(0, blocks, columns).T,
            np.where(wide[:, None], 0.0, stored).T,
            everywhere,
            np.where(wide[:, None], stored, 0.0).sum(axis=0),
        )


def _power(x: Floats) -> Floats:
    x = np.square(np.maximum(x, 0.0))  # below it something hides the load
    for _ in range(SQUARINGS - 1):
        np.square(x, out=x)
    return np.asarray(x)
