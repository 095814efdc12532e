"""The step: its stages, what hides behind what, and what binds."""

import numpy as np
import pytest

from cost_models import summed_loads
from cost_models.evaluation import critical_rank
from cost_models.prefetch_lines import LINES
from cost_models.shards import (
    DDR_CACHED,
    HBM,
    PLACEMENT_TIERS,
    TABLE_WISE,
    Blocks,
    PlacedShards,
)
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from cost_models.summed_loads import SUMMED_AT_ONCE
from tests.oracles.instances import node_group, tiny_instance, topology, workload
from topologies.fabric import Fabric

TABLES = [{"rows": 10_000, "dim": 64}]

TRAINING = ("cache_fetch", "lookup_forward", "output_dist", "dense", "gradient_dist", "lookup_backward")


@pytest.mark.parametrize(
    ("software", "pipeline", "mode", "stages"),
    [
        ("torchrec", "none", "training", ("input_dist", *TRAINING, "overhead")),
        ("torchrec", "sparse-dist", "training", (*TRAINING, "overhead")),
        ("torchrec", "prefetch", "training", (*TRAINING[1:], "overhead")),
        ("torchrec", "none", "inference", ("input_dist", *TRAINING[:4], "overhead")),
        ("torchrec", "sparse-dist", "inference", ("input_dist", *TRAINING[:4], "overhead")),
        ("hugectr", "none", "training", ("input_dist", *TRAINING, "all_reduce", "overhead")),
        ("hugectr", "sparse-dist", "training", (*TRAINING, "all_reduce", "overhead")),
    ],
)
def test_stages_of_a_step(software: str, pipeline: str, mode: str, stages: tuple[str, ...]) -> None:
    """What overlaps joins the stage `dense`; inference ends with it."""
    model = StepModel(
        topology(node_group("a", nodes=2)), workload(TABLES, software=software, pipeline=pipeline, mode=mode)
    )
    assert model.stages == stages


@pytest.mark.parametrize(
    ("pipeline", "stages", "resource"),
    [
        ("none", {"cache_fetch"}, "fetches"),
        ("sparse-dist", {"cache_fetch"}, "fetches"),
        ("prefetch", {"lookup_forward", "lookup_backward"}, "fetches_ahead"),
    ],
)
def test_where_cache_misses_are_fetched(pipeline: str, stages: set[str], resource: str) -> None:
    """Before the lookup; with prefetch beside lookup and update, a share of them in each."""
    model = StepModel(topology(node_group("a")), workload([{"rows": 1_000_000, "dim": 64}], pipeline=pipeline))
    one = np.zeros(1, dtype=np.int64)
    small, large = (model.block_costs(Blocks(one, one + 1, one + 1, one + 64, np.array([f])), 0) for f in (0.1, 0.5))
    saved = small.by_rows[0] - large.by_rows[0]
    gains = {
        (model.stages[column.stage], str(column.resource))
        for column, gain in zip(model.columns, saved, strict=True)
        if gain > 0
    }
    assert {of for of, each in gains if each == resource} == stages
    assert {of for of, _ in gains} == stages


def test_columns_exist_only_for_what_can_bind() -> None:
    """One node has no cards in its step, no DDR no PCIe, and two nodes have both directions of their cards."""
    single = StepModel(topology(node_group("a", ddr_bytes=None)), workload(TABLES))
    assert {str(column.resource) for column in single.columns} == {
        *("device", "link_out", "link_in", "link_out_with_ids", "link_in_with_ids", "sums")
    }
    double = StepModel(topology(node_group("a", nodes=2, ssd_bytes=1e12)), workload(TABLES))
    found = {str(column.resource) for column in double.columns}
    assert {"nic_out", "nic_in", "pcie", "ddr", "ssd"} <= found
    uplinks = StepModel(topology(node_group("a", nodes=2), oversubscription=4.0), workload(TABLES))
    assert {str(column.resource) for column in uplinks.columns} - found == {
        *("uplink0_out", "uplink0_in", "uplink0_out_with_ids", "uplink0_in_with_ids")
    }


