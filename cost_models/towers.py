"""Vectors that travel through towers: inside their scale-up domain first, then among peers (SPTT, DMT).

A *tower* is a scale-up domain: a host, where the domain is one. *Peers* are the ranks at one place in all towers. A
rank that looked up some columns for all samples puts them in the order of the peers (permute), and exchanges them
inside its tower, after which each rank of it has all of the tower's columns, for the samples of its own peers. It puts
these in the order of the samples (transpose) and exchanges them with its peers alone: few messages, and long ones, of
which every card of a tower sends as much. Gradients come back the same way. No sum changes its order: the model is the
same (semantic-preserving tower transform; Luo et al., Disaggregated Multi-Tower, arXiv:2403.00877).

Tables whose rows the ranks of a node share are reduced on the way through the tower. Those whose rows all ranks share
have no tower: their partial sums are exchanged flat, beside the peers.
"""

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.dense import FORWARD_SHARE_OF_TRAFFIC
from cost_models.dense_size import (
    FORWARD_FLOPS_PER_MAC,
    TRAINING_FLOPS_PER_MAC,
    DenseSize,
    tower_sizes,
)
from cost_models.groups import all_reduce, all_to_all, reduce_scatter
from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad, Loads
from cost_models.memory import Batching
from cost_models.resources import DEVICE, LINK_IN, LINK_OUT, NIC_IN, NIC_OUT, Resource
from cost_models.shards import DATA_PARALLEL, EXTENT_OF_SHARDING, NODE, RANK, Blocks, Floats
from cost_models.stages import VectorExchange
from cost_models.tables import Tables
from cost_models.workload.dense_part import COMPUTE_DTYPE_BYTES
from cost_models.workload.formats import wire_bytes
from cost_models.workload.models import Workload
from topologies.cluster import Topology

RAILS_OUT, RAILS_IN = Resource("rails", "out"), Resource("rails", "in")
_READ_AND_WRITE = 2
_PEERS = {"output_dist": "peers", "gradient_dist": "peers_backward"}
PEERS = frozenset(_PEERS.values())
"""Terms of the exchanges among peers."""


def why_no_towers(topology: Topology) -> str | None:
    """Why vectors cannot travel through towers on a cluster, as the end of a sentence; None where they can."""
    groups = topology.nodes
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
    return None


def why_no_modules(topology: Topology, workload: Workload, exchange: VectorExchange) -> str | None:
    """Why the towers of a workload cannot be on a cluster, as the end of a sentence; None where they can, or where
    there are none."""
    if workload.towers is None:
        return None
    if (reason := why_no_towers(topology)) is not None:
        return reason
    size = min(topology.nodes[0].domain_ranks, topology.world_size)
    if (domains := topology.world_size // size) != workload.towers.count:
        return f"the cluster has {domains} scale-up domains, one for each tower; give count: {domains}"
    if workload.towers.has_modules and exchange != "sptt":
        return "modules work between the two exchanges of sptt; plan with --exchange sptt"
    return None


def has_towers(topology: Topology, exchange: VectorExchange) -> bool:
    """Whether vectors travel through towers; in a single one, or in towers of one rank, the exchange is flat."""
    return exchange == "sptt" and any(1 < group.domain_ranks < topology.world_size for group in topology.nodes)


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

    The busiest port of a tower sends as much as it gets, or more: what a rank gets is a share of what the others send.
    Both ways are taken as busy as that one.
    """
    extent, tower, moved = EXTENT_OF_SHARDING[blocks.sharding], kind.tower, np.zeros(len(blocks))
    vector_bytes, sum_bytes = element_sizes
    for number, element_bytes in ((RANK, vector_bytes), (NODE, sum_bytes * kind.sums_slowdown)):
        here, holders = extent == number, kind.extents[number]
        whole = _whole_bytes(tables, blocks, batching, element_bytes)[here]
        to_each = whole / holders.size / tower.size
        moved[here] = reduce_scatter(holders, whole).port + all_to_all(tower, to_each, beyond=holders).port
    load = BlockLoad(fixed=moved / (kind.link_all_to_all if port is None else port))
    return {LINK_OUT: load, LINK_IN: load}


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
    faster = kind.nic_all_to_all / kind.nic_peers
    peers = {resource: load * (in_tower * faster) for resource, load in loads.items() if resource.kind == "nic"}
    return {stage: flat, _PEERS[stage]: peers}


def module_loads(
    workload: Workload, kind: RankKind, batching: Batching, software: SoftwareCoefficients
) -> dict[str, dict[Resource, float]]:
    """Seconds on each rank of the largest module, for the samples of the rank's peers: its layers, what it gives to the
    peers and gets back, and its gradients, which the ranks of a tower reduce."""
    samples, sizes = batching.global_samples / kind.tower.size, tower_sizes(workload, software.tile_columns)
    training = workload.mode == "training"

    def seconds(size: DenseSize, flops_per_mac: int, crossings: float) -> float:
        moved = size.activation_elements * COMPUTE_DTYPE_BYTES[workload.dense.dtype] * crossings
        return samples * (flops_per_mac * size.tile_macs / kind.flops_per_s + moved / kind.hbm_bytes_per_s)

    passes = software.activation_passes.value
    forward = [seconds(size, FORWARD_FLOPS_PER_MAC, passes * FORWARD_SHARE_OF_TRAFFIC) for size in sizes]
    outputs = max(tower.outputs for tower in workload.tower_modules)
    beyond = batching.samples_per_rank * outputs * (kind.world.domains - 1) / kind.nic_peers
    words = workload.communication
    loads: dict[str, dict[Resource, float]] = {
        "tower_forward": {DEVICE: max(forward)},
        "peers": {NIC_OUT: beyond * wire_bytes(words.forward)},
    }
    if training:
        whole = [seconds(size, TRAINING_FLOPS_PER_MAC, passes) for size in sizes]
        gradient = max(size.parameters for size in sizes) * wire_bytes(workload.dense.gradient_format)
        link = float(all_reduce(kind.tower, gradient).port) / kind.link_all_reduce
        loads |= {
            "tower_backward": {DEVICE: max(w - f for w, f in zip(whole, forward, strict=True))},
            "peers_backward": {NIC_IN: beyond * wire_bytes(words.backward)},
            "all_reduce": {LINK_OUT: link, LINK_IN: link},
        }
    return loads


def _in_tower(blocks: Blocks) -> Floats:
    """[n] 1 for blocks that one tower holds."""
    return np.isin(EXTENT_OF_SHARDING[blocks.sharding], (RANK, NODE)).astype(np.float64)


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
