"""All ways to cover a table with blocks, by the words of the plan document; many at random where there are too many.

A cover is what is left of a placement when blocks of one width on one place count alike: an array [widths x places] of
counts. A place is a rank, or a node of a block that is cut by rows over its ranks.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cost_models.shards import Ints

MOST_LISTED = 5000
"""Covers that are listed one by one, if there are no more."""
DRAWN = 1200
"""Covers that are drawn where there are more."""


@dataclass(frozen=True)
class Covers:
    """Covers of a table of some units of width, or a part of them."""

    widths: tuple[int, ...]
    """In units."""
    counts: Ints
    """[n, widths, places]"""
    complete: bool
    """Whether these are all."""


def on_single_ranks(units: int, ranks: Sequence[int], world: int, most_parts: float, seed: int) -> Covers:
    """Column blocks of any widths, one or more; several may share a rank."""
    parts = min(units, int(min(most_parts, units)))
    if not ranks:
        return Covers((units,), np.zeros((0, 1, world), dtype=np.int64), True)
    counts, complete = _multisets(units, len(ranks), parts, seed)
    return Covers(tuple(range(1, units + 1)), _spread(counts, ranks, world), complete)


@lru_cache(maxsize=4096)
def _multisets(units: int, places: int, parts: int, seed: int) -> tuple[Ints, bool]:
    """[n, units, places] multisets of (width, place) whose widths sum to `units`, of at most `parts` members."""
    if _number_of_multisets(units, places, parts) <= MOST_LISTED:
        return np.array(list(_every_multiset(units, places, parts)), dtype=np.int64).reshape(-1, units, places), True
    return _some_multisets(units, places, parts, np.random.default_rng([seed, units, places])), False


@lru_cache(maxsize=4096)
def _number_of_multisets(units: int, places: int, parts: int) -> int:
    ways = np.zeros((units + 1, parts + 1))
    ways[0, 0] = 1
    for width in range(1, units + 1):
        for _ in range(places):
            for total in range(width, units + 1):
                ways[total, 1:] += ways[total - width, :-1]
    return int(min(ways[units].sum(), 1e15))


def _every_multiset(units: int, places: int, parts: int) -> list[Ints]:
    kinds = [(width, place) for width in range(units, 0, -1) for place in range(places)]
    found: list[Ints] = []
    counts = np.zeros((units, places), dtype=np.int64)

    def fill(first: int, left: int, parts_left: int) -> None:
        if not left:
            found.append(counts.copy())
            return
        if not parts_left:
            return
        for number in range(first, len(kinds)):
            width, place = kinds[number]
            if width <= left:
                counts[width - 1, place] += 1
                fill(number, left - width, parts_left - 1)
                counts[width - 1, place] -= 1

    fill(0, units, parts)
    return found


def _some_multisets(units: int, places: int, parts: int, random: np.random.Generator) -> Ints:
    """Whole tables on each rank, equal parts dealt out in turn, and cuts anywhere on ranks at random."""
    found = set()
    for place in range(places):
        found.add(((units, place),))
    for n in range(2, min(parts, 4 * places) + 1):
        widths = [units // n + (k < units % n) for k in range(n)]
        for shift in range(places):
            found.add(tuple(sorted((width, (shift + k) % places) for k, width in enumerate(widths))))
    for _ in range(DRAWN):
        n = int(random.integers(2, min(parts, 3 * places) + 1)) if parts > 1 else 1
        cuts = sorted(random.choice(np.arange(1, units), size=n - 1, replace=False).tolist())
        widths = np.diff([0, *cuts, units]).tolist()
        of = random.permutation(np.arange(n) % places) if random.random() < 0.6 else random.integers(places, size=n)
        found.add(tuple(sorted(zip(widths, of.tolist(), strict=True))))
    counts = np.zeros((len(found), units, places), dtype=np.int64)
    for number, blocks in enumerate(sorted(found)):
        for width, place in blocks:
            counts[number, width - 1, place] += 1
    return counts


def _spread(counts: Ints, places: Sequence[int], every: int) -> Ints:
    wide = np.zeros((*counts.shape[:2], every), dtype=np.int64)
    wide[:, :, list(places)] = counts
    return wide


def on_different_ranks(
    units: int, nodes: Sequence[Sequence[int]], world: int, most_parts: float, *, even: bool, seed: int
) -> Covers:
    """Column blocks, one or more, on different ranks of one node; `even`: of one width."""
    most = [int(min(most_parts, len(ranks), units)) for ranks in nodes]
    listed, complete = [], True
    for ranks, parts in zip(nodes, most, strict=True):
        ways = sum(math.comb(len(ranks), n) * (1 if even else math.comb(units - 1, n - 1)) for n in range(1, parts + 1))
        if ways <= MOST_LISTED:
            listed += list(_every_tied(units, ranks, parts, even=even))
        else:
            complete = False
            listed += _some_tied(units, ranks, parts, even=even, random=np.random.default_rng([seed, units, *ranks]))
    return Covers(tuple(range(1, units + 1)), _counted(listed, units, world), complete)


def _every_tied(units: int, ranks: Sequence[int], parts: int, *, even: bool) -> Iterator[list[tuple[int, int]]]:
    for n in range(1, parts + 1):
        if even and units % n:
            continue
        compositions = [(units // n,) * n] if even else list(_compositions(units, n))
        for chosen in itertools.combinations(ranks, n):
            yield from (list(zip(widths, chosen, strict=True)) for widths in compositions)


def _compositions(units: int, parts: int) -> Iterator[tuple[int, ...]]:
    for cuts in itertools.combinations(range(1, units), parts - 1):
        yield tuple(np.diff([0, *cuts, units]).tolist())


def _some_tied(
    units: int, ranks: Sequence[int], parts: int, *, even: bool, random: np.random.Generator
) -> list[list[tuple[int, int]]]:
    """Equal parts, or nearly so, on the first ranks; then any on any."""
    numbers = [n for n in range(1, parts + 1) if not (even and units % n)]
    found = {tuple((units // n + (k < units % n), ranks[k]) for k in range(n)) for n in numbers}
    for _ in range(DRAWN):
        n = int(random.choice(numbers))
        cuts = sorted(random.choice(np.arange(1, units), size=n - 1, replace=False).tolist())
        widths = [units // n] * n if even else np.diff([0, *cuts, units]).tolist()
        found.add(tuple(zip(widths, random.permutation(ranks)[:n].tolist(), strict=True)))
    return [list(blocks) for blocks in sorted(found)]


def in_grids(units: int, ranks_of_node: Sequence[int], nodes: Sequence[int], most_shards: float) -> Covers:
    """Two or more column blocks, at most as many as nodes, of widths at most one unit apart, each on one node."""
    found: list[list[tuple[int, int]]] = []
    for n in range(2, min(len(ranks_of_node), units) + 1):
        wide = units % n
        for of_wide in itertools.combinations_with_replacement(nodes, wide):
            for of_narrow in itertools.combinations_with_replacement(nodes, n - wide):
                blocks = [(units // n + 1, node) for node in of_wide] + [(units // n, node) for node in of_narrow]
                if sum(ranks_of_node[node] for _, node in blocks) <= most_shards:
                    found.append(blocks)
    return Covers(tuple(range(1, units + 1)), _counted(found, units, len(ranks_of_node)), True)


def _counted(found: list[list[tuple[int, int]]], units: int, places: int) -> Ints:
    counts = np.zeros((len(found), units, places), dtype=np.int64)
    for number, blocks in enumerate(found):
        for width, place in blocks:
            counts[number, width - 1, place] += 1
    return counts


def on_several_sites(parts: int, sites: Sequence[int], every: int) -> Ints:
    """[n, 2, sites] parts of rows on different ones of some sites: the last part, and all others, which are alike."""
    counts = np.zeros((math.comb(len(sites), parts) * parts, 2, every), dtype=np.int64)
    ways = itertools.product(itertools.combinations(sites, parts), range(parts))
    for cover, (chosen, last) in zip(counts, ways, strict=True):
        cover[0, list(chosen)] = 1
        cover[:, chosen[last]] = 0, 1
    return counts
