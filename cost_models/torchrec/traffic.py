"""Ids, rows and vectors that a shard works on: the sizes that both of TorchRec's estimators begin with.

W ranks in the world, G in a group (of hosts that share a scale-up domain; else one host). I and O are the ids and
vectors of one rank's batch. A product is written in TorchRec's order, so that its roundings are the same.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost_models.shards import DATA_PARALLEL, EXTENT_OF_SHARDING, NODE, ROW_WISE, Blocks, Floats
from cost_models.torchrec.constants import TorchRecCoefficients
from cost_models.torchrec.tables import TorchRecTables
from cost_models.torchrec.topology import TorchRecTopology

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ShardTraffic:
    """The traffic of n blocks, per shard. All arrays are [n]."""

    topology: TorchRecTopology
    tables: TorchRecTables
    blocks: Blocks
    numbers: TorchRecCoefficients

    @cached_property
    def replicated(self) -> Bools:
        """data_parallel: every rank works on its own batch only."""
        return np.equal(self.blocks.sharding, DATA_PARALLEL)

    @cached_property
    def over_world(self) -> Bools:
        """row_wise: rows cut over the world."""
        return np.equal(self.blocks.sharding, ROW_WISE)

    @cached_property
    def over_group(self) -> Bools:
        """table_row_wise and grid_shard: rows cut over the ranks of one group."""
        return np.equal(EXTENT_OF_SHARDING[self.blocks.sharding], NODE)

    @cached_property
    def row_cuts(self) -> Floats:
        """Shards that share a block's ids: W, G or 1."""
        cuts = np.where(self.over_world, self.topology.world_size, 1)
        return np.where(self.over_group, self.topology.group_size, cuts).astype(float)

    @cached_property
    def batches(self) -> Floats:
        """Ranks whose batches the shard serves: all, or its own."""
        return np.where(self.replicated, 1.0, float(self.topology.world_size))

    @cached_property
    def ids(self) -> Floats:
        """Ids that the shard looks up."""
        return self.tables.batch_inputs[self.blocks.table] / self.row_cuts * self.batches

    @cached_property
    def id_bytes(self) -> Floats:
        """Bytes of those ids, rounded up."""
        return np.asarray(np.ceil(self.ids * self.numbers.id_bytes.value))

    def output_bytes(self, element_bytes: Floats) -> Floats:
        """Bytes of the vectors that the shard gives out: of every sample when pooled, else of its own ids."""
        table = self.blocks.table
        cuts = np.where(self.tables.pooled[table], 1.0, self.row_cuts)
        return self.tables.batch_outputs[table] / cuts * self.batches * self.blocks.columns * element_bytes
