"""What each choice of groups costs, as a table."""

import io

import pytest
from rich.console import Console

from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.reports.replicas import render_replicas
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
