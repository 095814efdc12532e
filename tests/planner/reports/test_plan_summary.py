"""What `planner plan` says of the gap, and of what no placement changes."""

import io

import pytest
from rich.console import Console

from cost_models.coefficients import software_coefficients
from planner import plan, verify
from planner.document import Objective, Plan
from planner.reports import plan_summary
from planner.reports.words import fixed_words
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 100_000 * (1 + i), "dim": 64, "pooling_factor": 40} for i in range(5)]


def said(found: Plan) -> str:
    console = Console(width=80, record=True, quiet=False, file=io.StringIO())
    plan_summary.render(found, console)
    return console.export_text()


def test_what_no_placement_changes_is_the_step_without_tables() -> None:
    """Overhead and launches on one rank, which exchanges nothing; a document that says otherwise is refused."""
    found = plan(topology(node_group("a", ranks=1)), workload(TABLES, pipeline="none", mode="inference"))
    software = software_coefficients("torchrec")
    assert found.objective is not None
    copied = next(stage.seconds for stage in found.stages if stage.name == "input_dist")
    by_hand = software.step_overhead_s.value + software.forward_launch_s.value + copied
    assert found.objective.fixed_s == pytest.approx(by_hand)
    assert verify(found) == []
    assert verify(found.model_copy(update={"objective": found.objective.model_copy(update={"fixed_s": None})})) == []
    for other in (0.0, by_hand * 1.001):
        objective = found.objective.model_copy(update={"fixed_s": other})
        (fault,) = verify(found.model_copy(update={"objective": objective}))
        assert fault.startswith("objective: fixed_s is ")


def test_the_gap_is_told_of_the_step_and_of_what_placement_decides() -> None:
    """3 of 100 ms are 3 %, and 10 % of the 30 ms of the bound that are not fixed."""
    objective = Objective(step_s=0.103, lower_bound_s=0.1, gap=0.03, fixed_s=0.07)
    assert objective.gap_of_placement == pytest.approx(0.1)
    assert fixed_words(objective) == "whatever is placed: gap 10.0% of what placement decides"
    assert fixed_words(Objective(step_s=0.1, lower_bound_s=0.1, gap=0.0, fixed_s=0.07)) == "whatever is placed"
    assert Objective(step_s=0.1, lower_bound_s=0.07, gap=0.43, fixed_s=0.07).gap_of_placement is None
    assert Objective(step_s=0.1, lower_bound_s=0.07, gap=0.43).gap_of_placement is None


def test_the_summary_has_both_and_names_the_software() -> None:
    found = plan(topology(node_group("a", nodes=2, ranks=3)), workload(TABLES, software="hugectr"), effort=0, gap=0.5)
    assert found.objective is not None
    text = said(found)
    assert f"gap {found.objective.gap:.2%}: no plan" in text or "proven optimal" in text
    assert fixed_words(found.objective) in text
    assert "for software hugectr" in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())


def test_ratings_have_no_fixed_part() -> None:
    found = plan(topology(node_group("a")), workload(TABLES), cost_model="torchrec")
    assert found.objective is not None
    assert found.objective.fixed_s is None
    assert "whatever is placed" not in said(found)
    assert verify(found) == []
    told = found.objective.model_copy(update={"fixed_s": 0.0})
    assert verify(found.model_copy(update={"objective": told}))
