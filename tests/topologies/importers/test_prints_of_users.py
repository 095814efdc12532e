"""What people paste: with prompts and prefixes, other commands beside it, of several nodes, of unusual machines."""

import pytest

from tests.topologies.importers.dumps import HGX, HWLOC, NCCL, ROCM, SLURM_BLOCKS, SLURM_TREE, fabric, matrix, query
from topologies.errors import InputError
from topologies.importers.devices import DEVICES
from topologies.importers.imported import imported
from topologies.loading import TOPOLOGIES, load_topology

H200 = query("NVIDIA H200", 143771, 8)
LISTED = "".join(f"GPU {number}: NVIDIA H200 (UUID: GPU-{number})\n" for number in range(8))
PAIR = query("NVIDIA A100-SXM4-40GB", 40960, 2)


def said(found, words):
    return any(words in text for text in found.remarks)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: f"[sudo] password for me: \nme@gpu-001:~$ sudo nvidia-smi topo -m\n{text}\nme@gpu-001:~$ ",
        lambda text: "\n".join(f"gpu-001: {line}" for line in text.splitlines()),
        lambda text: text.replace("\t", "    "),
        lambda text: f"{text}\n{text}",
    ],
)
def test_the_matrix_as_it_is_pasted(import_, change):
    """Line ends, marks, prompts, hosts before lines, spaces, and equal nodes one after the other change nothing."""
    plain = import_(HGX, H200).topology.nodes
    assert import_(change(HGX), H200).topology.nodes == plain
    assert import_(HGX, change(H200)).topology.nodes == plain


@pytest.mark.parametrize(
    "text",
    [
        "index, name, memory.total [MiB]\n" + "".join(f"{i}, NVIDIA H200, 143771 MiB\n" for i in range(8)),
        "".join(f"{i}, NVIDIA H200, 143771 MiB\n" for i in range(8)),
        "NVIDIA H200, 143771\n" * 8,
        LISTED + H200,
    ],
)
def test_names_in_every_form(import_, text):
    """With the index, without header or units, and two commands' lists of the same node."""
    (group,) = import_(text).topology.nodes
    assert (group.accelerators.count, group.accelerators.hbm.capacity) == (8, 143771 << 20)


@pytest.mark.parametrize("text", [H200 * 3, LISTED * 3])
def test_lists_of_several_nodes_are_one_node(import_, text):
    """Eight accelerators three times are three nodes of eight, not one of twenty-four; unequal ones are refused."""
    found = import_(text)
    assert found.topology.nodes[0].accelerators.count == 8
    assert said(found, "3 times; taken as equal nodes, whose number --nodes says")
    with pytest.raises(InputError, match="lists 4 accelerators and line"):
        import_(text + query("NVIDIA H200", 143771, 4))


def test_slices_of_accelerators_are_said(import_):
    """MIG devices are not counted, and not passed over in silence."""
    text = LISTED.replace("\n", "\n  MIG 1g.18gb     Device  0: (UUID: MIG-1)\n")
    found = import_(text)
    assert found.topology.nodes[0].accelerators.count == 8
    assert said(found, "8 MIG devices are listed")


def test_a_matrix_of_pcie_alone_says_nothing_of_links(import_):
    """`topo -mp` leaves NVLinks out, as its legend shows; without links in `topo -m` there are none, which is said."""
    rows = [" ".join("X" if i == j else "NODE" for j in range(8)) for i in range(8)]
    legend = "  SYS  = Connection\n  PIX  = Connection\n"
    without = import_(matrix(rows, 8, legend=legend), H200)
    assert without.topology.nodes[0].links.scale_up.bandwidth == 450e9
    assert "nodes.0.links.scale_up.bandwidth" in without.assumed
    assert said(without, "topo -mp")
    none = import_(matrix(rows, 8, legend=legend + "  NV#  = Connection\n"), H200)
    assert none.topology.nodes[0].links.scale_up is None
    assert said(none, "finds no links between accelerators, where dgx-h200 has nvlink4")


def test_cards_that_may_be_none_are_said(import_):
    """None near an accelerator, or far more than accelerators: virtual functions."""
    far = ["X NV12 NODE SYS", "NV12 X SYS NODE"]
    assert said(import_(matrix(far, 2, 2), PAIR), "no card is near an accelerator: 2 cards count")
    many = [f"X NV12 {' '.join(['PIX'] * 16)}", f"NV12 X {' '.join(['PIX'] * 16)}"]
    assert said(import_(matrix(many, 2, 16), PAIR), "16 cards for 2 accelerators: virtual functions")


