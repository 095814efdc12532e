"""Loading: names and paths, scaling, overrides, and files that are based on others."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from cost_models.workload.loading import load_workload
from topologies.cluster import equal_domains
from topologies.errors import InputError
from topologies.loading import TOPOLOGIES, load_topology, read_topology


def _faults(source: str | Path, **options: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_topology(source, **options)
    return [str(fault) for fault in caught.value.faults]


def test_a_path_and_a_name_give_the_same_topology() -> None:
    """The catalog name is short for its file."""
    assert load_topology("zionex") == load_topology(TOPOLOGIES.directory / "zionex.yaml")


def test_an_unknown_name_gets_the_nearest() -> None:
    """A misspelt name is answered with a suggestion."""
    assert _faults("zionx") == ["zionx: is neither a file nor a topology of the catalog; did you mean 'zionex'?"]


def test_misspelt_words_of_a_document_on_another_get_the_nearest(tmp_path: Path) -> None:
    """A key of its own, once, and a word that a field may be."""
    changed = tmp_path / "changed.yaml"
    changed.write_text("base: dgx-h100\nsets: {nodes.0.count: 2}\n")
    with pytest.raises(InputError) as refused:
        load_topology(changed)
    assert [str(fault) for fault in refused.value.faults] == [f"{changed}:2:1: sets: unknown key; did you mean 'set'?"]
    changed.write_text("base: dlrm-v1\nsets: {}\nset: {embedding.optimizer: rowwise_adagard}\n")
    with pytest.raises(InputError, match="did you mean 'rowwise_adagrad'") as refused:
        load_workload(changed)
    assert [fault.path for fault in refused.value.faults] == ["sets", "embedding.optimizer"]


def test_a_path_to_nothing_is_told_from_a_misspelt_name(tmp_path: Path) -> None:
    """The catalog is no remedy for a file that is not there, nor for a directory."""
    assert _faults(tmp_path) == [f"{tmp_path}: is a directory; name a file in it"]
    assert _faults(tmp_path / "t.yaml") == [f"{tmp_path / 't.yaml'}: there is no such file"]
    assert _faults("zionex.yml") == [
        "zionex.yml: is neither a file nor a topology of the catalog; did you mean 'zionex'?"
    ]


def test_a_pipe_is_a_file(tmp_path: Path) -> None:
    """`-t <(sed … topology.yaml)` of the shell."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = (TOPOLOGIES.directory / "zionex.yaml").read_text()
    writer = threading.Thread(target=pipe.write_text, args=[text])
    writer.start()
    assert load_topology(pipe) == load_topology("zionex")
    writer.join()


def test_nodes_scales_a_homogeneous_topology() -> None:
    """`nodes` sets the count, and later overrides come on top."""
    assert load_topology("zionex", nodes=16).world_size == 128
    assert load_topology("zionex", nodes=16, overrides=["nodes.0.count=2"]).world_size == 16


def test_nodes_is_refused_where_it_means_nothing(tmp_path: Path) -> None:
    """Zero nodes, several groups, no cards and domains that do not fit are errors that say what to do."""
    assert _faults("zionex", nodes=0) == ["--nodes 0: must be at least 1"]
    assert _faults("l40-8", nodes=2) == [
        "--nodes 2: node group 'l40-8' has no links.scale_out, and a cluster of 2 nodes needs it"
    ]
    assert "--nodes 19: nodes.0: a scale-up domain of 72" in _faults("gb200-nvl72", nodes=19)[0]
    two = tmp_path / "two.yaml"
    group = read_topology("zionex").data["nodes"][0]
    two.write_text(f"name: two\nnodes: {[group, {**group, 'name': 'other'}]}\n")
    assert load_topology(two).world_size == 16
    assert _faults(two, nodes=4) == [
        "--nodes 4: there are 2 node groups (zionex, other);"
        " set the count of each, for example --set topology.nodes.0.count=4"
    ]


def test_overrides_are_applied_in_order_by_index_or_name() -> None:
    """The last word counts."""
    texts = ["nodes.zionex.accelerators.hbm.capacity=20GB", "nodes.0.accelerators.hbm.capacity=80GB"]
    assert load_topology("zionex", overrides=texts).nodes[0].accelerators.hbm.capacity == 80e9


