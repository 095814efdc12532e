"""Rails: sums stay on theirs and other messages change to the receiver's inside the node, so that leaves of a plane are
like one switch; where nodes have no fabric to change over, the estimate is told to be rough."""

from typing import Any

import numpy as np
import pytest

from cost_models.shards import Sharding
from cost_models.simulator.collective_times import collective_s
from planner import plan
from planner.diagnosis.drift import drift
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from tests.oracles.instances import node_group, workload
from topologies.cluster import Topology

TABLES = [{"rows": 100_000, "dim": 64}] * 48


def cluster(*, rails: bool, has_scale_up: bool = True, nodes_below: int = 3) -> Topology:
    """Six nodes of four ranks, each with its card, three nodes below narrow switches."""
    group: dict[str, Any] = node_group(
        "a", nodes=6, ranks=4, hbm_bytes=40e9, nic_bytes_per_s=12.5e9, has_scale_up=has_scale_up
    )
    levels = [{"name": "leaf", "nodes": nodes_below, "oversubscription": 4.0}]
    return Topology.model_validate({"name": "c", "nodes": [group], "network": {"levels": levels, "rails": rails}})


def planned(of: Topology, sharding: Sharding, software: str = "torchrec") -> Plan:
    asked = workload(TABLES, pipeline="none", software=software, overhead="0us", global_batch=9600)
    return plan(of, asked, policy=Policy(shardings=(sharding,)), effort=0)


@pytest.mark.parametrize("software", ["torchrec", "hugectr"])
@pytest.mark.parametrize("sharding", ["table_wise", "row_wise", "table_row_wise", "data_parallel"])
def test_leaves_of_rails_are_estimated_and_simulated_as_one_switch(sharding: Sharding, software: str) -> None:
    """Within 3 % of each other, and of switches that join whole nodes; simulated steps were 28 to 48 % longer."""
    found, without = (planned(cluster(rails=rails), sharding, software) for rails in (True, False))
    assert found.provenance.warnings == ()
    assert abs(drift(found)) < 0.03
    assert found.simulated is not None
    assert without.simulated is not None
    assert found.simulated.step_s == pytest.approx(without.simulated.step_s, rel=1e-6)


def test_a_message_between_rails_stays_below_its_plane() -> None:
    """By hand: of 20 ranks elsewhere 12 are below the other plane, over uplinks of a quarter of a rank's card."""
    size, rate = 16e6, 12.5e9 / 4
    once_s, twice_s = (collective_s(cluster(rails=True), "all_to_all", times * size) for times in (1, 2))
    assert twice_s - once_s == pytest.approx(np.full(24, 12 * size / rate), rel=1e-6)


def test_rails_without_a_fabric_to_change_over_are_a_warning() -> None:
    """There messages between rails climb, which the simulated step has; where switches are not narrow none is due."""
    found = planned(cluster(rails=True, has_scale_up=False), "table_wise")
    (words,) = found.provenance.warnings
    assert "the nodes a have no scale-up fabric over which messages could change rails" in words
    assert drift(found) > 0.1
    assert planned(cluster(rails=False, has_scale_up=False), "table_wise").provenance.warnings == ()
    assert planned(cluster(rails=True, has_scale_up=False, nodes_below=6), "table_wise").provenance.warnings == ()
