"""The access curve of a feature from its counts: which share of the reads the hottest rows take."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.elementary import exp, log
from cost_models.workload.concave_hull import concave_hull
from planner.profiling.reads import HotIds, Reads

Floats = NDArray[np.float64]
POINTS_PER_DECADE = 12
EVEN_POINTS = 24
NOISY = 1000.0
"""Reads of a row above which chance does not change its rank much."""
SPREAD = 8.0
"""Standard deviations of Poisson's law that are followed."""
TOGETHER = 64
"""Kinds of rows that are drawn together."""
STEEPNESS_AT = 200
DIGITS = 9
"""Decimals of a stored share."""


@dataclass(frozen=True)
class CountedRows:
    """Rows by how often they were read, the hottest first. Rows that were sampled stand for all of their kind."""

    reads: Floats
    """[kinds] reads of each row of the kind, falling."""
    rows: Floats
    """[kinds] how many rows were read so often."""

    @property
    def distinct(self) -> float:
        """Rows that were read at all."""
        return float(self.rows.sum())

    @property
    def total(self) -> float:
        """Reads of all rows."""
        return float((self.rows * self.reads).sum())


def counted_rows(reads: Reads, hot: HotIds, ids: int) -> CountedRows:
    """The rows of a feature that had `ids` reads in all.

    The sampled ids take what the hot ones leave: their number is weighted by 2^level, which is right on the mean, and
    the reads of each are scaled so that all of them together are what was counted.
    """
    is_read = hot.present() & (reads.hot > 0)
    weight = float(1 << reads.level)
    rest = ids - int(reads.hot[is_read].sum())
    estimated = reads.sampled.total * weight
    scale = rest / estimated if reads.level and estimated else 1.0
    values = np.concatenate((reads.hot[is_read].astype(float), reads.sampled.counts * scale))
    rows = np.concatenate((np.ones(int(is_read.sum())), np.full(len(reads.sampled), weight)))
    if not len(reads.sampled) and rest > 0:  # too few to be sampled: as many rows as there can be
        values, rows = np.append(values, 1.0), np.append(rows, float(rest))
    return rows_by_reads(values, rows)


def rows_by_reads(reads: Floats, rows: Floats) -> CountedRows:
    """Rows from how many of them were read how often, in any order; rows that were never read are left out."""
    kinds, at = np.unique(reads[reads > 0], return_inverse=True)
    of_kind = np.bincount(at, weights=rows[reads > 0], minlength=len(kinds)).astype(float)
    return CountedRows(kinds[::-1], of_kind[::-1])


def steepness(counted: CountedRows) -> float:
    """How much too large a share of the reads the counts may give the hottest rows, as their log is only so long.

    Rows that chance had read more often rank higher. How much that makes of a share is seen by drawing the log once
    more from its own counts, reads of each row by Poisson's law: the new shares are as far above the counted ones as
    these are above those of ever more reads (the bootstrap's estimate of a bias; Efron, "Bootstrap methods: another
    look at the jackknife", Annals of Statistics 1979). Of power laws it is a half to four fifths of the bias, as rows
    that were never read are not drawn.
    """
    noisy = counted.reads <= NOISY
    kinds, rows = counted.reads[noisy], counted.rows[noisy]
    times = np.arange(0.0, NOISY + SPREAD * np.sqrt(NOISY) + SPREAD**2)
    factorials = np.concatenate(([0.0], np.cumsum(log(times[1:]))))
    drawn = np.zeros(len(times))
    for first in range(0, len(kinds), TOGETHER):
        mean = kinds[first : first + TOGETHER, None]
        chance = exp(times * log(mean) - mean - factorials)
        drawn += (rows[first : first + TOGETHER, None] * chance).sum(axis=0)
    again = rows_by_reads(np.append(counted.reads[~noisy], times), np.append(counted.rows[~noisy], drawn))
    ranks = np.logspace(0.0, np.log10(max(counted.distinct, 1.0)), STEEPNESS_AT)
    return float(max((share_of_reads(again, ranks) - share_of_reads(counted, ranks)).max(), 0.0))


def share_of_reads(counted: CountedRows, rows: Floats) -> Floats:
    """Share of the reads that the hottest `rows` take."""
    ranks = np.concatenate(([0.0], np.cumsum(counted.rows)))
    reads = np.concatenate(([0.0], np.cumsum(counted.rows * counted.reads)))
    return np.asarray(np.interp(rows, ranks, reads / reads[-1]))


def access_curve(counted: CountedRows, rows: int) -> tuple[tuple[float, float], ...]:
    """Points (share of the hottest rows, share of the reads) up to (1, 1), of a table with `rows` rows.

    Between points the curve is within 0.002 of the counts; a straight one, as of uniform access, is one point.
    """
    distinct = min(counted.distinct, float(rows))
    decades = max(np.log10(max(distinct, 1.0)), 0.0)
    steps = np.logspace(0.0, decades, int(np.ceil(decades * POINTS_PER_DECADE)) + 1)
    even = np.linspace(0.0, distinct, EVEN_POINTS + 1)[1:]
    ranks = np.unique(np.concatenate((np.round(steps), even if distinct > EVEN_POINTS else [distinct])))
    shares = share_of_reads(counted, ranks * (counted.distinct / distinct) if distinct < counted.distinct else ranks)
    points = np.column_stack((ranks / rows, np.minimum(shares, 1.0)))
    if points[-1, 0] < 1.0:
        points[-1, 1] = 1.0
        points = np.vstack((points, (1.0, 1.0)))
    points = np.unique(np.round(points, DIGITS), axis=0)
    points = points[(points[:, 0] > 0) & np.append(points[:-1, 0] < points[1:, 0], True)]
    points[-1] = 1.0
    return tuple((float(x), float(y)) for x, y in concave_hull(points.tolist()))
