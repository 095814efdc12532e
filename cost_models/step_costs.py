"""The costs of a training step: which resource is busy for how long in which stage.

A stage (see `schedule`) takes its constant plus the largest load of any of its resources; the step is the sum over the
stages. Costs are computed for blocks on a kind of rank, many at once; a placement is summed from them.
"""

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np

from cost_models import collectives, long_bags, towers
from cost_models.alike_groups import with_alike_joined
from cost_models.amounts import NO_RESERVE, Amount, Reserve
from cost_models.averaging import Averaging
from cost_models.batch_copy import COPY_CONTENTION, BatchCopy
from cost_models.beside_dense import EvenTables
from cost_models.coefficients_used import StepCoefficients
from cost_models.cost_arrays import BlockCosts, BlockMemory
from cost_models.costs_at_lines import OwnLine
from cost_models.cut_copies import cut_terms
from cost_models.dense_sharding import sharded_bytes, sharding_of
from cost_models.dense_update import DenseUpdate
from cost_models.exchange_lines import ExchangeLine, fastest_line
from cost_models.exchanged import Exchanged
from cost_models.first_answers import CACHE_FETCH, answer_lines, first_answer_s, must_ask
from cost_models.floor import Floor
from cost_models.kinds import RankKind, rank_kinds
from cost_models.loads import Loads
from cost_models.lookup import Lookup
from cost_models.memory import Batching, pool_bytes
from cost_models.peak import Peak
from cost_models.prefetch_lines import LINES, PREFETCH, PrefetchLine
from cost_models.replicas import Replicas, ReplicatedCluster
from cost_models.replication import Replication
from cost_models.resources import DEVICE, Resource
from cost_models.schedule import Schedule
from cost_models.sharding_mix import mixing_seconds
from cost_models.shards import IS_CACHED, MEMORY_HBM, Blocks, Floats, Ints
from cost_models.stages import LOOKUP, UPDATE, VectorExchange
from cost_models.stashing import stash_loads
from cost_models.step_base import StepBase
from cost_models.step_exchanges import EXCHANGE_OF, balanced_bytes, exchange_terms
from cost_models.step_memory import StepMemory
from cost_models.summed_loads import add_loads, no_loads, pieces
from cost_models.switch_fill import by_switch_fill
from cost_models.tables import Tables
from cost_models.towers import has_towers
from cost_models.workload.models import Workload
from topologies.cluster import Topology

REPLICA_SYNC = "replica_sync"
"""The stage that averages copies."""