def test_another_accelerator_than_the_like_one_is_said(import_):
    """What is assumed is that of the other."""
    assert said(import_(NCCL, like="dgx-h100"), "says A100-SXM4-40GB; what is assumed of it")


@pytest.mark.parametrize("verbs", ["mlx5_0", "ibp1s0", "ibP2p1s0"])
@pytest.mark.parametrize(("version", "network", "openfabrics"), [("2.0", "2", "3"), ("3.0", "16", "48")])
def test_a_card_counts_once_in_hwloc(import_, verbs, version, network, openfabrics):
    """Though its network interface has a name as devices for RDMA have it."""
    card = '<object type="OSDev" name="mlx5_0" osdev_type="3"/>'
    both = f'<object type="OSDev" name="ibp1s0" osdev_type="{network}"/>' + card.replace(
        '"mlx5_0" osdev_type="3"', f'"{verbs}" osdev_type="{openfabrics}"'
    )
    (group,) = import_(HWLOC.replace(card, both).replace('"2.0"', f'"{version}"')).topology.nodes
    assert (group.links.scale_out.count, group.links.scale_out.kind) == (1, "infiniband")


def test_graphics_cards_are_no_accelerators(import_):
    """NVIDIA's beside compute accelerators are left out and said; AMD's on a server's board is none."""
    first = HWLOC.index('          <object type="PCIDev"')
    for number, words in (("10de:1fb0", "10de:1fb0 is a graphics card"), ("1002:515e", "")):
        display = f'<object type="PCIDev" pci_busid="0000:09:00.0" pci_type="0300 [{number}] [0000:0000] 00"/>\n'
        found = import_(HWLOC[:first] + display + HWLOC[first:])
        assert found.topology.nodes[0].accelerators.count == 2
        assert not words or said(found, words)


def test_what_a_shell_prints_around_xml(import_):
    """Is left aside; lines of faults stay right."""
    assert import_(f"$ cat nccl.xml\n{NCCL}\nme@gpu-001:~$ ").topology.nodes == import_(NCCL).topology.nodes
    with pytest.raises(InputError, match=r"0\.txt:6:1.*whole number"):
        import_("$ cat nccl.xml\n" + NCCL.replace('dev="0" sm="80" rank', 'dev="x" sm="80" rank'))


def test_slurm_with_prompts_and_empty_blocks(import_):
    """`(null)` and nothing are no hosts."""
    for prompt in ("me@login:~$ scontrol show topology", "[root@mgmt ~]# scontrol show topology", "$ sinfo"):
        assert import_(f"{prompt}\n{SLURM_TREE}{prompt}\n", like="dgx-h100").topology.node_count == 8
    for empty in ("", "(null)"):
        found = import_(SLURM_BLOCKS + f"BlockName=b9 Nodes={empty}\n", like="gb200-nvl72")
        assert found.topology.node_count == 52
        assert said(found, "block b9 has no nodes")
    with pytest.raises(InputError, match="has neither Switches= nor Nodes="):
        import_("SwitchName=a Nodes=(null)\n", like="dgx-h100")


def test_switches_that_hold_the_same_nodes_are_one_level(import_):
    """A spine above the leaves of one pod: what passes both is what the two let through."""
    tree = (
        "SwitchName=s1 Switches=l1\nSwitchName=s2 Switches=l2\nSwitchName=l1 Nodes=a[1-4]\nSwitchName=l2 Nodes=a[5-8]\n"
    )
    levels = import_(tree, like="dgx-h100").topology.network.levels
    assert [(level.name, level.nodes) for level in levels] == [("leaf", 4)]
    lines = []
    for pod in (0, 1):  # a leaf of 4 hosts with 2 uplinks to the pod's spine, which has one to the core
        hosts = "".join(f'[{n + 1}]\t"H-{pod}{n}"[1]\t\t# "n{pod}{n} mlx5_0" lid 4 4xNDR\n' for n in range(4))
        up = "".join(f'[{10 + n}]\t"S-s{pod}"[{n + 1}]\t\t# "spine" lid 4 4xNDR\n' for n in range(2))
        lines.append(f'Switch\t64 "S-l{pod}"\t\t# "leaf" port 0\n{hosts}{up}\n')
        lines.append(f'Switch\t64 "S-s{pod}"\t\t# "spine" port 0\n[9]\t"S-c"[{pod + 1}]\t\t# "core" lid 4 4xNDR\n\n')
    lines.append('Switch\t64 "S-c"\t\t# "core" port 0\n')
    found = import_("".join(lines), like="dgx-h100")
    levels = found.topology.network.levels
    assert [(level.nodes, level.oversubscription) for level in levels] == [(4, 4.0)]
    assert not said(found, "is the output cut off")


