"""The lookup: hand-computed seconds, and the order of the tiers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cost_models import coefficients
from cost_models.kinds import RankKind
from cost_models.loads import Loads
from cost_models.lookup import Lookup
from cost_models.resources import Resource
from cost_models.shards import COLUMN_WISE, DATA_PARALLEL, DDR, DDR_CACHED, HBM, SSD_CACHED, TABLE_WISE, Blocks
from cost_models.step import StepModel
from tests.oracles.instances import node_group, topology, workload

ROWS, DIM, IDS, BATCH = 1_000_000, 64, 10, 4096
LOOKUPS = BATCH * IDS


class Case:
    """One table on a node of two ranks; every placement tier as a block."""

    def __init__(self, tier: int, fraction: float = 0.0, *, sharding: int = TABLE_WISE, **table: object) -> None:
        fields = {name: table.pop(name) for name in ("embedding", "software") if name in table}
        profile = {"rows": ROWS, "dim": DIM, "pooling_factor": IDS, **table}
        self.model = StepModel(
            topology(node_group("a", ssd_bytes=1e12)), workload([profile], global_batch=BATCH, **fields)
        )
        self.kind: RankKind = self.model.kinds[0]
        self.software = self.model.coefficients.software
        one = np.zeros(1, dtype=np.int64)
        blocks = Blocks(one, one + sharding, one + tier, one + int(profile["dim"]), np.array([fraction]))
        self.lookup = Lookup(self.model.tables, blocks, self.kind, self.model.batching, self.software)
        self.tier = tier
        self.unique = float(self.model.tables.access.unique_rows(one, np.array([float(LOOKUPS)]))[0])

    def seconds(self, loads: Loads, resource: str) -> float:
        load = loads.get(Resource.parse(resource))
        return 0.0 if load is None else float(np.sum(load.fixed) + np.sum(load.by_rows))

    def fetch(self) -> Loads:
        """What the misses of its cache load; nothing where it has none."""
        return self.lookup.fetch("ssd" if self.tier == SSD_CACHED else "ddr")

    def in_all(self) -> float:
        """Seconds on the device and on its link, all passes together."""
        passes = (self.lookup.forward(), self.fetch(), self.lookup.backward())
        return sum(self.seconds(loads, name) for loads in passes for name in ("device", "host_link"))


def test_distinct_rows_take_time_beyond_their_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An update takes what a device's file says of each distinct row of device memory, and no other row does."""
    before = {tier: Case(tier) for tier in (HBM, DDR)}
    stated = {"value": 3e-9, "unit": "seconds per distinct row", "kind": "measured", "source": "a test"}
    device = node_group("a")["accelerators"]["device"]
    (tmp_path / "own.yaml").write_text(json.dumps({"name": device, "update_distinct_row_s": stated}))
    monkeypatch.setenv("PLANNER_COEFFICIENTS", str(tmp_path))
    coefficients.forget()
    try:
        for tier, rows in ((HBM, before[HBM].unique), (DDR, 0.0)):
            took, takes = (case.seconds(case.lookup.backward(), "device") for case in (before[tier], Case(tier)))
            assert takes - took == pytest.approx(3e-9 * rows)
    finally:
        monkeypatch.undo()
        coefficients.forget()


def test_forward_in_hbm() -> None:
    """Ids and rows are read, outputs written, at the achieved bandwidth; what the ranks share waits, as ever."""
    case = Case(HBM)
    moved = LOOKUPS * 8 + LOOKUPS * DIM * 4 + BATCH * DIM * 4
    assert case.seconds(case.lookup.forward(), "device") == pytest.approx(moved / case.kind.lookup_bytes_per_s)
    for loads in (case.lookup.forward(), case.lookup.backward()):
        device = case.seconds(loads, "device")
        assert case.seconds(loads, "pcie") == pytest.approx(device / case.kind.pcie_ranks)
        assert case.seconds(loads, "ddr") == pytest.approx(device / case.kind.node_ranks)
    assert [case.seconds(case.fetch(), name) for name in ("host_link", "pcie", "ddr")] == [0] * 3


