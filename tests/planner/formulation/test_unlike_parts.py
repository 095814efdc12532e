"""Plans say where the estimate of exchanges is rough, and there alone."""

from typing import Any

import pytest

from planner import plan, verify
from planner.document.plan import Plan
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 10_000, "dim": 64, "pooling_factor": 1} for _ in range(8)]


def planned(*groups: dict[str, Any], nodes_below: int = 1, oversubscription: float = 1.0) -> Plan:
    cluster = topology(*groups).model_dump(mode="json")
    cluster["network"] = {"levels": [{"name": "leaf", "nodes": nodes_below, "oversubscription": oversubscription}]}
    return plan(type(topology(*groups)).model_validate(cluster), workload(TABLES, pipeline="none"), effort=0)


def exceeds(found: Plan) -> float:
    """By what share the simulated step is beyond the estimate."""
    assert found.objective is not None
    assert found.simulated is not None
    return found.simulated.step_s / found.objective.step_s - 1


@pytest.mark.parametrize("other", [{"nic_bytes_per_s": 3e9}, {"ranks": 3}])
def test_unlike_cards_or_domains_are_a_warning(other: dict[str, Any]) -> None:
    """And the plan verifies, with it."""
    found = planned(node_group("a"), node_group("b", **other))
    (words,) = found.provenance.warnings
    assert "unlike cards or domains" in words
    assert not verify(found)


def test_switches_of_unlike_sizes_are_a_warning_which_names_a_remedy() -> None:
    """Three nodes under leaves of two: the lone one as a group of its own is nearer, and no reason to warn."""
    found = planned(node_group("a", nodes=3), nodes_below=2, oversubscription=4.0)
    (words,) = found.provenance.warnings
    assert "switches of level leaf have 1 and 2 nodes" in words
    apart = planned(node_group("a", nodes=2), node_group("b"), nodes_below=2, oversubscription=4.0)
    assert apart.provenance.warnings == ()
    assert abs(exceeds(apart)) < abs(exceeds(found))


@pytest.mark.parametrize(("nodes", "below", "narrowing"), [(4, 2, 4.0), (3, 2, 1.0), (2, 1, 4.0), (3, 4, 4.0)])
def test_alike_parts_are_no_reason_to_warn(nodes: int, below: int, narrowing: float) -> None:
    """Estimate and simulation are near there."""
    found = planned(node_group("a", nodes=nodes), nodes_below=below, oversubscription=narrowing)
    assert found.provenance.warnings == ()
    assert abs(exceeds(found)) < 0.1
