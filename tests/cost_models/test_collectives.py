"""Traffic: what is sent arrives, and small cases by hand."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models import collectives
from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad, Loads
from cost_models.resources import Resource
from cost_models.shards import (
    DATA_PARALLEL,
    EXTENT_OF_SHARDING,
    MULTI_NODE_ROW_WISE,
    MULTI_RANK_ROW_WISE,
    NODE,
    RANK,
    RANK_PART,
    ROW_WISE,
    SHARDINGS,
    TABLE_ROW_WISE,
    WORLD,
    Blocks,
)
from cost_models.step import StepModel
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.loading import load_topology

BATCH, IDS, DIM = 4096, 10, 64


def spanning() -> Topology:
    """Four nodes of two ranks; a scale-up domain joins two nodes each."""
    group = node_group("a", nodes=4, ranks=2)
    group["links"]["scale_up"]["domain"] = 4
    return topology(group)


def islands() -> Topology:
    """Two nodes of four ranks, each of two scale-up domains."""
    group = node_group("a", nodes=2, ranks=4)
    group["links"]["scale_up"]["domain"] = 2
    return topology(group)


CLUSTERS = {
    "one rank": topology(node_group("a", ranks=1)),
    "one node": topology(node_group("a", ranks=4)),
    "two nodes": topology(node_group("a", nodes=2, ranks=2)),
    "PCIe only": topology(node_group("a", nodes=3, ranks=4, has_scale_up=False)),
    "domains that span nodes": spanning(),
    "two domains on a node": islands(),
    "NVL72": load_topology("gb200-nvl72"),
}


class Case:
    """One pooled table of 64 fp32 columns and 10 ids per sample, a block of each sharding, on one cluster."""

    def __init__(self, cluster: Topology, pooled: bool = True, takes_turns: bool = False) -> None:
        table = {"rows": 1000, "dim": DIM, "pooling_factor": IDS, "pooled": pooled}
        model = StepModel(cluster, workload([table], global_batch=BATCH, communication={"backward": "fp16"}))
        n = len(SHARDINGS)
        zeros = np.zeros(n, dtype=np.int64)
        self.blocks = Blocks(zeros, np.arange(n), zeros, np.full(n, DIM), np.zeros(n))
        self.kind: RankKind = replace(model.kinds[0], link_takes_turns=takes_turns)
        given = (model.tables, self.blocks, self.kind, model.batching)
        self.ids = collectives.id_exchange(*given)
        self.outputs = collectives.output_exchange(*given)
        self.gradients = collectives.gradient_exchange(*given)
        self.all_reduce = collectives.replica_all_reduce(model.tables, self.blocks, self.kind, 4)

    def part(self, loads: Loads, resource: str, part: str) -> np.ndarray:
        """[7] bytes of one part of a load."""
        rate = self.kind.nic_all_to_all if resource.startswith("nic") else self.kind.link_all_to_all
        return np.broadcast_to(getattr(loads.get(Resource.parse(resource), BlockLoad()), part) * rate, len(SHARDINGS))

    def total(self, loads: Loads, resource: str) -> np.ndarray:
        """[7] bytes over all ranks of the world, for a block of each sharding."""
        extent = EXTENT_OF_SHARDING[self.blocks.sharding]
        alone = (extent == RANK) | (extent == RANK_PART)
        holders = np.select([alone, extent == NODE, extent == WORLD], [1, self.kind.node_ranks, self.kind.world_size])
        replicated = self.blocks.sharding == DATA_PARALLEL
        return (
            holders * self.part(loads, resource, "fixed")
            + np.where(replicated, holders, 1) * self.part(loads, resource, "by_rows")
            + self.kind.world_size * self.part(loads, resource, "everywhere")
        )


def test_sums_cross_the_domains_of_a_node_by_card() -> None:
    """Four ranks in two domains of two: half of the whole inside, a quarter between them; then the samples beyond."""
    case = Case(CLUSTERS["two domains on a node"])
    whole = BATCH * DIM * 4
    reduced, sent = whole / 2, 0.0
    assert case.part(case.outputs, "link_out", "fixed")[TABLE_ROW_WISE] == pytest.approx(reduced + sent)
    between, beyond = whole / 2 / 2, whole / 4 * 4 / 8
    assert case.part(case.outputs, "nic_out", "fixed")[TABLE_ROW_WISE] == pytest.approx(between + beyond)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("exchange", ["ids", "outputs", "gradients"])
@pytest.mark.parametrize("way", ["link", "nic"])
def test_what_is_sent_is_received(cluster: str, exchange: str, way: str) -> None:
    """Over all ranks, bytes out are bytes in: for every sharding, on ports and on cards."""
    case = Case(CLUSTERS[cluster])
    loads = getattr(case, exchange)
    sent, received = (case.total(loads, f"{way}_{end}") for end in ("out", "in"))
    assert sent == pytest.approx(received, rel=1e-12)


@pytest.mark.parametrize("cluster", ["one rank", "one node", "NVL72"])
def test_traffic_within_a_domain_uses_no_card(cluster: str) -> None:
    """One node, or a domain that spans the world: nothing leaves by the cards; one rank alone sends nothing."""
    case = Case(CLUSTERS[cluster])
    for loads in (case.ids, case.outputs, case.gradients, case.all_reduce):
        for resource in ("nic_out", "nic_in"):
            load = loads[Resource.parse(resource)]
            assert not any(np.any(part) for part in (load.fixed, load.by_rows, load.everywhere))
        if cluster == "one rank":
            assert not np.any(case.total(loads, "link_out"))


@pytest.mark.parametrize("cluster", [name for name in CLUSTERS if name != "one rank"])
def test_ids_all_leave_their_rank_but_for_their_own(cluster: str) -> None:
    """Of all ids and their numbers the share (W-1)/W crosses a wire; the numbers go to each holder of a part."""
    case = Case(CLUSTERS[cluster])
    world = case.kind.world_size
    crossed = case.total(case.ids, "link_in") + case.total(case.ids, "nic_in")
    extent = EXTENT_OF_SHARDING[case.blocks.sharding]
    holders = np.select([extent == RANK, extent == RANK_PART, extent == NODE], [1, 1, case.kind.node_ranks], world)
    moved = BATCH * (IDS * 8 + holders * 4) * (world - 1) / world
    expected = np.where(case.blocks.sharding == DATA_PARALLEL, 0.0, moved)
    assert crossed == pytest.approx(expected)


@pytest.mark.parametrize("cluster", [name for name in CLUSTERS if name != "one rank"])
@pytest.mark.parametrize("exchange", ["ids", "outputs", "gradients"])
def test_a_port_that_takes_turns_is_busy_for_what_it_sends_and_gets(cluster: str, exchange: str) -> None:
    """Over all ranks, both ways are as busy as one way is where both go at once; cards are as they were, and nobody is
    busy for less than nothing."""
    apart, turning = (Case(CLUSTERS[cluster], takes_turns=turns) for turns in (False, True))
    once, both = getattr(apart, exchange), getattr(turning, exchange)
    for way in ("link_out", "link_in"):
        assert turning.total(both, way) == pytest.approx(apart.total(once, way), rel=1e-12)
        assert turning.part(both, way, "fixed").min() >= 0
        assert turning.part(both, way, "by_rows").min() >= 0
    for way in ("nic_out", "nic_in"):
        assert turning.total(both, way) == pytest.approx(apart.total(once, way), rel=1e-12)


@pytest.mark.parametrize("ranks", [2, 4])
def test_where_a_table_is_matters_less_to_ports_that_take_turns(ranks: int) -> None:
    """Of a whole table its holder sends the vectors of the others' samples, each of whom gets its own: of two ranks
    either moves as much, wherever the table is."""
    case = Case(topology(node_group("a", ranks=ranks)), takes_turns=True)
    table_wise, to_each = SHARDINGS.index("table_wise"), WHOLE / ranks
    for way in ("link_out", "link_in"):
        every = case.part(case.outputs, way, "everywhere")[table_wise]
        assert every == pytest.approx(to_each / 2)
        holder = every + case.part(case.outputs, way, "fixed")[table_wise]
        assert holder == pytest.approx(to_each * (ranks - 1) / 2)


def test_gradients_are_outputs_turned_round() -> None:
    """In half the bytes with fp16, what was sent is received and the other way round."""
    case = Case(CLUSTERS["two nodes"])
    for way in ("link", "nic"):
        assert case.total(case.gradients, f"{way}_in") == pytest.approx(case.total(case.outputs, f"{way}_out") / 2)
        assert case.part(case.gradients, f"{way}_in", "fixed") == pytest.approx(
            case.part(case.outputs, f"{way}_out", "fixed") / 2
        )


WHOLE = BATCH * DIM * 4
"""Bytes of all pooled outputs of the table: 2^20."""


@pytest.mark.parametrize(
    ("sharding", "link_out", "nic_out"),
    [
        ("table_wise", WHOLE / 4, WHOLE / 2),  # to one neighbour and to two ranks of the other node
        ("column_wise", WHOLE / 4, WHOLE / 2),
        ("table_column_wise", WHOLE / 4, WHOLE / 2),
        ("row_wise", WHOLE / 2, WHOLE / 4),  # half of the partial sums to the neighbour, then half of the half out
        ("table_row_wise", WHOLE / 2, WHOLE / 4),  # the same inside the node; then half of its half leaves
        ("grid_shard", WHOLE / 2, WHOLE / 4),
        ("data_parallel", 0, 0),
    ],
)
def test_outputs_on_two_nodes_of_two(sharding: str, link_out: float, nic_out: float) -> None:
    """Bytes that each holder sends of 2^20 bytes of outputs."""
    case = Case(CLUSTERS["two nodes"])
    i = SHARDINGS.index(sharding)
    assert case.part(case.outputs, "link_out", "fixed")[i] == pytest.approx(link_out)
    assert case.part(case.outputs, "nic_out", "fixed")[i] == pytest.approx(nic_out)


def test_everybody_receives() -> None:
    """Outputs of one holder reach all ranks: each receives as from a random holder; row_wise ones only by their own."""
    case = Case(CLUSTERS["two nodes"])
    table_wise, row_wise = SHARDINGS.index("table_wise"), ROW_WISE
    assert case.part(case.outputs, "nic_in", "everywhere")[table_wise] == pytest.approx(WHOLE / 4 * 2 / 4)
    assert case.part(case.outputs, "link_in", "everywhere")[table_wise] == pytest.approx(WHOLE / 4 * 1 / 4)
    assert case.part(case.outputs, "nic_in", "everywhere")[row_wise] == 0
    assert case.part(case.outputs, "nic_in", "fixed")[row_wise] == pytest.approx(WHOLE / 4)


def test_ids_on_two_nodes_of_two() -> None:
    """A holder receives a quarter of the ids from each rank: one neighbour's by its port, two by its card."""
    case = Case(CLUSTERS["two nodes"])
    ids, i = BATCH * IDS * 8, SHARDINGS.index("table_wise")
    assert case.part(case.ids, "link_in", "by_rows")[i] == pytest.approx(ids / 4)
    assert case.part(case.ids, "nic_in", "by_rows")[i] == pytest.approx(ids / 2)
    lengths = BATCH * 4
    assert case.part(case.ids, "link_in", "fixed")[i] == pytest.approx(lengths / 4)
    assert case.part(case.ids, "link_out", "everywhere")[i] == pytest.approx((ids + lengths) / 4 / 4)
    assert case.part(case.ids, "nic_out", "everywhere")[i] == pytest.approx((ids + lengths) / 4 / 4 * 2)


