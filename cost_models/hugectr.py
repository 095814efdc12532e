"""HugeCTR's published hotness rating as a cost model.

The rating of a rank is the sum, over the tables it holds a part of, of hotness / (ranks that share the table) + c, and
a plan's is its largest rank's; c = mem_comm_bw_ratio / mem_comm_work_ratio. One unit is one row per sample read from
memory; it is no time. Replicated tables cost nothing and may be used for small tables only. Every part takes its
share of weights and optimizer state. Source: NVIDIA-Merlin/HugeCTR, samples/dlrm/sharding/planner.py (CostModel).

HugeCTR cuts a table by rows, evenly over any set of ranks. Our words for that: `column_wise` with k equal blocks on k
different ranks (the same rating and bytes; k must divide the columns into equal multiples of 4), `row_wise` for all
ranks. It knows no nodes, so the whole world is one node here.
"""

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cost_models import coefficients
from cost_models.amounts import NO_RESERVE, Reserve
from cost_models.coefficients import Coefficient, NamedCoefficients
from cost_models.coefficients_used import CoefficientsUsed
from cost_models.cost_arrays import BlockCosts, BlockMemory, Column
from cost_models.memory_rates import usable_bytes
from cost_models.model import CostModel
from cost_models.resources import DEVICE, Resource
from cost_models.shards import (
    COLUMN_WISE,
    DATA_PARALLEL,
    HBM,
    MEMORY_HBM,
    ROW_WISE,
    TABLE_WISE,
    Blocks,
    Floats,
    Ints,
)
from cost_models.stages import VectorExchange
from cost_models.tables import Tables
from cost_models.workload.models import Workload
from topologies.cluster import NodeGroup, Topology
from topologies.documents import read_yaml, validate

COLUMN_UNIT = 4


class HugeCTRCoefficients(NamedCoefficients):
    """What HugeCTR's planner multiplies by."""

    memory_communication_work_ratio: Coefficient
    replication_threshold_bytes: Coefficient


@cache
def hugectr_coefficients() -> HugeCTRCoefficients:
    """Those of its sample planner."""
    path = Path(coefficients.__file__).parent / "planners" / "hugectr.yaml"
    return validate(read_yaml(path), HugeCTRCoefficients)


class HugeCTRModel(CostModel):
    """The hotness rating of a placement."""

    name = "hugectr"
    quantity = "rating"
    unit = ""
    node_colocated_shardings = (COLUMN_WISE,)

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        reserve: Reserve = NO_RESERVE,
        exchange: VectorExchange = "flat",
    ) -> None:
        super().__init__(topology, workload, reserve, exchange)
        world = topology.world_size
        numbers = hugectr_coefficients()
        self._threshold_bytes = numbers.replication_threshold_bytes.value
        work_ratio = numbers.memory_communication_work_ratio.value
        ratio = max(memory_communication_ratio(topology, group) for group in topology.nodes)
        self.part_cost = ratio / work_ratio
        self.tables = Tables.of(workload, world)
        self.hotness: Floats = np.array([table.pooling_factor for table in workload.tables])
        every = np.arange(len(workload.tables))
        row = self.tables.row_bytes(every, self.tables.dim) + self.tables.row_state_bytes(every, self.tables.dim)
        self.table_bytes: Floats = self.tables.rows.astype(float) * row
        self.coefficients = CoefficientsUsed(software=numbers)
        self.stages, self.columns, self.constants = ("rating",), (Column(0, DEVICE),), np.zeros(1)
        counts = [group.count * group.accelerators.count for group in topology.nodes]
        self.kind_of_rank: Ints = np.repeat(np.arange(len(counts)), counts)
        self.node_of_rank: Ints = np.zeros(world, dtype=np.int64)
        self.base_loads, self.base_bytes = np.zeros((self.kind_count, 1)), np.zeros(len(self.memories))
        of_kind = np.array([usable_bytes(group)[0] for group in topology.nodes], dtype=float)
        below = (np.zeros(int(pool[-1]) + 1) for pool in self.memory_pool_of_rank[1:])
        self.pool_bytes = (of_kind[self.kind_of_rank], *below)

    def resource_of_rank(self, resource: Resource) -> Ints:  # noqa: ARG002
        """[W] the rank itself."""
        return np.arange(len(self.node_of_rank))

    def is_option(self, sharding: int, tier: int, splits: int) -> NDArray[np.bool_]:
        """[T] small tables may be replicated, the others cut evenly; all in HBM."""
        if sharding == DATA_PARALLEL:
            possible = self.table_bytes < self._threshold_bytes
        elif sharding == COLUMN_WISE:
            possible = self.tables.dim % (splits * COLUMN_UNIT) == 0
        else:
            possible = np.full(len(self.hotness), sharding in (TABLE_WISE, ROW_WISE))
        return np.asarray(possible & (tier == HBM), dtype=np.bool_)

    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """Costs of each block, in units of the rating; the same on every kind of rank."""
        cost = self.hotness[blocks.table] * self._share(blocks) + self.part_cost
        fixed = np.where(blocks.sharding == DATA_PARALLEL, 0.0, cost)[:, None]
        none, memory = np.zeros_like(fixed), self.block_memory(blocks, kind)
        return BlockCosts(fixed, none, none, memory.fixed, memory.by_rows, memory.supported)

    def block_memory(self, blocks: Blocks, kind: int) -> BlockMemory:  # noqa: ARG002
        """The bytes among the costs of each block."""
        size = np.zeros((len(blocks), len(self.memories)))
        size[:, MEMORY_HBM] = self.table_bytes[blocks.table] * self._share(blocks)
        supported = (blocks.tier == HBM) & np.isin(blocks.sharding, (DATA_PARALLEL, TABLE_WISE, COLUMN_WISE, ROW_WISE))
        return BlockMemory(size, np.zeros_like(size), supported)

    def _share(self, blocks: Blocks) -> Floats:
        """[n] of its table that one rank holds of each block."""
        world = len(self.node_of_rank)
        parts = np.where(blocks.sharding == ROW_WISE, world, 1)
        return np.asarray(blocks.columns / self.tables.dim[blocks.table] / parts)


def memory_communication_ratio(topology: Topology, group: NodeGroup) -> float:
    """HBM bandwidth over the bandwidth that a rank has to the others: scale-up, or its cards where there are hosts
    outside of the scale-up domain (train.py: --mem_comm_bw_ratio, by default 3.35e12 / 450e9, a DGX H100's)."""
    up, cards = group.links.scale_up, group.links.scale_out
    rate = up.bandwidth if up else group.links.pcie.bandwidth
    if topology.world_size > group.domain_ranks and cards is not None:
        rate = cards.count * cards.bandwidth / group.accelerators.count
    return group.accelerators.hbm.bandwidth / rate
