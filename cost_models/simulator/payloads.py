"""What goes between ranks in a step, and what their devices do with vectors that have come."""

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.kinds import RankKind
from cost_models.shards import EXTENTS, RANK, Floats, Ints
from cost_models.simulator.shard_counts import Flags, ShardCounts
from cost_models.tables import LENGTH_BYTES


def exchanged(counts: ShardCounts, factor: Floats, drawn: Floats | None) -> dict[str, Floats]:
    """Fields of a demand: [W] bytes that go between ranks.

    `factor` [n] are the ids of each shard over their mean, `drawn` [W, T] those of each rank's own samples; None for
    the mean.
    """
    tables, table, moving = counts.tables, counts.table, ~counts.replicated
    ids = counts.lookups * counts.share * tables.id_bytes[table] * factor
    sequence = np.where(tables.pooled[table] == 1, 1.0, factor)
    element = np.where(counts.extent == RANK, tables.forward_wire_bytes, tables.forward_sum_bytes)
    vector = tables.outputs_per_sample[table] * counts.blocks.columns * element * sequence

    def summed(values: Floats, kept: Flags) -> Floats:
        shards: Ints = np.flatnonzero(kept)
        return np.bincount(counts.rank[shards], weights=values[shards], minlength=counts.world).astype(np.float64)

    is_sum = moving & (counts.extent != RANK)
    elements = (counts.rows * counts.blocks.columns)[counts.replicated].sum() if tables.training else 0.0
    everywhere = np.ones(counts.world)
    opened = np.bincount(table[moving & counts.opens], minlength=len(tables.rows))
    mean = opened * tables.lookups_per_sample * tables.id_bytes
    lengths = np.where(moving, tables.features[table] * LENGTH_BYTES, 0.0)  # to whoever holds a part
    sent = (everywhere * mean.sum() if drawn is None else drawn @ mean) + lengths.sum()
    return {
        "ids_per_sample_bytes": sent,
        "ids_received_bytes": summed(ids + counts.samples * lengths, moving),
        "vectors_to_each_bytes": summed(counts.own_samples * vector, counts.extent == RANK),
        "sums_bytes": np.stack(
            [summed(counts.samples * vector, is_sum & (counts.extent == extent)) for extent in range(len(EXTENTS))]
        ),
        "replica_gradient_bytes": everywhere * elements * tables.gradient_wire_bytes,
        "sharded_weight_bytes": summed(counts.rows * counts.row_bytes(), moving),
        "sharded_state_bytes": summed(counts.rows * tables.row_state_bytes(table, counts.blocks.columns), moving),
    }


def rearranged(
    counts: ShardCounts, software: SoftwareCoefficients, kinds: tuple[RankKind, ...], kind_of_rank: Ints
) -> tuple[Floats, Floats]:
    """[W] device seconds, forward and backward, for vectors that have come: repeated for the samples that share them,
    put together from column blocks, and taken out of the format that they travelled in; forward also for ids that are
    sorted by holder."""
    tables, table, columns = counts.tables, counts.table, counts.blocks.columns
    alone = ~counts.replicated & (counts.extent == RANK)
    rates = np.array([kind.hbm_bytes_per_s for kind in kinds])[kind_of_rank]
    arrived = (counts.vectors * columns * ~counts.replicated)[counts.extent == RANK].sum() / counts.world
    decoded: Floats = arrived * software.codec_passes.value / rates
    repeats = tables.expanded_per_sample[table]
    copied = np.where(repeats > 0, repeats + tables.outputs_per_sample[table], 0.0)
    copied = copied * columns * (counts.replicated | counts.opens)
    copying: Floats = counts.own_samples * copied.sum() * tables.written_bytes / rates
    is_part = counts.opens & alone & (columns < tables.dim[table])
    pieces = counts.own_samples * tables.outputs_per_sample[table[is_part]]
    torn = (pieces * columns[is_part]).sum() * tables.written_bytes
    by_byte, by_piece = (
        np.array(each)[kind_of_rank] for each in zip(*((k.regroup_s, k.regroup_piece_s) for k in kinds), strict=True)
    )
    copying += (torn * by_byte + pieces.sum() * by_piece) / 2
    forward, backward = (copying + decoded * codec for codec in tables.codec_bytes)
    cut = counts.opens & ~counts.replicated & (counts.extent != RANK)
    ids = counts.own_samples * tables.lookups_per_sample[table[cut]].sum()
    forward = forward + ids * np.array([kind.id_cut_s for kind in kinds])[kind_of_rank]
    return forward, backward * tables.training