def test_a_host_name_that_many_nodes_share_is_none(import_):
    """Nodes that were never told their names are called localhost, each of them."""
    text = fabric(pods=2, hosts=2, rails=2, uplinks=2)
    for host in ("node001", "node101"):
        text = text.replace(f'"{host} ', '"localhost ')
    found = import_(text, like="dgx-h100")
    assert [(group.count, group.links.scale_out.count) for group in found.topology.nodes] == [(4, 2)]
    assert said(found, "localhost mlx5_0")


def test_what_a_fabric_lacks_is_said(import_):
    """Switches at the end of cables that are not described, and nodes with a card less than the others."""
    text = fabric(pods=2, hosts=3, rails=4, uplinks=2)
    assert said(import_(text, like="dgx-h100"), "1 switches are at the end of cables and are not described")
    head, _, tail = text.partition('Switch\t64 "S-13"')
    found = import_(head + tail.partition("\n\n")[2], like="dgx-h100")
    assert said(found, "3 nodes with 3 cards, 3 nodes with 4 cards")


PRODUCT = """GPU[0]\t\t: Card Series: \t\tAMD Instinct MI300X OAM
GPU[0]\t\t: Card Model: \t\t0x74a1
GPU[0]\t\t: Card Vendor: \t\tAdvanced Micro Devices, Inc. [AMD/ATI]
"""


@pytest.mark.parametrize(
    "product",
    [PRODUCT, PRODUCT.replace("AMD Instinct MI300X OAM", "0x74a1"), PRODUCT.replace("AMD Instinct", "AMD INSTINCT")],
)
def test_rocm_smi_names_series_and_model(import_, product):
    """The model is a number, and the series, where the machine has no list of PCI numbers, too."""
    text = ROCM.partition("GPU[0]\t\t: Card Series")[0] + product
    assert import_(text).topology.nodes[0].accelerators.device == "MI300X-192GB"


def test_amd_smi(import_):
    """The table of link types by bus addresses, the device by its market name."""
    gpus = ["0000:05:00.0", "0000:26:00.0"]
    head = " " * 13 + " ".join(gpus)
    text = f"HOPS TABLE:\n{head}\n{gpus[0]} 0 1\n{gpus[1]} 1 0\n\nLINK TYPE TABLE:\n{head}\n{gpus[0]} SELF XGMI\n"
    text += f"{gpus[1]} XGMI SELF\n\nNUMA BW TABLE:\n{head}\n{gpus[0]} N/A 50000-50000\n{gpus[1]} 50000-50000 N/A\n"
    text += "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI355X\n        DEVICE_ID: 0x75a3\n"
    (group,) = import_(text).topology.nodes
    assert (group.accelerators.count, group.accelerators.device) == (2, "MI355X-288GB")
    assert group.links.scale_up.kind == "infinity-fabric"


def test_every_accelerator_of_the_catalog_is_known(import_):
    """By the name that a query prints; H800 has 8 links, also where three of a switch are seen."""
    catalog = {group.accelerators.device for name in TOPOLOGIES.names() for group in load_topology(name).nodes}
    assert catalog - {device.name for device in DEVICES} == {"CPU"}
    rows = [" ".join("X" if i == j else "NV8" for j in range(3)) for i in range(3)]
    (group,) = import_(matrix(rows, 3), query("NVIDIA H800", 81559, 3)).topology.nodes
    assert (group.accelerators.device, group.links.scale_up.bandwidth) == ("H800-SXM5-80GB", 200e9)


def test_text_of_powershell(tmp_path):
    """It writes what `ssh node nvidia-smi …` prints as UTF-16."""
    (tmp_path / "x").write_bytes(H200.encode("utf-16"))
    assert imported([tmp_path / "x"], "c").topology.nodes[0].accelerators.count == 8


def test_what_is_of_no_format_says_where_to_begin(import_):
    """The table that nvidia-smi prints without arguments, say."""
    with pytest.raises(InputError, match="planner doctor --cluster prints the commands"):
        import_("| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4 |\n")
