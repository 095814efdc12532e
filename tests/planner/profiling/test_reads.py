"""Counts of ids against Python's own Counter."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.profiling.hashing import MASK, hashed
from planner.profiling.lists import Lists
from planner.profiling.reads import HotIds, Reads, counted, no_reads
from planner.profiling.statistics import batch_counts
from planner.profiling.tallies import Tally, tally

IDS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50), max_size=200)


def array(ids: list[int]) -> np.ndarray:
    return np.array(ids, dtype=np.int64)


@given(IDS, IDS)
def test_tallies_are_counters_and_add_like_them(one: list[int], other: list[int]) -> None:
    both = tally(array(one)) + tally(array(other))
    assert dict(zip(both.values.tolist(), both.counts.tolist(), strict=True)) == Counter(one + other)
    assert both.values.tolist() == sorted(set(one + other))


def test_small_numbers_are_counted_without_a_sort() -> None:
    ids = np.random.default_rng(0).integers(0, 300, 20_000)
    found = tally(ids)
    assert dict(zip(found.values.tolist(), found.counts.tolist(), strict=True)) == Counter(ids.tolist())


@given(st.integers(-(2**63), 2**63 - 1))
def test_the_hash_is_that_of_plain_integers(number: int) -> None:
    value = (number ^ (number >> 31) ^ (number >> 62)) & MASK
    for factor, shift in ((739_982_445, 15), (695_872_825, 16)):
        value = value * factor % 2**31
        value ^= value >> shift
    assert int(hashed(array([number]))[0]) == value


@pytest.mark.parametrize("step", [1, 2, 7, 64, 4096, 1_000_003])
def test_the_hash_spreads_ids_in_steps(step: int) -> None:
    ids = np.arange(200_000) * step
    share = float(((hashed(ids) & 63) == 0).mean())
    assert share == pytest.approx(1 / 64, rel=0.08)  # five standard deviations
    assert np.unique(hashed(ids[:10_000]) >> 21).size > 1000  # of 1,024 slots


@settings(max_examples=60)
@given(IDS, st.lists(st.integers(0, 200), max_size=6), st.permutations(range(7)), st.sampled_from([8, 16, 64]))
def test_parts_in_any_order_count_as_the_whole(
    ids: list[int], cuts: list[int], order: list[int], capacity: int
) -> None:
    hot = HotIds.of(tally(array(ids[:40])), capacity)
    whole = no_reads(hot, capacity) + counted(array(ids), hot, 0, capacity)
    parts = np.split(array(ids), sorted(min(cut, len(ids)) for cut in cuts))
    total = no_reads(hot, capacity)
    for position in order:
        if position < len(parts):
            total += counted(parts[position], hot, total.level, capacity)
    for mine, theirs in zip(total.arrays().values(), whole.arrays().values(), strict=True):
        assert np.array_equal(mine, theirs)


@settings(max_examples=60)
@given(IDS, st.sampled_from([8, 16, 64]))
def test_whoever_is_counted_is_counted_wholly(ids: list[int], capacity: int) -> None:
    truth = Counter(ids)
    hot = HotIds.of(tally(array(ids)), capacity)
    reads = no_reads(hot, capacity) + counted(array(ids), hot, 0, capacity)
    assert len(reads.sampled) <= capacity
    for number, count in zip(reads.sampled.values.tolist(), reads.sampled.counts.tolist(), strict=True):
        assert truth[number] == count
    present = hot.present()
    owners = hot.owners[present].tolist()
    assert dict(zip(owners, reads.hot[present].tolist(), strict=True)) == {number: truth[number] for number in owners}
    assert not reads.hot[~present].any()
    if reads.level == 0:
        assert reads.hot.sum() + reads.sampled.total == len(ids)


def test_stored_counts_come_back() -> None:
    hot = HotIds.of(tally(np.arange(50)), 64)
    reads = counted(np.arange(10_000) % 3_000, hot, 2, 64)
    again = Reads.of_arrays(reads.arrays())
    assert again.level == reads.level
    assert again.capacity == reads.capacity
    assert np.array_equal(again.sampled.values, reads.sampled.values)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 9), max_size=6)), min_size=1, max_size=30))
def test_repeated_ids_of_sessions_by_brute_force(samples: list[tuple[int, list[int]]]) -> None:
    lists = Lists(array([i for _, ids in samples for i in ids]), array([len(ids) for _, ids in samples]))
    distinct = len({i for _, ids in samples for i in ids})
    found = batch_counts(lists, distinct, array([session for session, _ in samples]))
    followers = repeated = 0
    before: dict[int, list[int]] = {}
    for session, ids in samples:
        if session in before:
            followers += len(ids)
            repeated += sum(i in before[session] for i in ids)
        before[session] = ids
    assert (found.followers, found.repeated) == (followers, repeated)
    assert (found.sessions, found.samples, found.distinct) == (len(before), len(samples), distinct)


def test_an_empty_tally_adds_nothing() -> None:
    one = Tally(array([1]), array([2]))
    assert (one + tally(array([]))) is one
    assert (tally(array([])) + one) is one
