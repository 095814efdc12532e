"""What a placement waits for that is no sum over tables: whether it exchanges anything, and sums around all ranks.

A placement that replicates all tables exchanges nothing, and waits for no collective. So each stage that exchanges has
one more line for these (see `costs_at_lines`), at which a table that does exchange something costs many times what it
is to wait for: at any lines a placement costs at least what it costs at its own.

Sums over all ranks are scattered around a ring of scale-up domains, a hop more for each beyond two. Vectors of whole
tables are on their way meanwhile. What a placement waits for is spread over the bytes that sums have where the rows of
all tables are cut: in full for such a placement, and less the more of what it sends are vectors, which hide it. See
docs/decisions/0090-what-is-exchanged.md.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.exchange_lines import ExchangeLine
from cost_models.kinds import RankKind
from cost_models.resources import DEVICE
from cost_models.schedule import Schedule
from cost_models.shards import DATA_PARALLEL, EXTENT_OF_SHARDING, MEMORY_HBM, WORLD, Blocks, Floats, Ints
from cost_models.tables import Tables

BEYOND = 1000.0
"""How many times what it is to wait for a block costs at lines of no exchange, if it exchanges something: 1 would do,
but the more it is, the less of such blocks is in a relaxation there."""
OUTPUTS = "output_dist"
"""The stage whose line tells what all lines are of: whatever exchanges anything sends vectors, or sums of them."""
_AROUND = (OUTPUTS, "gradient_dist")
"""Stages whose sums over all ranks go around a ring."""


@dataclass(frozen=True)
class Exchanged:
    """The stages that exchange, the lines of each, and what their sums over all ranks wait for."""

    usual: Mapping[str, tuple[ExchangeLine, ...]]
    """The lines of each stage for whoever exchanges anything."""
    may_be_nothing: bool
    """Whether there may be placements that exchange nothing."""
    around_s: Floats
    """[K, C] what all sums together wait for, beyond what vectors do, on each column of a kind of rank; divided by the
    ranks that share its resource."""
    numbers_per_sample: float
    """Of the vectors of all tables."""

    @classmethod
    def among(
        cls, schedule: Schedule, kinds: Sequence[RankKind], stages: Sequence[str], tables: Tables
    ) -> "Exchanged | None":
        """Those of some stages of a schedule in which all ranks exchange; tables that with their state have more bytes
        than a rank's memory are never all replicated. None without stages."""
        if not stages:
            return None
        whole = tables.whole
        row_bytes = [each(whole.table, whole.columns) for each in (tables.row_bytes, tables.row_state_bytes)]
        held = float(tables.rows @ sum(row_bytes))
        return cls(
            {stage: schedule.lines[stage] for stage in stages},
            held <= max(kind.memory_bytes[MEMORY_HBM] for kind in kinds),
            _around_s(schedule, kinds),
            float(tables.outputs_per_sample @ tables.dim),
        )

    def lines(self, stage: str) -> tuple[ExchangeLine, ...]:
        """All lines of a stage; the one of no exchange last."""
        own = self.usual[stage]
        return (*own, ExchangeLine(0.0, own[-1].port_bytes_per_s)) if self.may_be_nothing else own

    def numbers(self, stage: str, *, nothing: bool) -> Sequence[int]:
        """The lines of a stage, by number, for whoever exchanges nothing, or something."""
        usual = len(self.usual[stage])
        return range(usual, usual + 1) if nothing else range(usual)

    def is_nothing(self, blocks: Blocks) -> bool:
        """Whether a placement of these blocks takes the lines of no exchange."""
        return self.may_be_nothing and not _exchanges(blocks).any()

    def protocols(self, others: Mapping[str, int], stages: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Every choice of a line for each of `stages`, of which `others` have so many lines whatever is exchanged."""
        return tuple(
            choice
            for nothing in (False, True)[: 1 + self.may_be_nothing]
            for choice in itertools.product(
                *(range(others[stage]) if stage in others else self.numbers(stage, nothing=nothing) for stage in stages)
            )
        )

    def add_waits(self, fixed: Floats, blocks: Blocks, tables: Tables, kind: int) -> None:
        """Add to what blocks cost on ranks of a kind that hold them [n, C] what their sums over all ranks wait for."""
        which = np.flatnonzero((EXTENT_OF_SHARDING[blocks.sharding] == WORLD) & _exchanges(blocks))
        share = tables.outputs_per_sample[blocks.table[which]] * blocks.columns[which] / self.numbers_per_sample
        for column in np.flatnonzero(self.around_s[kind]) if len(which) else ():
            fixed[which, column] += share * self.around_s[kind, column]

    def add_beyond(self, everywhere: Floats, blocks: Blocks, number: int, stages: Sequence[str]) -> None:
        """Add to what blocks cost on every rank [n, C], in columns of these stages, what those cost that exchange
        something, if the line of the exchange of vectors with this number is one of no exchange."""
        if number < len(self.usual[OUTPUTS]):
            return
        which = _exchanges(blocks)
        for column, stage in enumerate(stages):
            if stage in self.usual:
                everywhere[which, column] += BEYOND * self.usual[stage][-1].latency_s


def _exchanges(blocks: Blocks) -> NDArray[np.bool_]:
    """[n] whether ranks exchange anything of a block."""
    return np.asarray(blocks.sharding != DATA_PARALLEL)


def _around_s(schedule: Schedule, kinds: Sequence[RankKind]) -> Floats:
    """[K, C] `Exchanged.around_s`."""
    ring_s = max(kind.ring_hops_s for kind in kinds)
    waits = np.zeros((len(kinds), len(schedule.columns)))
    for c, column in enumerate(schedule.columns):
        if schedule.stages[column.stage] in _AROUND and column.resource != DEVICE:
            instance: Ints = schedule.resource_of_rank(column.resource)
            sharing = np.bincount(instance)[instance]
            waits[:, c] = [ring_s / sharing[schedule.kind_of_rank == k].max() for k in range(len(kinds))]
    return waits
