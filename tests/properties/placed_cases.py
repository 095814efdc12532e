"""Placements of random tables on random clusters, and what holds of a step that is asked for more."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from hypothesis import strategies as st

from benchmarks.validation.ranking import random_shards
from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.replicas import Replicas
from cost_models.shards import (
    DATA_PARALLEL,
    DDR_CACHED,
    HBM,
    HOME,
    IS_CACHED,
    IS_SPLIT,
    MEMORY_TIERS,
    PLACEMENT_TIERS,
    USUAL_SHARDINGS,
    PlacedShards,
)
from cost_models.simulator.simulation import simulate
from cost_models.stages import VectorExchange
from cost_models.workload.models import Workload
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.loading import load_topology

ROUNDING = 1e-12
"""Of the simulator's clock, which counts from the first step on."""
LAST_PLACES = 4 * np.finfo(float).eps
"""Four units in the last place, of the estimate's sums of the same numbers in another order."""
CATALOG = (
    ("dgx-a100-40", 1),
    ("dgx-a100-80", 2),
    ("dgx-h100", 1),
    ("dgx-h100", 4),
    ("h100-sxm-4", 2),
    ("hgx-b200", 2),
    ("l40s-8", 1),
    ("zionex-16", 2),
)
PIPELINES = ("none", "sparse-dist", "prefetch")
factors = st.sampled_from([1.0001, 1.01, 1.1, 1.5, 2.0, 8.0])


@dataclass(frozen=True)
class Case:
    """A placement of some tables on a cluster."""

    cluster: Topology
    tables: tuple[dict[str, Any], ...]
    fields: dict[str, Any]
    placed: PlacedShards = field(repr=False)
    replicas: Replicas | None = None
    exchange: VectorExchange = "flat"

    @cached_property
    def workload(self) -> Workload:
        """The tables in the job."""
        return workload(self.tables, **self.fields)

    @property
    def model(self) -> CostModel:
        """The physical model."""
        return cost_model("physical", self.cluster, self.workload, exchange=self.exchange, replicas=self.replicas)

    def with_more(self, more: dict[str, dict[str, object]]) -> "Case":
        """The same with other values of some fields within these."""
        return replace(self, fields=self.fields | {name: self.fields[name] | part for name, part in more.items()})

    @cached_property
    def estimated_s(self) -> float:
        """The step in closed form."""
        return self.model.evaluate(self.placed).step_s

    @cached_property
    def played_s(self) -> float:
        """The step by the simulator."""
        return simulate(self.cluster, self.workload, self.placed, steps=1).step_s


@st.composite
def clusters(draw: st.DrawFn) -> Topology:
    """One of the catalog, or a random one of up to twelve ranks and two kinds."""
    if draw(st.booleans()):
        name, nodes = draw(st.sampled_from(CATALOG))
        return load_topology(name, nodes=nodes)
    groups = [
        node_group(
            name,
            nodes=draw(st.integers(1, 3)),
            ranks=draw(st.sampled_from([1, 2, 4])),
            hbm_bytes_per_s=draw(st.sampled_from([0.9e12, 1.5e12, 3.3e12])),
            has_scale_up=draw(st.booleans()),
            nic_bytes_per_s=draw(st.sampled_from([3.125e9, 12.5e9, 50e9])),
            cards_over_pcie=draw(st.booleans()),
            ddr_bytes=1e12,
            ssd_bytes=draw(st.sampled_from([None, 2e12])),
        )
        for name in ("a", "b")[: draw(st.integers(1, 2))]
    ]
    return topology(*groups, oversubscription=draw(st.sampled_from([1.0, 2.5])))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """One to six tables, cut and placed in any way, for a job of any kind."""
    cluster = draw(clusters())
    tables = tuple(
        {
            "rows": int(10 ** draw(st.floats(2, 6.5))),
            "dim": draw(st.sampled_from([8, 32, 64, 128])),
            "pooling_factor": float(draw(st.integers(1, 60))),
            "zipf_alpha": draw(st.sampled_from([0.0, 1.05])),
        }
        for _ in range(draw(st.integers(1, 6)))
    )
    fields = {
        "global_batch": int(cluster.world_size * 2 ** draw(st.floats(2, 11)))
        // cluster.world_size
        * cluster.world_size,
        "pipeline": draw(st.sampled_from(PIPELINES)),
        "software": draw(st.sampled_from(["torchrec", "hugectr", "distributed-embeddings"])),
        "mode": draw(st.sampled_from(["training", "training", "inference"])),
        "communication": {"forward": draw(st.sampled_from(["fp32", "fp16"])), "backward": "fp16"},
        "embedding": {
            "dtype": draw(st.sampled_from(["fp16", "fp32"])),
            "optimizer": draw(st.sampled_from(["sgd", "rowwise_adagrad", "adam"])),
        },
        "dense": {"macs_per_sample": int(10 ** draw(st.floats(4, 7))), "parameters": int(10 ** draw(st.floats(3, 8)))},
        **draw(st.sampled_from([{}, {}, {"overhead": "0us"}])),
    }
    model = cost_model("physical", cluster, workload(tables, **fields))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    placed = random_shards(model, random, tuple(range(len(USUAL_SHARDINGS))))
    has_memories = all(group.host.ddr for group in cluster.nodes)
    return Case(cluster, tables, fields, below_hbm(placed, random) if has_memories and draw(st.booleans()) else placed)