def test_replicas_reduce_a_dense_gradient() -> None:
    """1,000 rows x 64 columns x 4 bytes: 2 (D-1)/D of them by the port, 2/D (1 - D/W) by the card."""
    case = Case(CLUSTERS["two nodes"])
    gradient = 1000 * DIM * 4
    seconds = {str(resource): np.asarray(load.fixed) for resource, load in case.all_reduce.items()}
    assert seconds["link_out"][DATA_PARALLEL] * case.kind.link_all_reduce == pytest.approx(gradient)
    assert seconds["nic_out"][DATA_PARALLEL] * case.kind.nic_all_reduce == pytest.approx(gradient / 2)
    for values in seconds.values():
        assert np.count_nonzero(values) == 1


def test_a_sequence_sends_a_vector_for_every_id() -> None:
    """Ten times the bytes of a pooled table with ten ids per sample."""
    bag, sequence = Case(CLUSTERS["two nodes"]), Case(CLUSTERS["two nodes"], pooled=False)
    for resource in ("link_out", "nic_in"):
        assert sequence.total(sequence.outputs, resource) == pytest.approx(IDS * bag.total(bag.outputs, resource))


def over_nodes(case: Case, model: StepModel, nodes: int) -> dict[str, Loads]:
    """The exchanges of a block whose rows are over so many nodes."""
    return in_parts(case, model, MULTI_NODE_ROW_WISE, nodes * case.kind.node_ranks)


