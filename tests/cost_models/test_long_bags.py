"""Bags that are read row after row: what a rank waits for is its longest one, or the work of all."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cost_models.coefficients import device_coefficients
from cost_models.long_bags import MOST_TABLES, longest_bags
from cost_models.resources import BAGS, Resource
from cost_models.shards import COLUMN_WISE, DATA_PARALLEL, HBM, ROW_WISE, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.sampled_counts import SampledCounts
from cost_models.simulator.shard_counts import ShardCounts
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner import Policy, plan, verify
from planner.oracle import Oracle
from tests.oracles.instances import workload
from topologies.errors import InputError
from topologies.loading import load_topology

CLUSTER, RANKS = "dgx-h100", 8
LONG = {"rows": 2**20, "dim": 64, "pooling_factor": 4_000}
SHORT = {"rows": 2**20, "dim": 64, "pooling_factor": 20}
ROW_S = 0.1953125 * 0.123e-6 + 0.8046875 * 0.36e-6
"""Of a bag's row: 50 MiB of the 256 MiB of `LONG` are in the device's cache."""
PIPELINE = {"pipeline": "sparse-dist"}
ID_S, AT_ONCE, LOOKUP_S, UPDATE_S = 0.18e-6, 8_448, 16.66e-6, 96.52e-6


def asked(*tables: dict[str, Any], batch: int = 512, **fields: Any) -> Workload:
    """A workload of TorchRec's with next to no dense part."""
    tower = {"dense": {"bottom_mlp": [], "top_mlp": [1]}, "overhead": "100us", "pipeline": "none"}
    return workload(tables, global_batch=batch, software="torchrec", **(tower | fields))


def model_of(*tables: dict[str, Any], cluster: str = CLUSTER, **fields: Any) -> StepModel:
    return StepModel(load_topology(cluster), asked(*tables, **fields))


