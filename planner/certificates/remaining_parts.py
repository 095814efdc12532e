"""The least that tables of a branch node still need: the rest of those of which parts are decided, and node-colocated
options, whose blocks are on different ranks of one node."""

from functools import cached_property

import numpy as np

from planner.certificates.block_costs import CheapestBlocks, NodeBlockCosts
from planner.certificates.branch_nodes import NodeState
from planner.certificates.parts import PartDecision
from planner.certificates.tilings import cheapest_tilings, tiling_widths
from planner.problem.numbers import Floats, Ints

NOTHING = CheapestBlocks(np.inf, [])
"""There are no such blocks."""


class RemainingParts:
    """The least costs of what is not decided of single tables of a branch node."""

    def __init__(self, costs: NodeBlockCosts, state: NodeState) -> None:
        self._costs, self._state = costs, state
        self._problem, self._parts = costs.problem, costs.rules.parts

    def cheapest(self, parts: tuple[PartDecision, ...]) -> CheapestBlocks:
        """What a table with these decided parts still needs at least."""
        problem = self._problem
        last = parts[-1]
        placed = [part for part in parts if part.place is not None]
        if not placed:
            leads = np.arange(last.first, last.last + 1)
            options = np.unique(problem.block_option[leads])
            led = [self._led_by(int(option), leads[problem.block_option[leads] == option]) for option in options]
            return min(led, key=lambda blocks: blocks.cost)
        option = int(problem.block_option[last.first])
        if not problem.option_units[option]:
            left = self._parts.sequence(option)[len(placed) :]
            if problem.option_colocated[option] and left:
                used = [part.place for part in placed if part.place is not None]
                return self.colocated(left, int(problem.node_of_rank[used[0]]), used)
            return self._each(left)
        fewest, most = self._parts.units_left(parts)
        if most < 0:
            return NOTHING
        values = self._by_width(option, widest=last.last)
        best, width = cheapest_tilings(values)
        if last.place is not None:
            units = np.arange(fewest, most + 1)
            at = int(best[0, units].argmin())
            return CheapestBlocks(float(best[0, units[at]]), self._tiling(option, width[0], int(units[at])))
        units = problem.block_units[last.first : last.last + 1]
        units = units[units <= most]
        sums = values[0, units] + best[0, most - units]
        if not len(sums) or np.isinf(sums.min()):
            return NOTHING
        at = int(sums.argmin())
        first_units = int(units[at])
        first = self._block_of_width(option, first_units)
        return CheapestBlocks(float(sums[at]), [(first, None), *self._tiling(option, width[0], most - first_units)])

    def _each(self, blocks: list[int]) -> CheapestBlocks:
        """All of the blocks, each where it is cheapest."""
        return CheapestBlocks(float(sum(self._costs.least[block] for block in blocks)), [(b, None) for b in blocks])

    def _led_by(self, option: int, leads: Ints) -> CheapestBlocks:
        """An option that begins with one of the blocks `leads`."""
        problem = self._problem
        if not problem.option_units[option]:
            sequence = self._parts.sequence(option)
            if leads[0] != sequence[0]:
                return NOTHING
            if problem.option_colocated[option]:
                return self.colocated(sequence, None, [])
            return self._each(sequence)
        values = self._by_width(option, widest=int(leads[-1]))
        best, width = cheapest_tilings(values)
        whole = int(problem.option_units[option])
        units = problem.block_units[leads]
        sums = values[0, units] + best[0, whole - units]
        at = int(sums.argmin())
        if np.isinf(sums[at]):
            return NOTHING
        rest = self._tiling(option, width[0], whole - int(units[at]))
        return CheapestBlocks(float(sums[at]), [(int(leads[at]), None), *rest])

    # -- splittable options ---------------------------------------------------------------------------------------

    def _by_width(self, option: int, widest: int) -> Floats:
        """[1, U + 1] costs of a splittable option's blocks up to the widest."""
        problem = self._problem
        values = np.full((1, int(problem.option_units[option]) + 1), np.inf)
        types = np.arange(problem.block_start[option], widest + 1)
        values[0, problem.block_units[types]] = self._costs.least[types]
        return values

    def _block_of_width(self, option: int, units: int) -> int:
        start, stop = self._problem.block_start[option : option + 2]
        return int(start + np.searchsorted(self._problem.block_units[start:stop], units))

    def _tiling(self, option: int, width: Ints, units: int) -> list[tuple[int, int | None]]:
        """The blocks that make up so many units, by the last width [U + 1] of every number of units."""
        return [(self._block_of_width(option, each), None) for each in tiling_widths(width, units)]

    # -- node-colocated options -----------------------------------------------------------------------------------

    def colocated(self, blocks: list[int], node: int | None, used: list[int]) -> CheapestBlocks:
        """Blocks on different ranks of one node (of `node`, where it is given), but for the `used` ranks.

        Blocks of one type are told apart by their ranks only.
        """
        cheapest = NOTHING
        types = sorted(set(blocks))
        for each in self._costs.nodes.tolist() if node is None else [node]:
            free = self._ranks_of_groups[each]
            if used:
                free = free.copy()
                np.subtract.at(free, self._state.labels[used], 1)
            if free.sum() < len(blocks):
                continue
            total, placed = 0.0, []
            for block in types:
                cost = self._costs.on_rank[self._costs.rules.row_of[block]]
                wanted = blocks.count(block)
                total += wanted * float(self._costs.everywhere[block])
                for group in np.argsort(cost, kind="stable").tolist():
                    here = min(wanted, int(free[group]))
                    if here:
                        total += here * float(cost[group])
                        placed += [(block, group)] * here
                        wanted -= here
                    if not wanted:
                        break
            if total < cheapest.cost:
                cheapest = CheapestBlocks(total, list(placed))
        return cheapest

    @cached_property
    def _ranks_of_groups(self) -> dict[int, Ints]:
        """For each sort of node and each node of a decided part, [G] how many of its ranks are of each group."""
        start, ranks = self._problem.node_start, self._costs.ranks
        nodes = {
            *self._costs.nodes.tolist(),
            *self._problem.node_of_rank[ranks].tolist(),
            *self._decided_nodes(),
        }
        labels = self._state.labels
        return {n: np.bincount(labels[start[n] : start[n + 1]], minlength=len(ranks)) for n in nodes}

    def _decided_nodes(self) -> set[int]:
        places = {part.place for parts in self._state.decisions.values() for part in parts}
        return {int(self._problem.node_of_rank[place]) for place in places if place is not None and place >= 0}
