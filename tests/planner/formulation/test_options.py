"""The options of a table: all of them legal, none that the policy forbids."""

import numpy as np
import pytest

from cost_models.shards import (
    COLUMN_WISE,
    DATA_PARALLEL,
    GRID_SHARD,
    HBM,
    PLACEMENT_TIERS,
    ROW_WISE,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    TABLE_WISE,
)
from cost_models.step import StepModel
from planner.formulation.option_space import (
    EVERY_CUT,
    EVERY_CUT_IN_HBM,
    FEW_CUTS,
    FEW_SPLITS,
    FINE_SPLITS,
    MOST_UNITS,
    MOST_UNITS_OF_FEW,
    NARROWEST_OF_FEW,
    Cuts,
)
from planner.formulation.options import CACHE_FRACTIONS, Options, Policy, build_problem, enumerate_options
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


def shardings_of(options: Options, chosen: np.ndarray) -> set[int]:
    return set(options.block_sharding[np.isin(options.block_option, chosen)].tolist())


@pytest.mark.parametrize("policy", POLICIES)
def test_column_blocks_tile_the_columns(model: StepModel, policy: Policy) -> None:
    """Of a fixed option: multiples of 4 wide, at most 4 columns apart, widest first, and they sum to the dimension."""
    options = enumerate_options(model, policy)
    assert len(options.table)
    for option in np.flatnonzero(options.units == 0):
        columns = widths(options, option)
        assert sum(columns) == model.tables.dim[options.table[option]]
        assert all(width % 4 == 0 and width > 0 for width in columns)
        assert columns == sorted(columns, reverse=True)
        assert columns[0] - columns[-1] <= 4


@pytest.mark.parametrize("policy", [*POLICIES, Policy(shardings=("column_wise",))])
def test_free_blocks_measure_the_columns(model: StepModel, policy: Policy) -> None:
    """Units divide the dimension into multiples of 4; widths ascend, and the whole one alone may be table_wise."""
    options = enumerate_options(model, policy)
    for option in np.flatnonzero(options.units):
        types = np.flatnonzero(options.block_option == option)
        dim, units = int(model.tables.dim[options.table[option]]), int(options.units[option])
        unit = dim // units
        assert unit * units == dim
        assert unit % 4 == 0
        assert (np.diff(options.block_units[types]) > 0).all()
        assert (options.block_columns[types] == options.block_units[types] * unit).all()
        assert (options.block_count[types] == 1).all()
        whole = options.block_units[types] == units
        name = TABLE_WISE if "table_wise" in policy.shardings else COLUMN_WISE
        assert (options.block_sharding[types] == np.where(whole, name, COLUMN_WISE)).all()


def test_every_pick_of_every_width_tiles_its_table() -> None:
    """On all dimensions up to 512 and some odd ones, in every tier, with and without the whole width."""
    dims = [*range(4, 513, 4), 148, 1040, 6068]
    cluster = topology(node_group("a", ranks=4, hbm_bytes=80e9, ddr_bytes=1e12, ssd_bytes=1e13))
    many = StepModel(cluster, workload([{"rows": 100, "dim": dim} for dim in dims]))
    for shardings in (("table_wise", "column_wise"), ("column_wise",)):
        problem = build_problem(many, enumerate_options(many, Policy(shardings=shardings)))
        for block in np.flatnonzero(problem.block_is_splittable).tolist():
            units = problem.block_units[problem.blocks_of_choice(block)]
            assert units.sum() == problem.option_units[problem.block_option[block]], block


@pytest.mark.parametrize("policy", POLICIES)
def test_only_what_the_policy_allows(model: StepModel, policy: Policy) -> None:
    """Its tiers and its shardings, with the cache fractions of the tier."""
    options = enumerate_options(model, policy)
    assert {PLACEMENT_TIERS[tier] for tier in options.tier} <= set(policy.tiers)
    assert {SHARDINGS[sharding] for sharding in options.block_sharding} <= set(policy.shardings)
    for tier, fraction in zip(options.tier, options.cache_fraction, strict=True):
        assert fraction in CACHE_FRACTIONS[PLACEMENT_TIERS[tier]]


def test_every_sharding_and_tier_is_tried(model: StepModel) -> None:
    """Six shardings at once; the seventh, table_column_wise, where column_wise is forbidden."""
    everything = enumerate_options(model, Policy())
    assert set(everything.block_sharding.tolist()) == set(range(7)) - {TABLE_COLUMN_WISE}
    assert set(everything.tier.tolist()) == set(range(4))
    without = enumerate_options(model, Policy(shardings=tuple(s for s in SHARDINGS if s != "column_wise")))
    assert TABLE_COLUMN_WISE in without.block_sharding
    assert COLUMN_WISE not in without.block_sharding