def placed(model: StepModel, shardings: list[int], first: list[int]) -> PlacedShards:
    """Each table in HBM, by one sharding, from a rank on; cut columns in four blocks."""
    rows: list[tuple[int, int, int, int, int, bool]] = []
    for table, (sharding, rank) in enumerate(zip(shardings, first, strict=True)):
        size, dim = int(model.tables.rows[table]), int(model.tables.dim[table])
        of_rank = {ROW_WISE: size // RANKS}.get(sharding, size)
        count = {TABLE_WISE: 1, COLUMN_WISE: 4}.get(sharding, RANKS)
        columns = dim // 4 if sharding == COLUMN_WISE else dim
        for part in range(count):
            opens = part == 0 or sharding == COLUMN_WISE
            rows.append((table, sharding, columns, (rank + part) % RANKS, of_rank, opens))
    table, cut, columns, rank, held, opens = (np.array(each) for each in zip(*rows, strict=True))
    blocks = Blocks(table, cut, np.full(len(rows), HBM), columns, np.zeros(len(rows)))
    return PlacedShards(blocks, rank, held, opens.astype(bool))


def passes_s(model: StepModel, where: PlacedShards) -> tuple[float, float]:
    """Seconds of the lookup and of the update."""
    seconds = dict(zip(model.stages, model.evaluate(where).stage_seconds.tolist(), strict=True))
    return seconds["lookup_forward"], seconds["lookup_backward"]


def test_known_times_of_one_table() -> None:
    """512 bags of 4,000 ids: the lookup takes what its launch and one bag do (1.160 ms were measured, 1.271 are
    estimated); the update what it took without bags (0.643), and one bag less what as many ids take of that kernel at
    full load (1.322 were measured, 1.319 are estimated)."""
    model = model_of(LONG)
    where = placed(model, [TABLE_WISE], [0])
    forward_s, backward_s = passes_s(model, where)
    assert forward_s == pytest.approx(LOOKUP_S + 4_000 * ROW_S) == pytest.approx(1.2715e-3, rel=1e-4)
    costs, device = model.block_costs(model.tables.whole, 0), _column(model, "lookup_backward", "device")
    device_s = float(model.base_loads[0, device] + costs.by_rows[0, device] + costs.fixed[0, device])
    assert device_s == pytest.approx(0.643e-3, rel=2e-3)
    assert backward_s == pytest.approx(device_s + ID_S * (4_000 - 512 * 4_000 / AT_ONCE))
    assert backward_s == pytest.approx(1.319e-3, rel=1e-3)


def _column(model: StepModel, stage: str, resource: str) -> int:
    return next(
        c for c, each in enumerate(model.columns) if (model.stages[each.stage], str(each.resource)) == (stage, resource)
    )


def test_the_longest_of_a_rank_and_not_their_sum() -> None:
    """Two tables with long bags take one bag beyond what all ids take, on one rank and on two; whatever is beside them
    adds to the update alone, until ids take as long as a bag."""
    model = model_of(LONG, {**LONG, "pooling_factor": 3_000}, SHORT)
    whole = [TABLE_WISE] * 3
    together, apart = (passes_s(model, placed(model, whole, ranks)) for ranks in ([0, 0, 0], [0, 1, 2]))
    assert together[0] == pytest.approx(apart[0]) == pytest.approx(LOOKUP_S + 4_000 * ROW_S)
    assert apart[1] < together[1] < apart[1] + 3_000 * ID_S
    model = model_of(*[LONG] * 12, batch=2_048)
    every = passes_s(model, placed(model, [TABLE_WISE] * 12, [0] * 12))
    assert every[0] > 2 * (LOOKUP_S + 4_000 * ROW_S)
    assert "bags" not in str(model.evaluate(placed(model, [TABLE_WISE] * 12, [0] * 12)).binding)


def test_cut_rows_cut_bags_and_cut_columns_do_not() -> None:
    """Of rows over eight ranks each has an eighth of a bag; a block of columns reads a whole one, of shorter rows."""
    model = model_of(LONG)
    forward = {each: passes_s(model, placed(model, [each], [0]))[0] for each in (ROW_WISE, COLUMN_WISE, DATA_PARALLEL)}
    assert forward[ROW_WISE] == pytest.approx(LOOKUP_S + 500 * ROW_S)
    of_block = 0.78125 * 0.123e-6 + 0.21875 * 0.36e-6  # 50 of 64 MiB
    assert forward[COLUMN_WISE] == pytest.approx(LOOKUP_S + 4_000 * of_block)
    assert forward[DATA_PARALLEL] == pytest.approx(LOOKUP_S + 4_000 * ROW_S)


@pytest.mark.parametrize(
    ("table", "fields", "expected"),
    [
        (LONG, {}, (0,)),
        ({**LONG, "pooling_factor": 209}, {}, ()),  # (16.66 + 96.52) us / 0.54
        ({**LONG, "pooling_factor": 210}, {}, (0,)),
        ({**LONG, "pooling_factor": 209, "pooling_std": 10}, {}, (0,)),
        ({**LONG, "features": 20}, {}, ()),
        ({**LONG, "pooled": False}, {}, ()),
        (LONG, {"batch": 8 * 65_536}, ()),
        (LONG, {"software": "hugectr"}, ()),
        (LONG, {"cluster": "dgx-a100-80"}, ()),
    ],
)
def test_where_bags_may_matter(table: dict[str, Any], fields: dict[str, Any], expected: tuple[int, ...]) -> None:
    """Tables have a resource of their own where bags were measured and take longer than launches, and few of them."""
    software, cluster = fields.pop("software", "torchrec"), fields.pop("cluster", CLUSTER)
    question = asked(table, SHORT, **fields).model_copy(update={"software": software})
    model = StepModel(load_topology(cluster), question)
    assert model.schedule.long_tables == expected
    named = {each.resource.table for each in model.columns if each.resource.kind == BAGS.kind}
    assert named == set(expected)


def test_the_most_tables() -> None:
    """Those with the longest bags, by number."""
    lengths = [500 + (7 * each) % 40 for each in range(40)]
    model = model_of(*({**LONG, "rows": 1_000, "pooling_factor": each} for each in lengths))
    longest = sorted(sorted(range(40), key=lambda table: -lengths[table])[:MOST_TABLES])
    assert model.schedule.long_tables == tuple(longest)


def test_the_longest_of_many_that_differ() -> None:
    """The expected maximum of so many normals: 3.43 deviations of 2,000, within a hundredth or two."""
    tables = model_of({**LONG, "pooling_factor": 1_000, "pooling_std": 100}).tables
    (longest,) = longest_bags(tables, np.array([0]), 2_000.0)
    assert (longest - 1_000) / 100 == pytest.approx(3.435, rel=0.02)


@pytest.mark.parametrize("fields", [{}, {"mode": "inference"}, {"batch": 2_048}, {"batch": 16_384}], ids=str)
@pytest.mark.parametrize("sharding", [TABLE_WISE, ROW_WISE, COLUMN_WISE])
def test_estimated_as_played(sharding: int, fields: dict[str, Any]) -> None:
    """The simulator counts bags by itself."""
    model = model_of(LONG, {**LONG, "pooling_factor": 600, "pooling_std": 200}, *[SHORT] * 20, **(PIPELINE | fields))
    where = placed(model, [sharding, sharding, *[TABLE_WISE] * 20], [0, 3, *range(20)])
    played = simulate(model.topology, model.workload, where).step_s
    assert model.evaluate(where).step_s == pytest.approx(played, rel=0.015)


def test_drawn_rows_are_counted_alike() -> None:
    """With ids of a table that are drawn one by one, shards of rows have as much of a bag as of the ids."""
    model = model_of(LONG)
    where = placed(model, [ROW_WISE], [0])
    drawn, known = SampledCounts(model.workload, where, RANKS), ShardCounts(model.tables, where, RANKS, 512.0)
    assert drawn.lookups * drawn.share == pytest.approx(known.lookups * known.share, rel=0.02)


def test_longer_bags_more_tables_and_more_samples_take_no_less() -> None:
    """Through the length from which on bags count, and the number of samples from which on they do not."""
    shardings = [TABLE_WISE, COLUMN_WISE]
    for sharding in shardings:
        lengths = (20, 150, 209, 210, 300, 1_000, 4_000)
        models = [model_of({**LONG, "pooling_factor": each}, SHORT) for each in lengths]
        steps = [model.evaluate(placed(model, [sharding, TABLE_WISE], [0, 0])).step_s for model in models]
        assert all(before <= after for before, after in pairwise(steps))
        models = [model_of(LONG, SHORT, batch=8 * 2**power) for power in range(4, 18)]
        for cut in (sharding, DATA_PARALLEL):
            steps = [model.evaluate(placed(model, [cut, TABLE_WISE], [0, 0])).step_s for model in models]
            assert all(before <= after for before, after in pairwise(steps))
        of_one, of_both = (model_of(*[LONG] * count) for count in (1, 2))
        alone = of_one.evaluate(placed(of_one, [sharding], [0])).step_s
        assert of_both.evaluate(placed(of_both, [sharding] * 2, [0, 0])).step_s >= alone


@pytest.mark.parametrize("shardings", [None, ["table_wise", "column_wise"]])
def test_plans_are_bounded_and_verified(shardings: list[str] | None) -> None:
    """The bound needs nothing new; where rows may be cut, plans cut those of long bags."""
    question = asked(*[{**LONG, "rows": 2**22}] * 3, *[SHORT] * 12, **PIPELINE)
    found = plan(load_topology(CLUSTER), question, effort=0, shardings=shardings)
    assert found.objective.lower_bound_s <= found.objective.step_s
    assert found.objective.gap is not None
    assert found.objective.gap < 0.15
    assert not verify(found)
    assert found.simulated is not None
    assert found.objective.step_s == pytest.approx(found.simulated.step_s, rel=0.01)
    if shardings is None:
        assert {table.sharding for table in found.tables[:3]} <= {"row_wise", "table_row_wise", "grid_shard"}


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ({"embedding": {"compressor": "qr:4"}}, {}),
        ({}, {"replicas": {"factor": 1, "layout": "intra", "rules": [{"tables": "t1*", "factor": 4}]}}),
    ],
)
def test_compressed_tables_and_tables_with_more_copies(fields: dict[str, Any], policy: dict[str, Any]) -> None:
    """Have bags as others have."""
    question = asked(*[{**LONG, "rows": 2**20}] * 3, *[SHORT] * 3, **fields)
    found = plan(load_topology(CLUSTER), question, effort=0, policy=Policy.model_validate(policy))
    assert not verify(found)


