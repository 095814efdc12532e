"""Long bags: a kernel of pooled tables goes through a bag row after row, however few bags there are.

A rank's kernel takes as long as its busiest processors: those that share the work of all rows, or the one that has the
longest bag. That is a maximum over tables and no sum; but a stage lasts as long as its busiest resource, so each table
whose bags may be what is waited for has one of its own (`bags`, with its number). In it is everything that the rank
does on its device in the stage, less what goes on beside the bag, and the bag. See docs/decisions/0108-long-bags.md.
"""

from dataclasses import replace

import numpy as np

from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad, Loads
from cost_models.lookup_rates import BagRates
from cost_models.memory import Batching
from cost_models.resources import BAGS
from cost_models.shards import Floats, Ints
from cost_models.tables import Tables

MOST_TABLES = 32
"""Tables that have such a resource at most: those with the longest bags."""


def longest_bags(tables: Tables, table: Ints, samples: Floats | float) -> Floats:
    """[n] rows of the longest bag of each `table` [n] among those of `samples` [n]; 0 of tables that are not pooled.

    Where lengths differ, by the standard deviation of the profile, it is the expected maximum of as many normals
    (assumed), by its limit for many: Gumbel's distribution.
    """
    vectors = tables.outputs_per_sample[table]
    root = np.sqrt(2 * np.log(np.maximum(samples * vectors, 2.0)))
    deviations = root - (2 * np.log(root) + np.log(2 * np.pi) - 2 * np.euler_gamma) / (2 * root)
    longest = tables.lookups_per_sample[table] / vectors + deviations * tables.bag_spread[table]
    return np.where(tables.pooled[table] == 1, longest, 0.0)


def bag_row_s(rates: BagRates, table_bytes: Floats) -> Floats:
    """[n] seconds of a row of a bag, of tables of so many bytes: as many rows as fit are in the device's cache."""
    cached = np.minimum(rates.cache_bytes / np.maximum(table_bytes, 1.0), 1.0)
    return np.asarray(cached * rates.cached_row_s + (1 - cached) * rates.row_s)


def in_place_of(beside: BlockLoad, bag_s: Floats, of_table: Ints) -> Loads:
    """What resources of long bags have beyond the device's loads in a pass: less what of each block goes on `beside`
    a bag, and the longest bag of each block, `bag_s` [n], of the table of a number [n], -1 for none."""
    loads: Loads = {BAGS: beside * -1.0}
    for table in np.unique(of_table[of_table >= 0]).tolist():
        loads[replace(BAGS, table=table)] = BlockLoad(by_rows=np.where(of_table == table, bag_s, 0.0))
    return loads


def long_tables(tables: Tables, kinds: tuple[RankKind, ...], batching: Batching) -> tuple[int, ...]:
    """The numbers, ascending, of tables whose bags may be what a rank waits for: the longest takes longer than
    launching the kernels, and the samples of one rank alone have too few bags to take as long by all of their ids."""
    every, own = np.arange(len(tables.rows)), batching.samples_per_rank
    longest, is_long = longest_bags(tables, every, own), np.zeros(len(every), dtype=bool)
    for kind in kinds:
        if (rates := kind.bags) is not None:
            least_s = kind.lookup.row_s + kind.lookup.sector_bytes / kind.lookup.l2_bytes_per_s
            covered = max(rates.at_once, rates.row_s / least_s)
            is_long |= (longest > rates.long_from) & (own * tables.outputs_per_sample < covered)
    found = sorted(np.flatnonzero(is_long).tolist(), key=lambda table: -longest[table])
    return tuple(sorted(found[:MOST_TABLES]))
