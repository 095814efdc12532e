"""Several files make one topology: the best source of each value, contradictions said, unlike nodes refused."""

import pytest
import yaml

from tests.topologies.importers.dumps import ASTRA, HGX, HWLOC, NCCL, SLURM_TREE, fabric, matrix, query
from topologies.cluster import Topology
from topologies.documents import parse_yaml, validate
from topologies.errors import InputError

PAIR = matrix(["X NV12 PIX", "NV12 X PIX"], 2, 1)


def test_device_fabric_and_host_memory_of_three_files(import_):
    """Accelerators of nvidia-smi, nodes and levels of Slurm, host memory of hwloc."""
    found = import_(PAIR, query("NVIDIA A100-SXM4-40GB", 40960, 2), SLURM_TREE, HWLOC)
    (group,) = found.topology.nodes
    assert group.count == 8
    assert group.accelerators.hbm.capacity == 40960 * 2**20
    assert group.host.ddr.capacity == 2**40
    assert [level.nodes for level in found.topology.network.levels] == [4]
    assert "capacity: 1TiB  # 3.txt:6: local_memory of 2 NUMA nodes" in found.text
    assert not found.contradictions


def test_order_of_files_does_not_matter(import_):
    """Nor for contradictions: formats have a rank."""
    texts = [PAIR, query("NVIDIA A100-SXM4-40GB", 40960, 2), NCCL, fabric(pods=2, hosts=2, rails=1, uplinks=2)]
    one, other = import_(*texts).topology, import_(*reversed(texts)).topology
    assert one.nodes == other.nodes
    assert one.network == other.network


def test_contradictions_are_said_and_resolved(import_):
    """ibnetdiscover finds four cards plugged in, nvidia-smi eight in the node; 400 Gb/s count before 200."""
    found = import_(HGX, query("NVIDIA H200", 143771, 8), fabric(pods=2, hosts=2, rails=4, uplinks=4))
    assert found.topology.nodes[0].links.scale_out.count == 4
    assert any("links.scale_out.count: 2.txt" in text and "says 4 and counts" in text for text in found.contradictions)
    assert "# Contradiction: links.scale_out.count" in found.text


def test_nodes_of_slurm_count_and_cables_make_the_levels(import_):
    """What the scheduler gives out, on what is plugged in."""
    found = import_(HGX, query("NVIDIA H200", 143771, 8), SLURM_TREE, fabric(pods=2, hosts=2, rails=4, uplinks=2))
    assert found.topology.node_count == 8
    assert found.topology.network.levels[0].nodes == 2
    assert any("lists 8 nodes and counts" in text for text in found.contradictions)
    assert any("levels of switches" in text for text in found.contradictions)


@pytest.mark.parametrize("other", [query("NVIDIA H200", 143771, 4), query("NVIDIA A100-SXM4-40GB", 40960, 8)])
def test_nodes_of_two_kinds_are_refused(import_, other):
    """Numbers and names of accelerators must agree; the fault names both places."""
    with pytest.raises(InputError, match=r"1\.txt:2.*0\.txt.*not one kind of node"):
        import_(HGX + query("NVIDIA H200", 143771, 8), other)


def test_every_value_has_its_source(import_):
    """A comment with a file and line, or the topology that it is assumed from."""
    found = import_(HGX, query("NVIDIA H200", 143771, 8), SLURM_TREE)
    lines = found.text.partition("nodes:")[2].splitlines()
    values = [line for line in lines if ": " in line.partition("#")[0] and "name:" not in line]
    assert len(values) > 20
    assert all("# " in line and (".txt:" in line or "# assumed: " in line) for line in values)


def test_what_is_written_is_what_was_found(import_):
    """The text, read again, is the same topology."""
    for texts, more in (
        ([HGX, query("NVIDIA H200", 143771, 8), SLURM_TREE], {}),
        ([ASTRA], {"like": "dgx-h100"}),
        ([fabric(pods=3, hosts=2, rails=2, uplinks=1)], {"like": "zionex-16"}),
    ):
        found = import_(*texts, **more)
        assert validate(parse_yaml(found.text, "x"), Topology) == found.topology


def test_nodes_are_as_many_as_asked(import_):
    """Where no file lists them; and where one does, the flag counts."""
    text = HGX + query("NVIDIA H200", 143771, 8)
    assert import_(text, nodes=4).topology.node_count == 4
    found = import_(text, SLURM_TREE, nodes=4)
    assert found.topology.node_count == 4
    assert "# nodes 0-3: node[001-003],node010" in found.text
    assert any("--nodes 4 counts" in text for text in found.remarks)


def test_the_network_of_a_named_topology_is_assumed(import_, tmp_path):
    """Where no file says anything of nodes; the catalog's of the same device says nothing of a network."""
    network = "{rails: true, in_network_reduction: sharp, levels: [{name: leaf, nodes: 4, oversubscription: 2.0}]}"
    (tmp_path / "like.yaml").write_text(f"name: like\nbase: dgx-h200\nset: {{network: {network}}}\n")
    text = HGX + query("NVIDIA H200", 143771, 8)
    found = import_(text, like=str(tmp_path / "like.yaml"), nodes=8)
    assert found.topology.network.rails
    assert found.topology.network.reduces
    assert found.topology.network.levels[0].oversubscription == 2.0
    assert "nodes: 4  # assumed: from like.yaml (--like)" in found.text
    assert {"network.rails", "network.levels.0"} <= set(found.assumed)
    assert import_(text, nodes=8).topology.network.levels == ()
    assert import_(text, "SwitchName=a Nodes=n[1-8]", like=str(tmp_path / "like.yaml")).topology.network.levels == ()


def test_what_is_assumed_fits_the_node(import_):
    """Half the accelerators: half the host memory and cards."""
    (group,) = import_(query("NVIDIA A100-SXM4-80GB", 81920, 4)).topology.nodes
    assert group.host.ddr.capacity == 10**12
    assert group.links.scale_out.count == 4
    assert group.power is None


def test_names_cannot_break_the_file(import_):
    """Hosts and devices called by YAML's own characters stay text."""
    text = query("NVIDIA H200: {x} # y", 1000, 2)
    found = import_(text, like="dgx-h200")
    assert found.topology.nodes[0].accelerators.device == "H200: {x} # y"
    assert yaml.safe_load(found.text)["nodes"][0]["accelerators"]["device"] == "H200: {x} # y"
    tree = "SwitchName=a Nodes=\x1bx,n2\n"
    assert "\x1b" not in import_(tree, like="dgx-h200").text


def test_cards_of_unknown_speed_are_refused_between_nodes(import_):
    """One node needs none; several do, and nothing of an L40S says how fast they are."""
    rows = matrix(["X SYS PIX SYS", "SYS X SYS PIX"], 2, 2)
    text = rows + query("NVIDIA L40S", 46068, 2)
    assert import_(text).topology.nodes[0].links.scale_out is None
    with pytest.raises(InputError, match=r"links\.scale_out\.bandwidth: no file says it.*--like"):
        import_(text, nodes=4)