def test_candidates_with_other_bags() -> None:
    """Beside a plan whose first table alone has long bags, candidates have no bound above what planning them anew
    proves: neither where its bags become short, nor where others become long, which no resource knows."""
    question = workload([LONG, SHORT, SHORT], global_batch=512, software="torchrec")
    made = plan(load_topology(CLUSTER), question, effort=0, simulate=False)
    oracle = Oracle(made)
    costs = oracle.cost({"t0.pooling_factor": [20, 150, 400, 8_000, 4_000], "t1.pooling_factor": [20] * 4 + [5_000]})
    exact = oracle.exact(costs, 5, effort=0, gap=1.0)
    assert len(exact.plans) == 5
    for number, found in exact.plans.items():
        assert found.objective is not None
        assert costs.lower_bound_s[number] <= found.objective.lower_bound_s
    assert costs.estimate_s[3] > costs.estimate_s[2] > costs.estimate_s[1]


def test_spelling() -> None:
    """A resource of bags is written with the number of its table."""
    of_table = replace(BAGS, table=12)
    assert str(of_table) == "bags12"
    assert Resource.parse("bags12") == of_table
    assert Resource.parse("uplink1_out").level == 1


def test_coefficients_of_bags_go_together(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that states one alone is at fault."""
    from cost_models.coefficients import forget

    stated = "{value: 1.0e-7, unit: seconds, kind: measured, source: mine}"
    (tmp_path / "own.yaml").write_text(f"name: mine\nlookup_bag_row_s: {stated}\n")
    monkeypatch.setenv("PLANNER_COEFFICIENTS", str(tmp_path))
    forget()
    try:
        with pytest.raises(InputError, match="go together"):
            device_coefficients("mine")
    finally:
        monkeypatch.undo()
        forget()


def test_reports_name_the_table() -> None:
    """Of several tables with long bags each has a resource of its own: what is waited for is called by its name."""
    from planner.reports.words import resource_words

    model = model_of(SHORT, LONG, {**LONG, "pooling_factor": 3_000})
    evaluation = model.evaluate(placed(model, [TABLE_WISE] * 3, [0, 1, 2]))
    (bags,) = {each for each in evaluation.binding if each is not None and each.table is not None}
    assert resource_words(bags, model.topology, model.workload) == "accelerator (longest bag of a table), t1"
