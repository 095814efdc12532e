"""Costs of strategies as arrays: each number is that of its strategy's calls and bytes, looked up one by one."""

import numpy as np
import pytest

from cost_models.collective_calls import CollectiveCall, Members
from cost_models.dense_strategies import DenseStrategy, NumberBytes, TrainedLayer, held_bytes, layer_calls, strategies
from cost_models.group_laws import GroupLaws
from cost_models.strategy_costs import StrategyCosts
from tests.oracles.instances import node_group, topology, workload

LAWS = GroupLaws(topology(node_group("a", nodes=2, ranks=4)), workload([{"rows": 1000, "dim": 16}]))
MIXED = NumberBytes(updated=4, computed=2, gradient=2, sent_gradient=2, state=8)
COSTS = StrategyCosts(LAWS, MIXED, samples_per_rank=32, world_size=8, hbm_bytes_per_s=1e12)
ALL = strategies(8, 4)
LAYER = TrainedLayer(parameters=1e6 + 1, input_elements=1000, output_elements=600, shared_elements=16)


def test_a_layer_takes_its_calls_by_phase_and_its_update() -> None:
    """For every strategy; bytes are rounded up to whole ones."""
    found = COSTS.layer(LAYER, ALL)
    for number, strategy in enumerate(ALL):
        calls = list(layer_calls(strategy, LAYER, MIXED, 32, 8))
        parts = strategy.weight_parts * strategy.shard_ranks
        update = (1e6 + 1) / parts * (4 + 4 + 8 + 8 + 2 + 2) / 1e12
        for phase, seconds in (("forward", 0.0), ("backward", 0.0), ("update", update)):
            of_calls = sum(LAWS.seconds(call) for call in calls if call.phase == phase)
            assert getattr(found, f"{phase}_s")[number] == pytest.approx(of_calls + seconds)
        held = held_bytes(strategy, LAYER, MIXED, 32)
        assert 0 <= found.kept_bytes[number] - held.kept < 1
        assert 0 <= found.gathered_bytes[number] - held.gathered < 1
    assert np.array_equal(found.kept_bytes, np.floor(found.kept_bytes))
    assert np.array_equal(found.seconds, found.forward_s + found.backward_s + found.update_s)


def test_between_layers_activations_change_their_layout() -> None:
    """600 numbers of each of 32 samples in 2 bytes over nodes of 4: gathered before columns, nothing from columns to
    rows, reduce-scattered after rows."""
    own, columns, rows = DenseStrategy(), DenseStrategy("columns", 4), DenseStrategy("rows", 4)
    node, size = Members(4), 600 * 32 * 4 * 2
    gathered = LAWS.seconds(CollectiveCall("all_gather", "forward", size, node))
    reduced = LAWS.seconds(CollectiveCall("reduce_scatter", "forward", size, node))
    summed = LAWS.seconds(CollectiveCall("all_reduce", "forward", size, node))
    moved = LAWS.seconds(CollectiveCall("all_to_all", "forward", size / 4, node))
    assert COSTS.between(600, [own, columns, rows], [own, columns, rows]) == pytest.approx(
        np.array(
            [
                [0.0, gathered + reduced, 2 * moved],
                [2 * moved, gathered + reduced, 0.0],
                [reduced + gathered, 2 * summed, reduced + gathered],
            ]
        )
    )
