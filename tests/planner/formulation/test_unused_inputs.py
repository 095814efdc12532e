"""What files state and no step depends on is said; what a step depends on is not."""

from typing import Any

import pytest

from planner import plan, verify
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from planner.formulation.unused_inputs import unused_of_ingestion, unused_of_tables
from tests.oracles.instances import node_group
from topologies.cluster import Topology

TABLES = [{"name": "t", "rows": 1000, "dim": 16, "pooling_factor": 2.0}]
ANY, EXCHANGED = Policy(), Policy(shardings=("table_wise", "row_wise"))
LAYERS: dict[str, Any] = {"bottom_mlp": [16], "top_mlp": [8, 1], "numerical_features": 4}


def planned(
    dense: dict[str, Any],
    *,
    nodes: int = 1,
    links: dict[str, dict[str, Any] | None] | None = None,
    policy: Policy = ANY,
) -> Plan:
    """A quick plan with some fields of the dense part, and of links, as stated."""
    from cost_models.workload.models import Workload

    group = node_group("g", nodes=nodes)
    for name, fields in (links or {}).items():
        if fields is None:
            del group["links"][name]  # type: ignore[attr-defined]
        else:
            group["links"].setdefault(name, {}).update(fields)  # type: ignore[attr-defined]
    workload = Workload.model_validate({"name": "w", "global_batch": 64, "tables": TABLES, "dense": dense})
    topology = Topology.model_validate({"name": "c", "nodes": [group]})
    return plan(topology, workload, policy=policy, effort=0, solver="search", simulate=True)


@pytest.mark.parametrize(
    ("dense", "key"),
    [
        (LAYERS | {"dcn_layers": 2}, "dense.dcn_layers"),
        (LAYERS | {"dcn_low_rank": 8}, "dense.dcn_low_rank"),
        (LAYERS | {"pool_stride": 2}, "dense.pool_stride"),
        (LAYERS | {"optimizer": "sgd", "optimizer_state": "bf16"}, "dense.optimizer_state"),
        ({"macs_per_sample": 100, "parameters": 10, "interaction": "dcn"}, "dense.interaction"),
        (LAYERS | {"sharding": {"strategy": "replicate", "over": "node"}}, "dense.sharding.over"),
    ],
)
def test_a_key_without_effect_is_said_and_changes_nothing(dense: dict[str, Any], key: str) -> None:
    """Left out, the step is the same to the last bit; stated, the plan names the key, and verifies."""
    name = key.split(".")[1]
    found, without = planned(dense), planned({each: value for each, value in dense.items() if each != name})
    assert found.objective is not None
    assert without.objective is not None
    assert found.objective.step_s == without.objective.step_s
    assert [words.split()[0] for words in found.provenance.warnings] == [key]
    assert without.provenance.warnings == ()
    assert not verify(found)


@pytest.mark.parametrize(
    "dense",
    [
        LAYERS | {"interaction": "dcn", "dcn_layers": 2, "dcn_low_rank": 8},
        LAYERS | {"interaction": "pool", "pool_stride": 2},
        LAYERS | {"optimizer": "adam", "optimizer_state": "bf16"},
        LAYERS | {"sharding": {"strategy": "zero1", "over": "node"}},
    ],
)
def test_a_key_with_effect_is_not_warned_of(dense: dict[str, Any]) -> None:
    """The same keys, where they count."""
    assert planned(dense).provenance.warnings == ()


def test_a_latency_whose_place_a_measured_one_takes_is_said() -> None:
    """Of links that NCCL was measured over the stated latency is not used, and the plan says so."""
    slow = planned(LAYERS, links={"scale_up": {"kind": "nvlink3", "latency": "50us"}})
    usual = planned(LAYERS, links={"scale_up": {"kind": "nvlink3"}})
    assert slow.objective is not None
    assert usual.objective is not None
    assert slow.objective.step_s == usual.objective.step_s
    assert "links.scale_up.latency of the nodes g is not used" in slow.provenance.warnings[0]
    assert usual.provenance.warnings == ()


def test_a_latency_of_pcie_is_said_to_be_without_effect_beside_a_fabric() -> None:
    """It is of exchanges where accelerators reach each other over PCIe; there it counts."""
    pcie: dict[str, dict[str, Any]] = {"pcie": {"bandwidth": "25GB/s", "latency": "90us"}}
    beside = planned(LAYERS, links=pcie | {"scale_up": {"kind": "nvlink3"}})
    assert beside.provenance.warnings == (
        "links.pcie.latency of the nodes g is not used: accelerators reach each other over nvlink3, and no"
        " storage-class memory waits for it",
    )
    alone = planned(LAYERS, links=pcie | {"scale_up": None})
    assert alone.provenance.warnings == ()


