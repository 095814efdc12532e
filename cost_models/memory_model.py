"""Any cost model without its seconds."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost_models.cost_arrays import BlockCosts, BlockMemory, Column
from cost_models.model import CostModel
from cost_models.resources import DEVICE, Resource
from cost_models.shards import Blocks, Floats, Ints
from cost_models.workload.models import Workload


class MemoryModel(CostModel):
    """The bytes of another cost model and none of its seconds: all that the question whether anything fits needs."""

    stages = ("memory",)
    columns = (Column(0, DEVICE),)

    def __init__(self, whole: CostModel) -> None:
        super().__init__(whole.topology, whole.workload, whole.reserve, whole.exchange)
        self.cluster, self.stated_workload, self.replicas = whole.cluster, whole.stated_workload, whole.replicas
        self.whole = whole
        self.name, self.quantity, self.unit = whole.name, whole.quantity, whole.unit
        self.node_colocated_shardings, self.cache_fractions = whole.node_colocated_shardings, whole.cache_fractions
        self.chooses_dtypes, self.stashes = whole.chooses_dtypes, whole.stashes
        self.tables, self.coefficients = whole.tables, whole.coefficients
        self.kind_of_rank, self.node_of_rank = whole.kind_of_rank, whole.node_of_rank
        self.constants, self.base_loads = np.zeros(1), np.zeros((whole.kind_count, 1))
        self.base_bytes, self.pool_bytes = whole.base_bytes, whole.pool_bytes

    @cached_property
    def host_of_rank(self) -> Ints:
        """[W] the whole model's."""
        return self.whole.host_of_rank

    @cached_property
    def memory_pool_of_rank(self) -> tuple[Ints, ...]:
        """Per memory, [W] the pool each rank draws on."""
        return self.whole.memory_pool_of_rank

    def compressed_as(self, workload: Workload, of_table: Ints | None = None) -> "MemoryModel":
        """The bytes of the whole model with these tables."""
        return MemoryModel(self.whole.compressed_as(workload, of_table))

    @property
    def copies(self) -> Ints:
        """[T] those of the whole model."""
        return self.whole.copies

    def is_option(self, sharding: int, tier: int, splits: int) -> NDArray[np.bool_]:
        """[T] what is an option to the whole model."""
        return self.whole.is_option(sharding, tier, splits)

    def resource_of_rank(self, resource: Resource) -> Ints:  # noqa: ARG002
        """[W] the rank itself; nothing loads it."""
        return np.arange(len(self.kind_of_rank))

    def block_memory(self, blocks: Blocks, kind: int) -> BlockMemory:
        """The whole model's."""
        return self.whole.block_memory(blocks, kind)

    def returned_memory(self, blocks: Blocks) -> tuple[float, Floats, Floats]:
        """The whole model's."""
        return self.whole.returned_memory(blocks)

    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """The bytes, and no seconds."""
        none, memory = np.zeros((len(blocks), 1)), self.block_memory(blocks, kind)
        return BlockCosts(none, none, none, memory.fixed, memory.by_rows, memory.supported)
