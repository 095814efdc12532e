"""Vectors that travel through towers: inside their tower first, then among peers (SPTT, DMT).

A *tower* is a scale-up domain (a host, where the domain is one), or several where the workload has fewer towers.
*Peers* are the ranks at one place in all towers. A rank that looked up some columns for all samples puts them in the
order of the peers (permute), and exchanges them with all ranks of its tower, over its port and, with those of the
tower's other domains, its card. After that each rank has all of the tower's columns, for the samples of its own peers.
It puts these in the order of the samples (transpose) and exchanges them with its peers alone: few messages, and long
ones, of which every card of a tower sends as much. Gradients come back the same way. No sum changes its order: the
model is the same (semantic-preserving tower transform; Luo et al., Disaggregated Multi-Tower, arXiv:2403.00877).

Tables whose rows the ranks of a node share are reduced on the way through the tower. Those whose rows all ranks share
have no tower: their partial sums are exchanged flat, beside the peers.
"""

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.dense import size_seconds
from cost_models.dense_size import (
    DenseSize,
    tower_sizes,
)
from cost_models.groups import all_reduce, all_to_all, reduce_scatter
from cost_models.kinds import RankKind, domains_per_tower
from cost_models.loads import BlockLoad, Loads
from cost_models.memory import Batching
from cost_models.resources import DEVICE, LINK_IN, LINK_OUT, NIC_IN, NIC_OUT, Resource
from cost_models.shards import DATA_PARALLEL, EXTENT_OF_SHARDING, EXTENTS, RANK, Blocks, Floats
from cost_models.stages import VectorExchange
from cost_models.tables import Tables
from cost_models.workload.formats import wire_bytes
from cost_models.workload.models import Workload
from topologies.cluster import Topology

RAILS_OUT, RAILS_IN = Resource("rails", "out"), Resource("rails", "in")
_READ_AND_WRITE = 2
_PEERS = {"output_dist": "peers", "gradient_dist": "peers_backward"}
_INSIDE = tuple(number for number, extent in enumerate(EXTENTS) if extent.reach != "world")
"""Extents whose blocks are on ranks of one tower."""
PEERS = frozenset(_PEERS.values())
"""Terms of the exchanges among peers."""


