"""The 90 % band of a prediction: from residuals, validity ranges and what was measured of the hardware."""

import numpy as np
import pytest

from cost_models.coefficients import Coefficient, ValidRange
from cost_models.error_bars import Cause, ErrorBars, band, combined, doublings_outside, error_90, outside
from cost_models.shards import DDR, DDR_CACHED, HBM, SSD_CACHED, STATE_PLACES, TABLE_WISE, Blocks, PlacedShards
from cost_models.stage_causes import is_measured
from cost_models.step import StepModel
from cost_models.workload.loading import load_workload
from topologies.loading import load_topology

WIDTHS = (ValidRange(quantity="row_bytes", low=64, high=512),)


def coefficient(**more: object) -> Coefficient:
    return Coefficient(value=1.0, unit="", kind="fitted", source="test", **more)


def bars_of(
    topology: str, *overrides: str, workload: tuple[str, ...] = (), tier: int = HBM, state: str = "with_table"
) -> ErrorBars:
    """Of whole tables dealt to the ranks in turn."""
    model, placed = dealt(topology, *overrides, workload=workload, tier=tier, state=state)
    return model.error_bars(placed)


def dealt(
    topology: str, *overrides: str, workload: tuple[str, ...] = (), tier: int = HBM, state: str = "with_table"
) -> tuple[StepModel, PlacedShards]:
    """Whole tables dealt to the ranks in turn."""
    model = StepModel(
        load_topology(topology, overrides=overrides), load_workload("dlrm-dcnv2", overrides=list(workload))
    )
    table = np.arange(len(model.tables.rows))
    n = len(table)
    apart = np.full(n, STATE_PLACES.index(state))  # type: ignore[arg-type]
    blocks = Blocks(table, np.full(n, TABLE_WISE), np.full(n, tier), model.tables.dim, np.zeros(n), state=apart)
    rank = table % len(model.kind_of_rank)
    return model, PlacedShards(blocks, rank, model.tables.rows, np.ones(n, dtype=bool))


def width_of(bars: ErrorBars, topology: str, stage: str) -> float:
    """That of a stage's band."""
    stages = StepModel(load_topology(topology), load_workload("dlrm-dcnv2")).stages
    return bars.stages[stages.index(stage)].width


def test_a_band_is_two_factors_around_the_prediction():
    """Its low end stays positive, however wide it is."""
    low, high = band([1e-3, 2e-3], [0.1, 3.0])
    assert low == pytest.approx([1e-3 / 1.1, 0.5e-3])
    assert high == pytest.approx([1.1e-3, 8e-3])


def test_doublings_beyond_a_range():
    """None inside, one per halving or doubling outside; several quantities add in squares."""
    assert doublings_outside([32, 64, 100, 512, 4096], (64, 512)).tolist() == [1, 0, 0, 0, 3]
    both = (*WIDTHS, ValidRange(quantity="ranks", low=8, high=8))
    assert outside(both, {"row_bytes": 4096, "ranks": 128}) == pytest.approx(5.0)
    assert outside(both, {"samples_per_rank": 1.0}) == 0


def test_an_error_grows_outside_the_range_and_on_other_devices():
    """Of the device it was fitted on the residual; of another one what is stated for those."""
    own = coefficient(residual_90=0.05, fitted_on=("A",), elsewhere_90=0.3, valid=WIDTHS)
    assert error_90(own, "A", {"row_bytes": 128}) == pytest.approx(0.05)
    assert error_90(own, "B", {"row_bytes": 128}) == pytest.approx(0.3)
    assert error_90(own, "A", {"row_bytes": 2048}) > error_90(own, "A", {"row_bytes": 1024}) > 0.05
    assert error_90(coefficient(), "A", {}) == pytest.approx(0.1)


def test_errors_of_one_name_add_up_and_others_are_independent():
    """As partial sums of the same coefficient move together."""
    causes = [
        Cause("x", "f", 0.3, 0.1, "fitted"),
        Cause("x", "f", 0.4, 0.1, "fitted"),
        Cause("y", "f", 0.3, 0.8, "spec"),
    ]
    assert combined(causes) == pytest.approx(np.hypot(0.07, 0.24))


def test_steps_like_the_measured_ones_have_a_narrow_band():
    """DLRM-DCNv2 by HugeCTR on a DGX H100: the residual of whole steps; wider at another batch, model or software."""
    like_mlperf = ("global_batch=55296",)
    measured = bars_of("dgx-h100", workload=like_mlperf).step
    assert measured.width == pytest.approx(0.034)
    assert "51 whole steps of hugectr" in measured.basis
    assert not measured.spec_only
    larger = bars_of("dgx-h100", workload=("global_batch=442368",)).step
    assert larger.width > 1.5 * measured.width
    other = bars_of("dgx-h100", workload=("global_batch=55296", "software=torchrec")).step
    assert other.width > 5 * measured.width


@pytest.mark.parametrize("stage", range(7))
def test_a_device_without_data_is_wide_and_labelled(stage: int):
    """Each stage of an unknown accelerator at least as wide as that of a known one, and none without its basis."""
    unknown = ("nodes.0.accelerators.device=NEW-1",)
    known_bars, new_bars = bars_of("dgx-h100"), bars_of("dgx-h100", *unknown)
    assert new_bars.stages[stage].width >= known_bars.stages[stage].width
    assert new_bars.stages[stage].basis


def test_unseen_hardware_is_named():
    """Device, link laws and network, each in words; the step's band is that of the terms on top."""
    new = ("nodes.0.accelerators.device=NEW-1",)
    step = bars_of("dgx-h100", *new).step
    assert "device NEW-1" in step.spec_only
    assert "link nvlink4 of NEW-1 (laws of h100_sxm)" in step.spec_only
    assert step.width > 4 * bars_of("dgx-h100").step.width
    ethernet = ("nodes.0.count=4", "nodes.0.links.scale_out.kind=ethernet")
    assert "network ethernet" in bars_of("dgx-h100", *ethernet).step.spec_only
    assert "network infiniband" not in bars_of("dgx-h100", "nodes.0.count=4").step.spec_only


