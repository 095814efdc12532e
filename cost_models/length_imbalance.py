"""How much longer the slowest rank works on its histories than the mean rank, where their lengths differ.

The seconds of a rank are a sum over its samples of what goes with the length of a history and what goes with its
square. Over many samples that sum is normal, so that the slowest of W equal ranks is expected to be e(W) of its
standard deviations above the mean, with e(W) the expected maximum of W standard normals. Both passes are of the same
samples: a rank that is late in one is late in the other.
"""

import math
from collections.abc import Set
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from cost_models.dense import size_seconds, within_sample_seconds
from cost_models.dense_size import DenseSize, layer_sizes
from cost_models.kinds import RankKind
from cost_models.small_products import SmallRates
from cost_models.workload.dense_sharding import REPLICATED
from cost_models.workload.histories import History, histories
from cost_models.workload.layer_kinds import Product
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


def length_imbalance_s(
    workload: Workload, kind: RankKind, samples: float, ranks: int, passes: float, per_node: int = 1
) -> float:
    """Seconds by which the slowest of so many ranks of a kind, with `samples` each, is expected to work longer on its
    histories in the passes of a step; 0 where no lengths differ. Layers that are cut share the histories of so many
    ranks of a node evenly; where all are, its ranks work as long as each other."""
    sharding, drawn = workload.dense.sharding or REPLICATED, histories(workload)
    cut = frozenset(name for each in drawn for name in each.linear if sharding.of_layer(name).cut is not None)
    by = _Shared(cut, per_node if cut else 1)
    variances = [_variances(workload, each, kind, samples, passes, by) for each in drawn]
    among, within = (sum(each[n] for each in variances) for n in (0, 1))
    nodes = expected_maximum(ranks // by.ranks) * math.sqrt(among) if among and ranks > by.ranks else 0.0
    return math.hypot(nodes, expected_maximum(ranks) * math.sqrt(within)) if within else nodes


@dataclass(frozen=True)
class _Shared:
    """Layers whose histories so many ranks share."""

    names: frozenset[str]
    ranks: int


def _variances(
    workload: Workload, history: History, kind: RankKind, samples: float, passes: float, shared: _Shared
) -> tuple[float, float]:
    """The variance of the mean of ranks that share layers, and that of a rank beside the mean of these, in seconds: of
    samples that are independent, each with a length of one history. With lengths l of mean m, t seconds go with l/m and
    p with l^2 / E[l^2]; a gamma distribution has E[l^n] by both its numbers."""
    own, parts = (
        np.array(work_seconds(workload, history, kind, samples, passes, names))
        for names in (history.linear - shared.names, history.linear & shared.names)
    )
    c = history.variation**2  # E[l^2] = m^2 (1 + c), E[l^3] = m^3 (1 + c)(1 + 2c), E[l^4] = m^4 (1 + c)(1 + 2c)(1 + 3c)
    of_length, of_square = c, ((1 + 2 * c) * (1 + 3 * c)) / (1 + c) - 1

    def variance(tokens_s: float, pairs_s: float) -> float:
        return tokens_s**2 * of_length + pairs_s**2 * of_square + 2 * tokens_s * pairs_s * 2 * c

    return variance(*(own + parts).tolist()) / shared.ranks / samples, variance(*own.tolist()) * (
        1 - 1 / shared.ranks
    ) / samples


def work_seconds(
    workload: Workload, history: History, kind: RankKind, samples: float, passes: float, names: Set[str] | None = None
) -> tuple[float, float]:
    """Seconds of a rank's samples on the mean that go with the length of a history, and with its square; of all layers
    that work on it, or of those of some names."""
    sizes = dict(zip((layer.name for layer in workload.layers), layer_sizes(workload), strict=True))
    over = (each for each in workload.layers if each.name in history.linear)
    varying = {history.layer, *(each.name for each in over if each.output.squared_tokens is not None)}
    forward_only, of_tokens, tokens_s, pairs_s = workload.mode != "training", DenseSize(), 0.0, 0.0
    counted = history.linear if names is None else names
    for layer in (layer for layer in workload.layers if layer.name in counted):
        size = sizes[layer.name]
        others = tuple(each for each in size.within_samples if each.kernel != "attention")
        again = size.recomputed and replace(size.recomputed, within_samples=others)
        of_tokens += replace(size, within_samples=others, recomputed=again)
        for product in (each for each in size.within_samples if each.kernel == "attention"):
            for only in (forward_only, *([True] if again and not forward_only else [])):
                by_length, by_square = _by_length(
                    kind.small_products,
                    product,
                    rows=layer.inputs[0] in varying,
                    columns=layer.inputs[-1] in varying,
                    forward_only=only,
                )
                tokens_s += samples * product.count * by_length
                pairs_s += samples * product.count * by_square

    def seconds(of: float) -> float:
        return size_seconds(workload, of_tokens, of, kind, passes, forward_only=forward_only)

    more_s = seconds(samples * (1 + LONGER)) - seconds(samples)
    return tokens_s + more_s / LONGER, pairs_s


def _by_length(
    rates: SmallRates, product: Product, *, rows: bool, columns: bool, forward_only: bool
) -> tuple[float, float]:
    """Seconds of an attention that go with the length of what it is over, and with its square: a polynomial of the
    length, by its values at none, one and two of the mean."""

    def seconds(times: float) -> float:
        own = replace(
            product, rows=product.rows * (times if rows else 1), columns=product.columns * (times if columns else 1)
        )
        return within_sample_seconds(rates, own, forward_only=forward_only)

    none_s, mean_s, twice_s = seconds(0), seconds(1), seconds(2)
    square_s = (twice_s - 2 * mean_s + none_s) / 2 if rows and columns else 0.0
    return mean_s - none_s - square_s, square_s
