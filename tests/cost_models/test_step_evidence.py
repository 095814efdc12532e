"""What measured steps say of a step: more on their own system, less on a new combination, least on new parts."""

import numpy as np
import pytest

from cost_models.coefficients import software_coefficients
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.step import StepModel
from cost_models.step_evidence import GUARANTEED_BY, Told, told_by_steps
from cost_models.workload.loading import load_workload
from topologies.loading import load_topology

EVIDENCE = software_coefficients("hugectr").steps
ERRORS = {each.part: each.error_90 for each in EVIDENCE.left_out} if EVIDENCE else {}


def told(topology: str, batch_each: int, *overrides: str) -> Told:
    """Of DLRM-DCNv2 with HugeCTR, whole tables dealt to the ranks in turn."""
    cluster = load_topology(topology, overrides=overrides)
    model = StepModel(cluster, load_workload("dlrm-dcnv2", global_batch=batch_each * cluster.world_size))
    table = np.arange(len(model.tables.rows))
    n = len(table)
    blocks = Blocks(table, np.full(n, TABLE_WISE), np.full(n, HBM), model.tables.dim, np.zeros(n))
    placed = PlacedShards(blocks, table % cluster.world_size, model.tables.rows, np.ones(n, dtype=bool))
    assert EVIDENCE is not None
    return told_by_steps(model, placed, EVIDENCE, "hugectr")


@pytest.mark.parametrize(
    ("topology", "overrides"),
    [
        ("dgx-h100", ["nodes.0.count=1"]),
        ("dgx-h100", ["nodes.0.count=8"]),
        ("dgx-h100", ["nodes.0.count=16"]),
        ("hgx-b200", ["nodes.0.count=2"]),
        ("gb200-nvl72", ["nodes.0.count=2"]),
    ],
    ids=str,
)
def test_a_system_that_was_measured(topology: str, overrides: list[str]) -> None:
    """The residual of whole steps, and no more."""
    own = told(topology, 4096, *overrides)
    assert own.error_90 == pytest.approx(EVIDENCE.residual_90)
    assert own.is_enough
    assert "on such hardware" in own.words


def test_a_new_combination_of_parts_that_were_measured() -> None:
    """Eight nodes of B200: chip, links and size are known, not together; the band is that between systems."""
    new = told("hgx-b200", 4096, "nodes.0.count=8")
    assert new.error_90 == pytest.approx(ERRORS["combination"])
    assert new.is_enough
    assert f"{len(EVIDENCE.systems)} other systems of such parts" in new.words
    assert "guarantee" not in new.words


def test_a_new_number_of_ranks_says_how_few_were_measured() -> None:
    """Four nodes of H100: 32 ranks are between those measured; five sizes guarantee nothing, and the basis says so."""
    new = told("dgx-h100", 4096, "nodes.0.count=4")
    assert new.error_90 == pytest.approx(max(ERRORS["combination"], ERRORS["ranks"]))
    assert "5 sizes give no guarantee" in new.words


@pytest.mark.parametrize(
    ("topology", "overrides", "part", "words"),
    [
        ("dgx-h100", ["nodes.0.accelerators.device=NEW-1"], "device", "6 devices give no guarantee"),
        ("dgx-h100", ["nodes.0.links.scale_up.kind=nvlink9"], "link", "4 links give no guarantee"),
        ("dgx-h100", ["nodes.0.count=8", "nodes.0.links.scale_out.kind=roce"], "network", "2 networks give no"),
    ],
)
def test_a_new_part_is_left_to_the_terms(topology: str, overrides: list[str], part: str, words: str) -> None:
    """What was measured elsewhere bounds nothing alone: at least its own error, and the terms on top of it."""
    new = told(topology, 4096, *overrides)
    assert new.error_90 == pytest.approx(ERRORS[part])
    assert not new.is_enough
    assert "on other hardware or tiers only" in new.words
    assert words in new.words


def test_a_band_is_never_narrower_where_less_is_known() -> None:
    """Seen, then a new combination, then a new device."""
    assert EVIDENCE.residual_90 < ERRORS["combination"] < ERRORS["device"]


def test_only_nine_groups_or_more_give_a_guarantee() -> None:
    """With ten groups the worst of nine bounds the tenth in nine of ten cases; with nine groups it is the first time
    that a rank of the conformal order exists at all."""
    assert int(np.ceil(0.9 * (GUARANTEED_BY + 1))) == GUARANTEED_BY
    assert int(np.ceil(0.9 * GUARANTEED_BY)) > GUARANTEED_BY - 1


