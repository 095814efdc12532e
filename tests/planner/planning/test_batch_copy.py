"""A batch that takes longer to come to the devices than the rest of a step: estimate, bound, simulator and reports."""

from functools import cache

import numpy as np
import pytest

from benchmarks.validation.ranking import random_shards
from cost_models.floor import BATCH_COPY
from cost_models.resources import PCIE
from cost_models.shards import ROW_WISE, TABLE_WISE
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner import plan, verify
from planner.capacity.sizing import size
from planner.diagnosis.explanation import Explainer
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology

RANKS, SAMPLES, TABLES, IDS = 4, 65_536, 8, 200


def cluster(ranks_per_switch: int = RANKS) -> Topology:
    return topology(node_group("a", ranks=RANKS, ranks_per_switch=ranks_per_switch, hbm_bytes=4e9))


def model_of(ids: int = IDS, **fields: object) -> Workload:
    tables = [{"rows": 100_000, "dim": 4, "pooling_factor": ids} for _ in range(TABLES)]
    return workload(tables, global_batch=SAMPLES, **fields)


def copied_s(ids: int = IDS) -> float:
    """By hand: 8 bytes an id, 4 for how many there are of each feature, 4 for the label, over one switch."""
    rate = StepModel(cluster(), model_of(ids)).kinds[0].pcie_bytes_per_s
    return SAMPLES * (TABLES * (8 * ids + 4) + 4) / rate


def seconds(found: Plan) -> dict[str, float]:
    return {stage.name: stage.seconds for stage in found.stages}


@pytest.mark.parametrize(
    "fields", [{"pipeline": "sparse-dist"}, {"pipeline": "prefetch"}, {"mode": "inference"}], ids=lambda each: str(each)
)
def test_no_step_is_shorter_than_the_copy_of_a_batch(fields: dict[str, object]) -> None:
    """It is as long as the copy where that takes longer than the rest, to estimate, bound and simulator alike."""
    found = plan(cluster(), model_of(**fields))
    assert found.objective is not None
    assert found.simulated is not None
    assert found.objective.step_s == pytest.approx(copied_s(), rel=1e-9)
    assert found.objective.lower_bound_s == pytest.approx(copied_s(), rel=1e-9)
    assert found.status == "optimal"
    assert found.simulated.step_s == pytest.approx(copied_s(), rel=0.01)
    others = sum(of_stage for name, of_stage in seconds(found).items() if name != BATCH_COPY)
    assert seconds(found)[BATCH_COPY] == pytest.approx(copied_s() - others)
    assert verify(found) == []


@pytest.mark.parametrize("fields", [{"pipeline": "sparse-dist"}, {"pipeline": "prefetch"}, {"mode": "inference"}])
def test_a_copy_that_the_step_hides_takes_nothing(fields: dict[str, object]) -> None:
    """Over four switches it takes a quarter of the time, and a PCIe link of any rate changes nothing. Of tables that
    are exchanged: where all are replicated, inference is 12 us shorter than the copy."""
    found = plan(cluster(1), model_of(**fields), shardings=["table_wise"])
    assert found.objective is not None
    assert found.simulated is not None
    assert copied_s() / RANKS < found.objective.step_s < copied_s()
    assert found.simulated.step_s == pytest.approx(found.objective.step_s, rel=0.03)
    assert not seconds(found).get(BATCH_COPY)


def test_without_a_pipeline_it_comes_before_the_ids() -> None:
    """As long as over the busiest switch, whichever group of nodes that is in."""
    mixed = topology(node_group("a", ranks=2), node_group("b", ranks=2, ranks_per_switch=2))
    slow, even = (
        StepModel(each, model_of(pipeline="none"))
        for each in (mixed, topology(node_group("a", ranks=2), node_group("b", ranks=2)))
    )
    stage = slow.stages.index("input_dist")
    assert slow.constants[stage] - even.constants[stage] == pytest.approx(copied_s() / RANKS)
    assert slow.floor is None


def test_ranks_wait_for_their_own_switch() -> None:
    mixed = StepModel(topology(node_group("a", ranks=2), node_group("b", ranks=2, ranks_per_switch=2)), model_of(600))
    assert mixed.floor is not None
    assert mixed.floor.seconds == pytest.approx(np.array([1, 1, 2, 2]) * copied_s(600) / RANKS)


