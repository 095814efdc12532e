"""HBM over the course of a step: by hand, never above what a plan counts, and equal to it where that is exact."""

from collections.abc import Mapping

import numpy as np
import pytest

from cost_models.memory_course import PARTS, MemoryCourse, memory_course
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 1000, "dim": 8, "pooling_factor": 4}, {"rows": 500, "dim": 16, "pooling_factor": 2}]
LAYERS: Mapping[str, object] = {"top_mlp": [100, 1], "optimizer": "adam"}


def model_of(own: Workload, ranks: int = 2) -> StepModel:
    return StepModel(topology(node_group("a", ranks=ranks)), own)


def whole(model: StepModel, ranks: list[int]) -> PlacedShards:
    """Each table as one shard in HBM of a rank."""
    table = np.arange(len(ranks))
    zeros = np.zeros_like(table)
    blocks = Blocks(table, zeros + TABLE_WISE, zeros + HBM, model.tables.dim[table], np.zeros(len(table)))
    return PlacedShards(blocks, np.array(ranks), model.tables.rows[table], np.ones(len(table), dtype=bool))


def of(course: MemoryCourse, rank: int, moment: str, part: str) -> float:
    return float(course.bytes[rank, course.moments.index(moment), PARTS.index(part)])


def test_every_byte_by_hand() -> None:
    """Two tables on two ranks, 4,096 samples, fp32, int64 ids, row-wise Adagrad: all in arithmetic."""
    own = workload(TABLES, dense=dict(LAYERS), pipeline="sparse-dist")
    model = model_of(own)
    course = memory_course(model, whole(model, [0, 1]))
    assert course.moments == (
        "lookup",
        "vectors sent",
        "forward top_mlp",
        "backward top_mlp",
        "gradients sent",
        "tables updated",
        "dense part updated",
    )
    received = 4 * (8 + 16) * 2048
    for moment, vectors, embeddings, activations in (
        ("lookup", 1, 0, 0),
        ("vectors sent", 1, 1, 0),
        ("forward top_mlp", 0, 1, (24 + 100 + 100 + 1)),
        ("backward top_mlp", 0, 1, (24 + 100 + 100 + 1)),
        ("gradients sent", 2, 2, 0),
        ("tables updated", 1, 0, 0),
        ("dense part updated", 0, 0, 0),
    ):
        assert of(course, 0, moment, "vectors") == vectors * 4096 * 8 * 4, moment
        assert of(course, 1, moment, "vectors") == vectors * 4096 * 16 * 4, moment
        assert of(course, 0, moment, "embeddings") == embeddings * received, moment
        assert of(course, 1, moment, "activations") == activations * 2048 * 4, moment
        assert of(course, 0, moment, "weights") == 1000 * 8 * 4
        assert of(course, 0, moment, "parameters") == (24 * 100 + 100 + 101) * 4 * 4  # weights, gradients, two moments
        assert of(course, 0, moment, "next_ids") == 2 * of(course, 0, moment, "ids") - 4096 * 4 * 8
    assert of(course, 0, "lookup", "ids") == 4096 * 4 * 8 + model.peak.loaded_bytes


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("width", [4, 8000])
def test_no_moment_takes_more_than_a_plan_counts(width: int, checkpointing: str) -> None:
    """Random placements, in which the exchange or the dense part takes more: the same bytes where activations do."""
    layers = {"top_mlp": [width, width, 1], "checkpointing": checkpointing}
    own = workload([{"rows": 40_000, "dim": 32, "pooling_factor": 3}] * 5, dense=layers)
    model = model_of(own, ranks=4)
    for seed in range(5):
        placed = whole(model, np.random.default_rng(seed).integers(4, size=5).tolist())
        course = memory_course(model, placed)
        peaks = course.totals.max(axis=1)
        assert (peaks <= course.counted * (1 + 1e-12)).all()
        rank, moment = course.fullest
        assert course.totals[rank, moment] == peaks.max()
        vectors = course.bytes[:, course.moments.index("lookup"), PARTS.index("vectors")]
        if width > 4:
            assert "ward" in course.moments[moment]
            counted = model.batching.output_copies * vectors  # the straight line between both moments
            assert peaks + counted == pytest.approx(course.counted, rel=1e-12)
        else:
            assert course.moments[moment] == "gradients sent"
            beyond = (2 - model.batching.output_copies) * vectors
            assert (course.counted - peaks >= -beyond - 1).all()


def test_blocks_by_hand_kept_whole_and_computed_again() -> None:
    """Layers of 24 -> 40 -> 8 -> 1, each a block: whole ones add up and go; checkpointed ones keep what they read, and
    are there as a whole, with the gradient of what they gave, while they go backward."""
    layers = [
        {"kind": "embeddings", "tables": "*", "name": "vectors"},
        {"kind": "linear", "name": "a", "out": 40},
        {"kind": "linear", "name": "b", "out": 8},
        {"kind": "linear", "name": "c", "out": 1},
    ]
    expected = {
        "none": {"a": (64, 64), "b": (112, 112), "c": (121, 121)},
        "full": {"a": (64, 64 + 40), "b": (24 + 48, 24 + 48 + 8), "c": (24 + 40 + 9, 24 + 40 + 9 + 1)},
    }
    for checkpointing, blocks in expected.items():
        model = model_of(workload(TABLES, dense={"layers": layers, "checkpointing": checkpointing}))
        course = memory_course(model, whole(model, [0, 1]))
        for name, (forward, backward) in blocks.items():
            assert of(course, 0, f"forward {name}", "activations") == forward * 4 * 2048, (checkpointing, name)
            assert of(course, 1, f"backward {name}", "activations") == backward * 4 * 2048, (checkpointing, name)
        assert model.peak.rank_bytes.get("activations", 0.0) in (0.0, max(map(max, blocks.values())) * 4 * 2048)


@pytest.mark.parametrize("given", [{"mode": "inference"}, {"software": "hugectr"}])
def test_what_stays_for_the_whole_step_is_what_is_counted(given: dict[str, object]) -> None:
    """Static buffers are there at every moment; answers keep vectors until they are given: to the byte."""
    model = model_of(workload(TABLES, dense=dict(LAYERS), **given))
    course = memory_course(model, whole(model, [0, 1]))
    assert course.totals.max(axis=1) == pytest.approx(course.counted, rel=1e-15)
    assert course.is_flat == ("software" in given)
