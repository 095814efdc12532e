"""The dynamic programme over a graph of layers: one layer after the other is eliminated.

What an eliminated layer and those eliminated before it cost at least is a table over the strategies of their neighbours
that are left: the layer's message. The order keeps the set of such neighbours small: always a layer with the fewest
(GENERATESEQ of PaSE, Elango, IPDPS 2021; minimum degree, Rose 1972), so that N layers of K strategies with M
neighbours at most take O(N K^(M+1)) operations. This is bucket elimination (Dechter, Artif. Intell. 113, 1999), exact
for any graph.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from planner.certificates.strategy_graph import StrategyGraph, StrategyPlan, forbidden
from planner.problem.numbers import Floats, Ints

BLOCK_ENTRIES = 2**20
"""Numbers that are compared at once."""
MOST_ENTRIES = 2**27
"""Numbers of a message, 8 bytes each and as many for the strategies: beyond them a graph is refused."""


@dataclass(frozen=True)
class Message:
    """What eliminating a layer leaves."""

    layer: int
    scope: tuple[int, ...]
    """Numbers of the layers that it depends on, ascending; all of them are eliminated later."""
    values: Floats
    """[K of each layer of the scope] least weighted cost of the layer and of all that hang on it."""
    chosen: Ints
    """[the same] the layer's strategy in it, the first one of equals."""

    def at(self, strategies: Ints) -> Floats:
        """[L] values where L rows of strategies [L, N] are chosen."""
        return np.asarray(self.values[tuple(strategies[:, layer] for layer in self.scope)])


@dataclass(frozen=True)
class Elimination:
    """All messages of a graph, in the order in which layers were eliminated, for given weights."""

    messages: tuple[Message, ...]

    @property
    def least(self) -> float:
        """Least weighted cost of any plan; infinite where there is none."""
        return math.fsum(float(message.values) for message in self.messages if not message.scope)

    def chosen(self) -> Ints:
        """[N] strategies of a plan of that cost, traced back; the first ones of equals."""
        chosen = np.zeros(len(self.messages), dtype=np.int64)
        for message in reversed(self.messages):
            chosen[message.layer] = message.chosen[tuple(chosen[list(message.scope)])]
        return chosen


def elimination_order(graph: StrategyGraph) -> tuple[int, ...]:
    """Numbers of the layers: next is always one with the fewest neighbours left, of several one whose neighbours have
    the fewest strategies together, then the first. What is left of its neighbours become each other's."""
    left = nx.Graph((graph.number[u], graph.number[v]) for u, v in graph.edge_costs)
    left.add_nodes_from(range(len(graph.layers)))
    order: list[int] = []

    def table(layer: int) -> tuple[int, int, int]:
        neighbours = left.adj[layer]
        return len(neighbours), math.prod(graph.strategies[each] for each in neighbours), layer

    while left:
        layer = min(left, key=table)
        left.add_edges_from(itertools.combinations(list(left.adj[layer]), 2))
        left.remove_node(layer)
        order.append(layer)
    return tuple(order)


def eliminate(
    graph: StrategyGraph, order: Sequence[int], *, cost_weight: float = 1.0, byte_weight: float = 0.0
) -> Elimination:
    """Eliminate all layers in an order, where a plan costs its cost and its memory, each times its weight.

    What is not to be had is not, whatever the weights. Raises ValueError where a message would not fit in memory.
    """
    of_layer: dict[int, list[tuple[tuple[int, ...], Floats]]] = {layer: [] for layer in order}
    place = {layer: n for n, layer in enumerate(order)}

    def file(scope: tuple[int, ...], values: Floats) -> None:
        of_layer[min(scope, key=place.__getitem__)].append((scope, values))

    for name, cost in graph.costs.items():
        file((graph.number[name],), _weighted(cost, cost_weight) + byte_weight * graph.held(name))
    for writer, reader, cost in graph.numbered_edges():
        file((writer, reader), _weighted(cost, cost_weight))
    messages = []
    for layer in order:
        tables = of_layer.pop(layer)
        scope = tuple(sorted(set().union(*(scope for scope, _ in tables)) - {layer}))
        shape = tuple(graph.strategies[each] for each in scope)
        if math.prod(shape) > MOST_ENTRIES:
            names = ", ".join(graph.layers[each] for each in scope)
            raise ValueError(f"{names} have {math.prod(shape)} strategies together; give them fewer")
        message = _minimised(layer, scope, shape, [_aligned(own, values, (layer, *scope)) for own, values in tables])
        messages.append(message)
        if scope:
            file(scope, message.values)
    return Elimination(tuple(messages))


def cheapest_plan(graph: StrategyGraph, memory_price: float = 0.0) -> StrategyPlan | None:
    """The plan of the least cost and memory together, at a price of a byte; None where there is no plan at all."""
    found = eliminate(graph, elimination_order(graph), byte_weight=memory_price)
    return graph.plan(found.chosen()) if found.least < math.inf else None


def _weighted(cost: Floats, weight: float) -> Floats:
    """Costs times a weight; infinite ones stay so at a weight of 0."""
    return cost * weight if weight else np.where(forbidden(cost), np.inf, 0.0)


def _aligned(scope: tuple[int, ...], values: Floats, axes: tuple[int, ...]) -> Floats:
    """A table with an axis for each of `axes`, of length 1 where it does not depend on it."""
    ascending = values.transpose([scope.index(each) for each in axes if each in scope])
    lengths = iter(ascending.shape)
    return ascending.reshape([next(lengths) if each in scope else 1 for each in axes])


def _minimised(layer: int, scope: tuple[int, ...], shape: tuple[int, ...], tables: list[Floats]) -> Message:
    """The least sum of tables [K(layer), …] over the strategies of a layer, block by block."""
    best, chosen = np.full(shape, np.inf), np.zeros(shape, dtype=np.int64)
    block = max(1, BLOCK_ENTRIES // max(best.size, 1))
    for start in range(0, len(tables[0]), block):
        total = sum((table[start : start + block] for table in tables[1:]), start=tables[0][start : start + block])
        first = total.argmin(axis=0)
        least = np.take_along_axis(total, first[None], axis=0)[0]
        better = least < best
        best, chosen = np.where(better, least, best), np.where(better, first + start, chosen)
    return Message(layer, scope, best, chosen)
