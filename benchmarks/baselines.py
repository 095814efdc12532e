"""Sharding algorithms to compare with: NeuroShard's, and the greedy ones that it compares itself with.

Written anew from the description in Zha et al., "Pre-train and Search" (MLSys 2023, arXiv:2305.01868), and the
behaviour of its published code (github.com/daochenzha/neuroshard). All of them put whole tables, or blocks of columns,
on single ranks in HBM; they see costs and bytes through the cost model that also judges them.

* `random`: every table on any rank, whatever its memory.
* `size`, `dim`, `lookup`, `size_lookup`: the largest table first, to the rank with the least so far among those with
  room. A table counts its bytes, its dimension, dimension x pooling factor, or that x log10 of its rows.
* `neuroshard`: a beam search over column-wise splits. Each step halves one of the tables that are largest or cost most;
  each candidate is placed by a greedy grid search: by lookup cost, with the columns of a rank limited to 1 to 1.5
  times the mean, in eleven steps. What differs: the costs are those of the cost model instead of neural networks
  trained on measurements, a placement is judged by the objective instead of the slowest rank's sum, and no block is
  narrower than our planner makes them (8 columns instead of 4: worth at most 0.1 %), so that its bound holds for all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.model import CostModel
from cost_models.resources import DEVICE
from cost_models.shards import COLUMN_WISE, HBM, MEMORY_HBM, TABLE_WISE, Blocks, Floats, Ints, PlacedShards
from planner.formulation.option_space import NARROWEST_OF_FEW

BEAM, CANDIDATES, STEPS = 3, 10, 10
"""Plans kept; tables tried by size, and by cost, in each step; splits of one plan at most: NeuroShard's k, n, l."""
GRID = np.linspace(1.0, 1.5, 11)
"""Most columns of a rank, in means over the ranks: NeuroShard's m."""

Baseline = Callable[[CostModel, np.random.Generator], PlacedShards | None]
"""A placement of every table, whether or not it fits; None where the algorithm finds none."""


