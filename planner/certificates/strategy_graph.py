"""Layers with their strategies as arrays: what each costs, what neighbours cost together, which memory each takes."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import networkx as nx
import numpy as np

from planner.problem.numbers import Bools, Floats, Ints

Edge = tuple[str, str]


@dataclass(frozen=True)
class StrategyGraph:
    """A directed acyclic graph of layers; K(v) strategies of layer v, one of which is to be chosen for each.

    Costs are in any one unit; infinite where a strategy, or a pair of neighbours' strategies, is not to be had.
    """

    costs: Mapping[str, Floats]
    """[K(v)] by layer, in an order that breaks ties."""
    edge_costs: Mapping[Edge, Floats] = field(default_factory=dict)
    """[K(u), K(v)] by edge, from the layer u that writes to the layer v that reads."""
    memory_bytes: Mapping[str, Floats] = field(default_factory=dict)
    """[K(v)] by layer: whole bytes that a rank holds of it, so that sums are exact; none where it is left out."""

    def __post_init__(self) -> None:
        for layer, cost in self.costs.items():
            if cost.ndim != 1 or not len(cost) or np.isnan(cost).any() or np.isneginf(cost).any():
                raise ValueError(f"the costs of {layer} must be numbers, one for each of its strategies")
        for (writer, reader), cost in self.edge_costs.items():
            if writer not in self.costs or reader not in self.costs:
                raise ValueError(f"the edge {writer} → {reader} has an end without costs")
            shape = (len(self.costs[writer]), len(self.costs[reader]))
            if cost.shape != shape or np.isnan(cost).any() or np.isneginf(cost).any():
                raise ValueError(f"the costs of the edge {writer} → {reader} must be numbers in the shape {shape}")
        for layer, held in self.memory_bytes.items():
            if layer not in self.costs or held.shape != self.costs[layer].shape:
                raise ValueError(f"the memory of {layer} must have a number for each of its strategies")
            if not np.isfinite(held).all() or (held < 0).any() or (held != np.floor(held)).any():
                raise ValueError(f"the memory of {layer} must be whole bytes")
        if not nx.is_directed_acyclic_graph(self.graph):
            raise ValueError(f"layers read each other in a circle: {nx.find_cycle(self.graph)}")

    @cached_property
    def graph(self) -> "nx.DiGraph[str]":
        """The layers and their edges."""
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(self.costs)
        graph.add_edges_from(self.edge_costs)
        return graph

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Their names, in the order in which they are numbered."""
        return tuple(self.costs)

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The number of each layer."""
        return {layer: n for n, layer in enumerate(self.layers)}

    @cached_property
    def strategies(self) -> tuple[int, ...]:
        """How many each layer has, by number."""
        return tuple(len(cost) for cost in self.costs.values())

    def held(self, layer: str) -> Floats:
        """[K(v)] bytes of a layer."""
        return self.memory_bytes.get(layer, np.zeros(len(self.costs[layer])))

    def numbered_edges(self) -> Iterator[tuple[int, int, Floats]]:
        """Numbers of the writer and of the reader of each edge, and its costs."""
        for (writer, reader), cost in self.edge_costs.items():
            yield self.number[writer], self.number[reader], cost

    def plan(self, chosen: Ints) -> "StrategyPlan":
        """The strategies of all layers, given by their numbers in the order of the layers."""
        strategy_of = dict(zip(self.layers, chosen.tolist(), strict=True))
        own = [float(self.costs[layer][k]) for layer, k in strategy_of.items()]
        between = [float(cost[strategy_of[u], strategy_of[v]]) for (u, v), cost in self.edge_costs.items()]
        held = math.fsum(float(self.held(layer)[k]) for layer, k in strategy_of.items())
        return StrategyPlan(strategy_of, math.fsum(own + between), held)


@dataclass(frozen=True)
class StrategyPlan:
    """A strategy for each layer."""

    strategy_of: Mapping[str, int]
    """Its number, by layer."""
    cost: float
    memory_bytes: float


def forbidden(values: Floats) -> Bools:
    """Where costs say that something is not to be had."""
    return np.isposinf(values)
