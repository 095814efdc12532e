"""The options of a table: all of them legal, none that the policy forbids."""

import numpy as np
import pytest

from cost_models.shards import DATA_PARALLEL, HBM, PLACEMENT_TIERS, ROW_WISE, SHARDINGS, TABLE_COLUMN_WISE
from cost_models.step import StepModel
from planner.options import CACHE_FRACTIONS, SPLITS, Options, Policy, build_problem, enumerate_options
from tests.oracles.instances import POLICIES, node_group, topology, workload

DIMS = (4, 8, 12, 20, 64, 100, 128, 256, 260)
BIG = 10**6


@pytest.fixture(scope="module")
def model() -> StepModel:
    cluster = topology(node_group("a", nodes=2, ranks=4, hbm_bytes=80e9, ddr_bytes=1e12, ssd_bytes=1e13))
    tables = [{"rows": BIG, "dim": dim} for dim in DIMS] + [{"rows": 3, "dim": 64}, {"rows": 5, "dim": 64}]
    return StepModel(cluster, workload(tables))


def of_table(options: Options, table: int) -> np.ndarray:
    return np.flatnonzero(options.table == table)


def widths(options: Options, option: int) -> list[int]:
    types = np.flatnonzero(options.block_option == option)
    return np.repeat(options.block_columns[types], options.block_count[types]).tolist()


@pytest.mark.parametrize("policy", POLICIES)
def test_column_blocks_tile_the_columns(model: StepModel, policy: Policy) -> None:
    """Blocks are multiples of 4 wide, at most 4 columns apart, widest first, and sum to the dimension."""
    options = enumerate_options(model, policy)
    assert len(options.table)
    for option, table in enumerate(options.table):
        columns = widths(options, option)
        assert sum(columns) == model.tables.dim[table]
        assert all(width % 4 == 0 and width > 0 for width in columns)
        assert columns == sorted(columns, reverse=True)
        assert columns[0] - columns[-1] <= 4


@pytest.mark.parametrize("policy", POLICIES)
def test_only_what_the_policy_allows(model: StepModel, policy: Policy) -> None:
    """Its tiers and its shardings, with the cache fractions of the tier."""
    options = enumerate_options(model, policy)
    assert {PLACEMENT_TIERS[tier] for tier in options.tier} <= set(policy.tiers)
    assert {SHARDINGS[sharding] for sharding in options.sharding} <= set(policy.shardings)
    for tier, fraction in zip(options.tier, options.cache_fraction, strict=True):
        assert fraction in CACHE_FRACTIONS[PLACEMENT_TIERS[tier]]


def test_every_sharding_and_tier_is_tried(model: StepModel) -> None:
    """Six shardings at once; the seventh, table_column_wise, where column_wise is forbidden."""
    everything = enumerate_options(model, Policy())
    assert set(everything.sharding.tolist()) == set(range(7)) - {TABLE_COLUMN_WISE}
    assert set(everything.tier.tolist()) == set(range(4))
    without = enumerate_options(model, Policy(shardings=tuple(s for s in SHARDINGS if s != "column_wise")))
    assert TABLE_COLUMN_WISE in without.sharding


def test_split_counts_are_searched(model: StepModel) -> None:
    """A wide table in HBM is tried in every split count that leaves 8 columns and two blocks for each rank."""
    options = enumerate_options(model, Policy(tiers=("hbm",), shardings=("column_wise",)))
    counts = [len(widths(options, option)) for option in of_table(options, DIMS.index(256))]
    assert counts == [n for n in SPLITS if n * 8 <= 256 and n <= 16]
    narrow = of_table(options, DIMS.index(4))
    assert len(narrow) == 0


@pytest.mark.parametrize(("dim", "splits", "expected"), [(20, 2, [12, 8]), (100, 3, [36, 32, 32]), (64, 4, [16] * 4)])
def test_uneven_splits(model: StepModel, dim: int, splits: int, expected: list[int]) -> None:
    """Columns that do not divide evenly make blocks that differ by one vector of 4."""
    options = enumerate_options(model, Policy(tiers=("hbm",), shardings=("column_wise",)))
    found = [widths(options, option) for option in of_table(options, DIMS.index(dim))]
    assert expected in found
    assert [len(columns) for columns in found].count(splits) == 1


def test_short_tables_are_not_cut_by_rows(model: StepModel) -> None:
    """Fewer rows than ranks: no row_wise over 8 ranks for 3 or 5 rows, no cut over 4 ranks for 3."""
    options = enumerate_options(model, Policy())
    three, five = (set(options.sharding[of_table(options, len(DIMS) + i)].tolist()) for i in range(2))
    by_node = {SHARDINGS.index("table_row_wise"), SHARDINGS.index("grid_shard")}
    assert ROW_WISE not in three | five
    assert not by_node & three
    assert by_node <= five


def test_replicas_live_in_hbm(model: StepModel) -> None:
    """data_parallel is tried in HBM alone."""
    options = enumerate_options(model, Policy())
    assert set(options.tier[options.sharding == DATA_PARALLEL].tolist()) == {HBM}


def test_the_tables_of_one_rank_are_whole() -> None:
    """One rank leaves one sharding: table_wise, in every tier and with every cache."""
    one = StepModel(topology(node_group("a", ranks=1, ssd_bytes=1e12)), workload([{"rows": BIG, "dim": 64}]))
    options = enumerate_options(one, Policy())
    assert {SHARDINGS[sharding] for sharding in options.sharding} == {"table_wise"}
    assert len(options.table) == sum(map(len, CACHE_FRACTIONS.values()))


def test_tables_are_in_order_and_blocks_belong_to_options(model: StepModel) -> None:
    """What `Problem` promises of its index arrays: ascending tables and options, no option without a block."""
    options = enumerate_options(model, Policy())
    problem = build_problem(model, options)
    assert (np.diff(problem.option_table) >= 0).all()
    assert (np.diff(problem.block_option) >= 0).all()
    assert set(problem.block_option.tolist()) == set(range(len(options.table)))
    assert (problem.block_count > 0).all()
    assert problem.fixed.shape == (1, len(problem.block_option), len(model.columns))


def test_a_kind_without_a_tier_is_not_allowed_it() -> None:
    """In a mixed cluster only the nodes with DDR hold tables there."""
    cluster = topology(node_group("with"), node_group("without", ddr_bytes=None))
    mixed = StepModel(cluster, workload([{"rows": 1000, "dim": 64}]))
    options = enumerate_options(mixed, Policy(tiers=("ddr",), shardings=("table_wise", "row_wise")))
    problem = build_problem(mixed, options)
    assert problem.allowed.tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize("tables", [[3, BIG], [BIG, 3], [3, 3]])
def test_a_policy_may_leave_a_table_without_options(tables: list[int]) -> None:
    """Such a table has none; nothing breaks, wherever it stands."""
    cluster = StepModel(topology(node_group("a", nodes=2)), workload([{"rows": rows, "dim": 64} for rows in tables]))
    options = enumerate_options(cluster, Policy(shardings=("row_wise",)))
    assert sorted(set(options.table.tolist())) == [i for i, rows in enumerate(tables) if rows == BIG]
    assert build_problem(cluster, options).tables == 2
