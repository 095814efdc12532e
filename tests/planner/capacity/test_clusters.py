"""Which cluster does with the least: as trying every size of every case shows; prices, constraints, ties."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from planner import plan
from planner.capacity.clusters import Case, ClusterChoice, ClusterQuestion, ranked, size_all
from planner.capacity.prices import PriceSheet, bill
from planner.capacity.size_floor import size_floor
from planner.capacity.sizing import size
from planner.formulation.policy import Policy
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError

TABLES = [{"rows": 400_000 * (1 + i % 5), "dim": 64, "pooling_factor": 5 + 6 * i} for i in range(4)]
BATCH = 1 << 17
MODEL = workload(TABLES, global_batch=BATCH)
HALF = workload(TABLES, global_batch=BATCH, embedding={"dtype": "fp16"})
MOST_NODES = 4


def cluster(name: str, *, ranks: int, price: str | None = None, power: str | None = None) -> Topology:
    group = node_group("a", ranks=ranks, hbm_bytes_per_s=2.4e12 / ranks)
    given = {key: value for key, value in (("price", price), ("power", power)) if value is not None}
    return topology({**group, **given}).model_copy(update={"name": name})


CASES = (
    Case("pairs", cluster("pairs", ranks=2, price="4USD/h", power="2kW"), MODEL),
    Case("pairs (fp16)", cluster("pairs", ranks=2, price="11USD/h", power="3kW"), HALF),
    Case("fours", cluster("fours", ranks=4, price="5USD/h", power="2kW"), MODEL),
)


QUICK: dict[str, Any] = {"effort": 0, "gap": 0.001}


def rates(case: Case) -> dict[int, float]:
    """Samples per second of every size."""
    found = {}
    for nodes in range(1, MOST_NODES + 1):
        one = case.topology.resized(0, nodes)
        planned = plan(one, case.workload, **QUICK, simulate=False)
        assert planned.objective is not None
        found[nodes] = case.workload.batch(one.world_size) / planned.objective.step_s
    return found


@pytest.fixture(scope="module")
def all_rates() -> list[dict[int, float]]:
    return [rates(case) for case in CASES]


@pytest.fixture(scope="module")
def target(all_rates: list[dict[int, float]]) -> float:
    """Farthest from any size's throughput, of all between the slowest and the fastest size of the first case."""
    known = sorted(rate for one in all_rates for rate in one.values())
    first = all_rates[0]
    between = [pair for pair in itertools.pairwise(known) if first[1] < pair[0] and pair[1] <= max(first.values())]
    low, high = max(between, key=lambda pair: pair[1] / pair[0])
    assert high > 1.03 * low
    return (low + high) / 2


@pytest.fixture(scope="module")
def choices(target: float) -> tuple[ClusterChoice, ...]:
    return size_all(CASES, ClusterQuestion(target, max_nodes=MOST_NODES), **QUICK)


@pytest.mark.slow(seconds=15)
def test_each_case_has_its_smallest_size(
    choices: tuple[ClusterChoice, ...], all_rates: list[dict[int, float]], target: float
) -> None:
    """As planning every size of every case shows; and the winner has the fewest ranks of all."""
    least = [min(nodes for nodes, rate in one.items() if rate >= target) for one in all_rates]
    answers = [choice.sizing.answer for choice in choices]
    assert [one and one.nodes for one in answers] == least
    assert max(least) > 1
    by_hand = min(nodes * case.topology.world_size for nodes, case in zip(least, CASES, strict=True))
    best = ranked(choices)[0].sizing.answer
    assert best is not None
    assert best.ranks == by_hand


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("by", ["size", "price"])
def test_the_best_is_the_best_of_every_size_of_every_case(
    by: str, choices: tuple[ClusterChoice, ...], all_rates: list[dict[int, float]], target: float
) -> None:
    """With constraints or without, for limits around every price and power that there is."""
    every = [
        (one.world_size, cost.usd_per_hour, cost.kilowatts)
        for case, speeds in zip(CASES, all_rates, strict=True)
        for nodes, rate in speeds.items()
        if rate >= target
        for one in [case.topology.resized(0, nodes)]
        for cost in [bill(one)]
    ]
    prices = [None, *sorted({price for _, price, _ in every} | {3.9})]
    powers = [None, *sorted({power for _, _, power in every} | {0.9})]
    outcomes, winners = set(), set()
    for price, power in itertools.product(prices, powers):
        question = ClusterQuestion(target, None, price, power, by, MOST_NODES)  # type: ignore[arg-type]
        asked = [replace(choice, question=question) for choice in choices]
        kept = [
            (ranks, usd, kilowatts)
            for ranks, usd, kilowatts in every
            if (price is None or usd <= price) and (power is None or kilowatts <= power)
        ]
        best = ranked(asked)[0]
        outcomes.add(best.does)
        assert best.does == bool(kept)
        if kept:
            assert best.sizing.answer is not None
            found = (best.sizing.answer.ranks, best.bill.usd_per_hour)
            winners.add(best.case.label)
            key = (lambda one: (one[1], one[0])) if by == "price" else (lambda one: one[:2])
            assert found == min(kept, key=key)[:2]
        else:
            assert all(choice.broken for choice in asked)
    assert outcomes == {True, False}
    assert len(winners) > 1


