"""The algorithms that ours is compared with: fair to them, and judged by the cost model alone."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.baselines import BASELINES, _Pieces
from benchmarks.contest import Search, attempt, judged
from benchmarks.neuroshard import instance
from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.workload.models import Workload

TASK = instance(4, 64, 0, 2)


@pytest.fixture
def model() -> CostModel:
    return cost_model(TASK.cost_model, TASK.topology(), TASK.workload())


def changed(workload: Workload, **fields: object) -> Workload:
    """With its first table changed."""
    first, *others = workload.tables
    return workload.model_copy(update={"tables": (first.model_copy(update=fields), *others)})


@pytest.mark.parametrize("name", BASELINES)
def test_every_table_is_placed_once(name: str, model: CostModel) -> None:
    """All columns and rows of each, on ranks that exist; the same again for the same seed."""
    first, second = (BASELINES[name](model, np.random.default_rng(3)) for _ in range(2))
    assert first is not None
    assert second is not None
    assert np.array_equal(first.rank, second.rank)
    columns = np.bincount(first.blocks.table, weights=first.blocks.columns)
    assert np.array_equal(columns, model.tables.dim)
    assert np.array_equal(first.rows, model.tables.rows[first.blocks.table])
    assert set(first.rank.tolist()) <= set(range(4))


def test_the_search_sees_what_the_judge_says(model: CostModel) -> None:
    """NeuroShard's search compares placements by the objective that they are judged by."""
    pieces, random = _Pieces(model), np.random.default_rng(5)
    tables = len(model.tables.rows)
    table = np.tile(np.append(np.arange(tables), [0, 0]), (6, 1))
    halved = np.zeros_like(table)
    rank = random.integers(4, size=table.shape)
    seen = pieces.objective(table, halved, rank)
    for r in range(6):
        expected = model.evaluate(pieces.placed(table[r], halved[r], rank[r])).step_s
        assert seen[r] == pytest.approx(expected, rel=1e-12)


def test_a_table_that_fits_nowhere_whole_is_cut_or_fails() -> None:
    """Only NeuroShard's search cuts tables; the greedy ones find nothing, and a random placement overflows."""
    light = instance(4, 8, 0, 2)
    large = changed(light.workload(), rows=12_000_000, dim=128)  # 5.7 of 4 GiB
    harder = replace(light, workload=lambda: large)
    found = {name: attempt(harder, name, None, 0) for name in BASELINES}
    assert {name for name, each in found.items() if each.objective is not None} == {"neuroshard"}
    assert found["random"].status == "out of memory"
    ours = attempt(harder, "ours", Search(), 0)
    assert ours.bound is not None
    assert ours.objective is not None
    assert ours.bound <= found["neuroshard"].objective


def test_greedy_takes_the_largest_first_to_the_least_loaded() -> None:
    """Four tables of 4, 3, 2 and 1 parts, on two ranks: 4 + 1 and 3 + 2."""
    base = TASK.workload()
    table = base.tables[0].model_copy(update={"rows": 1000, "pooling_factor": 1.0})
    tables = tuple(table.model_copy(update={"name": str(n), "dim": 16 * n}) for n in (1, 2, 3, 4))
    topology = instance(4, 64, 0, 0).topology()
    group = topology.nodes[0]
    two = topology.model_copy(
        update={
            "nodes": (group.model_copy(update={"accelerators": group.accelerators.model_copy(update={"count": 2})}),)
        }
    )
    model = cost_model(TASK.cost_model, two, base.model_copy(update={"tables": tables}))
    placed = BASELINES["dim"](model, np.random.default_rng(0))
    assert placed is not None
    rank = dict(zip(placed.blocks.table.tolist(), placed.rank.tolist(), strict=True))
    assert rank[0] == rank[3] != rank[1] == rank[2]


def test_overflowing_memory_is_a_failure(model: CostModel) -> None:
    """Everything on one rank takes more than its 4 GiB."""
    pieces, tables = _Pieces(model), len(model.tables.rows)
    none = np.zeros(tables, dtype=np.int64)
    assert judged(model, pieces.placed(np.arange(tables), none, none)) is None
    spread = pieces.placed(np.arange(tables), none, np.arange(tables) % 4)
    assert judged(model, spread) == pytest.approx(model.evaluate(spread).step_s)
