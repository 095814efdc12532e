"""Plans of two sorts of nodes, each of which holds the same on all its nodes (`NodeSorts`).

Where all nodes hold the same, and so do all ranks (`UniformNodes`), numbers of tables that these do not divide leave
memory and time empty: of 16.3 tables a node on SSDs there are 17. Here some nodes may hold what the others do not, and
ranks of a node differ. There are more ways to hold tables than an integer programme finds the best among. First a few
attempts are made with the cheapest ways; then, around the best plan of these, with its ways and others that are drawn
at random, a neighbourhood that is another one each time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.solvers.integer.node_choices import asked, node_choices
from planner.solvers.integer.node_sorts import NodeContents, NodeSorts, largest_shares
from planner.solvers.limits import Clock

MOST_CHOICES = 20
"""Ways to hold a table of each class in the first attempts, the cheapest ones."""
NODES = 1000
"""Branch nodes of each of these at most."""
SECOND_SORT = (1 / 2, 1 / 3)
"""Shares of the nodes that are of the second sort, tried in turn."""
LARGEST = (0.6, 0.9)
"""Shares of a stage's time, or of a pool, above which a block of one rank is left out, tried in turn: the more there
are, the less is found among so many choices and branch nodes, and some plans need them."""
IN_VAIN = 2
"""Attempts in a row without a better plan, after which no others are made."""
CHEAPEST, DRAWN = 2, 8.0
"""Ways of each class that are in every neighbourhood, and the number of the way, the cheapest first, by which the odds
of being drawn fall to 1/e."""
NEAR_NODES, NEAR_IN_VAIN = 300, 3
"""Branch nodes of a neighbourhood at most, and neighbourhoods in a row without a better plan that end them."""
BETTER = 1e-3
"""Share of a step by which a plan of a neighbourhood is a better one at least."""


@dataclass(frozen=True)
class _Found:
    """A plan of two sorts, and what it holds."""

    sizes: Ints
    """[G] nodes of each sort."""
    usable: Bools
    """[Q] the ways to hold a table that it was looked for among, or the cheapest of them."""
    contents: NodeContents
    """Of all ways."""
    placement: Placement
    step_s: float


class UnlikeNodes:
    """One problem whose nodes are alike, and most of its tables (`UniformNodes.is_possible`)."""

    def __init__(
        self,
        problem: Problem,
        classes: list[Ints],
        value: Floats,
        slack_s: float,
        stage_seconds: Floats,
        clock: Clock,
        seed: int = 0,
    ) -> None:
        """The tables of each of the `classes`; see `node_choices` for `value` and `slack_s`. `stage_seconds` [S] are
        those of the relaxation, by which blocks are heavy. Nothing is looked for once the clock is over."""
        self._problem, self._classes, self._clock = problem, classes, clock
        self._stage_s = np.maximum(stage_seconds - problem.stage_constants, 1e-12)
        self._every = node_choices(problem, classes, value, slack_s, None, uneven=True)
        shares = largest_shares(problem, LoadState(problem), self._stage_s, asked(problem, self._every)[1])
        self._shares = np.where(problem.is_on_rank[self._every.block], shares, 0.0)
        self._random = np.random.default_rng(seed)

    def plans(self, below_s: float) -> Iterator[tuple[Placement, float]]:
        """Yield plans that are faster than `below_s`, and than those before, with their steps."""
        best: _Found | None = None
        in_vain = 0
        for sizes, largest in self._attempts():
            if in_vain == IN_VAIN or self._clock.is_over():
                break
            usable = self._usable(largest)
            found = self._found(sizes, usable, self._every.first(usable, MOST_CHOICES), NODES)
            best = _faster(found, best)
            in_vain += 1
            if found is not None and found.step_s < below_s:
                below_s, in_vain = found.step_s, 0
                yield found.placement, found.step_s
        in_vain = 0
        while best is not None and in_vain < NEAR_IN_VAIN and not self._clock.is_over():
            found = self._found(best.sizes, best.usable, self._neighbourhood(best), NEAR_NODES, best)
            in_vain = 0 if found is not None and found.step_s < best.step_s * (1 - BETTER) else in_vain + 1
            best = _faster(found, best)
            if found is not None and found.step_s < below_s:
                below_s = found.step_s
                yield found.placement, found.step_s

    def _attempts(self) -> Iterator[tuple[Ints, float]]:
        """Numbers of nodes of each sort, and shares that are the largest of a block."""
        count = self._problem.nodes.count
        for second in dict.fromkeys(max(1, round(count * share)) for share in SECOND_SORT):
            for largest in LARGEST:
                yield np.array([count - second, second]), largest

    def _found(self, sizes: Ints, usable: Bools, among: Bools, nodes: int, near: _Found | None = None) -> _Found | None:
        """The plan that so many branch nodes find `among` [Q] these ways, beginning with the plan that is `near`, whose
        ways are among them; None where none is found that fits."""
        sorts = NodeSorts(self._problem, self._classes, self._every.only(among), self._stage_s, self._clock)
        start = None if near is None else self._within(among, near.contents)
        contents = sorts.contents(sizes, nodes, start)
        placed = None if contents is None else sorts.placed(sizes, contents)
        if contents is None or placed is None:
            return None
        return _Found(sizes, usable, self._of_every(among, contents), *placed)

    # -- ways to hold tables -----------------------------------------------------------------------------------------

    def _usable(self, largest: float) -> Bools:
        """[Q] the ways whose blocks of one rank are at most so large a share."""
        usable = np.ones(len(self._every.of_class), dtype=bool)
        np.logical_and.at(usable, self._every.choice, self._shares <= largest)
        return usable

    def _neighbourhood(self, best: _Found) -> Bools:
        """[Q] the ways of a plan, the cheapest, and others that are drawn."""
        number = self._every.numbers(best.usable)
        drawn = self._random.random(len(number)) < np.exp(-number / DRAWN)
        return np.asarray((best.contents.tables > 0) | (best.usable & (drawn | (number < CHEAPEST))))

    def _of_every(self, among: Bools, contents: NodeContents) -> NodeContents:
        """The same contents, of all ways."""
        tables = np.zeros(len(among), dtype=np.int64)
        held = np.zeros((len(contents.held), len(self._every.choice)), dtype=np.int64)
        tables[among], held[:, among[self._every.choice]] = contents.tables, contents.held
        return NodeContents(tables, held, contents.stage_s)

    def _within(self, among: Bools, contents: NodeContents) -> NodeContents:
        """The same contents, of all ways, `among` [Q] some of them."""
        return NodeContents(contents.tables[among], contents.held[:, among[self._every.choice]], contents.stage_s)


def _faster(found: _Found | None, best: _Found | None) -> _Found | None:
    return found if found is not None and (best is None or found.step_s < best.step_s) else best