def test_an_oversubscribed_uplink_takes_as_much_longer_as_it_is_oversubscribed() -> None:
    """One node under one switch: all cards together, at a quarter of their bandwidth and with their full efficiency."""
    model = StepModel(topology(node_group("a", nodes=2), oversubscription=4.0), workload(TABLES))
    plain = StepModel(topology(node_group("a", nodes=2)), workload(TABLES))
    one = np.zeros(1, dtype=np.int64)
    costs = model.block_costs(Blocks(one, one + 3, one, one + 64, np.zeros(1)), 0)  # row_wise: all ranks send alike
    seconds = {(model.stages[c.stage], str(c.resource)): costs.fixed[0, i] for i, c in enumerate(model.columns)}
    card, uplink = seconds["output_dist", "nic_out"], seconds["output_dist", "uplink0_out"]
    assert 2 * uplink == pytest.approx(4 * card * plain.kinds[0].nic_all_to_all / 25e9)


def test_oversubscription_adds_up_over_levels() -> None:
    """What leaves a spine has passed its leaves: 4:1 below 3:1 are a twelfth of the cards, as Fabric says; so is 12:1
    above leaves that let all through."""

    def pair(leaf: float, spine: float) -> StepModel:
        return StepModel(topology(node_group("a", nodes=8), levels=[(1, leaf), (2, spine)]), workload(TABLES))

    one = np.zeros(1, dtype=np.int64)
    blocks = Blocks(one, one + 3, one, one + 64, np.zeros(1))  # row_wise: all ranks send alike

    def spine_s(model: StepModel) -> float:
        fixed = model.block_costs(blocks, 0).fixed[0]
        return next(float(s) for s, c in zip(fixed, model.columns, strict=True)
                    if (model.stages[c.stage], str(c.resource)) == ("output_dist", "uplink1_out"))  # fmt: skip

    both, above = pair(4.0, 3.0), pair(1.0, 12.0)
    assert spine_s(both) == pytest.approx(spine_s(above))
    assert Fabric(both.topology).switch_bytes_per_s[1] == pytest.approx(Fabric(above.topology).switch_bytes_per_s[1])


def test_one_rank_waits_for_nobody() -> None:
    """No collective has a latency in a world of one, whose host works beside it; the batch is copied all the same."""
    model = StepModel(topology(node_group("a", ranks=1)), workload(TABLES, pipeline="none"))
    constants = dict(zip(model.stages, model.constants, strict=True))
    assert {stage for stage, seconds in constants.items() if seconds} == {"input_dist"}
    ids, lengths, label = 10 * 8, 4, 4
    expected = 4096 * (ids + lengths + label) / model.kinds[0].pcie_bytes_per_s
    assert constants["input_dist"] == pytest.approx(expected)


