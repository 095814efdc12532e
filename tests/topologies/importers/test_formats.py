"""What each format says arrives in the topology; what it cannot say is assumed or refused."""

import pytest

from tests.topologies.importers.dumps import (
    ASTRA,
    HGX,
    HWLOC,
    INFRAGRAPH,
    NCCL,
    ROCM,
    SLURM_BLOCKS,
    SLURM_TREE,
    SLURM_YAML,
    TOPOGRAPH,
    fabric,
    matrix,
    query,
)
from topologies.errors import InputError


def test_nvidia_smi_with_nvswitch(import_):
    """18 links of NVLink 4 are 450 GB/s; memory is what the query says; the rest is the catalog's, and marked."""
    found = import_(HGX, query("NVIDIA H200", 143771, 8))
    (group,) = found.topology.nodes
    assert (group.count, group.accelerators.count) == (1, 8)
    assert group.accelerators.device == "H200-SXM-141GB"
    assert group.accelerators.hbm.capacity == 143771 * 2**20
    assert group.links.scale_up.kind == "nvlink4"
    assert group.links.scale_up.bandwidth == 450e9
    assert group.links.pcie.accelerators_per_switch == 2
    assert group.links.scale_out.count == 8
    assert "bandwidth: 4.8TB/s  # assumed: from catalog dgx-h200" in found.text
    assert "nodes.0.accelerators.hbm.bandwidth" in found.assumed
    assert "nodes.0.accelerators.count" not in found.assumed
    assert group.host.ssd is None, "the device says nothing of drives"


@pytest.mark.parametrize("gpus", [1, 2, 4, 16])
def test_nvidia_smi_of_any_size(import_, gpus):
    """Without cards, and with spaces in place of tabs."""
    rows = [" ".join("X" if i == j else "NV12" for j in range(gpus)) for i in range(gpus)]
    text = matrix(rows, gpus).replace("\t", "   ")
    (group,) = import_(text, query("NVIDIA A100-SXM4-80GB", 81920, gpus)).topology.nodes
    assert group.accelerators.count == gpus
    assert group.domain_ranks == gpus
    if gpus > 1:
        assert group.links.scale_up.bandwidth == 300e9


def test_nvlink_bridges_join_pairs(import_):
    """NV4 between pairs is a domain of two with 4 links; NODE and SYS join nothing."""
    rows = ["X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X"]
    (group,) = import_(matrix(rows, 4), query("NVIDIA A40", 46068, 4)).topology.nodes
    assert group.domain_ranks == 2
    assert group.links.scale_up.bandwidth == 4 * 14.0625e9


def test_a_hybrid_mesh_counts_its_links(import_):
    """V100 in a mesh: what each has to all others together, not the count of one pair."""
    links = {(0, 1): 1, (0, 2): 2, (0, 3): 2, (1, 2): 2, (1, 3): 2, (2, 3): 1}
    rows = [" ".join("X" if i == j else f"NV{links[min(i, j), max(i, j)]}" for j in range(4)) for i in range(4)]
    (group,) = import_(matrix(rows, 4), query("Tesla V100-SXM2-32GB", 32510, 4)).topology.nodes
    assert group.links.scale_up.bandwidth == 5 * 25e9


def test_accelerators_without_nvlink_have_no_scale_up(import_):
    """And those at PIX of each other share a PCIe switch."""
    rows = ["X PIX SYS SYS", "PIX X SYS SYS", "SYS SYS X PIX", "SYS SYS PIX X"]
    (group,) = import_(matrix(rows, 4), query("NVIDIA L40S", 46068, 4)).topology.nodes
    assert group.links.scale_up is None
    assert group.links.pcie.accelerators_per_switch == 2


def test_storage_cards_are_no_scale_out(import_):
    """Cards at PXB of an accelerator count, others do not; the legend says their kind."""
    rows = ["X NV12 PXB SYS SYS", "NV12 X SYS PXB SYS"]
    legend = "NIC Legend:\n\n  NIC0: rocep1s0\n  NIC1: rocep2s0\n  NIC2: mlx5_bond_0"
    found = import_(matrix(rows, 2, 3, legend), query("NVIDIA A100-SXM4-40GB", 40960, 2))
    assert found.topology.nodes[0].links.scale_out.count == 2
    assert found.topology.nodes[0].links.scale_out.kind == "roce"
    assert any("mlx5_bond_0" in text for text in found.remarks)


def test_nccl(import_):
    """Links to switches, speeds of cards and of PCIe, the device by its number."""
    (group,) = import_(NCCL).topology.nodes
    assert group.accelerators.device == "A100-SXM4-40GB"
    assert group.accelerators.count == 2
    assert group.links.scale_up.bandwidth == 12 * 25e9
    assert group.links.pcie.bandwidth == pytest.approx(31.5e9, rel=1e-3)
    assert group.links.pcie.accelerators_per_switch == 2
    assert (group.links.scale_out.count, group.links.scale_out.bandwidth) == (1, 25e9)
    assert group.links.scale_out.kind == "infiniband"


