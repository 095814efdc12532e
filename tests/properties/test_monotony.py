"""More work, or less to do it with, never makes a step shorter at the same placement: neither estimated nor played."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
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
    SHARDINGS,
    USUAL_SHARDINGS,
    Blocks,
    PlacedShards,
)
from cost_models.simulator.simulation import simulate
from cost_models.stages import VectorExchange
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.documents import Record
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
RATES = {
    "scale-up": ("links", "scale_up", "bandwidth"),
    "scale-out": ("links", "scale_out", "bandwidth"),
    "PCIe": ("links", "pcie", "bandwidth"),
    "HBM": ("accelerators", "hbm", "bandwidth"),
    "FLOP/s": ("accelerators", "flops"),
    "DDR": ("host", "ddr", "bandwidth"),
    "SSD": ("host", "ssd", "read_bandwidth"),
    "SSD writes": ("host", "ssd", "write_bandwidth"),
    "IOPS": ("host", "ssd", "iops"),
}


@dataclass(frozen=True)
class Case:
    """A placement of some tables on a cluster."""

    cluster: Topology
    tables: tuple[dict[str, Any], ...]
    fields: dict[str, Any]
    placed: PlacedShards = field(repr=False)
    replicas: Replicas | None = None
    exchange: VectorExchange = "flat"

    @property
    def model(self) -> CostModel:
        """The physical model."""
        asked = workload(self.tables, **self.fields)
        return cost_model("physical", self.cluster, asked, exchange=self.exchange, replicas=self.replicas)

    def estimated_s(self) -> float:
        """The step in closed form."""
        return self.model.evaluate(self.placed).step_s

    def played_s(self) -> float:
        """The step by the simulator."""
        return simulate(self.cluster, workload(self.tables, **self.fields), self.placed, steps=1).step_s


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


PIPELINES = ("none", "sparse-dist", "prefetch")


@st.composite
def cases(draw: st.DrawFn, pipelines: tuple[str, ...] = PIPELINES) -> Case:
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
        "pipeline": draw(st.sampled_from(pipelines)),
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


factors = st.sampled_from([1.0001, 1.01, 1.1, 1.5, 2.0, 8.0])


def slower(record: Record, path: tuple[str, ...], factor: float) -> Record:
    """A copy in which the rate at `path`, or each of those there, is `factor` times less."""
    value = getattr(record, path[0])
    if value is None:
        return record
    if len(path) > 1:
        less: Any = slower(value, path[1:], factor)
    elif isinstance(value, Record):
        less = value.model_copy(update={name: rate / factor for name, rate in value if rate is not None})
    else:
        less = value / factor
    return record.model_copy(update={path[0]: less})


def expect_no_shorter(worse: Case, case: Case) -> None:
    """The step of the worse case is not shorter, by either judge."""
    assert worse.estimated_s() >= case.estimated_s() * (1 - LAST_PLACES)
    assert worse.played_s() >= case.played_s() * (1 - ROUNDING)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(case=cases(), factor=factors)
def test_a_larger_batch(case: Case, factor: float) -> None:
    """With more samples in a step it is not shorter."""
    ranks = case.cluster.world_size
    larger = -(-int(case.fields["global_batch"] * factor) // ranks) * ranks
    expect_no_shorter(replace(case, fields={**case.fields, "global_batch": larger}), case)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(case=cases(), factor=factors)
def test_more_ids(case: Case, factor: float) -> None:
    """With more ids in a bag it is not shorter."""
    tables = tuple({**table, "pooling_factor": table["pooling_factor"] * factor} for table in case.tables)
    expect_no_shorter(replace(case, tables=tables), case)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(case=cases())
def test_wider_formats(case: Case) -> None:
    """With rows or vectors in a wider format it is not shorter."""
    for worse in ({"embedding": {"dtype": "fp32"}}, {"communication": {"forward": "fp32", "backward": "fp32"}}):
        expect_no_shorter(replace(case, fields={**case.fields, **worse}), case)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=cases())
def test_more_tables(case: Case) -> None:
    """With any of its tables as well it is not shorter."""
    for table in range(len(case.tables)) if len(case.tables) > 1 else ():
        placed = case.placed
        kept = np.flatnonzero(placed.blocks.table != table)
        blocks = placed.blocks.take(kept)
        blocks = replace(blocks, table=np.where(blocks.table > table, blocks.table - 1, blocks.table))
        fewer = PlacedShards(blocks, placed.rank[kept], placed.rows[kept], placed.opens_block[kept])
        tables = case.tables[:table] + case.tables[table + 1 :]
        assert case.estimated_s() >= replace(case, tables=tables, placed=fewer).estimated_s() * (1 - LAST_PLACES)


@pytest.mark.parametrize("rate", RATES)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(case=cases(), factor=factors)
def test_slower_hardware(rate: str, case: Case, factor: float) -> None:
    """With less of any rate it is not shorter."""
    if RATES[rate][0] == "host" and not all(getattr(group.host, RATES[rate][1]) for group in case.cluster.nodes):
        return
    nodes = tuple(slower(group, RATES[rate], factor) for group in case.cluster.nodes)
    expect_no_shorter(replace(case, cluster=case.cluster.model_copy(update={"nodes": nodes})), case)


BELOW = {
    "PCIe": ("links", "pcie", "bandwidth"),
    "SCM": ("host", "scm", "read_bandwidth"),
    "SCM writes": ("host", "scm", "write_bandwidth"),
    "remote hosts": ("remote", "bandwidth"),
    "network of remote hosts": ("remote", "network_bandwidth"),
    "front-end cards": ("links", "front_end", "bandwidth"),
}
"""Rates beside RATES of clusters with every memory."""
WIDER: dict[str, dict[str, object]] = {
    "tables": {"embedding": {"dtype": "fp32"}},
    "vectors": {"communication": {"forward": "fp32"}},
    "gradients": {"communication": {"backward": "fp32"}},
    "dense part": {"dense": {"dtype": "fp32"}},
    "products": {"dense": {"macs_per_sample": 20_000_000}},
    "parameters": {"dense": {"parameters": 100_000_000}},
}
"""What is written over the fields of a job to make it more work, each for one more kind of work."""


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


def expect_no_shorter_estimate(worse: Case, case: Case) -> None:
    """The step of the worse case is not estimated shorter."""
    assert worse.estimated_s() >= case.estimated_s() * (1 - LAST_PLACES)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=wide_cases(), factor=factors)
def test_a_larger_batch_of_tables_anywhere(case: Case, factor: float) -> None:
    """With more samples in a step, or more ids in all bags, it is not estimated shorter."""
    ranks = case.cluster.world_size
    larger = -(-int(case.fields["global_batch"] * factor) // ranks) * ranks
    expect_no_shorter_estimate(replace(case, fields={**case.fields, "global_batch": larger}), case)
    tables = tuple({**table, "pooling_factor": table["pooling_factor"] * factor} for table in case.tables)
    expect_no_shorter_estimate(replace(case, tables=tables), case)


@pytest.mark.parametrize("what", WIDER)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(case=wide_cases())
def test_wider_formats_and_more_products_of_tables_anywhere(what: str, case: Case) -> None:
    """With any of them it is not estimated shorter."""
    worse = {name: {**case.fields[name], **more} for name, more in WIDER[what].items() if isinstance(more, dict)}
    expect_no_shorter_estimate(replace(case, fields={**case.fields, **worse}), case)


@pytest.mark.parametrize("rate", RATES | BELOW)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(case=wide_cases(), factor=factors)
def test_slower_memories_of_tables_anywhere(rate: str, case: Case, factor: float) -> None:
    """With less of any rate it is not estimated shorter."""
    nodes = tuple(slower(group, (RATES | BELOW)[rate], factor) for group in case.cluster.nodes)
    worse = replace(case, cluster=case.cluster.model_copy(update={"nodes": nodes}))
    expect_no_shorter_estimate(worse, case)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(case=wide_cases(), factor=factors)
def test_later_first_answers(case: Case, factor: float) -> None:
    """With remote hosts that take longer to answer it is not estimated shorter."""
    (group,) = case.cluster.nodes
    assert group.remote is not None
    later = group.remote.model_copy(update={"latency": group.remote.latency * factor})
    nodes = (group.model_copy(update={"remote": later}),)
    expect_no_shorter_estimate(replace(case, cluster=case.cluster.model_copy(update={"nodes": nodes})), case)


@pytest.mark.parametrize("software", ["torchrec", "hugectr"])
@pytest.mark.parametrize("sharding", ["table_wise", "row_wise"])
def test_every_batch_takes_longer_than_the_one_before(sharding: str, software: str) -> None:
    """On four A100, from 64 to 65,536 samples by an eighth more each: through all protocols of an exchange."""
    cluster = topology(node_group("a", ranks=4))
    tables = tuple({"rows": 100_000, "dim": 128, "pooling_factor": 2.0} for _ in range(4))
    fields = {"software": software, "pipeline": "none"}
    model = cost_model("physical", cluster, workload(tables, **fields))
    shards = random_shards(model, np.random.default_rng(0), (SHARDINGS.index(sharding),))
    case = Case(cluster, tables, fields, shards)
    batches = dict.fromkeys(int(64 * 1.125**power) // 4 * 4 for power in range(60))
    each = [replace(case, fields={**fields, "global_batch": batch}) for batch in batches]
    for judge in (Case.estimated_s, Case.played_s):
        steps = [judge(one) for one in each]
        assert steps == sorted(steps)


@pytest.mark.parametrize("sharding", ["data_parallel", "table_wise", "row_wise"])
@pytest.mark.parametrize("software", ["torchrec", "hugectr", "distributed-embeddings"])
def test_a_table_beside_one_whose_sums_go_around_a_ring(sharding: str, software: str) -> None:
    """Whatever it is, it takes nothing of what these wait for away: neither estimated nor played. HugeCTR's step was
    estimated 0.3 % shorter with it while the ring was spread over the bytes of all tables."""
    cluster = topology(node_group("a", nodes=6, ranks=1))
    tables = tuple({"rows": 10_000, "dim": dim, "pooling_factor": 2.0} for dim in (64, 64))
    fields = {"software": software, "mode": "inference", "global_batch": 96}
    held = {"data_parallel": range(6), "table_wise": range(1), "row_wise": range(6)}[sharding]
    ranks = np.array([*range(6), *held])
    table = np.repeat([0, 1], [6, len(held)])
    cut = np.repeat([SHARDINGS.index("row_wise"), SHARDINGS.index(sharding)], [6, len(held)])
    rows = np.where((table == 1) & (sharding != "row_wise"), 10_000, np.where(ranks < 5, 1667, 1665))
    blocks = Blocks(table, cut, np.full(len(ranks), HBM), np.full(len(ranks), 64), np.zeros(len(ranks)))
    both = PlacedShards(blocks, ranks, rows, ranks == 0)
    first = PlacedShards(blocks.take(np.arange(6)), ranks[:6], rows[:6], ranks[:6] == 0)
    expect_no_shorter(Case(cluster, tables, fields, both), Case(cluster, tables[:1], fields, first))


@pytest.mark.parametrize("factor", [1.01, 1.1, 1.5])
def test_sums_over_a_card_that_ranks_share(factor: float) -> None:
    """Eight A10G of a node share its card, over which sums of gradients last longest. While only what one rank has of
    them was taken to end with the dense part, 1 % less of PCIe shortened a step by 0.1 us."""
    cluster = load_topology("a10g-8", nodes=2)
    tables = tuple({"rows": 10_000, "dim": dim, "pooling_factor": 30.0} for dim in (32, 8, 64, 8))
    dense = {"macs_per_sample": 496_725, "parameters": 17_570}
    fields = {"software": "torchrec", "pipeline": "none", "global_batch": 192, "dense": dense}
    model = cost_model("physical", cluster, workload(tables, **fields))
    placed = random_shards(model, np.random.default_rng(0), (SHARDINGS.index("table_wise"),))
    case = Case(cluster, tables, fields, placed)
    nodes = tuple(slower(group, RATES["PCIe"], factor) for group in cluster.nodes)
    expect_no_shorter(replace(case, cluster=cluster.model_copy(update={"nodes": nodes})), case)


@pytest.mark.parametrize(
    ("pipeline", "parameters"),
    [("none", 3_000_000), ("sparse-dist", 1_000), ("prefetch", 1_000), ("prefetch", 3_000_000)],
)
def test_a_table_that_lengthens_no_update_but_the_mean(pipeline: str, parameters: int) -> None:
    """Of sums, or of the next ids, that outlast the dense part, no update hides more with a table more on a rank that
    has less of it than another: neither estimated nor played. While windows were those of evenly spread tables, such
    steps were estimated up to 0.8 % shorter with it."""
    cluster = topology(node_group("a", nodes=4, ranks=1, nic_bytes_per_s=1e9))
    of_ranks = ((128, 60.0), (4, 200.0), (128, 50.0))
    tables = tuple({"rows": 1_000_000, "dim": dim, "pooling_factor": ids} for dim, ids in of_ranks)
    dense = {"macs_per_sample": 10_000, "parameters": parameters}
    fields = {"pipeline": pipeline, "global_batch": 32_768, "overhead": "0us", "dense": dense}
    each, held = np.arange(3), np.ones(3, dtype=bool)
    table_wise = SHARDINGS.index("table_wise")
    widths = np.array([dim for dim, _ in of_ranks])
    blocks = Blocks(each, np.full(3, table_wise), np.full(3, HBM), widths, np.zeros(3))
    placed = PlacedShards(blocks, each, np.full(3, 1_000_000), held)
    fewer = PlacedShards(blocks.take(each[:2]), each[:2], placed.rows[:2], held[:2])
    with_it, without = Case(cluster, tables, fields, placed), Case(cluster, tables[:2], fields, fewer)
    expect_no_shorter(with_it, without)
