"""Rails: sums stay on theirs and other messages change to the receiver's inside the node, so that what comes in over
the uplinks of a leaf is for the ranks of its rail; where nodes have no fabric to change over, the estimate is told to
be rough."""

from typing import Any

import numpy as np
import pytest

from benchmarks.validation.ranking import random_shards
from cost_models.cost_arrays import Column
from cost_models.registry import cost_model
from cost_models.replicas import Replicas
from cost_models.resources import Resource
from cost_models.shards import TABLE_WISE, Blocks, Floats, Ints, PlacedShards, Sharding
from cost_models.simulator.collective_times import collective_s
from cost_models.simulator.simulation import simulate
from cost_models.workload.models import Workload
from planner import plan
from planner.certificates.exhaustive_search import search_exhaustively
from planner.diagnosis.drift import drift
from planner.document.plan import Plan
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.formulation.unlike_parts import unlike_parts
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from planner.verification.verify import verify
from tests.oracles.brute_force import optimum
from tests.oracles.instances import keep_some_options, node_group, workload
from topologies.cluster import Topology
from topologies.replica_groups import Layout

TABLES = [{"rows": 100_000, "dim": 64}] * 48


def cluster(*, rails: bool, has_scale_up: bool = True, nodes_below: int = 3, narrow: float = 4.0) -> Topology:
    """Six nodes of four ranks, each with its card, three nodes below narrow switches."""
    group: dict[str, Any] = node_group(
        "a", nodes=6, ranks=4, hbm_bytes=40e9, nic_bytes_per_s=12.5e9, has_scale_up=has_scale_up
    )
    levels = [{"name": "leaf", "nodes": nodes_below, "oversubscription": narrow}]
    return Topology.model_validate({"name": "c", "nodes": [group], "network": {"levels": levels, "rails": rails}})


def planned(of: Topology, sharding: Sharding, software: str = "torchrec") -> Plan:
    asked = workload(TABLES, pipeline="none", software=software, overhead="0us", global_batch=9600)
    return plan(of, asked, policy=Policy(shardings=(sharding,)), effort=0)


@pytest.mark.parametrize("software", ["torchrec", "hugectr"])
@pytest.mark.parametrize("sharding", ["table_wise", "row_wise", "table_row_wise", "data_parallel"])
def test_leaves_of_rails_whose_ranks_hold_alike_are_as_one_switch(sharding: Sharding, software: str) -> None:
    """Within 3 % of each other, and of switches that join whole nodes; simulated steps were 28 to 48 % longer."""
    found, without = (planned(cluster(rails=rails), sharding, software) for rails in (True, False))
    assert found.provenance.warnings == ()
    assert abs(drift(found)) < 0.03
    assert found.simulated is not None
    assert without.simulated is not None
    assert found.simulated.step_s == pytest.approx(without.simulated.step_s, rel=1e-6)


def test_a_message_between_rails_stays_below_its_plane() -> None:
    """By hand: of 20 ranks elsewhere 12 are below the other plane, over uplinks of a quarter of a rank's card."""
    size, rate = 16e6, 12.5e9 / 4
    once_s, twice_s = (collective_s(cluster(rails=True), "all_to_all", times * size) for times in (1, 2))
    assert twice_s - once_s == pytest.approx(np.full(24, 12 * size / rate), rel=1e-6)


def slower_s(sizes: Floats) -> float:
    """Seconds for as many bytes again, over uplinks of a sixteenth of the cards."""
    of = cluster(rails=True, narrow=16.0)
    once_s, twice_s = (collective_s(of, "all_to_all", times * sizes).max() for times in (1, 2))
    return float(twice_s - once_s)


def test_messages_for_one_rail_come_in_over_its_leaf() -> None:
    """By hand: twelve ranks of one plane send to two of the other, over the uplinks of one rail's three cards, or of
    two rails."""

    def slope_s(*receivers: int) -> float:
        sizes = np.zeros((24, 24))
        sizes[12:, list(receivers)] = 1e6
        return slower_s(sizes)

    of_leaf = 3 * 12.5e9 / 16
    assert slope_s(0, 4) == pytest.approx(2 * 12 * 1e6 / of_leaf, rel=1e-6)
    assert slope_s(0, 5) == pytest.approx(12 * 1e6 / of_leaf, rel=1e-6)


