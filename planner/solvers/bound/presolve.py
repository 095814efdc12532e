"""Presolve by dominance: blocks that narrower ones on the same rank undercut stand for those, and cost as much.

Two blocks of a splittable option on one rank may ask for less of everything than one block of their joint width: narrow
rows stay in a cache that wide ones overflow. The search then takes the joint block at the cost of the two, and what it
places is taken apart in the end (postsolve). No optimum is lost, and bounds hold: every plan of either problem is one
of the other that is no slower.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.rounding import FINE_ROUNDING

MOST_BLOCKS = 100_000
"""Block types of a problem in which joint blocks are looked for."""
WORTHWHILE = 1e-6
"""Relative saving of seconds below which a block stays as it is."""


@dataclass(frozen=True)
class Presolved:
    """A problem whose wide blocks cost no more than the narrow ones that they can be made of."""

    problem: Problem
    first: Ints
    """[B] one of the two blocks that a block stands for, which may stand for two itself; -1 for what is as it was."""
    second: Ints

    def postsolved(self, placement: Placement) -> Placement:
        """The placement in blocks of the problem as it was."""
        if (self.first[placement.item_block] < 0).all():
            return placement
        parts = [self._parts[block] for block in placement.item_block.tolist()]
        blocks = np.array([part for of_item in parts for part in of_item], dtype=np.int64)
        places = np.repeat(placement.item_place, [len(of_item) for of_item in parts])
        order = np.lexsort((places, blocks))
        return Placement(blocks[order], places[order])

    @cached_property
    def _parts(self) -> list[list[int]]:
        """[B] what each block is made of in the end."""
        parts: list[list[int]] = []
        for block, (left, right) in enumerate(zip(self.first.tolist(), self.second.tolist(), strict=True)):
            parts.append([block] if left < 0 else [*parts[left], *parts[right]])
        return parts


def presolve(problem: Problem) -> Presolved:
    """Let every block of a single rank cost what the cheapest narrower ones cost that undercut it in everything.

    O(O U^2) sums of two blocks for O splittable options of U widths; a problem of more than MOST_BLOCKS stays as it is,
    since it would take seconds, and where tables are many narrow blocks go to different ranks.
    """
    blocks = len(problem.block_option)
    first, second = np.full(blocks, -1), np.full(blocks, -1)
    if blocks > MOST_BLOCKS:
        return Presolved(problem, first, second)
    names = ("fixed", "by_rows", "everywhere", "bytes_fixed", "bytes_by_rows")
    arrays = {name: getattr(problem, name).copy() for name in names}
    ask, seconds = _asked(problem)
    on_rank = problem.block_is_splittable & problem.is_on_rank
    for whole in np.unique(problem.option_units[problem.block_option[on_rank]]).tolist():
        block_of = _block_of(problem, whole, on_rank)
        for width in np.flatnonzero((block_of >= 0).any(axis=0)).tolist():
            joint = block_of[:, width]
            for narrow in _that_may_save(block_of[:, : width + 1], seconds):
                narrower, other = block_of[:, narrow], block_of[:, width - narrow]
                rows = np.flatnonzero((joint >= 0) & (narrower >= 0) & (other >= 0))
                kinds = ask[joint[rows], -1]
                rows = rows[(kinds == ask[narrower[rows], -1]) & (kinds == ask[other[rows], -1])]
                of, left, right = joint[rows], narrower[rows], other[rows]
                together = ask[left] + ask[right]
                less = (together[:, :-1] <= ask[of, :-1] * (1 + FINE_ROUNDING)).all(axis=1)
                less &= seconds[left] + seconds[right] < seconds[of] * (1 - WORTHWHILE)
                of, left, right = of[less], left[less], right[less]
                first[of], second[of] = left, right
                ask[of, :-1], seconds[of] = together[less, :-1], seconds[left] + seconds[right]
                for array in arrays.values():
                    array[:, of] = array[:, left] + array[:, right]
    return Presolved(replace(problem, **arrays) if (first >= 0).any() else problem, first, second)


def _that_may_save(block_of: Ints, seconds: Floats) -> list[int]:
    """The widths, at most half of the last one of [n, width + 1] blocks, which with the rest of it take less than the
    last one does, `seconds` [B] of a block at once, of any of the n options."""
    width = block_of.shape[1] - 1
    joint, narrow = block_of[:, -1:], np.arange(1, width // 2 + 1)
    narrower, other = block_of[:, narrow], block_of[:, width - narrow]
    saves = seconds[narrower] + seconds[other] < seconds[joint] * (1 - WORTHWHILE)
    saves &= (joint >= 0) & (narrower >= 0) & (other >= 0)
    return [int(narrow[at]) for at in np.flatnonzero(saves.any(axis=0)).tolist()]


def _asked(problem: Problem) -> tuple[Floats, Floats]:
    """[B, n] what a block of a single rank asks for, each amount that any block asks for at all, and last the kinds
    of rank where it may not be; and [B] the sum of its seconds."""
    parts = (problem.fixed + problem.by_rows, problem.everywhere, problem.bytes_fixed + problem.bytes_by_rows)
    rows = [part[kind, :, column] for part in parts for kind in range(problem.kinds) for column in range(part.shape[2])]
    used = [row for row in rows if row.any()]
    seconds = problem.fixed + problem.by_rows + problem.everywhere * problem.world
    forbidden = (~problem.allowed * 2.0 ** np.arange(problem.kinds)[:, None]).sum(axis=0)
    return np.stack([*used, forbidden], axis=1), np.asarray(seconds.sum(axis=(0, 2)))


def _block_of(problem: Problem, whole: int, on_rank: Bools) -> Ints:
    """[n, whole + 1] block of each width of the splittable options of so many units; -1 where there is none."""
    options = np.flatnonzero(problem.option_units == whole)
    row = np.full(len(problem.option_units), -1)
    row[options] = np.arange(len(options))
    block_of_width = np.full((len(options), whole + 1), -1)
    blocks = np.flatnonzero(on_rank & (problem.option_units[problem.block_option] == whole))
    block_of_width[row[problem.block_option[blocks]], problem.block_units[blocks]] = blocks
    return block_of_width
