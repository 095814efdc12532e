"""The warning that a step on one rank adds up what runs at the same time."""

import pytest

from planner import plan
from planner.formulation.host_beside import host_beside
from tests.oracles.instances import node_group, topology, workload
from topologies.loading import load_topology

TABLES = [{"rows": 10_000, "dim": 16}]
ONE = topology(node_group("a", ranks=1))


@pytest.mark.parametrize("pipeline", ["none", "sparse-dist", "prefetch"])
def test_one_rank_is_told_of_its_host(pipeline: str) -> None:
    """In the plan, in milliseconds of the host."""
    found = plan(ONE, workload(TABLES, pipeline=pipeline, overhead="5ms"), effort=0)
    (warning,) = [each for each in found.provenance.warnings if "longer of both" in each]
    assert "the host's 5.000 ms" in warning


@pytest.mark.parametrize("fields", [{"overhead": "0us"}, {"software": "hugectr"}, {"mode": "inference"}], ids=str)
def test_who_adds_nothing_up_is_not(fields: dict[str, object]) -> None:
    """Without overhead; with graphs of steps, whose host was measured with them."""
    assert list(host_beside(workload(TABLES, **fields), ONE)) == []


def test_other_ranks_are_not() -> None:
    """Many wait for sizes of each other; a processor is its own host; ratings have none."""
    processor = load_topology("cpu", overrides=["nodes.0.accelerators.count=1"])
    for cluster in (topology(node_group("a", ranks=2)), processor, None):
        assert list(host_beside(workload(TABLES), cluster)) == []
