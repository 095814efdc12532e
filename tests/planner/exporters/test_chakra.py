"""Chakra traces: read back by their schema, complete, replayable by ASTRA-sim's rules, and as the simulation says."""

import csv
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from cost_models.resources import HOST_LINK, NIC_OUT
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.program import DATA
from cost_models.simulator.simulation import Simulation
from planner import plan
from planner.exporters.chakra import write_chakra
from planner.exporters.chakra.communication import AllToAll
from planner.formulation.policy import Policy
from planner.verification.simulation import simulate_plan
from tests.oracles import simulations
from tests.oracles.chakra_reader import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COLL,
    COMP,
    RECV,
    REDUCE_SCATTER,
    SEND,
    ReadNode,
    read_trace,
)
from tests.oracles.chakra_replay import Replay
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError
from topologies.loading import load_topology


def sixteen(**fields: Any) -> Simulation:
    """Two nodes of eight accelerators, all kinds of sharding."""
    rules = [{"match": ["t0"], "shardings": ["row_wise"]}, {"match": ["t1"], "shardings": ["table_row_wise"]}]
    policy = Policy.model_validate({"tables": rules} | fields)
    tables = [*simulations.TABLES, {"rows": 80_000, "dim": 16}, {"rows": 3_000_000, "dim": 64}]
    work = workload(tables, global_batch=65_536, dense=simulations.DENSE, pipeline="sparse-dist")
    found = plan(load_topology("dgx-a100-80", nodes=2), work, policy=policy, effort=0, gap=1.0, simulate=False)
    return simulate_plan(found)


def in_groups() -> Simulation:
    """The same in two groups with a copy of all tables each, whose ranks take turns."""
    return sixteen(tables=[], replicas={"factor": 2, "layout": "intra"})


def through_towers() -> Simulation:
    """The same, vectors exchanged inside nodes and then among peers."""
    return sixteen(exchange="sptt")


def through_towers_of_groups() -> Simulation:
    """In two groups, each through towers of its own ranks."""
    return sixteen(tables=[], replicas={"factor": 2, "layout": "intra"}, exchange="sptt")


def through_towers_of_two_nodes() -> Simulation:
    """Two towers of two nodes."""
    tables = [{"rows": 50_000, "dim": 64}] * 8
    work = workload(tables, global_batch=65_536, dense=simulations.DENSE, towers={"count": 2})
    cluster, policy = load_topology("dgx-a100-80", nodes=4), Policy(exchange="sptt")
    return simulate_plan(plan(cluster, work, policy=policy, effort=0, gap=1.0, simulate=False))


MAKERS: dict[str, Callable[[], Simulation]] = {
    **simulations.CASES,
    **{each.__name__: each for each in (sixteen, in_groups, through_towers)},
    **{each.__name__: each for each in (through_towers_of_groups, through_towers_of_two_nodes)},
}
SLOW = ("varied", "prefetched", "waiting_for_data", "through_towers_of_groups", "through_towers_of_two_nodes")
played = cache(lambda name: MAKERS[name]())


