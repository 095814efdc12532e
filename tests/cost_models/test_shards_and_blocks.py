"""Two ways of summing a placement that agree: shard by shard, and block by block."""

from dataclasses import fields
from functools import cache

import numpy as np
import pytest

from cost_models.shards import (
    NODE,
    RANK,
    Blocks,
    PlacedShards,
    block_rows,
)
from planner.formulation.options import Options, build_problem
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from tests.oracles.instances import Instance, tiny_instance
from tests.oracles.placements import random_placement

SEEDS = range(40)


def as_shards(problem: Problem, options: Options, placement: Placement) -> PlacedShards:
    """The placement shard by shard, as a plan document holds it."""
    index, ranks, rows, opens = [], [], [], []
    for block, place in zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True):
        extent, of_table = (
            problem.block_extent[block],
            int(problem.table_rows[options.table[options.block_option[block]]]),
        )
        on_node = problem.node_of_rank == place
        members = [place] if extent == RANK else np.flatnonzero(on_node | (extent != NODE)).tolist()
        for position, rank in enumerate(members):
            held = (
                of_table if problem.block_replicated[block] else block_rows(np.array(of_table), len(members), position)
            )
            index.append(block)
            ranks.append(rank)
            rows.append(int(held))
            opens.append(position == 0)
    option = options.block_option[index]
    blocks = Blocks(
        options.table[option],
        options.block_sharding[index],
        options.tier[option],
        options.block_columns[index],
        options.cache_fraction[option],
    )
    return PlacedShards(blocks, np.array(ranks), np.array(rows), np.array(opens))


@cache
def placed(seed: int) -> tuple[Instance, Placement, PlacedShards]:
    instance = tiny_instance(seed)
    placement = random_placement(instance.problem, np.random.default_rng(seed))
    return instance, placement, as_shards(instance.problem, instance.options, placement)


@pytest.mark.parametrize("seed", SEEDS)
def test_shard_by_shard_is_block_by_block(seed: int) -> None:
    """The model's evaluation of shards equals the solver's arithmetic on arrays, to 1e-12, on mixed clusters too."""
    instance, placement, shards = placed(seed)
    model = instance.model.linearised_at(shards)
    evaluation = model.evaluate(shards)
    state = load_state(build_problem(model, instance.options), placement)
    assert evaluation.stage_seconds == pytest.approx(state.stage_seconds(), rel=1e-12)
    assert evaluation.step_s == pytest.approx(state.step_s(), rel=1e-12)
    for m, pool in enumerate(instance.problem.pool_of_rank):
        capacity = instance.problem.pool_capacity[m]
        taken = np.bincount(pool, weights=evaluation.rank_bytes[:, m], minlength=len(capacity))
        assert (capacity - taken)[pool] == pytest.approx(state.free[m], rel=1e-9, abs=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_distinct_blocks_are_each_once(seed: int) -> None:
    """In any order of the shards, with neighbours that are alike and others: each shard has the block that it had."""
    blocks = placed(seed)[2].blocks
    blocks = blocks.take(np.random.default_rng(seed).permutation(np.repeat(np.arange(len(blocks)), 2)))
    distinct, which = blocks.distinct
    told = [tuple(each) for each in zip(*_fields(blocks), strict=True)]
    once = [tuple(each) for each in zip(*_fields(distinct), strict=True)]
    assert len(set(once)) == len(once) == len(set(told))
    assert [once[number] for number in which.tolist()] == told


@pytest.mark.parametrize("seed", SEEDS)
def test_repeated_blocks_are_those_written_out(seed: int) -> None:
    """Field by field, in any part, and told apart in the same order, which sums of loads follow."""
    blocks, random = placed(seed)[2].blocks, np.random.default_rng(seed)
    every = [getattr(blocks, each.name) for each in fields(Blocks)]
    blocks = Blocks(*(np.array(values) if values is not None else None for values in every))
    counts = random.integers(1, 5, len(blocks))
    repeated, written = blocks.repeated(counts), blocks.take(np.repeat(np.arange(len(blocks)), counts))
    some = random.permutation(len(written))[: len(written) // 2]
    pairs = [
        (repeated, written),
        (repeated.take(some), written.take(some)),
        (repeated.distinct[0], written.distinct[0]),
    ]
    assert len(repeated) == len(written)
    assert np.array_equal(repeated.distinct[1], written.distinct[1])
    for one, other in pairs:
        for each in fields(Blocks):
            assert np.array_equal(getattr(one, each.name), getattr(other, each.name)), each.name


def _fields(blocks: Blocks) -> list[list[float]]:
    of_each = (blocks.table, blocks.sharding, blocks.tier, blocks.columns, blocks.cache_fraction)
    return [values.tolist() for values in of_each]


@pytest.mark.parametrize("seed", SEEDS)
def test_shards_are_summed_a_few_at_a_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same loads and bytes, however many they are."""
    instance, _, shards = placed(seed)
    together = instance.model.evaluate(shards)
    monkeypatch.setattr("cost_models.model.SHARDS_AT_ONCE", max(len(shards.rank) // 3, 1))
    parts = instance.model.evaluate(shards)
    assert parts.rank_stage_seconds == pytest.approx(together.rank_stage_seconds, rel=1e-12)
    assert parts.rank_bytes == pytest.approx(together.rank_bytes, rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_critical_rank_binds_its_stage(seed: int) -> None:
    """No rank is busy for longer, but for rounding; a stage without load has none, and the step sums the stages."""
    instance, _, shards = placed(seed)
    evaluation = instance.model.evaluate(shards)
    busy, constants = evaluation.rank_stage_seconds, instance.model.linearised_at(shards).constants
    assert busy.shape == (instance.problem.world, len(instance.model.stages))
    assert evaluation.stage_seconds == pytest.approx(busy.max(axis=0))
    for stage, rank in enumerate(evaluation.critical_rank):
        if rank is None:
            assert (busy[:, stage] == constants[stage]).all()
        else:
            assert busy[rank, stage] == pytest.approx(busy[:, stage].max(), rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_of_ranks_are_those_of_their_shards(seed: int) -> None:
    """And of the dense part."""
    instance, _, shards = placed(seed)
    evaluation, size = instance.model.evaluate(shards), instance.model.shard_bytes(shards)
    total = np.tile(instance.model.base_bytes, (instance.problem.world, 1))
    np.add.at(total, shards.rank, size)
    assert evaluation.rank_bytes == pytest.approx(total, rel=1e-12)


def test_the_seeds_cover_mixed_clusters() -> None:
    """One kind of rank and two, and shared cards and switches."""
    problems = [tiny_instance(seed).problem for seed in SEEDS]
    assert {problem.kinds for problem in problems} == {1, 2}
    assert any(len(np.unique(row)) < problem.world for problem in problems for row in problem.resource_of_rank)
