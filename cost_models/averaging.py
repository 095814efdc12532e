"""The averaging of copies after a step, and the straight lines of its law.

A rank averages the weights that it holds and, as often as it is told, their optimizer state, in a collective each
(`DMPCollection.sync`). Each of the two takes the line of the law with which it ends first for its own bytes, and the
mean step a share of it. See docs/decisions/0021-lines-of-laws.md.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cost_models.exchange_lines import ExchangeLine, fastest_line
from cost_models.groups import all_reduce
from cost_models.loads import BlockLoad, Loads
from cost_models.memory import Batching
from cost_models.replicas import Replicas
from cost_models.replication import Replication, copied_bytes, over_links
from cost_models.shards import MEMORY_HBM, Blocks, Floats
from cost_models.tables import Tables
from cost_models.workload.formats import DTYPES, FORMATS


@dataclass(frozen=True)
class AveragingLine:
    """A line for each of the two collectives."""

    replicas: Replicas
    weights: ExchangeLine
    state: ExchangeLine

    @property
    def latency_s(self) -> float:
        """That of a mean step."""
        weights, state = self.replicas.averaged_shares
        return weights * self.weights.latency_s + state * self.state.latency_s


class Averaging:
    """What ranks that hold the same shards average; K kinds of rank."""

    def __init__(
        self,
        replication: Replication,
        lines: Sequence[ExchangeLine],
        tables: Tables,
        whole: Blocks,
        batching: Batching,
        ranks: int,
    ) -> None:
        """`lines` are those of an all-reduce among such ranks, which hold the tables of the `whole` blocks, and `ranks`
        are those of a group."""
        self._replication, self._tables, self._batching, self._ranks = replication, tables, batching, ranks
        self._whole = whole
        replicas, self._all = replication.replicas, tuple(lines)
        self._pairs = tuple(self._possible_pairs())
        self.lines = tuple(AveragingLine(replicas, lines[weights], lines[state]) for weights, state in self._pairs)

    def loads(self, blocks: Blocks, kind: int, line: AveragingLine) -> Loads:
        """What averaging blocks loads on a kind of rank in the mean of all steps."""
        own = self._replication.copies.kinds[kind]
        link_s, card_s = np.zeros(len(blocks)), np.zeros(len(blocks))
        shares = self._replication.replicas.averaged_shares
        sizes = copied_bytes(self._tables, blocks, self._batching)
        for size, share, of_one in zip(sizes, shares, (line.weights, line.state), strict=True):
            moved = all_reduce(own.world, size * share, in_network=own.reduces_in_network)
            link_s = link_s + moved.port / of_one.port_bytes_per_s[kind]
            card_s = card_s + moved.card / own.nic_all_reduce
        return over_links(BlockLoad(by_rows=link_s), BlockLoad(by_rows=card_s))

    def balanced_line(self) -> int:
        """The fastest line where whole tables are spread evenly."""
        sizes = copied_bytes(self._tables, self._whole, self._batching)
        weights, state = (fastest_line(self._all, self._port_bytes(float(size.sum()) / self._ranks)) for size in sizes)
        return self._pairs.index((weights, state)) if (weights, state) in self._pairs else 0

    def _port_bytes(self, size: float) -> Floats:
        """[K] bytes that cross the port of each kind of rank where it averages so many."""
        kinds = self._replication.copies.kinds
        return np.array([float(all_reduce(k.world, size, in_network=k.reduces_in_network).port) for k in kinds])

    def _possible_pairs(self) -> Iterator[tuple[int, int]]:
        """The lines of weights and of state with which these may end first, whatever is placed.

        More bytes only favour lines of higher rates, so that those which end later for the least that the busiest rank
        may have never end first, and of two collectives that with fewer bytes takes no line of a higher rate. Several
        kinds of rank, and sums over ports and cards, are not compared. Without bytes over ports, or without a
        collective, the first line is as good as any.
        """
        kinds, every = self._replication.copies.kinds, range(len(self._all))
        is_plain = len(kinds) == 1 and kinds[0].world.domains == 1
        shares, may_be = self._replication.replicas.averaged_shares, []
        for part, share in enumerate(shares):
            if not share or not self._port_bytes(1.0).any():
                may_be.append(every[:1])
            elif is_plain:
                least = self._port_bytes(self._least_bytes(part) / self._ranks)
                may_be.append(every[fastest_line(self._all, least) :])
            else:
                may_be.append(every)
        more_state = (self._stored[:, 1] > self._stored[:, 0]).any()
        more_weights = (self._stored[:, 0] > self._stored[:, 1]).any()
        for weights, state in itertools.product(may_be[0], may_be[1]):
            crosses = (state > weights and not more_state) or (weights > state and not more_weights)
            if not (is_plain and all(shares) and crosses):
                yield weights, state

    @cached_property
    def _stored(self) -> Floats:
        """[formats, 2, T] bytes of weights and of state of each table in each format that is updated without a cache,
        which tables with copies do not have."""
        formats = [code for code, dtype in enumerate(DTYPES) if FORMATS[dtype].updates_in_place]
        stored = [replace(self._whole, dtype=np.full(len(self._whole), code)) for code in formats]
        return np.array([copied_bytes(self._tables, blocks, self._batching) for blocks in stored])

    def _least_bytes(self, part: int) -> float:
        """Bytes of weights (0) or state (1) that are averaged in any placement: of what a rank has no room to
        replicate, with gradients of the whole tables."""
        each = np.min(self._stored, axis=0)
        capacity = max(kind.memory_bytes[MEMORY_HBM] for kind in self._replication.copies.kinds)
        return float(each[part].sum()) - _most_within(each[part], 2 * each[0] + each[1], capacity)


def _most_within(values: Floats, sizes: Floats, capacity: float) -> float:
    """The most value of parts of things within a capacity (the fractional knapsack)."""
    order = np.argsort(-values / sizes, kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    return float((values[order] * np.clip((capacity - before) / sizes[order], 0.0, 1.0)).sum())
