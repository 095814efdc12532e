"""Blocks that local search moves: parts of splittable options on single ranks, as arrays."""

from dataclasses import dataclass

import numpy as np

from planner.problem.numbers import Ints


@dataclass(frozen=True)
class Items:
    """Blocks of splittable options on single ranks. Arrays of [n], at most one per option and rank, in that order."""

    family: Ints
    """Which splittable option, counted from 0."""
    units: Ints
    """Width in the option's units."""
    rank: Ints


def merged_items(items: Items, world: int) -> Items:
    """Return the items in order of family and rank, parts of one option on one rank as one block."""
    key = items.family * world + items.rank
    order = np.argsort(key, kind="stable")
    key = key[order]
    opens = np.flatnonzero(np.diff(key, prepend=-1))
    units = np.add.reduceat(items.units[order], opens) if len(opens) else items.units
    return Items(items.family[order][opens], units, items.rank[order][opens])


def difference(before: Items, after: Items, world: int) -> tuple[Ints, Ints]:
    """Return the positions of the items of `before` that are not in `after`, and the other way round; both in order,
    merged."""
    most = int(max(before.units.max(initial=0), after.units.max(initial=0))) + 1
    old, new = ((items.family * world + items.rank) * most + items.units for items in (before, after))
    return _missing(old, new), _missing(new, old)


def _missing(wanted: Ints, sorted_keys: Ints) -> Ints:
    """Return the positions of those that are not among the keys."""
    if not len(sorted_keys):
        return np.arange(len(wanted))
    at = np.minimum(np.searchsorted(sorted_keys, wanted), len(sorted_keys) - 1)
    return np.flatnonzero(sorted_keys[at] != wanted)
