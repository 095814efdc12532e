"""The collectives of a step: ids to the shards, outputs to the samples, gradients back, gradients reduced.

Each is a collective among a group of ranks (see `groups`), whose bytes cross ports and cards; everybody also receives.
"""

import numpy as np

from cost_models.groups import all_reduce, all_to_all, reduce_scatter
from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad, Loads
from cost_models.memory import Batching
from cost_models.resources import LINK_IN, LINK_OUT, NIC_IN, NIC_OUT, Resource
from cost_models.shards import DATA_PARALLEL, EXTENT_OF_SHARDING, NODE, RANK, Blocks, Floats, Ints
from cost_models.tables import LENGTH_BYTES, Tables

_REVERSED = {LINK_OUT: LINK_IN, LINK_IN: LINK_OUT, NIC_OUT: NIC_IN, NIC_IN: NIC_OUT}
_NODE_SUMS = {"output_dist": "node_sums", "gradient_dist": "node_sums_backward"}


def _exchanged(blocks: Blocks) -> Floats:
    """1 for blocks that take part in exchanges, 0 for replicated ones."""
    return np.where(blocks.sharding == DATA_PARALLEL, 0.0, 1.0)


def _holders(blocks: Blocks, kind: RankKind) -> tuple[Ints, Ints | int]:
    """[n] ranks that hold a part of each block, and how many groups of ranks these are: each sums, and sends, by
    itself."""
    size = np.array([group.size for group in kind.extents])[EXTENT_OF_SHARDING[blocks.sharding]]
    if blocks.holders is None:
        return size, 1
    holders = np.where(blocks.holders > 0, blocks.holders, size)
    return holders, holders // size


def id_exchange(tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching, port: float | None = None) -> Loads:
    """Every rank sends the ids of its samples to the holders of the rows, and their numbers to each holder.

    `port` is the rate of its port, as of the two exchanges below; unset: that of many bytes.
    """
    world, moving = kind.world, _exchanged(blocks)
    ids = tables.lookups_per_sample[blocks.table] * tables.id_bytes[blocks.table] * moving
    lengths = tables.features[blocks.table] * LENGTH_BYTES * moving
    holders, _ = _holders(blocks, kind)
    got, got_lengths = (all_to_all(world, batching.global_samples * each / world.size) for each in (ids, lengths))
    sent = all_to_all(world, batching.samples_per_rank * (ids + holders * lengths) / world.size)
    link, nic = kind.link_all_to_all if port is None else port, kind.nic_all_to_all
    loads = {
        LINK_IN: BlockLoad(fixed=got_lengths.port, by_rows=got.port) / link,
        LINK_OUT: BlockLoad(everywhere=sent.port) / link,
        NIC_IN: BlockLoad(fixed=got_lengths.card, by_rows=got.card) / nic,
        NIC_OUT: BlockLoad(everywhere=sent.card) / nic,
    }
    own, own_lengths = (batching.global_samples * each / world.size for each in (ids, lengths))
    kept = BlockLoad(fixed=own_lengths, by_rows=own, everywhere=(own + holders * own_lengths) / world.size)
    return _in_turns(loads, kept / link, kind)


def output_exchange(
    tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching, port: float | None = None
) -> Loads:
    """The holders send the vectors (or partial sums) of every sample to the rank of that sample."""
    return _exchange(tables, blocks, kind, batching, (tables.forward_wire_bytes, tables.forward_sum_bytes), port)


def gradient_exchange(
    tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching, port: float | None = None
) -> Loads:
    """The output exchange backwards: the same bytes in the other direction, in the gradients' data type."""
    forward = _exchange(tables, blocks, kind, batching, (tables.backward_wire_bytes, tables.backward_sum_bytes), port)
    return {_REVERSED[resource]: load for resource, load in forward.items()}


def by_term(stage: str, loads: Loads, blocks: Blocks, kind: RankKind) -> dict[str, Loads]:
    """The loads of the exchange of a stage, by the term that they belong to: what cards have of sums that the ranks of
    a node reduce, or of their gradients, is a term of its own where they have another rate there."""
    if stage not in _NODE_SUMS or kind.nic_node_sums == kind.nic_all_to_all:
        return {stage: loads}
    cards = {resource: load for resource, load in loads.items() if resource.kind == "nic"}
    of_node = np.where(EXTENT_OF_SHARDING[blocks.sharding] == NODE, 1.0, 0.0)
    of_others = {resource: load * (1 - of_node) for resource, load in cards.items()}
    faster = kind.nic_all_to_all / kind.nic_node_sums
    sums = {resource: load * (of_node * faster) for resource, load in cards.items()}
    return {stage: loads | of_others, _NODE_SUMS[stage]: sums}


