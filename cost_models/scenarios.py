"""Scenarios: steps whose tables are read more or less, and more or less unevenly, than their profiles say, with a slow
rank.

A profile has means. From one hour to the next the mean number of ids of a table drifts, and so does the skew of its
accesses; a batch has a few ids more or less by chance (`pooling_std`). A scenario draws all of these for every table,
each by itself:

* ids of a sample: the mean times a lognormal factor of mean 1, whose relative variance is `pooling_drift` squared, and
  (pooling_std / pooling_factor) squared over the samples of a batch. A table with one id for each of its features, and
  no pooling_std, has that always;
* skew: the probability of every row, to a power that is lognormal with mean 1 and relative standard deviation
  `skew_drift`, and scaled to sum to one. Of a power law that multiplies the exponent; uniform access stays uniform;
* one rank of all, any with the same probability, whose device takes `slow_rank` times as long.

Drawn numbers depend on the seed and on the number of the scenario alone, so that more scenarios begin with fewer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.access import AccessCurves
from cost_models.elementary import exp, log1p, power
from cost_models.power_laws import STEEPEST, unique_rows
from cost_models.shards import Floats
from cost_models.workload.models import Workload
from cost_models.workload.table_profile import Curve, TableProfile

STREAM = 2
"""Sets these draws apart from those that the simulator makes from the same seed (0 and 1)."""


@dataclass(frozen=True)
class Variance:
    """How much scenarios differ from the profiles."""

    pooling_drift: float
    """Standard deviation of a table's mean number of ids, over that mean."""
    skew_drift: float
    """The same of the exponent of its access curve."""
    slow_rank: float
    """How many times as long as usual the device of one rank takes; 1 where none is slow."""


@dataclass(frozen=True)
class Scenario:
    """What a step is like in one case of many."""

    workload: Workload
    slow_rank: int
    slow_factor: float
    """How many times as long as usual its device takes."""

    def slowness(self, world: int) -> Floats:
        """[W] how many times as long as usual each device takes."""
        return np.where(np.arange(world) == self.slow_rank, self.slow_factor, 1.0)


def draw_scenarios(workload: Workload, world: int, variance: Variance, count: int, seed: int) -> list[Scenario]:
    """So many scenarios of a workload that is trained on `world` ranks."""
    spread = np.array([_pooling_variance(table, variance, workload.batch(world)) for table in workload.tables])
    curves = AccessCurves.of(workload, world)
    scenarios = []
    for number in range(count):
        random = np.random.default_rng((seed, STREAM, number))
        pooling = _lognormal(random.standard_normal(len(spread)), spread)
        skew = _lognormal(random.standard_normal(len(spread)), np.full(len(spread), variance.skew_drift**2))
        rank = int(random.integers(world))
        drifted = workload.model_copy(update={"tables": _drifted(workload, world, curves, pooling, skew)})
        scenarios.append(Scenario(drifted, rank, variance.slow_rank))
    return scenarios


def _pooling_variance(table: TableProfile, variance: Variance, batch: float) -> float:
    """Relative variance of the ids of a table in a step."""
    if table.pooling_std == 0 and table.pooling_factor == table.feature_count:
        return 0.0
    return variance.pooling_drift**2 + (table.pooling_std / table.pooling_factor) ** 2 / batch


def _lognormal(normal: Floats, relative_variance: Floats) -> Floats:
    """[n] factors of mean 1 with these relative variances, from standard normal draws."""
    square = log1p(relative_variance)
    return np.asarray(exp(np.sqrt(square) * normal - square / 2))


def _drifted(
    workload: Workload, world: int, curves: AccessCurves, pooling: Floats, skew: Floats
) -> tuple[TableProfile, ...]:
    """The tables with `pooling` [T] times as many ids, and probabilities of rows to the power of `skew` [T]."""
    batch, fractions = workload.batch(world), _unique_fractions(workload, world, curves, pooling, skew)
    drifted = []
    for number, table in enumerate(workload.tables):
        changed: dict[str, object] = {"pooling_factor": float(table.pooling_factor * pooling[number])}
        if table.zipf_alpha is not None:
            changed["zipf_alpha"] = float(min(table.zipf_alpha * skew[number], STEEPEST))
        if table.access_cdf is not None:
            changed["access_cdf"] = steepened(table.access_cdf, float(skew[number]))
        if table.unique_fraction is not None:
            changed["unique_fraction"] = float(fractions[number])
            changed["unique_fraction_batch"] = table.unique_fraction_batch or max(round(batch), 1)
        drifted.append(table.model_copy(update=changed))
    return tuple(drifted)


def _unique_fractions(workload: Workload, world: int, curves: AccessCurves, pooling: Floats, skew: Floats) -> Floats:
    """[T] distinct ids over all, of the batch in which that was measured, for the exponent that fits the measurement
    times `skew`; without meaning where nothing was measured."""
    tables = workload.tables
    batch = np.array([table.unique_fraction_batch or workload.batch(world) for table in tables])
    all_ids = np.array([table.pooling_factor for table in tables]) * pooling * batch
    left = all_ids / np.array([table.deduplication for table in tables])
    unique = np.zeros(len(tables))
    which = np.flatnonzero(curves.measured)
    alpha = np.minimum(curves.unique_alpha[which] * skew[which], STEEPEST)
    unique[which] = unique_rows(curves.ids[which], alpha, left[which])
    return np.asarray(np.clip(unique / all_ids, 1e-12, 1.0))


def steepened(curve: Curve, skew: float) -> Curve:
    """An access curve whose rows are read with the same probabilities to the power of `skew`, scaled to sum to one."""
    points = np.array([(0.0, 0.0), *curve])
    width, mass = np.diff(points[:, 0]), np.diff(points[:, 1])
    density = mass / width
    raised = width * np.where(mass > 0, power(np.where(mass > 0, density / density.max(), 1.0), skew), 0.0)
    shares = np.minimum(np.cumsum(raised) / raised.sum(), 1.0).tolist()
    ends: Sequence[float] = points[1:, 0].tolist()
    return (*zip(ends[:-1], shares[:-1], strict=True), (1.0, 1.0))