def test_ids_that_are_read_where_they_are_needed_are_not_copied() -> None:
    assert StepModel(cluster(), model_of(software="distributed-embeddings")).floor is None


def test_no_placement_is_below_the_bound() -> None:
    """Where the copy is hidden behind some placements and not behind others."""
    found = plan(cluster(), model_of(40))
    model = StepModel(cluster(), model_of(40))
    assert found.objective is not None
    random = np.random.default_rng(5)
    for _ in range(20):
        evaluation = model.evaluate(random_shards(model, random, (TABLE_WISE, ROW_WISE)))
        assert evaluation.step_s >= found.objective.lower_bound_s * (1 - 1e-9)
        assert evaluation.step_s >= copied_s(40) * (1 - 1e-9)


def test_a_document_that_leaves_it_out_is_refused() -> None:
    found = plan(cluster(), model_of())
    assert found.objective is not None
    others = sum(of_stage for name, of_stage in seconds(found).items() if name != BATCH_COPY)
    objective = found.objective.model_copy(update={"step_s": others, "lower_bound_s": others})
    stages = tuple(
        stage.model_copy(update={"seconds": 0.0, "critical_rank": None}) if stage.name == BATCH_COPY else stage
        for stage in found.stages
    )
    faults = verify(found.model_copy(update={"objective": objective, "stages": stages}))
    assert any(fault.startswith(f"stage {BATCH_COPY}: takes") for fault in faults)


def test_its_explanation_adds_up() -> None:
    """Whatever is placed, the stage waits; the bound is the sum of its parts, and no memory is worth anything."""
    found = plan(cluster(), model_of())
    reasons = Explainer(found).plan()
    assert found.objective is not None
    last = reasons.stages[-1]
    assert (last.stage.name, last.resource, last.contributors) == (BATCH_COPY, PCIE, ())
    assert last.constant_s == last.stage.seconds
    parts = sum(each.bound_s or 0.0 for each in reasons.stages) + (reasons.memory_bound_s or 0.0)
    assert parts + (reasons.branching_bound_s or 0.0) == pytest.approx(found.objective.lower_bound_s)
    assert reasons.memory == ()
    assert [gain.resource for gain in reasons.gains] == ["PCIe bandwidth"]


def test_a_size_must_copy_its_batch_in_time() -> None:
    """Half the step needs twice the nodes, each with its switch, and the plan of the answer keeps to it."""
    (first, *_) = size(cluster(), model_of(), max_step_s=copied_s() * 0.6, max_nodes=4, each_tier=False)
    assert first.answer is not None
    assert first.answer.nodes == 2
    assert first.answer.step_s is not None
    assert first.answer.step_s == pytest.approx(copied_s() / 2)
    rejected = first.candidates[0]
    assert (rejected.nodes, rejected.judged_by) == (1, "bound")
    assert rejected.lower_bound_s == pytest.approx(copied_s())


@cache
def on_three_of_four() -> tuple[Plan, Plan]:
    """The plan of all tables on three ranks, and that on all."""
    policy = Policy.model_validate({"tables": [{"match": "*", "ranks": "0-2"}]})
    return plan(cluster(), model_of(), policy=policy), plan(cluster(), model_of())


@pytest.mark.parametrize("terms", [{"pay_back_steps": 10**12}, {"max_move_bytes": 10**12}])
def test_nothing_moves_to_shorten_what_the_copy_hides(terms: dict[str, int]) -> None:
    """All tables on three of four ranks take longer than shared out, but less than the copy of a batch: they stay, in
    however many steps a move has to pay for itself, or how much may move."""
    on_three, shared = on_three_of_four()
    assert on_three.objective is not None
    assert shared.objective is not None
    assert on_three.objective.step_s == shared.objective.step_s
    assert seconds(on_three)[BATCH_COPY] < seconds(shared)[BATCH_COPY]
    again = plan(cluster(), model_of(), previous=on_three, **terms)  # type: ignore[arg-type]
    assert again.moves is not None
    assert again.moves.moved_bytes == 0
