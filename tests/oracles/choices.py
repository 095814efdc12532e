"""Every way that a document may hold one table, with what each adds to the loads and memories of a cluster.

Seconds and bytes are the cost model's, block by block; how blocks may lie is `document_rules` and `covers`. R entries
of a load: the instances of the resources of each column, stage by stage, then the pools of each memory.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import COLUMN_WISE, MEMORY_TIERS, PLACEMENT_TIERS, SHARDINGS, STATE_PLACES, Blocks, Floats, Ints
from cost_models.workload.formats import DTYPES
from planner.document.plan import Remap, TablePlan
from planner.document.shards import Shards
from tests.oracles import covers
from tests.oracles.covers import Covers
from tests.oracles.document_rules import Rules, TableRules
from tests.oracles.tilings import tilings

MOST_KEPT = 4000
"""Choices of a table that are kept; of more, the shortest by themselves and some at random."""
WHOLE_WORLD = ("data_parallel", "row_wise")
SEVERAL_NODES, SEVERAL_RANKS = SEVERAL = ("multi_node_row_wise", "multi_rank_row_wise")
WHOLE_NODE = ("table_row_wise", "grid_shard", SEVERAL_NODES)


@dataclass(frozen=True)
class Variant:
    """A sharding with its tier, cache fraction, format and place of the state."""

    sharding: str
    tier: str
    fraction: float
    dtype: str
    state: str


@dataclass(frozen=True)
class Family:
    """The choices of one variant, and what each block of them adds."""

    variant: Variant
    unit: int
    """Columns of a unit of width."""
    widths: tuple[int, ...]
    pieces: Floats
    """[widths, places, R]"""
    supported: np.ndarray
    """[widths, places]"""
    nodes: int = 1
    """Or ranks, over which the rows of a block are cut: then its parts take the place of widths, the last one apart."""


@dataclass(frozen=True)
class TableChoices:
    """n choices of one table."""

    families: tuple[Family, ...]
    family: Ints
    """[n]"""
    counts: tuple[Ints, ...]
    """n times [widths, places] blocks of each width on each place."""
    load: Floats
    """[n, R]"""
    ranks: Ints
    """[n] a bit for each rank that holds a shard."""
    complete: bool


class Cluster:
    """How loads of blocks add up to a step, and whether they fit."""

    def __init__(self, model: CostModel, rules: Rules) -> None:
        self.model, self.rules = model, rules
        self.world = len(model.kind_of_rank)
        self.nodes = [np.flatnonzero(model.node_of_rank == n).tolist() for n in np.unique(model.node_of_rank)]
        self.order = sorted(range(len(model.columns)), key=lambda c: model.columns[c].stage)
        self.at = np.zeros((len(model.columns), self.world), dtype=np.int64)
        self.pool_at = np.zeros((len(model.memories), self.world), dtype=np.int64)
        first, starts, stages = 0, [], []
        for c in self.order:
            instance = np.asarray(model.resource_of_rank(model.columns[c].resource))
            self.at[c] = first + instance
            if not stages or stages[-1] != model.columns[c].stage:
                starts.append(first)
                stages.append(model.columns[c].stage)
            first += int(instance.max()) + 1
        self.seconds = first
        self.stage_starts, self.constant_s = np.array(starts), float(np.sum(model.constants))
        self.floor_s = 0.0 if model.floor is None else float(np.max(model.floor.seconds))
        for m, pool in enumerate(model.memory_pool_of_rank):
            self.pool_at[m] = first + pool
            first += len(rules.capacity[m])
        self.size = first
        self.capacity = np.concatenate(rules.capacity)
        self.base = np.zeros(first)
        for rank in range(self.world):
            np.add.at(self.base, self.at[:, rank], model.base_loads[model.kind_of_rank[rank]])
            np.add.at(self.base, self.pool_at[:, rank], model.base_bytes)

    def step_s(self, load: Floats) -> Floats:
        """[n] of loads [n, R] that hold everything; no step is shorter than what goes on beside it."""
        longest = np.maximum.reduceat(load[:, : self.seconds], self.stage_starts, axis=1)
        return np.maximum(np.maximum(longest, 0.0).sum(axis=1) + self.constant_s, self.floor_s)

    def overflow(self, load: Floats) -> Floats:
        """[n] bytes beyond the memories, in shares of each."""
        excess = np.maximum(load[:, self.seconds :] - self.capacity, 0.0)
        return np.asarray((excess / np.maximum(self.capacity, 1.0)).sum(axis=1))

    def choices(self, table: int, limit_s: float, seed: int) -> TableChoices:
        """All choices of a table that fit by themselves and alone take less than `limit_s`."""
        rules, families, parts = self.rules.tables[table], [], []
        complete = True
        for sharding, nodes in self._ways(rules):
            cover, unit = _covers(self, rules, sharding, seed, nodes)
            cover = self.kept(cover, rules, sharding)
            for family in self._families(table, sharding, unit, cover, nodes) if len(cover.counts) else ():
                own = cover
                if self._is_free(sharding) and not cover.complete and limit_s < np.inf:
                    own = self._all_within(family, rules, cover, limit_s)
                load = self._load(family, own)
                index = np.flatnonzero(self._is_within(load, limit_s) & self._is_legal(table, family, own))
                parts.append((len(families), own.counts[index], load[index]))
                families.append(family)
                complete &= own.complete
        return self._joined(families, parts, complete, seed)

    def _ways(self, rules: TableRules) -> list[tuple[str, int]]:
        """Shardings of a table, and over how many nodes, or ranks of the only node or domain, they cut its rows,
        where that is open."""
        equal = len({len(ranks) for ranks in self.nodes}) == 1 and self.model.name == "physical"
        ways = {sharding: [1] for sharding in rules.shardings}
        ways[SEVERAL_NODES] = _numbers_of_parts(len(self.nodes)) if equal else []
        group = self.model.topology.nodes[0]
        domain = group.links.scale_up.domain if group.links.scale_up else None
        is_near = len(self.nodes) == 1 or (len(self.model.topology.nodes) == 1 and (domain or 0) >= self.world)
        ways[SEVERAL_RANKS] = _numbers_of_parts(self.world) if self.model.name == "physical" and is_near else []
        return [(sharding, n) for sharding in rules.shardings for n in ways[sharding]]

    def _is_free(self, sharding: str) -> bool:
        """Whether its blocks may be on any ranks, in any widths."""
        return sharding == "column_wise" and COLUMN_WISE not in self.model.node_colocated_shardings

    def _is_within(self, load: Floats, limit_s: float) -> np.ndarray:
        """[n] whether loads [n, R] fit and take less than a limit, alone in the cluster."""
        alone = self.base + load
        return np.asarray((self.overflow(alone) <= 0) & (self.step_s(alone) < limit_s))

    def _all_within(self, family: Family, rules: TableRules, drawn: Covers, limit_s: float) -> Covers:
        """All covers within a limit on blocks of single ranks, or else those drawn."""

        def is_within(load: Floats) -> np.ndarray:
            return self._is_within(load, limit_s)

        found = tilings(family.pieces, family.supported, rules.ranks, rules.max_shards, is_within)
        if found is None:
            return drawn
        return self.kept(Covers(drawn.widths, found, complete=True), rules, "column_wise")

    def kept(self, cover: Covers, rules: TableRules, sharding: str) -> Covers:
        """Those of the covers of a table that are looked at: all, or the plain ones."""
        return _plain(cover, rules, sharding) if self.rules.plain else cover

    def _joined(
        self, families: list[Family], parts: list[tuple[int, Ints, Floats]], complete: bool, seed: int
    ) -> TableChoices:
        number = np.repeat([n for n, _, _ in parts], [len(load) for _, _, load in parts]).astype(np.int64)
        counts = [of for _, some, _ in parts for of in some]
        load = np.concatenate([load for _, _, load in parts]) if parts else np.zeros((0, self.size))
        if len(load) > MOST_KEPT:
            order = np.argsort(self.step_s(self.base + load), kind="stable")
            rest = np.random.default_rng(seed).permutation(order[MOST_KEPT // 2 :])[: MOST_KEPT // 2]
            chosen = np.concatenate([order[: MOST_KEPT // 2], rest])
            number, load, counts, complete = number[chosen], load[chosen], [counts[i] for i in chosen.tolist()], False
        ranks = [self.ranks_of(families[n].variant.sharding, of) for n, of in zip(number.tolist(), counts, strict=True)]
        return TableChoices(tuple(families), number, tuple(counts), load, np.array(ranks, dtype=np.int64), complete)

    def ranks_of(self, sharding: str, counts: Ints) -> int:
        """A bit for each rank that has a shard."""
        if sharding in WHOLE_WORLD:
            return (1 << self.world) - 1
        places = np.flatnonzero(counts.sum(axis=0)).tolist()
        ranks = places if sharding not in WHOLE_NODE else [rank for node in places for rank in self.nodes[node]]
        return sum(1 << rank for rank in ranks)

    def place_of(self, sharding: str, rank: int) -> int:
        """The place that a rank belongs to."""
        return next(number for number, ranks in enumerate(self._places(sharding)) if rank in ranks)

    def _places(self, sharding: str) -> list[list[int]]:
        """The ranks of each place."""
        if sharding in WHOLE_WORLD:
            return [list(range(self.world))]
        return self.nodes if sharding in WHOLE_NODE else [[rank] for rank in range(self.world)]

    def _families(self, table: int, sharding: str, unit: int, cover: Covers, nodes: int) -> list[Family]:
        """What the blocks of each variant add, on each place."""
        variants = self.rules.tables[table].variants
        if sharding == "data_parallel":
            variants = tuple(variant for variant in variants if variant[0] == "hbm")  # replicas are held in HBM
        n = len(variants) * len(cover.widths)
        each = len(cover.widths)
        tiers, fractions, dtypes, states = (
            (np.repeat(values, each) for values in zip(*variants, strict=True)) if n else ([],) * 4
        )
        if not n:
            return []
        blocks = Blocks(
            table=np.full(n, table),
            sharding=np.full(n, SHARDINGS.index(sharding)),
            tier=np.array([PLACEMENT_TIERS.index(tier) for tier in tiers]),
            columns=np.tile(np.array(cover.widths) * unit, len(variants)),
            cache_fraction=np.array(fractions, dtype=float),
            dtype=np.array([DTYPES.index(dtype) for dtype in dtypes]),
            state=np.array([STATE_PLACES.index(state) for state in states]),
            holders=None if nodes == 1 else np.full(n, nodes * len(self._places(sharding)[0])),
        )
        costs = [self.model.block_costs(blocks, kind) for kind in range(self.model.kind_count)]
        places, rows = self._places(sharding), self.rules.tables[table].rows
        pieces = np.zeros((n, len(places), self.size))
        supported = np.ones((n, len(places)), dtype=bool)
        for rank in range(self.world):
            pieces[:, :, self.at[:, rank]] += costs[self.model.kind_of_rank[rank]].everywhere[:, None, :] / nodes
        for p, ranks in enumerate(places):
            of_part = [row_blocks(part, len(ranks), sharding) for part in _parts(rows, nodes)]
            for number, rank in enumerate(ranks):
                cost = costs[self.model.kind_of_rank[rank]]
                held = np.array([blocks[number][1] for blocks in (of_part[0], of_part[-1])[: min(nodes, 2)]])
                share = np.tile(np.resize(held, each), len(variants))[:, None] / rows
                pieces[:, p, self.at[:, rank]] += cost.fixed + cost.by_rows * share
                pieces[:, p, self.pool_at[:, rank]] += cost.bytes_fixed + cost.bytes_by_rows * share
                supported[:, p] &= cost.supported
        return [
            Family(Variant(sharding, *variant), unit, cover.widths, of_variant, has, nodes)
            for variant, of_variant, has in zip(
                variants,
                pieces.reshape(len(variants), each, len(places), self.size),
                supported.reshape(len(variants), each, len(places)),
                strict=True,
            )
        ]

    def _load(self, family: Family, cover: Covers) -> Floats:
        flat = _flat(cover.counts).astype(float)
        return np.asarray(flat @ family.pieces.reshape(flat.shape[1], -1))

    def _is_legal(self, table: int, family: Family, cover: Covers) -> np.ndarray:
        """[n] whether the hardware has what the blocks need, and the cost model knows so many blocks."""
        flat = _flat(cover.counts)
        has_all = ~(flat[:, ~family.supported.ravel()] > 0).any(axis=1)
        sharding, tier = SHARDINGS.index(family.variant.sharding), PLACEMENT_TIERS.index(family.variant.tier)
        splits = flat.sum(axis=1)
        for n in np.unique(splits).tolist():
            has_all[splits == n] &= bool(self.model.is_option(sharding, tier, n)[table])
        return np.asarray(has_all)

    def table_plan(self, table: int, family: Family, counts: Ints) -> TablePlan:
        """A choice as the document writes it; without bytes."""
        rules, variant = self.rules.tables[table], family.variant
        places = self._places(variant.sharding)
        shards, column, first = [], 0, 0
        is_cut = variant.sharding in SEVERAL
        parts = _parts(rules.rows, family.nodes)
        for w, p in np.argwhere(counts)[:: 1 if is_cut else -1].tolist():
            width, part = family.widths[w] * family.unit, parts[-1 if is_cut and w else 0]
            for _ in range(int(counts[w, p])):
                rows = row_blocks(part, len(places[p]), variant.sharding)
                shards += [
                    (rank, first + start, held, column, width)
                    for rank, (start, held) in zip(places[p], rows, strict=True)
                ]
                first, column = (first + part, 0) if is_cut else (0, column + width)
        matrix = np.array(shards, dtype=np.int64)
        hot = remap = None
        if variant.tier.endswith("_split"):
            hot_rows = int(np.ceil(rules.rows * variant.fraction))
            before = [(start * hot_rows) // rules.rows for _, start, _, _, _ in shards]
            hot = np.array([(s[1] + s[2]) * hot_rows // rules.rows - b for s, b in zip(shards, before, strict=True)])
            remap = Remap(hot_rows=hot_rows, ids="ranked")
        return TablePlan(
            name=rules.name,
            sharding=variant.sharding,
            tier=variant.tier,
            dtype=variant.dtype,
            cache_fraction=variant.fraction or None,
            optimizer_state=variant.state,
            remap=remap,
            shards=Shards(*matrix.T, np.zeros((len(matrix), len(MEMORY_TIERS)), dtype=np.int64), hot),
        )


def row_blocks(rows: int, ranks: int, sharding: str) -> list[tuple[int, int]]:
    """(first row, rows) of each rank: blocks of ceil(rows / ranks) in order, or everything on each."""
    if sharding == "data_parallel":
        return [(0, rows)] * ranks
    size = -(-rows // ranks)
    return [(min(k * size, rows), min(size, max(rows - k * size, 0))) for k in range(ranks)]


def _numbers_of_parts(sites: int) -> list[int]:
    """The powers of two and the divisors below a number of sites."""
    return [n for n in range(2, sites) if n in (2, 4, 8, 16, 32) or sites % n == 0]


def _parts(rows: int, nodes: int) -> list[int]:
    """Rows of each node over which they are cut: ceil(rows / nodes), the last one the rest."""
    return [held for _, held in row_blocks(rows, nodes, SEVERAL_NODES)]


def _covers(cluster: Cluster, rules: TableRules, sharding: str, seed: int, parts: int = 1) -> tuple[Covers, int]:
    """The covers of a table under a sharding, and the columns of a unit of their widths."""
    world, allowed = cluster.world, set(rules.ranks)
    unit = rules.step or rules.dim
    units = rules.dim // unit
    nodes = [n for n, ranks in enumerate(cluster.nodes) if allowed.issuperset(ranks)]
    none = Covers((1,), np.zeros((0, 1, 1), dtype=np.int64), True)
    if sharding in WHOLE_WORLD:
        parts = 1 if sharding == "data_parallel" else world
        is_allowed = len(allowed) == world and parts <= rules.max_shards
        return (Covers((units,), np.ones((1, 1, 1), dtype=np.int64), True) if is_allowed else none), unit
    if sharding == "table_row_wise":
        kept = [n for n in nodes if len(cluster.nodes[n]) <= rules.max_shards]
        return Covers((units,), np.eye(len(cluster.nodes), dtype=np.int64)[kept][:, None, :], True), unit
    if sharding == "table_wise":
        return Covers((units,), np.eye(world, dtype=np.int64)[sorted(allowed)][:, None, :], True), unit
    if sharding in SEVERAL:
        on, every, each = nodes, len(cluster.nodes), len(cluster.nodes[0])
        if sharding == SEVERAL_RANKS:
            on, every, each = sorted(allowed), world, 1
        is_whole = _parts(rules.rows, parts)[-1] > 0 and parts * each <= rules.max_shards
        found = covers.on_several_sites(parts, on, every) if is_whole else none.counts
        return Covers((units, units), found, True), unit
    if sharding == "grid_shard":
        sizes = [len(ranks) for ranks in cluster.nodes]
        return covers.in_grids(units, sizes, nodes, rules.max_shards), unit
    if SHARDINGS.index(sharding) in cluster.model.node_colocated_shardings:
        within = [[rank for rank in ranks if rank in allowed] for ranks in cluster.nodes]
        even = sharding == "column_wise"
        return covers.on_different_ranks(units, within, world, rules.max_shards, even=even, seed=seed), unit
    return covers.on_single_ranks(units, rules.ranks, world, rules.max_shards, seed), unit


def _plain(cover: Covers, rules: TableRules, sharding: str) -> Covers:
    """Without the covers that may be left out (see `Rules.plain`)."""
    if sharding not in ("column_wise", "table_column_wise") or not len(cover.counts):
        return cover
    has, widths = cover.counts.any(axis=2), np.array(cover.widths)
    narrowest = np.where(has, widths, widths.max()).min(axis=1)
    widest = np.where(has, widths, 0).max(axis=1)
    kept = narrowest * (rules.max_shards + 1) > rules.dim // (rules.step or rules.dim)
    if sharding == "table_column_wise" and "column_wise" not in rules.shardings:
        kept &= widest - narrowest <= 1
    return Covers(cover.widths, cover.counts[kept], cover.complete)


def _flat(counts: Ints) -> Ints:
    """[n, widths x places]"""
    return counts.reshape(len(counts), counts.shape[1] * counts.shape[2])
