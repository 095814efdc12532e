"""Shares of what is prefetched: their best is near what a step waits for, and never below it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.validation.ranking import random_shards
from cost_models.prefetch_lines import LINES, PREFETCH
from cost_models.shards import DDR_CACHED, TABLE_WISE, USUAL_SHARDINGS, Blocks, PlacedShards
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from tests.oracles.instances import node_group, topology, workload

seconds = st.floats(1e-6, 1.0)
CLUSTER = topology(node_group("a", nodes=2, ranks=2, ddr_bytes=1e12))


@settings(deadline=None, derandomize=True)
@given(lookup_s=seconds, update_s=seconds, missed_s=seconds)
def test_the_best_share_is_a_tenth_too_long_at_most(lookup_s: float, update_s: float, missed_s: float) -> None:
    """The least of all sums of two stages, against what both hide together."""
    shares = [line.of_lookup for line in LINES]
    least_s = min(max(lookup_s, a * missed_s) + max(update_s, (1 - a) * missed_s) for a in shares)
    waited_s = max(lookup_s + update_s, missed_s)
    assert waited_s * (1 - 1e-12) <= least_s <= waited_s * (1.1 + 1e-12)


def test_a_placement_costs_least_at_its_own_share() -> None:
    """At none of the others less; and with the exchanges' lines it is what the law evaluates."""
    tables = [{"rows": 1_000_000, "dim": 64, "pooling_factor": 20.0}] * 6
    model = StepModel(CLUSTER, workload(tables, pipeline="prefetch", global_batch=65_536, overhead="0us"))
    assert model.protocol_stages[-1] == PREFETCH
    for seed in range(20):
        placed = random_shards(model, np.random.default_rng(seed), tuple(range(len(USUAL_SHARDINGS))))
        own = model.linearised_at(placed)
        steps = dict[tuple[int, ...], float]()
        for protocols in (own.protocols, *model.other_shares(own.protocols)):
            at = model.at_protocols(protocols)
            steps[protocols] = float(at.evaluate_loads(*at.rank_loads(placed)).stage_seconds.sum())
        assert min(steps.values()) == pytest.approx(steps[own.protocols], rel=1e-12)
        assert model.evaluate(placed).step_s == pytest.approx(steps[own.protocols], rel=1e-12)


@pytest.mark.parametrize("cached", [0.005, 0.05, 0.3])
def test_misses_that_outlast_the_step(cached: float) -> None:
    """Of tables that are alike, of which few rows are cached, beside a short dense part: within 5.5 % of the simulated
    step, in which a later batch is copied over the same switch."""
    tables = [{"rows": 5_000_000, "dim": 128, "pooling_factor": 20.0, "zipf_alpha": 0.8}] * 4
    dense = {"macs_per_sample": 10_000, "parameters": 10_000}
    asked = workload(tables, pipeline="prefetch", global_batch=16_384, overhead="0us", dense=dense)
    model, every = StepModel(CLUSTER, asked), np.arange(4)
    blocks = Blocks(every, every * 0 + TABLE_WISE, every * 0 + DDR_CACHED, every * 0 + 128, np.full(4, cached))
    placed = PlacedShards(blocks, every, model.tables.rows, every >= 0)
    played_s = simulate(CLUSTER, asked, placed, steps=1).step_s
    assert model.evaluate(placed).step_s == pytest.approx(played_s, rel=0.055)
