"""Random tiny instances: clusters of at most 4 ranks, workloads of at most 5 tables, and problems made of them."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.shards import MEMORY_TIERS, PLACEMENT_TIERS, PlacementTier
from cost_models.workload.models import Workload
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import Options, build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from topologies.cluster import Topology
from topologies.errors import InputError

POLICIES = (
    Policy(),
    Policy(tiers=("hbm",)),
    Policy(tiers=("hbm", "ddr")),
    Policy(tiers=("ddr_cached", "ddr")),
    Policy(shardings=("table_wise", "column_wise")),
    Policy(shardings=("table_wise", "row_wise", "table_row_wise")),
    Policy(shardings=("data_parallel", "table_wise", "table_column_wise")),
    Policy(tiers=("hbm", "ddr_cached"), shardings=("table_wise", "grid_shard", "row_wise")),
)
SHAPES = (
    ((1, 2),),
    ((1, 4),),
    ((2, 1),),
    ((2, 2),),
    ((1, 1), (1, 2)),
    ((1, 3), (1, 1)),
    ((1, 2), (1, 2)),
    ((2, 1), (1, 2)),
)
"""Node groups of the clusters, each as (nodes, ranks per node)."""


def node_group(
    name: str,
    *,
    nodes: int = 1,
    ranks: int = 2,
    hbm_bytes: float = 1e9,
    hbm_bytes_per_s: float = 1.5e12,
    ddr_bytes: float | None = 10e9,
    ssd_bytes: float | None = None,
    scm_bytes: float | None = None,
    remote_bytes: float | None = None,
    ranks_per_switch: int = 1,
    cards: int | None = None,
    has_scale_up: bool = True,
    domain: int | None = None,
    nic_bytes_per_s: float = 25e9,
    cards_over_pcie: bool = True,
) -> dict[str, object]:
    """The plain data of one node group, without reserves, so that its capacities are what a plan may use."""
    host: dict[str, object] = {}
    if ddr_bytes is not None:
        host["ddr"] = {"capacity": f"{ddr_bytes:.0f}B", "bandwidth": "200GB/s"}
    if ssd_bytes is not None:
        speeds = {"read_bandwidth": "6GB/s", "write_bandwidth": "4GB/s", "iops": "1MIOPS"}
        host["ssd"] = {"capacity": f"{ssd_bytes:.0f}B", **speeds}
    if scm_bytes is not None:
        rates = {"read_bandwidth": "40GB/s", "write_bandwidth": "10GB/s", "latency": "350ns", "access_size": "256B"}
        host["scm"] = {"capacity": f"{scm_bytes:.0f}B", **rates}
    links: dict[str, object] = {
        "pcie": {
            "bandwidth": "31.5GB/s",
            "accelerators_per_switch": ranks_per_switch,
            "carries_scale_out": cards_over_pcie,
        },
        "scale_out": {"kind": "roce", "count": cards or ranks, "bandwidth": f"{nic_bytes_per_s:.0f}B/s"},
    }
    if has_scale_up:
        links["scale_up"] = {"kind": "nvlink3", "bandwidth": "300GB/s", **({"domain": domain} if domain else {})}
    remote = {}
    if remote_bytes is not None:
        card = {"kind": "ethernet", "network_bandwidth": "12.5GB/s"}
        remote["remote"] = {"count": 2, "capacity": f"{remote_bytes / 2:.0f}B", "bandwidth": "100GB/s", **card}
        links["front_end"] = {"kind": "ethernet", "count": 1, "bandwidth": "12.5GB/s"}
    return {
        "name": name,
        "count": nodes,
        "accelerators": {
            "count": ranks,
            "device": "A100-SXM4-40GB",
            "hbm": {"capacity": f"{hbm_bytes:.0f}B", "bandwidth": f"{hbm_bytes_per_s:.0f}B/s"},
            "flops": {"fp32": "19.5TFLOP/s", "tf32": "156TFLOP/s"},
        },
        "host": host,
        "links": links,
        "reserve": dict.fromkeys(MEMORY_TIERS, 0),
        **remote,
    }


def topology(
    *groups: dict[str, object], oversubscription: float = 1.0, levels: Sequence[tuple[int, float]] = ()
) -> Topology:
    """A cluster of these groups; above 1, every node has an oversubscribed switch of its own. `levels`: nodes below a
    switch and oversubscription of several, from the leaves up."""
    switches = levels or [(1, oversubscription)] * (oversubscription > 1)
    described = [
        {"name": f"l{i}", "nodes": nodes, "oversubscription": ratio} for i, (nodes, ratio) in enumerate(switches)
    ]
    return Topology.model_validate({"name": "tiny", "nodes": groups, "network": {"levels": described}})


def workload(tables: Sequence[dict[str, object]], **fields: object) -> Workload:
    """A workload of these tables; names and pooling factors are filled in."""
    filled = [{"name": f"t{i}", "pooling_factor": 10, **table} for i, table in enumerate(tables)]
    return Workload.model_validate({"name": "tiny", "global_batch": 4096, "tables": filled, **fields})


def keep_some_options(options: Options, most: int, random: np.random.Generator) -> Options:
    """A random subset of the options, and of the widths of the free ones: at most `most` options of each table.

    The first kept of each table is drawn from those in its slowest tier, which is the one most likely to fit.
    """
    kept: list[int] = []
    for table in np.unique(options.table).tolist():
        own = np.flatnonzero(options.table == table)
        roomy = own[options.tier[own] == options.tier[own].max()]
        first = int(random.choice(roomy))
        others = random.permutation(own[own != first])[: most - 1]
        kept += sorted([first, *others.tolist()])
    widths = [_some_widths(options, option, random) for option in kept]
    return select_options(options, np.array(kept), np.concatenate(widths))


def _some_widths(options: Options, option: int, random: np.random.Generator) -> np.ndarray:
    """Block types of the option: all of a fixed one; of a free one those that cut it into 2, 3, 4 or 5 equal parts.

    The whole width, and multiples of such parts, are kept where they exist; where no such part does, everything is.
    """
    types = np.flatnonzero(options.block_option == option)
    units, whole = options.block_units[types], int(options.units[option])
    parts = [n for n in (2, 3, 4, 5) if n <= whole and whole % n == 0 and whole // n in units]
    if not parts:
        return types
    part = whole // int(random.choice(parts))
    is_kept = units % part == 0
    if random.random() < 0.5:
        is_kept &= (units == part) | (units == whole)
    return types[is_kept]


def select_options(options: Options, kept: np.ndarray, blocks: np.ndarray) -> Options:
    """The options at the ascending indices `kept`, with those of their block types that are in `blocks`, ascending."""
    number = np.full(len(options.table), -1)
    number[kept] = np.arange(len(kept))
    assert (number[options.block_option[blocks]] >= 0).all()
    return Options(
        table=options.table[kept],
        tier=options.tier[kept],
        cache_fraction=options.cache_fraction[kept],
        dtype=options.dtype[kept],
        state=options.state[kept],
        units=options.units[kept],
        block_option=number[options.block_option[blocks]],
        block_sharding=options.block_sharding[blocks],
        block_columns=options.block_columns[blocks],
        block_count=options.block_count[blocks],
        block_units=options.block_units[blocks],
        choices=options.choices,
        cuts=options.cuts,
        block_usual=options.block_usual[blocks],
        block_rows=options.block_rows[blocks],
        block_holders=options.block_holders[blocks],
    )


@dataclass(frozen=True)
class Instance:
    """One planning problem with where it comes from."""

    model: CostModel
    policy: Policy
    options: Options
    problem: Problem
    description: str


@functools.cache
def confined_instance(seed: int) -> Instance:
    """A tiny instance whose policy also pins, forbids, holds together, keeps apart, limits shards or keeps memory."""
    plain, random = tiny_instance(seed), np.random.default_rng([seed, 1])
    while True:
        policy = _confining_policy(plain, random)
        model = planning_model("physical", plain.model.topology, plain.model.workload, policy)
        try:
            options = enumerate_options(model, policy)
        except InputError:
            continue  # limits that leave nothing are refused before anything is planned
        break
    some = keep_some_options(options, int(random.integers(2, 5)), random) if len(options.table) else options
    description = f"{plain.description} {policy.model_dump(exclude_defaults=True)}"
    return Instance(model, policy, some, build_problem(model, some), description)


def _confining_policy(plain: Instance, random: np.random.Generator) -> Policy:
    """A few limits at random over the instance's own policy."""
    names = [table.name for table in plain.model.workload.tables]
    world, nodes = len(plain.model.kind_of_rank), plain.model.topology.node_count
    some_ranks = random.permutation(world)[: int(random.integers(1, world + 1))].tolist()
    some_names = random.permutation(names)[: int(random.integers(1, len(names) + 1))].tolist()
    pair = random.permutation(names)[:2].tolist()
    on = str(random.choice(["rank", "node"]))
    limits: list[dict[str, object]] = [
        {"tables": [{"match": some_names, "ranks": some_ranks}]},
        {"tables": [{"match": name, "ranks": int(random.integers(world))} for name in some_names]},
        {"tables": [{"match": pair, "nodes": int(random.integers(nodes))}, {"match": some_names, "ranks": some_ranks}]},
        {"forbid_ranks": int(random.integers(world))},
        {"colocate": [{"tables": pair, "on": on}]},
        {"separate": [{"tables": some_names, "on": on}]},
        {"colocate": [{"tables": pair, "on": "node"}], "separate": [{"tables": pair, "on": "rank"}]},
        {"separate": [pair], "tables": [{"match": some_names, "ranks": some_ranks}]},
        {"max_shards": int(random.integers(1, 4)), "column_multiple": int(random.choice([4, 8, 12, 16]))},
        {"reserve": {"hbm": float(random.uniform(0, 0.3))}, "forbid_ranks": int(random.integers(world))},
        {"runtime": "torchrec", "colocate": [{"tables": some_names, "on": "node"}]},
    ]
    own = {"tiers": plain.policy.tiers, "shardings": plain.policy.shardings}
    drawn = limits[int(random.integers(len(limits)))]
    return Policy.model_validate(drawn if random.random() < 0.7 else {**own, **drawn})


