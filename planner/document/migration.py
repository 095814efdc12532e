"""From an old plan document to a new one: which ranks are the same, what stays where it is, and what moves."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cost_models.kinds import rank_kinds
from cost_models.model import CostModel
from cost_models.shards import (
    DATA_PARALLEL,
    EXTENT_OF_SHARDING,
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
from cost_models.workload.formats import DTYPES
from planner.document.moves import FormerPlan, Moves, RankTraffic
from planner.document.plan import Plan, TablePlan
from planner.document.planned import planned_model, planned_topology
from planner.document.shards import TierBytes
from planner.formulation.formulation import Formulation
from planner.formulation.options import CacheFractions, Options, coarse_fractions
from planner.problem.arrays import Problem
from planner.problem.extents import NODE, RANK
from planner.problem.numbers import Bools
from planner.problem.placement import Placement
from planner.problem.relocation import Homes, Parts, existing_cells, kept_cells
from planner.problem.rounding import ROUNDING
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
                    f" workload {new!r}); plan without --from",
                )
            )
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
        """The cluster of the old plan."""
        return planned_topology(self.old, f"{self.source}: ")

    @cached_property
    def rank_after(self) -> Ints:
        """[ranks before] the rank that each one is now; -1 where it is gone.

        The i-th node that is left of a node group is the i-th node of the group of that name, or, where no name is
        the same, of the group at its position; ranks follow their number on the node.
        """
        before, after = self.topology_before, self.model.topology
        found = np.full(before.world_size, -1, dtype=np.int64)
        group_of = _same_groups(before, after)
        first_rank, first_node = _firsts(after), 0
        rank = 0
        for group in before.nodes:
            position = 0
            twin = group_of.get(group.name)
            for node in range(first_node, first_node + group.count):
                ranks = group.accelerators.count
                if node not in self.lost_nodes:
                    if twin is not None and position < after.nodes[twin].count:
                        there = min(ranks, after.nodes[twin].accelerators.count)
                        begin = first_rank[twin] + position * after.nodes[twin].accelerators.count
                        found[rank : rank + there] = np.arange(begin, begin + there)
                    position += 1
                rank += ranks
            first_node += group.count
        return found

    @cached_property
    def table_before(self) -> Ints:
        """[T] the table of the old plan that has the same name and width; -1 where there is none."""
        number = {table.name: i for i, table in enumerate(self.old.tables)}
        found = np.full(len(self.model.workload.tables), -1, dtype=np.int64)
        for i, table in enumerate(self.model.workload.tables):
            old = number.get(table.name, -1)
            if old >= 0 and _width(self.old.tables[old]) == table.dim:
                found[i] = old
        return found

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
    def all_held(self) -> tuple[Parts, Ints]:
        """What the old plan held of the tables, with the new ranks (-1: gone); and the ranks of the old plan."""
        known = np.flatnonzero(self.table_before >= 0)
        parts, ranks = _parts((i, self.old.tables[self.table_before[i]]) for i in known.tolist())
        after = self.rank_after[ranks]
        return Parts(parts.table, after, *(getattr(parts, name) for name in _PART_KEYS)), ranks

    @cached_property
    def held(self) -> Parts:
        """What the old plan held on ranks that are still there, sorted by place."""
        parts, _ = self.all_held
        return parts.take(np.flatnonzero(parts.rank >= 0)).sorted_by_place(len(self.model.kind_of_rank))

    # -- for the solver ----------------------------------------------------------------------------------------

    def homes(self, formulation: Formulation) -> Homes:
        """What the solver needs to know of the old plan."""
        tables, options, problem = self.model.tables, formulation.options, formulation.problem
        table = options.table[options.block_option]
        columns, dtype = options.block_columns, options.dtype[options.block_option]
        row = tables.row_bytes(table, columns, dtype) + tables.row_state_bytes(table, columns)
        mapped = [
            piece
            for i in np.flatnonzero(self.table_before >= 0).tolist()
            for piece in self._pieces(formulation, i, self.old.tables[self.table_before[i]])
        ]
        block, place = np.array(mapped, dtype=np.int64).reshape(-1, 2).T
        there = place >= -1
        return Homes(
            held=self.held,
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
        )

    def cache_fractions(self) -> CacheFractions | None:
        """The old plan's cache sizes, where the cost model leaves them open; None if they are options in any case."""
        usual = coarse_fractions(self.model)
        found: dict[PlacementTier, Floats] = {}
        for i in np.flatnonzero(self.table_before >= 0).tolist():
            old = self.old.tables[self.table_before[i]]
            share = old.cache_fraction
            if not share or share > 1 or old.tier in self.model.cache_fractions or share in usual[old.tier][i]:
                continue
            found.setdefault(old.tier, np.full((len(usual[old.tier]), 1), np.nan))[i] = share
        return found or None

    def _pieces(self, formulation: Formulation, table: int, old: TablePlan) -> list[tuple[int, int]]:
        """Blocks that hold a table as the old plan did, with their places (-2: gone); empty where no option does.

        Where the memory tier is no longer an option, the same blocks in another.
        """
        options, problem = formulation.options, formulation.problem
        opens = np.unique(old.shards.column_start, return_index=True)[1]
        width, rank = old.shards.columns[opens], self.rank_after[old.shards.rank[opens]]
        tier, sharding = PLACEMENT_TIERS.index(old.tier), SHARDINGS.index(old.sharding)
        extent = int(EXTENT_OF_SHARDING[sharding])
        candidates = np.arange(*problem.option_start[table : table + 2])
        unlike = np.abs(options.cache_fraction[candidates] - (old.cache_fraction or 0.0))
        unlike += 10.0 * (options.tier[candidates] != tier)
        unlike += 2.0 * (options.dtype[candidates] != DTYPES.index(old.dtype))
        unlike += 1.5 * (options.state[candidates] != STATE_PLACES.index(old.optimizer_state))
        if extent != RANK:
            place = np.full(len(rank), -1)
            if extent == NODE:
                place = np.where(rank >= 0, problem.node_of_rank[rank], -2)
        else:
            place = np.where(rank >= 0, rank, -2)
        for option in candidates[np.argsort(unlike, kind="stable")].tolist():
            blocks = _blocks_of_widths(options, problem, option, sharding, width)
            if blocks is None or not _is_legal(problem, option, blocks, place):
                continue
            return list(zip(blocks.tolist(), place.tolist(), strict=True))
        return []

    def seconds_per_byte(self) -> float:
        """Least seconds that a moved byte takes: all ranks receive at once, each at its rate into the network.

        Where no network leaves the scale-up domain, at the rate of the link within it.
        """
        kinds = rank_kinds(self.model.topology, self.model.workload)
        rates = np.array([k.nic_all_to_all if np.isfinite(k.nic_all_to_all) else k.link_all_to_all for k in kinds])
        return float(1.0 / rates[self.model.kind_of_rank].sum())

    # -- for the document --------------------------------------------------------------------------------------

    def measure(
        self,
        tables: Sequence[TablePlan],
        least_bytes: float,
        limit_bytes: int | None,
        pay_back_steps: int | None,
        found_bytes: float | None = None,
    ) -> Moves:
        """What moves when the new `tables` follow the old plan; of no tables, the terms and what was found alone."""
        former = FormerPlan(
            fingerprint=plan_fingerprint(self.old),
            step_s=None if self.old.objective is None else self.old.objective.step_s,
            lost_nodes=self.lost_nodes,
        )
        least = int(least_bytes * (1 - ROUNDING))
        if not tables:
            nothing = TierBytes(hbm=0, ddr=0, ssd=0)
            return Moves(
                former=former,
                limit_bytes=limit_bytes,
                pay_back_steps=pay_back_steps,
                least_bytes=least,
                found_bytes=None if found_bytes is None else round(found_bytes),
                moved=nothing,
                copied=nothing,
                new=nothing,
                lost_bytes=0,
            )
        traffic = self._traffic(tables)
        return Moves(
            former=former,
            limit_bytes=limit_bytes,
            pay_back_steps=pay_back_steps,
            least_bytes=least,
            moved=traffic.by_tier(traffic.moved),
            copied=traffic.by_tier(traffic.copied),
            new=traffic.by_tier(traffic.new),
            lost_bytes=round(traffic.lost),
            tables=len(np.unique(traffic.parts.table[traffic.is_moved])),
            shards=int(traffic.is_moved.sum()),
            busiest_in=_busiest(traffic.received),
            busiest_out=_busiest(traffic.sent),
        )

    def moved_bytes_of_tables(self, tables: Sequence[TablePlan]) -> Floats:
        """[T]"""
        traffic = self._traffic(tables)
        moved = traffic.moved.sum(axis=0)
        return np.asarray(np.bincount(traffic.parts.table, weights=moved, minlength=len(tables)), dtype=float)

    def _traffic(self, tables: Sequence[TablePlan]) -> "_Traffic":
        world, of = len(self.model.kind_of_rank), self.model.tables
        own, rank = _parts(enumerate(tables))
        parts = Parts(own.table, rank, *(getattr(own, name) for name in _PART_KEYS))
        kept, *same = kept_cells(parts, self.held, world)
        existing = existing_cells(parts, self.rows_before)
        dtype = np.array([DTYPES.index(table.dtype) for table in tables])[parts.table]
        row, state = of.row_bytes(parts.table, parts.columns, dtype), of.row_state_bytes(parts.table, parts.columns)
        cell_bytes = np.stack([row, state]) / parts.columns
        moved = (existing - kept) * cell_bytes
        sent, lost = self._sent(tables, parts, existing - kept, kept, moved.sum(axis=0))
        return _Traffic(
            parts=parts,
            moved=moved,
            copied=(kept - np.stack(same)) * cell_bytes,
            new=(parts.rows * parts.columns - existing) * cell_bytes,
            received=np.bincount(parts.rank, weights=moved.sum(axis=0), minlength=world).astype(float),
            sent=sent,
            lost=lost,
        )

    def _sent(
        self, tables: Sequence[TablePlan], parts: Parts, moved_cells: Floats, kept: Floats, moved: Floats
    ) -> tuple[Floats, float]:
        """Bytes [ranks before] that each rank of the old plan gives to others, and those that no rank has any more.

        Each cell comes from the rank that held it; of a replicated table, from all that are left in equal parts.
        """
        count, world, before = len(tables), len(self.model.kind_of_rank), self.topology_before.world_size
        held, ranks = self.all_held
        places, at = np.unique(held.table * before + ranks, return_inverse=True)
        table, rank = np.divmod(places, before)
        last_row = np.minimum(held.row_start + held.rows, self.model.tables.rows[held.table])
        cells = np.maximum(last_row - held.row_start, 0) * held.columns
        copies = np.array([world if new.sharding == SHARDINGS[DATA_PARALLEL] else 1 for new in tables])
        stays = _at_places(parts, kept, table, self.rank_after[rank], world)
        given = np.bincount(at, weights=cells, minlength=len(places)) * copies[table] - stays
        is_left = self.rank_after[rank] >= 0
        holders = np.bincount(table, weights=is_left, minlength=count)[table]
        sources = np.where(holders > 0, holders, np.bincount(table, minlength=count)[table])
        cells_moved = np.bincount(parts.table, weights=moved_cells, minlength=count)
        evenly = np.where(is_left | (holders == 0), cells_moved[table] / sources, 0.0)
        mean = np.bincount(parts.table, weights=moved, minlength=count) / np.maximum(cells_moved, 1.0)
        size = np.where(self.replicated[table], evenly, given) * mean[table]
        sent = np.bincount(rank, weights=np.where(is_left, size, 0.0), minlength=before)
        return sent.astype(float), float(size[~is_left].sum())


