"""Strategies of dense parts on clusters, in seconds of their laws: what small and large ones take."""

import itertools
from collections.abc import Sequence

import numpy as np

from cost_models.dense_strategies import DenseStrategy, NumberBytes, TrainedLayer, strategies
from cost_models.group_laws import GroupLaws
from cost_models.kinds import rank_kinds
from cost_models.strategy_costs import StrategyCosts
from planner.certificates.elimination import cheapest_plan
from planner.certificates.strategy_graph import StrategyGraph
from tests.oracles.instances import workload
from tests.oracles.strategy_labels import constrained_optimum
from topologies.loading import load_topology

BATCH = 65536


def mlp(cluster: str, nodes: int, widths: Sequence[int], **dense: object) -> tuple[StrategyGraph, list[DenseStrategy]]:
    """An MLP whose samples come, and whose outputs are wanted, each on its own rank; and the strategies of a layer."""
    topology, asked = load_topology(cluster, nodes=nodes), workload([{"rows": 10, "dim": 4}], dense=dense)
    (kind,), world = rank_kinds(topology, asked), topology.world_size
    numbers = NumberBytes.of(asked.dense)
    costs = StrategyCosts(GroupLaws(topology, asked), numbers, BATCH / world, world, kind.hbm_bytes_per_s)
    every, own = strategies(world, 8), [DenseStrategy()]
    layers = [TrainedLayer(read * made + made, read, made) for read, made in itertools.pairwise(widths)]
    names = [f"layer{number}" for number in range(len(layers))]
    found = {name: costs.layer(layer, every) for name, layer in zip(names, layers, strict=True)}
    seconds = {"samples": np.zeros(1), **{name: each.seconds for name, each in found.items()}, "loss": np.zeros(1)}
    edges = {("samples", names[0]): costs.between(widths[0], own, every)}
    edges |= {
        pair: costs.between(width, every, every)
        for pair, width in zip(itertools.pairwise(names), widths[1:], strict=False)
    }
    edges[names[-1], "loss"] = costs.between(widths[-1], every, own)
    return StrategyGraph(seconds, edges, {name: each.kept_bytes for name, each in found.items()}), list(every)


def test_the_mlps_of_dlrm_stay_replicated_on_64_a100() -> None:
    """As DMT found (arXiv:2403.00877); sharding or cutting 10 MB of weights only adds collectives."""
    graph, every = mlp("dgx-a100-40", 8, [3456, 1024, 1024, 512, 256, 1], top_mlp=[1])
    plan = cheapest_plan(graph)
    assert plan is not None
    assert {every[plan.strategy_of[layer]] for layer in graph.layers[1:-1]} == {DenseStrategy()}


def test_17_billion_weights_are_cut_or_sharded_on_128_h100() -> None:
    """Replicated they hold 275 GB and fit nowhere. In 60 GB gradients and state are sharded over all ranks, in 10 GB
    weights are cut inside nodes, too, and in 2.5 GB all is sharded over all ranks; 1 GB holds nothing of this."""
    graph, every = mlp("dgx-h100", 16, [32768] * 17, top_mlp=[1], dtype="bf16", optimizer="adam")
    replicated = graph.plan(np.zeros(len(graph.layers), dtype=np.int64))
    assert replicated.memory_bytes > 270e9
    chosen = []
    for capacity in (60e9, 10e9, 2.5e9):
        found = constrained_optimum(graph, capacity)
        assert found.status == "optimal"
        assert found.plan is not None
        assert found.plan.memory_bytes <= capacity
        chosen.append({every[found.plan.strategy_of[layer]] for layer in graph.layers[1:-1]})
    roomy, tight, scarce = chosen
    assert roomy == {DenseStrategy(stage=2, shard_ranks=128)}
    assert {each.cut for each in tight} >= {"columns", "rows"}
    assert scarce == {DenseStrategy(stage=3, shard_ranks=128)}
    assert constrained_optimum(graph, 1e9).status == "infeasible"
