"""The constrained optimum by labels: partial plans, extended layer by layer, of which few can still win.

Layers are taken in the reverse order of their elimination, so that the messages of those that are left say exactly what
a partial plan takes to complete at least: in cost, in memory, and in both at the price of the Lagrangian bound. A label
is dropped where one of the three shows that it fits nowhere or beats nothing (Dumitrescu and Boland, Networks 42,
2003), or where another one with the same strategies of all layers that matter to the rest costs and holds no more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.certificates.elimination import Elimination, Message, eliminate, elimination_order
from planner.certificates.strategy_graph import StrategyGraph, forbidden
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.rounding import ROUNDING
from tests.oracles.memory_price import ConstrainedPlan, price_memory

MOST_LABELS = 2**18
"""Labels of one layer, before any is dropped, beyond which the search gives up."""


@dataclass(frozen=True)
class _Labels:
    """L partial plans."""

    chosen: Ints
    """[L, N] 0 for layers that are not chosen yet."""
    cost: Floats
    """[L]"""
    memory_bytes: Floats
    """[L]"""

    def __len__(self) -> int:
        return len(self.cost)

    def kept(self, which: Bools | Ints) -> "_Labels":
        return _Labels(self.chosen[which], self.cost[which], self.memory_bytes[which])


@dataclass(frozen=True)
class _Limit:
    """The most that a plan may take which can win, in one weighing of cost and bytes."""

    elimination: Elimination
    cost_weight: float
    byte_weight: float
    most: float

    def keeps(self, labels: _Labels, left: Sequence[int]) -> Bools:
        """[L] whether labels, completed by what messages by number say at least, may stay within it."""
        total = self.cost_weight * labels.cost + self.byte_weight * labels.memory_bytes
        for number in left:
            total = total + self.elimination.messages[number].at(labels.chosen)
        return np.asarray(total <= self.most)


def constrained_optimum(graph: StrategyGraph, capacity_bytes: float, most_labels: int = MOST_LABELS) -> ConstrainedPlan:
    """The cheapest plan whose layers fit in a capacity together, and the bound that proves it.

    Where a layer would have more than `most_labels`, the answer is that of `price_memory`: a plan that fits, and a
    bound.
    """
    order = elimination_order(graph)
    priced = price_memory(graph, capacity_bytes, order)
    if priced.plan is None or priced.status == "optimal":
        return priced
    limits = list(_limits(graph, order, priced, capacity_bytes))
    messages = limits[0].elimination.messages
    numbers = np.min_scalar_type(max(graph.strategies))
    labels = _Labels(np.zeros((1, len(order)), dtype=numbers), np.zeros(1), np.zeros(1))
    for number in reversed(range(len(messages))):
        layer = messages[number].layer
        if len(labels) * graph.strategies[layer] > most_labels:
            return priced
        labels = _extended(graph, labels, layer, set(order[number:]))
        left = _outermost(messages[:number], set(order[number:]))
        for limit in limits:
            labels = labels.kept(limit.keeps(labels, left))
        labels = _undominated(labels, sorted({each for n in left for each in messages[n].scope}))
    plans = [priced.plan, *(graph.plan(chosen) for chosen in labels.chosen[labels.cost.argsort(kind="stable")[:1]])]
    best = min(plans, key=lambda plan: plan.cost)
    return ConstrainedPlan("optimal", best, best.cost - ROUNDING * abs(best.cost), priced.memory_price)


def _limits(
    graph: StrategyGraph, order: Sequence[int], priced: ConstrainedPlan, capacity_bytes: float
) -> Iterator[_Limit]:
    """What a plan within a capacity keeps to that costs no more than the one that is known; sums of costs may round."""
    assert priced.plan is not None
    cost, price = priced.plan.cost, priced.memory_price
    worth = price * capacity_bytes
    for cost_weight, byte_weight, most, rounding in (
        (0.0, 1.0, capacity_bytes, 0.0),
        (1.0, 0.0, cost, ROUNDING * abs(cost)),
        (1.0, price, cost + worth, ROUNDING * (abs(cost) + worth)),
    ):
        elimination = eliminate(graph, order, cost_weight=cost_weight, byte_weight=byte_weight)
        yield _Limit(elimination, cost_weight, byte_weight, most + rounding)


def _extended(graph: StrategyGraph, labels: _Labels, layer: int, chosen_layers: set[int]) -> _Labels:
    """Each label with each strategy of a layer that can be had with it; the layer itself is among the chosen ones."""
    count = graph.strategies[layer]
    chosen = np.repeat(labels.chosen, count, axis=0)
    chosen[:, layer] = np.tile(np.arange(count, dtype=chosen.dtype), len(labels))
    name = graph.layers[layer]
    cost = np.repeat(labels.cost, count) + graph.costs[name][chosen[:, layer]]
    for writer, reader, between in graph.numbered_edges():
        if layer in (writer, reader) and {writer, reader} <= chosen_layers:
            cost = cost + between[chosen[:, writer], chosen[:, reader]]
    held = np.repeat(labels.memory_bytes, count) + graph.held(name)[chosen[:, layer]]
    return _Labels(chosen, cost, held).kept(~forbidden(cost))


def _outermost(messages: Sequence[Message], chosen_layers: set[int]) -> list[int]:
    """Numbers of those messages of layers not chosen yet that are in no other one's: they depend on chosen ones alone,
    and together on all that is left."""
    return [number for number, message in enumerate(messages) if chosen_layers.issuperset(message.scope)]


def _undominated(labels: _Labels, layers: Sequence[int]) -> _Labels:
    """Those that no other one with the same strategies of some layers beats in cost or memory without losing in the
    other; the first of equals."""
    if not len(labels):
        return labels
    group = np.zeros(len(labels), dtype=np.int64)
    if layers:
        _, group = np.unique(labels.chosen[:, layers], axis=0, return_inverse=True)
    costs, rank = np.unique(labels.cost, return_inverse=True)
    group, rank = group.ravel(), rank.ravel()
    by_memory = np.lexsort((rank, labels.memory_bytes, group))
    falling = rank[by_memory] - group[by_memory] * len(costs)  # every group is below the one before
    least = np.minimum.accumulate(falling)
    is_new = np.append(True, falling[1:] < least[:-1])
    return labels.kept(np.sort(by_memory[is_new]))
