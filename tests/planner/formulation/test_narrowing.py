"""What limits leave of the ways to hold each table: intersections of all of them, and a fault where nothing is left."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from cost_models.shards import PLACEMENT_TIERS, SHARDINGS, STASHED_TIERS, STATE_PLACES
from cost_models.step import StepModel
from planner.formulation.narrowing import Narrowing
from planner.formulation.policy import Policy
from tests.oracles.instances import node_group, topology, workload
from topologies.documents import Document, parse_yaml

NAMES = ("users", "items", "shops", "cities")
TABLES = [{"name": name, "rows": 1000, "dim": 16} for name in NAMES]


@pytest.fixture(scope="module")
def model() -> StepModel:
    """Two nodes of two ranks, HBM and DDR, four tables."""
    return StepModel(topology(node_group("g", nodes=2)), workload(TABLES))


@pytest.fixture
def limits(model: StepModel) -> Narrowing:
    """Nothing narrowed yet."""
    return Narrowing(model, Policy(), Document({}, "policy"))


def _tables(*names: str) -> np.ndarray:
    return np.isin(NAMES, names)


def _ranks(*ranks: int) -> np.ndarray:
    return np.isin(np.arange(4), ranks)


def _only(words: Sequence[str], *kept: str) -> list[bool]:
    return [word in kept for word in words]


def _messages(limits: Narrowing) -> list[str]:
    return [str(fault) for fault in limits.faults]


def test_narrowing_leaves_what_every_limit_of_a_table_allows(limits: Narrowing) -> None:
    """Random limits on random tables leave the intersection that a loop over tables and limits finds, in any order."""
    random = np.random.default_rng(1)
    asked = [(random.random(4) < 0.6, random.random(len(PLACEMENT_TIERS)) < 0.8) for _ in range(30)]
    for tables, allowed in asked:
        limits.narrow("tiers", ("tiers",), "some", tables, allowed)
    for table in range(4):
        for tier in range(len(PLACEMENT_TIERS)):
            wanted = all(allowed[tier] for tables, allowed in asked if tables[table])
            assert limits.tiers[table, tier] == wanted
    assert limits.shardings.all()
    assert limits.states.all()


def test_rank_sets_are_the_intersections_and_equal_ones_are_one(limits: Narrowing) -> None:
    """Every table keeps the ranks that all its limits allow; tables of equal ranks share a set, the first holds all."""
    random = np.random.default_rng(2)
    asked = [(random.random(4) < 0.5, random.random(4) < 0.8) for _ in range(12)]
    for tables, ranks in asked:
        if tables.any():
            limits.keep_within(("ranks",), "some", tables, ranks)
    sets, which = limits.used_sets()
    assert sets[0].all()
    assert len({tuple(ranks.tolist()) for ranks in sets}) == len(sets)
    for table in range(4):
        wanted = np.logical_and.reduce([ranks for tables, ranks in asked if tables[table]])
        assert (sets[which[table]] == wanted).all()


def test_sets_that_no_table_has_are_left_out(limits: Narrowing) -> None:
    """Of a set narrowed twice only the last remains, beside the one of all ranks."""
    limits.keep_within(("ranks",), "first", _tables("users"), _ranks(0, 1, 2))
    limits.keep_within(("ranks",), "second", _tables("users"), _ranks(1, 2))
    sets, which = limits.used_sets()
    assert sets.tolist() == [[True] * 4, [False, True, True, False]]
    assert which.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (("users",), ["users"]),
        (("*s",), ["users", "items", "shops", "cities"]),
        (("[is]*",), ["items", "shops"]),
        (("?????", "cities"), ["users", "items", "shops", "cities"]),
    ],
)
def test_patterns_name_tables(patterns: Sequence[str], names: list[str], limits: Narrowing) -> None:
    """Names, `*`, `?` and sets of letters name the tables that a shell would."""
    assert [NAMES[i] for i in np.flatnonzero(limits.named(("match",), patterns))] == names
    assert not limits.faults


def test_a_pattern_without_a_table_is_a_fault_with_the_nearest_name(limits: Narrowing) -> None:
    """Each pattern is judged by itself, and the others still count."""
    found = limits.named(("match",), ("user", "items"))
    assert found.tolist() == _tables("items").tolist()
    (message,) = _messages(limits)
    assert "no table is called 'user'" in message
    assert "users" in message


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 2, 3), (3,)])
def test_shardings_follow_the_ranks(kept: tuple[int, ...], limits: Narrowing) -> None:
    """Shardings over all ranks need every one of them, those over a node all ranks of some node, the others any."""
    limits.keep_within(("ranks",), "some", _tables("users"), _ranks(*kept))
    limits.follow_ranks()
    nodes, world = ((0, 1), (2, 3)), ((0, 1, 2, 3),)
    groups = {"table_row_wise": nodes, "grid_shard": nodes}
    groups |= dict.fromkeys(("row_wise", "data_parallel", "multi_node_row_wise"), world)
    groups["multi_rank_row_wise"] = tuple(itertools.combinations(range(4), 2))
    for sharding, may in zip(SHARDINGS, limits.shardings[0].tolist(), strict=True):
        members = groups.get(sharding, ((0,), (1,), (2,), (3,)))
        assert may == any(set(group) <= set(kept) for group in members), sharding
    assert limits.shardings[1:].all()


def test_tiers_without_a_memory_are_dropped(limits: Narrowing) -> None:
    """Of a cluster with HBM and DDR alone, tables keep the tiers at home there, and state what kernels reach."""
    limits.leave_what_there_is()
    kept = {tier for tier, may in zip(PLACEMENT_TIERS, limits.tiers[0].tolist(), strict=True) if may}
    assert kept == {"hbm", "hbm_mixed", "ddr_cached", "ddr", "ddr_split", *STASHED_TIERS}
    places = {place for place, may in zip(STATE_PLACES, limits.states[0].tolist(), strict=True) if may}
    assert places == {"with_table", "ddr"}
    assert not limits.faults


def test_a_table_whose_tiers_all_lack_a_memory_is_named(model: StepModel) -> None:
    """The fault stands where the last limit of the tiers stands, counts the tables and names the memory."""
    document = parse_yaml("tiers: [ssd_cached]\ntables: [{match: users, tiers: hbm}]\n", "policy.yaml")
    limits = Narrowing(model, Policy(), document)
    some = _tables("items", "shops", "cities")
    limits.narrow("tiers", ("tiers",), "tiers ssd_cached", some, _only(PLACEMENT_TIERS, "ssd_cached"))
    limits.leave_what_there_is()
    (message,) = _messages(limits)
    assert message.startswith("policy.yaml:1:")
    assert "'items' and 2 more may only be in ssd_cached" in message
    assert "tiny has no ssd" in message
    assert limits.tiers[0].any()
    assert not limits.tiers[0, PLACEMENT_TIERS.index("ssd_cached")]


def test_state_in_a_memory_that_is_not_there_is_refused_where_it_was_named(limits: Narrowing) -> None:
    """Places that nobody named are dropped silently; one that a policy names is a fault."""
    limits.narrow("states", ("optimizer_state",), "state scm", _tables("shops"), _only(STATE_PLACES, "scm"))
    limits.states_named |= _tables("shops")
    limits.leave_what_there_is()
    (message,) = _messages(limits)
    assert "optimizer state of 'shops' may only be in scm" in message


@pytest.mark.parametrize(
    ("what", "every", "word"),
    [
        ("tiers", PLACEMENT_TIERS, "tier"),
        ("states", STATE_PLACES, "place for optimizer state"),
        ("shardings", SHARDINGS, "sharding"),
    ],
)
def test_limits_that_leave_nothing_are_named_together(
    what: str, every: Sequence[str], word: str, limits: Narrowing
) -> None:
    """Two limits that contradict each other are both said, once for all the tables that have both."""
    both = _tables("users", "items")
    limits.narrow(what, ("first",), f"only {every[0]}", both, _only(every, every[0]))
    limits.narrow(what, ("second",), f"only {every[1]}", both | _tables("shops"), _only(every, every[1]))
    limits.refuse_nothing_left()
    (message,) = _messages(limits)
    assert f"no {word} is left for 'users' and 1 more: only {every[0]} and only {every[1]}" in message


def test_a_sharding_and_a_tier_that_exclude_each_other_are_a_fault(limits: Narrowing) -> None:
    """A table that has a sharding and a tier, but no pair of them, is refused for its pairs."""
    pairs = np.ones((len(SHARDINGS), len(PLACEMENT_TIERS)), dtype=bool)
    pairs[SHARDINGS.index("row_wise")] = _only(PLACEMENT_TIERS, "hbm")
    limits.narrow("pairs", ("tiers_of",), "row_wise in hbm only", _tables("users"), pairs)
    limits.narrow("tiers", ("tiers",), "tiers ddr", _tables("users"), _only(PLACEMENT_TIERS, "ddr"))
    limits.refuse_nothing_left()
    assert not limits.faults  # other shardings are left
    limits.narrow("shardings", ("shardings",), "row_wise", _tables("users"), _only(SHARDINGS, "row_wise"))
    limits.refuse_nothing_left()
    (message,) = _messages(limits)
    assert "no sharding in any tier is left for 'users'" in message


def test_tables_without_a_rank_are_not_also_told_that_they_lack_a_sharding(limits: Narrowing) -> None:
    """One cause, one fault."""
    limits.keep_within(("ranks",), "ranks 0", _tables("users"), _ranks(0))
    limits.keep_within(("ranks",), "forbid_ranks 0", _tables("users"), _ranks(1, 2, 3))
    limits.narrow("shardings", ("shardings",), "none", _tables("users"), [False] * len(SHARDINGS))
    limits.refuse_nothing_left()
    (message,) = _messages(limits)
    assert "no rank is left for 'users': ranks 0 and forbid_ranks 0" in message