def _exchange(
    tables: Tables,
    blocks: Blocks,
    kind: RankKind,
    batching: Batching,
    element_sizes: tuple[float, float],
    port: float | None,
) -> Loads:
    """The ranks that hold a block reduce their partial sums, and send their shares to the ranks beyond them; where it
    is on several nodes, or ranks, those of each do, and what they send is added up where it arrives.

    `element_sizes` are bytes of a number of whole vectors, and of sums.
    """
    world, extent = kind.world, EXTENT_OF_SHARDING[blocks.sharding]
    wire_bytes, sum_bytes = element_sizes
    element_bytes = np.where(extent == RANK, wire_bytes, sum_bytes)
    slowdown = np.where(extent == RANK, 1.0, kind.sums_slowdown)
    per_sample = (
        tables.outputs_per_sample[blocks.table] * blocks.columns * element_bytes * _exchanged(blocks) * slowdown
    )
    whole = batching.global_samples * per_sample
    _, groups = _holders(blocks, kind)
    none = np.zeros(len(blocks))
    out_port, out_card, in_port, in_card, in_port_all, in_card_all = (none.copy() for _ in range(6))
    for number, holders in enumerate(kind.extents):
        here = extent == number
        if not here.any():
            continue
        summed = reduce_scatter(holders, whole[here])
        sent = all_to_all(world, whole[here] / holders.size / world.size, beyond=holders)
        got = all_to_all(world, batching.samples_per_rank * per_sample[here] / world.size, beyond=holders)
        out_port[here], out_card[here] = summed.port + sent.port, summed.card + sent.card
        in_port[here], in_card[here] = summed.port, summed.card
        in_port_all[here], in_card_all[here] = got.port, got.card
    link, nic = kind.link_all_to_all if port is None else port, kind.nic_all_to_all
    loads = {
        LINK_OUT: BlockLoad(fixed=out_port) / link,
        LINK_IN: BlockLoad(fixed=in_port, everywhere=in_port_all * groups) / link,
        NIC_OUT: BlockLoad(fixed=out_card) / nic,
        NIC_IN: BlockLoad(fixed=in_card, everywhere=in_card_all * groups) / nic,
    }
    own = np.where(extent == RANK, batching.samples_per_rank * per_sample, 0.0)
    return _in_turns(loads, BlockLoad(fixed=own, everywhere=own / world.size) / link, kind)


def _in_turns(loads: Loads, kept: BlockLoad, kind: RankKind) -> Loads:
    """The same where both ways of a port take turns: each is busy for half of what both carry, since the measured rate
    is that of as many bytes out as in.

    Both are known of one rank then: a holder does not exchange what it has `kept` for itself. Elsewhere what comes from
    holders is that of a random one, itself among them.
    """
    if not kind.link_takes_turns or kind.domain_ranks == 1:
        return loads
    both = (loads[LINK_OUT] + loads[LINK_IN] + BlockLoad(kept.fixed * -1, kept.by_rows * -1, kept.everywhere)) / 2
    return loads | {LINK_OUT: both, LINK_IN: both}


def all_reduce_seconds(
    gradient_bytes: Floats | float, kind: RankKind, port: float | None = None
) -> dict[Resource, Floats | float]:
    """Every rank of the world gets the sums of all dense gradients; `port` is the rate of its port, or that of many
    bytes."""
    moved = all_reduce(kind.world, gradient_bytes, in_network=kind.reduces_in_network)
    link = moved.port / (kind.link_all_reduce if port is None else port)
    nic = moved.card / kind.nic_all_reduce
    return {LINK_OUT: link, LINK_IN: link, NIC_OUT: nic, NIC_IN: nic}


def replica_all_reduce(tables: Tables, blocks: Blocks, kind: RankKind, gradient_bytes: float) -> Loads:
    """Replicated tables reduce a dense gradient of the whole table on every rank."""
    replicated = blocks.sharding == DATA_PARALLEL
    elements = np.where(replicated, tables.rows[blocks.table].astype(float) * blocks.columns, 0.0)
    return {
        resource: BlockLoad(fixed=seconds)
        for resource, seconds in all_reduce_seconds(elements * gradient_bytes, kind).items()
    }