@dataclass(frozen=True)
class _Traffic:
    """Bytes of each of the new parts [rows and optimizer state, n], and of ranks: received [W], sent [ranks before]."""

    parts: Parts
    moved: Floats
    copied: Floats
    new: Floats
    received: Floats
    sent: Floats
    lost: float

    @property
    def is_moved(self) -> Bools:
        """[n] parts into which something moves."""
        return np.asarray((self.moved > 0).any(axis=0))

    def by_tier(self, size: Floats) -> TierBytes:
        """The sums of bytes like these in each memory."""
        memory = np.stack([self.parts.memory, self.parts.state_memory])
        of_memory = np.bincount(memory.ravel(), weights=size.ravel(), minlength=len(MEMORY_TIERS))
        return TierBytes.of(MEMORY_TIERS, of_memory.tolist())


_PART_KEYS = ("row_start", "rows", "column_start", "columns", "memory", "state_memory")


def _parts(tables: Iterable[tuple[int, TablePlan]]) -> tuple[Parts, Ints]:
    """The shards of tables, each with its number; and their ranks."""
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
    return Parts(number, rank, row_start, rows, column_start, columns, memory, state_memory), rank


def _at_places(parts: Parts, cells: Floats, table: Ints, rank: Ints, world: int) -> Floats:
    """[n] cells of the parts that are of a `table` and on a `rank` [n]; 0 for rank -1."""
    places, which = np.unique(parts.table * world + parts.rank, return_inverse=True)
    total = np.bincount(which, weights=cells)
    wanted = table * world + rank
    at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
    return np.where((rank >= 0) & (places[at] == wanted), total[at], 0.0)


