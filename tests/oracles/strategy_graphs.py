"""Random graphs of layers with strategies, and all their plans, written out."""

import numpy as np

from planner.certificates.strategy_graph import StrategyGraph


def random_graph(seed: int, most_layers: int = 7, most_strategies: int = 4, forbidden: float = 0.0) -> StrategyGraph:
    """A random directed acyclic graph whose costs and bytes are small whole numbers, so that sums are exact and ties
    frequent; a share of the pairs of neighbours' strategies is forbidden."""
    random = np.random.default_rng(seed)
    names = [f"layer{n}" for n in range(random.integers(1, most_layers + 1))]
    count = {name: int(random.integers(1, most_strategies + 1)) for name in names}
    share = random.uniform(0.2, 0.9)
    edges = {
        (u, v): random.integers(0, 20, (count[u], count[v])).astype(float)
        for place, u in enumerate(names)
        for v in names[place + 1 :]
        if random.random() < share
    }
    for between in edges.values():
        between[random.random(between.shape) < forbidden] = np.inf
    costs = {name: random.integers(0, 30, count[name]).astype(float) for name in names}
    held = {name: random.integers(0, 12, count[name]).astype(float) for name in names}
    return StrategyGraph(costs, edges, held)


def every_plan(graph: StrategyGraph) -> tuple[np.ndarray, np.ndarray]:
    """Cost and bytes of all plans."""
    layers = list(graph.costs)
    every = np.indices([len(graph.costs[layer]) for layer in layers]).reshape(len(layers), -1)
    chosen = dict(zip(layers, every, strict=True))
    cost = sum(graph.costs[layer][chosen[layer]] for layer in layers)
    held = sum(graph.memory_bytes[layer][chosen[layer]] for layer in layers)
    for (u, v), between in graph.edge_costs.items():
        cost = cost + between[chosen[u], chosen[v]]
    return cost, held
