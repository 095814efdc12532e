"""How much longer a step takes as the hottest rows of tables that are cut by rows are on some ranks and not on others.

Loads deal the ids of a table to its rows evenly. A row that gets more of them is with one rank, which reads it again
and again: its device, and the port over which its ids come, have more to do than those of other ranks. Which rank that
is, nobody chose: rows are numbered, or hashed, whatever their heat. So the hottest rows are put at random places, some
times over; the mean of the steps that come of it is what is expected. It is no sum over tables, so that it stands
beside the step and its bound.
"""

import math

import numpy as np
from numpy.typing import NDArray

from cost_models.model import CostModel
from cost_models.shards import DATA_PARALLEL, Floats, Ints, PlacedShards
from cost_models.tables import Tables

Flags = NDArray[np.bool_]

HOTTEST = 256
"""Rows of a table that are put somewhere one by one; of the others every shard has its share."""
DRAWS = 32
"""Times that the rows of all tables are put somewhere."""
NOTICED = 1e-6
"""Share of the step below which what the hottest row of a table takes is left out."""


def hot_rows_s(model: CostModel, placed: PlacedShards) -> float:
    """Seconds by which the step of a placement is expected to be longer than its loads say; 0 where no table that is
    cut by rows has rows hotter than others.

    Groups of ranks each have places of their own, and all wait for the slowest: of G groups it is the expected maximum
    of G of the steps drawn.
    """
    is_cut = (placed.blocks.sharding != DATA_PARALLEL) & (placed.rows < model.tables.rows[placed.blocks.table])
    if not is_cut.any():
        return 0.0
    model = model.linearised_at(placed)
    load, stored = model.rank_loads(placed)
    even_s = model.evaluate_loads(load, stored).step_s
    columns, more = _drawn_loads(model, placed, is_cut, NOTICED * even_s)
    if not len(columns):
        return 0.0
    steps = np.empty(DRAWS)
    for draw, of_draw in enumerate(more):
        drawn = load.copy()
        drawn[:, columns] += of_draw
        steps[draw] = model.evaluate_loads(drawn, stored).step_s
    groups = 1 if model.replicas is None else model.replicas.factor
    slowest = np.diff((np.arange(DRAWS + 1) / DRAWS) ** groups)  # chance that a step is, by its place in their order
    return max(math.fsum(np.sort(steps) * slowest) - even_s, 0.0)


def _drawn_loads(model: CostModel, placed: PlacedShards, is_cut: Flags, noticed_s: float) -> tuple[Ints, Floats]:
    """The columns in which loads depend on where hot rows are, and [DRAWS, W, columns] the seconds that each rank
    brings beyond those of rows dealt evenly; no columns where all are."""
    distinct, which = placed.blocks.distinct
    costs = np.stack([model.repeat_costs(distinct, k).by_rows for k in range(model.kind_count)])  # [K, blocks, C]
    columns = np.flatnonzero(costs.any(axis=(0, 1)))
    more = np.zeros((DRAWS, len(model.kind_of_rank), len(columns)))
    costs, opens = costs[:, :, columns], np.flatnonzero(placed.opens_block)
    ends = np.append(opens[1:], len(is_cut))
    heat = _heat(model.tables, distinct.table)
    is_noticed = is_cut[opens] & (heat[which[opens], 0] * costs.max(axis=(0, 2), initial=0.0)[which[opens]] > noticed_s)
    for start, end in zip(opens[is_noticed].tolist(), ends[is_noticed].tolist(), strict=True):
        block, rank, rows = which[start], placed.rank[start:end], placed.rows[start:end]
        beyond = _drawn_shares(heat[block], rows, seed=int(distinct.table[block]))
        seconds = costs[model.kind_of_rank[rank], block]
        for shard, of_rank in enumerate(rank.tolist()):
            more[:, of_rank] += beyond[:, shard, None] * seconds[shard]
    return (columns if is_noticed.any() else columns[:0]), more


def _heat(tables: Tables, table: Ints) -> Floats:
    """[n, HOTTEST] the share of its ids that each of the hottest rows of a table gets beyond what the others do."""
    rows = tables.rows[table][:, None].astype(float)
    up_to = np.minimum(np.arange(HOTTEST + 1), rows)
    share = tables.access.hit_rate(table[:, None], up_to / rows)
    others = (1 - share[:, -1:]) / np.maximum(rows - up_to[:, -1:], 1.0)
    others = np.where(rows > HOTTEST, others, 1 / rows)
    return np.where(np.diff(up_to) > 0, np.diff(share) - others, 0.0)


def _drawn_shares(heat: Floats, rows: Ints, seed: int) -> Floats:
    """[DRAWS, shards] the share of the ids of a table that each shard of a block, of so many `rows` [shards], gets
    beyond theirs; hot rows are at the same places of all blocks of a table."""
    shards, whole = len(rows), int(rows.sum())
    heat = heat[: min(whole, HOTTEST)]
    place = np.random.default_rng(seed).random((DRAWS, len(heat)))
    if whole <= HOTTEST:  # all rows: each at a place of its own
        place = (np.argsort(place, axis=1) + 0.5) / whole
    ends = np.cumsum(rows)[:-1] / whole
    shard = np.searchsorted(ends, place, side="right") + shards * np.arange(DRAWS)[:, None]
    hot = np.bincount(shard.ravel(), np.tile(heat, DRAWS), DRAWS * shards).reshape(DRAWS, shards)
    return np.asarray(hot - heat.sum() * rows / whole)
