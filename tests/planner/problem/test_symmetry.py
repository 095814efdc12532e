"""Ranks that nothing tells apart: plans in which they change places take the same, and are counted once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cost_models.registry import cost_model
from cost_models.shards import NODE, RANK
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.symmetry import labels, rank_symmetry, site_labels
from tests.oracles.instances import confined_instance, node_group, tiny_instance, workload
from tests.oracles.placements import faults, random_placement
from topologies.cluster import Topology


@settings(max_examples=100, deadline=None, derandomize=True)
@given(table=arrays(float, (2, 7), elements=st.sampled_from([0.0, -0.0, 1.0, 2.5])))
def test_labels_are_equal_for_equal_columns(table: np.ndarray) -> None:
    """And only for these, numbered as they first come; zeros of either sign are equal."""
    found = labels(table).tolist()
    for i, j in np.ndindex(7, 7):
        assert (found[i] == found[j]) == bool((table[:, i] == table[:, j]).all())
    assert [label for i, label in enumerate(found) if label not in found[:i]] == list(range(len(set(found))))


def _exchanged(problem: Problem, placement: Placement, ranks: np.ndarray, nodes: np.ndarray) -> Placement:
    """Return the placement with every rank and node at the place that `ranks` [W] and `nodes` [N] give it."""
    extent, place = problem.block_extent[placement.item_block], placement.item_place.copy()
    place[extent == RANK] = ranks[place[extent == RANK]]
    place[extent == NODE] = nodes[place[extent == NODE]]
    return Placement(placement.item_block, place)


@pytest.mark.parametrize("make", [tiny_instance, confined_instance])
def test_alike_ranks_and_nodes_change_places(make: object) -> None:
    """Two ranks of a node, or two whole nodes: step, memory and faults of any placement stay the same."""
    exchanged = {"ranks": 0, "nodes": 0}
    for seed in range(60):
        instance = make(seed)  # type: ignore[operator]
        if not len(instance.options.table):
            continue
        problem = instance.problem
        color = rank_symmetry(problem).color
        nodes = site_labels(problem.nodes, color)
        placement = random_placement(problem, np.random.default_rng(seed))
        before = load_state(problem, placement)
        swaps = []
        for a, b in zip(*np.nonzero(np.triu(color[:, None] == color, 1)), strict=True):
            if problem.node_of_rank[a] == problem.node_of_rank[b]:
                ranks = np.arange(problem.world)
                ranks[[a, b]] = b, a
                swaps.append(("ranks", ranks, np.arange(len(nodes))))
        for a, b in zip(*np.nonzero(np.triu(nodes[:, None] == nodes, 1)), strict=True):
            ranks, order = np.arange(problem.world), np.arange(len(nodes))
            order[[a, b]] = b, a
            first, second = (np.flatnonzero(problem.node_of_rank == node) for node in (a, b))
            ranks[first], ranks[second] = second, first
            swaps.append(("nodes", ranks, order))
        for what, ranks, order in swaps:
            other = _exchanged(problem, placement, ranks, order)
            after = load_state(problem, other)
            assert after.step_s() == pytest.approx(before.step_s(), rel=1e-9)
            assert after.overflow_bytes() == pytest.approx(before.overflow_bytes(), rel=1e-9, abs=1e-3)
            assert len(faults(problem, other)) == len(faults(problem, placement))
            exchanged[what] += 1
    assert min(exchanged.values()) > 10


def test_rows_that_differ_by_a_symmetry_have_one_order() -> None:
    """Marks of the ranks, with alike ones exchanged, are equal once both are put in their orders."""
    compared = 0
    for seed in range(40):
        problem = tiny_instance(seed).problem
        symmetry, random = rank_symmetry(problem), np.random.default_rng(seed)
        marks = random.integers(0, 1000, size=problem.world)
        other = marks.copy()
        for node in range(len(problem.node_start) - 1):
            for color in np.unique(symmetry.color):
                alike = np.flatnonzero((problem.node_of_rank == node) & (symmetry.color == color))
                other[alike] = other[random.permutation(alike)]
        both = np.stack([marks, other])
        order = symmetry.order(both, np.random.default_rng(0))
        assert (np.sort(order, axis=1) == np.arange(problem.world)).all()
        put = np.take_along_axis(both, order, axis=1)
        assert (put[0] == put[1]).all()
        compared += bool((marks != other).any())
    assert compared > 5


def _on_rails(nodes: int = 4, ranks: int = 2, below: int = 2) -> Problem:
    """A table on nodes whose cards each hang on a leaf of their rail; so many nodes are below one plane of leaves."""
    group = node_group("a", nodes=nodes, ranks=ranks, cards_over_pcie=False)
    network = {"levels": [{"name": "leaf", "nodes": below, "oversubscription": 4.0}], "rails": True}
    cluster = Topology.model_validate({"name": "c", "nodes": [group], "network": network})
    model = cost_model("physical", cluster, workload([{"rows": 960, "dim": 16}] * 2))
    return build_problem(model, enumerate_options(model, Policy(shardings=("table_wise", "table_row_wise"))))


def test_rails_change_places_as_wholes() -> None:
    """Ranks of one node are on unlike rails and do not by themselves; all ranks of two rails of a plane do."""
    problem = _on_rails()
    symmetry = rank_symmetry(problem)
    assert len(set(symmetry.color[:2].tolist())) == 2
    nothing = symmetry.labels(np.zeros((0, problem.world)))
    assert (nothing[:4] == nothing[0]).all()
    assert (nothing[4:] != nothing[0]).all()
    loaded = np.zeros((1, problem.world))
    loaded[0, 0] = 1.0
    of_rank = symmetry.labels(loaded).tolist()
    assert of_rank[2] != of_rank[3], "one is on the rail of the rank that is loaded, the other is not"
    loaded[0, 1] = 1.0
    of_rank = symmetry.labels(loaded).tolist()
    assert (of_rank[0], of_rank[2]) == (of_rank[1], of_rank[3])


@pytest.mark.parametrize("shape", [(4, 2, 2), (6, 3, 3), (4, 4, 2)])
def test_placements_on_other_rails_take_the_same_and_have_one_order(shape: tuple[int, int, int]) -> None:
    """All rails of a plane, and its nodes, in another order."""
    problem, random = _on_rails(*shape), np.random.default_rng(7)
    nodes, each, below = shape
    symmetry = rank_symmetry(problem)
    for _ in range(20):
        placement = random_placement(problem, random)
        ranks, order = np.arange(problem.world).reshape(nodes, each), np.arange(nodes)
        for first in range(0, nodes, below):
            order[first : first + below] = random.permutation(order[first : first + below])
            ranks[first : first + below] = ranks[first : first + below][:, random.permutation(each)]
        other = _exchanged(problem, placement, ranks[order].ravel(), order)
        assert load_state(problem, other).step_s() == pytest.approx(load_state(problem, placement).step_s(), rel=1e-12)
        marks = random.integers(0, 2**40, size=problem.world)
        both = np.stack([marks, marks[ranks[order].ravel()]])
        put = np.take_along_axis(both, symmetry.order(both, np.random.default_rng(0)), axis=1)
        assert (put[0] == put[1]).all()