def test_every_width_is_an_option_of_every_cut(model: StepModel) -> None:
    """Multiples of 4 columns up to the whole table, in every tier."""
    policy = Policy(shardings=("table_wise", "column_wise"))
    options = enumerate_options(model, policy, cuts=EVERY_CUT)
    for option, table in enumerate(options.table.tolist()):
        dim = DIMS[table] if table < len(DIMS) else int(model.tables.dim[table])
        assert options.block_columns[options.block_option == option].tolist() == list(range(4, dim + 1, 4))


def test_few_cuts_in_hbm(model: StepModel) -> None:
    """From 8 columns to 8 less than all, in units of which a wide table has at most 32; and the whole table."""
    policy = Policy(tiers=("hbm",), shardings=("table_wise", "column_wise"))
    options = enumerate_options(model, policy, cuts=FEW_CUTS)
    for table, dim in enumerate(DIMS):
        (option,) = of_table(options, table)
        units = int(options.units[option])
        unit = dim // units
        expected = [n * unit for n in range(1, units) if NARROWEST_OF_FEW <= n * unit <= dim - NARROWEST_OF_FEW]
        assert options.block_columns[options.block_option == option].tolist() == [*expected, dim]
    by_dim = dict(zip(DIMS, options.units.tolist(), strict=False))
    assert by_dim == {4: 1, 8: 2, 12: 3, 20: 5, 64: 16, 100: 25, 128: 32, 256: 32, 260: 13}
    assert max(by_dim.values()) <= MOST_UNITS_OF_FEW