def test_ties_go_to_the_lower_price() -> None:
    """In whichever order the cases come; an unknown price comes last; what ties in all stays as it was."""
    dear, cheap, unknown = (
        Case(name, cluster(name, ranks=2, price=price), MODEL)
        for name, price in (("dear", "4USD/h"), ("cheap", "3USD/h"), ("unknown", None))
    )
    question = ClusterQuestion(max_nodes=1)
    found = {choice.case.label: choice for choice in size_all([dear, cheap, unknown], question, effort=0, gap=0.5)}
    for order in itertools.permutations(found.values()):
        assert [choice.case.label for choice in ranked(order)] == ["cheap", "dear", "unknown"]
    same = replace(found["cheap"], case=replace(cheap, label="same"))
    assert [choice.case.label for choice in ranked([same, found["cheap"]])] == ["same", "cheap"]


def test_an_unknown_price_keeps_no_limit() -> None:
    """Not even the highest; a sheet makes it known."""
    case = Case("unknown", cluster("unknown", ranks=2), MODEL)
    question = ClusterQuestion(max_usd_per_hour=1e9, max_kilowatts=1e9, max_nodes=1)
    (found,) = size_all([case], question, effort=0, gap=0.5)
    assert not found.does
    assert found.broken == [
        "its price is unknown, so 1,000,000,000 USD/h cannot be kept",
        "its power is unknown, so 1,000,000,000 kW cannot be kept",
    ]
    rate = {"A100-SXM4-40GB": {"price": "2USD/h", "power": "1kW"}}
    sheet = PriceSheet.model_validate({"name": "s", "date": "2026-01-01", "source": "made up", "accelerators": rate})
    assert replace(found, sheet=sheet).does
    assert replace(found, sheet=sheet, question=ClusterQuestion(max_usd_per_hour=4.0)).does
    assert not replace(found, sheet=sheet, question=ClusterQuestion(max_usd_per_hour=3.99)).does


@pytest.mark.slow(seconds=15)
def test_a_longest_step_is_a_throughput_where_the_batch_is_fixed(
    target: float, choices: tuple[ClusterChoice, ...]
) -> None:
    """Both ask for the same sizes; the stricter of two targets holds."""
    step_s = MODEL.batch(1) / target
    asked: dict[str, Any] = {"max_step_s": step_s, "max_nodes": MOST_NODES, "each_tier": False, **QUICK}
    (one,) = size(CASES[0].topology, MODEL, **asked)
    (both,) = size(CASES[0].topology, MODEL, target_samples_per_s=target / 100, **asked)
    assert one.answer == both.answer == choices[0].sizing.answer
    with pytest.raises(InputError, match="longest step"):
        size(CASES[0].topology, MODEL, max_step_s=0.0)


def test_a_case_that_cannot_be_planned_for_is_rejected_with_the_reason() -> None:
    """The others are sized; where no case can be, the input is at fault."""
    other = Case("other", CASES[0].topology, workload([{**table, "name": f"u{i}"} for i, table in enumerate(TABLES)]))
    rules = Policy.model_validate({"tables": [{"match": "u*", "tiers": ["ddr_cached", "ddr"]}]})
    first, second = size_all([CASES[0], other], ClusterQuestion(max_nodes=1), policy=rules, effort=0, gap=0.5)
    assert not first.does
    assert "u*" in first.sizing.candidates[0].reason
    assert first.bill.usd_per_hour is None
    assert second.does
    with pytest.raises(InputError, match=r"u\*"):
        size_all([CASES[0], CASES[2]], ClusterQuestion(max_nodes=1), policy=rules, effort=0, gap=0.5)


def test_cases_that_are_the_same_are_refused() -> None:
    """The count of the group that is sized makes no difference; another group's does."""
    one = CASES[0]
    with pytest.raises(InputError, match="is the same as another case"):
        size_all([one, Case("again", one.topology.resized(0, 5), MODEL)], ClusterQuestion(max_nodes=1))
    mixed = topology(node_group("a", nodes=1, ranks=2), node_group("b", nodes=1, ranks=2))
    with pytest.raises(InputError, match="name the one to size: a, b"):
        size_all([one, Case("mixed", mixed, MODEL)], ClusterQuestion(max_nodes=1))
    found = size_all(
        [Case("one", mixed, MODEL, "a"), Case("two", mixed.resized(1, 2), MODEL, "a")],
        ClusterQuestion(max_nodes=1),
        effort=0,
        gap=0.5,
    )
    assert [choice.sizing.answer and choice.sizing.answer.ranks for choice in found] == [4, 6]


def test_interrupted_leaves_every_case_with_a_row() -> None:
    """The first size is judged, the other cases say that they are not done."""
    asked = itertools.count()
    out_of_reach = MODEL.batch(1) / (1.001 * size_floor(CASES[0].topology, MODEL).seconds)
    found = size_all(CASES, ClusterQuestion(out_of_reach, max_nodes=4), stop=lambda: next(asked) > 1)
    assert [choice.case.label for choice in found] == [case.label for case in CASES]
    assert not any(choice.sizing.finished for choice in found)
