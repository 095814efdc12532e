"""What is outside of tables takes memory of every rank."""

import pytest
import torch
from torch import nn
from torchrec import EmbeddingBagCollection
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.storage_reservations import (
    FixedAbsoluteStorageReservation,
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
)
from torchrec.distributed.planner.types import PlannerError
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from planner.integrations.torchrec_planner import ShardPlanner

GIB = 2**30
META = torch.device("meta")


def linear(gib: float) -> nn.Linear:
    return nn.Linear(2**14, round(gib * GIB / 4 / 2**14), bias=False, device=META)


def model(over: nn.Module, gib: int = 20) -> nn.Module:
    """Four tables, of `gib` GiB together, and what is over them."""
    tables = [
        EmbeddingBagConfig(num_embeddings=gib * 2**21 // 4, embedding_dim=128, name=f"t{i}", feature_names=[f"f{i}"])
        for i in range(4)
    ]
    return nn.ModuleDict({"bags": EmbeddingBagCollection(tables=tables, device=META), "over": over})


def planner(reservation: object, hbm_gib: int = 40) -> ShardPlanner:
    """For two GPUs, in HBM alone."""
    constraints = {f"t{i}": ParameterConstraints(compute_kernels=["fused"]) for i in range(4)}
    theirs = Topology(world_size=2, compute_device="cuda", hbm_cap=hbm_gib * GIB)
    return ShardPlanner(theirs, batch_size=64, constraints=constraints, storage_reservation=reservation)


def dense_gib(of: ShardPlanner) -> float:
    """Memory of a rank that no table takes, as the document counts it."""
    return of.document.ranks[0].bytes.hbm / GIB


def test_a_dense_part_that_leaves_no_room_is_refused() -> None:
    """A linear layer of 16 GiB, with gradients and state, on GPUs of 40 GiB, whatever is reserved."""
    for reservation in (None, FixedPercentageStorageReservation(0.15), HeuristicalStorageReservation(0.15)):
        with pytest.raises(PlannerError):
            planner(reservation).plan(model(linear(16), 4))


def test_a_dense_part_that_fits_leaves_the_rest() -> None:
    """4 GiB of weights, with as much of gradients and twice as much of Adam's state, leave 24 of 40 GiB: tables of
    20 GiB on each rank fit, tables of 26 do not."""
    keeps_nothing = FixedPercentageStorageReservation(0.0)
    assert planner(keeps_nothing).plan(model(linear(4), 40)).plan
    with pytest.raises(PlannerError, match="no plan"):
        planner(keeps_nothing).plan(model(linear(4), 52))
    assert planner(keeps_nothing).plan(model(nn.Identity(), 52)).plan


def test_the_optimizer_that_is_applied_to_it_counts() -> None:
    """SGD keeps nothing, and Adam two numbers for each."""
    sizes = {}
    for kind in (torch.optim.SGD, torch.optim.Adam):
        layer = linear(2)
        apply_optimizer_in_backward(kind, layer.parameters(), {"lr": 0.1})
        of = planner(FixedPercentageStorageReservation(0.0))
        of.plan(model(layer))
        sizes[kind] = dense_gib(of)
    assert sizes[torch.optim.Adam] - sizes[torch.optim.SGD] == pytest.approx(2 * 2, rel=0.03)


def test_buffers_and_frozen_weights_have_neither_gradients_nor_state() -> None:
    """They count once."""
    sizes = []
    for over in (nn.Identity(), linear(2).requires_grad_(False), nn.Module()):
        if type(over) is nn.Module:
            over.register_buffer("kept", torch.empty(GIB // 2, device=META))
        of = planner(FixedPercentageStorageReservation(0.0))
        of.plan(model(over))
        sizes.append(dense_gib(of))
    assert [size - sizes[0] for size in sizes[1:]] == pytest.approx([2.0, 2.0], rel=0.03)


@pytest.mark.parametrize(
    ("reservation", "free_gib"),
    [
        (FixedPercentageStorageReservation(0.5), 20.0),
        (FixedPercentageStorageReservation(0.1), 40 - 8.0),
        (FixedAbsoluteStorageReservation.from_gb(12), 28.0),
        (HeuristicalStorageReservation(0.1), 36 - 6 * 2.0),
        (HeuristicalStorageReservation(0.1, dense_tensor_estimate=3 * GIB), 36 - 3.0),
    ],
    ids=["percentage", "too-small", "absolute", "heuristical", "estimate"],
)
def test_the_dense_part_is_inside_of_what_is_reserved(reservation: object, free_gib: float) -> None:
    """2 GiB of weights, 8 with gradients and Adam's state: what is reserved has room for it, or what it takes beyond is
    counted; an estimate that the caller gives stands for it."""
    of = planner(reservation)
    of.plan(model(linear(2), 4))
    room = of.document.ranks[0].capacity.hbm / GIB - (dense_gib(of) - dense_gib_of_tables())
    assert room == pytest.approx(free_gib, abs=0.05)


def dense_gib_of_tables() -> float:
    """The same tables without a dense part."""
    of = planner(FixedPercentageStorageReservation(0.0))
    of.plan(model(nn.Identity(), 4))
    return dense_gib(of)