def test_ids_travel_beside_the_update_too() -> None:
    """Under a pipeline ids show beside the update, less what the dense part and the overhead hide; prefetched, beside
    lookup and update, a share of them in each, less what the wait for vectors hides, too; without, they show whole."""
    tables = [{"rows": 10_000_000, "dim": 4, "pooling_factor": 100}]
    cluster = topology(node_group("a", nodes=4, ranks=2, nic_bytes_per_s=1e9))
    plain, hiding, further = (
        StepModel(cluster, workload(tables, pipeline=name)) for name in ("none", "sparse-dist", "prefetch")
    )
    one = np.zeros(1, dtype=np.int64)
    blocks = Blocks(one, one + 1, one, one + 4, np.zeros(1))

    def loads(model: StepModel, stage: str, resource: str) -> tuple[float, float]:
        costs = model.block_costs(blocks, 0)
        (column,) = (
            c
            for c, each in enumerate(model.columns)
            if (model.stages[each.stage], str(each.resource)) == (stage, resource)
        )
        return float(costs.fixed[0, column] + costs.by_rows[0, column]), float(model.base_loads[0, column])

    ids, _ = loads(plain, "input_dist", "nic_in")
    update, _ = loads(plain, "lookup_backward", "device")
    lookup, _ = loads(plain, "lookup_forward", "device")
    shown, begun = loads(hiding, "lookup_backward", "nic_in_with_ids")
    assert shown == pytest.approx(ids)
    (kind,) = hiding.kinds
    assert loads(hiding, "lookup_backward", "device") == pytest.approx((update, kind.update_launch_s))
    overhead = float(hiding.constants[hiding.stages.index("overhead")])
    waits = further.schedule.lines["output_dist"][0].latency_s + overhead
    for protocols in further.all_protocols:
        at = further.at_protocols(protocols)
        (share,) = (line.of_lookup for n, line in enumerate(LINES) if n == protocols[-1])
        for stage, part in (("lookup_forward", share), ("lookup_backward", 1 - share)):
            own, base = loads(at, stage, "nic_in_with_ids")
            whole = begun + overhead if stage == "lookup_backward" else 0.0
            assert (own, base) == (pytest.approx(ids * part), pytest.approx(whole - waits * part))
        assert loads(at, "lookup_forward", "device") == pytest.approx((lookup, kind.lookup_launch_s))
        assert loads(at, "lookup_backward", "device") == pytest.approx((update, kind.update_launch_s))


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_ids_that_arrive_at_their_rows_are_not_waited_for(mode: str) -> None:
    """Distributed-embeddings reads them where the tables are: no exchange, no latency of one."""
    model = StepModel(
        topology(node_group("a", nodes=2)),
        workload(TABLES, pipeline="none", software="distributed-embeddings", mode=mode),
    )
    constants = dict(zip(model.stages, model.constants, strict=True))
    assert constants["input_dist"] == 0
    assert constants["output_dist"] > 0


def test_prefetched_misses_hide_where_ids_do() -> None:
    """Misses begin as long before lookup and update as the dense part and the overhead take; few of them show in
    neither."""
    tables = [{"rows": 1_000_000, "dim": 64, "optimizer": "sgd"}]
    model = StepModel(topology(node_group("a", ssd_bytes=1e12)), workload(tables, pipeline="prefetch"))
    dense, overhead = (
        float(model.evaluate_nothing().stage_seconds[model.stages.index(name)]) for name in ("dense", "overhead")
    )
    ahead = [i for i, column in enumerate(model.columns) if column.resource.ahead]
    assert len(ahead) == 2 * len({model.columns[c].resource for c in ahead})
    for c in ahead:
        both = [i for i in ahead if model.columns[i].resource == model.columns[c].resource]
        ranks = np.bincount(model.resource_of_rank(model.columns[c].resource)).max()
        assert float(model.base_loads[0, both].sum()) * ranks <= -(dense + overhead) * 0.99
    none = np.zeros(0, dtype=np.int64)
    nothing = PlacedShards(Blocks(none, none, none, none, np.zeros(0)), none, none, np.zeros(0, dtype=bool))
    one = np.zeros(1, dtype=np.int64)
    blocks = Blocks(one, one + 1, one + 1, one + 64, np.array([0.99]))
    few = PlacedShards(blocks, one, model.tables.rows[:1], np.ones(1, dtype=bool))
    for placed in (nothing, few):
        binding = model.evaluate(placed).binding
        assert not any(resource is not None and resource.ahead for resource in binding)


def test_prefetched_misses_hide_behind_the_work_on_caches() -> None:
    """A step that waits for the misses of one rank takes as long as they do, which is what is simulated: the search of
    its cache and the rows that it updates there are among what hides them. A later batch is copied over its switch."""
    tables = [{"rows": 10_000_000, "dim": 256, "pooling_factor": 10, "optimizer": "sgd"}]
    cluster = topology(node_group("a", ranks=1))
    model = StepModel(cluster, workload(tables, pipeline="prefetch", dense={}, global_batch=262_144))
    one, cached = np.ones(1, dtype=np.int64), PLACEMENT_TIERS.index("ddr_cached")
    blocks = Blocks(one * 0, one * TABLE_WISE, one * cached, one * 256, np.array([0.5]))
    placed = PlacedShards(blocks, one * 0, one * 10_000_000, one > 0)
    evaluation = model.evaluate(placed)
    assert any(resource is not None and resource.ahead for resource in evaluation.binding)
    played_s = simulate(cluster, model.workload, placed).step_s
    copied_s = 262_144 * (10 * 8 + 4 + 4) / model.kinds[0].pcie_bytes_per_s  # a batch, over the same switch
    assert 0 <= played_s - evaluation.step_s <= copied_s * (1 + 1e-5)