def test_a_replica_looks_up_its_own_samples() -> None:
    """Half of them on one of two ranks; of the distinct rows, which the backward pass updates, more than half."""
    whole, half = Case(HBM), Case(HBM, sharding=DATA_PARALLEL)
    forward = [case.seconds(case.lookup.forward(), "device") for case in (whole, half)]
    backward = [case.seconds(case.lookup.backward(), "device") for case in (whole, half)]
    assert forward[0] == pytest.approx(2 * forward[1])
    assert backward[1] < backward[0] < 2 * backward[1]


@pytest.mark.parametrize(
    ("software", "optimizer", "passes", "arrays"),
    [("torchrec", "sgd", 0.862, 0), ("torchrec", "rowwise_adagrad", 1.804, 0), ("torchrec", "adam", 0.862, 2)],
)
def test_backward_in_hbm(software: str, optimizer: str, passes: float, arrays: int) -> None:
    """Ids sorted, so many row reads per lookup, an update of each distinct row, and one of each state array of it."""
    case = Case(HBM, embedding={"optimizer": optimizer}, software=software)
    updates = case.software.row_update_passes.value + case.software.update_passes.value * arrays
    rows = passes * LOOKUPS + updates * case.unique
    expected = (rows * DIM * 4 + 132 * LOOKUPS) / case.kind.lookup_bytes_per_s
    assert case.seconds(case.lookup.backward(), "device") == pytest.approx(expected)


def test_short_rows_waste_sectors() -> None:
    """A row of 4 columns moves as many bytes as a sector holds."""
    case = Case(HBM, dim=4)
    moved = LOOKUPS * 8 + LOOKUPS * case.kind.sector_bytes + BATCH * 4 * 4
    assert case.kind.sector_bytes > 16
    assert case.seconds(case.lookup.forward(), "device") == pytest.approx(moved / case.kind.lookup_bytes_per_s)


def test_rows_in_place_come_over_the_link() -> None:
    """UVM rows cross PCIe while the kernel waits: some for each lookup, some for each distinct row; none is fetched."""
    case = Case(DDR)
    software = case.software
    rows = (
        software.uvm_forward_passes_per_lookup.value * LOOKUPS + software.uvm_forward_passes_per_row.value * case.unique
    )
    host = rows * DIM * 4
    device = (LOOKUPS * 8 + BATCH * DIM * 4) / case.kind.lookup_bytes_per_s
    forward, kind = case.lookup.forward(), case.kind
    assert case.seconds(forward, "device") == pytest.approx(device + host / kind.pcie_bytes_per_s)
    assert case.seconds(forward, "pcie") == pytest.approx(device / kind.pcie_ranks + host / kind.pcie_bytes_per_s)
    assert case.seconds(forward, "ddr") == pytest.approx(
        device / kind.node_ranks + host / kind.memories["ddr"].read_bytes_per_s
    )
    assert case.seconds(case.fetch(), "host_link") == 0


def test_a_cache_fetches_what_it_misses() -> None:
    """Uniform access: the rows that miss, both ways through the host memory; the search hides part of the wait."""
    case = Case(DDR_CACHED, 0.25)
    missed = 0.75 * case.unique
    moved = missed * DIM * 4
    fetch = case.fetch()
    waited = case.software.cache_fetch_passes.value * moved / case.kind.pcie_bytes_per_s
    assert case.seconds(fetch, "host_link") == pytest.approx(waited, rel=1e-3)
    assert case.seconds(fetch, "pcie") == pytest.approx(moved / case.kind.pcie_bytes_per_s, rel=1e-3)
    assert case.seconds(fetch, "ddr") == pytest.approx(2 * moved / case.kind.memories["ddr"].read_bytes_per_s, rel=1e-3)


