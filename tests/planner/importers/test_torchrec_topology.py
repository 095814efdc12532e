"""A TorchRec Topology becomes a cluster of which TorchRec would be told the same."""

import pytest

from cost_models.torchrec.topology import TorchRecTopology
from planner.importers.torchrec_topology import RESERVED, topology_of
from topologies.errors import InputError
from topologies.loading import load_topology

LIKE = load_topology("dgx-a100-80")


def test_nothing_is_lost():
    """Capacities and rates come back as they were told; bytes per millisecond there, per second here."""
    told = {
        "world_size": 16,
        "local_world_size": 4,
        "pod_size": 2,
        "hbm_cap": 40 * 2**30,
        "ddr_cap": 100 * 2**30,
        "hbm_mem_bw": 1.5e9,
        "hbm_to_ddr_mem_bw": 2.5e7,
        "intra_host_bw": 3e8,
        "inter_host_bw": 2e7,
    }
    back = TorchRecTopology.from_topology(topology_of(told, LIKE, "theirs", "t.json"))
    assert (back.world_size, back.local_world_size, back.pod_size) == (16, 4, 2)
    assert back.hbm_bytes == (int(40 * 2**30 * (1 - RESERVED)),) * 16
    assert back.ddr_bytes == (100 * 2**30,) * 16
    for name, rate in (("hbm", 1.5e9), ("hbm_to_ddr", 2.5e7), ("intra_host", 3e8), ("inter_host", 2e7)):
        assert getattr(back, f"{name}_bytes_per_s") == pytest.approx(rate * 1000, rel=1e-12)


def test_what_is_left_out_is_torchrecs_default():
    """Two numbers are enough."""
    back = TorchRecTopology.from_topology(topology_of({"world_size": 8}, LIKE, "theirs", "t.json"))
    own = TorchRecTopology.default(8, 8)
    for name in ("hbm_bytes_per_s", "intra_host_bytes_per_s", "inter_host_bytes_per_s", "ddr_bytes"):
        assert getattr(back, name) == pytest.approx(getattr(own, name))


def test_faults_come_with_their_key():
    """An unknown argument, an unknown device, hosts that are not filled."""
    with pytest.raises(InputError, match="hbm_bw: unknown key; did you mean 'hbm_mem_bw'"):
        topology_of({"world_size": 8, "hbm_bw": 1}, LIKE, "theirs", "t.json")
    with pytest.raises(InputError, match="compute_device"):
        topology_of({"world_size": 8, "compute_device": "tpu"}, LIKE, "theirs", "t.json")
    with pytest.raises(InputError, match="9 ranks do not fill hosts of 8"):
        topology_of({"world_size": 9, "local_world_size": 8}, LIKE, "theirs", "t.json")


def test_on_cpus_the_ddr_of_a_rank_is_its_memory():
    """All of it, and none beside it."""
    told = {"world_size": 4, "local_world_size": 2, "compute_device": "cpu", "ddr_cap": 40 * 2**30}
    found = topology_of(told, load_topology("cpu"), "theirs", "t.json").nodes[0]
    assert found.accelerators.hbm.capacity == 40 * 2**30
    assert found.host.ddr is None
    assert found.accelerators.device == "CPU"


def test_ranks_have_memory_of_their_own():
    """Hosts of other capacities are other groups, in order; ranks of one host or pod have what its smallest has."""
    told = {"world_size": 8, "local_world_size": 2, "hbm_cap": 7}
    told["custom_topology_data"] = {"hbm_cap": [40, 40, 20, 20, 40, 30, 30, 30], "ddr_cap": [9] * 6 + [8, 8]}
    found = topology_of(told, LIKE, "theirs", "t.json")
    held = [(group.count, group.accelerators.hbm.capacity, group.host.ddr.capacity) for group in found.nodes]
    assert held == [(1, 40, 18), (1, 20, 18), (1, 30, 18), (1, 30, 16)]
    assert len({group.name for group in found.nodes}) == 4
    found = topology_of(told | {"pod_size": 2}, LIKE, "theirs", "t.json")
    assert [(group.count, group.accelerators.hbm.capacity) for group in found.nodes] == [(2, 20), (2, 30)]
    assert {group.links.scale_up.domain for group in found.nodes} == {4}


def test_lists_that_are_not_of_all_ranks_are_named():
    """Two numbers for three ranks, a rank without memory, pods that are not filled."""
    told = {"world_size": 3, "custom_topology_data": {"hbm_cap": [1, 0, 1], "ddr_cap": [1, 1]}}
    with pytest.raises(InputError) as error:
        topology_of(told, LIKE, "theirs", "t.json")
    said = str(error.value)
    assert "custom_topology_data.ddr_cap: has 2 numbers for 3 ranks" in said
    assert "custom_topology_data.hbm_cap.1: is 0: the rank can hold nothing" in said
    with pytest.raises(InputError, match="pod_size: 6 ranks do not fill pods of 2 hosts of 2"):
        topology_of({"world_size": 6, "local_world_size": 2, "pod_size": 2}, LIKE, "theirs", "t.json")