class Export(SimpleNamespace):
    """What was written: nodes by the number of each rank in ASTRA-sim, and the files beside them."""

    simulation: Simulation
    nodes: dict[int, list[ReadNode]]
    npu_of_rank: dict[int, int]
    files: dict[str, Any]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((name, how), id=f"{name}-{how}", marks=[pytest.mark.slow] * (name in SLOW))
        for name in MAKERS
        for how in ("pairs", "collectives")
    ],
)
def export(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Export:
    name, how = request.param
    return exported(played(name), tmp_path_factory.mktemp("chakra"), how)


def exported(simulation: Simulation, folder: Path, how: AllToAll | None = None) -> Export:
    paths = write_chakra(simulation, folder, how)
    traces = {int(path.suffixes[-2][1:]): read_trace(path) for path in paths}
    files = {
        name: json.loads((folder / name).read_text()) for name in ("system.json", "memory.json", "comm_groups.json")
    }
    files["network.yml"] = yaml.safe_load((folder / "network.yml").read_text())
    with (folder / "ranks.csv").open() as file:
        npu_of_rank = {int(row["rank"]): int(row["npu"]) for row in csv.DictReader(file)}
    assert {npu: head for npu, (head, _) in traces.items()} == {
        npu: {"version": "0.0.4", "rank": rank} for rank, npu in npu_of_rank.items()
    }
    nodes = {npu: nodes for npu, (_, nodes) in traces.items()}
    return Export(simulation=simulation, nodes=nodes, npu_of_rank=npu_of_rank, files=files)


def group_of(export: Export, npu: int, node: ReadNode) -> tuple[int, ...]:
    """The members of a collective: a communicator group, or those that differ in the involved dimensions alone."""
    assert node.attributes is not None
    if "pg_name" in node.attributes:
        members = export.files["comm_groups.json"][node["pg_name"]]
        assert npu in members
        return tuple(members)
    counts = export.files["network.yml"]["npus_count"]
    kept = [not each for each in node["involved_dim"]]
    own = [place if keep else None for place, keep in zip(address(npu, counts), kept, strict=True)]
    return tuple(
        each
        for each in export.nodes
        if all(place in (None, there) for place, there in zip(own, address(each, counts), strict=True))
    )


def address(npu: int, counts: list[int]) -> list[int]:
    """The place of a number in each dimension; the first dimension's changes fastest."""
    places = []
    for count in counts:
        npu, place = divmod(npu, count)
        places.append(place)
    return places


def test_every_node_has_the_fields_of_its_type(export: Export) -> None:
    """And none else; numbers are unique, and wait for earlier ones."""
    assert sorted(export.nodes) == list(range(export.simulation.network.world))
    of_type = {
        COMP: {"is_cpu_op"},
        SEND: {"is_cpu_op", "comm_src", "comm_dst", "comm_tag", "comm_size"},
        RECV: {"is_cpu_op", "comm_src", "comm_dst", "comm_tag", "comm_size"},
        COLL: {"is_cpu_op", "comm_type", "comm_size"},
    }
    for npu, nodes in export.nodes.items():
        assert len({node.id for node in nodes}) == len(nodes)
        for node in nodes:
            assert node.attributes is not None
            assert set(node.attributes) - {"pg_name", "involved_dim"} == of_type[node.type], node.name
            assert (node.type == COMP) or not node["is_cpu_op"]
            assert all(0 < dep < node.id for dep in node.deps)
            if node.type == SEND:
                assert node["comm_src"] == npu != node["comm_dst"]
            if node.type == RECV:
                assert node["comm_dst"] == npu != node["comm_src"]
            if node.type in (SEND, RECV, COLL):
                assert node["comm_size"] > 0


def test_every_message_sent_is_received(export: Export) -> None:
    """With the same tag and size; a tag is one exchange."""
    sent, received = (
        sorted(
            (node["comm_src"], node["comm_dst"], node["comm_tag"], node["comm_size"])
            for nodes in export.nodes.values()
            for node in nodes
            if node.type == kind
        )
        for kind in (SEND, RECV)
    )
    assert sent == received
    assert len({message[:3] for message in sent}) == len(sent)


def test_a_replay_ends(export: Export) -> None:
    """No two ranks wait for each other's next collective, and members of one have equal shares of it."""
    assert not Replay(export.nodes, partial(group_of, export)).left()


def test_computations_last_as_long_as_simulated(export: Export) -> None:
    """Sums of a rank over any first nodes are less than a microsecond off; each task has its own duration."""
    simulation = export.simulation
    ends = [int(done.max()) for done in simulation.program.done]
    low, high = ends[simulation.fill - 1], ends[simulation.last - 1]
    for rank, npu in export.npu_of_rank.items():
        seconds: dict[str, float] = defaultdict(float)
        for task in simulation.program.tasks:
            if not task.is_exchange and task.stream != DATA and low < task.last.max() <= high:
                seconds[task.name] += simulation.run.end[task.last[rank]] - simulation.run.start[task.first[rank]]
        written: dict[str, int] = defaultdict(int)
        count: dict[str, int] = defaultdict(int)
        for node in export.nodes[npu]:
            if node.type == COMP and node.name != "data loading":
                written[node.name] += node.duration
                count[node.name] += 1
        assert {name for name, each in seconds.items() if each > 0} == set(written)
        assert all(abs(written[name] - seconds[name] * 1e6) < count[name] for name in written)
        if not any(node.name == "data loading" for node in export.nodes[npu]):
            assert abs(sum(written.values()) - sum(seconds.values()) * 1e6) < 1


def test_bytes_are_those_of_the_simulation(export: Export) -> None:
    """Each rank sends what the simulator put on its links, to a byte per message; collectives whose ranks have unequal
    shares at least as much."""
    simulation = export.simulation
    ends = [int(done.max()) for done in simulation.program.done]
    low, high = ends[simulation.fill - 1], ends[simulation.last - 1]
    uneven = any(node.type == COLL and node["comm_type"] == ALL_TO_ALL for node in export.nodes[0])
    total = expected = 0.0
    for rank, npu in export.npu_of_rank.items():
        sent = 0.0
        for node in export.nodes[npu]:
            if node.type == SEND:
                sent += node["comm_size"]
            elif node.type == COLL:
                members = len(group_of(export, npu, node))
                factor = {
                    ALL_REDUCE: 2 * (members - 1) / members,
                    REDUCE_SCATTER: (members - 1) / members,
                    ALL_TO_ALL: (members - 1) / members,
                    ALL_GATHER: members - 1,
                }[node["comm_type"]]
                sent += node["comm_size"] * factor
        should = sum(
            float(task.sent_bytes[rank])
            for task in simulation.program.tasks
            if task.sent_bytes is not None and low < task.last.max() <= high
        )
        total, expected = total + sent, expected + should
        if not uneven:
            assert sent == pytest.approx(should, abs=2 * len(export.nodes[npu]) * simulation.network.world)
    assert total >= expected * (1 - 1e-4)


def test_messages_between_domains_cross_cards(export: Export) -> None:
    """By the backend's rule: over the first dimension in which the numbers of sender and receiver differ."""
    network, domain = export.files["network.yml"], export.simulation.network.domain_of_rank
    rank_of = {npu: rank for rank, npu in export.npu_of_rank.items()}
    kind = export.simulation.network.kinds[0]
    for npu in export.nodes:
        for other in set(export.nodes) - {npu}:
            pairs = zip(address(npu, network["npus_count"]), address(other, network["npus_count"]), strict=True)
            dimension = [one != two for one, two in pairs].index(True)
            inside = domain[rank_of[npu]] == domain[rank_of[other]]
            rate = kind.link_all_to_all if inside else kind.nic_all_to_all
            assert network["bandwidth"][dimension] * 2**30 == pytest.approx(rate, rel=1e-5)
    assert int(np.prod(network["npus_count"])) == len(export.nodes)
    assert {len(network[key]) for key in ("topology", "npus_count", "bandwidth", "latency")} == {
        len(network["topology"])
    }
    assert export.files["system.json"]["endpoint-delay"] > 0


def test_the_same_simulation_gives_the_same_bytes(tmp_path: Path) -> None:
    """Into any folder, made where it is not there; and pairs are what a small world has."""
    for name in ("one", "two/deep"):
        write_chakra(played("sixteen"), tmp_path / name, None if name == "one" else "pairs")
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two/deep"))
    assert one == two
    assert len(one) == 16 + 5


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (Conditions(lost_cards=(0,)), "cannot lose a card"),
        (Conditions(slow_links={(NIC_OUT, 0): 0.5}), "leave out --slow-link nic_out:"),
    ],
)
def test_links_that_a_dimension_cannot_have_are_refused(conditions: Conditions, words: str, tmp_path: Path) -> None:
    """By name, before anything is written."""
    found = plan(load_topology("dgx-a100-80", nodes=2), "dlrm-v1", effort=0, simulate=False)
    with pytest.raises(InputError, match=words):
        write_chakra(simulate_plan(found, conditions=conditions), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    own = replace(conditions, lost_cards=(), slow_links={(HOST_LINK, 0): 0.5})
    assert write_chakra(simulate_plan(found, conditions=own), tmp_path / "new")


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([node_group("a", ranks=1)], "one rank exchanges nothing"),
        ([node_group("a", ranks=2), node_group("b", ranks=1)], "domains differ in size"),
        ([node_group("a"), node_group("b", nic_bytes_per_s=5e9)], "different rates"),
    ],
)
def test_clusters_that_are_no_grid_are_refused(groups: list[dict[str, object]], words: str, tmp_path: Path) -> None:
    """By name."""
    found = plan(topology(*groups), workload([{"rows": 1000, "dim": 64}], global_batch=4096), effort=0, simulate=False)
    with pytest.raises(InputError, match=words):
        write_chakra(simulate_plan(found), tmp_path / "new")


def test_a_folder_that_holds_anything_is_refused(tmp_path: Path) -> None:
    """A file of another plan would be replayed with the new ones."""
    (tmp_path / "step.99.et").touch()
    with pytest.raises(InputError, match="is not empty"):
        write_chakra(played("sixteen"), tmp_path)