@dataclass(frozen=True)
class _Pieces:
    """The tables of a model, whole and halved h times, as blocks of single ranks. H + 1 is the number of cuts."""

    model: CostModel

    def __post_init__(self) -> None:
        if self.model.kind_count > 1:
            raise ValueError("the baselines know one kind of rank; the cluster has more")

    @cached_property
    def halvings(self) -> Ints:
        """[T] how often each table can be halved; never where the parts of a table are tied to each other."""
        times = np.zeros(len(self.model.tables.dim), dtype=np.int64)
        columns = np.where(COLUMN_WISE in self.model.node_colocated_shardings, 0, self.model.tables.dim)
        while (even := (columns % (2 * NARROWEST_OF_FEW) == 0) & (columns > 0)).any():
            times += even
            columns = np.where(even, columns // 2, 0)
        return times

    def columns(self, table: Ints, halved: Ints) -> Ints:
        """Columns of a table halved so often; shape of the arguments."""
        return np.asarray(self.model.tables.dim[table] >> halved)

    def blocks(self, table: Ints, halved: Ints) -> Blocks:
        """Blocks [n] in HBM."""
        sharding = np.where(halved > 0, COLUMN_WISE, TABLE_WISE)
        tier, uncached = np.full(len(table), HBM), np.zeros(len(table))
        return Blocks(table, sharding, tier, self.columns(table, halved), uncached)

    @cached_property
    def _costs(self) -> tuple[Floats, Floats, Floats]:
        """Load [T, H + 1, C] on the rank, load [T, H + 1, C] on every rank, HBM bytes [T, H + 1]."""
        tables, times = len(self.halvings), int(self.halvings.max()) + 1
        halved = np.minimum(np.arange(times), self.halvings[:, None]).ravel()
        costs = self.model.block_costs(self.blocks(np.repeat(np.arange(tables), times), halved), 0)
        size = (costs.bytes_fixed + costs.bytes_by_rows)[:, MEMORY_HBM]
        shape = (tables, times, -1)
        return (
            (costs.fixed + costs.by_rows).reshape(shape),
            costs.everywhere.reshape(shape),
            size.reshape(tables, times),
        )

    def size(self, table: Ints, halved: Ints) -> Floats:
        """HBM bytes; shape of the arguments."""
        return self._costs[2][table, halved]

    def lookup_seconds(self, table: Ints, halved: Ints) -> Floats:
        """Time on the rank's own device, forward and backward; shape of the arguments."""
        device = [c for c, column in enumerate(self.model.columns) if column.resource == DEVICE]
        return np.asarray(self._costs[0][:, :, device].sum(axis=2)[table, halved])

    @cached_property
    def free(self) -> Floats:
        """[W] bytes of HBM that tables may take."""
        return self.model.memory_capacity[MEMORY_HBM] - self.model.base_bytes[MEMORY_HBM]

    def objective(self, table: Ints, halved: Ints, rank: Ints) -> Floats:
        """[R] of R complete placements [R, P]."""
        model, world = self.model, len(self.free)
        own, everywhere, _ = self._costs
        plan = np.arange(len(table))[:, None]
        seconds = np.zeros((len(table), len(model.stages)))
        for c, column in enumerate(model.columns):
            load = own[table, halved, c]
            on_rank = np.bincount((plan * world + rank).ravel(), weights=load.ravel(), minlength=len(table) * world)
            on_rank = on_rank.reshape(len(table), world) + everywhere[table, halved, c].sum(axis=1)[:, None]
            on_rank += model.base_loads[0, c]
            instance = model.resource_of_rank(column.resource)
            shared = np.add.reduceat(on_rank, np.unique(instance, return_index=True)[1], axis=1)
            seconds[:, column.stage] = np.maximum(seconds[:, column.stage], shared.max(axis=1))
        return np.asarray((seconds + model.constants).sum(axis=1))

    def placed(self, table: Ints, halved: Ints, rank: Ints) -> PlacedShards:
        """One placement [P] as shards."""
        rows = self.model.tables.rows[table]
        return PlacedShards(self.blocks(table, halved), rank, rows, np.ones(len(table), dtype=bool))


def _deal(weight: Floats, size: Floats, columns: Ints, free: Floats, most_columns: Floats) -> Ints:
    """Ranks [R, P] of the pieces of R problems: the heaviest first, to the rank with the least weight that has room.

    Among equals the rank with fewer bytes. `free` [W] bytes, `most_columns` [R] per rank; a problem that some piece
    fits nowhere in has a rank of -1. O(P) steps on arrays of [R, W].
    """
    problems, pieces = weight.shape
    every = np.arange(problems)
    order = np.lexsort((np.broadcast_to(np.arange(pieces), weight.shape), size, weight), axis=1)[:, ::-1]
    held = np.zeros((3, problems, len(free)))
    rank = np.full((problems, pieces), -1)
    for piece in order.T:
        more = np.stack([weight[every, piece], size[every, piece], columns[every, piece]])
        fits = (held[1] + more[1][:, None] <= free) & (held[2] + more[2][:, None] <= most_columns[:, None])
        load = np.where(fits, held[0], np.inf)
        lightest = load == load.min(axis=1, keepdims=True)
        chosen = np.where(lightest & fits, held[1], np.inf).argmin(axis=1)
        rank[every, piece] = np.where(fits.any(axis=1), chosen, -1)
        held[:, every, chosen] += more
    return rank


def random_ranks(model: CostModel, random: np.random.Generator) -> PlacedShards:
    """Every table whole, on any rank."""
    pieces, tables = _Pieces(model), len(model.tables.rows)
    rank = random.integers(len(model.kind_of_rank), size=tables)
    return pieces.placed(np.arange(tables), np.zeros(tables, dtype=np.int64), rank)


def _greedy(weight_of: Callable[[_Pieces], Floats]) -> Baseline:
    def place(model: CostModel, random: np.random.Generator) -> PlacedShards | None:  # noqa: ARG001
        pieces = _Pieces(model)
        table, whole = np.arange(len(model.tables.rows)), np.zeros(len(model.tables.rows), dtype=np.int64)
        size, columns = pieces.size(table, whole)[None], pieces.columns(table, whole)[None]
        rank = _deal(weight_of(pieces)[None].astype(float), size, columns, pieces.free, np.array([np.inf]))[0]
        return None if (rank < 0).any() else pieces.placed(table, whole, rank)

    return place


def _lookups(pieces: _Pieces) -> Floats:
    return pieces.model.tables.dim * np.array([table.pooling_factor for table in pieces.model.workload.tables])


def neuroshard(model: CostModel, random: np.random.Generator) -> PlacedShards | None:  # noqa: ARG001
    """NeuroShard's search on the costs of a model."""
    pieces, tables = _Pieces(model), len(model.tables.rows)
    table, halved = np.arange(tables)[None], np.zeros((1, tables), dtype=np.int64)
    rank, cost = _grid_search(pieces, table, halved)
    best = (cost[0], table[0], halved[0], rank[0])
    for _ in range(STEPS):
        table, halved = _halve_each(pieces, table, halved)
        if not len(table):
            break
        rank, cost = _grid_search(pieces, table, halved)
        order = np.argsort(cost, kind="stable")[:BEAM]
        table, halved = table[order], halved[order]
        if cost[order[0]] < best[0]:
            best = (cost[order[0]], table[0], halved[0], rank[order[0]])
    return None if np.isinf(best[0]) else pieces.placed(*best[1:])


def _halve_each(pieces: _Pieces, table: Ints, halved: Ints) -> tuple[Ints, Ints]:
    """From plans [R, P], every plan [R', P + 1] with one of their largest or costliest pieces halved."""
    size, seconds = pieces.size(table, halved), pieces.lookup_seconds(table, halved)
    tables, cuts = [], []
    for r in range(len(table)):
        top = [np.argsort(-values[r], kind="stable")[:CANDIDATES] for values in (size, seconds)]
        for piece in np.union1d(*top).tolist():
            if halved[r, piece] < pieces.halvings[table[r, piece]]:
                cut = np.append(halved[r], halved[r, piece] + 1)
                cut[piece] += 1
                tables.append(np.append(table[r], table[r, piece]))
                cuts.append(cut)
    pieces_each = table.shape[1] + 1
    empty = np.zeros((0, pieces_each), dtype=np.int64)
    return (np.stack(tables), np.stack(cuts)) if tables else (empty, empty)


def _grid_search(pieces: _Pieces, table: Ints, halved: Ints) -> tuple[Ints, Floats]:
    """The best of the greedy placements of each plan [R, P] on the grid: ranks [R, P] and objective [R].

    The objective is infinite where none of them fits.
    """
    plans, steps = len(table), len(GRID)
    columns = pieces.columns(table, halved)
    limit = (columns.sum(axis=1)[:, None] / len(pieces.free) * GRID).ravel()
    weight, size, columns, table, halved = (
        np.repeat(values, steps, axis=0)
        for values in (pieces.lookup_seconds(table, halved), pieces.size(table, halved), columns, table, halved)
    )
    rank = _deal(weight, size, columns, pieces.free, limit)
    cost = np.full(plans * steps, np.inf)
    placed = np.flatnonzero((rank >= 0).all(axis=1))
    cost[placed] = pieces.objective(table[placed], halved[placed], rank[placed])
    best = cost.reshape(plans, steps).argmin(axis=1) + np.arange(plans) * steps
    return rank[best], cost[best]


BASELINES: dict[str, Baseline] = {
    "random": random_ranks,
    "size": _greedy(lambda pieces: pieces.size(np.arange(len(pieces.halvings)), np.zeros_like(pieces.halvings))),
    "dim": _greedy(lambda pieces: pieces.model.tables.dim.astype(float)),
    "lookup": _greedy(_lookups),
    "size_lookup": _greedy(lambda pieces: _lookups(pieces) * np.log10(pieces.model.tables.rows)),
    "neuroshard": neuroshard,
}
