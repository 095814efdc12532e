"""What more of a resource would bring: the step of a cluster that has it, written out by hand, and nothing invented."""

from typing import Any

import numpy as np
import pytest

from cost_models.model import CostModel
from cost_models.registry import COST_MODELS
from cost_models.shards import DDR, HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner.diagnosis.sensitivity import GROWTH, LEAST_GAIN, RESOURCES, Gain, deduplication, describe, gains
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology

RANKS = 4
PATHS: dict[str, tuple[str, ...]] = {
    "HBM bandwidth": ("accelerators", "hbm", "bandwidth"),
    "scale-up bandwidth": ("links", "scale_up", "bandwidth"),
    "scale-out bandwidth": ("links", "scale_out", "bandwidth"),
    "PCIe bandwidth": ("links", "pcie", "bandwidth"),
    "DDR bandwidth": ("host", "ddr", "bandwidth"),
}
"""Where each rate stands in a topology."""


def _group(**fields: Any) -> dict[str, Any]:
    return node_group("g", nodes=2, ranks=2, hbm_bytes=80e9, ddr_bytes=1e12, **fields)


def _faster(group: dict[str, Any], *path: str) -> dict[str, Any]:
    """The plain data of a node group with a tenth more of one rate."""
    name, *rest = path
    if rest:
        return {**group, name: _faster(group[name], *rest)}
    number = float(str(group[name]).removesuffix("B/s").removesuffix("G"))
    unit = 1e9 if str(group[name]).endswith("GB/s") else 1.0
    return {**group, name: f"{number * unit * 1.1:.0f}B/s"}


def _tables(dim: int = 64, **fields: Any) -> Workload:
    profiles = [{"rows": 2_000_000, "dim": dim, "pooling_factor": 20}] * RANKS
    return workload(profiles, global_batch=65_536, software="torchrec", **fields)


def _whole(model: CostModel, tier: int = HBM) -> PlacedShards:
    """Each table whole on a rank of its own."""
    each = np.arange(RANKS)
    blocks = Blocks(each, each * 0 + TABLE_WISE, each * 0 + tier, model.tables.dim, np.zeros(RANKS))
    return PlacedShards(blocks, each, model.tables.rows, np.ones(RANKS, dtype=bool))


def _step_s(cluster: Topology, trained: Workload, tier: int = HBM) -> float:
    model = StepModel(cluster, trained)
    return model.evaluate(_whole(model, tier)).step_s


@pytest.mark.parametrize("tier", [HBM, DDR])
@pytest.mark.parametrize("fields", [{}, {"nic_bytes_per_s": 1e9}, {"hbm_bytes_per_s": 5e10}])
def test_a_gain_is_the_step_of_a_cluster_that_has_more(tier: int, fields: dict[str, float]) -> None:
    """Each rate written a tenth larger in the topology gives the step that is told; what is left out brings nothing."""
    group, trained = _group(**fields), _tables()
    model = StepModel(topology(group), trained)
    told = {gain.resource: gain for gain in gains(model, _whole(model, tier))}
    now_s = _step_s(topology(group), trained, tier)
    assert told
    for resource, path in PATHS.items():
        grown_s = _step_s(topology(_faster(group, *path)), trained, tier)
        if resource in told:
            assert told[resource].step_s == pytest.approx(grown_s, rel=1e-9)
            assert told[resource].saved == pytest.approx(1 - grown_s / now_s, rel=1e-6)
        else:
            assert grown_s >= now_s * (1 - LEAST_GAIN) * (1 - 1e-9)


def test_gains_come_in_their_order_and_above_the_least() -> None:
    """The largest first, each worth a word."""
    model = StepModel(topology(_group()), _tables())
    found = gains(model, _whole(model))
    assert [gain.saved for gain in found] == sorted((gain.saved for gain in found), reverse=True)
    assert all(gain.saved > LEAST_GAIN for gain in found)
    assert {gain.resource for gain in found} <= set(RESOURCES)


