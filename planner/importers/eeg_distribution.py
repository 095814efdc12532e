"""The law by which FBGEMM's reports describe the ids of a feature: hot ids one by one, a power law for the rest."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.workload.concave_hull import concave_hull

Floats = NDArray[np.float64]
POINTS_PER_DECADE = 12
DIGITS = 9
"""Significant digits of a point."""
EXACT = 1024
"""Ranks of the power law that are summed one by one; beyond them a sum is an integral."""


@dataclass(frozen=True)
class IdLaw:
    """Probabilities of the ids of one feature, as FBGEMM's IndicesGenerator draws them: the K hottest ids have those of
    `hitters`; the id of rank x = K, K + 1, … of the others has one proportional to (x + q)^-s."""

    hitters: tuple[float, ...]
    """Falling, with a sum of 1 or less."""
    q: float
    s: float

    def shares(self, ranks: Floats, rows: int) -> Floats:
        """Share of the ids that the hottest `ranks` rows take, of `rows` in all."""
        hot = np.concatenate(([0.0], np.cumsum(self.hitters)))
        count = len(self.hitters)
        rest = max(1.0 - hot[-1], 0.0) if rows > count else 0.0
        beyond = np.maximum(ranks - count, 0.0)
        shares = np.interp(ranks, np.arange(count + 1.0), hot)
        if rest:
            sums = self._sums(np.append(beyond, float(rows - count)))
            shares = shares + rest * sums[:-1] / sums[-1]
        return np.asarray(shares / (hot[-1] + rest))

    def _sums(self, counts: Floats) -> Floats:
        """Sum over the first `counts` ranks of the power law, over its first term."""
        first = self.q + len(self.hitters)
        terms = np.exp(-self.s * np.log1p(np.arange(EXACT) / first))
        head = np.interp(counts, np.arange(EXACT + 1.0), np.concatenate(([0.0], np.cumsum(terms))))
        low, high = first + EXACT - 0.5, first + np.maximum(counts, EXACT) - 0.5
        slope, span = 1.0 - self.s, np.log(high / low)
        grown = span if abs(slope) < 1e-9 else np.expm1(slope * span) / slope
        return np.asarray(head + first * np.exp(slope * np.log(low / first)) * grown)


def access_profile(laws: Sequence[tuple[IdLaw, float]], rows: int) -> dict[str, object]:
    """`zipf_alpha` or `access_cdf` of a table, from the laws of its features, each with its ids: their mean, as if the
    features had the same hot rows. Empty where all rows are equally hot."""
    (first, _), *others = laws
    if not first.hitters and first.q == 1.0 and first.s <= 10 and all(law == first for law, _ in others):
        return {"zipf_alpha": first.s}
    hottest = max(len(law.hitters) for law, _ in laws)
    decades = np.log10(rows)
    spaced = np.round(np.logspace(0.0, decades, int(np.ceil(decades * POINTS_PER_DECADE)) + 1))
    ranks = np.unique(np.concatenate((np.arange(1.0, min(hottest, rows) + 1), spaced, [float(rows)])))
    ranks = ranks[ranks <= rows]
    weights = np.array([max(ids, 1e-12) for _, ids in laws])
    shares = np.average([law.shares(ranks, rows) for law, _ in laws], axis=0, weights=weights)
    points = [(_rounded(rank / rows), min(_rounded(share), 1.0)) for rank, share in zip(ranks, shares, strict=True)]
    curve = concave_hull([*points[:-1], (1.0, 1.0)])
    if len(curve) == 1:
        return {}
    return {"access_cdf": "|".join(f"{x:.{DIGITS}g}:{y:.{DIGITS}g}" for x, y in curve)}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
