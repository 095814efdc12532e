"""From an old plan document to new inputs: which ranks and tables are the same, and what each rank holds of them."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.kinds import rank_kinds
from cost_models.model import CostModel
from cost_models.replicas import ReplicatedCluster, groups_in_words
from cost_models.shards import (
    DATA_PARALLEL,
    HOME,
    MEMORY_TIERS,
    PLACEMENT_TIERS,
    SHARDINGS,
    STATE_PLACES,
    Floats,
    Ints,
    PlacementTier,
    memory_of_state,
)
from planner.document.former_blocks import blocks_as_before
from planner.document.former_ranks import rank_after
from planner.document.plan import Plan, TablePlan
from planner.document.planned import planned_replicas, planned_topology
from planner.formulation.formulation import Formulation
from planner.formulation.options import CacheFractions, coarse_fractions, hbm_of
from planner.problem.numbers import Bools
from planner.problem.placement import Placement
from planner.problem.relocation import IncumbentPlacement, Rectangles
from topologies.cluster import Topology
from topologies.errors import Fault, InputError

MEMORY_OF_TIER: Ints = HOME
"""Where the weights of a placement tier are."""
DEFAULT_PAY_BACK_STEPS = 10_000
"""Steps within which a move must pay for itself, where the user sets neither a limit nor another number."""


@dataclass(frozen=True)
class Migration:
    """An old plan seen from a new cluster and workload. T tables of the new workload, W ranks of the new cluster."""

    old: Plan
    source: str
    """What messages call the old plan."""
    model: CostModel
    lost_nodes: tuple[int, ...]
    """Nodes of the old plan that are gone; those behind them in their group move up."""

    def expect_usable(self) -> None:
        """Raises InputError where the old plan has no placement, knows none of the tables, or lacks a lost node."""
        faults = []
        if not self.old.tables:
            faults.append(Fault(self.source, 0, 0, "status", f"is {self.old.status!r}: this plan places no tables"))
        elif not (self.table_before >= 0).any():
            old, new = self.old.tables[0].name, self.model.workload.tables[0].name
            faults.append(
                Fault(
                    self.source,
                    0,
                    0,
                    "tables",
                    f"none is a table of workload {self.model.workload.name!r} by name and dim (it has {old!r}, the"
                    f" workload {new!r}); planner compare sets plans of different models side by side,"
                    " and planner plan without --from starts afresh",
                )
            )
        was, now = groups_in_words(planned_replicas(self.old)), groups_in_words(self.model.replicas)
        if was != now:
            faults.append(
                Fault(self.source, 0, 0, "replicas", f"is for {was}, the new one for {now}: their ranks do not compare")
            )
            raise InputError(faults)
        if self.lost_nodes and self.model.replicas is not None and not self.model.replicas.share_nodes:
            message = "each of its groups is nodes of its own, and not all lack one (--lost-nodes); plan again"
            raise InputError.at(self.source, message, path="replicas")
        nodes = self.topology_before.node_count
        faults += [
            Fault(self.source, 0, 0, "ranks", f"there is no node {node} in it, only 0 to {nodes - 1} (--lost-nodes)")
            for node in self.lost_nodes
            if not 0 <= node < nodes
        ]
        if faults:
            raise InputError(faults)

    @cached_property
    def topology_before(self) -> Topology:
        """The cluster of the old plan; of groups of ranks, what one of them has."""
        topology, replicas = planned_topology(self.old, f"{self.source}: "), planned_replicas(self.old)
        return topology if replicas is None else ReplicatedCluster(topology, replicas).group

    @cached_property
    def rank_after(self) -> Ints:
        """[ranks before] the rank that each one is now; -1 where it is gone."""
        return rank_after(self.topology_before, self.model.stated_topology, self.lost_nodes)

    @cached_property
    def table_before(self) -> Ints:
        """[T] the table of the old plan that has the same name and width; -1 where there is none."""
        number = {table.name: i for i, table in enumerate(self.old.tables)}
        old_table = np.full(len(self.model.workload.tables), -1, dtype=np.int64)
        for i, table in enumerate(self.model.workload.tables):
            old = number.get(table.name, -1)
            if old >= 0 and _width(self.old.tables[old]) == self.model.workload.stored_dim(table):
                old_table[i] = old
        return old_table

    @cached_property
    def rows_before(self) -> Ints:
        """[T] rows of the old table; 0 for a new one."""
        ends = [int((table.shards.row_start + table.shards.rows).max()) for table in self.old.tables]
        return np.where(self.table_before >= 0, np.array([*ends, 0])[self.table_before], 0)

    @cached_property
    def replicated(self) -> Bools:
        """[T] whether every rank of the old plan held the whole table."""
        was = [table.sharding == SHARDINGS[DATA_PARALLEL] for table in self.old.tables]
        return np.array([*was, False])[self.table_before]

    @cached_property
    def all_rectangles(self) -> tuple[Rectangles, Ints]:
        """What the old plan held of the tables, with the new ranks (-1: gone); and the ranks of the old plan."""
        known = np.flatnonzero(self.table_before >= 0)
        parts, ranks = parts_of((i, self.old.tables[self.table_before[i]]) for i in known.tolist())
        after = self.rank_after[ranks]
        return Rectangles(parts.table, after, *(getattr(parts, name) for name in PART_KEYS)), ranks

    @cached_property
    def rectangles(self) -> Rectangles:
        """What the old plan held on ranks that are still there, sorted by place."""
        parts, _ = self.all_rectangles
        return parts.take(np.flatnonzero(parts.rank >= 0)).sorted_by_place(len(self.model.kind_of_rank))

    def incumbent(self, formulation: Formulation) -> IncumbentPlacement:
        """What the solver needs to know of the old plan."""
        tables, options, problem = self.model.tables, formulation.options, formulation.problem
        table = options.table[options.block_option]
        columns, dtype = options.block_columns, options.dtype[options.block_option]
        row = tables.row_bytes(table, columns, dtype) + tables.row_state_bytes(table, columns)
        mapped = [
            piece
            for i in np.flatnonzero(self.table_before >= 0).tolist()
            for piece in blocks_as_before(formulation, i, self.old.tables[self.table_before[i]], self.rank_after)
        ]
        block, place = np.array(mapped, dtype=np.int64).reshape(-1, 2).T
        there = place >= -1
        return IncumbentPlacement(
            rectangles=self.rectangles,
            rows_before=self.rows_before,
            table_columns=tables.dim,
            replicated=self.replicated,
            start=Placement(block[there], place[there]),
            loose=block[~there],
            block_columns=options.block_columns,
            block_memory=MEMORY_OF_TIER[options.tier[options.block_option]],
            block_state_memory=memory_of_state(options.tier, options.state)[options.block_option],
            memories=np.array([MEMORY_TIERS.index(tier) for tier in self.model.memories]),
            block_bytes=(problem.table_rows[table] * row).astype(float),
            hbm=hbm_of(self.model),
        )

    def cache_fractions(self) -> CacheFractions | None:
        """The old plan's cache sizes, where the cost model leaves them open; None if they are options in any case."""
        usual = coarse_fractions(self.model)
        shares: dict[PlacementTier, Floats] = {}
        for i in np.flatnonzero(self.table_before >= 0).tolist():
            old = self.old.tables[self.table_before[i]]
            share = old.cache_fraction
            if not share or share > 1 or old.tier in self.model.cache_fractions or share in usual[old.tier][i]:
                continue
            shares.setdefault(old.tier, np.full((len(usual[old.tier]), 1), np.nan))[i] = share
        return shares or None

    def seconds_per_byte(self) -> float:
        """Seconds that a moved byte takes when all ranks receive at once: each at the rate of its network cards.

        Where no cards are described, at the rate of the scale-up link, or of PCIe.
        """
        kinds = rank_kinds(self.model.topology, self.model.workload)
        rates = np.array([k.nic_all_to_all if np.isfinite(k.nic_all_to_all) else k.link_all_to_all for k in kinds])
        return float(1.0 / rates[self.model.kind_of_rank].sum())


