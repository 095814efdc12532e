"""What `ShardPlanner` keeps free and what fits, as `EmbeddingShardingPlanner` promises it to who calls it."""

import logging

import pytest
from torchrec.distributed.planner import Topology, storage_reservations
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
)
from torchrec.distributed.planner.types import (
    PlannerError,
    PlannerErrorType,
    StorageReservation,
)

from planner.integrations.torchrec_planner import ShardPlanner
from tests.torchrec_package.drop_in_cases import DIM, GIB, GPUS, Sharder, model, ranks
from topologies.errors import InputError


def test_a_table_too_large_for_a_rank_is_cut_where_it_may_be() -> None:
    """Whole tables only: an error that blames the constraints; cut by rows: a plan by the same planner."""
    planner = ShardPlanner(GPUS)
    large = model("a", rows=200_000_000)  # 47.7 GiB on ranks of 40
    with pytest.raises(PlannerError) as error:
        planner.plan(large, [Sharder("table_wise")])
    assert error.value.error_type == PlannerErrorType.STRICT_CONSTRAINTS
    assert planner.document is None
    found = planner.plan(large, [Sharder("table_wise", "row_wise")])
    assert ranks(found) == {"a": (0, 1)}


def test_what_fits_nowhere_is_too_little_storage() -> None:
    """TorchRec's error type, and our explanation with what would help: of tables, and of a dense part."""
    for needs in (model("a", rows=10**10), model("ab", rows=10**9), model(dense=2**22)):
        with pytest.raises(PlannerError, match="no plan") as error:
            ShardPlanner(GPUS).plan(needs, [Sharder("table_wise", "row_wise")])
        assert error.value.error_type == PlannerErrorType.INSUFFICIENT_STORAGE
        assert isinstance(error.value, InputError)
    with pytest.raises(
        PlannerError, match=r"what would help, each alone: .* of HBM per accelerator instead of 40.00 GiB"
    ):
        ShardPlanner(GPUS).plan(model("ab", rows=2 * 10**8), [Sharder("table_wise", "row_wise")])


def test_the_dense_part_is_never_left_out_to_make_a_plan(caplog: pytest.LogCaptureFixture) -> None:
    """16 GiB of a layer with gradients and state on 40 GiB: no plan; without the layer there is one, and where the
    caller estimates it at less."""
    for reservation in (None, FixedPercentageStorageReservation(0.15)):
        planner = ShardPlanner(GPUS, storage_reservation=reservation)
        with pytest.raises(PlannerError):
            planner.plan(model(dense=2**22, rows=10**7), [Sharder("table_wise", "row_wise")])
        planner.plan(model(rows=10**7), [Sharder("table_wise", "row_wise")])
    told = HeuristicalStorageReservation(0.15, dense_tensor_estimate=GIB)
    ShardPlanner(GPUS, storage_reservation=told).plan(model(dense=2**22, rows=10**7), [Sharder("table_wise")])
    assert "may run out of memory" not in caplog.text


def test_a_plan_by_torchrecs_count_alone_is_said_to_be_one(caplog: pytest.LogCaptureFixture) -> None:
    """Where outputs and gradients in flight do not fit by ours: as TorchRec would plan, with a warning."""
    tiny = Topology(world_size=2, compute_device="cuda", hbm_cap=2 * 2**20)
    with caplog.at_level(logging.WARNING, "planner"):
        found = ShardPlanner(tiny).plan(model(rows=100), [Sharder("table_wise", "row_wise")])
    assert set(ranks(found)) == set("abcd")
    assert "by TorchRec's count of memory and rating alone, and may run out of memory; by ours" in caplog.text


def absolute(gigabytes: float) -> StorageReservation:
    return storage_reservations.FixedAbsoluteStorageReservation.from_gb(gigabytes)


@pytest.mark.parametrize(
    ("reservation", "left_gib", "dense_gib"),
    [
        (FixedPercentageStorageReservation(0.5), 20, 0),
        (absolute(10), 30, 0),
        (HeuristicalStorageReservation(0.25, dense_tensor_estimate=4 * GIB), 26, 4),
    ],
)
def test_a_storage_reservation_is_kept_free(reservation: StorageReservation, left_gib: int, dense_gib: int) -> None:
    """In percent, in bytes, and by heuristics, whose dense part we count ourselves; tables that do not fit beside it
    are not planned."""
    planner = ShardPlanner(GPUS, storage_reservation=reservation)
    planner.plan(model(), [Sharder("table_wise")])
    for rank in planner.document.ranks:
        assert rank.capacity.hbm == pytest.approx((left_gib + dense_gib) * GIB, rel=1e-3)
    held = (left_gib + 1) * GIB // (DIM * 4)
    with pytest.raises(PlannerError) as error:
        ShardPlanner(GPUS, storage_reservation=reservation).plan(model("ab", rows=held), [Sharder("table_wise")])
    assert "reserved: " in str(error.value)
    ShardPlanner(GPUS, storage_reservation=FixedPercentageStorageReservation(0)).plan(
        model("ab", rows=held), [Sharder("table_wise")]
    )


def test_a_reservation_of_everything_is_too_little_storage() -> None:
    """Each in its own words: gigabytes per device where it was told so, else a share."""
    tables = model("ab", rows=10**9), [Sharder("table_wise", "row_wise")]
    said = {
        "0.5 GB per device": absolute(0.5),
        "FixedPercentageStorageReservation (30% of HBM)": FixedPercentageStorageReservation(0.3),
    }
    sku_aware = getattr(storage_reservations, "SKUAwareStorageReservation", None)  # of TorchRec 1.9
    if sku_aware is not None:
        said["SKUAwareStorageReservation (2.00 GiB for a margin"] = sku_aware(margin_bytes=2 * GIB)
    for words, reservation in said.items():
        with pytest.raises(PlannerError) as error:
            ShardPlanner(GPUS, storage_reservation=reservation).plan(*tables)
        assert error.value.error_type == PlannerErrorType.INSUFFICIENT_STORAGE
        assert words in str(error.value)
    for reservation in (absolute(40), FixedPercentageStorageReservation(1.0)):
        with pytest.raises(
            InputError, match=r"storage_reservation: nothing is left for tables: .* reserved of 40.00 GiB"
        ):
            ShardPlanner(GPUS, storage_reservation=reservation).plan(model())
    with pytest.raises(InputError, match="storage_reservation: The reserved topology"):
        ShardPlanner(GPUS, storage_reservation=HeuristicalStorageReservation(0.15)).plan(model(dense=2**22))
