"""Stages spelled out and counted: growth, steps, evaluations."""

from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from planner.runs.run import Run, Stage
from planner.runs.schedule import Schedule, scheduled
from topologies.documents import Document
from topologies.errors import InputError


def schedule(*stages: dict[str, Any], own_batch: int | None = None, **keys: Any) -> Schedule:
    data = {"name": "r", "topology": "t", "workload": "w", "stages": list(stages), **keys}
    return scheduled(Run.model_validate(data), Document(data, "run.yaml"), own_batch, 1)


def test_a_constant_batch_takes_the_batches_that_the_samples_make():
    """MLPerf's DLRM-DCNv2: 4,195,197,692 samples in batches of 55,296 are 75,869 steps, the last one short."""
    (stage,) = schedule({"global_batch": 55296, "samples": 4195197692}).stages
    assert stage.steps == ceil(Fraction(4195197692, 55296)) == 75869
    assert stage.samples_read == 75869 * 55296


def test_a_batch_grows_up_to_its_last():
    """By its factor from stage to stage; the last one has exactly what `until` says."""
    made = schedule(
        {
            "name": "g",
            "global_batch": 1000,
            "samples": 6000,
            "grow": {"global_batch": 2, "until": {"global_batch": 7000}},
        }
    )
    assert [(each.name, each.global_batch, each.steps) for each in made.stages] == [
        ("g.1", 1000, 6),
        ("g.2", 2000, 3),
        ("g.3", 4000, 2),
        ("g.4", 7000, 1),
    ]


def test_accumulated_samples_are_read_fewer_than_twice():
    """DANCE: each stage reads those before it again, with factor 2 fewer than 2 N samples of N."""
    made = schedule(
        {
            "global_batch": 100,
            "samples": 1000,
            "grow": {"samples": 2, "until": {"samples": 100_000}, "rereads": True},
        }
    )
    read = [each.samples for each in made.stages]
    assert read == [1000, 2000, 4000, 8000, 16000, 32000, 64000, 100_000]
    assert made.distinct_samples == 100_000
    assert sum(read) == 227_000
    doubled = [1000 * 2**i for i in range(8)]
    exact = schedule({"global_batch": 100, "samples": 1000, "grow": {"samples": 2, "stages": 8, "rereads": True}})
    assert [each.samples for each in exact.stages] == doubled
    assert sum(doubled) < 2 * exact.distinct_samples == 2 * doubled[-1]


def test_overlapping_batches_take_more_steps():
    """A quarter of each batch was in the one before: three quarters of it are new."""
    (stage,) = schedule({"global_batch": 400, "samples": 3000, "lbfgs": {"pairs": 5, "overlap": "25%"}}).stages
    assert stage.steps == 10
    assert stage.samples_read == 4000


def test_evaluations_are_counted_over_the_run():
    """One whenever so many samples more were trained on, whatever the stages are."""
    made = schedule(
        {"global_batch": 10, "samples": 70},
        {"global_batch": 20, "samples": 70},
        evaluation={"every": 50, "seconds": "1s"},
    )
    assert [stage.evaluations for stage in made.stages] == [1, 1]


@given(
    batch=st.integers(1, 5_000),
    samples=st.integers(2, 10**7),
    cut=st.floats(0.01, 0.99),
    overlap=st.sampled_from(["0%", "10%", "50%"]),
    every=st.integers(1, 10**6),
    before=st.integers(0, 10**6),
)
def test_a_stage_in_two_parts_takes_as_many_steps(batch, samples, cut, overlap, every, before):
    """Steps, evaluations and samples of both parts are those of the whole, wherever it is cut."""
    first = min(max(floor(samples * cut), 1), samples - 1)
    if ceil(batch * Fraction(overlap.strip("%")) / 100) >= batch:
        return

    def stage(number: int) -> dict[str, Any]:
        return {"global_batch": batch, "samples": number, "lbfgs": {"pairs": 1, "overlap": overlap}}

    rest = {"evaluation": {"every": every, "seconds": "1s"}}
    lead = [{"global_batch": batch + 1, "samples": before}] if before else []
    whole = schedule(*lead, stage(samples), **rest)
    parts = schedule(*lead, stage(first), stage(samples - first), **rest)
    for figure in ("steps", "evaluations", "samples"):
        assert sum(getattr(each, figure) for each in parts.stages) == sum(
            getattr(each, figure) for each in whole.stages
        )
    assert parts.distinct_samples == whole.distinct_samples


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ({"global_batch": 8}, "exactly one of samples and steps"),
        ({"samples": 8, "steps": 8}, "exactly one of samples and steps"),
        ({"samples": 8, "grow": {"stages": 3}}, "nothing grows"),
        ({"samples": 8, "global_batch": 8, "grow": {"global_batch": 2}}, "say where it ends"),
        ({"samples": 8, "grow": {"global_batch": 2, "stages": 2}}, "global_batch grows from that of the first"),
        ({"steps": 8, "grow": {"samples": 2, "stages": 2}}, "give samples, not steps"),
        ({"samples": 8, "nodes": [1, 2], "grow": {"nodes": 2, "stages": 2}}, "nodes grows from that of the first"),
        ({"samples": 8, "grow": {"samples": 2, "until": {"nodes": 4}}}, "until names nodes, which does not grow"),
        ({"samples": 8, "grow": {"samples": 2, "until": {"samples": 8}}}, "not above the first stage's 8"),
        ({"samples": 8, "nodes": [2, 2]}, "stands twice"),
    ],
)
def test_stages_that_contradict_themselves(stage, words):
    """Each is refused with what to do."""
    with pytest.raises(ValidationError, match=words):
        Stage.model_validate(stage)


def test_a_batch_of_ranks_is_not_one_of_a_run():
    """A workload that says the batch of a rank leaves the batch of a stage open: refused, at the stage."""
    with pytest.raises(InputError, match=r"stages\.0\.global_batch"):
        schedule({"samples": 100})