def test_what_a_rank_sends_goes_up_on_the_rails_of_its_receivers() -> None:
    """By hand: two ranks of one rail send to all twelve of the other plane, three of them on each rail."""
    sizes = np.zeros((24, 24))
    sizes[[[0], [4]], 12:] = 1e6
    assert slower_s(sizes) == pytest.approx(2 * 3 * 1e6 / (3 * 12.5e9 / 16), rel=1e-6)


def table_wise(ranks: Ints) -> PlacedShards:
    """The tables whole in HBM, on these ranks [T]."""
    tables = np.arange(len(ranks))
    blocks = Blocks(tables, 0 * tables + TABLE_WISE, 0 * tables, 0 * tables + 64, np.zeros(len(ranks)))
    return PlacedShards(blocks, ranks, 0 * tables + 100_000, np.ones(len(ranks), dtype=bool))


def test_holders_on_one_rail_are_estimated_to_wait_for_its_leaf() -> None:
    """By hand: gradients of two tables come to two ranks from twelve of the other plane, 400 samples each."""
    asked = workload(TABLES[:2], pipeline="none", overhead="0us", global_batch=9600)
    model = cost_model("physical", cluster(rails=True), asked)
    stage = model.stages.index("gradient_dist")
    column = model.columns.index(Column(stage, Resource("uplink", "in", 0)))
    of_table = 12 * 400 * 64 * 4 / (3 * 12.5e9 / 4)
    for ranks, most in (([0, 4], 2), ([0, 5], 1), ([0, 12], 1), ([0, 0], 2)):
        load = model.instance_loads(model.rank_loads(table_wise(np.array(ranks)))[0])[:, column]
        assert load.max() == pytest.approx(most * of_table, rel=1e-9)
        assert load[0] == load.max()


Shape = tuple[int, int, int]
"""Nodes, ranks of each, and nodes below a switch."""
ALIKE: tuple[Shape, ...] = ((4, 4, 2), (6, 4, 3), (6, 4, 2), (4, 8, 2))


