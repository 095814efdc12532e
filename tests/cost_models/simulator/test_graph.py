"""Graphs of activities: numbers, waits, and the arrays that the engine plays."""

import numpy as np

from cost_models.simulator.graph import NONE, Graph, Hubs, Use


def test_activities_are_numbered_in_their_order() -> None:
    """Fixed lengths and amounts side by side; one activity may hold up many, and each its own follower."""
    graph = Graph()
    start = graph.add(np.array([1.0]))
    both = graph.add(np.array([2.0, 3.0]), [start, None])
    moved = graph.move(np.array([4.0, 5.0]), [Use(np.array([1, NONE]), np.ones(2))], after=[both], yields=True)
    assert (start.tolist(), both.tolist(), moved.tolist(), len(graph)) == ([0], [1, 2], [3, 4], 5)
    arrays = graph.arrays()
    assert arrays.seconds.tolist() == [1.0, 2.0, 3.0, 0.0, 0.0]
    assert arrays.amount.tolist() == [0.0, 0.0, 0.0, 4.0, 5.0]
    assert list(zip(arrays.before.tolist(), arrays.after.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 3), (2, 4)]
    assert arrays.yields.tolist() == [False, False, False, True, True]


def test_uses_are_padded_to_the_most_of_any_transfer() -> None:
    """Resources and hubs, with the weight of each; what has none has NONE."""
    graph = Graph()
    graph.move(np.ones(1), [Use(np.array([3]), np.array([0.5])), Use(np.array([1]), np.array([2.0]))])
    graph.move(np.ones(1), [Use(np.array([0]), np.ones(1))], [Use(np.array([2]), np.array([0.25]))])
    arrays = graph.arrays()
    assert arrays.resource.tolist() == [[3, 1], [0, NONE]]
    assert arrays.weight.tolist() == [[0.5, 2.0], [1.0, 0.0]]
    assert arrays.hub.tolist() == [[NONE], [2]]
    assert arrays.share.tolist() == [[0.0], [0.25]]


def test_groups_join() -> None:
    """One activity for each group waits for all its members."""
    graph = Graph()
    members = graph.add(np.ones(3))
    joined = graph.join(np.array([0, 1, 0]), members)
    arrays = graph.arrays()
    assert joined.tolist() == [3, 4]
    assert list(zip(arrays.before.tolist(), arrays.after.tolist(), strict=True)) == [(0, 3), (1, 4), (2, 3)]


def test_an_empty_graph_has_empty_arrays() -> None:
    assert len(Graph().arrays().seconds) == len(Graph().arrays().before) == Hubs.none().count == 0
