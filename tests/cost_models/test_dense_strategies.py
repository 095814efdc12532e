"""Strategies of dense layers: bytes of a rank and of its collectives, by formulas written out apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.collective_calls import CollectiveCall, Members
from cost_models.dense import optimizer_seconds, parameter_bytes
from cost_models.dense_size import rank_parameters
from cost_models.dense_strategies import (
    SHARDED,
    DenseStrategy,
    NumberBytes,
    TrainedLayer,
    held_bytes,
    layer_calls,
    strategies,
)
from cost_models.workload.dense_part import Dense
from tests.oracles.instances import workload

MIXED = NumberBytes(updated=4, computed=2, gradient=2, sent_gradient=2, state=8)
"""Adam in mixed precision: ZeRO's 2 + 2 + 12 bytes a weight."""
FULL = NumberBytes(updated=4, computed=4, gradient=4, sent_gradient=4, state=8)
LAYER = TrainedLayer(parameters=1e6, input_elements=1000, output_elements=1000, kept_elements=500, shared_elements=64)
RANKS = st.sampled_from([(8, 8), (16, 8), (128, 8), (64, 4), (2, 1), (1, 1)])
"""Ranks of a world and of its nodes."""


def by_phase(calls: list[CollectiveCall]) -> list[tuple[str, str, float, int]]:
    return [(call.phase, call.operation, call.buffer_bytes, call.members.size) for call in calls]


@pytest.mark.parametrize(
    ("stage", "gb"),
    [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)],
)
def test_the_stages_hold_what_zero_publishes(stage: int, gb: float) -> None:
    """7.5 billion weights over 64 ranks (arXiv:1910.02054, figure 1). Of the third stage it counts a sharded copy for
    the matrix products, 2 bytes a weight, which FSDP does not keep."""
    layer = TrainedLayer(7.5e9, 0, 0)
    strategy = DenseStrategy() if stage == 0 else DenseStrategy(stage=stage, shard_ranks=64)  # type: ignore[arg-type]
    held = held_bytes(strategy, layer, MIXED, 1.0)
    copy = 2 * 7.5e9 / 64 if stage == 3 else 0.0
    assert (held.kept + copy) / 1e9 == pytest.approx(gb, abs=0.05)


def test_17_billion_weights_fit_128_ranks_of_80_gb_when_sharded_alone() -> None:
    """Replicated 16 bytes each are 272 GB; FSDP over all ranks holds 2 GB, and over nodes of 8 30 GB."""
    layers = [TrainedLayer(1e9, 4096, 4096) for _ in range(17)]
    kept = {
        strategy: sum(held_bytes(strategy, layer, MIXED, 512).kept for layer in layers)
        for strategy in (
            DenseStrategy(),
            DenseStrategy(stage=3, shard_ranks=8),
            DenseStrategy(stage=3, shard_ranks=128),
        )
    }
    activations = 17 * 512 * 4096 * 2
    assert [held - activations for held in kept.values()] == pytest.approx([17e9 * 16, 17e9 * 14 / 8, 17e9 * 14 / 128])
    assert [held < 80e9 for held in kept.values()] == [False, True, True]
    whole = held_bytes(DenseStrategy(stage=3, shard_ranks=128), layers[0], MIXED, 512).gathered
    assert whole == 1e9 * (2 + 2)


def test_replicas_sum_their_gradients_and_shards_reduce_and_gather() -> None:
    """Of 10^6 weights on 16 ranks in nodes of 8; volumes of ZeRO's section 7: 2, 2, 2 and 3 times the weights."""
    weights, shard = 2e6, 2e6 / 8
    expected = {
        DenseStrategy(): [("backward", "all_reduce", weights, 16)],
        DenseStrategy(stage=1, shard_ranks=16): [
            ("backward", "reduce_scatter", weights, 16),
            ("update", "all_gather", weights, 16),
        ],
        DenseStrategy(stage=2, shard_ranks=16): [
            ("backward", "reduce_scatter", weights, 16),
            ("update", "all_gather", weights, 16),
        ],
        DenseStrategy(stage=3, shard_ranks=16): [
            ("forward", "all_gather", weights, 16),
            ("backward", "all_gather", weights, 16),
            ("backward", "reduce_scatter", weights, 16),
        ],
        DenseStrategy(stage=3, shard_ranks=8): [
            ("forward", "all_gather", weights, 8),
            ("backward", "all_gather", weights, 8),
            ("backward", "reduce_scatter", weights, 8),
            ("backward", "all_reduce", shard, 2),
        ],
        DenseStrategy("columns", 8): [("backward", "all_reduce", shard, 2)],
        DenseStrategy("rows", 8, stage=3, shard_ranks=2): [
            ("forward", "all_gather", shard, 2),
            ("backward", "all_gather", shard, 2),
            ("backward", "reduce_scatter", shard, 2),
        ],
        DenseStrategy("tokens", 8): [
            ("forward", "all_gather", 64 * 32 * 8 * 2, 8),
            ("backward", "reduce_scatter", 64 * 32 * 8 * 2, 8),
            ("backward", "all_reduce", weights, 16),
        ],
    }
    for strategy, calls in expected.items():
        assert by_phase(list(layer_calls(strategy, LAYER, MIXED, 32, 16))) == calls
    across = list(layer_calls(DenseStrategy(stage=2, shard_ranks=8), LAYER, MIXED, 32, 16))[1]
    assert across.members == Members(2, are_peers=True)