def _busiest(size: Floats) -> RankTraffic | None:
    return RankTraffic(rank=int(size.argmax()), bytes=round(float(size.max()))) if size.any() else None


def _width(table: TablePlan) -> int:
    return int((table.shards.column_start + table.shards.columns).max(initial=0))


def _same_groups(before: Topology, after: Topology) -> dict[str, int]:
    """For each old node group the position of the new one that it is."""
    names = [group.name for group in after.nodes]
    if not set(names) & {group.name for group in before.nodes}:
        return {group.name: i for i, group in enumerate(before.nodes) if i < len(names)}
    return {group.name: names.index(group.name) for group in before.nodes if group.name in names}


def _firsts(topology: Topology) -> list[int]:
    """First rank of each node group."""
    ranks = [group.count * group.accelerators.count for group in topology.nodes]
    return [sum(ranks[:i]) for i in range(len(ranks))]


def _blocks_of_widths(options: Options, problem: Problem, option: int, sharding: int, width: Ints) -> Ints | None:
    """Block types of the option that have these widths, in this order; None where the option is not cut like that."""
    types = np.arange(*problem.block_start[option : option + 2])
    columns = options.block_columns[types]
    if problem.option_units[option]:
        if EXTENT_OF_SHARDING[sharding] != RANK:
            return None
        order = np.argsort(columns, kind="stable")
        found = order[np.minimum(np.searchsorted(columns[order], width), len(order) - 1)]
        return types[found] if np.array_equal(columns[found], width) else None
    of = int(options.block_sharding[types[0]])
    is_same = of == sharding or (EXTENT_OF_SHARDING[[of, sharding]] == RANK).all()
    taken = np.repeat(columns, options.block_count[types])
    if not is_same or not np.array_equal(np.sort(taken), np.sort(width)):
        return None
    of_width = defaultdict(int, zip(columns.tolist(), types.tolist(), strict=True))
    return np.array([of_width[w] for w in width.tolist()], dtype=np.int64)


