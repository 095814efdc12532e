"""Collectives by themselves: worked out by hand, and a matrix as the sizes that it spells out."""

import numpy as np
import pytest

from cost_models.coefficients import CollectiveOperation, software_coefficients
from cost_models.collective_laws import collective_law
from cost_models.kinds import rank_kinds
from cost_models.simulator.collective_times import collective_s
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.simulated_steps import law_s

ONE = topology(node_group("a", ranks=4))
TWO = topology(node_group("a", nodes=2), node_group("b", nodes=2, nic_bytes_per_s=12.5e9), oversubscription=2.0)
KIND = rank_kinds(ONE, workload([{"rows": 1, "dim": 4}]))[0]
SIZE = 64e6


@pytest.mark.parametrize(("operation", "passes"), [("all_reduce", 2), ("reduce_scatter", 1), ("all_gather", 1)])
def test_rings_inside_a_domain_take_as_long_as_was_measured(operation: CollectiveOperation, passes: int) -> None:
    """(n - 1) / n of the buffer by the fastest protocol, twice in an all-reduce; no rank ends before the last came."""
    link = ONE.nodes[0].links.scale_up
    assert link is not None
    law = collective_law(operation, ONE.nodes[0].accelerators.device, link.kind, link.bandwidth, 4)
    assert law is not None
    expected = float(law.seconds(passes * SIZE * 3 / 4))
    assert collective_s(ONE, operation, SIZE) == pytest.approx([expected] * 4, rel=1e-6)
    assert collective_s(ONE, operation, SIZE, starts_s=[0, 0, 0, 1]) == pytest.approx([1 + expected] * 4, rel=1e-6)


def test_an_all_to_all_inside_a_domain() -> None:
    """Three messages leave every port."""
    expected = law_s(KIND.exchange_protocols, 3 * SIZE)
    assert collective_s(ONE, "all_to_all", SIZE) == pytest.approx([expected] * 4, rel=1e-6)


def test_between_nodes_a_slow_card_is_waited_for() -> None:
    """Latencies, then six messages over a card of half the rate."""
    cluster = topology(node_group("fast", nodes=2), node_group("slow", nic_bytes_per_s=12.5e9))
    fast, slow = rank_kinds(cluster, workload([{"rows": 1, "dim": 4}]))
    assert fast.nic_all_to_all == pytest.approx(2 * slow.nic_all_to_all)
    latency = software_coefficients("torchrec").collective_latency_s.value + slow.exchange_hops_s
    card = cluster.nodes[1].links.scale_out
    assert card is not None
    latency += card.latency
    ends = collective_s(cluster, "all_to_all", SIZE)
    assert ends.max() == pytest.approx(latency + 4 * SIZE / slow.nic_all_to_all, rel=1e-2)
    assert ends.min() == ends.max()


@pytest.mark.parametrize("cluster", [ONE, TWO])
def test_a_matrix_is_its_messages(cluster: object) -> None:
    """Of equal rows it takes as long as the sizes by themselves, whatever ranks keep for themselves."""
    world = cluster.world_size  # type: ignore[attr-defined]
    to_each = np.random.default_rng(0).uniform(0.5, 1, world) * SIZE
    matrix = np.broadcast_to(to_each[:, None], (world, world)) + np.diag(np.full(world, 1e12))
    alike = collective_s(cluster, "all_to_all", to_each)  # type: ignore[arg-type]
    assert collective_s(cluster, "all_to_all", matrix) == pytest.approx(alike, rel=1e-6)  # type: ignore[arg-type]


def test_one_message_is_waited_for_by_those_who_share_its_links() -> None:
    """Two ranks send to a third: its port takes both, one after the other."""
    matrix = np.zeros((4, 4))
    matrix[0, 2] = matrix[1, 2] = SIZE
    expected = law_s(KIND.exchange_protocols, 2 * SIZE)
    assert collective_s(ONE, "all_to_all", matrix).max() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("operation", "size"), [("all_reduce", np.ones((4, 4))), ("all_to_all", [1.0, 2.0]), ("all_to_all", -1.0)]
)
def test_sizes_that_cannot_be_are_refused(operation: CollectiveOperation, size: object) -> None:
    """By their shape, or sign."""
    with pytest.raises(ValueError, match="sizes"):
        collective_s(ONE, operation, size)  # type: ignore[arg-type]


def test_other_operations_are_refused() -> None:
    """Not played as one that there is."""
    with pytest.raises(ValueError, match="operation is one of all_to_all, "):
        collective_s(ONE, "gather", 1e6)  # type: ignore[arg-type]


def test_nothing_takes_no_time() -> None:
    """All are done when they have come."""
    assert collective_s(ONE, "all_to_all", 0.0, starts_s=2.0) == pytest.approx([2.0] * 4)
