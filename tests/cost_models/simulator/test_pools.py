"""Transfers that share resources: who shares with whom, and at which rates."""

import numpy as np
import pytest

from cost_models.simulator import pools
from cost_models.simulator.engine import Engine
from cost_models.simulator.graph import NONE, Flags, Floats, Graph, Hubs, Ints, Use
from cost_models.simulator.pools import divided


def on(*resources: int, weight: float = 1.0) -> list[Use]:
    """One transfer that uses these resources."""
    return [Use(np.array([resource]), np.array([weight])) for resource in resources]


def one(amount: float) -> Floats:
    return np.array([amount])


def test_what_uses_nothing_is_an_error() -> None:
    graph = Graph()
    graph.move(one(1.0), [Use(np.array([NONE]), np.ones(1))])
    with pytest.raises(ValueError, match="uses no resource"):
        Engine(graph, np.ones(1)).run()


def test_max_min_fairness() -> None:
    """Three flows over links of 10 and 4: those on the thin one get 2 each, the third the 8 that they leave."""
    graph = Graph()
    thick = graph.move(one(80.0), on(0))
    both = graph.move(one(20.0), on(0, 1))
    thin = graph.move(one(20.0), on(1))
    rates = {}

    def observe(time: float, resources: Ints, load: Floats) -> None:
        rates.setdefault(time, dict(zip(resources.tolist(), load.tolist(), strict=True)))

    run = Engine(graph, np.array([10.0, 4.0])).run(observe)
    assert run.end[[thick[0], both[0], thin[0]]].tolist() == pytest.approx([10.0, 10.0, 10.0])
    assert rates[0.0] == pytest.approx({0: 1.0, 1: 1.0})


def test_what_yields_gets_what_is_left() -> None:
    """The one that yields waits where the other takes all, and goes on afterwards."""
    graph = Graph()
    mean = graph.move(one(20.0), on(0), yields=True)
    other = graph.move(one(10.0), on(0), after=[graph.add(one(1.0))])
    run = Engine(graph, one(10.0)).run()
    assert run.end[[mean[0], other[0]]].tolist() == pytest.approx([3.0, 2.0])


def test_weights_are_capacity_per_unit() -> None:
    """A transfer of weight 0.5 takes half of a resource for each unit of its rate."""
    graph = Graph()
    moved = graph.move(one(40.0), on(0, weight=0.5))
    assert Engine(graph, one(10.0)).run().end[moved[0]] == pytest.approx(2.0)


def test_parts_without_common_links_do_not_meet() -> None:
    """Separate resources are separate pools, whatever their number."""
    graph = Graph()
    graph.move(np.arange(1.0, 6.0), [Use(np.arange(5), np.ones(5))])
    assert Engine(graph, np.ones(5)).run().end.tolist() == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])


def test_transfers_share_a_pool_through_others_and_through_hubs() -> None:
    """Links 0 and 1 meet in a transfer over both, 2 and 3 behind a hub, 4 stands alone; activities have no pool."""
    graph = Graph()
    graph.add(one(1.0))
    for used in ((0,), (0, 1), (2,), (4,)):
        graph.move(one(1.0), on(*used))
    graph.move(one(1.0), on(3), [Use(np.array([0]), np.ones(1))])
    graph.move(one(0.0), on(1))
    found, pool_of = divided(graph.arrays(), np.ones(5), Hubs(np.array([0, 0]), np.array([2, 3]), np.ones(2)))
    assert [pool.resources.tolist() for pool in found] == [[0, 1], [2, 3], [4]]
    assert pool_of.tolist() == [NONE, 0, 0, 1, 2, 1, NONE]
    assert [pool.hub_count for pool in found] == [0, 1, 0]


def test_a_graph_that_moves_nothing_has_no_pool() -> None:
    graph = Graph()
    graph.add(one(1.0))
    assert divided(graph.arrays(), np.ones(2), Hubs.none())[0] == []


def test_what_ends_frees_what_it_used() -> None:
    """Two transfers of a pool share a link until the shorter one ends; then the rest has it alone."""
    graph = Graph()
    graph.move(np.array([1.0, 3.0]), [Use(np.zeros(2, dtype=int), np.ones(2))])
    ((pool,), _) = divided(graph.arrays(), one(2.0), Hubs.none())
    pool.starting = [0, 1]
    pool.advance(0.0)
    assert pool.rate.tolist() == [1.0, 1.0]
    assert pool.finish.tolist() == [1.0, 3.0]
    pool.advance(1.0)
    assert pool.active.tolist() == [1]
    assert pool.rate.tolist() == [2.0]
    assert pool.finish.tolist() == [2.0]
    assert pool.load.tolist() == [2.0]


@pytest.mark.parametrize("most_kept", [pools.MOST_KEPT, 40])
def test_rates_that_are_known_are_those_that_would_be_filled(monkeypatch: pytest.MonkeyPatch, most_kept: int) -> None:
    """Random transfers, some over a hub, some yielding, repeated on three copies of five links, of which one is
    slower: each moment is the same with rates made anew, and with few of them kept; most are not made anew."""
    random, graph = np.random.default_rng(5), Graph()
    before: Ints | None = None
    for _ in range(4):
        link, amount = random.integers(0, 5, 6), random.uniform(1.0, 9.0, 6)
        for _ in range(2):
            ends = []
            for copy in range(3):
                uses = [Use(link + 5 * copy, np.ones(6)), Use((link[::-1] + 5 * copy), np.full(6, 0.5))]
                hub = [Use(np.where(link > 2, copy, NONE), np.ones(6))]
                for some, late in ((slice(0, 4), False), (slice(4, 6), True)):
                    used, through = ([Use(use.of[some], use.weight[some]) for use in each] for each in (uses, hub))
                    after = None if before is None else before[:1]
                    ends.append(graph.move(amount[some] + copy, used, through, [after], yields=late))
            before = graph.join(np.zeros(18, dtype=int), np.concatenate(ends))
    hubs = Hubs(np.repeat(np.arange(3), 5), np.arange(15), np.full(15, 0.1))
    capacity = np.concatenate([np.ones(10), np.full(5, 0.7)])
    made = [0]
    filled = pools.Pool._filled

    def counted(self: pools.Pool, moving: pools.Moving, late: Flags) -> tuple[Floats, Floats]:
        made[0] += 1
        return filled(self, moving, late)

    monkeypatch.setattr(pools.Pool, "_filled", counted)
    monkeypatch.setattr(pools, "MOST_KEPT", most_kept)
    run = Engine(graph, capacity, hubs).run()
    with_memory = made[0]
    monkeypatch.setattr(pools.KnownRates, "of", lambda _self, _moving, _late, make: make())
    anew = Engine(graph, capacity, hubs).run()
    assert run.start.tolist() == anew.start.tolist()
    assert run.end.tolist() == anew.end.tolist()
    assert with_memory * (1.5 if most_kept > 40 else 1.0) < made[0] - with_memory + 1
