"""Coefficients of a device by software: kernels of pooled tables that were measured on it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.one_gpu.laws import off
from benchmarks.one_gpu.torchrec_report import elsewhere, steps
from cost_models.coefficients import (
    USER_DIRECTORY,
    DeviceCoefficients,
    device_coefficients,
    forget,
    kernel_files,
    names_of_files,
    software_coefficients,
)
from cost_models.error_bars import error_90
from cost_models.loads import Loads
from cost_models.lookup import Lookup
from cost_models.resources import DEVICE
from cost_models.shards import COLUMN_WISE, HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.demand import Counter
from cost_models.simulator.shard_counts import ShardCounts
from cost_models.software import software_of
from cost_models.step import StepModel
from cost_models.step_error_bars import error_bars
from cost_models.workload.models import Workload
from planner.document.provenance import coefficient_sources
from planner.reports.coefficients import records
from topologies.errors import InputError
from topologies.loading import load_topology

H100 = "H100-SXM5-80GB"
SAME_CHIP = ("H800-SXM5-80GB", "H200-SXM-141GB", "H200-NVL-141GB")
ROWS, DIM = 40_000_000, 128


def model_of(software: str, pooled: tuple[bool, ...] = (True, True), cluster: str = "dgx-h100") -> StepModel:
    """Tables of 20 GB, a batch of 65,536 with 20 ids of each, and next to no dense part."""
    of_table = {"rows": ROWS, "dim": DIM, "pooling_factor": 20}
    asked = {
        "name": "two tables",
        "global_batch": 65_536,
        "software": software,
        "tables": [{"name": f"t{i}", "pooled": each} | of_table for i, each in enumerate(pooled)],
        "embedding": {"optimizer": "rowwise_adagrad" if software == "torchrec" else "adagrad"},
        "dense": {"bottom_mlp": [], "top_mlp": [1]},
    }
    return StepModel(load_topology(cluster), Workload.model_validate(asked))


def whole(count: int) -> Blocks:
    """Tables in HBM, each in one block."""
    same = np.ones(count, dtype=int)
    return Blocks(np.arange(count), same * TABLE_WISE, same * HBM, same * DIM, np.zeros(count))


def step_s(model: StepModel) -> float:
    """Seconds of a step with a table on each of the first ranks."""
    count = len(model.workload.tables)
    ranks, rows, opens = np.arange(count), np.full(count, ROWS), np.ones(count, dtype=bool)
    return float(model.evaluate(PlacedShards(whole(count), ranks, rows, opens)).step_s)


def lookup_of(model: StepModel, blocks: Blocks) -> Lookup:
    """The costs of blocks on a rank."""
    return Lookup(model.tables, blocks, model.kinds[0], model.batching, model.coefficients.software)


def seconds(loads: Loads) -> np.ndarray:
    """[n] on the device of the rank that holds each block."""
    load = loads[DEVICE]
    return np.asarray(load.fixed + load.by_rows)


@pytest.mark.parametrize(
    ("software", "pooled", "cluster", "expected"),
    [
        ("hugectr", (True, True), "dgx-h100", "0x1.37b0bf94b3c91p-10"),
        ("distributed-embeddings", (True, True), "dgx-h100", "0x1.6710ab1e4e420p-8"),
        ("torchrec", (False, False), "dgx-h100", "0x1.8f9a7e6e2f4aep-7"),
        ("torchrec", (True, True), "h20-8", "0x1.15357b56c8b5bp-7"),
    ],
)
def test_only_the_software_the_tables_and_the_device_that_were_measured_have_other_costs(
    software: str, pooled: tuple[bool, ...], cluster: str, expected: str
) -> None:
    """Steps by the coefficients of the device and the software, to the bit, whatever the kernels have of their own."""
    assert step_s(model_of(software, pooled, cluster)).hex() == expected


def test_a_file_of_kernels_says_nothing_but_of_lookups() -> None:
    """Of a software and a device that there are; what else the device does is as it was."""
    assert kernel_files() == [(device, "torchrec") for device in (H100, *SAME_CHIP)]
    for device, software in kernel_files():
        assert device in (*names_of_files("devices"), *SAME_CHIP)
        assert software in names_of_files("software")
        plain, own = device_coefficients(device), device_coefficients(device, software)
        assert own.name == device
        assert own.kernels_of == software
        changed = {name for name in DeviceCoefficients.model_fields if getattr(own, name) != getattr(plain, name)}
        assert all(
            name.startswith(("lookup_", "update_", "l2_")) for name in changed - {"kernels_of", "same_chip", "name"}
        )
    for other in (None, "hugectr", "distributed-embeddings"):
        assert device_coefficients(H100, other) == device_coefficients(H100)
    assert device_coefficients("H20-SXM-96GB", "torchrec") == device_coefficients("default")


def test_a_shipped_rate_of_kernels_is_a_share_of_the_memory_that_a_topology_states() -> None:
    """Half the bandwidth: the bytes take twice as long, and the rest as long as before."""
    times = []
    for factor in (1.0, 0.5):
        rate = f"nodes.0.accelerators.hbm.bandwidth={3.35e12 * factor / 1e12}TB/s"
        cluster = load_topology("dgx-h100", overrides=[rate])
        model = StepModel(cluster, model_of("torchrec").workload)
        times.append(float(seconds(lookup_of(model, whole(2)).forward())[0]))
    per_row_s = 65_536 * (20 * 1.397e-11 + 2.429e-10)
    assert times[1] - per_row_s == pytest.approx(2 * (times[0] - per_row_s), rel=1e-9)


def test_a_device_of_the_same_chip_differs_in_its_memory_alone() -> None:
    """Bytes go at its own rate, and all else as on the device that was measured; how far off that is, is not known."""
    times = {}
    for cluster in ("dgx-h100", "h800-8", "dgx-h200"):
        model = StepModel(load_topology(cluster), model_of("torchrec").workload)
        times[cluster] = float(seconds(lookup_of(model, whole(2)).forward())[0])
    per_row_s = 65_536 * (20 * 1.397e-11 + 2.429e-10)
    assert times["h800-8"] == times["dgx-h100"]
    assert times["dgx-h200"] - per_row_s == pytest.approx((times["dgx-h100"] - per_row_s) * 3.35 / 4.8, rel=1e-9)
    shown = records("H200-SXM-141GB")
    assert {record["file"] for record in shown} >= {"H200-SXM-141GB", "H200-SXM-141GB (kernels of torchrec)"}
    assert {record["residual_90"] for record in shown if record["coefficient"] == "update_row_s"} == {0.68}


def test_bands_of_lookups_are_wider_the_less_is_measured_of_their_kernels() -> None:
    """On the device itself, on one of its chip, on another; of a software without such data they are as they were."""
    unknown = {
        "dgx-h100": [],
        "dgx-h200": ["device H200-SXM-141GB"],
        "h20-8": ["device H20-SXM-96GB"],
        "dgx-a100-80": ["kernels of torchrec on A100-SXM4-80GB"],
    }
    found: dict[str, list[float]] = {}
    for cluster in unknown:
        for software in ("torchrec", "hugectr"):
            model = model_of(software, cluster=cluster)
            placed = PlacedShards(whole(2), np.arange(2), np.full(2, ROWS), np.ones(2, dtype=bool))
            bars = error_bars(model, placed, model.evaluate(placed))
            found.setdefault(software, []).append(bars.stages[model.stages.index("lookup_forward")].width)
            if software == "torchrec":
                assert set(bars.step.spec_only) >= set(unknown[cluster])
    measured, sibling, other, ampere = found["torchrec"]
    assert measured < sibling < 0.7 < 1.3 < min(other, ampere)
    assert max(found["hugectr"]) < 0.3


def test_errors_elsewhere_are_those_of_the_device_without_its_kernels(tmp_path: Path) -> None:
    """Of cases that were measured on an H100, beside what other devices would be predicted by."""
    table = elsewhere(tmp_path)
    software = software_coefficients("torchrec")
    assert software.lookup_elsewhere_90 is not None
    assert software.update_elsewhere_90 is not None
    for row_bytes, error in software.lookup_elsewhere_90.points:
        assert error == pytest.approx(table.loc[row_bytes, "forward"], rel=0.03)
    assert software.update_elsewhere_90.value == pytest.approx(table.loc["all", "backward"], abs=0.01)
    assert device_coefficients(H100, "torchrec").kernels_of == "torchrec"


def test_the_host_of_another_machine_may_be_as_much_faster_as_one_was() -> None:
    """The band of the overhead holds steps of next to no work that were measured with an H100's host; that of a stated
    overhead is exact."""
    rows = steps()
    ratios = (rows.predicted_host_s / rows.step_s)[rows.batch == 64]
    own = software_coefficients("torchrec").step_overhead_s
    within = np.mean(off(ratios.to_numpy(), np.ones(len(ratios))) <= error_90(own, H100, {}))
    assert 0.85 <= within <= 0.95
    assert error_90(own, "A100-SXM4-80GB", {}) == own.residual_90
    stated = model_of("torchrec").workload.model_copy(update={"overhead": 0.003})
    assert error_90(software_of(stated).step_overhead_s, H100, {}) == 0


def test_tables_beside_each_other_have_the_kernels_of_their_own() -> None:
    """One that is pooled and one that is not cost what they cost among their like; the simulator counts the same."""
    both, blocks = model_of("torchrec", (True, False)), whole(2)
    found = lookup_of(both, blocks)
    zeros, ones = np.zeros(2, dtype=np.int64), np.ones(2, dtype=bool)
    placed = PlacedShards(blocks, zeros, both.tables.rows, ones)
    counts = ShardCounts(both.tables, placed, len(both.kind_of_rank), both.batching.global_samples)
    demand = Counter(counts, both.kinds, both.kind_of_rank, software_coefficients("torchrec")).count()
    alike = [lookup_of(model_of("torchrec", (each, each)), blocks) for each in (True, False)]
    for way, played in (("forward", demand.forward_s), ("backward", demand.backward_s)):
        own = seconds(getattr(found, way)())
        expected = [seconds(getattr(lookup, way)())[i] for i, lookup in enumerate(alike)]
        assert own.tolist() == expected
        assert np.asarray(played).sum() == pytest.approx(own.sum(), rel=1e-9)
    assert found.id_sort()[0] == 0 < found.id_sort()[1]


def test_cutting_a_table_into_blocks_costs() -> None:
    """Eight blocks of 16 columns take both passes at least twice as long as 128 columns; an A100, where nothing of it
    was measured, says nearly the same time."""
    cut = Blocks(*(np.repeat(each, 8) for each in ([0], [COLUMN_WISE], [HBM], [16], [0.0])))
    times = {}
    for cluster in ("dgx-h100", "dgx-a100-80"):
        model = model_of("torchrec", cluster=cluster)
        one, eight = (
            sum(float(seconds(loads)[: len(blocks)].sum()) for loads in (lookup.forward(), lookup.backward()))
            for blocks in (whole(1), cut)
            for lookup in [lookup_of(model, blocks)]
        )
        times[cluster] = eight / one
    assert times["dgx-h100"] > 2 > 1.5 > times["dgx-a100-80"]


@pytest.fixture
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of a user's coefficients, as it is inside the test."""
    monkeypatch.setenv(USER_DIRECTORY, str(tmp_path))
    yield tmp_path
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize(
    ("stated", "has_shipped_kernels"),
    [
        ("lookup_efficiency: {value: 0.3, unit: share, kind: measured, source: mine}\n", False),
        ("update_launch_s: {value: 1.0e-5, unit: seconds, kind: measured, source: mine}\n", False),
        ("pcie_efficiency: {value: 0.3, unit: share, kind: measured, source: mine}\n", True),
    ],
)
def test_lookups_that_a_user_states_stand_before_shipped_kernels(
    stated: str, has_shipped_kernels: bool, own_files: Path
) -> None:
    """All of them, as those shipped are of one fit; what is stated of other things leaves them."""
    shipped = device_coefficients(H100, "torchrec")
    (own_files / "own.yaml").write_text(f"name: {H100}\n{stated}")
    forget()
    mine = device_coefficients(H100, "torchrec")
    assert (mine.kernels_of == "torchrec") is has_shipped_kernels
    name = stated.partition(":")[0]
    assert getattr(mine, name).source == "mine"
    for each in ("lookup_row_s", "update_passes_per_lookup"):
        assert getattr(mine, each) == (getattr(shipped, each) if has_shipped_kernels else None)