@pytest.mark.parametrize("tier", [DDR_CACHED, SSD_CACHED])
@pytest.mark.parametrize("skew", [{}, {"zipf_alpha": 1.05}])
def test_a_cache_of_everything_fetches_nothing(tier: int, skew: dict[str, float]) -> None:
    """It then costs what HBM costs and the search of its index; plain SGD has no state in host memory either."""
    skew = {**skew, "embedding": {"optimizer": "sgd"}}
    case = Case(tier, 1.0, **skew)
    fetch = case.fetch()
    assert [case.seconds(fetch, name) for name in ("host_link", "pcie", "ddr", "ssd")] == pytest.approx(
        [0] * 4, abs=1e-12
    )
    index = case.unique * case.software.cache_search_s.value
    if tier == DDR_CACHED:
        index += case.unique * case.software.cache_update_s.value
    assert case.in_all() == pytest.approx(Case(HBM, **skew).in_all() + index, rel=1e-9)


def test_the_state_of_a_cached_table_stays_in_host_memory() -> None:
    """Adam's two arrays cross PCIe for each distinct row, whatever the cache holds (measured on an H100)."""
    sgd, adam = (Case(DDR_CACHED, 1.0, embedding={"optimizer": name}) for name in ("sgd", "adam"))
    moved = adam.software.uvm_backward_passes_per_row.value * adam.unique * 2 * DIM * 4
    of_sgd, of_adam = (each.seconds(each.lookup.backward(), "pcie") for each in (sgd, adam))
    assert of_adam - of_sgd == pytest.approx(moved / adam.kind.pcie_bytes_per_s)


@pytest.mark.parametrize("alpha", [0.6, 1.05, 1.3])
@pytest.mark.parametrize("dim", [64, 128])
def test_the_order_of_the_tiers(alpha: float, dim: int) -> None:
    """HBM is faster than any cache, a larger cache than a smaller, and the smallest than none: for rows that are long
    enough that moving one takes longer than searching for it."""
    skew = {"zipf_alpha": alpha, "dim": dim}
    cached = [Case(DDR_CACHED, fraction, **skew).in_all() for fraction in (0.5, 0.3, 0.1, 0.02)]
    times = [Case(HBM, **skew).in_all(), *cached, Case(DDR, **skew).in_all()]
    assert times == sorted(times)


def test_storage_moves_whole_blocks_within_its_iops() -> None:
    """Whole blocks are read and written back, or single accesses take longer."""
    case = Case(SSD_CACHED, 0.25)
    missed = 0.75 * case.unique
    drives = case.kind.memories["ssd"]
    block = drives.access_bytes
    stream = missed * block * (1 / drives.read_bytes_per_s + 1 / drives.write_bytes_per_s)
    expected = max(stream, missed / drives.accesses_per_s)
    assert case.seconds(case.fetch(), "ssd") == pytest.approx(expected, rel=1e-3)
    assert case.seconds(case.fetch(), "ddr") == 0
    assert case.seconds(Case(DDR_CACHED, 0.25).fetch(), "ssd") == 0


@pytest.mark.parametrize("blocks", [2, 4, 8])
def test_every_block_of_a_table_sorts_its_ids(blocks: int) -> None:
    """A table cut into blocks of whole sectors on one rank takes the sorting of its ids once more for each of them."""
    wide = {"dim": 128, "embedding": {"optimizer": "sgd"}}
    whole = Case(HBM, **wide)
    own = np.zeros(blocks, dtype=np.int64)
    cut = Blocks(own, own + COLUMN_WISE, own + HBM, own + 128 // blocks, np.zeros(blocks))
    lookup = Lookup(whole.model.tables, cut, whole.kind, whole.model.batching, whole.software)
    more = whole.seconds(lookup.backward(), "device") - whole.seconds(whole.lookup.backward(), "device")
    sort_s = 132 * LOOKUPS / whole.kind.lookup_bytes_per_s
    assert more == pytest.approx((blocks - 1) * sort_s)
    assert lookup.id_sort() == pytest.approx([sort_s] * blocks)


def test_a_calibrated_device_has_the_sorting_in_the_time_of_its_lookups() -> None:
    """Where a device's own update was measured, no ids are sorted apart: it would count twice."""
    case = Case(HBM)
    case.lookup._kind = replace(case.kind, sorts_ids_apart=False)
    assert case.lookup.id_sort().tolist() == [0.0]
    assert case.seconds(case.lookup.backward(), "device") < Case(HBM).seconds(Case(HBM).lookup.backward(), "device")
