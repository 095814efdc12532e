"""A simulated step that is much longer or shorter than the estimate is told as a warning, with the stage that makes the
difference; nothing is said of the others."""

import io
from dataclasses import astuple

import pytest
from rich.console import Console

from planner import plan
from planner.diagnosis.drift import DRIFTED, drift, stage_drift
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from planner.reports.words import drift_words, render_drift
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 10_000, "dim": 64, "pooling_factor": 1} for _ in range(8)]


def unlike_nodes() -> Plan:
    """Two slow cards receive more than is estimated."""
    cluster = topology(node_group("a", ranks=3), node_group("b", ranks=2, nic_bytes_per_s=3e9))
    sent = workload(TABLES, pipeline="none", software="hugectr", global_batch=196608)
    return plan(cluster, sent, policy=Policy(shardings=("table_wise",)), effort=0)


def one_table() -> Plan:
    """Of four ranks, so that its card receives the next ids while vectors leave, as those of even tables could not."""
    cluster = topology(node_group("a", nodes=2, ranks=2, nic_bytes_per_s=3e9))
    received = workload(
        [{"rows": 100_000, "dim": 16, "pooling_factor": 50}],
        pipeline="prefetch",
        overhead="0us",
        global_batch=8192,
        dense={"macs_per_sample": 100_000, "parameters": 100_000},
    )
    return plan(cluster, received, policy=Policy(shardings=("table_wise",)), effort=0)


def shown(found: Plan) -> str:
    console = Console(width=500, record=True, file=io.StringIO())
    render_drift(found, console)
    return console.export_text()


def test_a_longer_simulated_step_is_a_warning_that_names_its_stage() -> None:
    """Of exchanges that are estimated too short."""
    found = unlike_nodes()
    assert drift(found) > DRIFTED
    most = stage_drift(found)
    assert most.stage in ("output_dist", "gradient_dist")
    assert most.played_s > most.estimated_s
    words = drift_words(found)
    assert words is not None
    assert f"{drift(found):.0%} longer than the estimate, most in {most.stage}" in words
    assert f"Warning: {words}." in shown(found)


def test_a_shorter_simulated_step_is_a_warning_that_names_its_stage() -> None:
    """Of ids that hide behind more than even tables would; so it may be shorter than the bound."""
    found = one_table()
    assert drift(found) < -DRIFTED
    words = drift_words(found)
    assert words is not None
    assert f"{-drift(found):.0%} shorter than the estimate, most in lookup_backward: " in words
    assert "may be shorter than the bound" in words
    assert f"Warning: {words}." in shown(found)


def test_nothing_is_said_where_both_agree() -> None:
    """Nor of a plan that was not simulated."""
    found = plan(topology(node_group("a")), workload(TABLES, pipeline="none"), effort=0)
    assert abs(drift(found)) < DRIFTED
    assert drift_words(found) is None
    assert not shown(found)
    assert drift(found.model_copy(update={"simulated": None})) == 0.0


@pytest.mark.parametrize(("times", "sign"), [(2.0, 1), (0.5, -1)])
def test_the_stage_is_that_of_the_differences_sign(times: float, sign: int) -> None:
    """Where the whole is longer the one that is longer by most, where it is shorter the other way."""
    found = plan(topology(node_group("a")), workload(TABLES, pipeline="none"), effort=0)
    assert found.objective is not None
    least = found.objective.model_copy(update={"step_s": found.objective.step_s / times})
    stages = tuple(each.model_copy(update={"seconds": each.seconds / times}) for each in found.stages)
    most = stage_drift(found.model_copy(update={"objective": least, "stages": stages}))
    assert sign * (most.played_s - most.estimated_s) > 0
    assert most.stage == max(stages, key=lambda each: each.seconds).name
    assert len(astuple(most)) == 3