def test_nccl_of_a_provider_says_nothing_of_links(import_):
    """Without <gpu> elements the scale-up fabric is the catalog's, not none."""
    text = "\n".join(line for line in NCCL.splitlines() if not any(word in line for word in ("gpu", "nvlink", "<net")))
    found = import_(text)
    assert found.topology.nodes[0].links.scale_up is not None
    assert "nodes.0.links.scale_up.bandwidth" in found.assumed
    assert "# assumed: the fastest port of ConnectX-6" in found.text


def test_hwloc(import_):
    """DRAM of all NUMA nodes, accelerators by their number, cards that RDMA may use."""
    found = import_(HWLOC)
    (group,) = found.topology.nodes
    assert group.host.ddr.capacity == 2**40
    assert group.accelerators.device == "A100-SXM4-40GB"
    assert group.links.scale_out.count == 1
    assert any("no DRAM" in text for text in found.remarks)


def test_hwloc_of_an_accelerator_asleep(import_):
    """2.5 GT/s of sixteen lanes are no speed to plan with."""
    found = import_(HWLOC.replace("31.5", "4.000000"))
    assert found.topology.nodes[0].links.pcie.bandwidth == 31.5e9
    assert "nodes.0.links.pcie.bandwidth" in found.assumed
    assert any("asleep" in text for text in found.remarks)


def test_rocm_smi(import_):
    """XGMI joins; the device is the card series."""
    (group,) = import_(ROCM).topology.nodes
    assert group.accelerators.device == "MI350X-288GB"
    assert group.accelerators.count == 2
    assert group.links.scale_up.kind == "infinity-fabric"


def test_slurm_tree(import_):
    """Eight nodes on two leaves of four, in the order of the leaves; the hosts stand beside their numbers."""
    found = import_(SLURM_TREE, like="dgx-h100")
    assert found.topology.node_count == 8
    assert [level.nodes for level in found.topology.network.levels] == [4]
    assert "# nodes 0-3: node[001-003],node010" in found.text
    assert "# nodes 4-7: node[004-006],login1" in found.text


def test_slurm_tree_of_three_levels(import_):
    """What scontrol prints: every switch lists all nodes below it."""
    lines = ["SwitchName=core Level=2 LinkSpeed=1 Nodes=n[1-8] Switches=a,b"]
    lines += [f"SwitchName={name} Level=1 LinkSpeed=1 Nodes=n[1-8] Switches={name}[1-2]" for name in "ab"]
    lines += [f"SwitchName=a{i} Level=0 LinkSpeed=1 Nodes=n[{2 * i - 1}-{2 * i}]" for i in (1, 2)]
    lines += [f"SwitchName=b{i} Level=0 LinkSpeed=1 Nodes=n[{2 * i + 3}-{2 * i + 4}]" for i in (1, 2)]
    network = import_("\n".join(lines), like="dgx-h100").topology.network
    assert [(level.name, level.nodes) for level in network.levels] == [("leaf", 2), ("spine", 4)]


def test_slurm_blocks_are_domains_where_these_span_nodes(import_):
    """Blocks of 18 and 16 trays are two node groups with domains of 72 and 64."""
    groups = import_(SLURM_BLOCKS, like="gb200-nvl72").topology.nodes
    assert [(group.count, group.domain_ranks) for group in groups] == [(36, 72), (16, 64)]


def test_slurm_blocks_are_a_level_where_domains_stay_in_nodes(import_):
    """One node group, and the most frequent block as level."""
    topology = import_(SLURM_BLOCKS, like="dgx-h100").topology
    assert [group.count for group in topology.nodes] == [52]
    assert [(level.name, level.nodes) for level in topology.network.levels] == [("block", 18)]


def test_slurm_yaml_takes_the_default(import_):
    """The topology that the cluster uses by default, and says so."""
    found = import_(SLURM_YAML, like="gb200-nvl72")
    assert [(group.count, group.domain_ranks) for group in found.topology.nodes] == [(4, 8)]
    assert any("'blocks' is taken" in text for text in found.remarks)
    tree = SLURM_YAML.replace("cluster_default: true", "cluster_default: false")
    assert import_(tree, like="dgx-h100").topology.node_count == 8


def test_topograph(import_):
    """Switches are levels, accelerator domains scale-up domains where these span nodes."""
    topology = import_(TOPOGRAPH, like="gb200-nvl72").topology
    assert topology.node_count == 8
    assert topology.nodes[0].domain_ranks == 8
    assert [(level.name, level.nodes) for level in topology.network.levels] == [("leaf", 2), ("spine", 4)]
    found = import_(TOPOGRAPH, like="dgx-h100")
    assert found.topology.nodes[0].domain_ranks == 8, "those of a node"
    assert any("no scale-up domains" in text for text in found.remarks)


