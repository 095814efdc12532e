"""What a rank waits for longer than its work, where one bag is read row after row: the simulator's own count."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from cost_models.kinds import RankKind
from cost_models.shards import Floats
from cost_models.simulator.shard_counts import ShardCounts


@dataclass(frozen=True)
class BagWork:
    """Of n shards in one pass, seconds on the device of their rank."""

    longest_s: Floats
    """[n] of the rows, or ids, that the longest bag has on the shard."""
    beside_s: Floats
    """[n] of all work of the kernel that goes through bags."""


def bag_work(
    counts: ShardCounts, kind: RankKind, lookups: Floats, row_bytes: Floats, kernel_s: Floats
) -> tuple[BagWork, BagWork]:
    """That of a lookup and of an update on ranks of one kind: [n] `lookups` of each shard, rows of `row_bytes`, and
    seconds of the lookup's kernel. Tables that are not pooled have no bags, and kernels of their own."""
    rates, none = kind.bags, np.zeros(len(counts))
    if rates is None:
        return BagWork(none, none), BagWork(none, none)
    is_pooled = counts.tables.pooled[counts.table] == 1
    length = np.where(is_pooled, _longest(counts), 0.0)
    length = np.where(length > rates.long_from, length, 0.0)
    here = length * lookups / np.maximum(counts.batch_ids, 1e-300)  # the part whose rows the shard has
    fits = rates.cache_bytes / (counts.tables.rows[counts.table] * row_bytes)
    row_s = np.where(fits >= 1, rates.cached_row_s, rates.row_s - fits * (rates.row_s - rates.cached_row_s))
    of_ids = np.where(is_pooled, lookups * min(rates.id_s / rates.at_once, kind.update_row_s), 0.0)
    forward = BagWork(here * row_s, np.where(is_pooled, kernel_s, 0.0))
    return forward, BagWork(here * rates.id_s * counts.tables.training, of_ids)


def _longest(counts: ShardCounts) -> Floats:
    """[n] ids of the longest of a table's bags: the mean, and where lengths differ the quantile at which one of as many
    normals is expected (Blom)."""
    bags, spread = counts.vectors, counts.tables.bag_spread[counts.table]
    longest = counts.batch_ids / np.maximum(bags, 1e-300)
    for n in np.flatnonzero(spread > 0).tolist():
        longest[n] += spread[n] * NormalDist().inv_cdf(max((bags[n] - 0.375) / (bags[n] + 0.25), 0.5))
    return longest