@pytest.mark.parametrize("nodes", [2, 8, 16])
def test_sums_in_switches_were_not_measured(nodes: int) -> None:
    """No row states SHARP: what is known of a system says nothing of it with SHARP, whose sums have assumed rates."""
    plain, sharp = (
        told("dgx-h100", 4096, f"nodes.0.count={nodes}", *more) for more in ([], ["network.in_network_reduction=sharp"])
    )
    assert sharp.error_90 == pytest.approx(ERRORS["network"])
    assert sharp.error_90 > plain.error_90
    assert not sharp.is_enough
    assert "none with sums in switches (SHARP)" in sharp.words
    assert "SHARP" not in plain.words


def test_oversubscribed_switches_were_not_measured() -> None:
    """Nor does any row state them; a switch that holds the whole cluster is none between its nodes."""
    levels = "network={{levels: [{{name: leaf, nodes: {}, oversubscription: {}}}]}}"
    plain, narrow, whole, wide = (
        told("dgx-h100", 4096, "nodes.0.count=8", *more)
        for more in ([], [levels.format(2, 8)], [levels.format(8, 8)], [levels.format(2, 1)])
    )
    assert narrow.error_90 == pytest.approx(ERRORS["network"])
    assert not narrow.is_enough
    assert "none with oversubscribed switches" in narrow.words
    assert plain == whole == wide


def test_switches_that_sum_nothing_change_no_band() -> None:
    """One node, and a rack that is one domain, have no sums between domains."""
    for name, nodes in (("dgx-h100", 1), ("gb200-nvl72", 2)):
        both = [
            told(name, 4096, f"nodes.0.count={nodes}", *more) for more in ([], ["network.in_network_reduction=sharp"])
        ]
        assert both[0] == both[1]


_H100, _PCIE = ("dgx-h100", "nodes.0.count=8"), ("h100-pcie-8", "nodes.0.count=1")


@pytest.mark.parametrize(
    ("system", "override", "part", "words"),
    [
        (_H100, "links.scale_out.bandwidth=5GB/s", "network", "infiniband of 5 GB/s for each accelerator"),
        (_H100, "links.scale_out.bandwidth=100GB/s", "network", "infiniband of 63 GB/s for each accelerator"),
        (_H100, "links.scale_out.count=4", "network", "infiniband of 25 GB/s for each accelerator"),
        (_H100, "links.pcie.bandwidth=20GB/s", "network", "infiniband of 20 GB/s for each accelerator"),
        (_H100, "links.scale_up.bandwidth=200GB/s", "link", "nvlink4 of 200 GB/s"),
        (_H100, "accelerators.hbm.bandwidth=2TB/s", "device", "HBM of 2 TB/s"),
        (_H100, "accelerators.flops.fp16=300TFLOP/s", "device", "300 TFLOP/s in fp16"),
        (_PCIE, "links.pcie.bandwidth=15GB/s", "link", "pcie of 15 GB/s"),
    ],
)
def test_another_rate_of_a_measured_kind_is_named(
    system: tuple[str, str], override: str, part: str, words: str
) -> None:
    """Each in turn: cards (their own rate, their number, and the links that they wait for), fabric, HBM, arithmetic."""
    name, nodes = system
    plain, new = told(name, 4096, nodes), told(name, 4096, nodes, f"nodes.0.{override}")
    assert plain.error_90 == pytest.approx(EVIDENCE.residual_90)
    assert new.error_90 == pytest.approx(ERRORS[part])
    assert not new.is_enough
    assert f"none with {words};" in new.words


@pytest.mark.parametrize(
    "override",
    [
        "links.scale_out.bandwidth=48GB/s",
        "links.scale_up.bandwidth=430GB/s",
        "accelerators.hbm.bandwidth=3.2TB/s",
        "accelerators.flops.fp16=950TFLOP/s",
        "accelerators.flops.fp8=1TFLOP/s",
        "accelerators.hbm.capacity=96GB",
    ],
)
def test_a_rate_that_is_near_or_not_used_changes_nothing(override: str) -> None:
    """Within a tenth; arithmetic in another format than the model's."""
    name, nodes = _H100
    assert told(name, 4096, nodes) == told(name, 4096, nodes, f"nodes.0.{override}")


def test_cards_that_nothing_crosses_have_no_rate() -> None:
    """On one node."""
    assert told("dgx-h100", 4096) == told("dgx-h100", 4096, "nodes.0.links.scale_out.bandwidth=1GB/s")


def test_rates_of_two_systems_together_are_a_new_combination() -> None:
    """PCIe at the rate of the L40s' beside an H100 that had twice of it: either was measured, not both."""
    name, nodes = _PCIE
    new = told(name, 4096, nodes, "nodes.0.links.pcie.bandwidth=31.5GB/s")
    assert new.error_90 == pytest.approx(ERRORS["combination"])
    assert "other systems of such parts" in new.words