@functools.cache
def tiny_instance(seed: int, objective: str = "physical") -> Instance:
    """A random instance: its cluster, its tables, its policy and a few options of each table follow from the seed.

    Of each three seeds, one has ample memory, one fits about twice what it needs and one is tight. Under the objective
    `torchrec` all nodes have as many ranks, and under `hugectr` policies allow HBM: those planners know nothing else.
    """
    random = np.random.default_rng(seed)
    shapes = [shape for shape in SHAPES if objective != "torchrec" or len({ranks for _, ranks in shape}) == 1]
    shape = shapes[random.integers(len(shapes))]
    policies = [policy for policy in POLICIES if objective != "hugectr" or "hbm" in policy.tiers]
    policy = policies[random.integers(len(policies))]
    room = (50.0, 2.0, float(random.uniform(0.8, 1.3)))[seed % 3]
    model_workload = _tiny_workload(random)
    ranks = sum(nodes * each for nodes, each in shape)
    needed = _bytes_needed(model_workload, policy, ranks)
    groups = []
    more = np.random.default_rng([seed, 2])
    for i, (nodes, each) in enumerate(shape):
        hbm = room * needed["hbm"] / ranks * random.uniform(0.8, 1.25)
        ddr = room * needed["ddr"] * each / ranks * random.uniform(0.8, 1.25)
        groups.append(
            node_group(
                f"g{i}",
                nodes=nodes,
                ranks=each,
                hbm_bytes=max(hbm, 1e4),
                hbm_bytes_per_s=float(random.choice([0.9e12, 1.5e12, 3.3e12])),
                ddr_bytes=max(ddr, 1e4) if random.random() < 0.9 or "hbm" not in policy.tiers else None,
                ssd_bytes=1e12 if random.random() < 0.3 else None,
                scm_bytes=0.3 * ddr + 1e4 if more.random() < 0.2 else None,
                remote_bytes=0.3 * nodes * ddr + 1e4 if more.random() < 0.2 else None,
                ranks_per_switch=int(random.choice([n for n in (1, 2) if each % n == 0])),
                cards=int(random.choice([n for n in (1, 2, each) if each % n == 0])),
                has_scale_up=bool(random.random() < 0.8),
                nic_bytes_per_s=float(random.choice([12.5e9, 25e9, 50e9])),
            )
        )
    cluster = topology(*groups, oversubscription=float(random.choice([1.0, 1.0, 2.5])))
    model = cost_model(objective, cluster, model_workload)
    options = keep_some_options(enumerate_options(model, policy), int(random.integers(2, 5)), random)
    description = f"seed {seed}: {shape}, {len(model_workload.tables)} tables, {policy}, room {room:.2f}"
    return Instance(model, policy, options, build_problem(model, options), description)


