"""Random small questions for a planner, as the plain data of its files: a cluster, a workload, a policy, a cost model.

1 to 4 tables, 2 to 6 ranks on 1 to 3 nodes, also uneven ones; everything follows from the seed.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from cost_models.workload.models import Workload
from planner.formulation.policy import Policy
from topologies.cluster import Topology

SHAPES = (
    ((1, 2),),
    ((1, 3),),
    ((1, 4),),
    ((1, 5),),
    ((1, 6),),
    ((2, 1),),
    ((3, 1),),
    ((2, 2),),
    ((2, 3),),
    ((3, 2),),
    ((1, 1), (1, 2)),
    ((1, 3), (1, 1)),
    ((1, 2), (1, 2)),
    ((2, 1), (1, 2)),
    ((1, 3), (1, 2)),
    ((2, 2), (1, 1)),
)
"""Node groups, each as (nodes, ranks per node)."""
DIMS = (4, 8, 8, 12, 12, 16, 20, 24, 28, 32, 36, 40, 48, 60, 64, 96)
TIERS = ("hbm", "ddr_cached", "ddr", "ssd_cached", "scm_cached", "scm", "remote_cached", "ddr_split")
SHARDINGS = (
    "data_parallel",
    "table_wise",
    "column_wise",
    "row_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
)


@dataclass(frozen=True)
class Question:
    """What a planner is asked."""

    topology: dict[str, Any]
    workload: dict[str, Any]
    policy: dict[str, Any]
    cost_model: str
    effort: int = 0
    gap: float = 0.0

    @functools.cached_property
    def records(self) -> tuple[Topology, Workload, Policy]:
        """As the planner's own records. Raises where they contradict themselves."""
        workload = Workload.model_validate(self.workload)
        return Topology.model_validate(self.topology), workload, Policy.model_validate(self.policy)

    def to_yaml(self) -> str:
        """To ask it again: `from_yaml` reads it."""
        fields = {name: getattr(self, name) for name in Question.__dataclass_fields__}
        return str(yaml.safe_dump(fields, sort_keys=False, default_flow_style=None, width=110))


def from_yaml(text: str) -> Question:
    """The inverse of `Question.to_yaml`."""
    return Question(**yaml.safe_load(text))


def question(seed: int) -> Question:
    """The question of a seed. Of each four, two have room in HBM, one is short of it, one is tight in all memories."""
    random = np.random.default_rng([16, seed])
    cost_model = str(random.choice(["physical", "physical", "physical", "torchrec", "hugectr"]))
    shapes = [s for s in SHAPES if cost_model != "torchrec" or len({ranks for _, ranks in s}) == 1]
    shape = shapes[random.integers(len(shapes))]
    workload = _workload(random)
    world = sum(nodes * ranks for nodes, ranks in shape)
    policy = _policy(
        random, [table["name"] for table in workload["tables"]], world, sum(n for n, _ in shape), cost_model
    )
    room = (30.0, 6.0, float(random.uniform(0.9, 2.0)), float(random.uniform(0.5, 1.2)))[seed % 4]
    topology = _topology(random, shape, _needed_bytes(workload, world), room, is_tight=seed % 4 == 3)
    gap = float(random.choice([0.0, 0.01]))
    return Question(topology, workload, policy, cost_model, int(random.integers(2)), gap)


def _needed_bytes(workload: dict[str, Any], world: int) -> float:
    """Roughly what the tables take: weights with some state, ids and outputs in flight."""
    batch = workload.get("global_batch") or workload["batch_per_rank"] * world
    weights = sum(8.0 * table["rows"] * table["dim"] for table in workload["tables"])
    return weights + sum(batch * table["pooling_factor"] * (30 + 4 * table["dim"]) for table in workload["tables"])


