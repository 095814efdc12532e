"""Ids of a batch, drawn: a judge of the access curves that shares no formula with them.

The hottest rows of a table are drawn one by one: how often a batch reads a row is a Poisson number. Of the ids beyond
them a sample is drawn, stratified over their cumulative share; each stands for as many ids as were to be drawn, and
shares its row with a Poisson number of others, so that it stands for that part of so many distinct rows (the mean of
1 / (1 + others) over all ids is distinct rows over ids: the estimate is unbiased). How many ids ago a row was last
read is exponential; a cache that keeps what was read last holds the rows of a window of ids. Distinct rows, misses and
shares of reads are then counted.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from cost_models.elementary import exp, expm1, power
from cost_models.shards import Floats
from cost_models.simulator.graph import Flags
from cost_models.workload.table_profile import TableProfile

HOTTEST = 2048
"""Rows of a table that are drawn one by one."""
LEAST_SAMPLED, MOST_SAMPLED, SAMPLED_IN_ALL = 2048, 131_072, 3_000_000
"""Ids that are drawn beyond: of one table, and of all."""
FITTED_ON = 1024
"""Points of the grid on which the exponent of a measured share of distinct ids is found."""
STEEPEST = 10.0
WINDOWS = 60
"""Bisections of the window of ids that a cache holds the rows of."""
Curve = tuple[tuple[float, float], ...] | None


@dataclass(frozen=True)
class RowLaw:
    """How likely an id reads the row of a rank: a power law, or an empirical curve of shares of rows and of reads."""

    rows: float
    alpha: float
    curve: Curve = None

    @property
    def hottest(self) -> int:
        """Rows that are drawn one by one."""
        return int(min(self.rows, HOTTEST))

    def probability(self, rank: Floats) -> Floats:
        """Of each rank."""
        if self.curve is None:
            return np.asarray(power(rank, -self.alpha) / self._total)
        place, share = np.array([(0.0, 0.0), *self.curve]).T
        up_to, before = (np.interp(each / self.rows, place, share) for each in (rank, rank - 1))
        return np.asarray(up_to - before)

    def beyond(self, share: Floats) -> Floats:
        """Ranks up to which this share of the ids goes that read none of the hottest rows."""
        low, high = self.hottest + 0.5, self.rows + 0.5
        if self.curve is not None:
            place, reads = np.array([(0.0, 0.0), *self.curve]).T
            first = np.interp(self.hottest / self.rows, place, reads)
            return np.asarray(np.interp(first + share * (1 - first), reads, place) * self.rows + 0.5)
        flat = 1 - self.alpha
        if flat == 0:
            return np.asarray(low * power(high / low, share))
        return np.asarray(power(low**flat + share * (high**flat - low**flat), 1 / flat))

    @cached_property
    def _total(self) -> float:
        """The sum of rank^-alpha over all rows; beyond the hottest, by strips around each rank."""
        low, high, flat = self.hottest + 0.5, self.rows + 0.5, 1 - self.alpha
        rest = math.log(high / low) if flat == 0 else (high**flat - low**flat) / flat
        return float((power(np.arange(1.0, self.hottest + 1), -self.alpha)).sum() + rest)


def law_of_reads(profile: TableProfile, ids: float, measured_on: float) -> RowLaw:
    """By which the share of the reads that the hottest rows take is drawn: a stated curve or exponent goes first."""
    if profile.access_cdf is not None:
        return RowLaw(ids, 0.0, tuple((place, share) for place, share in profile.access_cdf))
    if profile.zipf_alpha is not None:
        return RowLaw(ids, profile.zipf_alpha)
    return RowLaw(ids, 0.0) if profile.unique_fraction is None else law_of_distinct(profile, ids, measured_on)


def law_of_distinct(profile: TableProfile, ids: float, measured_on: float) -> RowLaw:
    """By which distinct rows are drawn: where their share was measured, on a batch of so many samples, by the exponent
    with which so many ids read so many rows; else as the shares of reads are."""
    if profile.unique_fraction is None:
        return law_of_reads(profile, ids, measured_on)
    drawn = profile.pooling_factor * (profile.unique_fraction_batch or measured_on)
    return RowLaw(ids, _exponent(ids, drawn / profile.dedup_factor, profile.unique_fraction * drawn))


@lru_cache(maxsize=4096)
def _exponent(rows: float, ids: float, distinct: float) -> float:
    """The exponent with which so many ids read `distinct` rows, as nearly as one does."""
    edges = np.unique(exp(np.linspace(0.0, math.log(rows + 1.0), FITTED_ON)).round())
    middle, strip = (edges[:-1] + edges[1:] - 1) / 2, np.diff(edges)
    low, high = 0.0, STEEPEST
    for _ in range(40):
        alpha = (low + high) / 2
        likely = RowLaw(rows, alpha).probability(middle)
        read = float((strip * -expm1(-ids * likely)).sum())
        low, high = (alpha, high) if read > distinct else (low, alpha)
    return low


@dataclass(frozen=True)
class Draw:
    """One batch of ids over the rows of a table: each of the hottest rows, then ids beyond them; n in all."""

    law: RowLaw
    rank: Floats
    """[n] of the row, from 1 for the hottest."""
    probability: Floats
    """[n] that an id reads it."""
    ids: Floats
    """[n] ids that each stands for."""
    rows: Floats
    """[n] distinct rows that each stands for."""
    age: Floats
    """[n] ids since the row was last read, before the batch."""

    @classmethod
    def of(cls, law: RowLaw, ids: float, size: int, random: np.random.Generator) -> "Draw":
        """A batch of so many ids, by a sample of `size` beyond the hottest rows."""
        rank = np.arange(1.0, law.hottest + 1)
        if law.rows > law.hottest:
            share = (np.arange(size) + random.random(size)) / size
            rank = np.concatenate([rank, np.clip(law.beyond(share).round(), law.hottest + 1, law.rows)])
        likely = np.maximum(law.probability(rank), 1e-300)
        hot = law.hottest
        reads = random.poisson(ids * likely[:hot]).astype(np.float64)
        each = ids * max(1 - float(likely[:hot].sum()), 0.0) / size
        others = random.poisson(max(ids - 1, 0.0) * likely[hot:])
        return cls(
            law,
            rank,
            likely,
            np.concatenate([reads, np.full(len(others), each)]),
            np.concatenate([np.minimum(reads, 1.0), each / (1 + others)]),
            random.exponential(size=len(likely)) / likely,
        )

    def is_held(self, rows: float) -> Flags:
        """[n] whether a cache of so many rows holds each row when the batch comes: those that were read last."""
        return self.age <= self._window(rows)

    def read_from_memory(self, rows: float, ids: float) -> Floats:
        """[n] how many of the ids that each stands for a cache of so many rows lacks the row of, which is empty before
        the batch of so many `ids`: the first that reads it, and each that comes more than the cache's window after the
        one before. Of k ids at random in a batch that is (1 - window / batch)^k of the k - 1 further ones."""
        reads = self.ids / np.maximum(self.rows, 1e-300)
        late = power(max(1 - self._window(rows) / max(ids, 1e-300), 1e-300), reads)
        return np.asarray(self.rows * (1 + np.maximum(reads - 1, 0.0) * late))

    def _window(self, rows: float) -> float:
        """The last ids that read so many rows."""
        hot, likely = self.law.hottest, self.probability
        each = np.ones(len(likely))
        if len(likely) > hot:  # rows that an id stands for, whether they are read or not
            each[hot:] = max(1 - float(likely[:hot].sum()), 0.0) / (len(likely) - hot) / likely[hot:]
        low, high = 0.0, 80.0
        for _ in range(WINDOWS):
            window = (low + high) / 2
            found = float((each * -expm1(-likely * math.exp(window))).sum())
            low, high = (window, high) if found < rows else (low, window)
        return math.exp(low)

    def without_place(self, places: float, ids: float, *, is_prefetched: bool) -> Floats:
        """[n] probability that a row which is read finds none of so many places of a cache, each of which is taken
        until the row in it is updated, by batches of so many ids. Prefetched, a row takes a place for the batch before,
        too, if that read it and it had one; all others of a batch find one with the same probability, by bisection.
        Rows that the cache holds when the batch comes are not among those without one."""
        batches = 1 + is_prefetched
        is_read = -expm1(-ids * self.probability) * is_prefetched
        low, high = 0.0, 1.0
        for _ in range(WINDOWS):
            found = (low + high) / 2
            has = found / (1 - is_read + is_read * found)
            low, high = (found, high) if float((self.rows * has * (batches - is_read)).sum()) < places else (low, found)
        missed = ~self.is_held(places)
        lacking, most = float((self.rows * (1 - has)).sum()), float(self.rows[missed].sum())
        return np.where(missed, min(lacking / most, 1.0) if most else 0.0, 0.0)

    def hit_share(self, rows: float) -> float:
        """Share of the ids that read the so many hottest rows."""
        return float(self.ids[self.rank <= rows + 0.5].sum() / max(self.ids.sum(), 1e-300))