@pytest.mark.parametrize("scale_up", [True, False])
@pytest.mark.parametrize("over_pcie", [True, False])
def test_prefetched_misses_share_a_link_with_what_ranks_exchange(scale_up: bool, over_pcie: bool) -> None:
    """A rank's own link carries its missed rows, the all-reduce and the next ids, summed by hand, if its card, or the
    way to the other ranks of its node, is behind it; else they do not meet."""
    shape = {"nodes": 2, "ranks": 1} if scale_up else {"nodes": 1, "ranks": 2}
    cluster = topology(node_group("a", has_scale_up=scale_up, cards_over_pcie=over_pcie, **shape))  # type: ignore[arg-type]
    parameters, batch, rows, ids, dim = 160_000_000, 262_144, 10_000_000, 10, 256
    dense = {"macs_per_sample": 1000, "parameters": parameters}
    tables = [{"rows": rows, "dim": dim, "optimizer": "sgd"}]
    model = StepModel(cluster, workload(tables, pipeline="prefetch", dense=dense, global_batch=batch))
    one, cached = np.ones(1, dtype=np.int64), PLACEMENT_TIERS.index("ddr_cached")
    blocks = Blocks(one * 0, one * TABLE_WISE, one * cached, one * dim, np.array([0.5]))
    placed = PlacedShards(blocks, one * 0, one * rows, one > 0)
    where = [c for c, column in enumerate(model.columns) if str(column.resource) == "host_link_in_ahead"]
    if not (over_pcie or not scale_up):
        assert not where
        return
    distinct = rows * -np.expm1(-batch * ids / rows)
    pcie = model.kinds[0].pcie_bytes_per_s
    missed_s = distinct * 0.5 * dim * 4 / pcie
    of_gradients, of_ids = parameters * 4, batch / 2 * (ids * 8 + 4)
    costs = model.block_costs(blocks, 0)
    assert model.device_begins is not None
    load = (costs.fixed + costs.by_rows + costs.everywhere)[0, where].sum() + model.base_loads[0, where].sum()
    evaluation = model.evaluate(placed)
    window_s, shown_s = (
        float(evaluation.stage_seconds[[model.stages.index(name) for name in names]].sum())
        for names in (("dense", "overhead"), ("lookup_forward", "lookup_backward"))
    )
    assert load + window_s == pytest.approx(missed_s + (of_gradients + of_ids) / pcie, rel=0.02)
    assert {str(each) for each in evaluation.binding} >= {"host_link_in_ahead"}
    assert shown_s == pytest.approx(load)


def test_phases_of_an_exchange_add_up_on_the_card() -> None:
    """HugeCTR sends through the cards after the exchange inside the node; TorchRec does both at once."""
    cluster = topology(node_group("a", nodes=2, ranks=2))
    one = np.zeros(1, dtype=np.int64)
    blocks = Blocks(one, one + 3, one, one + 64, np.zeros(1))
    costs = {}
    for software in ("torchrec", "hugectr"):
        model = StepModel(cluster, workload(TABLES, software=software))
        row = model.block_costs(blocks, 0).fixed[0]
        stage = model.stages.index("output_dist")
        costs[software] = {
            str(column.resource): row[c] for c, column in enumerate(model.columns) if column.stage == stage
        }
    link, card = (costs["torchrec"][name] for name in ("link_out", "nic_out"))
    assert link > 0
    assert costs["hugectr"]["nic_out"] == pytest.approx(card + link)


