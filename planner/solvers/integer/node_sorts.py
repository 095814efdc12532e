"""Nodes of a few sorts, each of which holds the same on all its nodes, for given ways to hold the tables: two integer
programmes.

The first one says how many tables are held in which way, and how many of each block a node of either sort holds; loads
of its ranks are means, but for heavy blocks, of which every rank holds as many. The second one deals what is light to
the ranks of a node.
"""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.sites import NOWHERE
from planner.solvers.integer.dealt_ranks import dealt
from planner.solvers.integer.node_choices import (
    NodeChoices,
    asked,
    dominant,
    ranks_sharing,
    weighted,
)
from planner.solvers.integer.scip import FEASIBILITY, solved
from planner.solvers.limits import Clock

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

HEAVY = 0.1
"""Share of a stage's time or of a pool above which every rank of a node holds as many of a block of one rank: so few
fit a rank that those that do not divide by them leave room that nothing else fills."""
LEAST_ROOM = 0.1
"""Share of a stage that blocks are measured by at least, where the base takes almost all of it."""
HEADROOM = 0.995
"""Share of the pools of single ranks that the mean of a node's ranks may take."""


@dataclass(frozen=True)
class NodeContents:
    """What the nodes of each of G sorts hold."""

    tables: Ints
    """[Q] that each choice is taken by."""
    held: Ints
    """[G, H] how many of each block a node holds; all sites in it as many, but of light blocks of single ranks."""
    stage_s: Floats
    """[S] what the stages last, constants aside."""


