"""The best way through stages, against an enumeration of all."""

import itertools
import math
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.runs.paths import Candidate, Graph, takes
from planner.runs.plans import Move, Setting, Timed
from planner.runs.schedule import Passes, ScheduledStage

RATES: dict[int, Any] = {
    1: {"seconds": 1.0, "usd": 1.0, "kwh": 2.0, "kg_co2e": None},
    2: {"seconds": 1.0, "usd": 2.5, "kwh": 4.0, "kg_co2e": None},
    3: {"seconds": 1.0, "usd": 3.0, "kwh": 7.0, "kg_co2e": None},
}


def stage(number: int, steps: int) -> ScheduledStage:
    return ScheduledStage(f"s{number}", ("stages", number), 8, (1, 2, 3), 8 * steps, steps, 1, Passes())


def candidate(nodes: int, step_s: float) -> Candidate:
    timed = Timed(step_s, None, None, {"line_search": step_s / 8}, 0.0)
    return Candidate(SimpleNamespace(), Setting(nodes, 8), Setting(nodes, 8), timed)  # type: ignore[arg-type]


@given(data=st.data())
@settings(max_examples=60)
def test_the_best_way_is_the_best_of_all(data):
    """The least objective of all ways that keep the limits, with what changes between stages; none where none does."""
    count = data.draw(st.integers(1, 4))
    times = st.integers(1, 40).map(lambda n: n / 8)
    stages = tuple(stage(i, data.draw(st.integers(1, 5))) for i in range(count))
    candidates = tuple(tuple(candidate(n, data.draw(times)) for n in (1, 2, 3)) for _ in stages)
    move_s = {pair: data.draw(st.integers(0, 8)) / 4 for pair in itertools.permutations((1, 2, 3), 2)}

    def move(before: Candidate, after: Candidate, _: ScheduledStage) -> Move:
        pair = before.setting.nodes, after.setting.nodes
        return Move(1, 0, 0, move_s[pair], is_change=True) if pair in move_s else Move()

    objective = data.draw(st.sampled_from(["seconds", "usd", "kwh"]))
    limits = {
        name: float(data.draw(st.integers(1, 60))) for name in data.draw(st.sets(st.sampled_from(["seconds", "usd"])))
    }
    graph = Graph(stages, candidates, move, lambda *_: 0.25, RATES.__getitem__, objective, limits)
    ways = [graph.way(chosen) for chosen in itertools.product(*candidates)]
    known = [takes(way, RATES.__getitem__) for way in ways]
    kept = [f for f in known if all((f.named(name) or 0.0) <= limit for name, limit in limits.items())]  # type: ignore[arg-type]
    least = min((each.named(objective) for each in kept), default=math.inf)
    best = graph.best()
    found = math.inf if best is None else takes(best, RATES.__getitem__).named(objective)
    assert found == least


def test_an_unknown_figure_stays_unknown():
    """Carbon of nodes that nobody stated is None, never 0."""
    graph = Graph(
        (stage(0, 2),), ((candidate(1, 1.0),),), lambda *_: Move(), lambda *_: 0.0, RATES.__getitem__, "usd", {}
    )
    way = graph.best()
    assert way is not None
    assert takes(way, RATES.__getitem__).kg_co2e is None
    assert takes(way, RATES.__getitem__).usd == 2.25
