"""What ranks move in collectives, against messages counted one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.groups import Crossing, RankGroup, all_reduce, all_to_all, reduce_scatter

SIZES = st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2), (4, 3), (3, 4)])
"""(ranks of a domain, domains) of a cluster."""


def crossing_of(messages: dict[tuple[int, int], float], domain: int, rank: int) -> Crossing:
    """What one rank sends of some messages, {(from, to): bytes}, inside its domain and out of it."""
    sent = [(a // domain == b // domain, size) for (a, b), size in messages.items() if a == rank and a != b]
    return Crossing(sum(size for inside, size in sent if inside), sum(size for inside, size in sent if not inside))


@given(SIZES, st.sampled_from([1, 2, 4]), st.floats(1, 1e9))
def test_an_all_to_all_sends_to_every_rank_beyond_the_small_group(
    sizes: tuple[int, int], small: int, to_each: float
) -> None:
    """Counted message by message, for small groups of consecutive ranks inside a domain."""
    domain, domains = sizes
    small = small if domain % small == 0 else 1
    world = domain * domains
    pairs = [(a, b) for a, b in itertools.product(range(world), repeat=2) if a // small != b // small]
    counted = crossing_of(dict.fromkeys(pairs, to_each), domain, 0)
    crossing = all_to_all(RankGroup(domain, domain, world), to_each, RankGroup(small, small, small))
    assert crossing.port == pytest.approx(counted.port)
    assert crossing.card == pytest.approx(counted.card)
    plain = all_to_all(RankGroup(domain, domain, world), to_each)
    every = dict.fromkeys(itertools.product(range(world), repeat=2), to_each)
    assert plain.port == pytest.approx(crossing_of(every, domain, 0).port)
    assert plain.card == pytest.approx(crossing_of(every, domain, 0).card)


@given(SIZES, st.integers(1, 4))
def test_a_reduce_scatter_leaves_every_rank_with_its_share_of_the_totals(sizes: tuple[int, int], scale: int) -> None:
    """Played with numbers: parts go to the rank of the domain that sums them, then to the rank that keeps them."""
    domain, domains = sizes
    world, width = domain * domains, domain * domains * scale
    held = np.random.default_rng(0).integers(0, 9, (world, width)).astype(float)
    messages: dict[tuple[int, int], float] = {}
    owner = np.arange(width) % world
    summed = np.zeros((world, width))
    for a in range(world):
        for b in range(a // domain * domain, a // domain * domain + domain):
            mine = owner % domain == b % domain
            summed[b, mine] += held[a, mine]
            messages[a, b] = messages.get((a, b), 0.0) + float(mine.sum())
    totals = np.zeros((world, width))
    for a in range(world):
        for b in range(a % domain, world, domain):
            mine = owner == b
            totals[b, mine] += summed[a, mine]
            if a != b:
                messages[a, b] = messages.get((a, b), 0.0) + float(mine.sum())
    assert all((totals[rank, owner == rank] == held[:, owner == rank].sum(axis=0)).all() for rank in range(world))
    counted = crossing_of(messages, domain, 0)
    group = RankGroup(domain, domain, world)
    scattered = reduce_scatter(group, float(width))
    assert scattered.port == pytest.approx(counted.port)
    assert scattered.card == pytest.approx(counted.card)
    both = all_reduce(group, float(width))
    assert (both.port, both.card) == (2 * scattered.port, 2 * scattered.card)


def test_a_group_knows_how_many_domains_it_is_in() -> None:
    """A node of an NVL72 rack is in one; the world of two racks in two."""
    assert RankGroup(4, 4, 4).domains == 1
    assert RankGroup(4, 72, 144).domains == 2
