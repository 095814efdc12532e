"""Tables of a quotient and a remainder: what the second part asks of the ranks that hold the first.

A rank that holds columns of the quotient table holds those of the remainder table, reads a row of each for every id,
and sends what becomes of both vectors: their product, their sum, or the one behind the other.
"""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.shards import HBM, Floats, PlacedShards
from cost_models.simulator.demand import Counter, Demand
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.shard_counts import ShardCounts
from cost_models.workload.models import Workload

ID_WIDTH = 8
"""An id, a quotient or a remainder: int64."""
Counts = Callable[[Workload, PlacedShards], ShardCounts]
_OF_ROWS = (
    *("forward_s", "backward_s", "forward_host_bytes", "forward_host_s", "backward_host_bytes", "backward_host_s"),
    *("fetched_bytes", "fetched_s", "replica_gradient_bytes", "sharded_weight_bytes", "sharded_state_bytes"),
    "stashed_bytes",
)
"""What the rows of a remainder ask for like those of any table."""


class TwoPartDemand:
    """Counts the demand of a placement in which some tables have two parts."""

    def __init__(
        self,
        whole: Counter,
        workload: Workload,
        placed: PlacedShards,
        counts_of: Counts,
        network: SimulatedNetwork,
        software: SoftwareCoefficients,
    ) -> None:
        """`whole` counts the tables with the rows of their quotients."""
        self._whole, self._network = whole, network
        self._remainders = [
            (Counter(counts, network.kinds, network.kind_of_rank, software, has_bags=False), of_table, counts, joined)
            for joined in (False, True)
            if (parts := workload.remainders(joined=joined)) is not None
            for of_table, counts in [
                (np.array(parts[1]), _beside(parts[0], np.array(parts[1]), placed, joined, counts_of))
            ]
        ]
        self._compressors = workload.compressors

    def count(self, ids: Floats | None = None) -> Demand:
        """The demand of a step in which the samples of each rank have `ids` [W, T] times their average ids."""
        demand = self._whole.count(ids)
        for counter, of_table, counts, joined in self._remainders:
            more = counter.count(None if ids is None else ids[:, of_table])
            names = (*_OF_ROWS, "vectors_to_each_bytes") if joined else _OF_ROWS
            summed = {name: getattr(demand, name) + getattr(more, name) for name in names}
            rest = {each.name: getattr(demand, each.name) for each in fields(Demand) if each.name not in summed}
            forward, backward = self._met(counts, of_table, ids)
            summed["forward_s"][HBM] += forward
            summed["backward_s"][HBM] += backward
            demand = Demand(**summed, **rest)
        return demand

    def _met(self, counts: ShardCounts, of_table: np.ndarray, ids: Floats | None) -> tuple[Floats, Floats]:
        """[W] device seconds, forward and backward, in which ids are taken apart and vectors of both parts meet."""
        tables, table = counts.tables, counts.table
        combine = np.array([self._compressors[number].combine for number in of_table.tolist()])[table]
        factor = np.ones(len(counts)) if ids is None else ids.mean(axis=0)[of_table[table]]
        apart = counts.batch_ids * factor * (ID_WIDTH + 2 * ID_WIDTH)  # read; quotient and remainder written
        vector = counts.vectors * counts.blocks.columns * tables.written_bytes
        product, total = combine == "multiply", combine == "add"
        forward = apart + np.where(product | total, 2 * vector + vector, 0.0)  # both read, one written
        backward = np.where(product, 3 * vector + 2 * vector, 0.0)  # gradient and both read, two gradients written
        return self._seconds(counts, forward), self._seconds(counts, backward * tables.training)

    def _seconds(self, counts: ShardCounts, moved: Floats) -> Floats:
        """[W] of bytes [n] that cross the device memory of the ranks that hold shards."""
        network = self._network
        single = ~counts.replicated
        total = np.bincount(counts.rank[single], weights=moved[single], minlength=network.world)
        total = total + moved[counts.replicated].sum()
        return np.asarray(total / network.of_kind([kind.hbm_bytes_per_s for kind in network.kinds]))


def _beside(
    workload: Workload, of_table: np.ndarray, placed: PlacedShards, joined: bool, counts_of: Counts
) -> ShardCounts:
    """The remainders beside the shards of a placement; vectors that meet others on their device are neither encoded nor
    put in order."""
    number = np.full(max(int(placed.blocks.table.max(initial=0)), int(of_table.max())) + 1, -1)
    number[of_table] = np.arange(len(of_table))
    kept = np.flatnonzero(number[placed.blocks.table] >= 0)
    table = number[placed.blocks.table[kept]]
    rows = np.array([workload.stored_rows(profile) for profile in workload.tables])
    blocks = replace(placed.blocks.take(kept), table=table)
    counts = counts_of(workload, PlacedShards(blocks, placed.rank[kept], rows[table], placed.opens_block[kept]))
    if not joined:
        counts.tables = counts.tables.kept_on_device
    return counts