def below_hbm(placed: PlacedShards, random: np.random.Generator) -> PlacedShards:
    """The same with some of the tables that are not replicated in DDR, or cached in HBM."""
    blocks, tables = placed.blocks, int(placed.blocks.table.max()) + 1
    tier = random.choice([HBM, PLACEMENT_TIERS.index("ddr"), DDR_CACHED], tables)[blocks.table]
    tier = np.where(blocks.sharding == DATA_PARALLEL, HBM, tier)
    cached = random.choice([0.01, 0.1, 0.5], tables)[blocks.table]
    return replace(placed, blocks=replace(blocks, tier=tier, cache_fraction=np.where(IS_CACHED[tier], cached, 0.0)))


@st.composite
def wide_cases(draw: st.DrawFn) -> Case:
    """Tables in any of all memories, cached, split or stashed, pooled or not; also in groups of ranks with copies, or
    exchanged through towers."""
    ranks, nodes = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 3))
    group = node_group(
        "a",
        nodes=nodes,
        ranks=ranks,
        has_scale_up=draw(st.booleans()),
        nic_bytes_per_s=draw(st.sampled_from([1e9, 12.5e9])),
        ranks_per_switch=draw(st.sampled_from([1, ranks])),
        ddr_bytes=1e12,
        ssd_bytes=2e12,
        scm_bytes=1e12,
        remote_bytes=1e12,
    )
    remote = group["remote"]
    assert isinstance(remote, dict)
    remote["latency"] = draw(st.sampled_from(["20us", "500us"]))
    cluster = topology(group)
    tables = tuple(
        {
            "rows": int(10 ** draw(st.floats(2, 6.5))),
            "dim": draw(st.sampled_from([8, 32, 128])),
            "pooling_factor": float(draw(st.integers(1, 60))),
            "zipf_alpha": draw(st.sampled_from([0.0, 0.6, 1.3])),
            "pooled": draw(st.booleans()),
        }
        for _ in range(draw(st.integers(1, 6)))
    )
    fields = {
        "global_batch": cluster.world_size * int(2 ** draw(st.floats(2, 12))),
        "pipeline": draw(st.sampled_from(PIPELINES)),
        "software": draw(st.sampled_from(["torchrec", "hugectr", "distributed-embeddings"])),
        "mode": draw(st.sampled_from(["training", "training", "inference"])),
        "communication": {"forward": "fp16", "backward": "bf16"},
        "embedding": {"dtype": "fp16", "optimizer": draw(st.sampled_from(["sgd", "rowwise_adagrad", "adam"]))},
        "dense": {
            "macs_per_sample": int(10 ** draw(st.floats(4, 7))),
            "parameters": int(10 ** draw(st.floats(3, 7.5))),
            "dtype": draw(st.sampled_from(["tf32", "bf16"])),
        },
        **draw(st.sampled_from([{}, {"overhead": "0us"}])),
    }
    copied = [layout for layout, each in (("intra", ranks), ("inter", nodes)) if each % 2 == 0 and ranks * nodes > 2]
    layout = draw(st.sampled_from([None, None, *copied]))
    replicas = None if layout is None else Replicas.model_validate({"factor": 2, "layout": layout})
    exchange = draw(st.sampled_from(["flat", "flat", "sptt"])) if ranks > 1 and replicas is None else "flat"
    asked = cost_model("physical", cluster, workload(tables, **fields), exchange=exchange, replicas=replicas)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    placed = anywhere(random_shards(asked, random, tuple(range(len(USUAL_SHARDINGS)))), random)
    return Case(cluster, tables, fields, placed, replicas, exchange)


def anywhere(placed: PlacedShards, random: np.random.Generator) -> PlacedShards:
    """The same with tables that are not replicated in a few kinds of places, drawn from all of them."""
    blocks, tables = placed.blocks, int(placed.blocks.table.max()) + 1
    known = [n for n in range(len(PLACEMENT_TIERS)) if MEMORY_TIERS[HOME[n]] != "ssd" or IS_CACHED[n]]
    tier = random.choice(random.choice(known, 3), tables)[blocks.table]
    tier = np.where(blocks.sharding == DATA_PARALLEL, HBM, tier)
    held = random.choice([0.003, 0.05, 0.5], tables)[blocks.table]
    fraction = np.where(IS_CACHED[tier] | IS_SPLIT[tier], held, 0.0)
    return replace(placed, blocks=replace(blocks, tier=tier, cache_fraction=fraction))


def expect_no_shorter(worse: Case, case: Case) -> None:
    """The step of the worse case is not shorter, by either judge."""
    assert worse.estimated_s >= case.estimated_s * (1 - LAST_PLACES)
    assert worse.played_s >= case.played_s * (1 - ROUNDING)


def expect_no_shorter_estimate(worse: Case, case: Case) -> None:
    """The step of the worse case is not estimated shorter."""
    assert worse.estimated_s >= case.estimated_s * (1 - LAST_PLACES)
