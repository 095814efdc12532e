"""Rows of host memory wait for the copy of a batch that shares their PCIe switch: estimate, simulator and bound."""

from collections.abc import Iterator

import numpy as np
import pytest

from cost_models.batch_copy import COPY_CONTENTION, waited_s
from cost_models.shards import DDR, DDR_CACHED, HBM, SSD_CACHED, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner import verify
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.planning.pipeline import Pipeline
from planner.solvers.limits import SearchLimits
from tests.oracles.brute_force import optimum
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology

TABLES, NARROW, SAMPLES = 8, 4, 65_536


def cluster(ranks_per_switch: int = 4, ddr_bytes: float = 1e12, hbm_bytes: float = 1e11) -> Topology:
    group = node_group(
        "a", ranks=4, ranks_per_switch=ranks_per_switch, ddr_bytes=ddr_bytes, ssd_bytes=1e13, hbm_bytes=hbm_bytes
    )
    return topology(group)


def trained(unused_ids: int, *, pooling: float = 4, **fields: object) -> Workload:
    """Tables that are read, and narrow ones whose ids make the copy of a batch as long as is wanted."""
    table = {"rows": 3_000_000, "dim": 64, "pooling_factor": pooling, "zipf_alpha": 0.6}
    ids = {"rows": 100, "dim": 4, "pooling_factor": unused_ids}
    return workload([table] * TABLES + [ids] * NARROW, global_batch=SAMPLES, **fields)


def placed(model: StepModel, tier: int, ranks: int = 4) -> PlacedShards:
    """Tables in a tier, dealt over the ranks, or over the first of them; narrow ones in HBM, over all."""
    every = np.arange(TABLES + NARROW)
    tiers = np.where(every < TABLES, tier, HBM)
    share = np.where(tiers == DDR_CACHED, 0.05, np.where(tiers == SSD_CACHED, 0.05, 0.0))
    blocks = Blocks(every, every * 0 + TABLE_WISE, tiers, model.tables.dim, share)
    return PlacedShards(blocks, every % np.where(every < TABLES, ranks, 4), model.tables.rows, every >= 0)


@pytest.mark.parametrize(
    ("tier", "ranks_per_switch", "ids"),
    [
        *((DDR_CACHED, 4, ids) for ids in (1, 40, 120, 200)),
        *((DDR, 4, ids) for ids in (1, 40, 120, 400)),
        *((tier, 1, ids) for tier in (DDR_CACHED, DDR) for ids in (40, 400)),
    ],
)
def test_the_estimate_is_the_simulated_step(tier: int, ranks_per_switch: int, ids: int) -> None:
    """Copies that end before the rows, with them and after them, over a link of their own and over a shared one: within
    4 %, of which rows in place have what the device works before them."""
    model = StepModel(cluster(ranks_per_switch), trained(ids))
    shards = placed(model, tier)
    played_s = simulate(model.topology, model.workload, shards, steps=1).step_s
    assert model.evaluate(shards).step_s == pytest.approx(played_s, rel=0.04)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_that_fetches_alone_waits_for_the_copies_of_all(ranks: int) -> None:
    """Where the others of its switch need nothing from host memory, their batches are copied all the same."""
    model = StepModel(cluster(), trained(300))
    shards = placed(model, DDR_CACHED, ranks)
    evaluation = model.evaluate(shards)
    played_s = simulate(model.topology, model.workload, shards, steps=1).step_s
    assert evaluation.step_s == pytest.approx(played_s, rel=0.05)
    assert evaluation.stage_seconds[model.stages.index(COPY_CONTENTION)] > 0.1 * played_s


def test_no_row_waits_where_nothing_is_copied_beside_it() -> None:
    """Without a pipeline the copy comes first; ids that arrive at their shards are not copied; and where the host's
    work outlasts the copy, nothing is left of it."""
    for fields in ({"pipeline": "none"}, {"software": "distributed-embeddings"}):
        assert COPY_CONTENTION not in StepModel(cluster(), trained(400, **fields)).stages
    assert COPY_CONTENTION not in StepModel(cluster(), trained(1)).stages
    model = StepModel(cluster(), trained(400))
    for tier in (HBM, SSD_CACHED):
        waits = model.evaluate(placed(model, tier)).stage_seconds[model.stages.index(COPY_CONTENTION)]
        assert waits == 0


