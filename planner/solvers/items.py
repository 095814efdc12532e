"""Blocks that local search moves: parts of free options on single ranks, as arrays."""

from dataclasses import dataclass

import numpy as np

from planner.problem import Ints


@dataclass(frozen=True)
class Items:
    """Blocks of free options on single ranks. Arrays of [n], at most one per option and rank, in that order."""

    family: Ints
    """Which free option, counted from 0."""
    units: Ints
    """Width in the option's units."""
    rank: Ints


def merged_items(items: Items, world: int) -> Items:
    """In order of family and rank, parts of one option on one rank as one block."""
    key, which = np.unique(items.family * world + items.rank, return_inverse=True)
    units = np.bincount(which, weights=items.units, minlength=len(key)).astype(np.int64)
    return Items(key // world, units, key % world)


def difference(before: Items, after: Items, world: int) -> tuple[Ints, Ints]:
    """Positions of the items of `before` that are not in `after`, and the other way round."""
    most = int(max(before.units.max(initial=0), after.units.max(initial=0))) + 1
    old, new = ((items.family * world + items.rank) * most + items.units for items in (before, after))
    return np.flatnonzero(~np.isin(old, new)), np.flatnonzero(~np.isin(new, old))
