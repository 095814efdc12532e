"""The cluster models: what they refuse, what they count, and that their fingerprint covers every field."""

import pytest

from topologies.cluster import Topology
from topologies.documents import parse_yaml, validate
from topologies.errors import InputError
from topologies.loading import load_topology

TEXT = """\
name: two-kinds
nodes:
  - name: big
    count: 2
    accelerators:
      count: 8
      device: A100-SXM4-80GB
      hbm: {capacity: 80GB, bandwidth: 2039GB/s}
      flops: {fp32: 19.5TFLOP/s}
    links:
      pcie: {bandwidth: 31.5GB/s, accelerators_per_switch: 2}
      scale_up: {kind: nvlink3, bandwidth: 300GB/s}
      scale_out: {kind: infiniband, count: 8, bandwidth: 200Gb/s}
  - name: small
    accelerators:
      count: 4
      device: A100-SXM4-40GB
      hbm: {capacity: 40GB, bandwidth: 1555GB/s}
      flops: {fp32: 19.5TFLOP/s}
    links:
      pcie: {bandwidth: 31.5GB/s}
      scale_out: {kind: infiniband, count: 2, bandwidth: 200Gb/s}
"""


def _load(text: str = TEXT) -> Topology:
    return validate(parse_yaml(text, "t.yaml"), Topology)


def _fault(text: str) -> str:
    with pytest.raises(InputError) as caught:
        _load(text)
    return str(caught.value)


def test_a_heterogeneous_cluster_counts_its_ranks() -> None:
    """Nodes and ranks are summed over the groups."""
    topology = _load()
    assert (topology.node_count, topology.world_size) == (3, 20)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "name: small",
            "name: big",
            "t.yaml:2:1: nodes: two node groups are called 'big' (nodes.0 and nodes.1)",
        ),
        ("    count: 2\n", "    cuont: 2\n", "t.yaml:4:5: nodes.0.cuont: unknown key; did you mean 'count'?"),
        (
            "80GB, ",
            "80, ",
            "t.yaml:8:13: nodes.0.accelerators.hbm.capacity: 80 has no unit; write for example 40GB",
        ),
        (
            "80GB, ",
            "80GB/s, ",
            "nodes.0.accelerators.hbm.capacity: '80GB/s' is not in byte; write for example 40GB",
        ),
        ("2039GB/s", "2039GB", "nodes.0.accelerators.hbm.bandwidth: '2039GB' is not in byte / second"),
        ("300GB/s", "0GB/s", "nodes.0.links.scale_up.bandwidth: '0GB/s' must be above 0"),
        (
            "      hbm: {capacity: 80GB, bandwidth: 2039GB/s}\n",
            "",
            "nodes.0.accelerators.hbm: is missing; a topology",
        ),
        (
            "hbm: {capacity: 80GB, bandwidth: 2039GB/s}",
            "hbm:",
            "a topology without HBM cannot be planned for",
        ),
        ("count: 2,", "count: 3,", "t.yaml:14:5: nodes.1: 3 scale-out cards cannot serve 4 accelerators"),
        (
            "accelerators_per_switch: 2",
            "accelerators_per_switch: 3",
            "8 accelerators do not fill PCIe switches of 3",
        ),
        (
            "bandwidth: 300GB/s}",
            "bandwidth: 300GB/s, domain: 3}",
            "a scale-up domain of 3 does not divide 2 nodes of 8",
        ),
        (
            "      scale_out: {kind: infiniband, count: 2, bandwidth: 200Gb/s}\n",
            "",
            "'small' has no links.scale_out",
        ),
        ("count: 8\n", "count: true\n", "nodes.0.accelerators.count: must be a whole number, not True"),
        ("    count: 2\n", "    count: 2000000\n", "16,000,004 accelerators are more than can be planned for"),
        ("count: 8\n", "count: 0\n", "nodes.0.accelerators.count: must be at least 1, not 0"),
        ("nodes:\n", "nodes: []\nnetwork:\n", "nodes: is empty; describe at least one node group"),
    ],
)
def test_a_wrong_cluster_is_refused_with_place_and_remedy(old: str, new: str, message: str) -> None:
    """Each slip is named at its line."""
    assert old in TEXT
    assert message in _fault(TEXT.replace(old, new, 1))


