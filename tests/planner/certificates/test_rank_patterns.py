"""Prices of rank patterns: knapsacks by trying everything, and nothing that any prices prove is wrong."""

import itertools

import numpy as np

from planner.certificates.pattern_proofs import pattern_faults
from planner.certificates.pattern_trees import Division, PatternPrices, PatternTree
from planner.certificates.rank_patterns import Bundles, Knapsack, PatternRules, has_rank_patterns
from tests.oracles.instances import tiny_instance
from tests.oracles.patterns import known_patterns


def test_a_knapsack_holds_what_is_worth_most() -> None:
    """At most one bundle of each table, against all choices; and its content is worth that."""
    random = np.random.default_rng(1)
    for _ in range(30):
        table = np.sort(random.integers(0, 4, 7))
        blocks, counts = np.arange(7)[:, None], np.ones((7, 1), dtype=np.int64)
        cells, worth = random.integers(0, 9, 7), random.integers(0, 9, 7).astype(float)
        knapsack = Knapsack(Bundles(table, blocks, counts), cells, worth, 12)
        of_table = [[-1, *np.flatnonzero(table == t).tolist()] for t in range(4)]
        for room in range(13):
            chosen = [[i for i in choice if i >= 0] for choice in itertools.product(*of_table)]
            best = max(float(worth[own].sum()) for own in chosen if cells[own].sum() <= room)
            content = list(knapsack.content(room))
            assert knapsack.best[room] == best == worth[content].sum()
            assert cells[content].sum() <= room


def test_no_prices_refute_an_optimum() -> None:
    """Above the optimum there is a plan: random prices of blocks and bytes, in random cases, never prove otherwise."""
    random, below = np.random.default_rng(2), 0
    for each in known_patterns(0, 60):
        problem, step_s = each.instance.problem, each.best.step_s
        regions, tiers = len(problem.capacity_regions.kind), len(problem.pool_capacity)
        for _ in range(6):
            threshold_s = step_s * random.choice([0.7, 1.0 + 1e-6, 1.1])
            rules = PatternRules(problem, threshold_s, int(random.choice([50, 4000])))
            ranks = np.where(problem.is_on_rank, 1, rules.ranks)
            blocks = rules.load_cells * ranks * random.uniform(0.9, 1.1, len(ranks)) ** random.integers(0, 3)
            byte = random.uniform(0, 1e-7, (regions, tiers)) * (random.random((regions, tiers)) < 0.3) * rules.cells
            prices = PatternPrices(threshold_s, blocks, byte)
            first, last = np.sort(random.choice(np.arange(*problem.table_block_start[:2]), 2))
            divided = (Division(int(first), int(last)), prices, prices)
            trees = [PatternTree(rules.cells, cases) for cases in ((prices,), divided)]
            refuted = [not list(pattern_faults(problem, tree)) for tree in trees]
            assert not any(refuted) or threshold_s < step_s, each.instance.description
            below += sum(refuted)
    assert below > 50


def test_one_number_for_each_rank() -> None:
    """A step of several stages has no rank patterns, nor has a cluster of two kinds of rank."""
    assert not any(has_rank_patterns(tiny_instance(seed).problem) for seed in range(5))
    assert sum(has_rank_patterns(tiny_instance(seed, "torchrec").problem) for seed in range(40)) > 10


def test_trees_that_are_no_proof_are_refused() -> None:
    """Parts left out, cases of nothing, divisions across tables, numbers that are no prices."""
    problem = known_patterns(0, 60)[0].instance.problem
    none = PatternPrices(1e-9, np.zeros(len(problem.block_option)), np.zeros((1, len(problem.pool_capacity))))
    at, last = Division(0, 0), len(problem.block_option) - 1

    def fault(*cases: Division | PatternPrices, cells: int = 100) -> str:
        return "".join(pattern_faults(problem, PatternTree(cells, cases)))

    assert fault(none) == ""
    assert fault(at, none, none) == ""
    assert "left out" in fault()
    assert "left out" in fault(at, none)
    assert "of no other one" in fault(none, none)
    assert "not of one table" in fault(Division(0, last + 1), none, none)
    assert "not of one table" in fault(Division(1, 0), none, none)
    assert "cells" in fault(none, cells=0)
    assert "cells" in fault(none, cells=10**9)
    for wrong in (np.nan, np.inf, -1.0):
        prices = np.full(len(none.blocks), wrong)
        assert "are none" in fault(PatternPrices(1e-9, prices, none.byte))
        assert "are none" in fault(PatternPrices(wrong, none.blocks, none.byte))
    assert "do not prove" in fault(PatternPrices(1e9, none.blocks, none.byte))
