"""What every cost model is to the planner: stages, columns, costs of blocks; and how a placement is summed."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cost_models.amounts import NO_RESERVE, Amount, Reserve
from cost_models.coefficients_used import CoefficientsUsed
from cost_models.cost_arrays import BlockCosts, BlockMemory, Column
from cost_models.error_bars import ErrorBars
from cost_models.evaluation import ROUNDING, Evaluation, critical_rank
from cost_models.exchange_lines import Case
from cost_models.floor import Floor
from cost_models.replicas import Replicas
from cost_models.resources import BAGS, DEVICE, Resource
from cost_models.shards import (
    EVERYWHERE,
    EXTENT_OF_SHARDING,
    EXTENTS,
    MEMORY_TIERS,
    SHARED_BY,
    TABLE_COLUMN_WISE,
    Blocks,
    ExtentRow,
    Floats,
    Ints,
    MemoryTier,
    PlacedShards,
    PlacementTier,
    copied_extent,
    copied_extents,
)
from cost_models.stages import VectorExchange
from cost_models.tables import Tables
from cost_models.workload.models import Workload
from topologies.cluster import Topology

SHARDS_AT_ONCE = 1 << 22
"""Whose costs are summed together: of thousands of replicas on thousands of ranks each array would take gigabytes."""


class CostModel(ABC):
    """The costs of one workload on one topology; sizes: K kinds of rank, W ranks, C columns, S stages, M memories."""

    name: str
    """As the command line and the plan document call it."""
    quantity: Literal["step", "rating"] = "step"
    """What the stages add up to: the time of a step, or a figure of merit that leaves parts of a step out."""
    unit: Literal["s", ""] = "s"
    """The unit of that sum; none where a rating is a bare number."""
    node_colocated_shardings: tuple[int, ...] = (TABLE_COLUMN_WISE,)
    """Shardings whose blocks must be on different ranks of one node."""
    cache_fractions: Mapping[PlacementTier, tuple[float, ...]] = MappingProxyType({})
    """The cache fractions that are tried in each tier, where the model has its own."""
    chooses_dtypes: bool = False
    """Whether it costs a table in any format, not in the workload's alone."""
    copies_apart: bool = False
    """Whether the ranks that have the same shards of a table are whole nodes apart, instead of neighbours."""
    stashes: bool = False
    """Whether tables may leave HBM between the passes of a step. HBM has then two moments to hold: the peak without
    what is stashed, as `base_bytes` and costs of blocks count it, and the one when everything is back."""
    without_error_bars: str | None = "a rating is no time: there are no measurements that it could be compared with"
    """Why predictions carry no error bar; None where they do."""
    cluster: Topology
    """All that steps are trained on."""
    stated_workload: Workload
    """The workload on all of it."""
    replicas: Replicas | None = None
    """How the cluster is divided into groups that have all tables each; None where it is one."""
    topology: Topology
    """What a placement is for: the cluster, or what one of its groups has of it; a node group for each kind of rank."""
    workload: Workload
    """What is trained there."""
    tables: Tables
    coefficients: CoefficientsUsed
    stages: tuple[str, ...]
    hidden: Mapping[str, str] = MappingProxyType({})
    """Maps a stage that others hide to the stage in which the rest of it shows, the last of `shown_in`."""
    columns: tuple[Column, ...]
    constants: Floats
    """[S] seconds that a stage takes whatever its loads."""
    protocols: tuple[int, ...] = ()
    """Of a model whose costs are straight lines in the place of bent ones: which lines, one for each such stage."""
    protocol_stages: tuple[str, ...] = ()
    """The names of these stages."""
    floor: Floor | None = None
    """What goes on beside a step, whose stage is the last one; None where others always hide it."""
    kind_of_rank: Ints
    """[W] index of the node group of `topology`."""
    node_of_rank: Ints
    """[W] what node-wide shardings take for a node: the host, unless the model says otherwise. Ascending; the ranks
    of a node are consecutive, and of one kind where node-wide shardings are options."""
    base_loads: Floats
    """[K, C] seconds on each rank's resources before any table is placed."""
    device_begins: Floats | None = None
    """[K, C] of those base loads, what is no work but a later begin; None where there is none."""
    base_bytes: Floats
    """[M] bytes on each rank before any table is placed."""
    pool_bytes: tuple[Floats, ...]
    """Per memory, bytes of each pool after the topology's own reserve."""

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        reserve: Reserve = NO_RESERVE,
        exchange: VectorExchange = "flat",
    ) -> None:
        self.topology, self.workload, self.reserve, self.exchange = topology, workload, reserve, exchange
        self.cluster, self.stated_workload = topology, workload

    @property
    def stated_topology(self) -> Topology:
        """What a placement is for, with node groups as they are stated: those of `topology` may be parts of them."""
        return self.cluster if self.replicas is None else self.topology

    @property
    def kind_count(self) -> int:
        """K"""
        return len(self.topology.nodes)

    @cached_property
    def host_of_rank(self) -> Ints:
        """[W] the node of the topology that each rank sits in."""
        ranks = [group.accelerators.count for group in self.topology.nodes for _ in range(group.count)]
        return np.repeat(np.arange(len(ranks)), ranks)

    def on(self, topology: Topology, workload: Workload) -> "CostModel":
        """The same model of another cluster or workload, without a reserve."""
        return type(self)(topology, workload, exchange=self.exchange)

    def compressed_as(self, workload: Workload, of_table: Ints | None = None) -> "CostModel":  # noqa: ARG002
        """The same base costs of tables compressed otherwise; with `of_table` [V], ascending, of several of each."""
        raise ValueError(f"the cost model {self.name} takes tables as they are stated")

    def is_option(self, sharding: int, tier: int, splits: int) -> NDArray[np.bool_]:  # noqa: ARG002
        """[T] tables for which a sharding with `splits` column blocks in a tier is an option to this model."""
        return np.ones(len(self.tables.rows), dtype=bool)

    @abstractmethod
    def resource_of_rank(self, resource: Resource) -> Ints:
        """[W] which instance of a resource each rank uses, numbered from 0."""

    @abstractmethod
    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """Costs of each block if its ranks are of this kind."""

    def exchange_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """Costs that are those of `block_costs` in the columns of `protocol_stages`, where other lines change them; the
        other columns, and the bytes, are left out."""
        return self.block_costs(blocks, kind)

    @abstractmethod
    def block_memory(self, blocks: Blocks, kind: int) -> BlockMemory:
        """The bytes among the costs of each block."""

    @property
    def copies(self) -> Ints:
        """[T] how many ranks have the same shards of each table: 1, but of tables with more replicas than the groups of
        ranks that the model is of."""
        return np.ones(len(self.tables.rows), dtype=np.int64)

    @cached_property
    def _copy_counts(self) -> Ints:
        """The numbers of copies that stand in for single ranks, ascending."""
        return np.unique(self.copies[self.copies > 1])

    @cached_property
    def extents(self) -> tuple[ExtentRow, ...]:
        """The extents of blocks: EXTENTS, then those of blocks that have copies."""
        others = itertools.product(copied_extents(apart=self.copies_apart), self._copy_counts.tolist())
        return (*EXTENTS, *(copied_extent(extent, copies, apart=self.copies_apart) for extent, copies in others))

    def extent_of(self, table: Ints, sharding: Ints) -> Ints:
        """[n] the extent of a block of each `table` in a `sharding`, an index into `extents`."""
        extent, copies = EXTENT_OF_SHARDING[sharding], self.copies[table]
        found, first = np.asarray(extent + 0 * copies), len(EXTENTS) + np.searchsorted(self._copy_counts, copies)
        for number, copied in enumerate(copied_extents(apart=self.copies_apart)):
            found = np.where((extent == copied) & (copies > 1), first + number * len(self._copy_counts), found)
        return found

    @cached_property
    def memories(self) -> tuple[MemoryTier, ...]:
        """The M memories of its arrays: HBM, DDR and SSD, and the others that the cluster has."""
        groups = self.topology.nodes
        others = (tier for tier in MEMORY_TIERS[len(EVERYWHERE) :] if any(group.memory(tier) for group in groups))
        return (*EVERYWHERE, *others)

    @cached_property
    def memory_pool_of_rank(self) -> tuple[Ints, ...]:
        """Per memory, [W] the pool each rank draws on: that of itself, of its node or of its node group."""
        of = {"rank": np.arange(len(self.host_of_rank)), "node": self.host_of_rank, "group": self.kind_of_rank}
        return tuple(of[SHARED_BY[tier]] for tier in self.memories)

    @cached_property
    def memory_capacity(self) -> tuple[Floats, ...]:
        """Per memory, usable bytes of each pool: after the topology's reserve and the question's own."""
        ranks_of_host = np.bincount(self.host_of_rank)
        usable = []
        for tier, size, pool in zip(self.memories, self.pool_bytes, self.memory_pool_of_rank, strict=True):
            amount = self.reserve.get(tier, Amount())
            # Where the pool of a node is dealt out to its ranks, each part keeps its part free.
            ranks = np.maximum(ranks_of_host[self.host_of_rank], np.bincount(pool)[pool])
            part = 1.0 if tier == "hbm" else 1.0 / ranks
            kept = np.bincount(pool, weights=np.broadcast_to(part, pool.shape) * amount.size, minlength=len(size))
            usable.append(np.maximum(size * (1 - amount.share) - kept, 0.0))
        return tuple(usable)

    def with_flat_exchange(self) -> "CostModel | None":
        """The same where vectors are exchanged flat; None where they are."""
        return None

    def shown_in(self, hidden: str) -> tuple[str, ...]:
        """The stages in which the rest of a `hidden` stage shows; a share in each, where there are several."""
        return (self.hidden[hidden],)

    @property
    def all_protocols(self) -> tuple[tuple[int, ...], ...]:
        """The lines that there are; a placement takes at any of them at least what it takes at its own."""
        return (self.protocols,)

    def shares_at(self, protocols: tuple[int, ...]) -> Floats:  # noqa: ARG002
        """[C] what shows in each column of what it carries at some lines; see `prefetch_lines`."""
        return np.ones(len(self.columns))

    @property
    def answer_columns(self) -> list[int]:
        """The columns in which waits for first answers of what is prefetched show (see `first_answers`)."""
        return []

    def other_shares(self, protocols: tuple[int, ...]) -> list[tuple[int, ...]]:  # noqa: ARG002
        """The lines that differ in nothing but in what is prefetched: what shows in which stage, and first answers."""
        return []

    @property
    def case(self) -> Case:
        """What placements its lines are of, by what they exchange."""
        return "apart"

    @property
    def around(self) -> tuple[int, ...] | None:
        """The same lines of placements with sums around all ranks, where these are of those without any."""
        return None

    def beyond(self, blocks: Blocks) -> Floats:
        """[n, C] what blocks cost every rank at its lines as they are of placements of another case."""
        return np.zeros((len(blocks), len(self.columns)))

    def at_protocols(self, protocols: tuple[int, ...]) -> "CostModel":  # noqa: ARG002
        """The same model with other lines, one of `all_protocols`."""
        return self

    def linearised_at(self, placed: PlacedShards) -> "CostModel":  # noqa: ARG002
        """The model whose costs, summed, are what a placement takes; see `protocols`."""
        return self

    def evaluate(self, placed: PlacedShards, slowness: Floats | None = None) -> Evaluation:
        """Stage times and bytes of a placement, summed shard by shard; with devices that take `slowness` [W] times as
        long as usual."""
        load, stored = self.rank_loads(placed, slowness)
        stored = stored + self.base_bytes
        if self.stashes:
            stored[:, 0] = np.maximum(stored[:, 0], self.returned_bytes(placed))
        return self.evaluate_loads(load, stored)

    def returned_memory(self, blocks: Blocks) -> tuple[float, Floats, Floats]:  # noqa: ARG002
        """Bytes of HBM when everything that was stashed is back: of each rank before any table is placed; [n] of each
        block, fixed on each rank that takes part, and times its share of the rows."""
        raise ValueError(f"the cost model {self.name} stashes no tables")

    def returned_bytes(self, placed: PlacedShards) -> Floats:
        """[W] bytes of HBM of each rank then."""
        distinct, which = placed.blocks.distinct
        base, fixed, by_rows = self.returned_memory(distinct)
        size = fixed[which] + by_rows[which] * (placed.rows / self.tables.rows[placed.blocks.table])
        return np.asarray(base + np.bincount(placed.rank, weights=size, minlength=len(self.kind_of_rank)))

    def rank_loads(self, placed: PlacedShards, slowness: Floats | None = None) -> tuple[Floats, Floats]:
        """[W, C] seconds that each rank brings to its resources, and the bytes [W, M] on it of what is placed."""
        load, stored = self._placed(placed, self.block_costs)
        if slowness is not None:
            begins = 0.0 if self.device_begins is None else self.device_begins[self.kind_of_rank]
            load += np.where(self.is_device, (load - begins) * (slowness - 1.0)[:, None], 0.0)
        return load, stored

    @property
    def is_device(self) -> NDArray[np.bool_]:
        """[C] columns of what devices do, rank by rank."""
        return np.array([column.resource == DEVICE or column.resource.kind == BAGS.kind for column in self.columns])

    def _placed(self, placed: PlacedShards, costs_of: Callable[[Blocks, int], BlockCosts]) -> tuple[Floats, Floats]:
        """[W, C] loads that each rank brings to its resources, and the bytes on it of what is placed."""
        world = len(self.kind_of_rank)
        distinct, which = placed.blocks.distinct
        opened = np.bincount(which[placed.opens_block], minlength=len(distinct)).astype(float)
        costs = [costs_of(distinct, k) for k in range(self.kind_count)]
        load, stored = self.base_loads[self.kind_of_rank].copy(), np.zeros((world, costs[0].bytes_fixed.shape[1]))
        for k, of_kind in enumerate(costs):
            load[self.kind_of_rank == k] += opened @ of_kind.everywhere
        for begin in range(0, len(which), SHARDS_AT_ONCE):
            some = slice(begin, begin + SHARDS_AT_ONCE)
            share = placed.rows[some] / self.tables.rows[distinct.table[which[some]]]
            self._add_shards(load, stored, costs, (which[some], placed.rank[some], share))
        return load, stored

    def _add_shards(
        self, load: Floats, stored: Floats, costs: list[BlockCosts], shards: tuple[Ints, Ints, Floats]
    ) -> None:
        """Add to the loads [W, C] and bytes [W, M] what shards bring, by the block, the rank and the share of the rows
        of each [n]."""
        kind_of_shard = self.kind_of_rank[shards[1]]
        for k, of_kind in enumerate(costs):
            here = np.flatnonzero(kind_of_shard == k)
            block, rank, held = (each[here] for each in shards)
            for c in np.flatnonzero(of_kind.fixed.any(axis=0) | of_kind.by_rows.any(axis=0)).tolist():
                seconds = of_kind.fixed[block, c] + of_kind.by_rows[block, c] * held
                load[:, c] += np.bincount(rank, weights=seconds, minlength=len(load))
            for m in range(stored.shape[1]):
                size = of_kind.bytes_fixed[block, m] + of_kind.bytes_by_rows[block, m] * held
                stored[:, m] += np.bincount(rank, weights=size, minlength=len(load))

    def repeat_costs(self, blocks: Blocks, kind: int) -> BlockCosts:  # noqa: ARG002
        """What blocks cost a kind of rank if all of their ids read rows that the batch has read before: `by_rows`, for
        ranks with this share of these ids; 0 where that is unknown."""
        none, memories = np.zeros((len(blocks), len(self.columns))), np.zeros((len(blocks), len(self.memories)))
        return BlockCosts(none, none, none, memories, memories, np.ones(len(blocks), dtype=bool))

    def hot_rows_s(self, placed: PlacedShards) -> float:  # noqa: ARG002
        """What a step is expected to take longer than its stages say, as hot rows of tables that are cut by rows are
        with few ranks; 0 where unknown."""
        return 0.0

    def mixing_seconds(self, shardings: Ints) -> float:  # noqa: ARG002
        """What a step takes longer than its stages say where these kinds of sharding are in use; 0 where unknown."""
        return 0.0

    def cache_launch_seconds(self, tiers: Ints) -> float:  # noqa: ARG002
        """What a step takes longer than its stages say where tables are in these tiers; 0 where unknown."""
        return 0.0

    @property
    def length_imbalance_s(self) -> float:
        """What a step is expected to take longer than its stages say, as histories are longer on some ranks than on
        others; 0 where all are as long, or nothing is known of that."""
        return 0.0

    def error_bars(self, placed: PlacedShards) -> ErrorBars | None:  # noqa: ARG002
        """The 90 % bands of a placement's step and stages; None where the model has none (see `without_error_bars`)."""
        return None

    def instance_loads(self, load: Floats) -> Floats:
        """[W, C] the load of the instance that each rank uses, of what each rank brings to it."""
        total = np.empty_like(load)
        for c, column in enumerate(self.columns):
            instance = self.resource_of_rank(column.resource)
            total[:, c] = np.bincount(instance, weights=load[:, c])[instance]
        return total

    def evaluate_loads(self, load: Floats, stored: Floats) -> Evaluation:
        """Stage times from the loads [W, C] that each rank brings to its resources; and the bytes [W, M] on it."""
        busy = np.zeros((len(load), len(self.stages)))
        binding: list[Resource | None] = [None] * len(self.stages)
        for column, total in zip(self.columns, self.instance_loads(load).T, strict=True):
            if total.max() > busy[:, column.stage].max() * (1 + ROUNDING):  # of equal ones the first, on any machine
                binding[column.stage] = column.resource
            busy[:, column.stage] = np.maximum(busy[:, column.stage], total)
        self.show_floor(busy)
        if self.floor is not None and busy[:, -1].any():
            binding[-1] = self.floor.resource
        critical = tuple(critical_rank(of_stage) for of_stage in busy.T)
        seconds = busy + self.constants
        return Evaluation(seconds.max(axis=0), critical, tuple(binding), seconds, stored)

    def shard_bytes(self, placed: PlacedShards) -> Floats:
        """[n, M] bytes of each shard."""
        size = np.zeros((len(placed.rank), len(self.memories)))
        share = (placed.rows / self.tables.rows[placed.blocks.table])[:, None]
        distinct, which = placed.blocks.distinct
        kind_of_shard = self.kind_of_rank[placed.rank]
        for k in range(self.kind_count):
            costs = self.block_costs(distinct, k)
            here = kind_of_shard == k
            size[here] = costs.bytes_fixed[which[here]] + costs.bytes_by_rows[which[here]] * share[here]
        return size

    @property
    def fixed_step_s(self) -> float:
        """The step if no table were placed: constants, launches and the dense part, which no placement changes."""
        return self.evaluate_nothing().step_s

    def evaluate_nothing(self) -> Evaluation:
        """The stages if no table were placed."""
        return self.evaluate_loads(self.base_loads[self.kind_of_rank], np.zeros((len(self.kind_of_rank), 0)))

    def whole_step_s(self, others_s: float) -> float:
        """The step whose stages take so long together, without that of the floor."""
        return others_s if self.floor is None else max(others_s, self.floor.longest_s)

    def is_floor(self, seconds: float) -> bool:
        """Whether a step, or a bound on it, is no longer than its floor, so that nothing else could shorten it."""
        return self.floor is not None and seconds <= self.floor.longest_s

    def show_floor(self, busy: Floats) -> None:
        """Give the stage of the floor its seconds, in the loads [W, S] of all stages."""
        if self.floor is not None:
            others_s = float((busy[:, :-1].max(axis=0) + self.constants[:-1]).sum())
            busy[:, -1] = self.floor.left_s(others_s)