def test_the_law_by_hand() -> None:
    """Two ranks over a switch: twice the time. One with a slow link of its own: longer by the copy's share of it."""
    assert waited_s(np.array([3.0]), np.array([1.0]), 2)[0] == 2 * 3
    assert waited_s(np.array([1.0]), np.array([5.0]), 1)[0] == 1


def test_more_work_and_slower_links_wait_longer() -> None:
    """At one placement: more ids, more reads, a slower switch, more ranks on it; no tolerance."""
    links = topology_with_rates((31.5, 25.0, 10.0, 4.0))
    for seconds in (
        [step_s(cluster(), trained(ids)) for ids in (1, 20, 40, 80, 160, 320)],
        [step_s(cluster(), trained(100, pooling=pooling)) for pooling in (1, 2, 4, 8, 16)],
        [step_s(cluster(ranks), trained(100)) for ranks in (1, 2, 4)],
        [step_s(each, trained(100)) for each in links],
    ):
        assert seconds == sorted(seconds)


def topology_with_rates(gigabytes_per_s: tuple[float, ...]) -> Iterator[Topology]:
    """The cluster with PCIe links of these rates."""
    for rate in gigabytes_per_s:
        group = node_group("a", ranks=4, ranks_per_switch=4, ddr_bytes=1e12, ssd_bytes=1e13, hbm_bytes=1e11)
        links = dict(group["links"])  # type: ignore[call-overload]
        yield topology(group | {"links": links | {"pcie": links["pcie"] | {"bandwidth": f"{rate}GB/s"}}})


def step_s(each: Topology, of: Workload) -> float:
    model = StepModel(each, of)
    return model.evaluate(placed(model, DDR_CACHED)).step_s


@pytest.mark.parametrize("ids", [400, 700])
def test_the_bound_holds_at_both_lines(ids: int) -> None:
    """The fastest placement by brute force, at each line of what rows wait, is between the bound and the plan, which
    has a stage for it."""
    table = {"rows": 1_000_000, "dim": 32, "pooling_factor": 8, "zipf_alpha": 0.6}
    short = {"rows": 100, "dim": 4, "pooling_factor": ids}
    small = workload([table, table, short], global_batch=SAMPLES)
    policy = Policy.model_validate({"shardings": ["table_wise"], "tiers": ["ddr_cached", "ddr"]})
    model = StepModel(topology(node_group("a", ranks_per_switch=2, ddr_bytes=1e11, hbm_bytes=1e11)), small)
    formulation = Formulation.of(model, policy)
    best = [optimum(formulation.at_protocols(each).problem) for each in model.all_protocols]
    least_s = model.whole_step_s(min(each.step_s for each in best if each is not None))
    pipeline = Pipeline(policy, SearchLimits(gap=0.0))
    found = pipeline.assembled(pipeline.solved(formulation))
    assert found.objective is not None
    assert found.objective.lower_bound_s <= least_s * (1 + 1e-9)
    assert least_s <= found.objective.step_s * (1 + 1e-9)
    assert COPY_CONTENTION in [stage.name for stage in found.stages]
    assert verify(found) == []


def test_rows_wait_for_the_copy_of_one_batch_however_many_variants_there_are():
    """Ids come once, whichever variant of a table is chosen: the law of the wait is that of the tables as stated."""
    stated = trained(400)
    model = StepModel(cluster(), stated)
    twice = stated.with_tables(tuple(table for table in stated.tables for _ in range(2)))
    costed = model.compressed_as(twice, np.repeat(np.arange(len(stated.tables)), 2))
    assert costed.lines_of(COPY_CONTENTION) == model.lines_of(COPY_CONTENTION)
