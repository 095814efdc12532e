"""What switches that sum save is named, with what it is costed by."""

import io
from functools import cache

import pytest
from rich.console import Console

from cost_models.coefficients import link_coefficients
from cost_models.workload.loading import load_workload
from planner import plan
from planner.diagnosis.explanation import Explainer
from planner.document.plan import Plan
from planner.reports import explanation, stage
from planner.reports.explanation_records import plan_document
from topologies.loading import load_topology

SHARP = "network.in_network_reduction=sharp"


@cache
def planned(nodes: int, *overrides: str) -> Plan:
    """DLRM-DCNv2 with HugeCTR; the first plan found, which is as good as any to be explained."""
    workload = load_workload("dlrm-dcnv2", overrides=["software=hugectr"])
    return plan(
        load_topology("dgx-h100", nodes=nodes, overrides=overrides), workload, effort=0, gap=1.0, solver="search"
    )


def shown(found: Plan) -> str:
    console = Console(file=io.StringIO(), width=80)
    explanation.render_plan(found, Explainer(found).plan(), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_switches_save_is_the_step_without_them() -> None:
    """Of the same placement: the stages that differ make the difference, and the text names the mechanism."""
    found = planned(4, SHARP)
    reasons = Explainer(found).plan()
    sums = reasons.network_sums
    assert sums is not None
    assert found.objective is not None
    assert sums.step_s == pytest.approx(found.objective.step_s)
    assert [each.stage for each in sums.stages] == ["all_reduce"]
    assert sums.without_s - sums.step_s == pytest.approx(sum(each.without_s - each.seconds for each in sums.stages))
    assert sums.without_s > sums.step_s
    (words,) = [line for line in shown(found).splitlines() if line.startswith("Switches sum")]
    assert "SHARP" in words
    document = plan_document(found, reasons)["network_sums"]
    assert isinstance(document, dict)
    assert document["without_s"] == sums.without_s
    assert [each["kind"] for each in document["coefficients"]] == ["fitted", "assumed"]
    assert (
        document["coefficients"][0]["value"]
        == link_coefficients("infiniband", "default-scale-out").all_reduce_efficiency.value
    )


def test_it_is_said_of_the_stage_that_it_shortens_alone() -> None:
    """`--stage` of another says nothing of it."""
    explainer = Explainer(planned(4, SHARP))
    assert "network_sums" in stage.document(explainer.stage("all_reduce"), "all_reduce")
    assert "network_sums" not in stage.document(explainer.stage("lookup_forward"), "lookup_forward")


@pytest.mark.parametrize(("nodes", "overrides"), [(4, ()), (1, (SHARP,))])
def test_nothing_is_said_where_no_switch_sums(nodes: int, overrides: tuple[str, ...]) -> None:
    """Without SHARP, and on one node."""
    found = planned(nodes, *overrides)
    assert Explainer(found).plan().network_sums is None
    assert "Switches sum" not in shown(found)


def test_two_domains_save_nothing() -> None:
    """Either way each card carries its share once in each direction."""
    found = planned(2, SHARP)
    sums = Explainer(found).plan().network_sums
    assert sums is not None
    assert sums.stages == ()
    assert "would take as long without" in " ".join(shown(found).split())


def test_a_card_that_sums_in_switches_is_no_measured_cause() -> None:
    """Where it binds the stage, half of the time it governs is open."""
    found = planned(16, SHARP, "nodes.0.links.scale_out.bandwidth=100Gb/s")
    causes = {each.name: each for each in Explainer(found).stage("all_reduce").causes}
    assert causes["SHARP of infiniband"].kind == "spec"
    assert causes["SHARP of infiniband"].error_90 >= 0.5
    assert found.objective is not None
    assert found.objective.error_bar is not None
    assert "SHARP of infiniband" in found.objective.error_bar.spec_only
