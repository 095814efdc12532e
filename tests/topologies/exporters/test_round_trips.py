"""Written in another format and imported again, a cluster is the same in all that the format can say."""

import pytest
import yaml

from topologies.cluster import Topology
from topologies.exporters.astra_sim import UnsayableError, network_yaml
from topologies.exporters.infragraph import infragraph_yaml
from topologies.importers.imported import imported
from topologies.loading import TOPOLOGIES, load_topology

UNSAID = {"name", "description"}


def again(text: str, tmp_path, like: str) -> Topology:
    file = tmp_path / "exported.yaml"
    file.write_text(text)
    return imported([file], "cluster", like=like).topology


def scaled(name: str) -> Topology:
    """Four nodes, or one where there are no cards; a whole rack of those whose domain spans nodes."""
    topology = load_topology(name)
    group = topology.nodes[0]
    return topology if group.links.scale_out is None or group.count > 1 else load_topology(name, nodes=4)


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_infragraph(tmp_path, name):
    """Nodes, accelerators, links, cards, domains, leaves and their uplinks; with --like the same cluster."""
    topology = scaled(name)
    if topology.network.levels:
        topology = topology.model_copy(update={"network": load_topology("dgx-h100").network})
    found = again(infragraph_yaml(topology), tmp_path, name)
    assert found.nodes == topology.nodes


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_astra_sim(tmp_path, name):
    """Dimensions of equal accelerators: to 12 digits."""
    topology = scaled(name)
    found = again(network_yaml(topology), tmp_path, name)
    assert found.world_size == topology.world_size
    for ours, theirs in zip(topology.nodes, found.nodes, strict=True):
        assert theirs.count == ours.count
        assert theirs.accelerators == ours.accelerators
        for link in ("pcie", "scale_up", "scale_out"):
            assert (getattr(ours.links, link) is None) == (getattr(theirs.links, link) is None)
            if getattr(ours.links, link) is not None:
                assert getattr(theirs.links, link).bandwidth == pytest.approx(getattr(ours.links, link).bandwidth)


@pytest.fixture
def levels(tmp_path) -> Topology:
    """32 nodes below leaves and pods."""
    file = tmp_path / "levels.yaml"
    network = {
        "rails": True,
        "levels": [
            {"name": "leaf", "nodes": 8, "oversubscription": 1.5, "latency": "2us"},
            {"name": "pod", "nodes": 16, "oversubscription": 2.0, "latency": "3us"},
        ],
    }
    file.write_text(yaml.safe_dump({"name": "levels", "base": "dgx-h100", "network": network}))
    return load_topology(file, nodes=32)


def test_levels_of_astra_sim(tmp_path, levels):
    """Nodes, oversubscription and latency of each level stay; rails and names do not."""
    found = again(network_yaml(levels), tmp_path, "dgx-h100")
    assert [(each.nodes, each.oversubscription) for each in found.network.levels] == [(8, 1.5), (16, 2.0)]
    assert [each.latency for each in found.network.levels] == pytest.approx([2e-6, 3e-6])


@pytest.mark.parametrize("rails", [True, False])
def test_levels_of_infragraph(tmp_path, levels, rails):
    """Nodes, oversubscription and rails stay; names and latencies do not."""
    levels = levels.model_copy(update={"network": levels.network.model_copy(update={"rails": rails})})
    found = again(infragraph_yaml(levels), tmp_path, "dgx-h100")
    assert found.nodes == levels.nodes
    assert found.network.rails == rails
    assert [(each.nodes, each.oversubscription) for each in found.network.levels] == [(8, 1.5), (16, 2.0)]


def test_node_groups(tmp_path):
    """InfraGraph has several; ASTRA-sim refuses them."""
    groups = [load_topology(name, nodes=2).nodes[0] for name in ("dgx-a100-80", "dgx-h100")]
    both = Topology(name="both", nodes=tuple(groups))
    found = again(infragraph_yaml(both), tmp_path, "dgx-a100-80")
    assert [(group.name, group.count, group.accelerators.device) for group in found.nodes] == [
        (group.name, group.count, group.accelerators.device) for group in groups
    ]
    assert [group.links.scale_up.bandwidth for group in found.nodes] == [300e9, 450e9]
    with pytest.raises(UnsayableError, match="2 node groups"):
        network_yaml(both)