def _topology(
    random: np.random.Generator, shape: tuple[tuple[int, int], ...], needed: float, room: float, *, is_tight: bool
) -> dict[str, Any]:
    world = sum(nodes * ranks for nodes, ranks in shape)
    groups = [
        _group(random, f"g{i}", nodes, ranks, needed / world, room, is_tight) for i, (nodes, ranks) in enumerate(shape)
    ]
    level = {"name": "leaf", "nodes": 1, "oversubscription": 2.5}
    return {"name": "audit", "nodes": groups, "network": {"levels": [level] if random.random() < 0.25 else []}}


def _group(
    random: np.random.Generator, name: str, nodes: int, ranks: int, share: float, room: float, is_tight: bool
) -> dict[str, Any]:
    def size(factor: float) -> str:
        return f"{max(room * share * factor * random.uniform(0.6, 1.4), 1e5):.0f}B"

    below = 1.0 if is_tight else 20.0
    host: dict[str, Any] = {}
    if random.random() < 0.75:
        host["ddr"] = {"capacity": size(ranks * below), "bandwidth": "200GB/s"}
    if random.random() < 0.2:
        rates = {"read_bandwidth": "6GB/s", "write_bandwidth": "4GB/s", "iops": "1MIOPS"}
        host["ssd"] = {"capacity": size(100 * ranks), **rates}
    if random.random() < 0.2:
        rates = {"read_bandwidth": "40GB/s", "write_bandwidth": "10GB/s", "latency": "350ns", "access_size": "256B"}
        host["scm"] = {"capacity": size(ranks), **rates}
    links: dict[str, Any] = {
        "pcie": {
            "bandwidth": "31.5GB/s",
            "accelerators_per_switch": int(random.choice([n for n in (1, 2, 3) if ranks % n == 0])),
        },
        "scale_out": {
            "kind": str(random.choice(["roce", "infiniband", "ethernet"])),
            "count": int(random.choice([n for n in (1, 2, 3, ranks) if ranks % n == 0])),
            "bandwidth": str(random.choice(["3GB/s", "12.5GB/s", "25GB/s", "50GB/s"])),
        },
    }
    if random.random() < 0.8:
        links["scale_up"] = {"kind": "nvlink3", "bandwidth": str(random.choice(["300GB/s", "50GB/s"]))}
        if random.random() < 0.15:
            links["scale_up"]["domain"] = nodes * ranks
    remote = {}
    if random.random() < 0.15:
        card = {"kind": "ethernet", "network_bandwidth": "12.5GB/s"}
        remote["remote"] = {"count": 2, "capacity": size(nodes * ranks), "bandwidth": "100GB/s", **card}
        links["front_end"] = {"kind": "ethernet", "count": 1, "bandwidth": "12.5GB/s"}
    return {
        "name": name,
        "count": nodes,
        "accelerators": {
            "count": ranks,
            "device": str(random.choice(["A100-SXM4-40GB", "H100-SXM5-80GB"])),
            "hbm": {"capacity": size(1.0), "bandwidth": str(random.choice(["0.9TB/s", "1.5TB/s", "3.3TB/s"]))},
            "flops": {"fp32": "19.5TFLOP/s", "tf32": "156TFLOP/s"},
        },
        "host": host,
        "links": links,
        "reserve": {"hbm": float(random.choice([0.0, 0.05])), **dict.fromkeys(("ddr", "ssd", "scm", "remote"), 0)},
        **remote,
    }