def _tiny_workload(random: np.random.Generator) -> Workload:
    tables: list[dict[str, object]] = []
    for _ in range(int(random.integers(1, 6))):
        table: dict[str, object] = {
            "rows": int(10 ** random.uniform(2, 6)),
            "dim": int(random.choice([4, 8, 16, 20, 32, 64, 128])),
            "pooling_factor": float(np.round(10 ** random.uniform(0, 1.7), 2)),
            "pooled": bool(random.random() < 0.85),
            "weighted": bool(random.random() < 0.2),
        }
        if random.random() < 0.7:
            table["zipf_alpha"] = float(np.round(random.uniform(0.5, 1.3), 2))
        tables.append(table)
    return workload(
        tables,
        global_batch=int(random.choice([256, 2048, 8192])),
        embedding={"optimizer": str(random.choice(["sgd", "rowwise_adagrad", "adagrad", "adam"]))},
        communication={"forward": str(random.choice(["fp32", "fp16"])), "backward": "fp16"},
        dense={"macs_per_sample": 100_000, "parameters": 1000},
        pipeline=str(random.choice(["none", "sparse-dist", "prefetch"])),
        software=str(random.choice(["torchrec", "hugectr"])),
        mode=str(random.choice(["training", "training", "inference"])),
    )


def _bytes_needed(workload: Workload, policy: Policy, ranks: int) -> dict[str, float]:
    """A rough size of what the tables take in HBM and in DDR, by the first tier that the policy allows."""
    weights = sum(8.0 * table.rows * table.dim for table in workload.tables)
    batch = workload.batch(ranks)
    in_flight = sum(
        batch * (table.pooling_factor * 30 + 8 * table.dim * (1 if table.pooled else table.pooling_factor))
        for table in workload.tables
    )
    tier: PlacementTier = min(policy.tiers, key=PLACEMENT_TIERS.index)
    in_hbm = in_flight * 1.5 + (weights if tier == "hbm" else 0.3 * weights)
    return {"hbm": in_hbm, "ddr": weights}


def unlike_tables(seed: int) -> tuple[Topology, Workload]:
    """12 to 40 tables of very unlike sizes that take a good third of the HBM of four ranks."""
    random = np.random.default_rng([seed, 71])
    count = int(random.integers(12, 40))
    rows = np.maximum(10 ** random.normal(4.5, 0.9, count), 10).astype(int).tolist()
    pooling, dims = np.exp(random.normal(1.5, 1.3, count)).tolist(), random.choice([16, 32, 64], count).tolist()
    tables = [{"rows": r, "dim": d, "pooling_factor": p} for r, d, p in zip(rows, dims, pooling, strict=True)]
    size = sum(r * d * 4 for r, d in zip(rows, dims, strict=True))
    hbm_bytes = size / 4 * float(random.choice([2.0, 2.6, 3.2])) + 2e8
    return topology(node_group("n", ranks=4, hbm_bytes=hbm_bytes)), workload(tables, global_batch=8192)