@pytest.mark.parametrize(
    ("group", "absent"),
    [
        (_group(has_scale_up=False), "scale-up bandwidth"),
        (node_group("g", ranks=4, ddr_bytes=None), "DDR bandwidth"),
        (_group(), "SSD bandwidth"),
        (_group(), "SCM bandwidth"),
        (_group(), "front-end bandwidth"),
        (_group(), "bandwidth of remote hosts' cards"),
    ],
)
def test_a_cluster_gains_nothing_from_what_it_lacks(group: dict[str, Any], absent: str) -> None:
    """A resource without a description is not named."""
    model = StepModel(topology(group), _tables())
    assert absent in RESOURCES
    assert absent not in {gain.resource for gain in gains(model, _whole(model))}


@pytest.mark.parametrize("name", COST_MODELS)
def test_every_cost_model_gains(name: str) -> None:
    """Ratings add up all resources of a rank: more of one is never worse."""
    model = COST_MODELS[name](topology(_group()), _tables())
    now = model.evaluate(_whole(model))
    for gain in gains(model, _whole(model)):
        assert gain.step_s < now.step_s


def test_words_name_the_first_and_two_more() -> None:
    """One sentence; of no gains, that nothing would help."""
    cluster = topology(_group())
    some = [Gain("a", 1.0, 0.3), Gain("b", 1.0, 0.2), Gain("c", 1.0, 0.1), Gain("d", 1.0, 0.05)]
    assert describe(some, cluster) == "+10% a would shorten the step by 30.0%; next b 20.0%, c 10.0%."
    assert describe(some[:1], cluster, "rating") == "+10% a would shorten the rating by 30.0%."
    assert describe([], cluster) == "10 % more of any one resource of tiny would not shorten the step."
    assert pytest.approx(0.1) == GROWTH


def _sessions(factor: float, group: str | None) -> Workload:
    fields = {"rows": 2_000_000, "dim": 64, "pooling_factor": 20, "dedup_group": group}
    return workload([{**fields, "dedup_factor": factor}] * RANKS, global_batch=65_536)


@pytest.mark.parametrize(
    ("group", "vectors"),
    [(None, 0.0), ("users", 0.75)],
)
def test_deduplication_saves_what_it_leaves_out(group: str | None, vectors: float) -> None:
    """A factor of 4 leaves a quarter of the lookups, of groups of features a quarter of the vectors, too; the step
    without it is that of the same tables with a factor of 1."""
    model = StepModel(topology(_group()), _sessions(4.0, group))
    found = deduplication(model, _whole(model))
    assert found is not None
    assert found.lookups == pytest.approx(0.75)
    assert found.vectors == pytest.approx(vectors)
    without_s = _step_s(topology(_group()), _sessions(1.0, group))
    assert found.step_s == pytest.approx(without_s)
    assert found.step == pytest.approx(1 - model.evaluate(_whole(model)).step_s / without_s)
    assert found.step > 0


def test_nothing_deduplicated_has_no_saving() -> None:
    """Of factors of 1 there is nothing to tell."""
    model = StepModel(topology(_group()), _sessions(1.0, "users"))
    assert deduplication(model, _whole(model)) is None


def test_links_that_cards_wait_for_are_what_helps() -> None:
    """Where they are slower than the cards whose traffic crosses them; more of the cards brings nothing."""
    from planner import plan
    from planner.document.planned import placed_shards, planned_model
    from topologies.loading import load_topology

    overrides = ["nodes.0.links.pcie.bandwidth=10GB/s"]
    found = plan(
        load_topology("dgx-h100", nodes=2, overrides=overrides), "dlrm-dcnv2", effort=0, gap=1.0, simulate=False
    )
    helpful = [gain.resource for gain in gains(planned_model(found), placed_shards(found))]
    assert helpful[0] == "PCIe bandwidth"
    assert "scale-out bandwidth" not in helpful