def _workload(random: np.random.Generator) -> dict[str, Any]:
    mode = str(random.choice(["training", "training", "training", "inference"]))
    tables = [_table(random, f"t{i}") for i in range(int(random.choice([1, 1, 2, 2, 3, 4])))]
    batch = int(random.choice([64, 1000, 8192, 65_536]))
    size = {"global_batch": batch} if random.random() < 0.7 else {"batch_per_rank": max(batch // 4, 1)}
    dtype = str(random.choice(["fp32", "fp32", "fp16", "bf16", "int8", "int8_row"]))
    forward, backward = (str(random.choice(["fp32", "fp16", "bf16"])) for _ in range(2))
    return {
        "name": "audit",
        **size,
        "tables": tables,
        "embedding": {"dtype": dtype, "optimizer": str(random.choice(["sgd", "rowwise_adagrad", "adagrad", "adam"]))},
        "communication": {"forward": forward, "backward": backward},
        "dense": {"macs_per_sample": 10_000, "parameters": 1000},
        "pipeline": str(random.choice(["none", "sparse-dist", "prefetch"])),
        "software": str(random.choice(["torchrec", "hugectr"])),
        "mode": mode,
    }


def _table(random: np.random.Generator, name: str) -> dict[str, Any]:
    rows = int(10 ** random.uniform(2, 6.5)) if random.random() < 0.93 else int(random.integers(1, 12))
    table: dict[str, Any] = {
        "name": name,
        "rows": rows,
        "dim": int(random.choice(DIMS)),
        "pooling_factor": float(np.round(10 ** random.uniform(0, 2), 1)),
        "pooled": bool(random.random() < 0.75),
        "weighted": bool(random.random() < 0.15),
    }
    if random.random() < 0.7:
        table["zipf_alpha"] = float(np.round(random.uniform(0.4, 1.4), 2))
    if random.random() < 0.2:
        table["features"] = int(random.integers(1, 4))
    uncommon: list[dict[str, Any]] = [
        {"dedup_factor": 2.5},
        {"dedup_factor": 3.0, "dedup_group": "user"},
        {"precision_cache": 0.05},
        {"optimizer": "adam"},
        {"dtype": "fp16"},
        {"pooling_std": 3.0},
    ]
    return table | (uncommon[int(random.integers(len(uncommon)))] if random.random() < 0.25 else {})


def _policy(random: np.random.Generator, names: list[str], world: int, nodes: int, cost_model: str) -> dict[str, Any]:
    """Nothing at all, or one to three limits."""
    policy: dict[str, Any] = {}
    for _ in range(int(random.choice([0, 0, 1, 1, 2, 3]))):
        for key, value in _limit(random, names, world, nodes, cost_model).items():
            policy[key] = (
                [*policy[key], *value] if key in policy and isinstance(value, list) and key == "tables" else value
            )
    return policy


def _limit(random: np.random.Generator, names: list[str], world: int, nodes: int, cost_model: str) -> dict[str, Any]:
    def some(words: tuple[str, ...] | list[str]) -> list[str]:
        n = int(random.integers(1, len(words) + 1))
        return [words[i] for i in sorted(random.permutation(len(words))[:n].tolist())]

    def ranks() -> list[int]:
        return sorted(random.permutation(world)[: int(random.integers(1, world + 1))].tolist())

    on = str(random.choice(["rank", "node"]))
    limits: list[dict[str, Any]] = [
        {"tiers": some(TIERS)},
        {"tiers": sorted({"hbm", *some(TIERS[:4])}, key=TIERS.index)},
        {"shardings": some(SHARDINGS)},
        {"shardings": [str(random.choice(SHARDINGS))]},
        {"shardings": ["column_wise"], "max_shards": int(random.integers(2, 5))},
        {"max_shards": int(random.integers(1, 7))},
        {"column_multiple": int(random.choice([4, 8, 12, 16]))},
        {"tables": [{"match": some(names), "ranks": ranks()}]},
        {"tables": [{"match": some(names), "nodes": int(random.integers(nodes))}]},
        {"tables": [{"match": some(names), "shardings": some(SHARDINGS), "max_shards": int(random.integers(1, 5))}]},
        {"forbid_ranks": int(random.integers(world))},
        {"reserve": {"hbm": float(np.round(random.uniform(0, 0.4), 2))}},
        {"reserve": {"hbm": "1MiB", "ddr": "5%"}},
        {"runtime": str(random.choice(["torchrec", "hugectr"]))},
        {"colocate": [{"tables": some(names), "on": on}]},
        {"separate": [{"tables": some(names), "on": on}]},
    ]
    if cost_model == "physical":
        limits += [{"dtypes": some(["fp32", "fp16", "int8"])}, {"optimizer_state": some(["with_table", "ddr", "scm"])}]
    return limits[int(random.integers(len(limits)))]
