"""Generated table sets depend on count and seed alone, and look like real ones."""

import numpy as np
import pytest

from cost_models.workload import Workload, load_workload

FIRST = ("t000", 488900, 32, 4.16, 1.17)
SECOND = ("t001", 168, 64, 23.41, 0.764)


def bytes_with_state(workload: Workload) -> int:
    """fp32 weights and one fp32 number per row for row-wise Adagrad."""
    return sum(table.rows * (table.dim * 4 + 4) for table in workload.tables)


def test_same_count_and_seed_same_tables() -> None:
    assert load_workload("synthetic:100@seed=7") == load_workload("synthetic:100@seed=7")
    assert load_workload("synthetic:100").tables == load_workload("synthetic:100@seed=0").tables
    assert load_workload("synthetic:100@seed=7").tables != load_workload("synthetic:100@seed=8").tables


def test_tables_stay_as_they_are_from_version_to_version() -> None:
    """Plans and figures refer to these by name: a change here is a change for users."""
    first, second, *_ = load_workload("synthetic:1000@seed=7").tables
    assert (first.name, first.rows, first.dim, first.pooling_factor, first.zipf_alpha) == FIRST
    assert (second.name, second.rows, second.dim, second.pooling_factor, second.zipf_alpha) == SECOND


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_tables_fill_half_of_128_small_devices(seed: int) -> None:
    share = bytes_with_state(load_workload(f"synthetic:1000@seed={seed}")) / (128 * 40e9)
    assert 0.4 < share < 0.7


@pytest.mark.parametrize("seed", [0, 7])
def test_ten_thousand_tables_fill_half_of_1024(seed: int) -> None:
    share = bytes_with_state(load_workload(f"synthetic:10000@seed={seed}")) / (1024 * 40e9)
    assert 0.4 < share < 0.7


def test_the_spread_is_realistic() -> None:
    tables = load_workload("synthetic:10000@seed=1").tables
    rows = np.array([table.rows for table in tables])
    assert 100 <= rows.min() < 200
    assert 5e7 < rows.max() <= 1e8
    assert np.sort(rows)[-1000:].sum() > 0.5 * rows.sum(), "a tenth of the tables holds most rows"
    pooling = np.array([table.pooling_factor for table in tables])
    assert pooling.min() >= 1
    assert pooling.mean() == pytest.approx(15.8, rel=0.05)
    alphas = np.array([table.zipf_alpha for table in tables])
    assert (alphas.min(), alphas.max()) == pytest.approx((0.6, 1.3), abs=0.01)


def test_knobs() -> None:
    workload = load_workload("synthetic:50@seed=3,dim=128,pooling=4,zipf_alpha=1.05,batch_per_rank=256")
    assert {(table.dim, table.zipf_alpha) for table in workload.tables} == {(128, 1.05)}
    assert workload.batch(2) == 512
    assert load_workload("synthetic:1").tables[0].rows >= 100