def test_a_file_of_a_user_may_name_the_chip_of_a_shipped_device(own_files: Path) -> None:
    """It gives what the file leaves out; a device that has no file is refused by name, as is a list of devices."""
    (own_files / "own.yaml").write_text("name: MINE\nsame_chip_as: A100-SXM4-80GB\n")
    forget()
    assert device_coefficients("MINE").lookup_efficiency == device_coefficients("A100-SXM4-80GB").lookup_efficiency
    for key, words in (("same_chip_as: NEW-1", "'NEW-1' is no device"), ("same_chip: [NEW-1]", "same_chip_as")):
        (own_files / "own.yaml").write_text(f"name: MINE\n{key}\n")
        forget()
        with pytest.raises(InputError, match=words):
            device_coefficients("MINE")


def test_plans_and_pages_name_the_kernels() -> None:
    """Where a plan says which coefficients it was made with, and among the records of the device."""
    pooled, both, others = (model_of("torchrec", each) for each in ((True, True), (True, False), (False, False)))
    label = f"{H100} (kernels of torchrec)"
    assert coefficient_sources(pooled.coefficients).devices == (label,)
    assert coefficient_sources(both.coefficients).devices == (label, H100)
    assert coefficient_sources(others.coefficients).devices == (H100,)
    of_kernels = [record for record in records(H100) if record["file"] == label]
    assert {"lookup_vector_s", "update_row_s"} <= {record["coefficient"] for record in of_kernels}
    assert "flop_utilization" not in {record["coefficient"] for record in of_kernels}
