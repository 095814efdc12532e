"""Items of local search: parts of one option on one rank are one item, and what differs between two sets is found."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.solvers.improve.items import Items, difference, merged_items

WORLD = 5
PARTS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(0, WORLD - 1)), max_size=20)


def items_of(parts: list[tuple[int, int, int]]) -> Items:
    """Return (family, units, rank) as arrays."""
    return Items(*np.array(parts, dtype=np.int64).reshape(-1, 3).T)


def triples(items: Items) -> list[tuple[int, int, int]]:
    """Return the items as they stand."""
    return list(zip(items.family.tolist(), items.units.tolist(), items.rank.tolist(), strict=True))


@given(PARTS)
def test_parts_on_one_rank_become_one(parts: list[tuple[int, int, int]]) -> None:
    """Widths add up by option and rank, in this order."""
    joint = Counter[tuple[int, int]]()
    for family, units, rank in parts:
        joint[family, rank] += units
    expected = [(family, units, rank) for (family, rank), units in sorted(joint.items())]
    assert triples(merged_items(items_of(parts), WORLD)) == expected


@given(PARTS, PARTS)
def test_differences_are_those_of_sets(before: list[tuple[int, int, int]], after: list[tuple[int, int, int]]) -> None:
    """What is in one and not in the other, both ways."""
    old, new = merged_items(items_of(before), WORLD), merged_items(items_of(after), WORLD)
    gone, come = difference(old, new, WORLD)
    assert {triples(old)[i] for i in gone.tolist()} == set(triples(old)) - set(triples(new))
    assert {triples(new)[i] for i in come.tolist()} == set(triples(new)) - set(triples(old))
