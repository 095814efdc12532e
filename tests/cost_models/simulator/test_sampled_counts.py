"""The simulator's own demand, drawn: beside the expected one, and beside an estimate with a mistake in it."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cost_models.access import AccessCurves
from cost_models.shards import DDR_CACHED, DDR_SPLIT, HBM, ROW_WISE, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.sampled_counts import SampledCounts
from cost_models.simulator.shard_counts import ShardCounts
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from cost_models.tables import Tables
from cost_models.workload.models import Workload
from tests.oracles.instances import node_group, topology, workload

ROWS = 400_000
ALPHAS = (0.0, 0.6, 0.9, 1.05)


def model(alphas: tuple[float, ...] = ALPHAS, **fields: object) -> Workload:
    """A table for each exponent."""
    tables = [{"rows": ROWS, "dim": 64, "zipf_alpha": alpha} for alpha in alphas]
    return workload(tables, **{"pipeline": "none", "dense": {}, "global_batch": 16_384, **fields})


def placed(tier: int, *, rows_cut: bool = False) -> PlacedShards:
    """One table a rank in this tier, or each cut by rows over all four ranks."""
    of_table = np.repeat(np.arange(4), 4 if rows_cut else 1)
    like = np.zeros_like(of_table)
    share = like + (0.0 if tier == HBM else 0.1)
    blocks = Blocks(of_table, like + (ROW_WISE if rows_cut else TABLE_WISE), like + tier, like + 64, share)
    rank = np.tile(np.arange(4), 4) if rows_cut else np.arange(4)
    rows = like + (ROWS // 4 if rows_cut else ROWS)
    return PlacedShards(blocks, rank, rows, rank == 0 if rows_cut else rows > 0)


@pytest.mark.parametrize("tier", [HBM, DDR_CACHED, DDR_SPLIT])
def test_drawn_counts_are_those_expected(tier: int) -> None:
    """Ids, distinct rows, misses, the share of the reads that HBM serves and distinct rows read in host memory: of
    whole tables, within 3 %."""
    drawn = SampledCounts(model(), placed(tier), 4)
    expected = ShardCounts(Tables.of(model(), 4), placed(tier), 4, 16_384)
    for name in ("lookups", "unique", "missed", "hot", "cold"):
        assert getattr(drawn, name) == pytest.approx(getattr(expected, name), rel=0.03), name
    assert drawn.row_bytes() == pytest.approx(expected.row_bytes())
    assert drawn.cached_row_bytes() == pytest.approx(expected.cached_row_bytes())


def test_drawn_rows_without_a_place_are_those_expected() -> None:
    """Of caches too small for two batches, prefetched: drawn row by row, the expected ones are within a tenth, as are
    their reads."""
    bare = model(pipeline="prefetch", global_batch=65_536)
    drawn = SampledCounts(bare, placed(DDR_CACHED), 4)
    expected = ShardCounts(Tables.of(bare, 4), placed(DDR_CACHED), 4, 65_536, is_prefetched=True)
    assert (expected.cold > 0.3 * expected.unique).sum() >= 3
    assert drawn.cold == pytest.approx(expected.cold, rel=0.1)
    assert 1 - drawn.hot == pytest.approx(1 - expected.hot, rel=0.1)
    assert drawn.missed == pytest.approx(expected.missed, rel=0.1, abs=0.02 * expected.unique.max())


def test_a_hot_row_is_whole_with_one_rank() -> None:
    """Parts of a table add up to its ids and distinct rows; of a skewed one, one rank has far more ids than others."""
    drawn = SampledCounts(model(), placed(HBM, rows_cut=True), 4)
    lookups = (drawn.lookups * drawn.share).reshape(4, 4)
    assert lookups.sum(axis=1) == pytest.approx([163_840] * 4, rel=0.01)
    uniform, *_, skewed = lookups.max(axis=1) / lookups.mean(axis=1)
    assert uniform == pytest.approx(1, rel=0.02)
    assert skewed > 1.1
    whole = SampledCounts(model(), placed(HBM), 4)
    assert (drawn.unique * drawn.share).reshape(4, 4).sum(axis=1) == pytest.approx(whole.unique, rel=0.03)


def test_the_same_seed_draws_the_same_rows() -> None:
    """And another seed others."""
    one, same, other = (SampledCounts(model(), placed(HBM), 4, seed).unique for seed in (1, 1, 2))
    assert one.tolist() == same.tolist() != other.tolist()


def tenth_more(name: str, of: type) -> Callable[..., object]:
    was = getattr(of, name)
    return lambda *given, **named: was(*given, **named) * 1.1


MISTAKES = {
    "row bytes": (Tables, "row_bytes", HBM),
    "distinct rows": (AccessCurves, "unique_rows", DDR_CACHED),
    "misses": (AccessCurves, "missed_rows", DDR_CACHED),
    "hit rate": (AccessCurves, "hit_rate", DDR_SPLIT),
    "rows beyond the hottest": (AccessCurves, "rows_beyond", DDR_SPLIT),
}
SEEN = 0.01
"""Of a step."""
CLUSTER = topology(node_group("a", ranks=4, hbm_bytes=1e10))
SKEWED = model((0.9,) * 4, software="hugectr", global_batch=262_144)


def steps(tier: int) -> tuple[float, float, float]:
    """The estimated step, and that of a simulation of expected rows and of rows of its own."""
    Tables.of.cache_clear()
    shards = placed(tier)
    played = [
        simulate(CLUSTER, SKEWED, shards, conditions=Conditions(draws_rows=drawn)).step_s for drawn in (False, True)
    ]
    return StepModel(CLUSTER, SKEWED).evaluate(shards).step_s, played[0], played[1]


steps_without_mistakes = cache(steps)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_estimate_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth too many in what the estimate derives moves it, and with it a simulation of expected rows, and nothing
    of a simulation with rows of its own: it shows the difference."""
    of, name, tier = MISTAKES[mistake]
    estimate, played, judged = steps_without_mistakes(tier)
    assert estimate == pytest.approx(judged, rel=0.06)
    monkeypatch.setattr(of, name, tenth_more(name, of))
    mistaken, played_too, still = steps(tier)
    Tables.of.cache_clear()
    assert still == judged
    assert abs(mistaken / estimate - 1) > SEEN
    assert played_too / played == pytest.approx(mistaken / estimate, abs=SEEN)


@pytest.mark.parametrize("name", ["forward_wire_bytes", "backward_wire_bytes", "id_bytes", "written_bytes"])
def test_a_mistake_in_the_bytes_of_all_tables_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of bytes that the estimate looks up once: of vectors on the wire and in memory, and of ids."""
    cluster, bare = topology(node_group("a", ranks=4, hbm_bytes=1e10)), model((0.9,) * 4, software="hugectr")
    of, shards = Tables.of, placed(HBM)

    def mistaken(workload: Workload, world: int) -> Tables:
        stated = of(workload, world)
        return replace(stated, **{name: 2 * getattr(stated, name)})

    def steps() -> tuple[float, float]:
        judged = simulate(cluster, bare, shards, conditions=Conditions(draws_rows=True)).step_s
        return StepModel(cluster, bare).evaluate(shards).step_s, judged

    estimate, judged = steps()
    monkeypatch.setattr(Tables, "of", mistaken)
    moved, still = steps()
    assert still == judged
    assert moved > estimate * 1.001