def test_the_inner_accelerator_domain_counts(import_):
    """A domain of racks that are domains themselves is said to be left out."""
    lines = [f"  - {{switch: leaf{i}, nodes: ['n[{4 * i + 1}-{4 * i + 4}]'], annotations:" for i in (1, 2)]
    lines = [f"{line} {{t/domain: all, t/sub-domain: rack{i}}}}}" for i, line in enumerate(lines)]
    text = "\n".join(["switches: {spine: {switches: [leaf1, leaf2]}}", "blocks:", *lines])
    found = import_(text, like="gb200-nvl72")
    assert (found.topology.node_count, found.topology.nodes[0].domain_ranks) == (8, 16)
    assert any("the inner one" in text for text in found.remarks)


def test_ibnetdiscover(import_):
    """Rails, nodes below a leaf, oversubscription by the cables, the speed of a port; management hosts do not count."""
    found = import_(fabric(pods=2, hosts=4, rails=4, uplinks=2), like="dgx-h100")
    (group,) = found.topology.nodes
    assert group.count == 8
    assert (group.links.scale_out.count, group.links.scale_out.bandwidth) == (4, 50e9)
    (level,) = found.topology.network.levels
    assert found.topology.network.rails
    assert level.nodes == 4
    assert level.oversubscription == pytest.approx(2.5), "the leaf with the management host: five ports, two uplinks"
    assert any("ufm01" in text for text in found.remarks)
    assert any("SHARP" in text for text in found.remarks)
    assert "# nodes 0-3: node[000-003]" in found.text


def test_ibnetdiscover_counts_cards_without_names(import_):
    """By the leaves that they hang on."""
    found = import_(fabric(pods=2, hosts=3, rails=2, uplinks=4, nameless=1), like="dgx-h100")
    assert found.topology.node_count == 8
    assert any("4 cards without a host's name" in text for text in found.remarks)


def test_ibnetdiscover_of_one_leaf_without_rails(import_):
    """All cards on one switch: no level is needed."""
    lines = ['Switch\t64 "S-1"\t\t# "leaf" base port 0 lid 7 lmc 0']
    lines += [f'[{n}]\t"H-{n}"[1](a0) \t\t# "host{n} HCA-1" lid 4 4xHDR' for n in range(1, 5)]
    topology = import_("\n".join(lines), like="dgx-a100-80").topology
    assert topology.node_count == 4
    assert topology.network.levels == ()
    assert topology.nodes[0].links.scale_out.bandwidth == 25e9


def test_infragraph(import_):
    """Servers with their insides, and a network of leaves and a spine."""
    topology = import_(INFRAGRAPH).topology
    (group,) = topology.nodes
    assert (group.count, group.accelerators.count) == (2, 4)
    assert group.accelerators.device == "A100-SXM4-40GB"
    assert group.links.scale_up.bandwidth == 300e9
    assert group.links.pcie.accelerators_per_switch == 2
    assert (group.links.scale_out.count, group.links.scale_out.bandwidth) == (2, 12.5e9)
    assert [(level.nodes, level.oversubscription) for level in topology.network.levels] == [(1, 4.0)]


def test_astra_sim(import_):
    """Its GB have 2^30 bytes; dimension 2 are the cards, dimension 3 a level above four nodes."""
    topology = import_(ASTRA, like="dgx-h100").topology
    (group,) = topology.nodes
    assert group.count == 8
    assert group.links.scale_up.bandwidth == 400 * 2**30
    assert group.links.scale_up.latency == pytest.approx(5e-7)
    assert group.links.scale_out.bandwidth == 50 * 2**30
    (level,) = topology.network.levels
    assert (level.nodes, level.oversubscription) == (4, 2.0)
    assert level.latency == pytest.approx(2e-6)


def test_a_ring_is_as_fast_as_its_exchange(import_):
    """Each way of a ring of four carries two thirds of what an accelerator sends: 1.5 links' worth."""
    text = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 100.0 ]\nlatency: [ 1.0 ]\n"
    found = import_(text, like="dgx-h100")
    assert found.topology.nodes[0].links.scale_up.bandwidth == pytest.approx(150 * 2**30)
    assert any("ring" in text for text in found.remarks)


def test_all_pairs_have_a_link_each(import_):
    """FullyConnected: seven links of an accelerator among eight."""
    text = "topology: [ FullyConnected ]\nnpus_count: [ 8 ]\nbandwidth: [ 50.0 ]\nlatency: [ 1.0 ]\n"
    assert import_(text, like="dgx-h100").topology.nodes[0].links.scale_up.bandwidth == 350 * 2**30


def test_what_nothing_says_is_refused_by_name(import_):
    """Which accelerator it is; with the commands that would tell."""
    with pytest.raises(InputError) as refused:
        import_(SLURM_TREE)
    (fault,) = refused.value.faults
    assert (fault.line, fault.path) == (2, "accelerators.device")
    assert "nvidia-smi --query-gpu" in fault.message
    assert "--like" in fault.message
    with pytest.raises(InputError, match=r"the catalog has no 'A16'.*--like"):
        import_(query("NVIDIA A16", 15356, 4))
    assert import_(query("NVIDIA A16", 15356, 4), like="a40-8").topology.nodes[0].accelerators.device == "A16"