def test_levels_must_hold_whole_switches() -> None:
    """A level that is no multiple of the one below is refused."""
    levels = "network: {levels: [{name: leaf, nodes: 4}, {name: spine, nodes: 6}]}\n"
    assert "level 'spine' (6 nodes) must hold whole switches of the level below" in _fault(TEXT + levels)
    assert "must be at least 1, not 0.5" in _fault(
        TEXT + "network: {levels: [{name: l, nodes: 4, oversubscription: 0.5}]}"
    )
    assert "a finite number" in _fault(TEXT + "network: {levels: [{name: l, nodes: 4, oversubscription: .nan}]}")


def test_a_domain_over_all_nodes_needs_no_cards() -> None:
    """One scale-up domain that spans the cluster is a network of its own."""
    text = TEXT.split("  - name: small")[0].replace("bandwidth: 300GB/s", "bandwidth: 300GB/s, domain: 16")
    assert _load("\n".join(line for line in text.splitlines() if "scale_out" not in line)).world_size == 16


def test_the_fingerprint_covers_every_field_and_survives_a_round_trip() -> None:
    """Any change of any value changes the hash, defaults included; writing and reading does not."""
    base = load_topology("zionex")
    assert Topology.model_validate(base.model_dump(mode="json")).fingerprint() == base.fingerprint()
    changes = [
        *("name=x", "description=x", "network.rails=true", "network.levels=[{name: leaf, nodes: 2}]"),
        *("network.levels=[{name: leaf, nodes: 2, latency: 9us}]", "nodes.0.name=x", "nodes.0.count=2"),
        *(
            "nodes.0.price=1USD/h",
            "nodes.0.power=1kW",
            "nodes.0.reserve.hbm=6%",
            "nodes.0.accelerators.device=x",
        ),
        *(
            "nodes.0.accelerators.l2=1MB",
            "nodes.0.accelerators.hbm.capacity=1GB",
            "nodes.0.host.ssd.block_size=512B",
        ),
        *(
            "nodes.0.links.pcie.latency=9us",
            "nodes.0.links.scale_up.domain=4",
            "nodes.0.links.scale_out.count=4",
        ),
        *(
            "nodes.0.links.front_end=",
            "nodes.0.accelerators.flops.fp8=1TFLOP/s",
            "nodes.0.host.ddr.bandwidth=1GB/s",
        ),
    ]
    prints = {load_topology("zionex", overrides=[change]).fingerprint() for change in changes}
    assert len(prints | {base.fingerprint()}) == len(changes) + 1


def test_numbers_of_nodes_that_a_group_may_have() -> None:
    """All of one rack of 18, then whole racks; each where a node is a domain of its own."""
    rack = load_topology("gb200-nvl72").nodes[0]
    assert rack.node_counts(60, is_alone=True) == [*range(1, 18), 18, 36, 54]
    assert rack.node_counts(2, is_alone=True) == [1, 2]
    assert rack.node_counts(40, is_alone=False) == [18, 36]
    assert load_topology("zionex").nodes[0].node_counts(4, is_alone=True) == [1, 2, 3, 4]


def test_a_part_of_a_domain_is_refused_beside_other_groups() -> None:
    """Whether the other group is the rest of the rack is not known."""
    rack = load_topology("gb200-nvl72")
    halves = [rack.nodes[0].model_copy(update={"name": name, "count": 9}) for name in ("a", "b")]
    record = {**rack.model_dump(mode="json"), "nodes": [half.model_dump(mode="json") for half in halves]}
    with pytest.raises(ValueError, match=r"'a' is 36 of a scale-up domain of 72.*write domain: 36"):
        Topology.model_validate(record)
