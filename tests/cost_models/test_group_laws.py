"""Seconds of collectives among groups of ranks are those of the laws, at the bytes that a rank moves in its group."""

import itertools

import pytest

from cost_models.coefficients import collective_files
from cost_models.collective_calls import CollectiveCall, Members
from cost_models.collective_laws import CollectiveLaw, collective_law, wire_bytes
from cost_models.collectives import all_reduce_seconds
from cost_models.group_laws import GroupLaws
from cost_models.groups import RankGroup
from cost_models.kinds import rank_kinds
from cost_models.registry import cost_model
from cost_models.resources import LINK_OUT, NIC_OUT
from cost_models.step_exchanges import reduction_line
from tests.oracles.instances import node_group, topology, workload

CLUSTER = topology(node_group("a", nodes=4, ranks=8))
WORKLOAD = workload([{"rows": 1000, "dim": 16}], dense={"top_mlp": [1024, 1]}, software="hugectr")
SIZES = (1e3, 1e6, 1e9)


def test_groups_are_runs_of_ranks_or_those_at_the_same_place_of_each() -> None:
    """Written out for 2 nodes of 4; members of a node and of a domain counted one by one."""
    world = RankGroup(4, 4, 8)
    for members, groups in (
        (Members(2), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (Members(8), [list(range(8))]),
        (Members(2, are_peers=True), [[0, 4], [1, 5], [2, 6], [3, 7]]),
        (Members(4, are_peers=True), [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ):
        of_rank = members.group_of_rank(8)
        assert [[rank for rank in range(8) if of_rank[rank] == group] for group in range(len(groups))] == groups
        near = sum(rank < 4 for rank in groups[0])
        assert members.group(world) == RankGroup(near, near, len(groups[0]))
    assert Members(4).group(RankGroup(3, 3, 4)) == RankGroup(3, 3, 4), "all of them, however unequal nodes are"
    with pytest.raises(ValueError, match="8 ranks do not make groups of 3"):
        Members(3).group(world)
    with pytest.raises(ValueError, match="runs of 4 ranks cut the 6 of a domain unevenly"):
        Members(4).group(RankGroup(6, 6, 12))


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
def test_inside_a_node_it_is_the_measured_law(operation: str) -> None:
    """(n-1)/n of the buffer over each port, twice that for an all-reduce, among 2, 4 and 8 ranks."""
    laws = GroupLaws(CLUSTER, WORKLOAD)
    for ranks, size in itertools.product((2, 4, 8), SIZES):
        law = collective_law(operation, "A100-SXM4-40GB", "nvlink3", 300e9, ranks)  # type: ignore[arg-type]
        assert law is not None
        wire = size * (ranks - 1) / ranks * (2 if operation == "all_reduce" else 1)
        call = CollectiveCall(operation, "forward", size, Members(ranks))  # type: ignore[arg-type]
        assert laws.seconds(call) == pytest.approx(float(law.seconds(wire)))


def test_an_all_reduce_of_all_ranks_is_that_of_dense_gradients() -> None:
    """As the step is priced: port and card at the same time, beside the latency of the line that is fastest for the
    port."""
    model = cost_model("physical", CLUSTER, WORKLOAD)
    kinds = rank_kinds(CLUSTER, WORKLOAD)
    for size in SIZES:
        line = reduction_line(model.schedule.lines["all_reduce"], kinds, size)
        loads = all_reduce_seconds(size, kinds[0], line.port_bytes_per_s[0])
        found = GroupLaws(CLUSTER, WORKLOAD).seconds(CollectiveCall("all_reduce", "backward", size, Members(32)))
        assert found == pytest.approx(line.latency_s + max(loads[LINK_OUT], loads[NIC_OUT]))


def test_peers_of_nodes_use_cards_alone() -> None:
    """An all-reduce among the four ranks at the same place of four nodes takes twice as long where two ranks share a
    card, and longer again where switches are oversubscribed."""
    seconds = []
    for cards, narrowing in ((8, 1.0), (4, 1.0), (4, 2.0)):
        cluster = topology(node_group("a", nodes=4, ranks=8, cards=cards), oversubscription=narrowing)
        calls = [CollectiveCall("all_reduce", "backward", size, Members(4, are_peers=True)) for size in (1e9, 2e9)]
        few, many = (GroupLaws(cluster, WORKLOAD).seconds(call) for call in calls)
        seconds.append(many - few)
    (kind,) = rank_kinds(CLUSTER, WORKLOAD, lambda _: RankGroup(1, 1, 4))
    assert seconds[0] == pytest.approx(2 * 1e9 * 3 / 4 / kind.nic_all_reduce)
    assert seconds[1] == pytest.approx(2 * seconds[0])
    assert seconds[2] > seconds[1]


def test_nothing_takes_no_time() -> None:
    """A group of one, and no bytes."""
    laws = GroupLaws(CLUSTER, WORKLOAD)
    assert laws.seconds(CollectiveCall("all_gather", "forward", 1e9, Members(1))) == 0.0
    assert laws.seconds(CollectiveCall("all_gather", "forward", 0.0, Members(8))) == 0.0
    two = [CollectiveCall("all_gather", "forward", 1e6, Members(8))] * 2
    assert laws.total_seconds(two) == 2 * laws.seconds(two[0])


def test_exchanges_and_reductions_have_rates_and_latencies_of_their_own() -> None:
    """Between nodes, among peers: an all-to-all takes the card's rate of exchanges, all others that of reductions; the
    halves of an all-reduce go around a ring, whose hops they wait for."""
    (kind,) = rank_kinds(CLUSTER, WORKLOAD, lambda _: RankGroup(1, 1, 4))
    laws, members = GroupLaws(CLUSTER, WORKLOAD), Members(4, are_peers=True)
    latency = {}
    for operation, rate, shares in (
        ("all_to_all", kind.nic_all_to_all, 3 / 4),
        ("all_reduce", kind.nic_all_reduce, 2 * 3 / 4),
        ("reduce_scatter", kind.nic_all_reduce, 3 / 4),
        ("all_gather", kind.nic_all_reduce, 3 / 4),
    ):
        few, many = (CollectiveCall(operation, "forward", size, members) for size in (1e9, 2e9))  # type: ignore[arg-type]
        assert laws.seconds(many) - laws.seconds(few) == pytest.approx(1e9 * shares / rate)
        latency[operation] = laws.latency_s(few)
    assert latency["reduce_scatter"] == latency["all_gather"]
    assert latency["all_gather"] - latency["all_to_all"] == pytest.approx(kind.ring_hops_s)


def test_a_port_and_a_card_are_busy_for_the_bytes_that_cross_them() -> None:
    """Inside a node a port, for what is left of the time besides the latency; among peers of nodes a card; neither
    where nothing has to move."""
    laws = GroupLaws(CLUSTER, WORKLOAD)
    near = CollectiveCall("all_reduce", "backward", 1e9, Members(8))
    port_s, card_s = laws.busy_s(near)
    assert port_s.tolist() == pytest.approx([laws.seconds(near) - laws.latency_s(near)])
    assert card_s.tolist() == [0.0]
    (kind,) = rank_kinds(CLUSTER, WORKLOAD, lambda _: RankGroup(1, 1, 4))
    _, card_s = laws.busy_s(CollectiveCall("all_gather", "forward", 1e9, Members(4, are_peers=True)))
    assert card_s.tolist() == pytest.approx([1e9 * 3 / 4 / kind.nic_all_reduce])
    for nothing in (
        CollectiveCall("all_gather", "forward", 1e9, Members(1)),
        CollectiveCall("all_gather", "forward", 0.0, Members(8)),
    ):
        assert [busy.tolist() for busy in laws.busy_s(nothing)] == [[0.0], [0.0]]


@pytest.mark.parametrize(("operation", "passes"), [("all_reduce", 2), ("all_gather", 1), ("all_to_all", 1)])
def test_all_but_a_ranks_own_share_crosses_its_port(operation: str, passes: int) -> None:
    """Three quarters of a buffer among four ranks; of an all-reduce twice: scattered, then gathered."""
    found = wire_bytes(operation, [0.0, 400.0], 4)  # type: ignore[arg-type]
    assert found.tolist() == [0.0, 300.0 * passes]


def test_the_protocol_of_a_size_is_the_fastest_one() -> None:
    """A short latency for few bytes, a high rate for many: they cross at 20 kB here."""
    law = CollectiveLaw((10e-6, 30e-6), (1e9, 1e10 * 9 / 10), "own", "x")
    crossing = 20e-6 / (1 / 1e9 - 1 / 9e9)
    for wire, line in ((0.99 * crossing, (10e-6, 1e9)), (1.01 * crossing, (30e-6, 9e9))):
        assert law.line_at(wire) == line
        assert law.seconds(wire) == pytest.approx(line[0] + wire / line[1])


def test_laws_are_borrowed_from_the_nearest_kin_and_say_so() -> None:
    """A device's own measurements; without them those of one on the same kind of link, scaled by bandwidth; without
    these, those of a kind that stands in for it; else none. Sizes that were measured go along."""
    files = collective_files()
    for file in files:
        for law in file.laws:
            for device in (*file.devices[:1], "NEW-1"):
                if device == "NEW-1" and not file.represents_link:
                    continue
                found = collective_law(law.operation, device, file.link, 2 * file.bytes_per_s, law.ranks)
                assert found is not None
                assert found.origin == ("own" if device != "NEW-1" else "sibling")
                if found.system == file.name:
                    assert found.buffer_bytes == law.buffer_bytes
                    assert found.bytes_per_s == tuple(2 * rate for _, rate in law.protocols)
    standing = {link: file for file in files for link in file.stands_in_for}
    assert standing
    for link, file in standing.items():
        if not any(each.link == link and each.represents_link for each in files):
            found = collective_law("all_reduce", "NEW-1", link, file.bytes_per_s, 8)
            assert found is not None
            assert (found.origin, found.system in {each.name for each in files if link in each.stands_in_for}) == (
                "generation",
                True,
            )
    assert collective_law("all_reduce", "NEW-1", "no such link", 1e9, 8) is None
