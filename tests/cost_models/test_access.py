"""Distinct rows and hit rates agree with exact sums, keep their bounds, and are quick for a whole problem."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.access import AccessCurves
from cost_models.elementary import exp
from cost_models.power_laws import hit_rate, unique_rows
from cost_models.tables import Tables
from cost_models.workload import TableProfile, load_workload
from tests.oracles.instances import workload

ALPHAS = [0.0, 0.01, 0.3, 0.6, 0.9, 1.0, 1.0 + 1e-7, 1.05, 1.3, 2.0]
STEEP = [3.0, 5.0, 10.0]
SIZES = [1, 2, 7, 8, 9, 100, 5000, 300_000]


def law(rows: int, alpha: float) -> np.ndarray:
    """The exact probabilities, hottest first."""
    weights = np.arange(1, rows + 1) ** -float(alpha)
    return weights / weights.sum()


def exact_unique(probability: np.ndarray, lookups: float) -> float:
    with np.errstate(divide="ignore"):
        return float(-np.expm1(lookups * np.log1p(-np.minimum(probability, 1.0))).sum())


def table(rows: int, **profile: object) -> TableProfile:
    return TableProfile.model_validate({"name": "t", "rows": rows, "dim": 4, "pooling_factor": 1, **profile})


def curves(*tables: TableProfile, batch: float = 1.0) -> AccessCurves:
    return AccessCurves.from_tables(tables, batch)


@pytest.mark.parametrize("alpha", ALPHAS + STEEP)
@pytest.mark.parametrize("rows", SIZES)
def test_distinct_rows_of_a_power_law_agree_with_the_exact_sum(rows: int, alpha: float) -> None:
    """Within 0.5 %, directly and through the stored curves."""
    probability = law(rows, alpha)
    stored = curves(table(rows, zipf_alpha=alpha))
    for lookups in np.geomspace(1, 1e9, 10):
        exact = exact_unique(probability, lookups)
        assert unique_rows(rows, alpha, lookups) == pytest.approx(exact, rel=0.0025)
        assert stored.unique_rows(np.array([0]), lookups)[0] == pytest.approx(exact, rel=0.005)


@pytest.mark.parametrize("alpha", ALPHAS + STEEP)
@pytest.mark.parametrize("rows", SIZES)
def test_hit_rates_of_a_power_law_agree_with_the_exact_sum(rows: int, alpha: float) -> None:
    share = np.cumsum(law(rows, alpha))
    cached = np.unique(np.geomspace(1, rows, 20).astype(int))
    assert hit_rate(rows, alpha, cached) == pytest.approx(share[cached - 1], rel=1e-5)
    stored = curves(table(rows, zipf_alpha=alpha)).hit_rate(np.array([0]), cached / rows)
    assert stored == pytest.approx(share[cached - 1], rel=1e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_distinct_rows_beyond_the_hottest_agree_with_the_exact_sum(alpha: float) -> None:
    """Within 0.3 % at any share of the rows and number of ids; none beyond all rows, and beyond none all."""
    rows, lookups = 5000, np.geomspace(1, 1e9, 12)
    probability, stored, first = law(rows, alpha), curves(table(rows, zipf_alpha=alpha)), np.zeros(12, dtype=int)
    for hottest in (0, 1, 5, 8, 50, 500, 4_999, 5_000):
        exact = np.array([exact_unique(probability[hottest:], each) for each in lookups])
        found = stored.rows_beyond(first, np.full(12, hottest / rows), lookups)
        assert found == pytest.approx(exact, rel=0.003), hottest


def test_distinct_rows_beyond_the_hottest_by_other_laws() -> None:
    """By an empirical curve, exactly; by the exponent of the distinct ids that were measured; and by a hash, as the
    mean of 60 random ones, within 1 %."""
    points, random, one = [[0.02, 0.6], [1, 1]], np.random.default_rng(3), np.array([0])
    curve = np.r_[np.full(2_000, 0.6 / 2_000), np.full(98_000, 0.4 / 98_000)]
    stored = curves(table(100_000, access_cdf=points))
    for hottest in (1_000, 2_000, 30_000):
        exact = exact_unique(curve[hottest:], 60_000)
        found = stored.rows_beyond(one, np.array([hottest / 1e5]), np.array([60_000.0]))
        assert found == pytest.approx(exact, rel=1e-9)
    measured = curves(table(10**6, pooling_factor=10, unique_fraction=0.2), batch=50_000)
    steep = exact_unique(law(10**6, float(measured.unique_alpha[0]))[10_000:], 500_000)
    assert measured.rows_beyond(one, np.array([0.01]), np.array([5e5])) == pytest.approx(steep, rel=0.003)
    seen = []
    for _ in range(60):  # the 100 hottest ids have a row each, which others share
        row_of_id = np.r_[np.arange(100), random.integers(0, 1_000, 9_900)]
        read = np.unique(row_of_id[random.choice(10_000, 2_000, p=law(10_000, 0.9))])
        seen.append(int((read >= 100).sum()))
    shared = _shared(1_000, table(10_000, zipf_alpha=0.9)).rows_beyond(one, np.array([0.1]), np.array([2_000.0]))
    assert shared == pytest.approx(np.mean(seen), rel=0.01)


def test_logged_counts_of_distinct_rows() -> None:
    """Ten tables of 1,677,721 rows, exponent 1.05: 350,280 distinct among 10 x 104,857 ids were logged.

    dynamicemb's benchmark on an H100. Its generator rounds down a continuous power law: its first rows are a
    little colder than i^-a: hence the 6 %.
    """
    assert 10 * unique_rows(1_677_721, 1.05, 104_857) == pytest.approx(350_280, rel=0.06)


@pytest.mark.parametrize(("alpha", "fraction"), [(0.0, 0.3), (0.8, 0.1), (1.05, 0.02), (1.05, 0.3), (1.3, 0.05)])
def test_misses_of_a_cache_that_keeps_what_was_read_last(alpha: float, fraction: float) -> None:
    """Batches of ids, drawn and played against such a cache: within 2 % of what is expected."""
    rows, batch, steps = 20_000, 1_000, 120
    random = np.random.default_rng(1)
    weights = np.arange(1.0, rows + 1) ** -alpha
    held: dict[int, None] = {}
    missed = []
    for _ in range(steps):
        ids = random.choice(rows, size=batch, p=weights / weights.sum()).tolist()
        missed.append(len(set(ids) - held.keys()))
        for row in ids:
            held.pop(row, None)
            held[row] = None
        for row in list(held)[: max(0, len(held) - int(fraction * rows))]:
            del held[row]
    stored = curves(table(rows, zipf_alpha=alpha))
    expected = stored.missed_rows(np.array([0]), np.array([fraction]), np.array([float(batch)]))[0]
    assert np.mean(missed[steps // 3 :]) == pytest.approx(expected, rel=0.02)


def test_without_a_curve_access_is_uniform() -> None:
    plain = curves(table(1000))
    assert plain.hit_rate(np.array([0, 0]), [0.25, 0.5]) == pytest.approx([0.25, 0.5])
    expected = 1000 * (1 - (1 - 1e-3) ** 500)
    assert plain.unique_rows(slice(None), 500)[0] == pytest.approx(expected, rel=0.002)


def test_an_empirical_curve_is_followed() -> None:
    """10 % of the rows take 90 %, half are never read: those cost capacity only."""
    points = [[0.1, 0.9], [0.5, 1.0], [1.0, 1.0]]
    stored = curves(table(100), table(10_000, access_cdf=points), table(500, access_cdf=points))
    index = np.array([1, 1, 1, 2, 0])
    fraction = np.array([0.05, 0.1, 0.3, 0.6, 0.6])
    assert stored.hit_rate(index, fraction) == pytest.approx([0.45, 0.9, 0.95, 1.0, 0.6])
    assert stored.unique_rows(np.array([1]), 1e9)[0] == pytest.approx(5000)
    probability = np.r_[np.full(1000, 0.9 / 1000), np.full(4000, 0.1 / 4000)]
    assert stored.unique_rows(np.array([1]), 3000)[0] == pytest.approx(exact_unique(probability, 3000), rel=0.005)


def test_a_measured_unique_fraction_is_met_at_its_batch_and_implies_a_curve() -> None:
    measured = table(10**6, pooling_factor=10, unique_fraction=0.2)
    stored = curves(measured, table(10**6, pooling_factor=10, unique_fraction=0.2, zipf_alpha=0.5), batch=50_000)
    lookups = 10 * 50_000
    assert stored.unique_rows(slice(None), lookups) == pytest.approx([0.2 * lookups] * 2, rel=0.005)
    implied, given = stored.hit_rate(slice(None), 0.01)
    assert implied > 0.3
    assert given == pytest.approx(hit_rate(10**6, 0.5, 10**4))


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0, 10.0, 16.0])
def test_deduplication_leaves_the_distinct_rows_that_were_measured(factor: float) -> None:
    """A tenth of 1,310,720 ids are distinct, however often the ids that go to the lookup still repeat; 1 %. A factor
    above ten cannot be: one lookup stays for every distinct id."""
    measured = table(10**7, pooling_factor=20, unique_fraction=0.1, dedup_factor=factor)
    left = 20 * 65_536 / min(factor, 10)
    assert 65_536 * measured.pooling_factor / measured.deduplication == pytest.approx(left)
    assert curves(measured, batch=65_536).unique_rows(np.array([0]), left)[0] == pytest.approx(131_072, rel=0.01)


def test_curves_of_a_workload() -> None:
    stored = AccessCurves.of(load_workload("nv-tiny"))
    assert stored.rows.shape == (55,)
    assert AccessCurves.of(load_workload("fbgemm-000"), world_size=8).rows.shape == (10,)


def _shared(rows: int, *tables: TableProfile) -> AccessCurves:
    """The curves of tables whose ids share so many rows."""
    return AccessCurves.from_tables(tables, 1.0, [rows] * len(tables))


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.8, 2.0])
def test_ids_that_share_rows_read_what_every_hash_reads_on_average(rows: int, alpha: float) -> None:
    """Over all hashes of six ids: distinct rows are at most a fifth of a row too many and never too few; the hottest
    rows take at least the hit rate of an optimum that knows the hash, on average, and all rows take all reads."""
    probability = law(6, alpha)
    hashes = np.array(list(itertools.product(range(rows), repeat=6)))
    of_row = np.array([np.bincount(each, weights=probability, minlength=rows) for each in hashes])
    stored, first = _shared(rows, table(6, zipf_alpha=alpha)), np.array([0])
    for draws in (1, 2, 3, 5, 8, 20, 100):
        exact = np.mean([exact_unique(each, draws) for each in of_row])
        found = stored.unique_rows(first, draws)[0]
        assert exact * (1 - 1e-3) <= found <= exact + 0.2 + 1e-3
    hottest = np.sort(of_row, axis=1)[:, ::-1].cumsum(axis=1).mean(axis=0)
    hit = stored.hit_rate(first, np.arange(1, rows + 1) / rows)
    assert np.all(hit <= hottest + 1e-9)
    assert np.all(hit >= np.arange(1, rows + 1) / rows - 1e-9)
    assert hit[-1] == pytest.approx(1)


def test_a_hash_of_many_ids_is_met_by_simulation() -> None:
    """60,000 draws from 100,000 ids in 10,000 rows: the mean of eight random hashes, within 1 %; a curve likewise."""
    random, draws = np.random.default_rng(3), 60_000
    points = [[0.02, 0.6], [1, 1]]
    curve = np.r_[np.full(2_000, 0.6 / 2_000), np.full(98_000, 0.4 / 98_000)]
    for profile, probability in (
        (table(100_000, zipf_alpha=1.05), law(100_000, 1.05)),
        (table(100_000, access_cdf=points), curve),
    ):
        seen = [
            len(np.unique(random.integers(0, 10_000, 100_000)[random.choice(100_000, draws, p=probability)]))
            for _ in range(8)
        ]
        found = _shared(10_000, profile).unique_rows(np.array([0]), draws)[0]
        assert found == pytest.approx(np.mean(seen), rel=0.01)


def test_a_cache_of_shared_rows_misses_what_an_lru_cache_misses() -> None:
    """20,000 ids in 2,000 rows, of which a cache keeps the 400 read last: misses of batches of 500, within 3 %."""
    random, probability = np.random.default_rng(4), law(20_000, 0.9)
    row_of_id = random.integers(0, 2_000, 20_000)
    kept: dict[int, None] = {}
    missed = []
    for _ in range(400):
        batch = np.unique(row_of_id[random.choice(20_000, 500, p=probability)]).tolist()
        missed.append(sum(row not in kept for row in batch))
        for row in batch:
            kept.pop(row, None)
            kept[row] = None
        for row in list(kept)[: max(0, len(kept) - 400)]:
            del kept[row]
    found = _shared(2_000, table(20_000, zipf_alpha=0.9)).missed_rows(np.array([0]), np.array([0.2]), np.array([500.0]))
    assert found[0] == pytest.approx(np.mean(missed[50:]), rel=0.03)


def test_a_row_for_every_id_is_no_hash() -> None:
    """As many rows as ids: the very same numbers as without a word about rows."""
    profiles = [table(5000, zipf_alpha=1.05), table(5000), table(5000, access_cdf=[[0.2, 0.9], [1, 1]])]
    plain, stated = curves(*profiles), _shared(5000, *profiles)
    for lookups in (1, 300, 1e6):
        assert (plain.unique_rows(slice(None), lookups) == stated.unique_rows(slice(None), lookups)).all()
    assert (plain.hit_rate(slice(None), 0.3) == stated.hit_rate(slice(None), 0.3)).all()


PROFILES = st.one_of(
    st.builds(lambda rows, alpha: table(rows, zipf_alpha=alpha), st.integers(1, 10**13), st.floats(0, 10)),
    st.builds(table, st.integers(1, 10**13)),
    st.builds(
        lambda rows, x, y: table(rows, access_cdf=[[x, max(x, y)], [1, 1]]),
        st.integers(1, 10**9),
        st.floats(1e-4, 0.99),
        st.floats(0, 1),
    ),
    st.builds(lambda rows, u: table(rows, unique_fraction=u), st.integers(1, 10**9), st.floats(0.01, 1)),
)


@given(st.lists(PROFILES, min_size=1, max_size=3), st.integers(1, 100), st.data())
@settings(max_examples=60, deadline=None)
def test_bounds_and_order(tables: list[TableProfile], ids_per_row: int, data: st.DataObject) -> None:
    """0 ≤ hit ≤ 1, hit ≥ the share cached, hit(1) = 1; distinct ≤ rows and ids; both rise. Also of ids that share
    rows."""
    rows = [-(-each.rows // ids_per_row) for each in tables]
    stored = AccessCurves.from_tables(tables, 1000.0, rows)
    index = data.draw(st.integers(0, len(tables) - 1))
    fraction = np.sort(data.draw(st.lists(st.floats(0, 1), min_size=2, max_size=6)))
    which, some = np.full(len(fraction), index), np.full(len(fraction), 1000.0)
    missed = stored.missed_rows(which, fraction, some)
    assert np.all((missed >= 0) & (missed <= stored.unique_rows(which, some)))
    assert np.all(np.diff(missed) <= 1e-6 * missed[:-1] + 1e-9)
    beyond = stored.rows_beyond(which, fraction, some)
    assert np.all((beyond >= 0) & (beyond <= stored.unique_rows(which, some)))
    assert np.all(np.diff(beyond) <= 1e-9)
    hit = stored.hit_rate(which, fraction)
    assert np.all((hit >= fraction) & (hit <= 1))
    assert np.all(np.diff(hit) >= -1e-9)
    assert stored.hit_rate(np.array([index]), 1.0)[0] == 1
    lookups = np.sort(data.draw(st.lists(st.floats(0, 1e13), min_size=2, max_size=6)))
    distinct = stored.unique_rows(np.full(len(lookups), index), lookups)
    assert np.all((distinct >= 0) & (distinct <= np.minimum(rows[index], lookups)))
    half = stored.rows_beyond(np.full(len(lookups), index), np.full(len(lookups), 0.5), lookups)
    assert np.all(np.diff(half) >= -1e-9 * half[1:])
    assert np.all(np.diff(distinct) >= -1e-9 * distinct[1:])


def test_a_whole_problem_is_answered_at_once() -> None:
    """600,000 pairs on 10,000 tables in under 3 s of processor time."""
    stored = AccessCurves.of(load_workload("synthetic:10000"))
    random = np.random.default_rng(0)
    index = random.integers(0, 10_000, 600_000)
    fraction, lookups = random.random(600_000), 10 ** random.uniform(0, 8, 600_000)
    start = time.process_time()
    stored.unique_rows(index, lookups)
    stored.hit_rate(index, fraction)
    assert time.process_time() - start < 3


def test_a_fraction_that_was_measured_on_another_batch() -> None:
    """The distinct ids of that batch are met; a smaller batch has a larger share of them."""
    table = TableProfile(
        name="t", rows=10**6, dim=4, pooling_factor=10, unique_fraction=0.2, unique_fraction_batch=65_536
    )
    curves = AccessCurves.from_tables([table], batch=4_096)
    same = AccessCurves.from_tables([table.model_copy(update={"unique_fraction_batch": None})], batch=65_536)
    for batch in (4_096, 65_536, 10**6):
        assert curves.unique_rows(slice(0, 1), 10 * batch) == same.unique_rows(slice(0, 1), 10 * batch)
    assert float(curves.unique_rows(slice(0, 1), 655_360)[0]) == pytest.approx(0.2 * 655_360, rel=1e-3)
    assert float(curves.unique_rows(slice(0, 1), 40_960)[0]) > 0.3 * 40_960
    with pytest.raises(ValueError, match="where unique_fraction was measured, which is missing"):
        TableProfile(name="t", rows=10, dim=4, pooling_factor=1, unique_fraction_batch=8)


def played_without_place(rows: int, alpha: float, ids: int, places: int, *, prefetched: bool) -> float:
    """Rows of a batch that find no place in a cache that is played row by row, the least recently used of those that
    are not locked making room: the mean of batches once it is full."""
    random, weights = np.random.default_rng(1), np.arange(1.0, rows + 1) ** -alpha
    ends, last_read, locked = np.cumsum(weights / weights.sum()), np.full(rows, -1), np.zeros(rows, dtype=bool)
    without = []
    for batch in range(24):
        asked = np.zeros(rows, dtype=bool)
        asked[np.searchsorted(ends, random.random(ids))] = True
        locked &= prefetched
        held = last_read >= 0
        free = places - np.count_nonzero(locked)
        hits, misses = np.flatnonzero(asked & held & ~locked), random.permutation(np.flatnonzero(asked & ~held))
        taken = np.concatenate([hits, misses])[: max(free, 0)]
        without.append(np.count_nonzero(asked & ~locked) - len(taken))
        kept, locked = locked.copy(), (asked & locked) | np.isin(np.arange(rows), taken)
        last_read[taken] = batch
        last_read[locked] = batch
        others = np.flatnonzero((last_read >= 0) & ~locked & ~kept)
        room = places - np.count_nonzero(locked | kept)
        oldest = others[np.argsort(last_read[others], kind="stable")]
        last_read[oldest[: max(len(others) - room, 0)]] = -1
    return float(np.mean(without[8:]))


@pytest.mark.parametrize("alpha", [0.0, 0.9])
@pytest.mark.parametrize("prefetched", [False, True])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.4])
def test_rows_without_a_place_are_those_of_a_played_cache(alpha: float, prefetched: bool, share: float) -> None:
    """Locked until the batch is updated, beside those of the batch before where misses are prefetched: within 6 %, and
    2 % of the rows of a batch; never more than are missed, and read at least once."""
    rows, ids = 5_000, 4_000
    access = Tables.of(workload([{"rows": rows, "dim": 64, "zipf_alpha": alpha}]), 1).access
    table, fraction, lookups = np.zeros(1, dtype=np.int64), np.array([share]), np.array([float(ids)])
    found, reads = access.without_place(table, fraction, lookups, is_prefetched=prefetched)
    played = played_without_place(rows, alpha, ids, int(share * rows), prefetched=prefetched)
    unique = float(access.unique_rows(table, lookups)[0])
    assert float(found[0]) == pytest.approx(played, rel=0.06, abs=0.02 * unique)
    assert found[0] <= access.missed_rows(table, fraction, lookups)[0] + 1e-9
    assert found[0] <= reads[0] + 1e-9 <= ids + 1e-9


def test_windows_are_those_that_bisection_ends_in() -> None:
    """To the last bit: of power laws and measured curves, of caches from a row to all rows, full curves among them."""
    random = np.random.default_rng(7)
    for name in ("synthetic:300@seed=2", "fbgemm-001"):
        tables = load_workload(name)
        curves = AccessCurves.of(tables, 128)
        table = random.integers(0, len(tables.tables), 3000)
        distinct = np.maximum(curves.rows[table] ** random.random(3000), 1.0)
        distinct[:100], distinct[100:300] = 1.0, curves.rows[table[100:300]]
        kind = curves._unique_curves[2][table]
        values = curves._unique_curves[0][kind]
        low, width = (values <= np.log(distinct)[:, None] * (1 + 1e-15)).sum(axis=1) - 1.0, 1.0
        low = np.clip(low, 0, values.shape[1] - 2)
        for _ in range(40):
            width /= 2
            low = np.where(curves._unique_between(kind, exp(low + width)) <= distinct, low + width, low)
        np.testing.assert_allclose(curves._window(kind, distinct), exp(low), rtol=2e-12)
        assert (curves._window(kind, distinct) == exp(low)).mean() > 0.99
