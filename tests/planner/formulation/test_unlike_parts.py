"""Plans say where the estimate of exchanges is rough, and there alone."""

import io
from typing import Any

import pytest
from rich.console import Console

from planner import load_topology, load_workload, plan, verify
from planner.capacity.sizing import size
from planner.diagnosis.explanation import Explainer
from planner.document.plan import Plan
from planner.formulation.unlike_parts import unlike_kernels
from planner.reports.explanation import render_plan
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 10_000, "dim": 64, "pooling_factor": 1} for _ in range(8)]


def planned(
    *groups: dict[str, Any], nodes_below: int = 1, oversubscription: float = 1.0, tables: int = len(TABLES)
) -> Plan:
    cluster = topology(*groups).model_dump(mode="json")
    cluster["network"] = {"levels": [{"name": "leaf", "nodes": nodes_below, "oversubscription": oversubscription}]}
    return plan(type(topology(*groups)).model_validate(cluster), workload(TABLES[:tables], pipeline="none"), effort=0)


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


def test_unlike_links_to_alike_cards_are_a_warning() -> None:
    """Cards are no faster than the links of the accelerators that they serve; where those reach them past these links,
    nothing is unlike."""
    group: dict[str, Any] = node_group("b")
    slow = {**group["links"]["pcie"], "bandwidth": "2GB/s"}
    for carries, words in ((True, ["node groups have unlike links to their cards"]), (False, [])):
        pcie = {**slow, "carries_scale_out": carries}
        found = planned(node_group("a"), {**group, "links": {**group["links"], "pcie": pcie}})
        assert [each.split(",")[0] for each in found.provenance.warnings] == words


def test_explanations_say_it_too() -> None:
    """As plans do."""
    found, output = planned(node_group("a"), node_group("b", nic_bytes_per_s=3e9)), io.StringIO()
    render_plan(found, Explainer(found).plan(), Console(file=output, width=200))
    assert f"Warning: {found.provenance.warnings[0]}." in output.getvalue()


def test_sizes_say_it_of_the_answer() -> None:
    """Of as many nodes as do, whatever the topology has: five or more under leaves of four, two of which are unlike."""
    group = node_group("a", nodes=1, ranks=2, hbm_bytes=0.15e9, ddr_bytes=1e6, remote_bytes=1e6)
    cluster = topology(group, levels=[(2, 4.0)])
    (found,) = size(cluster, workload([{"rows": 1_000_000, "dim": 64}] * 3), each_tier=False, effort=0)
    assert found.answer is not None
    assert found.plan is not None
    assert found.answer.nodes % 2
    (words,) = found.plan.provenance.warnings
    assert "switches of level l0 have 1 and 2 nodes" in words
    assert words in found.notes


@pytest.mark.parametrize(("nodes", "below"), [(3, 2), (5, 4), (7, 3)])
def test_switches_of_unlike_fill_are_told_apart(nodes: int, below: int) -> None:
    """A lone node under a leaf sends as much as it does, and the others as theirs do; stated as a group of its own it
    comes to the same. Beside several others, what they exchange with it is a warning."""
    found = planned(node_group("a", nodes=nodes), nodes_below=below, oversubscription=4.0)
    assert len(found.provenance.warnings) == (nodes > 2 * below)
    assert abs(exceeds(found)) < 0.1
    assert not verify(found)
    stated = node_group("a", nodes=nodes - nodes % below), node_group("b", nodes=nodes % below)
    apart = planned(*stated, nodes_below=below, oversubscription=4.0)
    assert found.objective is not None
    assert apart.objective is not None
    assert found.objective.step_s == pytest.approx(apart.objective.step_s)
    assert [table.shards for table in found.tables] == [table.shards for table in apart.tables]


def test_a_group_that_shares_remote_hosts_is_not_taken_apart_and_said_to_be_rough() -> None:
    """Its hosts are one pool."""
    found = planned(node_group("a", nodes=3, remote_bytes=1e12), nodes_below=2, oversubscription=4.0, tables=3)
    (words,) = found.provenance.warnings
    assert "switches of level leaf have 1 and 2 nodes" in words
    assert not verify(found)


@pytest.mark.parametrize(("nodes", "below", "narrowing"), [(4, 2, 4.0), (3, 2, 1.0), (2, 1, 4.0), (3, 4, 4.0)])
def test_alike_parts_are_no_reason_to_warn(nodes: int, below: int, narrowing: float) -> None:
    """Estimate and simulation are near there."""
    found = planned(node_group("a", nodes=nodes), nodes_below=below, oversubscription=narrowing)
    assert found.provenance.warnings == ()
    assert abs(exceeds(found)) < 0.1


@pytest.mark.parametrize(
    ("first", "second", "software", "is_told"),
    [
        ("dgx-a100-40", "dgx-h100", "torchrec", True),
        ("dgx-a100-40", "dgx-h100", "hugectr", False),
        ("dgx-h100", "dgx-h100", "torchrec", False),
        ("dgx-a100-40", "dgx-a100-80", "torchrec", False),
    ],
)
def test_kernels_that_were_measured_on_one_of_two_devices(
    first: str, second: str, software: str, is_told: bool
) -> None:
    """Lookups of the other look better than they are."""
    nodes = [load_topology(name).nodes[0] for name in (first, second)]
    both = load_topology(first).model_copy(update={"nodes": nodes})
    words = list(unlike_kernels(both, load_workload("dlrm-v1", overrides=[f"software={software}"])))
    assert len(words) == is_told
    assert all("measured on H100-SXM5-80GB, and on A100-SXM4-40GB those of other kernels" in each for each in words)
