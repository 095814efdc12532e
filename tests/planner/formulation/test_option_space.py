"""The option space: what is enumerated is inside, what a document may hold beyond it is named."""

from dataclasses import fields

import numpy as np
import pytest

from cost_models.cost_arrays import BlockCosts
from cost_models.registry import cost_model
from cost_models.shards import (
    COLUMN_WISE,
    DDR,
    GRID_SHARD,
    HBM,
    ROW_WISE,
    TABLE_COLUMN_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
    Blocks,
)
from cost_models.step import StepModel
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.option_space import EVERY_CUT, EVERY_CUT_IN_HBM, FEW_CUTS, Cuts, Space
from planner.formulation.options import enumerate_options
from planner.formulation.policy import Policy
from tests.oracles.instances import node_group, topology, workload

BIG = 10**6
DIMS = (4, 12, 20, 96, 128, 260)


def of(policy: Policy, cuts: Cuts, nodes: int = 3, ranks: int = 2) -> Space:
    cluster = topology(node_group("a", nodes=nodes, ranks=ranks, hbm_bytes=80e9, ddr_bytes=1e12, ssd_bytes=1e13))
    model = StepModel(cluster, workload([{"rows": BIG, "dim": dim} for dim in DIMS] + [{"rows": 3, "dim": 64}]))
    return Space(model, allowed_choices(model, policy), cuts)


@pytest.mark.parametrize("cuts", [EVERY_CUT, EVERY_CUT_IN_HBM, FEW_CUTS])
@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(max_shards=2),
        Policy(max_shards=6),
        Policy(column_multiple=16),
        Policy(shardings=("table_wise", "table_column_wise", "table_row_wise")),
    ],
)
def test_every_option_is_inside(policy: Policy, cuts: Cuts) -> None:
    """Each fixed option as it is; of a free one, each width beside any others that tile the rest."""
    space = of(policy, cuts)
    options = enumerate_options(space.model, space.choices, cuts=cuts)
    for option, (table, tier) in enumerate(zip(options.table.tolist(), options.tier.tolist(), strict=True)):
        types = np.flatnonzero(options.block_option == option)
        columns = options.block_columns[types]
        if not options.units[option]:
            held = np.repeat(columns, options.block_count[types])
            assert space.outside(table, tier, int(options.block_sharding[types[0]]), held, 1) is None
            continue
        dim = int(space.model.tables.dim[table])
        for width in columns[columns < dim].tolist():
            if dim - width in columns:
                assert space.outside(table, tier, COLUMN_WISE, np.array([width, dim - width]), 1) is None


def test_the_widest_space_holds_what_a_document_may_say() -> None:
    """Any multiples of 4 columns, grids of every number of blocks up to the nodes, also three on three nodes."""
    space = of(Policy(), EVERY_CUT)
    number = DIMS.index(96)
    for widths in ([4, 92], [4] * 24, [12, 20, 64], [88, 8]):
        assert space.outside(number, HBM, COLUMN_WISE, np.array(widths), 1) is None
        assert space.outside(number, DDR, COLUMN_WISE, np.array(widths), 1) is None
        assert space.outside(number, HBM, TABLE_COLUMN_WISE, np.array(widths), 1) is None
    for splits in (2, 3):
        assert space.outside(number, HBM, GRID_SHARD, np.array([96 // splits] * splits), 2) is None
    assert space.outside(DIMS.index(12), HBM, COLUMN_WISE, np.array([8, 4]), 1) is None
    assert space.outside(number, HBM, TABLE_WISE, np.array([96]), 1) is None


@pytest.mark.parametrize(
    ("cuts", "dim", "tier", "sharding", "widths", "words"),
    [
        (EVERY_CUT, 96, HBM, GRID_SHARD, [20, 20, 20, 20, 16], "5 column blocks, and that number is not tried"),
        (EVERY_CUT, 96, HBM, GRID_SHARD, [40, 32, 24], "not as equal as multiples of 4"),
        (EVERY_CUT_IN_HBM, 96, DDR, COLUMN_WISE, [32] * 3, "32 columns, and that width is not tried"),
        (FEW_CUTS, 128, HBM, COLUMN_WISE, [124, 4], "124 columns|4 columns"),
        (FEW_CUTS, 96, HBM, GRID_SHARD, [32] * 3, "3 column blocks"),
    ],
)
def test_what_is_outside_is_named(
    cuts: Cuts, dim: int, tier: int, sharding: int, widths: list[int], words: str
) -> None:
    """With the reason."""
    found = of(Policy(), cuts).outside(DIMS.index(dim), tier, sharding, np.array(widths), 1)
    assert found is not None
    assert any(each in found for each in words.split("|"))


def test_ranks_may_be_left_without_rows() -> None:
    """Three rows over six ranks or over a node of four: the last ranks hold none."""
    for sharding in (ROW_WISE, TABLE_ROW_WISE):
        assert of(Policy(), EVERY_CUT, ranks=4).outside(len(DIMS), HBM, sharding, np.array([64]), 4) is None


def test_starts_keep_to_usual_options_where_there_are_any() -> None:
    """Grids of three and blocks of four columns are options and no starts; whole tables are both."""
    space = of(Policy(), EVERY_CUT)
    options = enumerate_options(space.model, space.choices, cuts=EVERY_CUT)
    opens = np.searchsorted(options.block_option, np.arange(len(options.table)))
    blocks = np.bincount(options.block_option, weights=options.block_count)
    grids, usual = options.block_sharding[opens] == GRID_SHARD, options.block_usual[opens]
    assert usual[grids & (blocks == 2)].all()
    assert not usual[grids & (blocks == 3)].any()
    narrow = (options.block_columns == 4) & (space.model.tables.dim[options.table[options.block_option]] > 4)
    assert not options.block_usual[narrow & (options.block_units > 0)].any()
    whole = options.block_sharding == TABLE_WISE
    assert options.block_usual[whole].all()


@pytest.mark.parametrize("name", ["physical", "torchrec", "hugectr"])
def test_one_block_costs_the_same_by_any_name(name: str) -> None:
    """A table in one column block takes what it takes table_wise: the space holds one of them only."""
    cluster = topology(node_group("a", nodes=2, ranks=2))
    model = cost_model(name, cluster, workload([{"rows": BIG, "dim": dim} for dim in (4, 64, 128)]))
    every = np.arange(3)
    costs = [
        model.block_costs(Blocks(every, np.full(3, sharding), np.full(3, HBM), model.tables.dim, np.zeros(3)), 0)
        for sharding in (TABLE_WISE, COLUMN_WISE, *([TABLE_COLUMN_WISE] if name != "hugectr" else []))
    ]
    for other in costs[1:]:
        for field in fields(BlockCosts):
            assert np.array_equal(getattr(other, field.name), getattr(costs[0], field.name)), field.name


def test_a_cut_table_may_be_in_one_block() -> None:
    """Where the policy names column_wise alone, a table too narrow to cut is held in one block."""
    options = enumerate_options(of(Policy(), EVERY_CUT).model, Policy(tiers=("hbm",), shardings=("column_wise",)))
    narrow = np.flatnonzero(options.table[options.block_option] == DIMS.index(4))
    assert options.block_columns[narrow].tolist() == [4]
    assert options.block_sharding[narrow].tolist() == [COLUMN_WISE]
