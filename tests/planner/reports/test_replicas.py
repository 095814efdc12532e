"""What each choice of groups costs, as a table."""

import io

import pytest
from rich.console import Console

from planner.formulation.policy import Policy
from planner.planning.one_world import beside_one_world
from planner.planning.planning import plan
from planner.reports.replicas import render_choices, render_replicas
from tests.oracles.instances import node_group, topology, workload


@pytest.mark.parametrize("sync_every", [1, 1_000_000])
def test_every_choice_has_its_bound_and_a_planned_one_its_gap(sync_every: int) -> None:
    """In 80 columns; a choice that its bound rules out says so below."""
    policy = Policy.model_validate({"replicas": {"factor": [1, 2], "layout": "intra", "sync_every": sync_every}})
    tables = [{"rows": 1_000_000, "dim": 64, "pooling_factor": 20}] * 6
    found = plan(topology(node_group("a", nodes=2, ranks=4)), workload(tables), policy=policy, effort=0, simulate=False)
    assert found.replicas is not None
    assert found.objective is not None
    written = io.StringIO()
    render_replicas(found, found.replicas, Console(file=written, width=80))
    lines = written.getvalue().splitlines()
    taken, other = (next(line for line in lines if line.endswith(word)) for word in ("taken", "slower"))
    assert f"{found.objective.gap:.2%}" in taken.split()
    by_bound = found.replicas.others[0].rejected == "bound"
    assert by_bound == ("%" not in other)
    assert by_bound == any(line.startswith("Slower without a step") for line in lines)


@pytest.mark.parametrize(("sync_every", "word"), [(1, "faster"), (1_000_000, "slower")])
def test_one_world_beside_groups_is_told_as_it_is(sync_every: int, word: str) -> None:
    """Where the policy has two groups alone, one world may be faster, and the flag that plans so is named."""
    policy = Policy.model_validate({"replicas": {"factor": 2, "layout": "intra", "sync_every": sync_every}})
    tables = [{"rows": 1_000_000, "dim": 64, "pooling_factor": 20}] * 6
    found = plan(topology(node_group("a", nodes=2, ranks=4)), workload(tables), policy=policy, effort=0, simulate=False)
    assert found.replicas is not None
    assert found.objective is not None
    others, written = beside_one_world(found), io.StringIO()
    (one,) = others
    assert one.step_s is not None
    assert (one.step_s < found.objective.step_s) == (word == "faster")
    render_choices(found, found.replicas, others, Console(file=written, width=80))
    lines = written.getvalue().splitlines()
    assert next(line for line in lines if line.startswith("1 ")).endswith(word)
    assert any("--replicas 1 plans so" in line for line in lines) == (word == "faster")