class NodeSorts:
    """One problem whose nodes are alike, and ways to hold the tables of each class."""

    def __init__(
        self, problem: Problem, classes: list[Ints], choices: NodeChoices, stage_s: Floats, clock: Clock
    ) -> None:
        """`stage_s` [S] are the seconds of stages, constants aside, by which blocks are heavy. Nothing is looked for
        once the clock is over."""
        self._problem, self._classes, self._choices = problem, classes, choices
        self._clock = clock
        self._state, self._stage_s, self._ranks = LoadState(problem), stage_s, int(problem.nodes.sizes[0])
        self._of_choice, self._on_site = asked(problem, choices)
        self._world = problem.is_world_wide[choices.block]
        self._on_rank = problem.is_on_rank[choices.block]
        self._heavy = self._on_rank & (largest_shares(problem, self._state, stage_s, self._on_site) > HEAVY)
        sites = np.array([problem.sites_of(block).count for block in choices.block.tolist()])
        self._in_node = np.maximum(sites // problem.nodes.count, 1)
        self._is_light = self._on_rank & ~self._heavy

    def placed(self, sizes: Ints, contents: NodeContents) -> tuple[Placement, float] | None:
        """Return the plan of so many nodes [G] of each sort with these contents, and its step; None where no division
        among the ranks of a node is found, or what is found does not fit."""
        ranks_of = self._ranks_of(contents)
        if ranks_of is None:
            return None
        placement = self._placement(sizes, contents, ranks_of)
        state = load_state(self._problem, placement)
        return (placement, state.step_s()) if state.overflow_bytes() <= 0 else None

    # -- the first programme -----------------------------------------------------------------------------------------

    def contents(self, sizes: Ints, nodes: int, near: NodeContents | None = None) -> NodeContents | None:
        """Return what is on the nodes of each sort, of which there are so many, after as many branch nodes as `nodes`;
        no worse than `near`, where that is given. None where nothing is found."""
        from ortools.math_opt.python import mathopt

        choices, count = self._choices, self._choices.count
        most = np.array([len(tables) for tables in self._classes])[choices.of_class]
        whole = np.ones(len(most), dtype=bool)
        np.logical_and.at(whole, choices.choice, (count == 1) & ~self._world)
        model = mathopt.Model()
        taken = [
            model.add_variable(lb=0.0, ub=float(each), is_integer=not follows)
            for each, follows in zip(most.tolist(), whole.tolist(), strict=True)
        ]
        at_most = np.where(self._world, 0, most[choices.choice] * count)
        held = [[model.add_integer_variable(lb=0.0, ub=float(each)) for each in at_most.tolist()] for _ in sizes]
        for number, tables in enumerate(self._classes):
            own = [taken[q] for q in np.flatnonzero(choices.of_class == number).tolist()]
            model.add_linear_constraint(mathopt.fast_sum(own) == float(len(tables)))
        rounds = np.where(self._is_light, 1, self._in_node)
        for h in np.flatnonzero(~self._world).tolist():
            places = mathopt.fast_sum([int(size * rounds[h]) * each[h] for size, each in zip(sizes, held, strict=True)])
            model.add_linear_constraint(places >= int(count[h]) * taken[int(choices.choice[h])])
        unit_s = float(self._stage_s.sum())
        stages = self._limit(model, taken, held, unit_s)
        known = None
        if near is not None:
            numbers = [near.tables, *(near.held // rounds), near.stage_s / unit_s]
            known = dict(zip(itertools.chain(taken, *held, stages), np.concatenate(numbers).tolist(), strict=True))
        values = solved(model, nodes, self._clock, known)
        if values is None:
            return None
        contents = np.array([[round(values[each]) for each in some] for some in held], dtype=np.int64) * rounds
        tables = np.array([round(values[each]) for each in taken], dtype=np.int64)
        stage_s = np.array([values[each] for each in stages]) * unit_s
        return NodeContents(self._completed(tables, whole, sizes @ contents), contents, stage_s)

    def _limit(
        self,
        model: "mathopt.Model",
        taken: "list[mathopt.Variable]",
        held: "list[list[mathopt.Variable]]",
        unit_s: float,
    ) -> "list[mathopt.Variable]":
        """Let stages last as long as their busiest resource, all together as little as may be, and pools hold what is
        theirs, in nodes of either sort. The stages are returned."""
        from ortools.math_opt.python import mathopt

        problem, columns = self._problem, len(self._problem.stage_of_column)
        sharing = ranks_sharing(problem)
        mean = np.where(self._is_light[:, None], self._on_site / self._ranks, self._on_site)
        asks = np.concatenate([self._of_choice, mean]).T * sharing[:, None]
        base_s, free = self._state.load.max(axis=1), self._state.free.min(axis=1)
        stages = [model.add_variable(lb=0.0) for _ in problem.stage_constants]
        rows = dominant(np.concatenate([asks[:columns], base_s[:, None]], axis=1), problem.stage_of_column)
        for each in held:
            for column in rows.tolist():
                load = mathopt.fast_sum(weighted(taken + each, asks[column] / unit_s))
                stage = stages[int(problem.stage_of_column[column])]
                model.add_linear_constraint(load + float(base_s[column]) / unit_s <= stage)
            for of_pool, room, ranks in zip(asks[columns:], free.tolist(), sharing[columns:].tolist(), strict=True):
                if of_pool.any():
                    unit, most = max(room, 1.0), room * (HEADROOM if ranks == 1 else 1.0)
                    size = mathopt.fast_sum(weighted(taken + each, of_pool / unit))
                    model.add_linear_constraint(size <= most / unit - FEASIBILITY)
        model.minimize(mathopt.fast_sum(stages))
        return stages

    def _completed(self, tables: Ints, whole: Bools, places: Ints) -> Ints:
        """[Q] tables of each choice, where those of one block are as many as there are `places` [H] for them."""
        choices, completed = self._choices, tables.copy()
        room = np.full(len(tables), np.iinfo(np.int64).max)
        np.minimum.at(room, choices.choice, np.where(self._world, room[0], places // choices.count))
        for number, alike in enumerate(self._classes):
            own = np.flatnonzero(choices.of_class == number)
            left = len(alike) - int(tables[own[~whole[own]]].sum())
            for q in own[whole[own]].tolist():
                completed[q] = min(left, int(room[q]))
                left -= int(completed[q])
        return completed

    # -- placing -----------------------------------------------------------------------------------------------------

    def _ranks_of(self, contents: NodeContents) -> list[Ints] | None:
        """[H, ranks] of each sort, how many of each block of one rank the ranks of a node hold; None where not all find
        a place."""
        ranks_of = list[Ints]()
        on_groups = np.flatnonzero(~self._on_rank & ~self._world)
        for held in contents.held:
            each = self._of_choice.T @ contents.tables
            each += self._on_site[on_groups].T @ (held[on_groups] // self._in_node[on_groups])
            single = np.where(self._on_rank, held, 0)
            asks, stage_s = self._on_site, contents.stage_s
            places = dealt(self._problem, self._state, single, self._heavy, asks, each, stage_s, self._clock)
            if places is None:
                return None
            ranks_of.append(places)
        return ranks_of

    def _placement(self, sizes: Ints, contents: NodeContents, ranks_of: list[Ints]) -> Placement:
        """The plan: the tables of a class take its choices in turn, and blocks the places of a round on all nodes after
        those of the one before, until there are no more."""
        problem, choices, start = self._problem, self._choices, self._problem.table_block_start
        left = [list(tables) for tables in self._classes]
        mine = [
            np.array([left[of_class].pop() for _ in range(times)], dtype=np.int64)
            for of_class, times in zip(choices.of_class.tolist(), contents.tables.tolist(), strict=True)
        ]
        blocks, places = list[Ints](), list[Ints]()
        for h, (block, q) in enumerate(zip(choices.block.tolist(), choices.choice.tolist(), strict=True)):
            first = int(start[self._classes[int(choices.of_class[q])][0]])
            is_free = problem.option_units[problem.block_option[block]] > 0
            parts = problem.blocks_of_choice(block) if is_free else [block] * int(choices.count[h])
            taken = (start[mine[q]][:, None] + np.array(parts) - first).ravel()
            blocks.append(taken)
            if self._world[h]:
                places.append(np.full(len(taken), NOWHERE))
            else:
                sites = int(self._in_node[h])
                of_sort = [
                    ranks[h] if self._on_rank[h] else np.full(sites, held[h] // sites)
                    for ranks, held in zip(ranks_of, contents.held, strict=True)
                ]
                places.append(self._in_rounds(sizes, of_sort)[: len(taken)])
        taken, place = np.concatenate(blocks), np.concatenate(places)
        order = np.lexsort((place, taken))
        return Placement(taken[order], place[order])

    def _in_rounds(self, sizes: Ints, of_sort: list[Ints]) -> Ints:
        """All places of a block, of which the sites in a node of each sort hold so many each: the first ones in all
        nodes, then the second ones, and so on."""
        sort = np.repeat(np.arange(len(sizes)), sizes)
        places = [
            (turn, node * len(of_sort[of]) + site)
            for node, of in enumerate(sort.tolist())
            for turn, site in enumerate(np.repeat(np.arange(len(of_sort[of])), of_sort[of]).tolist())
        ]
        return np.array([place for _, place in sorted(places)], dtype=np.int64)


def largest_shares(problem: Problem, empty: LoadState, stage_s: Floats, on_site: Floats) -> Floats:
    """Return [n] the largest share of a stage's time `stage_s` [S], or of a pool of one rank, that is taken by what
    asks a rank for `on_site` [n, C + M], beside the base of an `empty` state."""
    stage, single = problem.stage_of_column, ranks_sharing(problem) == 1
    base_s, free = empty.load.max(axis=1), empty.free.min(axis=1)
    room = np.maximum(stage_s[stage] - base_s, LEAST_ROOM * stage_s[stage])
    room = np.concatenate([room, np.where(single[len(stage) :], free, np.inf)])
    return np.asarray((on_site / np.maximum(room, 1e-12)).max(axis=1))
