"""NeuroShard's protocol as its authors describe it, and targets that can be missed."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.neuroshard import DEVICES, MAX_DIMS, OURS, EmbeddingsAlone, Summary, gpus, missed, overall, pool, task

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


def test_the_only_line_of_an_exchange_is_the_least_of_all() -> None:
    """Without latencies no block takes less at another line, so that the others hold no plan and no bound."""
    model = EmbeddingsAlone(gpus(8), task(8, 64, 0, 0))
    (own,) = model.all_protocols
    assert own == model.protocols
    least = model.exchange_costs(model.own_blocks, 0)
    counts = [len(model.lines_of(stage)) for stage in model.protocol_stages]
    assert min(counts) > 1
    for other in itertools.product(*map(range, counts)):
        at_other = model.at_protocols(other)
        costs = at_other.exchange_costs(model.own_blocks, 0)
        assert not at_other.constants.any()
        assert (costs.fixed >= least.fixed).all()
        assert (costs.by_rows >= least.by_rows).all()
        assert (costs.everywhere >= least.everywhere).all()
        assert other == own or (costs.fixed > least.fixed).any()


def test_targets_can_be_missed() -> None:
    """Success, distance from the bound and time, each on its own; failures do not count into the distance."""
    good = Summary(4, 8, OURS, 100, 1.0, 0.01, 0.03, 1.0, 0.3, 0.9, 0.3, 0.9)
    assert missed(good) == []
    wrong = [{"success": 0.99}, {"mean_excess": 0.016}, {"mean_excess": None}, {"max_cpu_s": 1.01}]
    assert [len(missed(replace(good, **change))) for change in wrong] == [1, 1, 1, 1]
    half = replace(good, success=0.5, mean_excess=0.04)
    both = overall([good, half], OURS)
    assert (both.tasks, both.success, both.mean_excess) == (200, 0.75, pytest.approx((0.01 + 0.02) / 1.5))