@pytest.mark.parametrize("tier", ["ddr_cached", "ddr", "ssd_cached"])
def test_few_cuts_below_hbm(model: StepModel, tier: str) -> None:
    """Halves, quarters and eighths; where the units are odd in number there are none, and every width is tried."""
    policy = Policy(tiers=(tier,), shardings=("table_wise", "column_wise"))
    options = enumerate_options(model, policy, cuts=FEW_CUTS)
    for table, dim in enumerate(DIMS):
        option = int(of_table(options, table)[0])
        found = set(options.block_columns[options.block_option == option].tolist())
        if options.units[option] % 2 == 0:
            expected = {dim // n for n in FEW_SPLITS if dim % n == 0 and dim // n >= NARROWEST_OF_FEW}
            assert found == {dim} | expected
        else:
            assert len(found) > 1 or dim < 2 * NARROWEST_OF_FEW
            assert found <= set(range(NARROWEST_OF_FEW, dim - NARROWEST_OF_FEW + 1, 4)) | {dim}


@pytest.mark.parametrize(
    ("most", "expected"), [(2, {(16, 4), (12, 8)}), (3, {(16, 4), (12, 8), (12, 4, 4), (8, 8, 4)})]
)
def test_few_parts_are_options_of_their_own(model: StepModel, most: int, expected: set[tuple[int, ...]]) -> None:
    """Where a policy allows fewer parts than a table has units, each partition is an option; the whole is another."""
    policy = Policy(tiers=("hbm",), shardings=("table_wise", "column_wise"), max_shards=most)
    options = enumerate_options(model, policy)
    found = {tuple(widths(options, option)) for option in of_table(options, DIMS.index(20))}
    assert found == {(20,)} | expected
    build_problem(model, options)


def test_many_partitions_are_blocks_that_cannot_be_too_many(model: StepModel) -> None:
    """Where partitions into few parts are many, blocks are so wide that more parts would not tile the table."""
    policy = Policy(tiers=("hbm",), shardings=("column_wise",), max_shards=4)
    options = enumerate_options(model, policy, cuts=EVERY_CUT)
    (option,) = of_table(options, DIMS.index(256))
    assert options.block_columns[options.block_option == option].tolist() == [*range(52, 256 - 52 + 1, 4), 256]


def test_the_space_narrows_where_cuts_are_many() -> None:
    """All cuts of few tables; without those below HBM of more; few of many or of very wide ones."""
    cluster = topology(node_group("a", nodes=2, ranks=4, hbm_bytes=80e9, ddr_bytes=1e12, ssd_bytes=1e13))

    def cuts(tables: int, dim: int = 128) -> Cuts:
        many = StepModel(cluster, workload([{"rows": BIG, "dim": dim}] * tables))
        return enumerate_options(many, Policy()).cuts

    assert [cuts(4), cuts(40), cuts(1500)] == [EVERY_CUT, EVERY_CUT_IN_HBM, FEW_CUTS]
    assert cuts(1, dim=MOST_UNITS * 4 + 4) == FEW_CUTS


@pytest.mark.parametrize(("dim", "splits", "expected"), [(20, 2, [12, 8]), (100, 3, [36, 32, 32]), (64, 4, [16] * 4)])
def test_uneven_splits(model: StepModel, dim: int, splits: int, expected: list[int]) -> None:
    """Columns that do not divide evenly make blocks that differ by one vector of 4, where blocks are tied."""
    options = enumerate_options(model, Policy(tiers=("hbm",), shardings=("table_column_wise",)))
    found = [widths(options, option) for option in of_table(options, DIMS.index(dim))]
    assert expected in found
    assert [len(columns) for columns in found].count(splits) == 1


def test_tied_split_counts_are_searched(model: StepModel) -> None:
    """A wide table is cut into as many equal blocks as the ranks of a node can take."""
    options = enumerate_options(model, Policy(tiers=("hbm",), shardings=("table_column_wise",)))
    counts = [len(widths(options, option)) for option in of_table(options, DIMS.index(256))]
    assert counts == [1, 2, 3, 4]
    assert build_problem(model, options).option_colocated.all()


def test_no_free_option_is_tied(model: StepModel) -> None:
    """Column blocks that may be anywhere: nothing ties them."""
    problem = build_problem(model, enumerate_options(model, Policy()))
    assert not problem.option_colocated[problem.option_units > 0].any()
    assert (problem.option_units > 0).any()
    assert ((problem.option_units > 0)[problem.block_option] == problem.block_is_splittable).all()


def test_short_tables_are_cut_by_rows(model: StepModel) -> None:
    """Fewer rows than ranks: 3 or 5 rows over 8 ranks leave the last of them without any."""
    options = enumerate_options(model, Policy())
    for table in (len(DIMS), len(DIMS) + 1):
        assert {ROW_WISE, SHARDINGS.index("table_row_wise"), GRID_SHARD} <= shardings_of(
            options, of_table(options, table)
        )


def test_replicas_live_in_hbm(model: StepModel) -> None:
    """data_parallel is tried in HBM alone."""
    options = enumerate_options(model, Policy())
    assert set(options.tier[options.block_option[options.block_sharding == DATA_PARALLEL]].tolist()) == {HBM}


def test_tables_of_one_rank_are_cut_by_columns(model: StepModel) -> None:
    """One rank may hold a table whole or in several column blocks, or as its only replica or row block."""
    one = StepModel(topology(node_group("a", ranks=1)), workload([{"rows": BIG, "dim": 64}]))
    options = enumerate_options(one, Policy())
    assert {SHARDINGS[sharding] for sharding in options.block_sharding} == {
        "table_wise",
        "column_wise",
        "row_wise",
        "table_row_wise",
        "grid_shard",
        "data_parallel",
    }


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


@pytest.mark.parametrize("tables", [[4, 64], [64, 4], [4, 4]])
def test_a_policy_may_leave_a_table_without_options(tables: list[int]) -> None:
    """Such a table has none; nothing breaks, wherever it stands."""
    cluster = StepModel(topology(node_group("a", nodes=2)), workload([{"rows": BIG, "dim": dim} for dim in tables]))
    options = enumerate_options(cluster, Policy(shardings=("grid_shard",)))
    assert sorted(set(options.table.tolist())) == [i for i, dim in enumerate(tables) if dim > 4]
    assert build_problem(cluster, options).tables == 2


@pytest.mark.parametrize("policy", [Policy(shardings=("grid_shard",)), Policy(shardings=("grid_shard",), max_shards=1)])
def test_a_policy_may_leave_no_options_at_all(policy: Policy) -> None:
    """Then there are none: a table of four columns makes no grid, in one part or in many."""
    one = StepModel(topology(node_group("a", ranks=1)), workload([{"rows": BIG, "dim": 4}]))
    options = enumerate_options(one, policy)
    assert len(options.table) == len(options.block_option) == 0
    assert build_problem(one, options).tables == 1


def test_finer_grids_for_a_table_that_outweighs_many_nodes() -> None:
    """Blocks of 16 columns at least where an eighth of the table is more than a node's part of the lookups."""
    cluster = topology(node_group("a", nodes=32, ranks=2))
    tables = [{"rows": BIG, "dim": 256, "pooling_factor": 500}, *[{"rows": BIG, "dim": 256}] * 20]
    many = StepModel(cluster, workload(tables))
    options = enumerate_options(many, Policy(tiers=("hbm",), shardings=("grid_shard",)), cuts=FEW_CUTS)
    counts = [[len(widths(options, option)) for option in of_table(options, table)] for table in range(21)]
    assert counts[0] == [*FEW_SPLITS, *FINE_SPLITS]
    assert counts[1:] == [list(FEW_SPLITS)] * 20