def test_a_latency_of_the_front_end_is_said_to_be_without_effect() -> None:
    """Rows of remote hosts wait for the latency that stands beside these."""
    cards = {"kind": "ethernet", "count": 1, "bandwidth": "100Gb/s", "latency": "1ms"}
    assert "links.front_end.latency" in planned(LAYERS, links={"front_end": cards}).provenance.warnings[0]


@pytest.mark.parametrize("nodes", [1, 2])
def test_an_unmeasured_latency_is_waited_for_in_domains_and_between_them(nodes: int) -> None:
    """Estimate and simulation grow by as much, also where exchanges leave the domain: no exchange ends before its part
    inside."""
    slow, quick = (
        planned(LAYERS, nodes=nodes, links={"scale_up": {"kind": "of-my-own", "latency": latency}}, policy=EXCHANGED)
        for latency in ("900us", "500us")
    )
    assert slow.provenance.warnings == ()
    estimated = [each.objective.step_s for each in (slow, quick) if each.objective is not None]
    played = [each.simulated.step_s for each in (slow, quick) if each.simulated is not None]
    assert estimated[0] - estimated[1] > 2 * 390e-6
    assert played[0] - played[1] == pytest.approx(estimated[0] - estimated[1], rel=0.02)


def test_a_group_of_features_in_which_nothing_repeats_is_said() -> None:
    """Lists that repeat are pooled once; with a factor they do."""
    from cost_models.workload.models import Workload

    def said(**fields: object) -> tuple[str, ...]:
        tables = [dict(each, **fields) for each in TABLES]
        workload = Workload.model_validate({"name": "w", "global_batch": 64, "tables": tables})
        return tuple(unused_of_tables(workload))

    (words,) = said(dedup_group="user")
    assert words == "dedup_group of 't' is not used: no dedup_factor or duplicate_share says what repeats"
    assert said(dedup_group="user", dedup_factor=2.0) == ()
    assert said(dedup_group="user", samples_per_session=4.0, duplicate_share=0.5) == ()


def test_work_of_readers_whose_rate_is_not_stated_is_said() -> None:
    """A share of nothing; with a rate it counts, and the usual share is not told from one left out."""
    from cost_models.workload.models import Workload

    def said(**fields: object) -> tuple[str, ...]:
        stated = {"name": "w", "global_batch": 64, "tables": TABLES, "ingestion": fields}
        return tuple(unused_of_ingestion(Workload.model_validate(stated)))

    assert said(work_by_ids=0.2) == (
        "ingestion.work_by_ids is not used: it is of reader_samples_per_s, which is missing",
    )
    assert said(work_by_ids=0.2, reader_samples_per_s=1e5) == ()
    assert said(stored_bytes_per_sample="1kB") == ()


def test_a_reserve_of_a_memory_that_there_is_not_is_said() -> None:
    """By its name; of one that there is nothing is said."""
    policy = Policy.model_validate({"reserve": {"hbm": "1%", "ddr": "1GB", "ssd": "1GB"}})
    found = planned({}, policy=policy)
    assert found.provenance.warnings == ("reserve.ssd of the policy is not used: c has no ssd",)
    assert not verify(found)


@pytest.mark.parametrize(
    ("nodes", "mode", "said"),
    [
        (1, "training", "nothing is summed over the network, as all ranks are in one domain"),
        (2, "inference", "no gradients are summed where nothing is trained"),
        (2, "training", None),
    ],
)
def test_switches_that_sum_nothing_are_said(nodes: int, mode: str, said: str | None) -> None:
    """SHARP is of gradients that cross the network."""
    from cost_models.workload.models import Workload

    stated = {"name": "c", "nodes": [node_group("g", nodes=nodes)], "network": {"in_network_reduction": "sharp"}}
    stated["nodes"][0]["links"]["scale_out"]["kind"] = "infiniband"  # type: ignore[index]
    workload = Workload.model_validate({"name": "w", "mode": mode, "global_batch": 64, "tables": TABLES, "dense": {}})
    found = plan(Topology.model_validate(stated), workload, effort=0, solver="search")
    expected = () if said is None else (f"network.in_network_reduction is not used: {said}",)
    assert found.provenance.warnings == expected
    assert not verify(found)