class StepCosts(StepMemory):
    """The physical cost model of one workload on one topology."""

    name = "physical"
    chooses_dtypes = True
    coefficients: StepCoefficients
    base: StepBase
    """What a step takes before any table is placed."""
    numbers_of_tables: Ints
    """[tables] the number of each in the model's workload, several of whose forms may be held."""
    cut_shares: dict[str, float]
    """What each stage takes of cutting copies over their replicas, and of gathering them."""

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        reserve: Reserve = NO_RESERVE,
        exchange: VectorExchange = "flat",
        *,
        replicas: Replicas | None = None,
        own: Ints | None = None,
        copy_meets_rows: bool | None = None,
        stashes: bool = False,
        long_tables: tuple[int, ...] | None = None,
    ) -> None:
        """`own` are the only tables that are held, by number; unset, all. `copy_meets_rows`: whether there is a stage
        for what rows wait for the copy of a batch; unset, where they may. `stashes`: whether tables may leave HBM.
        `long_tables`: those whose bags a lookup may wait for, by number; unset, as `long_bags` has it."""
        super().__init__(topology, workload, reserve, exchange)
        self.stashes = stashes
        self._own = own
        self._replication = self._take_replicas(replicas)
        self._take_ranks()
        self._take_batches(copy_meets_rows)
        self._take_schedule(replicas, long_tables)
        self.protocol_stages = self._stages_of_lines()
        self._take_base()
        if not self.schedule.has_towers and replicas is None:
            exchanging = [stage for stage in self.protocol_stages if stage in EXCHANGE_OF]
            self.exchanged = Exchanged.among(self.schedule, self.kinds, exchanging, self.tables)
        self._take_lines((0,) * len(self.protocol_stages))
        self._add_floor()
        self._take_lines(tuple(self._balanced_line(stage) for stage in self.protocol_stages))
        beside = sum(self.peak.rank_bytes.values())
        self.base_bytes: Floats = np.where(np.arange(len(self.memories)) == MEMORY_HBM, beside, 0.0)
        of_rank = np.array([kind.memory_bytes for kind in self.kinds], dtype=float)[self.kind_of_rank]
        self.pool_bytes = pool_bytes(of_rank, self.memories, self.memory_pool_of_rank)
        self._hold_tables()

    def _take_replicas(self, replicas: Replicas | None) -> Replication | None:
        """Become the costs of one group of ranks where there are several, and what their sums take beyond it."""
        if replicas is None:
            self.topology = by_switch_fill(with_alike_joined(self.topology))
            return None
        self.replicas, self.without_error_bars = replicas, "no step of groups of ranks was measured"
        self.copies_apart = replicas.layout == "inter"
        if replicas.factor == 1:
            return None
        return self._take_group(ReplicatedCluster(self.topology, replicas.alike(replicas.factor)))

    def _take_ranks(self) -> None:
        """Know tables, kinds of ranks, coefficients, and what else takes memory."""
        topology, workload = self.topology, self.workload
        self.tables = self.sent_tables = Tables.of(workload.uncompressed, topology.world_size)  # as base costs are
        self.loaded_bytes_per_sample = float(self.tables.loaded_bytes_per_sample.sum())
        """Ids and their lengths: the same whatever variants of these tables `self.tables` has."""
        self.numbers_of_tables = np.arange(len(self.tables.rows))
        self.kinds: tuple[RankKind, ...] = rank_kinds(topology, workload)
        self.coefficients = StepCoefficients.of(topology, workload, self.cluster)
        self.peak = Peak(
            workload.uncompressed,
            topology.world_size,
            loads_ids=not self.coefficients.software.ids_arrive_sharded,
            static_buffers=self.coefficients.software.static_buffers,
            hbm_bytes=max(float(kind.memory_bytes[MEMORY_HBM]) for kind in self.kinds),
            sharded=sharded_bytes(topology, workload) if sharding_of(workload).is_sharded else None,
        )

    def _take_batches(self, copy_meets_rows: bool | None) -> None:
        """Know batches, how they come to the devices, and the dense update."""
        self.batching: Batching = self.peak.batching
        self.update = DenseUpdate.of(self.by_kinds, self.stated_workload, self.kinds)
        software = self.coefficients.software
        self.batch_copy = BatchCopy.of(self.by_kinds, self.workload, self.kinds, self.batching, software, self.update)
        meets_rows = self.batch_copy.meets_rows(self.loaded_bytes_per_sample)
        self.copy_meets_rows = meets_rows if copy_meets_rows is None else copy_meets_rows

    def _take_schedule(self, replicas: Replicas | None, long_tables: tuple[int, ...] | None) -> None:
        """Know the stages of a step, their resources, and how groups of ranks are averaged."""
        topology, workload, replication = self.topology, self.workload, self._replication
        if long_tables is None:
            long_tables = long_bags.long_tables(self.tables, self.kinds, self.batching)
        self.schedule = Schedule(
            topology,
            workload,
            self.kinds,
            self.coefficients.software,
            replication,
            has_towers=has_towers(topology, workload, self.exchange),
            copies=replicas if replication is not None or (self.copies > 1).any() else None,
            update=self.update,
            copy_meets_rows=self.copy_meets_rows,
            stashes=self.stashes,
            long_tables=long_tables,
        )
        self.kind_of_rank, self.node_of_rank = self.schedule.kind_of_rank, self.schedule.node_of_rank
        self.stages, self.columns, self.hidden = self.schedule.stages, self.schedule.columns, self.schedule.hidden
        self._averaging: Averaging | None = None
        if replication is not None and REPLICA_SYNC in self.stages:
            lines, world = self.schedule.lines[REPLICA_SYNC], topology.world_size
            self._averaging = Averaging(replication, lines, self.tables, self.own_blocks, self.batching, world)

    @property
    def _answers_apart(self) -> bool:
        """Whether the first answer of a memory is waited for in a line of its own."""
        return CACHE_FETCH in self.schedule.stage_of_term and first_answer_s(self.kinds) > 0

    def _stages_of_lines(self) -> tuple[str, ...]:
        """The stages that take one of several lines each."""
        of_lines = REPLICA_SYNC, *EXCHANGE_OF
        stages = tuple(stage for stage in self.schedule.collectives if stage in of_lines)
        stages += (COPY_CONTENTION,) * self.copy_meets_rows
        stages += (CACHE_FETCH,) * self._answers_apart
        return stages + (PREFETCH,) * (self.schedule.is_prefetched and bool(self.schedule.columns_ahead))

    def _take_base(self) -> None:
        """Know what a step costs whatever is placed."""
        inputs = self.topology, self.workload, self.tables, self.kinds, self.batching, self.schedule
        self.base = StepBase(*inputs, self.coefficients.software, self._replication, self._answers_apart)
        parts = tuple(model.even_tables for _, model in self.models_by_copies)
        self.base.let_others_run_beside_the_dense_part(self._even_updates_s(), parts)
        for _, model in self.models_by_copies:
            model.cut_shares = self.base.cut_shares or {"dense": 1.0}
        self._beside: Floats = self.base.constants  # without the latencies of exchanges
        self._base_loads: Floats = self.base.loads
        self._unshared_loads: Floats = self.base.unshared
        self._answer_loads: Floats = self.base.answers
        self.device_begins: Floats = self.base.begins

    def _hold_tables(self) -> None:
        """Know what tables take beyond base costs, which are known: here nothing more."""

    def _take_group(self, cluster: ReplicatedCluster) -> Replication:
        """Become the costs of one group of ranks, whose sums go beyond it."""
        replication = Replication(cluster, self.stated_workload)
        self.topology, self.workload = cluster.group, cluster.workload(self.stated_workload)
        if cluster.replicas.layout == "intra":
            self.reserve = {
                tier: amount if tier == "hbm" else Amount(amount.share, amount.size // cluster.replicas.factor)
                for tier, amount in self.reserve.items()
            }
        return replication

    @property
    def by_kinds(self) -> Topology:
        """All that steps are trained on, with a node group for each kind of rank."""
        return self.topology if self.replicas is None else self.cluster

    @property
    def own_blocks(self) -> Blocks:
        """The tables that are held, each as one block in HBM."""
        return self.tables.whole if self._own is None else self.tables.whole.take(self._own)

    @property
    def groups_per_card(self) -> tuple[float, ...]:
        """[K] how many groups the scale-out card of a rank serves."""
        return (1.0,) * len(self.kinds) if self._replication is None else self._replication.groups_per_card

    @property
    def models_by_copies(self) -> "tuple[tuple[int, StepCosts], ...]":
        """How many ranks have the same shards of tables, and whose costs those of such tables are."""
        return ((1, self),)

    def on(self, topology: Topology, workload: Workload) -> "StepCosts":
        """The same model of another cluster or workload."""
        meets, replicas = self.copy_meets_rows, self.replicas
        return type(self)(
            topology, workload, exchange=self.exchange, replicas=replicas, copy_meets_rows=meets, stashes=self.stashes
        )

    def own_lines_of(self, stage: str) -> Sequence[OwnLine]:
        """Those of the tables with the fewest copies; none where these have none to average."""
        if stage == REPLICA_SYNC:
            return () if self._averaging is None else self._averaging.lines
        if stage == COPY_CONTENTION:
            return self.batch_copy.lines(self.loaded_bytes_per_sample)
        if stage == CACHE_FETCH:
            return answer_lines(self.kinds, is_prefetched=self.schedule.is_prefetched)
        return LINES if stage == PREFETCH else self.exchange_lines_of(stage)

    def shown_in(self, hidden: str) -> tuple[str, ...]:
        """See `CostModel`."""
        shown = super().shown_in(hidden)
        return (LOOKUP, UPDATE) if shown == (UPDATE,) and PREFETCH in self.protocol_stages else shown

    def prefetch_shares(self, line: PrefetchLine) -> Floats:
        """[C] what shows in each column of what it carries at a line."""
        return self.schedule.prefetch_shares(line.of_lookup)

    def with_flat_exchange(self) -> Self | None:
        """The same without towers; None where there are none, or where the model needs them."""
        if not self.schedule.has_towers or self.workload.tower_modules:
            return None
        flat = type(self)(self.cluster, self.stated_workload, replicas=self.replicas, stashes=self.stashes)
        flat.reserve = self.reserve
        return flat

    def exchange_lines_of(self, stage: str) -> tuple[ExchangeLine, ...]:
        """The lines of a collective, whatever is exchanged."""
        own = self.exchanged
        return own.lines(stage) if own is not None and stage in own.usual else self.schedule.lines[stage]

    def port_bytes_per_s(self, stage: str, kind: int) -> float:
        """Rate of a port in the exchange of a stage; that of many bytes where others hide the exchange."""
        if stage not in self.protocol_stages:
            return self.kinds[kind].link_all_to_all
        return self.exchange_lines_of(stage)[self._own_line(stage)].port_bytes_per_s[kind]

    def _balanced_line(self, stage: str) -> int:
        """The fastest line where whole tables are spread evenly: where a search begins."""
        if stage == CACHE_FETCH:
            stored = self.tables.row_bytes(self.tables.whole.table, self.tables.whole.columns)
            return int(must_ask(float(self.tables.rows @ stored), self.kinds))
        if stage not in EXCHANGE_OF:
            return 0 if self._averaging is None or stage != REPLICA_SYNC else self._averaging.balanced_line()
        exchange, blocks = EXCHANGE_OF[stage], self.own_blocks
        moved = [balanced_bytes(exchange, self.tables, blocks, kind, self.batching) for kind in self.kinds]
        return fastest_line(self.schedule.lines[stage], np.array(moved))

    def resource_of_rank(self, resource: Resource) -> Ints:
        """[W] which instance of a resource each rank uses, numbered from 0."""
        return self.schedule.resource_of_rank(resource)

    def _add_floor(self) -> None:
        """A batch comes to the devices before its ids are exchanged or, with a pipeline, beside the step before; a
        step is then no shorter than that, nor than what the host does beside it. Where whatever is placed hides both,
        there is no stage for them."""
        copy_seconds = self.batch_copy.seconds(self.loaded_bytes_per_sample)[self.kind_of_rank]
        is_beside, host = self.batch_copy.is_beside, self.coefficients.host_beside
        if not (is_beside or self.coefficients.software.ids_arrive_sharded):
            self._beside[self.stages.index("input_dist")] += copy_seconds.max()
        floor = Floor.of(copy_seconds, None if host is None else host.value, copies_beside=is_beside)
        if floor is not None and floor.longest_s > self.fixed_step_s:
            self.floor = floor
            self.stages, self._beside = (*self.stages, floor.stage), np.append(self._beside, 0.0)

    def activation_seconds(self) -> float:
        """Seconds of the stage `dense` in which activations cross device memory, on the slowest kind of rank."""
        return self.base.activation_seconds()

    def _even_updates_s(self) -> tuple[float, ...]:
        """[K] `even_update_s` of all tables, however many copies they have."""
        models = [model for _, model in self.models_by_copies]
        return tuple(sum(model.even_update_s(k) for model in models) for k in range(len(self.kinds)))

    @property
    def even_tables(self) -> EvenTables:
        """Those that are held, spread evenly over HBM."""
        return EvenTables(self.tables, self.own_blocks, self.kinds, self.batching, self.schedule, self._replication)

    def even_update_s(self, kind: int) -> float:
        """How long the update of the tables that are held keeps a device busy, where they are spread evenly over
        HBM."""
        load = self._lookup(self.own_blocks, kind).backward()[DEVICE]
        return float(np.sum(load.fixed) + np.sum(load.by_rows)) / self.topology.world_size

    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """Costs of each block if its ranks are of this kind; of very many, some after others, so that little memory is
        touched on the way."""
        parts, memories = no_loads(len(blocks), len(self.columns)), list[BlockMemory]()
        for some in pieces(len(blocks)):
            these = blocks.take(some)
            add_loads(self._block_terms(these, kind), self.schedule, kind, [part[some] for part in parts])
            memories.append(self.block_memory(these, kind))
        self._add_waits(blocks, kind, parts)
        self._show_shares(parts)
        return BlockCosts(
            *parts,
            np.concatenate([memory.fixed for memory in memories]),
            np.concatenate([memory.by_rows for memory in memories]),
            np.concatenate([memory.supported for memory in memories]),
        )

    def _show_shares(self, parts: Sequence[Floats]) -> None:
        """Leave of what is prefetched, in parts [n, C] of the loads of blocks, what shows in each stage."""
        shares = self.shares_at(self.protocols)
        for column in np.flatnonzero(shares != 1.0):
            for part in parts:
                if part[:, column].any():  # columns of zeros take no memory
                    part[:, column] *= shares[column]

    def _block_terms(self, blocks: Blocks, kind: int) -> dict[str, Loads]:
        """What blocks take on a kind of rank, term by term."""
        lookup = self._lookup(blocks, kind)
        terms: dict[str, Loads] = {
            **self.lookup_terms(lookup, self.numbers_of_tables[blocks.table]),
            "cache_fetch": lookup.fetches(is_prefetched=self.schedule.is_prefetched),
            **self._exchange_terms(blocks, kind),
        }
        if self.schedule.is_prefetched:
            terms["beside_misses"] = lookup.beside_misses()
        if self.stashes:
            groups = 1.0 if self._replication is None else self._replication.groups_per_switch[kind]
            terms["stash"] = stash_loads(self.stashed_bytes(blocks), self.kinds[kind], groups)
        return terms | self._copy_terms(lambda: lookup)

    def lookup_terms(self, lookup: Lookup, of_table: Ints) -> dict[str, Loads]:
        """What blocks take of a lookup and its update, whose bags are those of tables of these numbers [n], or -1."""
        terms = {"lookup_forward": lookup.forward()}
        if self.tables.training:
            terms["lookup_backward"] = lookup.backward()
        if self.schedule.long_tables:
            is_long = np.isin(of_table, self.schedule.long_tables)
            for stage, loads in zip((LOOKUP, UPDATE), lookup.bags(np.where(is_long, of_table, -1)), strict=True):
                if stage in terms:
                    terms[stage] |= loads
        return terms

    def id_sort_seconds(self, blocks: Blocks, kind: int) -> Floats:
        """[n] seconds on the device that sorting the ids of each block takes of its update."""
        return self._lookup(blocks, kind).id_sort() if self.tables.training else np.zeros(len(blocks))

    def exchange_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """What blocks exchange, wait for the copy of a batch and fetch after first answers; no bytes."""
        terms = self._exchange_terms(blocks, kind) | self._copy_terms(lambda: self._lookup(blocks, kind))
        if CACHE_FETCH in self.protocol_stages and CACHE_FETCH in self.stages:
            terms[CACHE_FETCH] = self._lookup(blocks, kind).fetches(is_prefetched=False)
        parts = self._summed(terms, len(blocks), kind)
        self._add_waits(blocks, kind, parts)
        self._show_shares(parts)
        none = np.zeros((len(blocks), 0))
        return BlockCosts(*parts, none, none, np.ones(len(blocks), dtype=bool))

    def _lookup(self, blocks: Blocks, kind: int) -> Lookup:
        return Lookup(self.tables, blocks, self.kinds[kind], self.batching, self.coefficients.software)

    def _copy_terms(self, lookup_of: Callable[[], Lookup]) -> dict[str, Loads]:
        """What blocks wait for the copy of a batch, at the model's line."""
        if not self.copy_meets_rows:
            return {}
        line = self.batch_copy.lines(self.loaded_bytes_per_sample)[self._own_line(COPY_CONTENTION)]
        is_prefetched = self.schedule.is_prefetched
        return {COPY_CONTENTION: lookup_of().waits_for_copy(is_prefetched=is_prefetched)} if line.rows_wait else {}

    def _exchange_terms(self, blocks: Blocks, kind: int) -> dict[str, Loads]:
        """What blocks exchange on a kind of rank, at the model's lines."""
        ports = {stage: self.port_bytes_per_s(stage, kind) for stage in self._exchanges}
        terms = exchange_terms(self.schedule, self.sent_tables, blocks, self.kinds[kind], self.batching, ports)
        if self.workload.tower_modules:  # what modules give has the same size whatever is placed
            terms = {term: loads for term, loads in terms.items() if term not in towers.PEERS}
        if self._averaging is not None:
            line = self._averaging.lines[self._own_line(REPLICA_SYNC)]
            terms[REPLICA_SYNC] = self._averaging.loads(blocks, kind, line)
        if self.tables.training:
            summing, size = self.base.summing_kinds[kind], self.tables.gradient_wire_bytes
            terms["replica_all_reduce"] = collectives.replica_all_reduce(self.tables, blocks, summing, size)
            if self._replication is not None and self._replication.replicas.is_fully_sharded:
                loads = self._replication.cut_shards(self.tables, blocks, kind, self.batching)
                terms |= cut_terms(loads, self.cut_shares, self.stages)
        return terms

    @property
    def _exchanges(self) -> list[str]:
        """The stages in which blocks exchange something; ids that arrive at their shards do not."""
        arrived = {"input_dist"} if self.coefficients.software.ids_arrive_sharded else set[str]()
        return [stage for stage in EXCHANGE_OF if stage in self.schedule.stage_of_term and stage not in arrived]

    def _summed(self, terms: dict[str, Loads], blocks: int, kind: int) -> tuple[Floats, Floats, Floats]:
        """[n, C] each of the three parts of the loads of n blocks on a kind of rank."""
        parts = no_loads(blocks, len(self.columns))
        add_loads(terms, self.schedule, kind, parts)
        return parts

    def cache_launch_seconds(self, tiers: Ints) -> float:
        """Launches of the kernels that search the caches, once on each rank for all of its tables. Where misses are
        prefetched, caches are searched beside the step before."""
        launch, is_searched = self.coefficients.software.cache_launch_s, bool(IS_CACHED[tiers].any())
        return launch.value if launch and is_searched and not self.schedule.is_prefetched else 0.0

    def mixing_seconds(self, shardings: Ints) -> float:
        """Kernels and exchanges of every kind of sharding beyond the first one, and their vectors joined. 0 for devices
        on which the latter was not measured."""
        latencies_s = float(self.constants.sum() - self._beside.sum())
        lines = zip(self.protocol_stages, self.protocols, strict=True)
        latencies_s -= sum(self.lines_of(stage)[n].latency_s for stage, n in lines if stage not in EXCHANGE_OF)
        return mixing_seconds(self.kinds, self.workload, self.batching, latencies_s, set(shardings.tolist()))
