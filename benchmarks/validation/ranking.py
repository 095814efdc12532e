"""Whether estimate and simulator order plans alike, and whether the solver's plan stands against its neighbours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.shards import (
    COLUMN_WISE,
    DATA_PARALLEL,
    EXTENT_OF_SHARDING,
    EXTENTS,
    GRID_SHARD,
    HBM,
    NODE,
    RANK,
    SHARDING_ROWS,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    TABLE_WISE,
    USUAL_SHARDINGS,
    Blocks,
    Ints,
    PlacedShards,
    block_rows,
)
from cost_models.simulator.simulation import simulate
from cost_models.workload.loading import load_workload
from planner.document.planned import placed_shards, planned_inputs
from planner.planning import planning as api
from topologies.loading import load_topology

WORKLOADS = (
    ("zionex-16", "dlrm-dcnv2"),
    ("dgx-h100", "dlrm-v1"),
    ("dgx-a100-80", "criteo-terabyte-10m"),
    ("dgx1-v100", "fbgemm-013"),
    ("zionex-16", "synthetic:100"),
)
PLANS = 40
"""Random plans of each workload: 200 in all."""
NEIGHBOURS = 200
CUT = 2
"""Blocks of the shardings that cut columns."""


@dataclass(frozen=True)
class Ranking:
    """Random plans of one workload."""

    topology: str
    workload: str
    plans: int
    steps_s: list[tuple[float, float]]
    """Of each plan, estimated and simulated."""

    @property
    def tau(self) -> float:
        """Kendall's, between estimate and simulation."""
        return kendall_tau(self.steps_s)


@dataclass(frozen=True)
class Stand:
    """A plan of the solver beside plans in which one or two shards are elsewhere."""

    topology: str
    workload: str
    neighbours: int
    ratio: float
    """Its simulated step over the best neighbour's."""


def random_shards(model: CostModel, random: np.random.Generator, shardings: tuple[int, ...]) -> PlacedShards:
    """Every table cut in some way, its blocks on some ranks; in HBM. Rows over several nodes or ranks: where there are
    three."""
    parts: list[tuple[int, int, int, int, int, bool]] = []  # table, sharding, columns, rank, rows, opens
    nodes = int(model.host_of_rank.max()) + 1
    node_of_rank = model.host_of_rank
    sites = {
        number: EXTENTS[row.extent].site_of_rank(node_of_rank)
        for number, row in enumerate(SHARDING_ROWS.values())
        if row.cuts_into_sites
    }
    for table, (rows, dim) in enumerate(zip(model.tables.rows.tolist(), model.tables.dim.tolist(), strict=True)):
        sharding = int(random.choice(shardings))
        extent = EXTENT_OF_SHARDING[sharding]
        count = CUT if sharding in {COLUMN_WISE, TABLE_COLUMN_WISE, GRID_SHARD} and dim % (4 * CUT) == 0 else 1
        for _ in range(count):
            if extent == RANK:
                parts.append((table, sharding, dim // count, int(random.integers(len(node_of_rank))), rows, True))
                continue
            if SHARDING_ROWS[SHARDINGS[sharding]].cuts_into_sites and sites[sharding].max() > 1:
                parts += _on_several_sites(table, sharding, rows, dim, sites[sharding], random)
                continue
            node = random.integers(nodes)
            members = np.flatnonzero((node_of_rank == node) | (extent != NODE)).tolist()
            for place, rank in enumerate(members):
                held = rows if sharding == DATA_PARALLEL else int(block_rows(rows, len(members), place))
                parts.append((table, sharding, dim // count, rank, held, place == 0))
    table_of, cut, columns, rank, held, opens = (np.array(column) for column in zip(*parts, strict=True))
    of_several = np.isin(cut, [sharding for sharding, of_rank in sites.items() if of_rank.max() > 1])
    holders = np.where(of_several, np.bincount(table_of)[table_of], 0) if of_several.any() else None
    blocks = Blocks(table_of, cut, np.full(len(parts), HBM), columns, np.zeros(len(parts)), holders=holders)
    return PlacedShards(blocks, rank, held, opens.astype(bool))


def _on_several_sites(
    table: int, sharding: int, rows: int, dim: int, site_of_rank: Ints, random: np.random.Generator
) -> list[tuple[int, int, int, int, int, bool]]:
    """The shards of a table whose rows are on some nodes, or ranks, two at least and not all, in any order."""
    count = int(random.integers(2, int(site_of_rank.max()) + 1))
    shards = []
    for number, site in enumerate(random.permutation(int(site_of_rank.max()) + 1)[:count].tolist()):
        members, part = np.flatnonzero(site_of_rank == site).tolist(), int(block_rows(rows, count, number))
        for place, rank in enumerate(members):
            held = int(block_rows(part, len(members), place))
            shards.append((table, sharding, dim, rank, held, number == place == 0))
    return shards


def fits(model: CostModel, placed: PlacedShards) -> bool:
    """Whether no rank holds more than its HBM."""
    return bool((model.evaluate(placed).rank_bytes[:, 0] <= model.memory_capacity[0]).all())


def feasible_plans(model: CostModel, count: int, seed: int) -> Iterator[PlacedShards]:
    """Random ones; raises ValueError where hardly any fits."""
    random = np.random.default_rng(seed)
    shardings = tuple(i for i in range(len(USUAL_SHARDINGS)) if i != DATA_PARALLEL)
    found = 0
    for _ in range(100 * count):
        placed = random_shards(model, random, shardings)
        if fits(model, placed):
            found += 1
            yield placed
        if found == count:
            return
    raise ValueError(f"{model.workload.name} on {model.topology.name}: {found} of {count} random plans fit")


def kendall_tau(pairs: Sequence[tuple[float, float]]) -> float:
    """1 where both figures order the pairs alike, -1 where they order them in reverse."""
    from scipy.stats import kendalltau

    return float(kendalltau(*zip(*pairs, strict=True)).statistic)


def ranking(topology: str, workload: str, plans: int = PLANS, seed: int = 0) -> Ranking:
    """Random feasible plans, estimated and played."""
    model = cost_model("physical", load_topology(topology), load_workload(workload))
    pairs = [
        (model.evaluate(placed).step_s, simulate(model.topology, model.workload, placed, steps=1).step_s)
        for placed in feasible_plans(model, plans, seed)
    ]
    return Ranking(topology, workload, plans, pairs)


def stand(topology: str, workload: str, neighbours: int = NEIGHBOURS, seed: int = 0) -> Stand:
    """The solver's plan against the best of random neighbours that fit."""
    plan = api.plan(topology, workload)
    inputs, placed = planned_inputs(plan), placed_shards(plan)
    model = cost_model("physical", *inputs)
    own = simulate(*inputs, placed, steps=1).step_s
    random, best = np.random.default_rng(seed), np.inf
    movable = np.flatnonzero(np.isin(placed.blocks.sharding, (TABLE_WISE, COLUMN_WISE)))
    tried = 0
    while tried < neighbours and len(movable):
        rank = placed.rank.copy()
        chosen = random.choice(movable, size=min(len(movable), int(random.integers(1, 3))), replace=False)
        rank[chosen] = random.integers(0, model.topology.world_size, len(chosen))
        neighbour = replace(placed, rank=rank)
        if fits(model, neighbour):
            tried += 1
            best = min(best, simulate(*inputs, neighbour, steps=1).step_s)
    return Stand(topology, workload, tried, own / best if tried else 1.0)