def test_stages_that_others_hide_are_named() -> None:
    """With the stage in which the rest shows, which is one of the step's; none is both a stage and hidden."""
    cluster = topology(node_group("a", nodes=2))
    tables = [{"rows": 1000, "dim": 64, "pooling_factor": 3}]
    for pipeline, expected in (
        ("none", {"all_reduce": "dense"}),
        ("sparse-dist", {"all_reduce": "dense", "input_dist": "lookup_backward"}),
        ("prefetch", {"all_reduce": "dense", **dict.fromkeys(("input_dist", "cache_fetch"), "lookup_backward")}),
    ):
        model = StepModel(cluster, workload(tables, pipeline=pipeline, software="torchrec"))
        assert model.hidden == expected
        assert set(model.hidden.values()) <= set(model.stages)
        assert not set(model.hidden) & set(model.stages)
        shares = ("lookup_forward", "lookup_backward") if pipeline == "prefetch" else ("lookup_backward",)
        shown = {name: model.shown_in(name) for name in model.hidden}
        assert shown == {name: ("dense",) if behind == "dense" else shares for name, behind in expected.items()}
    serving = StepModel(cluster, workload(tables, pipeline="prefetch", software="torchrec", mode="inference"))
    assert serving.hidden == {}


def test_of_ranks_that_are_as_busy_the_first_is_critical() -> None:
    """Whatever the rounding of their sums: the same rank on every machine."""
    assert critical_rank(np.array([1.0, 2.0 - 1e-15, 2.0, 2.0 + 1e-15])) == 1
    assert critical_rank(np.array([1.0, 2.0, 2.1])) == 2
    assert critical_rank(np.zeros(3)) is None


def test_a_dense_optimizer_longer_than_the_overhead_counts() -> None:
    """Adam on a billion weights: 28 bytes of each go through HBM, the fixed overhead hides in them; a hundred million
    hide in the overhead."""
    cluster = topology(node_group("a", ranks=4, hbm_bytes=100e9))
    bytes_per_s = cluster.nodes[0].accelerators.hbm.bandwidth

    def model(parameters: int) -> StepModel:
        dense = {"macs_per_sample": 1e6, "parameters": parameters, "optimizer": "adam"}
        return StepModel(cluster, workload([{"rows": 1000, "dim": 64}] * 4, dense=dense))

    def overhead_s(parameters: int) -> float:
        made = model(parameters)
        return float(made.evaluate_nothing().stage_seconds[made.stages.index("overhead")])

    usual_s = model(10**8).coefficients.software.step_overhead_s.value
    assert overhead_s(10**8) == usual_s
    kind = model(10**9).kinds[0]
    assert kind.hbm_bytes_per_s <= bytes_per_s
    assert overhead_s(10**9) == pytest.approx(28e9 / kind.hbm_bytes_per_s)


def test_launching_the_search_of_caches_is_told_beside_the_step() -> None:
    """Once however many tables are cached; not where none is, where misses are prefetched, or where a graph has it."""
    cluster, tiers = topology(node_group("a", ranks=2)), np.array([HBM, DDR_CACHED, DDR_CACHED])
    tables = [{"rows": 10**6, "dim": 16}]
    for fields, seconds in (({}, 1.635e-4), ({"pipeline": "prefetch"}, 0.0), ({"software": "hugectr"}, 0.0)):
        model = StepModel(cluster, workload(tables, **fields))
        assert model.cache_launch_seconds(tiers) == pytest.approx(seconds)
        assert model.cache_launch_seconds(tiers[:1]) == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_a_block_costs_the_same_among_many(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a block costs does not depend on how many others are costed in the same call, to the last bit; nor on
    whether loads lie row by row, or column by column as those of very many blocks do."""
    instance = tiny_instance(seed)
    model, blocks = instance.model, instance.options.blocks
    copies = SUMMED_AT_ONCE // len(blocks) + 2
    for kind in range(model.kind_count):
        alone = model.block_costs(blocks, kind)
        among = model.block_costs(blocks.take(np.tile(np.arange(len(blocks)), copies)), kind)
        with monkeypatch.context() as patch:
            patch.setattr(summed_loads, "BY_COLUMNS", 0)
            by_columns = model.block_costs(blocks, kind)
        assert by_columns.fixed.flags.f_contiguous
        for name, values in vars(alone).items():
            assert np.array_equal(getattr(among, name), np.concatenate([values] * copies)), name
            assert np.array_equal(getattr(by_columns, name), values), name
