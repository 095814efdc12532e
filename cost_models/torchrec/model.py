"""TorchRec's objective as a cost model: the rank with the largest sum of all its shards' terms."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost_models.amounts import NO_RESERVE, Reserve
from cost_models.coefficients_used import CoefficientsUsed
from cost_models.cost_arrays import BlockCosts, BlockMemory, Column
from cost_models.model import CostModel
from cost_models.resources import DEVICE, Resource
from cost_models.shards import (
    DATA_PARALLEL,
    DDR,
    DDR_CACHED,
    EXTENT_OF_SHARDING,
    HBM,
    MEMORY_HBM,
    RANK,
    SHARDINGS,
    USUAL_SHARDINGS,
    WORLD,
    Blocks,
    Floats,
    Ints,
)
from cost_models.stages import VectorExchange
from cost_models.tables import Tables
from cost_models.torchrec.constants import torchrec_coefficients
from cost_models.torchrec.estimator import PerfEstimator
from cost_models.torchrec.storage import StorageEstimator
from cost_models.torchrec.tables import TorchRecTables
from cost_models.torchrec.topology import TorchRecTopology
from cost_models.workload.models import Workload
from topologies.cluster import Topology


class TorchRecModel(CostModel):
    """What TorchRec 1.8.0's planner would rate a placement at (perf_models.py: NoopPerfModel), in seconds.

    One stage, one resource: the rank itself. Every rank has an HBM and a DDR pool of its own. A node, to node-wide
    shardings, is TorchRec's group: a host, or the hosts that share a scale-up domain.
    """

    name = "torchrec"
    quantity = "rating"

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        reserve: Reserve = NO_RESERVE,
        exchange: VectorExchange = "flat",
    ) -> None:
        super().__init__(topology, workload, reserve, exchange)
        own = self.torchrec_topology = TorchRecTopology.from_topology(topology)
        world = own.world_size
        self.torchrec_tables = TorchRecTables.of(workload, world)
        self.perf = PerfEstimator(own, self.torchrec_tables)
        self.storage = StorageEstimator(own, self.torchrec_tables)
        numbers = torchrec_coefficients()
        self.tables = Tables.of(workload, world)
        self.coefficients = CoefficientsUsed(software=numbers)
        self.cache_fractions = {"ddr_cached": (numbers.cache_fraction.value,)}
        self.stages, self.columns = ("rating",), (Column(0, DEVICE),)
        self.constants = np.zeros(1)
        self.kind_of_rank: Ints = np.repeat(
            np.arange(len(topology.nodes)), [group.count * group.accelerators.count for group in topology.nodes]
        )
        self.node_of_rank: Ints = np.arange(world) // own.group_size
        self.base_loads, self.base_bytes = np.zeros((self.kind_count, 1)), np.zeros(len(self.memories))
        capacity = {"hbm": own.hbm_bytes, "ddr": own.ddr_bytes}
        self.pool_bytes = tuple(np.array(capacity.get(tier, np.zeros(world)), dtype=float) for tier in self.memories)

    @cached_property
    def memory_pool_of_rank(self) -> tuple[Ints, ...]:
        """Per memory tier, [W] the pool each rank draws on: always its own."""
        return (np.arange(len(self.node_of_rank)),) * len(self.memories)

    def resource_of_rank(self, resource: Resource) -> Ints:  # noqa: ARG002
        """[W] the rank itself."""
        return np.arange(len(self.node_of_rank))

    def is_option(self, sharding: int, tier: int, splits: int) -> NDArray[np.bool_]:  # noqa: ARG002
        """[T] all tables in HBM, cached or UVM, cut in its own ways; replicated ones in HBM only."""
        possible = tier == HBM or (tier in (DDR, DDR_CACHED) and sharding != DATA_PARALLEL)
        possible &= SHARDINGS[sharding] in USUAL_SHARDINGS
        return np.full(len(self.tables.rows), possible)

    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """Costs of each block, the same on every kind of rank except for what its memory holds.

        Bytes are TorchRec's of a shard with ceil(rows / ranks) rows; of a shorter last one they are in proportion
        (TorchRec rounds each of up to four parts up to whole bytes), and an empty one, which TorchRec gives no
        bytes at all, counts its ids and outputs in flight.
        """
        none, memory = np.zeros((len(blocks), 1)), self.block_memory(blocks, kind)
        seconds = self.perf.estimate(blocks).total[:, None]
        return BlockCosts(seconds, none, none, memory.fixed, memory.by_rows, memory.supported)

    def block_memory(self, blocks: Blocks, kind: int) -> BlockMemory:
        """The bytes among the costs of each block."""
        ddr = float(np.array(self.torchrec_topology.ddr_bytes)[self.kind_of_rank == kind].min())
        supported = (blocks.tier == HBM) | (np.isin(blocks.tier, (DDR, DDR_CACHED)) & (ddr > 0))
        supported &= (blocks.sharding != DATA_PARALLEL) | (blocks.tier == HBM)
        return BlockMemory(*self._bytes(blocks), supported)

    def _bytes(self, blocks: Blocks) -> tuple[Floats, Floats]:
        """[n, M] bytes of every shard, and those in proportion to the rows it holds."""
        rows = self.tables.rows[blocks.table]
        extent = EXTENT_OF_SHARDING[blocks.sharding]
        ranks = np.where(extent == WORLD, self.torchrec_topology.world_size, self.torchrec_topology.group_size)
        whole = (extent == RANK) | (blocks.sharding == DATA_PARALLEL)
        largest = np.where(whole, rows, -(-rows // ranks))
        stored = self.storage.held(blocks, largest)
        fixed, by_rows = (np.zeros((len(blocks), len(self.memories))) for _ in range(2))
        fixed[:, MEMORY_HBM] = self.storage.in_flight(blocks, largest)
        by_rows[:, : stored.shape[1]] = stored * (rows / largest)[:, None]
        return fixed, by_rows
