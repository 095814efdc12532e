"""NeuroShard's protocol as its authors describe it, and targets that can be missed."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.neuroshard import DEVICES, MAX_DIMS, OURS, Summary, gpus, missed, overall, pool, task

GIB = 2**30


def test_the_pool_is_metas() -> None:
    """856 tables, 269 of them empty; 13,535 ids per sample in all."""
    rows, pooling, batch = pool()
    assert (len(rows), rows.min(), rows.max(), batch) == (856, 100, 12_543_669, 65_536)
    assert (pooling == 0.01).sum() >= 269
    assert pooling.sum() == pytest.approx(13_534.8, rel=1e-3)


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("max_dim", MAX_DIMS)
def test_tasks_are_as_described(devices: int, max_dim: int) -> None:
    """Their tables, dimensions and weights; every number and seed gives another task, and the same one again."""
    (fewest, end), most_gib = DEVICES[devices]
    tasks = [task(devices, max_dim, 0, number) for number in range(20)]
    assert tasks[0] == task(devices, max_dim, 0, 0) != task(devices, max_dim, 1, 0)
    assert len({len(each.tables) for each in tasks}) > 5
    for each in tasks:
        dims = np.array([table.dim for table in each.tables])
        weights = sum(4 * table.rows * table.dim for table in each.tables)
        assert fewest <= len(dims) < end
        assert set(dims.tolist()) <= {4, 8, 16, 32, 64, 128}
        assert dims.max() <= max_dim
        assert weights <= most_gib * GIB


def test_a_gpu_has_four_gib() -> None:
    """None of it in reserve."""
    (group,) = gpus(8).nodes
    assert (group.accelerators.count, group.accelerators.hbm.capacity, group.reserve.hbm) == (8, 4 * GIB, 0)


def test_targets_can_be_missed() -> None:
    """Success, distance from the bound and time, each on its own; failures do not count into the distance."""
    good = Summary(4, 8, OURS, 100, 1.0, 0.01, 0.03, 1.0, 0.3, 0.9, 0.3, 0.9)
    assert missed(good) == []
    wrong = [{"success": 0.99}, {"mean_excess": 0.016}, {"mean_excess": None}, {"max_cpu_s": 1.01}]
    assert [len(missed(replace(good, **change))) for change in wrong] == [1, 1, 1, 1]
    half = replace(good, success=0.5, mean_excess=0.04)
    both = overall([good, half], OURS)
    assert (both.tasks, both.success, both.mean_excess) == (200, 0.75, pytest.approx((0.01 + 0.02) / 1.5))