def in_parts(case: Case, model: StepModel, sharding: int, ranks: int) -> dict[str, Loads]:
    """The exchanges of a block whose rows are cut into parts on so many ranks in all."""
    zeros = np.zeros(1, dtype=np.int64)
    blocks = Blocks(zeros, zeros + sharding, zeros, zeros + DIM, np.zeros(1), holders=zeros + ranks)
    given = (model.tables, blocks, case.kind, model.batching)
    return {
        "ids": collectives.id_exchange(*given),
        "outputs": collectives.output_exchange(*given),
        "gradients": collectives.gradient_exchange(*given),
    }


@pytest.mark.parametrize("takes_turns", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_rows_over_all_nodes_exchange_what_rows_over_the_world_do(ranks: int, takes_turns: bool) -> None:
    """Sums of every node to the samples, or sums of all reduced in a ring: as many bytes on every port and card."""
    cluster = topology(node_group("a", nodes=4, ranks=ranks))
    table = {"rows": 1000, "dim": DIM, "pooling_factor": IDS}
    model = StepModel(cluster, workload([table], global_batch=BATCH, communication={"backward": "fp16"}))
    case = Case(cluster, takes_turns=takes_turns)
    for name, loads in over_nodes(case, model, 4).items():
        for resource, load in getattr(case, name).items():
            world = np.broadcast_to(load.fixed + load.by_rows / (4 * ranks) + load.everywhere, len(SHARDINGS))
            own = loads[resource]
            total = np.sum(np.broadcast_to(own.fixed + own.by_rows / (4 * ranks) + own.everywhere, 1))
            assert total == pytest.approx(world[ROW_WISE], rel=1e-12), (name, resource)


@pytest.mark.parametrize("takes_turns", [False, True])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_rows_over_ranks_exchange_between_those_of_whole_tables_and_of_rows_over_all(
    ranks: int, takes_turns: bool
) -> None:
    """Each holder sends a sum of every sample, as of a whole table; every rank gets so many times as much; ids go once,
    and their numbers to each holder. Over all ranks that is what rows over the world exchange."""
    cluster = topology(node_group("a", ranks=8))
    table = {"rows": 1000, "dim": DIM, "pooling_factor": IDS}
    model = StepModel(cluster, workload([table], global_batch=BATCH, communication={"backward": "fp16"}))
    case, whole, part = Case(cluster, takes_turns=takes_turns), BATCH * DIM * 4, BATCH / 8
    found, held = in_parts(case, model, MULTI_RANK_ROW_WISE, ranks), ranks / 8
    for name, loads in found.items():
        for resource, load in getattr(case, name).items():
            world = np.broadcast_to(load.fixed + load.by_rows / 8 + load.everywhere, len(SHARDINGS))[ROW_WISE]
            own = loads[resource]
            mean = np.sum(np.broadcast_to(held * own.fixed + own.by_rows / 8 + own.everywhere, 1))
            if ranks == 8:
                assert mean == pytest.approx(world, rel=1e-12), (name, resource)
    if takes_turns:
        return
    rate, (out, into) = case.kind.link_all_to_all, (Resource("link", way) for way in ("out", "in"))
    sums, ids = found["outputs"], found["ids"]
    assert np.sum(sums[out].fixed) * rate == pytest.approx(whole * 7 / 8)
    assert np.sum(sums[into].everywhere) * rate == pytest.approx(ranks * whole / 8 * 7 / 8)
    assert np.sum(ids[out].everywhere) * rate == pytest.approx(part * (IDS * 8 + ranks * 4) * 7 / 8)


def test_rows_over_two_nodes_send_as_much_from_each_as_rows_over_one() -> None:
    """A holder sends the same, every rank gets twice as much; ids go once, and their numbers to twice the ranks."""
    cluster = topology(node_group("a", nodes=4, ranks=2))
    table = {"rows": 1000, "dim": DIM, "pooling_factor": IDS}
    model = StepModel(cluster, workload([table], global_batch=BATCH, communication={"backward": "fp16"}))
    case = Case(cluster)
    loads = over_nodes(case, model, 2)
    for name, part, times in (("outputs", "fixed", 1), ("outputs", "everywhere", 2), ("ids", "by_rows", 1)):
        for resource in ("link_out", "link_in", "nic_out", "nic_in"):
            own = getattr(loads[name].get(Resource.parse(resource), BlockLoad()), part)
            rate = case.kind.nic_all_to_all if resource.startswith("nic") else case.kind.link_all_to_all
            of_one = case.part(getattr(case, name), resource, part)[TABLE_ROW_WISE]
            assert own * rate == pytest.approx(times * of_one, rel=1e-12)
    sent = float(loads["ids"][Resource.parse("nic_out")].everywhere[0]) * case.kind.nic_all_to_all
    samples, beyond = BATCH / 8, 6 / 8
    assert sent == pytest.approx(samples * (IDS * 8 + 2 * 2 * 4) * beyond, rel=1e-12)