def _is_legal(problem: Problem, option: int, blocks: Ints, place: Ints) -> bool:
    """Whether the places that are still there may hold the blocks."""
    for block, where in zip(blocks.tolist(), place.tolist(), strict=True):
        extent = problem.block_extent[block]
        if where == -1:
            kinds = np.arange(problem.kinds)
        elif where >= 0:
            rank = where if extent == RANK else int(problem.node_start[where])
            kinds = problem.kind_of_rank[rank : rank + 1]
        else:
            kinds = np.zeros(0, dtype=np.int64)
        if not problem.allowed[kinds, block].all():
            return False
        if where == -2 and not problem.allowed[:, block].any():
            return False
    if problem.option_tied[option]:
        return bool((place >= 0).all() and len(set(place.tolist())) == len(place)) and _on_one_node(problem, place)
    return True


def _on_one_node(problem: Problem, ranks: Ints) -> bool:
    return len(np.unique(problem.node_of_rank[ranks])) == 1


def migration_from(
    previous: Plan, model: CostModel, lost_nodes: Sequence[int], source: str = "the previous plan"
) -> Migration:
    """The way from a plan, which messages call `source`, to the inputs of a cost model. Raises InputError where nothing
    can be kept."""
    found = Migration(previous, source, model, tuple(sorted(set(lost_nodes))))
    found.expect_usable()
    return found


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


def differences(
    before: Plan, after: Plan, source: str, lost_nodes: Sequence[int] = ()
) -> list[dict[str, str | int | None]]:
    """Tables that two plans hold otherwise: how both do, and the bytes that move; None where a plan lacks the table.

    Raises InputError where a plan places nothing, or the two have no table in common.
    """
    model = planned_model(after)
    if not after.tables:
        raise InputError.at("the second plan", f"is {after.status!r}: it places no tables", path="status")
    moved = migration_from(before, model, lost_nodes, source).moved_bytes_of_tables(after.tables)
    old = {table.name: table for table in before.tables}
    new = {table.name: table for table in after.tables}
    moved_of = dict(zip(new, moved.tolist(), strict=True))
    return [
        {
            "table": name,
            "before": _form(old.get(name)),
            "after": _form(new.get(name)),
            "moved_bytes": round(moved_of[name]) if name in new else None,
        }
        for name in old | new
        if _placement(old.get(name)) != _placement(new.get(name))
    ]


def restarted(before: Plan, after: Plan) -> list[str]:
    """Tables that one plan replicates and the other cuts or places: a trainer's checkpoint holds them otherwise."""
    replicated = {table.name: table.sharding == SHARDINGS[DATA_PARALLEL] for table in before.tables}
    return [
        table.name
        for table in after.tables
        if replicated.get(table.name, table.sharding == SHARDINGS[DATA_PARALLEL])
        != (table.sharding == SHARDINGS[DATA_PARALLEL])
    ]


def _placement(table: TablePlan | None) -> TablePlan | None:
    """How a table is held, but for which of its rows an id has, and for the bytes that a cost model counts."""
    if table is None:
        return None
    shards = replace(table.shards, bytes=np.zeros_like(table.shards.bytes))
    return table.model_copy(update={"remap": None, "shards": shards})


def _form(table: TablePlan | None) -> str:
    """How a table is held, in one cell."""
    if table is None:
        return "none"
    state = "" if table.optimizer_state == "with_table" else f" (state in {table.optimizer_state})"
    shards = "shard" if len(table.shards) == 1 else "shards"
    return f"{table.sharding} in {table.tier}{state}, {len(table.shards):,} {shards}"
