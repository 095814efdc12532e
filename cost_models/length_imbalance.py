"""How much longer the slowest rank works on its histories than the mean rank, where their lengths differ.

The seconds of a rank are a sum over its samples of what goes with the length of a history and what goes with its
square. Over many samples that sum is normal, so that the slowest of W equal ranks is expected to be e(W) of its
standard deviations above the mean, with e(W) the expected maximum of W standard normals. Both passes are of the same
samples: a rank that is late in one is late in the other.
"""

import math
from dataclasses import replace
from functools import cache

import numpy as np

from cost_models.dense import size_seconds
from cost_models.dense_size import DenseSize, layer_sizes
from cost_models.kinds import RankKind
from cost_models.workload.histories import History, histories
from cost_models.workload.models import Workload

LONGER = 0.05
"""Share by which tokens are more where it is asked what their work takes."""
REACH, POINTS = 9.0, 4001
"""Standard deviations up to which the maximum is integrated, and points."""


@cache
def expected_maximum(ranks: int) -> float:
    """Of so many independent standard normals: the integral of 1 - F(x)^W - F(-x)^W over all x above 0 (0.564 of 2,
    1.424 of 8, 2.59 of 128)."""
    x = np.linspace(0.0, REACH, POINTS)
    above = np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in x.tolist()])
    return float(np.trapezoid(1 - (1 - above) ** ranks - above**ranks, x))


def length_imbalance_s(workload: Workload, kind: RankKind, samples: float, ranks: int, passes: float) -> float:
    """Seconds by which the slowest of so many ranks of a kind, with `samples` each, is expected to work longer on its
    histories in the passes of a step; 0 where no lengths differ."""
    variance = sum(_rank_variance(workload, each, kind, samples, passes) for each in histories(workload))
    return expected_maximum(ranks) * math.sqrt(variance) if variance and ranks > 1 else 0.0


def _rank_variance(workload: Workload, history: History, kind: RankKind, samples: float, passes: float) -> float:
    """The variance of a rank's seconds: of samples that are independent, each with a length of one history. With
    lengths l of mean m, t seconds go with l/m and p with l^2 / E[l^2]; a gamma distribution has E[l^n] by both its
    numbers."""
    tokens_s, pairs_s = work_seconds(workload, history, kind, samples, passes)
    c = history.variation**2  # E[l^2] = m^2 (1 + c), E[l^3] = m^3 (1 + c)(1 + 2c), E[l^4] = m^4 (1 + c)(1 + 2c)(1 + 3c)
    of_length, of_square = c, ((1 + 2 * c) * (1 + 3 * c)) / (1 + c) - 1
    return (tokens_s**2 * of_length + pairs_s**2 * of_square + 2 * tokens_s * pairs_s * 2 * c) / samples


def work_seconds(
    workload: Workload, history: History, kind: RankKind, samples: float, passes: float
) -> tuple[float, float]:
    """Seconds of a rank's samples on the mean that go with the length of a history, and with its square."""
    sizes = dict(zip((layer.name for layer in workload.layers), layer_sizes(workload), strict=True))
    of_tokens, of_pairs = DenseSize(), DenseSize()
    for name in sorted(history.linear):
        size = sizes[name]
        squared = size.macs_within_samples if name in history.pairs else 0.0
        again = (
            None
            if size.recomputed is None
            else replace(size.recomputed, macs_within_samples=size.recomputed.macs_within_samples - squared)
        )
        of_tokens += replace(size, macs_within_samples=size.macs_within_samples - squared, recomputed=again)
        of_pairs += DenseSize(macs_within_samples=squared, recomputed=again and DenseSize(macs_within_samples=squared))
    forward_only = workload.mode != "training"

    def seconds(size: DenseSize, of: float) -> float:
        return size_seconds(workload, size, of, kind, passes, forward_only=forward_only)

    more_s = seconds(of_tokens, samples * (1 + LONGER)) - seconds(of_tokens, samples)
    return more_s / LONGER, seconds(of_pairs, samples)
