"""Access curves against exact counts of drawn ids."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.workload.table_profile import TableProfile
from planner.profiling.curves import access_curve, counted_rows, rows_by_reads, share_of_reads, steepness
from planner.profiling.reads import HotIds, Reads, counted, no_reads
from planner.profiling.tallies import tally


def drawn(rows: int, alpha: float, ids: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = np.cumsum(np.arange(1, rows + 1, dtype=float) ** -alpha)
    return rng.permutation(rows)[np.searchsorted(weights, rng.random(ids) * weights[-1])]


def counts(ids: np.ndarray, capacity: int) -> tuple[Reads, HotIds]:
    hot = HotIds.of(tally(ids[: len(ids) // 10]), capacity)
    return no_reads(hot, capacity) + counted(ids, hot, 0, capacity), hot


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.05, 1.5])
@pytest.mark.parametrize("capacity", [1 << 14, 1 << 20])
def test_curves_follow_exact_counts(alpha: float, capacity: int) -> None:
    """Within 0.005 where 16,384 ids of 200,000 rows are kept, 0.003 where all are."""
    ids = drawn(200_000, alpha, 2_000_000)
    reads, hot = counts(ids, capacity)
    assert (reads.level > 0) == (capacity == 1 << 14)
    curve = np.array([(0.0, 0.0), *access_curve(counted_rows(reads, hot, len(ids)), 200_000)])
    exact = np.concatenate(([0.0], np.cumsum(np.sort(np.bincount(ids, minlength=200_000))[::-1]) / len(ids)))
    found = np.interp(np.arange(200_001) / 200_000, curve[:, 0], curve[:, 1])
    assert np.abs(found - exact).max() < (0.005 if reads.level else 0.003)


def test_distinct_rows_are_estimated() -> None:
    ids = drawn(500_000, 0.8, 1_000_000)
    reads, hot = counts(ids, 1 << 14)
    assert reads.level > 0
    rows = counted_rows(reads, hot, len(ids))
    assert rows.distinct == pytest.approx(len(np.unique(ids)), rel=0.03)
    assert rows.total == pytest.approx(len(ids), rel=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.1])
@pytest.mark.parametrize("ids", [200_000, 1_000_000, 20_000_000])
def test_short_logs_are_told_how_steep_their_curves_are(alpha: float, ids: int) -> None:
    """Against the law that the reads are drawn from: between 40 % of what the curve is above it and all of that."""
    likely = np.arange(1, 200_001.0) ** -alpha
    likely /= likely.sum()
    reads = np.random.default_rng(0).poisson(likely * ids).astype(float)
    rows = rows_by_reads(reads, np.ones(len(reads)))
    ranks = np.linspace(1, 200_000, 2000)
    law = np.interp(ranks, np.arange(200_001), np.append(0, np.cumsum(likely)))
    above = float((share_of_reads(rows, ranks) - law).max())
    assert 0.4 * above - 0.002 < steepness(rows) < above + 0.002


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300), st.integers(0, 3))
def test_every_curve_is_one_that_a_profile_takes(reads: list[int], doublings: int) -> None:
    rows = rows_by_reads(np.array(reads, float), np.ones(len(reads)))
    size = max(len(reads) * 2**doublings // 2, 1)  # half as many rows as ids, as where ids are hashed, to four times
    TableProfile(name="t", rows=size, dim=4, pooling_factor=1, access_cdf=access_curve(rows, size))


def test_uniform_reads_are_a_straight_line() -> None:
    curve = access_curve(rows_by_reads(np.full(1000, 7.0), np.ones(1000)), 1000)
    assert all(y == pytest.approx(x, abs=1e-6) for x, y in curve)
