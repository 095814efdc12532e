"""The collectives of a step: ids to the shards, outputs to the samples, gradients back, gradients reduced.

Traffic inside a scale-up domain goes over the rank's port, the rest through its card; everybody also receives.
Row-cut blocks reduce-scatter hierarchically: inside the domain first, so that 1/(ranks of the domain) leaves it.
Symbols: W world, D ranks of a domain, L ranks of a node, B global batch, b = B/W.
"""

import numpy as np

from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad, Loads
from cost_models.memory import Batching
from cost_models.resources import LINK_IN, LINK_OUT, NIC_IN, NIC_OUT, Resource
from cost_models.shards import DATA_PARALLEL, EXTENT_OF_SHARDING, NODE, RANK, WORLD, Blocks, Floats
from cost_models.tables import LENGTH_BYTES, Tables

_REVERSED = {LINK_OUT: LINK_IN, LINK_IN: LINK_OUT, NIC_OUT: NIC_IN, NIC_IN: NIC_OUT}


def _exchanged(blocks: Blocks) -> Floats:
    """1 for blocks that take part in exchanges, 0 for replicated ones."""
    return np.where(blocks.sharding == DATA_PARALLEL, 0.0, 1.0)


def id_exchange(tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching) -> Loads:
    """Every rank sends the ids of its samples to the holders of the rows, and their numbers to each holder."""
    world, domain = kind.world_size, kind.domain_ranks
    moving = _exchanged(blocks)
    ids = tables.lookups_per_sample[blocks.table] * tables.id_bytes[blocks.table] * moving
    lengths = tables.features[blocks.table] * LENGTH_BYTES * moving
    holders = np.select(
        [EXTENT_OF_SHARDING[blocks.sharding] == extent for extent in (RANK, NODE)], [1, kind.node_ranks], world
    )
    got, got_lengths = (batching.global_samples * each / world for each in (ids, lengths))
    sent = batching.samples_per_rank * (ids + holders * lengths) / world
    link, nic = kind.link_all_to_all, kind.nic_all_to_all
    inside, outside = domain - 1, world - domain
    return {
        LINK_IN: BlockLoad(fixed=got_lengths * inside, by_rows=got * inside) / link,
        LINK_OUT: BlockLoad(everywhere=sent * inside / link),
        NIC_IN: BlockLoad(fixed=got_lengths * outside, by_rows=got * outside) / nic,
        NIC_OUT: BlockLoad(everywhere=sent * outside / nic),
    }


def output_exchange(tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching) -> Loads:
    """The holders send the vectors (or partial sums) of every sample to the rank of that sample."""
    return _exchange(tables, blocks, kind, batching, tables.forward_wire_bytes, tables.forward_sum_bytes)


def gradient_exchange(tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching) -> Loads:
    """The output exchange backwards: the same bytes in the other direction, in the gradients' data type."""
    forward = _exchange(tables, blocks, kind, batching, tables.backward_wire_bytes, tables.backward_sum_bytes)
    return {_REVERSED[resource]: load for resource, load in forward.items()}


def _exchange(
    tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching, wire_bytes: float, sum_bytes: float
) -> Loads:
    world, domain, node = kind.world_size, kind.domain_ranks, kind.node_ranks
    extent = EXTENT_OF_SHARDING[blocks.sharding]
    element_bytes = np.where(extent == RANK, wire_bytes, sum_bytes)
    slowdown = np.where(extent == RANK, 1.0, kind.sums_slowdown)
    per_sample = (
        tables.outputs_per_sample[blocks.table] * blocks.columns * element_bytes * _exchanged(blocks) * slowdown
    )
    whole = batching.global_samples * per_sample
    to_each = batching.samples_per_rank * per_sample
    by_extent = [extent == RANK, extent == NODE, extent == WORLD]
    reduced_in_node = whole * (node - 1) / node
    link_out = np.select(
        by_extent,
        [
            to_each * (domain - 1),
            reduced_in_node + whole / node * (domain - node) / world,
            whole * (domain - 1) / domain,
        ],
    )
    nic_out = np.select(
        by_extent,
        [to_each * (world - domain), whole / node * (world - domain) / world, whole / domain * (1 - domain / world)],
    )
    link_in = np.select(by_extent, [0.0 * whole, reduced_in_node, link_out])
    nic_in = np.where(extent == WORLD, nic_out, 0.0)
    link_in_all = np.select(by_extent, [to_each * (domain - 1) / world, to_each * (domain - node) / world, 0.0 * whole])
    nic_in_all = np.where(extent == WORLD, 0.0, to_each * (world - domain) / world)
    link, nic = kind.link_all_to_all, kind.nic_all_to_all
    return {
        LINK_OUT: BlockLoad(fixed=link_out) / link,
        LINK_IN: BlockLoad(fixed=link_in, everywhere=link_in_all) / link,
        NIC_OUT: BlockLoad(fixed=nic_out) / nic,
        NIC_IN: BlockLoad(fixed=nic_in, everywhere=nic_in_all) / nic,
    }


def all_reduce_seconds(gradient_bytes: Floats | float, kind: RankKind) -> dict[Resource, Floats | float]:
    """Ring inside the domain, then across domains with the shares: 2 (D-1)/D and 2/D (1 - D/W) of the bytes."""
    domain, world = kind.domain_ranks, kind.world_size
    link = 2 * gradient_bytes * (domain - 1) / domain / kind.link_all_reduce
    nic = 2 * gradient_bytes / domain * (1 - domain / world) / kind.nic_all_reduce
    return {LINK_OUT: link, LINK_IN: link, NIC_OUT: nic, NIC_IN: nic}


def replica_all_reduce(tables: Tables, blocks: Blocks, kind: RankKind, gradient_bytes: float) -> Loads:
    """Replicated tables reduce a dense gradient of the whole table on every rank."""
    replicated = blocks.sharding == DATA_PARALLEL
    elements = np.where(replicated, tables.rows[blocks.table].astype(float) * blocks.columns, 0.0)
    return {
        resource: BlockLoad(fixed=seconds)
        for resource, seconds in all_reduce_seconds(elements * gradient_bytes, kind).items()
    }
