"""Descent: while a block elsewhere, a table in another option on one rank, or two blocks in each other's place make the
step shorter, such a change is made.

Judged by the step itself, not by a smoothed one: what is left is a local optimum. Only what stands on a resource that
makes a stage as long as it is can help, so few blocks are looked at.

The neighbourhood is that of jumps and swaps of machine scheduling (Schuurman and Vredeveld, INFORMS J. Comput. 19,
2007).
"""

from collections.abc import Callable, Iterator

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.numbers import Bools, Ints
from planner.problem.placement import Placement
from planner.problem.relocation import first_ranks
from planner.solvers.improve.changes import Changeable, PlacementChange

WORTH = 1e-7
"""Share of the step that a change must save."""
EQUAL = 1e-12
"""Relative difference of loads that counts as none."""
MOST_WORK = 4e8
"""Numbers that are looked at, at most: a few seconds."""


def descended(
    problem: Problem, placement: Placement, is_over: Callable[[], bool] = lambda: False
) -> tuple[Placement, float]:
    """Return the local optimum that one change after the other leads to, and its step."""
    descent = Descent(problem, placement)
    while not is_over() and descent.improve():
        pass
    optimum = descent.now.placement()
    return optimum, load_state(problem, optimum).step_s()


class Descent:
    """One placement that becomes better change by change."""

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self.now = Changeable(problem, placement)

    def improve(self) -> bool:
        """Make the best change of the first block for which one helps; False where there is none, or no work left."""
        limit_s = self.now.step_s * (1 - WORTH)
        for changes in self._changes():
            best = min(changes, key=lambda change: change.step_s, default=None)
            if best is not None and best.step_s < limit_s:
                self.now.make(best)
                return True
            if self.now.work > MOST_WORK:
                return False
        return False

    def _changes(self) -> Iterator[list[PlacementChange]]:
        """Yield the best change of each sort, of each block and table that makes a stage as long as it is."""
        now = self.now
        table, single = now.table, now.may_move
        partners, order = np.flatnonzero(single), np.argsort(table, kind="stable")
        start = np.searchsorted(table[order], np.arange(now.problem.tables + 1))
        seen: set[int] = set()
        for item in self._concerned().tolist():
            own, changes = int(table[item]), list[PlacementChange]()
            of_table = order[start[own] : start[own + 1]].tolist()
            if single[item]:
                variants = now.whole_on_rank(own) if len(of_table) == 1 else now.block[[item]]
                changes += self._elsewhere([item], variants)
                others, step = now.swaps(item, partners)
                if len(others):
                    changes.append(now.swap(item, int(others[step.argmin()]), float(step.min())))
            if own not in seen and (len(of_table) > 1 or not single[item]):
                changes += self._elsewhere(of_table, now.whole_on_rank(own))
                changes += self._converted(of_table)
            seen.add(own)
            yield changes

    def _concerned(self) -> Ints:
        """Return the items that load a resource which makes some stage as long as it is, those first that load it most.

        Others that are as long must be loaded by the item, too, or be those of one rank, with whose blocks it may swap.
        """
        now, problem, load = self.now, self.now.problem, self.now.state.load
        block, place, peak = now.block, now.place, load.max(axis=1)
        share, kind = np.zeros(len(block)), problem.kind_of_rank[first_ranks(problem, block, place)]
        for columns in now.columns_of_stage:
            longest = float(peak[columns].max())
            if longest <= 0:
                continue
            full = [
                (column, load[column] >= longest * (1 - EQUAL))
                for column in columns[peak[columns] >= longest * (1 - EQUAL)].tolist()
            ]
            instances = [
                (column, problem.resource_of_rank[column] == instance)
                for column, ranks in full
                for instance in np.unique(problem.resource_of_rank[column][ranks]).tolist()[: 2 * len(columns) + 1]
            ]
            if len(instances) > 2 * len(columns):  # more than two ranks have
                continue
            members = np.stack([ranks for _, ranks in instances])
            own = np.stack(
                [
                    problem.whole_load[kind, block, column] * self._is_on(ranks)
                    + problem.everywhere[kind, block, column]
                    for column, ranks in instances
                ],
                axis=1,
            )
            uncovered, which = np.unique(own <= EQUAL * longest, axis=0, return_inverse=True)
            can = np.array([bool(members[left].all(axis=0).any()) for left in uncovered])[which.ravel()]
            share = np.maximum(share, np.where(can, own.max(axis=1) / longest, 0.0))
        items = np.flatnonzero((share > EQUAL) & ~problem.grouped[now.table])
        return items[np.argsort(-share[items], kind="stable")]

    def _is_on(self, ranks: Bools) -> Bools:
        """Return which items [I] some of the ranks hold a part of."""
        problem, place = self.now.problem, self.now.place
        extent, is_on = problem.block_extent[self.now.block], np.zeros(len(place), dtype=bool)
        for number, sites in enumerate(problem.sites):
            here = extent == number
            is_on[here] = sites.any(ranks)[place[here]]
        return is_on

    def _elsewhere(self, items: list[int], variants: Ints) -> Iterator[PlacementChange]:
        """Yield the change to one block of each variant in the place of some items, on the rank where that is best."""
        rest = self.now.without(items)
        for variant in variants.tolist():
            step = self.now.offers(rest, items, variant).step_s
            rank = int(step.argmin())
            yield PlacementChange(float(step[rank]), tuple(items), ((variant, rank),))

    def _converted(self, items: list[int]) -> Iterator[PlacementChange]:
        """Yield the changes of a table in several blocks to another splittable option, all of them where they are."""
        now, problem = self.now, self.now.problem
        option = int(problem.block_option[now.block[items[0]]])
        if len(items) == 1 or not problem.option_units[option]:
            return
        table, units, place = int(problem.option_table[option]), problem.block_units[now.block[items]], now.place[items]
        for other in range(int(problem.option_start[table]), int(problem.option_start[table + 1])):
            if other == option or problem.option_units[other] != problem.option_units[option]:
                continue
            types = np.arange(*problem.block_start[other : other + 2])
            at = np.minimum(np.searchsorted(problem.block_units[types], units), len(types) - 1)
            kind = problem.kind_of_rank[place]
            if (problem.block_units[types[at]] == units).all() and problem.allowed[kind, types[at]].all():
                pairs = zip(types[at].tolist(), place.tolist(), strict=True)
                change = now.exchange(items, tuple(pairs))
                if change is not None:
                    yield change
