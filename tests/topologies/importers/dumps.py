# ruff: noqa: E501 - lines as tools print them
"""Small outputs of machines, written for the tests."""

from collections.abc import Sequence


def matrix(rows: Sequence[str], gpus: int, cards: int = 0, legend: str = "") -> str:
    """`nvidia-smi topo -m`: a row of cells for each accelerator, with the escapes of its header."""
    names = [f"GPU{number}" for number in range(gpus)] + [f"NIC{number}" for number in range(cards)]
    header = "\x1b[4m\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"
    body = [f"GPU{number}\t" + "\t".join(row.split()) + "\t0-55\t0\t\tN/A" for number, row in enumerate(rows)]
    return "\n".join([header, *body, "", "Legend:", "", "  X    = Self", "", legend, ""])


def query(name: str, memory: int, count: int) -> str:
    """`nvidia-smi --query-gpu=name,memory.total --format=csv`; MiB."""
    return "name, memory.total [MiB]\n" + f"{name}, {memory} MiB\n" * count


HGX = matrix(
    [
        " ".join(
            ["X" if i == j else "NV18" for j in range(8)] + ["PIX" if i // 2 == j // 2 else "SYS" for j in range(8)]
        )
        for i in range(8)
    ],
    8,
    8,
)
"""Eight accelerators on NVSwitch, two and two cards to a PCIe switch."""

NCCL = """<system version="1">
  <cpu numaid="0" arch="x86_64">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:05:00.0" count="12" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <nvlink target="0000:05:00.0" count="12" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:04:00.0" class="0x020700" vendor="0x15b3" device="0x101b" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
"""
"""Two A100 behind one PCIe switch with one card of 200 Gb/s."""

HWLOC = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0">
    <object type="Package" os_index="0">
      <object type="NUMANode" os_index="0" local_memory="549755813888"/>
      <object type="NUMANode" os_index="2" local_memory="80000000000" subtype="GPUMemory"/>
      <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-09]">
        <object type="Bridge" bridge_type="1-1" pci_busid="0000:00:01.0" pci_type="0604 [8086:2030] [0000:0000] 04">
          <object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:20b0] [10de:134f] a1" pci_link_speed="31.5">
            <object type="OSDev" name="nvml0" osdev_type="1"><info name="GPUModel" value="A100-SXM4-40GB"/></object>
          </object>
          <object type="PCIDev" pci_busid="0000:02:00.0" pci_type="0302 [10de:20b0] [10de:134f] a1" pci_link_speed="31.5">
            <object type="OSDev" name="nvml1" osdev_type="1"><info name="GPUModel" value="A100-SXM4-40GB"/></object>
          </object>
          <object type="PCIDev" pci_busid="0000:03:00.0" pci_type="0207 [15b3:101b] [15b3:0003] 00" pci_link_speed="31.5">
            <object type="OSDev" name="mlx5_0" osdev_type="3"/>
          </object>
        </object>
      </object>
    </object>
    <object type="Package" os_index="1">
      <object type="NUMANode" os_index="1" local_memory="549755813888"/>
    </object>
  </object>
</topology>
"""
"""Two A100 and a ConnectX-6 below one port, 1 TiB of DRAM in two NUMA nodes, and memory of an accelerator beside it."""

ASTRA = """topology: [ Switch, Switch, Switch ]
npus_count: [ 8, 4, 2 ]
bandwidth: [ 400.0, 50.0, 25.0 ]  # GB/s
latency: [ 500.0, 1000.0, 2000.0 ]  # ns
"""

INFRAGRAPH = """name: two-servers
devices:
  - name: server
    components:
      - {name: cpu, choice: cpu, count: 1}
      - {name: xpu, choice: xpu, count: 4, description: NVIDIA A100-SXM4-40GB}
      - {name: nvlsw, choice: switch, count: 1, description: NVLink switch}
      - {name: pciesw, choice: switch, count: 2, description: PCIe switch}
      - {name: nic, choice: nic, count: 2}
    links:
      - {name: nvlink3, physical: {bandwidth: {choice: gigabytes_per_second, gigabytes_per_second: 300}}}
      - {name: pcie, physical: {bandwidth: {choice: gigabytes_per_second, gigabytes_per_second: 31.5}}}
    edges:
      - {ep1: {component: xpu}, ep2: {component: nvlsw}, scheme: many2many, link: nvlink3}
      - {ep1: {component: "pciesw[0]"}, ep2: {component: "xpu[0:2]"}, scheme: many2many, link: pcie}
      - {ep1: {component: "pciesw[1]"}, ep2: {component: "xpu[2:4]"}, scheme: many2many, link: pcie}
  - name: switch
    components: [{name: port, choice: port, count: 8}]
