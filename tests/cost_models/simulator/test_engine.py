"""The event engine against hand-computed cases and a slow engine that moves every flow by itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.simulator.engine import Engine
from cost_models.simulator.graph import NONE, Floats, Graph, Hubs, Ints, Use


def on(*resources: int, weight: float = 1.0) -> list[Use]:
    """One transfer that uses these resources."""
    return [Use(np.array([resource]), np.array([weight])) for resource in resources]


def one(amount: float) -> Floats:
    return np.array([amount])


def test_activities_wait_for_each_other() -> None:
    graph = Graph()
    first = graph.add(np.array([2.0, 3.0]))
    both = graph.join(np.zeros(2, dtype=int), first)
    last = graph.add(one(1.0), [both])
    run = Engine(graph, np.zeros(0)).run()
    assert run.end[last[0]] == 4.0
    assert run.start[last[0]] == 3.0
    assert run.critical_path() == [first[1], both[0], last[0]]


def test_a_circle_is_an_error() -> None:
    graph = Graph()
    first = graph.add(one(1.0))
    second = graph.add(one(1.0), [first])
    graph._edges.append((second, first))
    with pytest.raises(ValueError, match="2 of 2 activities wait for each other"):
        Engine(graph, np.zeros(0)).run()


def test_two_transfers_share_a_link() -> None:
    """10 and 30 at 10 a second: both get 5 until the smaller one ends after 2 s, then the other gets all."""
    graph = Graph()
    small, large = graph.move(one(10.0), on(0)), graph.move(one(30.0), on(0))
    run = Engine(graph, one(10.0)).run()
    assert run.end[[small[0], large[0]]].tolist() == pytest.approx([2.0, 4.0])


def test_a_late_transfer_takes_its_share() -> None:
    """Alone for a second, then shared: 10 of 20 are moved, the other 10 take 2 s at half the rate."""
    graph = Graph()
    early = graph.move(one(20.0), on(0))
    late = graph.move(one(20.0), on(0), after=[graph.add(one(1.0))])
    run = Engine(graph, one(10.0)).run()
    assert run.end[[early[0], late[0]]].tolist() == pytest.approx([3.0, 4.0])


def test_a_slower_card_may_let_everything_end_sooner() -> None:
    """An anomaly of max-min fair shares, as Graham's of list scheduling: b crosses links 1 and 3, e crosses 2 and 3, c
    and d only 2. While a is on link 1, b has half of it, and two thirds of link 3 from 2 s until e ends at 6 s, so
    that it ends at 6 1/3 s. With a's card (0) at a quarter, b has two thirds from the start, and all end at 6 s."""

    def ends(card: float) -> list[float]:
        graph = Graph()
        sizes, links = (1.0, 4.0, 2.0, 2.0, 2.0), ((0, 1), (1, 3), (2,), (2,), (2, 3))
        moved = [graph.move(one(size), on(*over))[0] for size, over in zip(sizes, links, strict=True)]
        return Engine(graph, np.array([card, 1.0, 1.0, 1.0])).run().end[moved].tolist()

    assert ends(1.0) == pytest.approx([2.0, 19 / 3, 6.0, 6.0, 6.0])
    assert ends(0.25) == pytest.approx([4.0, 6.0, 6.0, 6.0, 6.0])


@st.composite
def all_to_alls(draw: st.DrawFn) -> tuple[list[float], list[float], list[float]]:
    size = draw(st.integers(2, 5))
    numbers = st.floats(0.5, 4.0)
    lists = st.lists(numbers, min_size=size, max_size=size)
    return draw(lists), draw(lists), draw(lists)


@settings(max_examples=25, deadline=None)
@given(all_to_alls())
def test_a_hub_is_all_flows_together(case: tuple[list[float], list[float], list[float]]) -> None:
    """Sending evenly through a hub ends when n flows that start together and advance in step would end."""
    amounts, out, into = (np.array(values) for values in case)
    size = len(amounts)
    ranks = np.arange(size)
    graph = Graph()
    graph.move(amounts, [Use(ranks, np.ones(size))], [Use(np.zeros(size, dtype=int), np.ones(size))])
    hubs = Hubs(np.zeros(size, dtype=int), size + ranks, np.full(size, 1 / size))
    seen: list[float] = []
    run = Engine(graph, np.concatenate([out, into]), hubs).run(lambda _t, _r, load: seen.append(float(load.max())))
    assert max(seen) <= 1 + 1e-9
    assert run.end.max() == pytest.approx(stepwise(amounts, out, into), rel=5e-3)


def stepwise(amounts: Floats, out: Floats, into: Floats) -> float:
    """Small steps of time; in each, rates grow evenly until a sender's or a receiver's link is full."""
    left, now, step = amounts.copy(), 0.0, amounts.sum() / out.min() / 4_000
    while (left > 0).any():
        rate, growing = np.zeros(len(left)), left > 0
        while growing.any():
            room = np.where(growing, out - rate, np.inf).min()
            shared = (into - rate.sum() / len(left)).min() * len(left) / growing.sum()
            rate[growing] += min(room, shared)
            if shared <= room:
                break
            growing &= rate < out * (1 - 1e-12)
        left = left - rate * step
        now += step
    return now


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, Floats, list[tuple[int, int]], dict[int, float]]:
    """Random activities and transfers over a few links; what each waits for, and the amounts of transfers."""
    links = draw(st.integers(1, 3))
    graph, edges, amounts = Graph(), [], {}
    for i in range(draw(st.integers(1, 12))):
        before = draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        edges += [(j, i) for j in before]
        after = [np.array([j]) for j in before]
        size = draw(st.floats(0.1, 5.0))
        if draw(st.booleans()):
            used = draw(st.lists(st.integers(0, links - 1), min_size=1, max_size=2, unique=True))
            graph.move(one(size), on(*used, weight=draw(st.floats(0.5, 2.0))), after=after, yields=draw(st.booleans()))
            amounts[i] = size
        else:
            graph.add(one(size), after)
    capacity = np.array(draw(st.lists(st.floats(0.5, 3.0), min_size=links, max_size=links)))
    return graph, capacity, edges, amounts


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_nothing_is_lost_early_or_over_capacity(
    case: tuple[Graph, Floats, list[tuple[int, int]], dict[int, float]],
) -> None:
    graph, capacity, edges, amounts = case
    history: list[tuple[float, dict[int, float]]] = []

    def observe(time: float, resources: Ints, load: Floats) -> None:
        assert (load <= 1 + 1e-9).all()
        history.append((time, dict(zip(resources.tolist(), load.tolist(), strict=True))))

    run = Engine(graph, capacity).run(observe)
    assert (run.end >= run.start).all()
    assert all(run.start[after] >= run.end[before] - 1e-9 for before, after in edges)
    arrays = graph.arrays()
    moved = np.zeros(len(capacity))
    for i, amount in amounts.items():
        for resource, weight in zip(arrays.resource[i], arrays.weight[i], strict=True):
            if resource != NONE:
                moved[resource] += amount * weight
    carried, load, since = np.zeros(len(capacity)), np.zeros(len(capacity)), np.zeros(len(capacity))
    for time, loads in history:
        for resource, share in loads.items():
            carried[resource] += load[resource] * (time - since[resource])
            load[resource], since[resource] = share * capacity[resource], time
    assert load == pytest.approx(np.zeros(len(capacity)), abs=1e-9)
    assert carried == pytest.approx(moved, rel=1e-6)