def why_no_towers(topology: Topology, workload: Workload) -> str | None:
    """Why the vectors of a workload cannot travel through towers on a cluster, as the end of a sentence; None where
    they can. What the ranks of a tower exchange crosses no oversubscribed switch."""
    if (reason := _why_uneven(topology, workload)) is not None:
        return reason
    domains, group = domains_per_tower(topology, workload), topology.nodes[0]
    of_domain = max(1, group.domain_ranks // group.accelerators.count)
    narrow = [level for level in topology.network.levels if level.oversubscription > 1]
    narrow = [level for level in narrow if domains > 1 and level.nodes < topology.node_count]
    for level in narrow:
        if level.nodes % (domains * of_domain):
            every = topology.node_count // of_domain
            sizes = [n for n in range(1, every) if every % n == 0]
            known = [n for n in sizes if n == 1 or not any(each.nodes % (n * of_domain) for each in narrow)]
            counts = " or ".join(str(every // n) for n in reversed(known))
            return (
                f"towers of {domains * of_domain} nodes begin or end among the {level.nodes} under an oversubscribed"
                f" {level.name}: what they exchange inside would load some of its uplinks and not others, which is not"
                f" planned (towers.count {counts} is)"
            )
    return None


def _why_uneven(topology: Topology, workload: Workload) -> str | None:
    groups, domains = topology.nodes, domains_per_tower(topology, workload)
    sizes = {min(group.domain_ranks, topology.world_size) for group in groups}
    if len(sizes) > 1:
        listed = " and ".join(map(str, sorted(sizes)))
        return f"its scale-up domains have {listed} ranks, and peers need as many in each"
    for group in groups:
        domain, node = min(group.domain_ranks, topology.world_size), group.accelerators.count
        if domain % node:
            return f"the {node} ranks of a node of {group.name} are not all in one scale-up domain"
        if node * group.count % domain:
            return f"the {group.count} nodes of {group.name} do not fill whole scale-up domains"
        if node * group.count % (domain * domains):
            return f"the {group.count} nodes of {group.name} do not fill whole towers of {domains} scale-up domains"
    return None


def why_no_modules(topology: Topology, workload: Workload, exchange: VectorExchange) -> str | None:
    """Why the towers of a workload cannot be on a cluster, as the end of a sentence; None where they can, or where
    there are none."""
    if workload.towers is None:
        return None
    size = min(topology.nodes[0].domain_ranks, topology.world_size)
    if (domains := topology.world_size // size) % workload.towers.count:
        few = f"the cluster has {domains} scale-up domains, no multiple of {workload.towers.count}"
        return f"{few}; give a count of towers that divides {domains}"
    if (reason := _why_uneven(topology, workload)) is not None:
        return reason
    if workload.towers.has_modules and exchange != "sptt":
        return "modules work between the two exchanges of sptt; plan with --exchange sptt"
    return None


def divides(workload: Workload, topology: Topology) -> bool:
    """Whether the towers of a workload have as many scale-up domains of a cluster each, or there are none."""
    return why_no_modules(topology, workload, "sptt") is None


def has_towers(topology: Topology, workload: Workload, exchange: VectorExchange) -> bool:
    """Whether vectors travel through towers; in a single one, or in towers of one rank, the exchange is flat."""
    domains = domains_per_tower(topology, workload)
    sizes = [domains * group.domain_ranks for group in topology.nodes]
    return exchange == "sptt" and any(1 < size < topology.world_size for size in sizes)


def output_intra_host(
    tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching, port: float | None = None
) -> Loads:
    """What the holders of a block send inside their tower: the vectors of all samples, or sums of them."""
    return _inside(tables, blocks, kind, batching, (tables.forward_wire_bytes, tables.forward_sum_bytes), port)


def gradient_intra_host(
    tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching, port: float | None = None
) -> Loads:
    """The same backwards, in the gradients' data type."""
    return _inside(tables, blocks, kind, batching, (tables.backward_wire_bytes, tables.backward_sum_bytes), port)


def _inside(
    tables: Tables,
    blocks: Blocks,
    kind: RankKind,
    batching: Batching,
    element_sizes: tuple[float, float],
    port: float | None,
) -> Loads:
    """`element_sizes` are bytes of a number of whole vectors, and of sums.

    The busiest port of a tower, and its busiest card, send as much as they get, or more: what a rank gets is a share of
    what the others send. Both ways are taken as busy as that one.
    """
    extent, tower = EXTENT_OF_SHARDING[blocks.sharding], kind.tower
    port_bytes, card_bytes = np.zeros(len(blocks)), np.zeros(len(blocks))
    vector_bytes, sum_bytes = element_sizes
    for number in _INSIDE:
        here, holders = extent == number, kind.extents[number]
        element_bytes = vector_bytes if number == RANK else sum_bytes * kind.sums_slowdown
        whole = _whole_bytes(tables, blocks, batching, element_bytes)[here]
        to_each = whole / holders.size / tower.size
        moved = all_to_all(tower, to_each, beyond=holders)
        port_bytes[here] = reduce_scatter(holders, whole).port + moved.port
        card_bytes[here] = moved.card
    link = BlockLoad(fixed=port_bytes / (kind.link_all_to_all if port is None else port))
    card = BlockLoad(fixed=card_bytes / kind.nic_in_tower)
    return {LINK_OUT: link, LINK_IN: link, NIC_OUT: card, NIC_IN: card}


def _whole_bytes(tables: Tables, blocks: Blocks, batching: Batching, element_bytes: float) -> Floats:
    """[n] bytes of the vectors of all samples."""
    moving = np.where(blocks.sharding == DATA_PARALLEL, 0.0, element_bytes)
    return batching.global_samples * tables.outputs_per_sample[blocks.table] * blocks.columns * moving


def by_term(stage: str, loads: Loads, blocks: Blocks, kind: RankKind) -> dict[str, Loads]:
    """The loads of a flat exchange of a stage as they are among peers: vectors cross no port of a tower in it, and
    cards at the rate of peers; partial sums of all ranks stay as they are."""
    if stage not in _PEERS:
        return {stage: loads}
    in_tower = _in_tower(blocks)
    flat = {resource: load * (1 - in_tower) for resource, load in loads.items()}
    faster, fewer = kind.nic_all_to_all / kind.nic_peers, kind.beyond_tower
    peers = {resource: load * (in_tower * faster * fewer) for resource, load in loads.items() if resource.kind == "nic"}
    return {stage: flat, _PEERS[stage]: peers}


def module_loads(
    workload: Workload, kind: RankKind, batching: Batching, software: SoftwareCoefficients
) -> dict[str, dict[Resource, float]]:
    """Seconds on each rank of the largest module, for the samples of the rank's peers: its layers, what it gives to the
    peers and gets back, and its gradients, which the ranks of a tower reduce."""
    samples, sizes = batching.global_samples / kind.tower.size, tower_sizes(workload)
    training = workload.mode == "training"

    def seconds(size: DenseSize, *, forward_only: bool) -> float:
        passes = software.activation_passes.value
        return size_seconds(workload, size, samples, kind, passes, forward_only=forward_only)

    forward = [seconds(size, forward_only=True) for size in sizes]
    outputs = max(tower.outputs for tower in workload.tower_modules)
    beyond = batching.samples_per_rank * outputs * (kind.world.domains / kind.tower_domains - 1) / kind.nic_peers
    words = workload.communication
    loads: dict[str, dict[Resource, float]] = {
        "tower_forward": {DEVICE: max(forward)},
        "peers": {NIC_OUT: beyond * wire_bytes(words.forward)},
    }
    if training:
        whole = [seconds(size, forward_only=False) for size in sizes]
        gradient = max(size.parameters for size in sizes) * wire_bytes(workload.dense.gradient_format)
        summed = all_reduce(kind.tower, gradient, in_network=kind.reduces_in_network)
        link = float(summed.port) / kind.link_all_reduce
        card = float(summed.card) / kind.in_tower.all_reduce_bytes_per_s
        loads |= {
            "tower_backward": {DEVICE: max(w - f for w, f in zip(whole, forward, strict=True))},
            "peers_backward": {NIC_IN: beyond * wire_bytes(words.backward)},
            "tower_all_reduce": {LINK_OUT: link, LINK_IN: link, NIC_OUT: card, NIC_IN: card},
        }
    return loads


def _in_tower(blocks: Blocks) -> Floats:
    """[n] 1 for blocks that one tower holds."""
    return np.isin(EXTENT_OF_SHARDING[blocks.sharding], _INSIDE).astype(np.float64)


def rearranging(tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching) -> dict[str, Loads]:
    """Whole vectors, read and written once more: by their holder in the order of the peers, and between the exchanges
    by all ranks of its tower alike, in the order of the samples. Sums are reduced in the order of the peers."""
    alone = EXTENT_OF_SHARDING[blocks.sharding] == RANK

    def seconds(element_bytes: float) -> Floats:
        moved = np.where(alone, _whole_bytes(tables, blocks, batching, element_bytes), 0.0)
        return np.asarray(_READ_AND_WRITE * moved / kind.hbm_bytes_per_s)

    forward, backward = seconds(tables.forward_wire_bytes), seconds(tables.backward_wire_bytes)
    size = kind.tower.size
    terms: dict[str, Loads] = {
        "permute": {DEVICE: BlockLoad(fixed=forward)},
        "transpose": {RAILS_OUT: BlockLoad(fixed=forward / size)},
    }
    if tables.training:
        terms["permute_backward"] = {DEVICE: BlockLoad(fixed=backward)}
        terms["transpose_backward"] = {RAILS_IN: BlockLoad(fixed=backward / size)}
    return terms
