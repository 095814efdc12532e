"""What `planner plan` says of the gap, and of what no placement changes."""

import io

import pytest
from rich.console import Console

from cost_models.coefficients import software_coefficients
from cost_models.step import StepModel
from planner import plan
from planner.diagnosis.fixed_part import FixedPart, fixed_part
from planner.document.plan import Objective, Plan
from planner.document.planned import planned_inputs
from planner.formulation.policy import Policy
from planner.reports import plan_summary
from planner.reports.words import fixed_words
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 100_000 * (1 + i), "dim": 64, "pooling_factor": 40} for i in range(5)]


def said(found: Plan) -> str:
    console = Console(width=80, record=True, quiet=False, file=io.StringIO())
    plan_summary.render(found, console)
    return console.export_text()


def test_what_no_placement_changes_is_the_step_without_tables() -> None:
    """Launches and the copy of the batch on one rank, which exchanges nothing; or what its host does meanwhile."""
    one = topology(node_group("a", ranks=1))
    model, alone = (StepModel(one, workload(TABLES, pipeline="none", **of)) for of in ({}, {"overhead": "0us"}))
    software = software_coefficients("torchrec")
    launches = software.forward_launch_s.value + software.backward_launch_s.value
    copied = 4096 * (5 * (40 * 8 + 4) + 4) / model.kinds[0].pcie_bytes_per_s
    assert alone.fixed_step_s == pytest.approx(launches + copied)
    assert model.fixed_step_s == pytest.approx(software.step_overhead_s.value)


def test_the_gap_is_told_of_the_step_and_of_what_placement_decides() -> None:
    """Above a bound that is a tenth longer than what is fixed, a gap of 1 % is one of 11 % of the rest."""
    model = StepModel(topology(node_group("a", ranks=1)), workload(TABLES))
    fixed_s = model.fixed_step_s

    def of(step_s: float, bound_s: float) -> FixedPart:
        found = fixed_part(Objective(step_s=step_s, lower_bound_s=bound_s, gap=step_s / bound_s - 1), model)
        assert found is not None
        return found

    near = of(1.111 * fixed_s, 1.1 * fixed_s)
    assert near == FixedPart(fixed_s, pytest.approx(0.11))  # type: ignore[arg-type]
    assert fixed_words(near) == "independent of placement; gap 11.0% of the rest"
    assert fixed_words(of(1.1 * fixed_s, 1.1 * fixed_s)) == "independent of placement"
    assert of(1.1 * fixed_s, fixed_s).gap_of_rest is None


def test_the_summary_has_both_and_names_the_software() -> None:
    found = plan(topology(node_group("a", nodes=2, ranks=3)), workload(TABLES, software="hugectr"), effort=0, gap=0.5)
    assert found.objective is not None
    text = said(found)
    assert f"gap {found.objective.gap:.2%}: no plan" in text or "proven optimal" in text
    fixed = fixed_part(found.objective, StepModel(*planned_inputs(found)))
    assert fixed is not None
    assert fixed_words(fixed) in text
    assert "for software hugectr" in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())


def test_ratings_have_no_fixed_part() -> None:
    found = plan(topology(node_group("a")), workload(TABLES), cost_model="torchrec")
    assert found.objective is not None
    assert "independent of placement" not in said(found)


@pytest.mark.parametrize(("share", "is_told"), [(0.85, True), (0.95, False), (1.2, False)])
def test_why_a_simulated_step_is_much_shorter_is_told(share: float, is_told: bool) -> None:
    """By more than a tenth; and what that says of the bound."""
    found = plan(topology(node_group("a", ranks=2)), workload(TABLES), effort=0)
    assert found.objective is not None
    assert found.simulated is not None
    played = found.simulated.model_copy(update={"step_s": share * found.objective.step_s})
    words = " ".join(said(found.model_copy(update={"simulated": played})).split())
    assert ("a simulated step may be shorter than the bound" in words) == is_told


def test_a_table_that_the_policy_leaves_nowhere_is_named_once() -> None:
    """Rows on all four ranks are four parts, and at most two are allowed: what does not help has one reason."""
    rules = Policy.model_validate({"tables": [{"match": "t0", "shardings": ["row_wise"], "max_shards": 2}]})
    found = plan(topology(node_group("a", ranks=4)), workload(TABLES), policy=rules, effort=0)
    words = " ".join(said(found).split())
    assert found.status == "infeasible"
    assert "Not enough on its own, as t0 still fits nowhere: more nodes" in words
    assert words.count("still fits nowhere") == 1


def test_a_memory_that_some_nodes_lack_is_that_of_the_others() -> None:
    """What is usable where nothing lies in it, too."""
    groups = (node_group("bare", ddr_bytes=None), node_group("full", nodes=2, ddr_bytes=64 * 2**30))
    found = plan(topology(*groups), workload(TABLES[:1]), effort=0, gap=0.5)
    (line,) = [line.split() for line in said(found).splitlines() if line.startswith("ddr ")]
    assert line == ["ddr", "node", "0", "B", "0", "B", "64.00", "GiB", "0%"]
