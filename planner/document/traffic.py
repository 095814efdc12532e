"""The bytes that move when a new plan follows an old one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.shards import DATA_PARALLEL, MEMORY_TIERS, SHARDINGS, Floats, Ints
from cost_models.workload.formats import DTYPES
from planner.document.migration import PART_KEYS, Migration, parts_of, plan_fingerprint
from planner.document.moves import FormerPlan, Moves, RankTraffic
from planner.document.plan import TablePlan
from planner.document.shards import TierBytes
from planner.problem.numbers import Bools
from planner.problem.relocation import Rectangles, existing_cells, kept_cells
from planner.problem.rounding import ROUNDING


def moves_of(
    migration: Migration,
    tables: Sequence[TablePlan],
    least_bytes: float,
    limit_bytes: int | None,
    pay_back_steps: int | None,
    found_bytes: float | None = None,
) -> Moves:
    """What moves when the new `tables` follow the old plan; of no tables, the terms and what was found alone."""
    former = FormerPlan(
        fingerprint=plan_fingerprint(migration.old),
        step_s=None if migration.old.objective is None else migration.old.objective.step_s,
        lost_nodes=migration.lost_nodes,
    )
    least = int(least_bytes * (1 - ROUNDING))
    if not tables:
        nothing = TierBytes.of(MEMORY_TIERS, (0,) * len(MEMORY_TIERS))
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
    traffic = _traffic(migration, tables)
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


def moved_bytes_of_tables(migration: Migration, tables: Sequence[TablePlan]) -> Floats:
    """[T] bytes that move into the ranks of each table, all memories together."""
    traffic = _traffic(migration, tables)
    moved = traffic.moved.sum(axis=0)
    return np.asarray(np.bincount(traffic.parts.table, weights=moved, minlength=len(tables)), dtype=float)


def _traffic(migration: Migration, tables: Sequence[TablePlan]) -> "_Traffic":
    world, of = len(migration.model.kind_of_rank), migration.model.tables
    own, rank = parts_of(enumerate(tables))
    parts = Rectangles(own.table, rank, *(getattr(own, name) for name in PART_KEYS))
    kept, *same = kept_cells(parts, migration.rectangles, world)
    existing = existing_cells(parts, migration.rows_before)
    dtype = np.array([DTYPES.index(table.dtype) for table in tables])[parts.table]
    row, state = of.row_bytes(parts.table, parts.columns, dtype), of.row_state_bytes(parts.table, parts.columns)
    cell_bytes = np.stack([row, state]) / parts.columns
    moved = (existing - kept) * cell_bytes
    sent, lost = _sent(migration, tables, parts, existing - kept, kept, moved.sum(axis=0))
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
    migration: Migration,
    tables: Sequence[TablePlan],
    parts: Rectangles,
    moved_cells: Floats,
    kept: Floats,
    moved: Floats,
) -> tuple[Floats, float]:
    """Bytes [ranks before] that each rank of the old plan gives to others, and those that no rank has any more.

    Each cell comes from the rank that held it; of a replicated table, from all that are left in equal parts.
    """
    count, world, before = len(tables), len(migration.model.kind_of_rank), migration.topology_before.world_size
    former, ranks = migration.all_rectangles
    places, at = np.unique(former.table * before + ranks, return_inverse=True)
    table, rank = np.divmod(places, before)
    last_row = np.minimum(former.row_start + former.rows, migration.model.tables.rows[former.table])
    cells = np.maximum(last_row - former.row_start, 0) * former.columns
    copies = np.array([world if new.sharding == SHARDINGS[DATA_PARALLEL] else 1 for new in tables])
    stays = _at_places(parts, kept, table, migration.rank_after[rank], world)
    given = np.bincount(at, weights=cells, minlength=len(places)) * copies[table] - stays
    is_left = migration.rank_after[rank] >= 0
    holders = np.bincount(table, weights=is_left, minlength=count)[table]
    sources = np.where(holders > 0, holders, np.bincount(table, minlength=count)[table])
    cells_moved = np.bincount(parts.table, weights=moved_cells, minlength=count)
    evenly = np.where(is_left | (holders == 0), cells_moved[table] / sources, 0.0)
    mean = np.bincount(parts.table, weights=moved, minlength=count) / np.maximum(cells_moved, 1.0)
    size = np.where(migration.replicated[table], evenly, given) * mean[table]
    sent = np.bincount(rank, weights=np.where(is_left, size, 0.0), minlength=before)
    return sent.astype(float), float(size[~is_left].sum())


@dataclass(frozen=True)
class _Traffic:
    """Bytes of each of the new parts [rows and optimizer state, n], and of ranks: received [W], sent [ranks before]."""

    parts: Rectangles
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


def _at_places(parts: Rectangles, cells: Floats, table: Ints, rank: Ints, world: int) -> Floats:
    """[n] cells of the parts that are of a `table` and on a `rank` [n]; 0 for rank -1."""
    places, which = np.unique(parts.table * world + parts.rank, return_inverse=True)
    total = np.bincount(which, weights=cells)
    wanted = table * world + rank
    at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
    return np.where((rank >= 0) & (places[at] == wanted), total[at], 0.0)


def _busiest(size: Floats) -> RankTraffic | None:
    return RankTraffic(rank=int(size.argmax()), bytes=round(float(size.max()))) if size.any() else None