def test_all_faults_of_overrides_and_file_come_together(tmp_path: Path) -> None:
    """A malformed, a misspelt and a wrong override and a fault of the file: four faults."""
    broken = tmp_path / "broken.yaml"
    broken.write_text((TOPOLOGIES.directory / "zionex.yaml").read_text().replace("capacity: 1.5TB", "capacity: 1.5"))
    faults = _faults(broken, overrides=["nodes.0.count", "nodes.0.cuont=3", "nodes.0.power=3GB"])
    assert sorted(fault.removeprefix(str(broken)) for fault in faults) == [
        "--set topology.nodes.0.count: is not path=value; write for example topology.nodes.0.count=4",
        "--set topology.nodes.0.cuont=3: there is no 'cuont' at nodes.0; did you mean 'count'?",
        "--set topology.nodes.0.power=3GB: nodes.0.power: '3GB' is not in watt; write for example 6.5kW",
        ":22:9: nodes.0.host.ddr.capacity: 1.5 has no unit; write for example 40GB or 40GiB",
    ]


def test_an_override_may_begin_an_optional_part() -> None:
    """`host.ssd.capacity` alone tells what else an SSD needs; with all of it, the node has one."""
    words = "--set topology.nodes.0.host.ssd.capacity=4TB"
    faults = _faults("l40-8", overrides=["nodes.0.host.ssd.capacity=4TB"])
    assert [fault.split(": is missing")[0] for fault in faults] == [
        f"{words}: nodes.0.host.ssd.{field}" for field in ("iops", "read_bandwidth", "write_bandwidth")
    ]
    whole = ["capacity=4TB", "iops=1MIOPS", "read_bandwidth=6GB/s", "write_bandwidth=3GB/s"]
    ssd = load_topology("l40-8", overrides=[f"nodes.0.host.ssd.{text}" for text in whole]).nodes[0].host.ssd
    assert ssd is not None
    assert (ssd.capacity, ssd.block_size) == (4e12, 4096)


def test_a_file_may_be_based_on_the_catalog_or_another_file(tmp_path: Path) -> None:
    """`base` is a name or a path beside the file; `set` changes fields and other keys replace whole parts."""
    first = tmp_path / "first.yaml"
    first.write_text("name: first\nbase: zionex-16\nset: {nodes.0.accelerators.hbm.capacity: 80GB}\n")
    second = tmp_path / "second.yaml"
    second.write_text("name: second\nbase: first.yaml\nnetwork: {levels: [{name: leaf, nodes: 8}]}\n")
    topology = load_topology(second)
    assert (topology.name, topology.world_size, len(topology.network.levels)) == ("second", 128, 1)
    assert topology.nodes[0].accelerators.hbm.capacity == 80e9
    assert topology.description == load_topology("zionex-16").description