def test_the_update_errs_as_what_was_measured_of_its_rows():
    """FBGEMM's update on an MI350 is off by up to 85 %: of its time nearly all is that of distinct rows."""
    assert width_of(bars_of("mi350x-8"), "mi350x-8", "lookup_backward") > 0.7
    assert width_of(bars_of("dgx-h200"), "dgx-h200", "lookup_backward") < 0.4


def test_siblings_do_not_contradict_each_other():
    """The later chip, or the one with more power, is not slower; of one software all bands overlap."""
    names, bars, steps = ("mi355x-8", "mi350x-8", "mi300x-8"), [], []
    for name in names:
        model, placed = dealt(name)
        steps.append(model.evaluate(placed).step_s)
        bars.append(model.error_bars(placed).step.around(steps[-1]))
    assert steps == sorted(steps)
    assert max(low for low, _ in bars) < min(high for _, high in bars)


def test_an_older_generation_of_link_is_wider_than_a_sibling():
    """Laws of another generation miss by tens of percent, those of a sibling on the same one by less."""
    sibling = bars_of("dgx-h100", "nodes.0.accelerators.device=NEW-1")
    generation = bars_of("dgx1-v100")
    assert width_of(generation, "dgx1-v100", "output_dist") > 2 * width_of(sibling, "dgx-h100", "output_dist")


def test_tables_in_host_memory_leave_what_was_measured():
    """No whole step with tables below HBM was measured."""
    assert bars_of("dgx-h100", tier=DDR).step.width > 3 * bars_of("dgx-h100").step.width


def test_state_apart_leaves_what_was_measured():
    """Whole steps had their state in HBM; updates over PCIe are known as those of tables in host memory are."""
    adam = ("global_batch=55296", "embedding.optimizer=adam")
    together = bars_of("dgx-h100", workload=adam)
    apart = bars_of("dgx-h100", workload=adam, state="ddr")
    assert "51 whole steps of hugectr" in together.step.basis
    assert "on other hardware or tiers only" in apart.step.basis
    assert apart.step.width > 2 * together.step.width
    assert "uvm_backward_passes_per_row" in apart.stages[-3].basis
    assert "uvm_backward_passes_per_row" not in together.stages[-3].basis


@pytest.mark.parametrize(("pipeline", "stage"), [("none", 1), ("prefetch", 0)])
def test_misses_err_as_what_they_come_from(pipeline: str, stage: int):
    """Of drives the data sheet, whichever of a rank or its node has to wait; never a network switch. Prefetched ones
    show beside the lookup, which comes first."""
    given = (f"pipeline={pipeline}", "software=torchrec")
    drives = bars_of("dgx-h100", workload=given, tier=SSD_CACHED).stages[stage]
    assert any(name.startswith("SSD of ") for name in drives.spec_only)
    assert "network switches" not in drives.spec_only


def test_rows_in_place_beside_prefetched_misses_err_as_the_link_that_they_cross():
    """Rows of cached tables that find no place in their cache are read and updated in place, and meet the next misses:
    where the update waits for that, the bar is that of PCIe and of rows in place."""
    overrides = ["software=torchrec", "pipeline=prefetch", "dense={macs_per_sample: 1000000, parameters: 100000}"]
    model = StepModel(load_topology("dgx-h100"), load_workload("dlrm-dcnv2", overrides=overrides))
    table = np.arange(len(model.tables.rows))
    share = np.full(len(table), 1e-5)
    blocks = Blocks(table, np.full(len(table), TABLE_WISE), np.full(len(table), DDR_CACHED), model.tables.dim, share)
    placed = PlacedShards(blocks, table % 8, model.tables.rows, np.ones(len(table), dtype=bool))
    stage = model.stages.index("lookup_backward")
    binding = model.evaluate(placed).binding[stage]
    assert binding is not None
    assert binding.ahead
    assert binding.kind in ("pcie", "ddr")
    assert "uvm" in model.error_bars(placed).stages[stage].basis


def test_a_rank_waits_for_each_memory_in_turn():
    """Misses from two memories on one rank: PCIe, and the data sheet of the drives, by their shares."""
    model = StepModel(load_topology("dgx-h100"), load_workload("dlrm-dcnv2", overrides=["software=torchrec"]))
    table = np.arange(len(model.tables.rows))
    tier = np.where(table % 2, SSD_CACHED, DDR_CACHED)
    blocks = Blocks(table, np.full(len(table), TABLE_WISE), tier, model.tables.dim, np.full(len(table), 0.05))
    placed = PlacedShards(blocks, np.zeros_like(table), model.tables.rows, np.ones(len(table), dtype=bool))
    evaluation, stage = model.evaluate(placed), model.stages.index("cache_fetch")
    assert (str(evaluation.binding[stage]), evaluation.critical_rank[stage]) == ("fetches", 0)
    bar = model.error_bars(placed).stages[stage]
    assert [name for name in bar.spec_only if "of dgx-h100" in name] == ["SSD of dgx-h100"]
    assert "cache_fetch_passes" in bar.basis


def test_what_counts_as_data_of_a_device():
    """Its own file, or a default that says it was fitted on it."""
    assert is_measured("lookup_efficiency", "H100-SXM5-80GB")
    assert is_measured("flop_utilization", "L40")
    assert not is_measured("flop_utilization", "NEW-1")
    assert not is_measured("ddr_efficiency", "H100-SXM5-80GB")