@given(RANKS, st.sampled_from([MIXED, FULL]), st.floats(1, 1e4))
def test_all_strategies_hold_the_same_model(sizes: tuple[int, int], numbers: NumberBytes, samples: float) -> None:
    """What is sharded or cut adds up to one copy over the ranks that have parts of it, and no strategy holds more
    weights, gradients and state than replication does."""
    world, inside = sizes
    found = strategies(world, inside)
    assert len(set(found)) == len(found)
    replicated = held_bytes(found[0], LAYER, numbers, samples)
    for strategy in found:
        held = held_bytes(strategy, LAYER, numbers, samples)
        parts = strategy.weight_parts * strategy.shard_ranks
        assert world % parts == 0
        assert held.state * (parts if strategy.stage else strategy.weight_parts) == pytest.approx(1e6 * numbers.state)
        assert held.weights <= replicated.weights
        assert held.gradients <= replicated.gradients
        if strategy.stage == 3:
            assert held.weights * parts == pytest.approx(1e6 * numbers.updated)
            assert held.gradients * parts == pytest.approx(1e6 * numbers.gradient)
        list(layer_calls(strategy, LAYER, numbers, samples, world))


def test_a_layer_without_products_is_cut_along_samples_and_tokens_alone() -> None:
    """Norms have no columns of weights to cut; on one node nothing is sharded twice."""
    assert {each.cut for each in strategies(16, 8, ("samples", "tokens"))} == {"samples", "tokens"}
    assert strategies(8, 8, ("samples",)) == (
        DenseStrategy(),
        *(DenseStrategy(stage=stage, shard_ranks=8) for stage in SHARDED),
    )


def test_activations_are_cut_but_for_inputs_that_all_columns_read() -> None:
    """32 samples of a rank in 2 bytes, those of all 8 ranks where columns of the weights are cut."""
    held = {
        cut: held_bytes(DenseStrategy(cut, 1 if cut == "samples" else 8), LAYER, MIXED, 32).activations  # type: ignore[arg-type]
        for cut in ("samples", "rows", "columns", "tokens")
    }
    own = 32 * 2 * (1000 + 500)
    assert held == {
        "samples": own,
        "rows": own,
        "columns": own + 32 * 2 * 1000 * 7,
        "tokens": own + 32 * 2 * 64 * 8,
    }


def test_numbers_are_those_of_the_formats_of_a_dense_part() -> None:
    """Mixed precision keeps a copy, fp32 none; what is encoded on the way is held in fp32."""
    mixed = NumberBytes.of(Dense(dtype="bf16", optimizer="adam"))
    assert (mixed, mixed.copied) == (MIXED, 2)
    plain = NumberBytes.of(Dense(dtype="tf32", optimizer="sgd"))
    assert (plain, plain.copied) == (NumberBytes(4, 4, 4, 4, 0), 0)
    coded = NumberBytes.of(Dense(dtype="bf16", gradients="int8"))
    assert (coded.gradient, coded.sent_gradient) == (4, 1)


@pytest.mark.parametrize(
    "dense", [{"dtype": "bf16", "optimizer": "adam"}, {"optimizer": "sgd"}, {"optimizer": "adagrad"}]
)
def test_an_update_moves_what_that_of_the_dense_part_does(dense: dict[str, object]) -> None:
    """Of all weights, at one byte a second."""
    asked = workload([{"rows": 10, "dim": 4}], dense={"top_mlp": [8, 1], **dense})
    moved = NumberBytes.of(asked.dense).update_bytes * rank_parameters(asked)
    assert moved == pytest.approx(optimizer_seconds(asked, 1.0))
    held = held_bytes(DenseStrategy(), TrainedLayer(rank_parameters(asked), 0, 0), NumberBytes.of(asked.dense), 1.0)
    assert held.kept == pytest.approx(parameter_bytes(asked))


def test_what_is_no_strategy_is_refused() -> None:
    """Cuts over nobody, and shards of what others do not have."""
    with pytest.raises(ValueError, match="cut by columns over 1 ranks"):
        DenseStrategy("columns")
    with pytest.raises(ValueError, match="FSDP over 1 ranks"):
        DenseStrategy(stage=3)
    with pytest.raises(ValueError, match="2 ranks have the same weights; 16 of them"):
        list(layer_calls(DenseStrategy("rows", 8, 3, 16), LAYER, MIXED, 32, 16))
    assert DenseStrategy("rows", 8, 3, 16).words == "tensor parallel by rows over 8 ranks, FSDP over 16"
    assert DenseStrategy().words == "data parallel, replicated"
