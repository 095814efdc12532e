"""Which rows a batch reads: how many distinct ones, which share of the reads the hottest rows take, what caches miss.

The rows of a table are ordered by how often they are read. Under a power law row i of N is read with
probability p_i = i^-a / H(N), where H(x) is the sum of i^-a up to x; a = 0 is uniform access. An empirical
curve is piecewise linear: inside a piece all rows are equally hot. The ids of a batch are taken as
independent draws, so L of them read a row at least once with probability 1 - (1 - p)^L.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_models.cubics import crossing, rising_slopes
from cost_models.elementary import exp, expm1, log, log1p
from cost_models.power_laws import (
    chance_read,
    clip,
    fitted_alpha,
    harmonic,
    of_head,
    rows_beyond,
    unique_rows_and_slope,
)
from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Cases = tuple[Ints, Floats, Floats]
"""Tables, shares of their rows that are cached, and numbers of ids; [n] each."""

LOG_LOOKUPS = np.arange(0.0, 33.0)
"""ln L of the stored curves: steps of one e-fold up to 8e13 ids, with a monotone cubic between them."""
CHUNK = 512
"""Tables whose curves are computed at once; bounds the working memory at about 50 MB."""
BISECTIONS = 40
"""Halvings of one e-fold of ids: what a window of ids reads is met to twelve digits."""
AT_ONCE = 4
"""Halvings whose points are computed together: few windows are left to them, so that calls, not numbers, take time."""

MOST_KEPT = 32
"""Answers that are kept of the last questions about misses."""


@dataclass(frozen=True)
class AccessCurves:
    """The access curves of T tables, built once and asked often.

    A `table` argument is an index array of any shape, or `slice(None)` for every table in order. The other
    argument is broadcast against it, and so is the result.
    """

    ids: Floats
    """[T] what the law of access is over."""
    rows: Floats
    """[T] stored rows: one for each id, or fewer, among which a hash spreads the ids."""
    alpha: Floats
    """[T] exponent of the hit curve; without meaning for an empirical one."""
    unique_alpha: Floats
    """[T] exponent of the distinct-rows curve: fitted where unique_fraction was measured, else `alpha`."""
    curves: tuple[Floats | None, ...]
    """[T] empirical curve as [points, 2] from (0, 0) to (1, 1), or None."""
    measured: Flags
    """[T] whether unique_fraction was measured; then it, not an empirical curve, gives the distinct rows."""

    @classmethod
    def of(cls, workload: Workload, world_size: int = 1) -> "AccessCurves":
        """The curves of a workload's tables.

        `unique_fraction` was measured on one global batch, which depends on `world_size` where the workload
        gives the batch per rank; its distinct ids are still there after deduplication.
        """
        stored = [workload.stored_rows(table) for table in workload.tables]
        return cls.from_tables(workload.tables, workload.batch(world_size), stored)

    @classmethod
    def from_tables(
        cls, tables: Sequence[TableProfile], batch: float, stored_rows: Sequence[int] | None = None
    ) -> "AccessCurves":
        """The curves of tables whose `unique_fraction` was measured on `batch` samples where they do not say on how
        many; of the ids that deduplication leaves. Without `stored_rows` [T] every id has a row of its own."""
        ids = np.array([table.rows for table in tables], dtype=np.float64)
        rows = ids if stored_rows is None else np.array(stored_rows, dtype=np.float64)
        fraction = np.array([table.unique_fraction or np.nan for table in tables])
        given = np.array([np.nan if table.zipf_alpha is None else table.zipf_alpha for table in tables])
        measured = ~np.isnan(fraction)
        left = np.array([table.deduplication for table in tables])[measured]
        batches = np.array([table.unique_fraction_batch or batch for table in tables])[measured]
        lookups = np.array([table.pooling_factor for table in tables])[measured] * batches / left
        unique_alpha = np.nan_to_num(given, nan=0.0)
        unique_alpha[measured] = fitted_alpha(ids[measured], fraction[measured] * left, lookups)
        curves = tuple(_points(table.access_cdf) for table in tables)
        return cls(ids, rows, np.where(np.isnan(given), unique_alpha, given), unique_alpha, curves, measured)

    def hit_rate(self, table: Ints | slice, fraction: ArrayLike) -> Floats:
        """Share of the reads that the hottest `fraction` (0 to 1) of a table's rows takes.

        Where ids share rows, it is that of the rows of as many of the hottest ids, and of the other ids that a hash
        puts there: on average, the hottest rows take at least as much.
        """
        fraction = clip(np.asarray(fraction, dtype=np.float64), 0.0, 1.0)
        rows_per_id = self.rows[table] / self.ids[table]
        hit = self._hit_rate_of_ids(table, fraction * rows_per_id)
        return np.where(rows_per_id < 1, fraction + (1 - fraction) * hit, hit)

    def _hit_rate_of_ids(self, table: Ints | slice, fraction: Floats) -> Floats:
        """Share of the reads that the hottest `fraction` of a table's ids takes."""
        alpha = self.alpha[table]
        share = clip(
            harmonic(fraction * self.ids[table], alpha, self._of_head[table]) / self._total[table], fraction, 1.0
        )
        if not self._empirical.any():
            return share
        axis, shares = self._joined
        interpolated = np.interp(self._start[table] + fraction, axis, shares)
        return np.where(self._empirical[table], np.maximum(interpolated, fraction), share)

    def unique_rows(self, table: Ints | slice, lookups: ArrayLike) -> Floats:
        """Expected distinct rows among `lookups` ids of a table: at least one of one id, also where a curve has parts
        of less than a row."""
        lookups = np.asarray(lookups, dtype=np.float64)
        unique = np.maximum(self._unique_between(self._unique_curves[2][table], lookups), 1.0)
        return np.where(lookups < 1, lookups, np.minimum(unique, np.minimum(self.rows[table], lookups)))

    def rows_beyond(self, table: Ints, fraction: Floats, lookups: Floats) -> Floats:
        """Expected distinct rows among `lookups` ids that are not among the hottest `fraction` of a table's rows; [n].

        Where ids share rows, these are the rows that the ids beyond as many of the hottest are put into by a hash.
        """
        (table, fraction, lookups), which = _distinct(table, np.clip(fraction, 0.0, 1.0), lookups)
        ids, rows = self.ids[table], self.rows[table]
        hottest, found = fraction * rows, np.zeros(len(table))
        by_curve = self._empirical[table] & ~self.measured[table]
        i = np.flatnonzero(~by_curve)
        found[i] = rows_beyond(ids[i], self.unique_alpha[table[i]], lookups[i], hottest[i])
        for number in np.unique(table[by_curve]).tolist():
            curve, j = self.curves[number], np.flatnonzero(table == number)
            if curve is not None:
                found[j] = _rows_beyond_of_curve(ids[j], curve, lookups[j], hottest[j] / ids[j])
        found = np.where(rows < ids, (1 - fraction) * _rows_of_ids(found, rows), found)
        most = np.minimum(self.unique_rows(table, lookups), (1 - self.hit_rate(table, fraction)) * lookups)
        found = np.where(fraction > 0, np.clip(found, 0.0, most), most)
        return np.asarray(found[which])

    def missed_rows(self, table: Ints, fraction: Floats, lookups: Floats) -> Floats:
        """Expected distinct rows among `lookups` ids that a cache of `fraction` of the rows lacks when they come; [n].

        The cache keeps the rows that were read last: those of a window of as many ids as read as many distinct rows
        as it holds (Che, Tung & Wang 2002). With U(L) the distinct rows of L ids, a batch after a window of t ids
        brings U(t + L) - U(t) new ones.
        """
        cases, which = _distinct(table, fraction, lookups)
        return np.asarray(self._misses(cases)[0][which])

    def read_from_memory(self, table: Ints, fraction: Floats, lookups: Floats) -> Floats:
        """Expected reads of `lookups` ids that find their row not in a cache of `fraction` of the rows, empty at first;
        [n].

        The cache keeps the rows that were read last, as in `missed_rows`. With U(L) the distinct rows of L ids, and T
        ids that read as many as it holds, the first T ids read U(T) rows from memory, and each further one does with
        probability U'(T): U up to T, and its tangent beyond.
        """
        (table, fraction, lookups), which = _distinct(table, np.clip(fraction, 0.0, 1.0), lookups)
        kind, held, unique = (
            self._unique_curves[2][table],
            fraction * self.rows[table],
            self.unique_rows(table, lookups),
        )
        window = np.where(held < 1, held, self._window(kind, np.maximum(held, 1.0)))
        before, next_one = (np.where(ids < 1, ids, self._unique_between(kind, ids)) for ids in (window, window + 1))
        tangent = before + (lookups - window) * np.clip(next_one - before, 0.0, 1.0)
        return np.asarray(np.where(unique <= held, unique, np.clip(tangent, unique, lookups))[which])

    def without_place(
        self, table: Ints, fraction: Floats, lookups: Floats, *, is_prefetched: bool
    ) -> tuple[Floats, Floats]:
        """(missed rows, their reads) of `lookups` ids that find no place in a cache of `fraction` of the rows; [n].

        A row keeps its place from the time when it is fetched until it is updated, so that a batch has no more places
        than the cache. Prefetched, the rows of the batch before are still there: a row that both read has the place it
        had, every other one finds one with the same probability (see `_share_with_place`). No more rows than are missed
        lack one, and they are read as often as missed ones on average.
        """
        cases, which = _distinct(table, fraction, lookups)
        table, fraction, lookups = cases
        missed, read = self._misses(cases)
        first, held = self.unique_rows(table, lookups), fraction * self.rows[table]
        rows = first - held
        if is_prefetched:
            second, third = (self.unique_rows(table, batches * lookups) for batches in (2, 3))
            rows = first * (1 - _share_with_place(first, second, third, held))
        rows = np.clip(rows, 0.0, missed)
        reads = rows * read / np.maximum(missed, 1e-9)
        return np.asarray(rows[which]), np.asarray(reads[which])

    def _misses(self, cases: Cases) -> tuple[Floats, Floats]:
        """(distinct rows, their reads) that a cache lacks, of distinct cases; see `missed_rows`.

        The last ones are kept: the same blocks are costed for one kind of rank, and at one exchange, after the other.
        """
        key = b"".join(each.tobytes() for each in cases)
        if (found := self._kept.get(key)) is None:
            if len(self._kept) == MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            found = self._kept[key] = self._misses_of(*cases)
        return found

    def _misses_of(self, table: Ints, fraction: Floats, lookups: Floats) -> tuple[Floats, Floats]:
        kind, held = self._unique_curves[2][table], fraction * self.rows[table]
        window = np.where(held < 1, held, self._window(kind, np.maximum(held, 1.0)))
        times = (window, window + 1, window + lookups)
        before, next_one, after = (np.where(ids < 1, ids, self._unique_between(kind, ids)) for ids in times)
        most = np.minimum(self.unique_rows(table, lookups), self.rows[table] - held)
        missed = np.clip(after - before, 0.0, most)
        return missed, np.clip(lookups * (next_one - before), missed, lookups)

    def _unique_between(self, kind: Ints, lookups: Floats) -> Floats:
        """Distinct rows by a monotone cubic between the stored points of each curve (`kind`)."""
        values, slopes, _ = self._unique_curves
        where = log(np.clip(lookups, 1.0, exp(LOG_LOOKUPS[-1])))
        left = np.minimum(where.astype(np.int64), len(LOG_LOOKUPS) - 2)
        t = where - left
        start, end = values[kind, left], values[kind, left + 1]
        m0, m1 = slopes[kind, left], slopes[kind, left + 1]
        step = end - start
        log_unique = start + t * (m0 + t * (3 * step - 2 * m0 - m1 + t * (m0 + m1 - 2 * step)))  # Hermite's cubic
        return np.asarray(exp(log_unique))

    def _window(self, kind: Ints, distinct: Floats) -> Floats:
        """Ids that read so many distinct rows, at most as many as the curves reach, to 2^-BISECTIONS of an e-fold;
        by bisection where rounding lets Newton's method miss it."""
        (values, slopes, _), wanted = self._unique_curves, log(distinct)
        left = np.clip((values[kind] <= wanted[:, None]).sum(axis=1) - 1, 0, len(LOG_LOOKUPS) - 2)
        start, step = values[kind, left], values[kind, left + 1] - values[kind, left]
        t = crossing(wanted - start, step, slopes[kind, left], slopes[kind, left + 1])
        low = left + np.floor(np.ldexp(t, BISECTIONS)).clip(0, 2.0**BISECTIONS - 1) * 0.5**BISECTIONS
        sides = (low, low + 0.5**BISECTIONS)
        is_below = [self._unique_between(kind, exp(side)) <= distinct for side in sides]
        missed = np.flatnonzero(~((is_below[0] | (low == left)) & (~is_below[1] | (sides[1] == left + 1))))
        low[missed] = self._bisected(kind[missed], distinct[missed], left[missed])
        return np.asarray(exp(low))

    def _bisected(self, kind: Ints, distinct: Floats, left: Ints) -> Floats:
        """Logarithms of the ids that read so many distinct rows, from `left` on."""
        low, width, points = left.astype(np.float64), 1.0, 1 << AT_ONCE
        for _ in range(BISECTIONS // AT_ONCE if len(kind) else 0):
            width /= points
            middle = low[:, None] + width * np.arange(1, points)  # exact: sums of powers of two
            below = self._unique_between(kind[:, None], exp(middle)) <= distinct[:, None]
            low += width * _halved(below)
        return low

    @cached_property
    def _kept(self) -> dict[bytes, tuple[Floats, Floats]]:
        """What `_misses` found, by its cases; the oldest first."""
        return {}

    @cached_property
    def _of_head(self) -> Floats:
        """[T, HEAD]"""
        return of_head(self.alpha)

    @cached_property
    def _total(self) -> Floats:
        """[T] H(N)."""
        return harmonic(self.ids, self.alpha)

    @cached_property
    def _empirical(self) -> Flags:
        return np.array([curve is not None for curve in self.curves])

    @cached_property
    def _start(self) -> Floats:
        """[T] where a table's curve starts on the axis of `_joined`."""
        return np.cumsum(2.0 * self._empirical)

    @cached_property
    def _joined(self) -> tuple[Floats, Floats]:
        """All empirical curves one after the other on one axis: one interpolation serves all tables."""
        pairs = zip(self._start, self.curves, strict=True)
        pieces = [np.stack([start + curve[:, 0], curve[:, 1]]) for start, curve in pairs if curve is not None]
        axis, shares = np.concatenate(pieces, axis=1)
        return axis, shares

    @cached_property
    def _unique_curves(self) -> tuple[Floats, Floats, Ints]:
        """K curves: ln of the distinct rows on LOG_LOOKUPS [K, G], slopes [K, G]; and a table's curve [T]."""
        by_law = self.measured | ~self._empirical
        keys = np.stack([self.ids[by_law], self.unique_alpha[by_law], self.rows[by_law]], axis=1)
        laws, law = np.unique(keys, axis=0, return_inverse=True)
        draws = exp(LOG_LOOKUPS)
        parts = [_unique_of_laws(laws.tobytes())]
        parts += [
            _in_rows(*_unique_of_curve(self.ids[table], curve, draws), self.ids[table], self.rows[table])
            for table, curve in enumerate(self.curves)
            if curve is not None and not by_law[table]
        ]
        kinds = np.empty(len(self.rows), dtype=np.int64)
        kinds[by_law] = law.reshape(-1)
        kinds[~by_law] = len(laws) + np.arange(np.count_nonzero(~by_law))
        values = log(np.concatenate([unique for unique, _ in parts]))
        return values, rising_slopes(values, np.concatenate([slope for _, slope in parts])), kinds


def _halved(below: Flags) -> Ints:
    """[n] the part in which AT_ONCE halvings end, one after the other, of 2^AT_ONCE; `below` [n, parts - 1]."""
    part = np.zeros(len(below), dtype=np.int64)
    for halving in range(AT_ONCE - 1, -1, -1):
        middle = part + (1 << halving)
        part = np.where(below[np.arange(len(part)), middle - 1], middle, part)
    return part


def _share_with_place(first: Floats, second: Floats, third: Floats, places: Floats) -> Floats:
    """Share of the rows of a batch that are in a cache with so many `places` beside those of the batch before.

    One, two and three batches read so many distinct rows. A row that is in a batch with probability q, and finds a
    place with probability g unless it has one, has one a = g / (1 - q + q g) of the time; those of two batches in a row
    take a (2 - q) for each row of a batch. The rows are taken to be of two sorts that meet all three numbers: a share w
    with q = h, the others with q = 0 (exact for uniform ids, and for rows that every batch reads among others that
    none reads twice).
    """
    once = np.maximum(first, 1e-9)
    mean = np.clip((2 * first - second) / once, 1e-12, 1.0)  # of q over the rows of a batch
    square = np.clip((third - 3 * second + 3 * first) / once, mean**2, mean)
    often, share = square / mean, mean**2 / square
    rare, common, held = 2 * (1 - share), share * (2 - often), places / once
    linear = rare * (1 - often) + common - held * often
    root = np.sqrt(linear**2 + 4 * rare * often * held * (1 - often))
    finds = np.where(linear >= 0, 2 * held * (1 - often) / np.maximum(linear + root, 1e-300), 0.0)
    by_sum = (root - linear) / np.maximum(2 * rare * often, 1e-300)
    finds = np.clip(np.where(linear >= 0, finds, by_sum), 0.0, 1.0)
    has = finds / np.maximum(1 - often + often * finds, 1e-300)
    return np.asarray((1 - share) * finds + share * has)


def _distinct(table: Ints, fraction: Floats, lookups: Floats) -> tuple[Cases, Ints]:
    """The distinct cases of tables, cached shares and numbers of ids, and which one each is; [n]."""
    order = np.lexsort((lookups, fraction, table))  # a fraction of the time that np.unique takes for rows
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = np.any([np.diff(each[order]) != 0 for each in (table, fraction, lookups)], axis=0)
    which = np.empty_like(order)
    which[order] = is_new.cumsum() - 1
    first = order[is_new]
    return (table[first], np.clip(fraction[first], 0.0, 1.0), lookups[first]), which


def _points(curve: Sequence[tuple[float, float]] | None) -> Floats | None:
    return None if curve is None else np.array([(0.0, 0.0), *curve])


@lru_cache(maxsize=4)
def _unique_of_laws(laws: bytes) -> tuple[Floats, Floats]:
    """`unique_rows_and_slope` [n, G] on LOG_LOOKUPS of power laws [n, 3]: ids, exponent, rows. Kept, as the
    same tables are planned for one cluster after the other."""
    parts = [(np.zeros((0, len(LOG_LOOKUPS))),) * 2]
    of_laws = np.frombuffer(laws).reshape(-1, 3)
    for first in range(0, len(of_laws), CHUNK):
        ids, alpha, rows = of_laws[first : first + CHUNK].T[:, :, None]
        parts.append(_in_rows(*unique_rows_and_slope(ids, alpha, exp(LOG_LOOKUPS)[None, :]), ids, rows))
    unique, slope = (np.concatenate(each) for each in zip(*parts, strict=True))
    return unique, slope


def _unique_of_curve(rows: float, curve: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """`unique_rows_and_slope` of one empirical curve for [G] draws, as [1, G]: an exact sum over its pieces."""
    size = rows * np.diff(curve[:, 0])
    chance, rate = chance_read(np.minimum(np.diff(curve[:, 1]) / size, 1.0), draws[:, None])
    unique = np.minimum((size * chance).sum(axis=1), np.minimum(rows, draws))
    slope = (size * rate).sum(axis=1) * draws / unique
    return unique[None, :], slope[None, :]


def _rows_beyond_of_curve(rows: Floats, curve: Floats, lookups: Floats, fraction: Floats) -> Floats:
    """`rows_beyond` [n] of one empirical curve: an exact sum over what its pieces have beyond these rows."""
    likely = np.diff(curve[:, 1]) / np.diff(curve[:, 0]) / rows[:, None]
    size = rows[:, None] * np.maximum(curve[1:, 0] - np.maximum(curve[:-1, 0], fraction[:, None]), 0.0)
    chance = chance_read(np.minimum(likely, 1.0), np.maximum(lookups, 1.0)[:, None])[0]
    return np.asarray((size * chance).sum(axis=1) * np.minimum(lookups, 1.0))


def _in_rows(unique: Floats, slope: Floats, ids: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Expected distinct rows that distinct ids read, and d ln rows / d ln L: `unique`, and `slope`, of so many ids.

    Where rows are fewer than ids, a hash puts each id into one of S rows at random. U ids leave a row unread with
    probability (1 - 1/S)^U. Of an uncertain U the mean is taken: that is at most a fifth of a row too many.
    """
    read, log_missed = _rows_of_ids(unique, rows), _log_missed(rows)
    read_slope = -rows * log_missed * exp(unique * log_missed) * unique / read * slope
    shared = rows < ids
    return np.where(shared, read, unique), np.where(shared, read_slope, slope)


def _rows_of_ids(unique: Floats, rows: Floats) -> Floats:
    """Those that a hash puts so many distinct ids into."""
    return np.asarray(np.minimum(-rows * expm1(unique * _log_missed(rows)), unique))


def _log_missed(rows: Floats) -> Floats:
    """Logarithm of the chance that an id is not in a given row of so many."""
    return np.asarray(log1p(-np.minimum(1 / rows, 1 - 1e-15)))
