"""Scale-out cards behind PCIe links that are slower than they are."""

from cost_models.simulator.collective_times import collective_s
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from cost_models.workload.loading import load_workload
from planner import plan
from planner.document.planned import placed_shards
from topologies.cluster import Topology
from topologies.loading import load_topology

MESSAGE_BYTES = 256e6


def _cluster(pcie: str, *, carries: bool = True, cards: int = 8) -> Topology:
    changes = (f"pcie.bandwidth={pcie}", f"scale_out.count={cards}", f"pcie.carries_scale_out={str(carries).lower()}")
    return load_topology("dgx-h100", nodes=2, overrides=[f"nodes.0.links.{change}" for change in changes])


def _all_to_all_s(cluster: Topology) -> float:
    return float(collective_s(cluster, "all_to_all", MESSAGE_BYTES).max())


def test_messages_between_nodes_go_no_faster_than_the_links_that_they_cross() -> None:
    leaving_s = MESSAGE_BYTES * 8 / 5e9  # to each of eight ranks of the other node
    assert _all_to_all_s(_cluster("63GB/s")) < leaving_s / 5
    assert _all_to_all_s(_cluster("5GB/s")) >= leaving_s
    assert _all_to_all_s(_cluster("5GB/s", carries=False)) == _all_to_all_s(_cluster("63GB/s", carries=False))


def test_a_card_has_all_links_of_the_accelerators_that_it_serves() -> None:
    assert _cluster("5GB/s").nodes[0].scale_out_bytes_per_s == 5e9
    assert _cluster("5GB/s", cards=4).nodes[0].scale_out_bytes_per_s == 10e9
    assert _cluster("63GB/s", cards=4).nodes[0].scale_out_bytes_per_s == 50e9
    assert _cluster("63GB/s", cards=16).nodes[0].scale_out_bytes_per_s == 63e9


def test_steps_of_estimate_and_simulator_rise_with_slower_links() -> None:
    workload = load_workload("dlrm-dcnv2")
    placed = placed_shards(plan(_cluster("63GB/s"), workload, effort=0, simulate=False))
    clusters = [_cluster(pcie) for pcie in ("63GB/s", "40GB/s", "20GB/s", "5GB/s")]
    for steps in (
        [StepModel(cluster, workload).linearised_at(placed).evaluate(placed).step_s for cluster in clusters],
        [simulate(cluster, workload, placed).step_s for cluster in clusters],
    ):
        assert steps == sorted(steps)
        assert steps[3] > 2 * steps[0]