instances:
  - {name: host, device: server, count: 2}
  - {name: leaf, device: switch, count: 2}
  - {name: spine, device: switch, count: 1}
links:
  - {name: down, physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 100}}}
  - {name: up, physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 50}}}
edges:
  - {ep1: {instance: "host[0]", component: nic}, ep2: {instance: "leaf[0]", component: port}, scheme: one2one, link: down}
  - {ep1: {instance: "host[1]", component: nic}, ep2: {instance: "leaf[1]", component: port}, scheme: one2one, link: down}
  - {ep1: {instance: "leaf[0]", component: "port[4]"}, ep2: {instance: "spine[0]", component: "port[0]"}, scheme: one2one, link: up}
  - {ep1: {instance: "leaf[1]", component: "port[4]"}, ep2: {instance: "spine[0]", component: "port[1]"}, scheme: one2one, link: up}
"""

TOPOGRAPH = """switches:
  core: {switches: [spine1, spine2]}
  spine1: {switches: [leaf1, leaf2]}
  spine2: {switches: [leaf3, leaf4]}
blocks:
  - {switch: leaf1, nodes: ["n[01-02]"], annotations: {accelerator.topology.test/domain: nvl1}}
  - {switch: leaf2, nodes: ["n[03-04]"], annotations: {accelerator.topology.test/domain: nvl2}}
  - {switch: leaf3, nodes: ["n[05-06]"], annotations: {accelerator.topology.test/domain: nvl3}}
  - {switch: leaf4, nodes: [n07, n08], annotations: {accelerator.topology.test/domain: nvl4}}
"""

SLURM_TREE = """# a fat tree
SwitchName=root Switches=s[1-2]
SwitchName=s1 Nodes=node[001-003,010] \\
  LinkSpeed=1
switchname=s2 nodes=node[004-006],login1
"""

SLURM_YAML = """- topology: trees
  tree:
    switches:
      - {switch: root, children: "s[1-2]"}
      - {switch: s1, nodes: "node[01-04]"}
      - {switch: s2, nodes: "node[05-08]"}
- topology: blocks
  cluster_default: true
  block:
    block_sizes: [2, 4]
    blocks:
      - {block: b1, nodes: "node[01-02]"}
      - {block: b2, nodes: "node[03-04]"}
"""

SLURM_BLOCKS = """BlockName=b1 Nodes=srv[01-18]
BlockName=b2 Nodes=srv[19-36]
BlockName=b3 Nodes=srv[37-52]
BlockSizes=16
"""

ROCM = """====================== ROCm System Management Interface ======================
======================== Weight between two GPUs =============================
       GPU0         GPU1
GPU0   0            15
GPU1   15           0
======================= Link Type between two GPUs ===========================
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0
============================= Numa Nodes =====================================
GPU[0]\t\t: (Topology) Numa Node: 0
GPU[0]\t\t: Card Series: \t\tAMD Instinct MI350X
"""


def fabric(pods: int, hosts: int, rails: int, uplinks: int, *, nameless: int = 0) -> str:
    """`ibnetdiscover` of pods with a leaf for each rail and one spine; `nameless` hosts more have cards without names."""
    lines = ["# Topology file: generated on a day", ""]
    for pod in range(pods):
        for rail in range(rails):
            lines.append(f'Switch\t64 "S-{pod}{rail}"\t\t# "leaf-{pod}-{rail}" enhanced port 0 lid 7 lmc 0')
            for host in range(hosts + nameless):
                name = (
                    f"node{pod}{host:02d} mlx5_{rail}" if host < hosts else "MT4129 ConnectX7   Mellanox Technologies"
                )
                lines.append(f'[{host + 1}]\t"H-{pod}{rail}{host:02d}"[1](a0) \t\t# "{name}" lid 4 4xNDR')
            for up in range(uplinks):
                port = (pod * rails + rail) * uplinks + up + 1
                lines.append(f'[{40 + up}]\t"S-ff"[{port}]\t\t# "spine" lid 2 4xNDR')
            lines.append("")
    for rail in range(rails):
        lines.append(f'Ca\t1 "H-0{rail}00"\t\t# "node000 mlx5_{rail}"')
        lines.append(f'[1](a0) \t"S-0{rail}"[1]\t\t# lid 1 lmc 0 "leaf" lid 7 4xNDR')
    lines.append('Ca\t1 "H-99"\t\t# "Mellanox Technologies Aggregation Node"')
    lines.append('[1](a0) \t"S-00"[65]\t\t# lid 1 lmc 0 "leaf" lid 7 4xNDR')
    lines.append('Ca\t2 "H-98"\t\t# "ufm01 mlx5_0"')
    lines.append('[1](a0) \t"S-00"[64]\t\t# lid 1 lmc 0 "leaf" lid 7 4xNDR')
    return "\n".join(lines) + "\n"