def test_faults_of_a_derived_file_stand_in_the_derived_file(tmp_path: Path) -> None:
    """Values, paths and consistency: each at the line of `set` that wrote it."""
    derived = tmp_path / "derived.yaml"
    derived.write_text(
        "name: derived\nbase: zionex\nset:\n  nodes.0.host.ssd: {capacity: 4}\n  nodes.0.power: 3GB\ndescripton: x\n"
    )
    places = [fault.removeprefix(str(derived)).split(": ")[:2] for fault in _faults(derived)]
    assert places == [
        [":4:3", "nodes.0.host.ssd.iops"],
        [":4:3", "nodes.0.host.ssd.read_bandwidth"],
        [":4:3", "nodes.0.host.ssd.write_bandwidth"],
        [":4:22", "nodes.0.host.ssd.capacity"],
        [":5:3", "nodes.0.power"],
        [":6:1", "descripton"],
    ]
    derived.write_text("base: zionex\nset:\n  nodes.0.cuont: 3\n  nodes.1.count: 4\n")
    assert [fault.removeprefix(str(derived)) for fault in _faults(derived)] == [
        ":3:3: set.nodes.0.cuont: there is no 'cuont' at nodes.0; did you mean 'count'?",
        ":4:3: set.nodes.1.count: nodes has 1 element and none is '1'; known here: zionex",
    ]
    derived.write_text("base: zionex\nset:\n  nodes.0.links.pcie.accelerators_per_switch: 3\n")
    assert _faults(derived) == [
        f"{derived}:3:3: nodes.0: 8 accelerators do not fill PCIe switches of 3 each; give a divisor of 8 as"
        " links.pcie.accelerators_per_switch"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "base: zionx\n",
            ":1:1: base: 'zionx' is neither a file nor a topology of the catalog; did you mean 'zionex'?",
        ),
        ("base: 5\n", ":1:1: base: must be a catalog name or the path of a file"),
        ("base: zionex\nset: [1]\n", ":2:1: set: must be a mapping of dotted paths to values"),
        ("name: x\nset: {nodes.0.count: 3}\n", ":2:1: set: needs a base: the topology that it changes"),
        (
            "name: x\nbase: self.yaml\n",
            ":2:1: base: 'self.yaml' is based on this file again; break the circle",
        ),
    ],
)
def test_a_wrong_base_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Each misuse of `base` and `set` is named at its line."""
    path = tmp_path / "self.yaml"
    path.write_text(text)
    (fault,) = _faults(path)
    assert fault.startswith(f"{path}{message}")


@pytest.mark.parametrize(("nodes", "domains", "ranks"), [(32, 2, 64), (20, 2, 40), (40, 4, 40)])
def test_nodes_that_fill_no_domains_share_the_fewest_equally(nodes: int, domains: int, ranks: int) -> None:
    """Of 72 ranks at most; it is said."""
    said: list[str] = []
    group = load_topology("gb200-nvl72", nodes=nodes, say=said.append).nodes[0]
    assert (group.count, group.domain_ranks) == (nodes, ranks)
    words = f"{domains} scale-up domains of {ranks} ranks each, fewer than the topology's domains have"
    assert said == [f"--nodes {nodes}: {words}"]


@pytest.mark.parametrize("nodes", [2, 18, 36])
def test_nodes_that_fill_domains_or_are_a_part_of_one_keep_them(nodes: int) -> None:
    """Nothing is said."""
    said: list[str] = []
    up = load_topology("gb200-nvl72", nodes=nodes, say=said.append).nodes[0].links.scale_up
    assert up is not None
    assert (up.domain, said) == (72, [])


@pytest.mark.parametrize("nodes", [19, 38, 74])
def test_nodes_that_only_small_equal_domains_hold_are_refused(nodes: int) -> None:
    """A prime number of them above a domain's, and twice one: racks of two nodes of eighteen are another machine."""
    full = nodes // 18 * 18
    words = (
        f"a scale-up domain of 72 does not divide {nodes} nodes of 4 evenly; {full} or {full + 18} nodes fill whole"
        f" domains; or make {nodes - full} nodes a node group of their own"
    )
    with pytest.raises(InputError) as refused:
        load_topology("gb200-nvl72", nodes=nodes)
    assert words in str(refused.value)
    with pytest.raises(InputError, match=f"does not divide {nodes} nodes"):
        load_topology("gb200-nvl72", overrides=[f"nodes.0.count={nodes}"])


def test_a_count_that_is_set_changes_no_domain_and_says_which_one_would_do() -> None:
    """A path and its value are one change: the domain is another."""
    with pytest.raises(InputError, match="18 or 36 nodes fill whole domains, and domain: 64 makes 2 equal ones of 32"):
        load_topology("gb200-nvl72", overrides=["nodes.0.count=32"])
    both = ["nodes.0.count=32", "nodes.0.links.scale_up.domain=64"]
    assert load_topology("gb200-nvl72", overrides=both) == load_topology("gb200-nvl72", nodes=32, say=lambda _: None)


def test_domains_that_were_made_smaller_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody listens: a library does not change what it was given silently."""
    load_topology("gb200-nvl72", nodes=32)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "2 scale-up domains of 64 ranks each" in caplog.text
    caplog.clear()
    load_topology("gb200-nvl72", nodes=36)
    assert not caplog.records


@pytest.mark.parametrize(
    ("nodes", "most", "each"), [(32, 18, 16), (20, 18, 10), (40, 18, 10), (27, 18, 9), (38, 18, None), (19, 18, None)]
)
def test_equal_domains_have_half_of_their_nodes_or_more(nodes: int, most: int, each: int | None) -> None:
    """The fewest that there can be."""
    assert equal_domains(nodes, most) == each