def random_case(
    seed: int,
    *,
    rails: bool,
    narrow: float = 0.0,
    shapes: tuple[Shape, ...] = ALIKE,
    shardings: tuple[int, ...] = tuple(range(7)),
) -> tuple[Topology, Workload, PlacedShards]:
    """Tables placed at random on nodes below switches that have, `narrow` times or by chance, less bandwidth upwards;
    by the seed."""
    random = np.random.default_rng(seed)
    nodes, ranks, below = shapes[random.integers(len(shapes))]
    cards, rate = int(random.choice([ranks, ranks // 2])), float(random.choice([6e9, 12.5e9, 25e9]))
    group = node_group("a", nodes=nodes, ranks=ranks, hbm_bytes=1e12, cards=cards, nic_bytes_per_s=rate)
    levels = [{"name": "leaf", "nodes": below, "oversubscription": float(random.choice([2, 4, 8, 16])) * (narrow or 1)}]
    of = Topology.model_validate({"name": "c", "nodes": [group], "network": {"levels": levels, "rails": rails}})
    tables = [
        {"rows": int(10 ** random.uniform(4, 6)), "dim": int(random.choice([16, 64, 128])), "pooling_factor": bag}
        for bag in np.round(10 ** random.uniform(0, 2, random.integers(4, 30)), 2).tolist()
    ]
    software = str(random.choice(["torchrec", "hugectr"]))
    asked = workload(tables, pipeline="none", software=software, overhead="0us", global_batch=19200)
    return of, asked, random_shards(cost_model("physical", of, asked), random, shardings)


def test_random_placements_are_simulated_as_estimated() -> None:
    """As without rails: 4 % longer to 14 % shorter, where unlike holders are ready apart (10 and 13 %), 2.4 % on the
    mean (2.9 %); with the mean of each plane in the place of its fullest rail up to 135 % longer, 14 % on the mean."""
    apart = []
    for seed in range(40):
        of, asked, placed = random_case(seed, rails=True)
        estimated_s = cost_model("physical", of, asked).evaluate(placed).step_s
        apart.append(simulate(of, asked, placed).step_s / estimated_s - 1)
    assert min(apart) > -0.15
    assert max(apart) < 0.05
    assert np.abs(apart).mean() < 0.03


@pytest.mark.parametrize("rails", [False, True])
def test_random_placements_below_two_unlike_switches_are_simulated_as_estimated(rails: bool) -> None:
    """Whole tables below leaves of unlike fill: what holders below the larger one send and receive crosses the smaller
    one's uplinks. By their own leaf alone, simulated steps were up to 54 % longer with rails and 27 without."""
    apart = []
    for seed in range(40):
        shapes = (3, 4, 2), (5, 4, 4), (6, 4, 4)
        of, asked, placed = random_case(seed, rails=rails, shapes=shapes, shardings=(TABLE_WISE,))
        estimated_s = cost_model("physical", of, asked).evaluate(placed).step_s
        apart.append(simulate(of, asked, placed).step_s / estimated_s - 1)
    assert np.abs(apart).max() < 0.04
    assert np.abs(apart).mean() < 0.01


@pytest.mark.parametrize("rails", [False, True])
def test_two_unlike_switches_are_as_narrow_as_the_smaller(rails: bool) -> None:
    """By hand: gradients of two tables of node 0, below a leaf with node 1, come from the four ranks of node 2 over
    uplinks of a quarter of its cards: of one rail's, or of all four."""
    group = node_group("a", nodes=3, ranks=4, hbm_bytes=40e9, nic_bytes_per_s=12.5e9)
    network = {"levels": [{"name": "leaf", "nodes": 2, "oversubscription": 4.0}], "rails": rails}
    of = Topology.model_validate({"name": "c", "nodes": [group], "network": network})
    model = cost_model("physical", of, workload(TABLES[:2], pipeline="none", overhead="0us", global_batch=4800))
    column = model.columns.index(Column(model.stages.index("gradient_dist"), Resource("uplink", "in", 0)))
    of_table = 4 * 400 * 64 * 4 / ((1 if rails else 4) * 12.5e9 / 4)
    load = model.instance_loads(model.rank_loads(table_wise(np.array([0, 4])))[0])[:, column]
    assert load.max() == pytest.approx(2 * of_table, rel=1e-9)


@pytest.mark.parametrize(
    ("nodes", "below", "words"), [(9, 4, "1 and 4"), (7, 3, "1 and 3"), (5, 4, ""), (8, 4, ""), (12, 4, "")]
)
def test_three_unlike_switches_are_a_warning(nodes: int, below: int, words: str) -> None:
    """Two are not, nor any that are alike."""
    group = node_group("a", nodes=nodes, ranks=4, hbm_bytes=40e9, nic_bytes_per_s=12.5e9)
    levels = [{"name": "leaf", "nodes": below, "oversubscription": 4.0}]
    for rails in (False, True):
        network = {"levels": levels, "rails": rails}
        found = list(unlike_parts(Topology.model_validate({"name": "c", "nodes": [group], "network": network})))
        assert [each.split(" nodes,")[0] for each in found] == [f"switches of level leaf have {words}"] * bool(words)


@pytest.mark.parametrize("layout", ["intra", "inter"])
def test_so_are_those_of_groups_of_ranks(layout: Layout) -> None:
    """Two groups with all tables each, over ranks of all nodes or over half of the nodes: simulated steps were up to 49
    and 178 % longer."""
    replicas, apart = Replicas(factor=2, layout=layout), []
    for seed in range(20):
        of, asked, _ = random_case(seed, rails=True)
        if layout == "inter" and of.node_count // 2 % of.network.levels[0].nodes:
            continue  # groups would cut what is under a leaf
        model = cost_model("physical", of, asked, replicas=replicas)
        placed = random_shards(model, np.random.default_rng(seed), tuple(range(7)))
        apart.append(simulate(of, asked, placed, replicas=replicas).step_s / model.evaluate(placed).step_s - 1)
    assert len(apart) >= 10
    assert np.abs(apart).max() < 0.2
    assert np.abs(apart).mean() < 0.03


def test_a_fullest_rail_has_no_less_than_the_mean() -> None:
    """A placement takes no longer where leaves join whole nodes, nor where uplinks are wider."""
    longer = 0
    for seed in range(40):
        (of, asked, placed), (without, _, _) = (random_case(seed, rails=rails) for rails in (True, False))
        narrower, _, _ = random_case(seed, rails=True, narrow=2.0)
        cases = without, of, narrower
        step_s = [cost_model("physical", each, asked).evaluate(placed).step_s for each in cases]
        assert step_s[0] <= step_s[1] * (1 + 1e-9)
        assert step_s[1] <= step_s[2] * (1 + 1e-9)
        longer += step_s[0] < step_s[1] * 0.99
    assert longer >= 10


def test_nodes_with_unlike_numbers_of_cards_are_below_one_switch() -> None:
    """Their leaves are not alike: the estimate has the mean of the plane, as it had."""
    twice = node_group("b", nodes=2, ranks=4, cards=2, nic_bytes_per_s=50e9)
    groups = [node_group("a", nodes=2, ranks=4), twice]
    network = {"levels": [{"name": "leaf", "nodes": 2, "oversubscription": 4.0}], "rails": True}
    of = Topology.model_validate({"name": "c", "nodes": groups, "network": network})
    model = cost_model("physical", of, workload(TABLES[:2], pipeline="none", global_batch=9600))
    assert model.resource_of_rank(Resource("uplink", "in", 0)).tolist() == [0] * 8 + [1] * 8
    (words,) = unlike_parts(of)
    assert words.startswith("nodes have 2 and 4 rails, and leaves of all rails are estimated as one switch")


def tiny_problem(seed: int) -> Problem:
    """A few options of two or three unlike tables on six to eight ranks, by the seed; or of two kinds of rank."""
    random = np.random.default_rng([seed, 77])
    shape = ([(4, 2)], [(3, 2)], [(2, 4)], [(2, 2), (2, 2)], [(1, 2), (3, 2)])[random.integers(5)]
    rates = random.choice([6e9, 12.5e9, 25e9], len(shape)).tolist()
    groups = [
        node_group(f"g{i}", nodes=nodes, ranks=ranks, hbm_bytes=1e12, nic_bytes_per_s=rate)
        for i, ((nodes, ranks), rate) in enumerate(zip(shape, rates, strict=True))
    ]
    below = 2 if sum(nodes for nodes, _ in shape) > 2 else 1
    levels = [{"name": "leaf", "nodes": below, "oversubscription": float(random.choice([2, 4, 8, 16]))}]
    of = Topology.model_validate({"name": "c", "nodes": groups, "network": {"levels": levels, "rails": True}})
    tables = [
        {"rows": int(10 ** random.uniform(3, 6)), "dim": int(random.choice([8, 16, 64])), "pooling_factor": bag}
        for bag in np.round(10 ** random.uniform(0, 2, random.integers(2, 4)), 2).tolist()
    ]
    pipeline, software = str(random.choice(["none", "sparse-dist"])), str(random.choice(["torchrec", "hugectr"]))
    asked = workload(tables, pipeline=pipeline, software=software, overhead="0us", global_batch=9600)
    model = cost_model("physical", of, asked)
    return build_problem(model, keep_some_options(enumerate_options(model, Policy()), 2, random))


def test_no_placement_is_below_the_bound() -> None:
    """Against everything tried, on tiny clusters with rails: bound, plan, and the search that tries everything, too."""
    proven = 0
    for seed in range(24):
        problem = tiny_problem(seed)
        best = optimum(problem)
        assert best is not None
        outcome = solve(problem, SearchLimits(gap=0.0))
        assert outcome.bound_s is not None
        assert outcome.step_s is not None
        assert outcome.bound_s <= best.step_s * (1 + 1e-12)
        assert outcome.step_s >= best.step_s * (1 - 1e-9)
        assert outcome.placement is not None
        assert load_state(problem, outcome.placement).step_s() == pytest.approx(outcome.step_s, rel=1e-9)
        found = search_exhaustively(problem, best.step_s * 1.001)
        assert found is None or found.step_s == pytest.approx(best.step_s, rel=1e-9)
        proven += outcome.status == "optimal"
    assert proven >= 16


def test_a_plan_over_rails_is_as_its_document_says() -> None:
    """Unlike tables: the plan keeps big holders off one rail, is simulated as estimated, and its proof holds."""
    tables = [{"rows": 100_000, "dim": 64, "pooling_factor": bag} for bag in (80, 60, 40, 20, 10, 5, 5, 5, 2, 2, 2, 2)]
    asked = workload(tables, pipeline="none", overhead="0us", global_batch=9600)
    found = plan(cluster(rails=True), asked, policy=Policy(shardings=("table_wise",)), effort=0)
    assert abs(drift(found)) < 0.05
    assert verify(found) == []


def test_rails_without_a_fabric_to_change_over_are_a_warning() -> None:
    """There messages between rails climb, which the simulated step has; where switches are not narrow none is due."""
    found = planned(cluster(rails=True, has_scale_up=False), "table_wise")
    (words,) = found.provenance.warnings
    assert "the nodes a have no scale-up fabric over which messages could change rails" in words
    assert drift(found) > 0.1
    assert planned(cluster(rails=False, has_scale_up=False), "table_wise").provenance.warnings == ()
    assert planned(cluster(rails=True, has_scale_up=False, nodes_below=6), "table_wise").provenance.warnings == ()