PART_KEYS = ("row_start", "rows", "column_start", "columns", "memory", "state_memory")


def parts_of(tables: Iterable[tuple[int, TablePlan]]) -> tuple[Rectangles, Ints]:
    """The shards of numbered tables as parts, and the ranks that the document says."""
    numbered = list(tables)
    sizes = [len(table.shards) for _, table in numbered]
    tier = np.array([PLACEMENT_TIERS.index(table.tier) for _, table in numbered], dtype=np.int64)
    state = np.array([STATE_PLACES.index(table.optimizer_state) for _, table in numbered], dtype=np.int64)
    none = np.zeros((0, 5), dtype=np.int64)
    shards = [table.shards for _, table in numbered]
    matrix = np.concatenate(
        [none, *(np.stack([s.rank, s.row_start, s.rows, s.column_start, s.columns], axis=1) for s in shards)]
    )
    rank, row_start, rows, column_start, columns = matrix.T
    number = np.repeat(np.array([i for i, _ in numbered], dtype=np.int64), sizes)
    memory = np.repeat(MEMORY_OF_TIER[tier], sizes)
    state_memory = np.repeat(memory_of_state(tier, state), sizes)
    return Rectangles(number, rank, row_start, rows, column_start, columns, memory, state_memory), rank


def _width(table: TablePlan) -> int:
    return int((table.shards.column_start + table.shards.columns).max(initial=0))


def migration_from(
    previous: Plan, model: CostModel, lost_nodes: Sequence[int], source: str = "the previous plan"
) -> Migration:
    """The way from a plan, which messages call `source`, to the inputs of a cost model. Raises InputError where nothing
    can be kept."""
    migration = Migration(previous, source, model, tuple(sorted(set(lost_nodes))))
    migration.expect_usable()
    return migration


def plan_fingerprint(plan: Plan) -> str:
    """A hash of where a plan holds its tables."""
    digest = hashlib.sha256()
    for table in plan.tables:
        head: tuple[object, ...] = (table.name, table.sharding, table.tier, table.dtype, table.cache_fraction)
        head += (table.optimizer_state,) if table.optimizer_state != "with_table" else ()
        digest.update(repr(head).encode())
        digest.update(np.ascontiguousarray(table.shards.as_matrix(named=True), dtype="<i8").tobytes())
    return f"sha256:{digest.hexdigest()}"


def is_limit_too_small(plan: Plan) -> bool:
    """Whether there is no plan because more must move than may."""
    moves = plan.moves
    if moves is None or moves.limit_bytes is None or plan.status != "infeasible":
        return False
    return moves.least_bytes > moves.limit_bytes
