"""Split tables: hot rows in HBM, the others read in place; costs at either end, plans, and that they are asked for."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import planner
from cost_models.resources import PCIE
from cost_models.shards import DDR, DDR_SPLIT, HBM, TABLE_WISE, Blocks
from cost_models.step import StepModel
from planner.document.plan import Plan
from planner.exporters.torchrec import torchrec_plan
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

TABLES = [{"rows": 4_000_000 * (i + 1), "dim": 64, "zipf_alpha": 1.05, "pooling_factor": 5 + 3 * i} for i in range(6)]
CLUSTER = topology(node_group("a", nodes=2, ranks=2, hbm_bytes=1.5e9, ddr_bytes=2e11))


@pytest.fixture(scope="module")
def model() -> StepModel:
    return StepModel(CLUSTER, workload(TABLES))


@pytest.fixture(scope="module")
def split() -> Plan:
    return planner.plan(CLUSTER, workload(TABLES), tiers=["hbm", "ddr_split"], effort=0)


def whole(model: StepModel, tier: int, share: float) -> Blocks:
    every = np.arange(len(TABLES))
    return Blocks(every, every * 0 + TABLE_WISE, every * 0 + tier, model.tables.dim, every * 0.0 + share)


@pytest.mark.parametrize(("share", "tier"), [(1.0, HBM), (0.0, DDR)])
def test_a_split_at_either_end_is_a_table_in_one_memory(model: StepModel, share: float, tier: int) -> None:
    """All rows hot: HBM, and the table of where each row is; none: read in place."""
    found, expected = (model.block_costs(whole(model, at, share), 0) for at in (DDR_SPLIT, tier))
    assert found.fixed == pytest.approx(expected.fixed)
    assert found.by_rows == pytest.approx(expected.by_rows, rel=1e-9, abs=1e-15)
    remap = 4.0 * model.tables.rows
    assert found.bytes_by_rows - expected.bytes_by_rows == pytest.approx(np.outer(remap, [0, 1, 0]))


def test_more_hot_rows_are_faster(model: StepModel) -> None:
    """Less comes over PCIe, and what HBM gains host memory loses."""
    costs = [model.block_costs(whole(model, DDR_SPLIT, share), 0) for share in (0.01, 0.1, 0.3, 0.9)]
    pcie = [c for c, column in enumerate(model.columns) if column.resource == PCIE]
    for before, after in pairwise(costs):
        assert (after.by_rows[:, pcie] <= before.by_rows[:, pcie]).all()
        assert (after.bytes_by_rows[:, 0] > before.bytes_by_rows[:, 0]).all()
        assert after.bytes_by_rows.sum(axis=1) == pytest.approx(before.bytes_by_rows.sum(axis=1), rel=1e-9)


def test_a_plan_of_splits(split: Plan) -> None:
    """It holds, is played as it is estimated, says the share that is hot, and beats rows in place alone."""
    assert split.objective is not None
    assert split.simulated is not None
    assert verify(split) == []
    shares = {table.cache_fraction for table in split.tables if table.tier == "ddr_split"}
    assert None not in shares
    assert len(shares) > 1
    for table in split.tables:
        assert (table.remap is not None) == (table.shards.hot_rows is not None) == (table.tier == "ddr_split")
    assert split.simulated.step_s == pytest.approx(split.objective.step_s, rel=0.03)
    in_place = planner.plan(
        CLUSTER, workload(TABLES), tiers=["hbm", "ddr"], effort=0, gap=0.2, simulate=False
    ).objective
    assert in_place is not None
    assert split.objective.step_s < in_place.lower_bound_s


def test_changed_hot_rows_are_found(split: Plan) -> None:
    """More of them than the bytes of the shards hold."""
    number = next(i for i, table in enumerate(split.tables) if table.remap is not None)
    table = split.tables[number]
    assert table.remap is not None
    assert table.shards.hot_rows is not None
    shards = replace(table.shards, hot_rows=table.shards.hot_rows + 1)
    remap = table.remap.model_copy(update={"hot_rows": table.remap.hot_rows + 1})
    for change, said in (
        ({"remap": remap, "shards": shards}, f"has {table.remap.hot_rows} hot rows, by its cache fraction"),
        ({"shards": shards}, "the hot rows of its shards"),
    ):
        tables = list(split.tables)
        tables[number] = table.model_copy(update=change)
        (found,) = verify(split.model_copy(update={"tables": tuple(tables)}))
        assert found.startswith(f"table {table.name}: {said}")


def test_a_split_plan_is_followed(split: Plan) -> None:
    """A plan of the same inputs after it moves nothing, and its rows are numbered as before."""
    after = planner.plan(CLUSTER, workload(TABLES), tiers=["hbm", "ddr_split"], previous=split, simulate=False)
    assert after.moves is not None
    assert after.moves.moved_bytes == 0
    assert verify(after, split) == []
    assert [table.remap for table in after.tables] == [table.remap for table in split.tables]


def test_splits_are_asked_for(split: Plan) -> None:
    """No plan has them that does not name them, and no known runtime executes one."""
    usual = planner.plan(CLUSTER, workload(TABLES), effort=0, simulate=False)
    assert "ddr_split" not in {table.tier for table in usual.tables}
    with pytest.raises(InputError, match="held in ddr_split"):
        torchrec_plan(split)
