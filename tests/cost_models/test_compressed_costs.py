"""What compressed tables cost: bytes by hand, parts that add up, and estimate and simulation that agree."""

import numpy as np
import pytest

import planner
from cost_models.prefetch_lines import LINES
from cost_models.registry import cost_model
from cost_models.shards import DDR_CACHED, HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.workload.models import Workload
from planner.verification.verify import verify
from tests.oracles.agreement import expect_near_simulation
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

CLUSTER = topology(node_group("a", ranks=4, hbm_bytes=5e9))
ROWS, DIM = 1_000_003, 32


def _workload(compressor: str | None, **fields: object) -> Workload:
    tables = [
        {"name": f"t{i}", "rows": ROWS, "dim": DIM, "pooling_factor": 6, "zipf_alpha": 1.05, "compressor": compressor}
        for i in range(6)
    ]
    return workload([{k: v for k, v in t.items() if v is not None} for t in tables], name=str(compressor), **fields)


@pytest.mark.parametrize(
    ("compressor", "numbers"),
    [
        ("none", ROWS * DIM),
        ("hash:4", -(-ROWS // 4) * DIM),
        ("qr:4", (-(-ROWS // 4) + 4) * DIM),
        ("qr:1000:add", (-(-ROWS // 1000) + 1000) * DIM),
        ("qr:4:concat", (-(-ROWS // 4) + 4) * DIM // 2),
        ("dim:16", ROWS * 16),
        ("dim:5", ROWS * 8),
    ],
)
def test_weights_have_the_bytes_of_their_numbers(compressor: str, numbers: int) -> None:
    """In fp32 with SGD, rows padded to four columns: what a table takes beside its ids and vectors in flight."""
    held = {}
    for word in (compressor, "none"):
        of = _workload(word, embedding={"optimizer": "sgd"}, global_batch=4)
        model = cost_model("physical", CLUSTER, of)
        one = np.zeros(1, dtype=np.int64)
        block = Blocks(one, one + TABLE_WISE, one + HBM, model.tables.dim[:1], np.zeros(1))
        held[word] = float(model.block_memory(block, 0).by_rows[0, 0])
    assert held[compressor] - held["none"] == pytest.approx((numbers - ROWS * DIM) * 4, abs=2_000)


@pytest.mark.parametrize(
    ("compressor", "tier"),
    [
        *((each, "hbm") for each in ("hash:8", "qr:8", "qr:8:add", "qr:8:concat", "dim:8")),
        *((each, "ddr_cached") for each in ("hash:8", "qr:8", "dim:8")),
    ],
)
def test_estimate_and_simulation_agree(compressor: str, tier: str) -> None:
    """Of plans of compressed tables in any tier, which are verified; what compressing changes has the same sign."""
    found = planner.plan(CLUSTER, _workload(compressor), tiers=[tier], effort=0)
    expect_near_simulation(found, 0.05)
    assert verify(found) == []
    rows = {int((table.shards.row_start + table.shards.rows).max()) for table in found.tables}
    assert rows == {-(-ROWS // 8) if compressor != "dim:8" else ROWS}


def test_parts_of_a_table_cost_as_much_as_two_tables_and_their_meeting() -> None:
    """Quotient and remainder on a rank: more than a table of the quotient's rows, less than two that exchange."""
    joined = planner.plan(CLUSTER, _workload("qr:8"), shardings=["table_wise"], effort=0, simulate=False)
    hashed = planner.plan(CLUSTER, _workload("hash:8"), shardings=["table_wise"], effort=0, simulate=False)
    stages = [{stage.name: stage.seconds for stage in found.stages} for found in (joined, hashed)]
    assert stages[0]["output_dist"] == pytest.approx(stages[1]["output_dist"])
    assert stages[0]["lookup_forward"] > 1.3 * stages[1]["lookup_forward"]


def test_shorter_vectors_travel_as_they_are() -> None:
    """A quarter of the columns takes a quarter of the bytes of exchanges, and the dense part longer."""
    short, whole = (
        planner.plan(CLUSTER, _workload(word), shardings=["table_wise"], effort=0, simulate=False)
        for word in ("dim:8", "none")
    )
    stages = [{stage.name: stage.seconds for stage in found.stages} for found in (short, whole)]
    assert stages[0]["output_dist"] < stages[1]["output_dist"]
    assert stages[0]["dense"] > stages[1]["dense"]


@pytest.mark.parametrize("rating", ["torchrec", "hugectr"])
def test_ratings_of_plain_tables_refuse_others(rating: str) -> None:
    """By name, with the remedy."""
    with pytest.raises(InputError, match=f"{rating} rates tables of one part and one width"):
        cost_model(rating, CLUSTER, _workload("qr:8"))


def test_rows_of_two_parts_are_not_cut() -> None:
    """Row-wise sharding is refused for a table of two parts, with the reason."""
    with pytest.raises(InputError, match="quotient and remainder of a table stay together"):
        planner.plan(CLUSTER, _workload("qr:8"), shardings=["row_wise"], effort=0)


@pytest.mark.parametrize("compressor", ["hash:8", "qr:8", "qr:8:concat"])
def test_of_prefetched_misses_a_share_shows_in_each_stage(compressor: str) -> None:
    """Those of remainders, too: what is prefetched is the same at every share."""
    model = cost_model("physical", CLUSTER, _workload(compressor, pipeline="prefetch"))
    each = np.arange(len(model.tables.rows))
    tier, fraction = np.full(len(each), DDR_CACHED), np.full(len(each), 0.1)
    blocks = Blocks(each, np.full(len(each), TABLE_WISE), tier, model.tables.dim, fraction)
    placed = PlacedShards(blocks, each % 4, model.tables.rows, np.ones(len(each), dtype=bool))
    first, *others = [
        (model.at_protocols(at).rank_loads(placed)[0] - model._unshared_loads[model.kind_of_rank]) / model.shares_at(at)
        for at in [model.protocols, *model.other_shares(model.protocols)]
    ]
    assert len(others) == len(LINES) - 1
    for other in others:
        assert other == pytest.approx(first, rel=1e-9, abs=1e-12)
