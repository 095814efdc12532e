"""How far ahead batches are brought, by pipeline and mode."""

import pytest

from cost_models.simulator.pipelines import Ahead, ahead_of
from tests.oracles.instances import workload

TABLES = [{"rows": 1000, "dim": 64}]


@pytest.mark.parametrize(
    ("pipeline", "ahead", "fill_steps"),
    [("none", Ahead(0, 0, 0), 1), ("sparse-dist", Ahead(2, 1, 0), 2), ("prefetch", Ahead(3, 2, 1), 3)],
)
def test_training_follows_its_pipeline(pipeline: str, ahead: Ahead, fill_steps: int) -> None:
    """What is ahead is copied before its ids are exchanged, and these before rows are fetched."""
    given = ahead_of(workload(TABLES, pipeline=pipeline))
    assert (given, given.fill_steps) == (ahead, fill_steps)
    assert given.copy >= given.ids >= given.fetch


def test_inference_copies_the_next_batch_only() -> None:
    ahead = ahead_of(workload(TABLES, mode="inference", pipeline="none"))
    assert (ahead.copy, ahead.ids, ahead.fetch, ahead.fill_steps) == (1, 0, 0, 1)
