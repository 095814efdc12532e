"""What a placement waits for that is no sum over tables: whether it exchanges anything, and sums around all ranks.

A placement that replicates all tables exchanges nothing, and waits for no collective. Sums over all ranks go around a
ring of scale-up domains, a hop more for each beyond two, before their last bytes cross the cards: a stage that has some
lasts as long as all its bytes take, or as the ring and the sums alone do, whichever is longer. That ring is waited for
once, by whoever has any.

So placements are of three cases, and each stage that exchanges has lines for all of them (see `costs_at_lines`). At
those of the other cases a placement costs no less than at its own: what exchanges something costs many times what it is
to wait for where nothing is exchanged, and so do sums around all ranks where there are none.
See docs/decisions/0090-what-is-exchanged.md and 0098-the-ring-of-sums.md.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost_models.exchange_lines import Case, ExchangeLine
from cost_models.kinds import RankKind
from cost_models.resources import RING
from cost_models.schedule import Schedule
from cost_models.shards import DATA_PARALLEL, EXTENT_OF_SHARDING, MEMORY_HBM, WORLD, Blocks, Floats, Ints
from cost_models.tables import Tables

BEYOND = 1000.0
"""How many times what it is to wait for a block costs at lines of other cases: 1 would do, but the more it is, the less
of such blocks is in a relaxation there."""
OUTPUTS = "output_dist"
"""The stage whose line tells what case all lines are of: whatever exchanges anything sends vectors, or sums of them."""


@dataclass(frozen=True)
class Ring:
    """Where a stage waits for sums around all ranks, beside what else it exchanges; K kinds of rank."""

    column: int
    carriers: tuple[tuple[int, Floats], ...]
    """The columns of cards and of switches that the sums cross, and [K] how many ranks share an instance."""


@dataclass(frozen=True)
class Exchanged:
    """The stages that exchange, the lines of each, and what their sums over all ranks wait for."""

    usual: Mapping[str, tuple[ExchangeLine, ...]]
    """The lines of each stage for whoever exchanges anything."""
    may_be_nothing: bool
    """Whether there may be placements that exchange nothing."""
    ring_s: float
    """What sums around all ranks wait for, beyond what vectors do."""
    rings: tuple[Ring, ...]
    """One of each stage that has such sums; none where they wait for nothing more."""

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
            schedule.ring_s,
            _rings(schedule, len(kinds)),
        )

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Those of placements that there may be; first the one whose lines cost others least beyond their own."""
        are_there: dict[Case, bool] = {"around": bool(self.rings), "apart": True, "nothing": self.may_be_nothing}
        return tuple(case for case, is_there in are_there.items() if is_there)

    def lines(self, stage: str) -> tuple[ExchangeLine, ...]:
        """All lines of a stage, case by case."""
        own = self.usual[stage]
        nothing = (ExchangeLine(0.0, own[-1].port_bytes_per_s),)
        return tuple(itertools.chain(*(nothing if case == "nothing" else own for case in self.cases)))

    def numbers(self, stage: str, case: Case) -> range:
        """The lines of a stage, by number, of a case."""
        usual = len(self.usual[stage])
        first = self.cases.index(case) * usual
        return range(first, first + (1 if case == "nothing" else usual))

    def case_of(self, blocks: Blocks) -> Case:
        """That of a placement of these blocks."""
        blocks, _ = blocks.distinct
        if self.may_be_nothing and not _exchanges(blocks).any():
            return "nothing"
        return "around" if self.rings and _go_around(blocks).any() else "apart"

    def case_at(self, number: int) -> Case:
        """That of lines among which the exchange of vectors has the one with this number."""
        return self.cases[number // len(self.usual[OUTPUTS])]

    def protocols(self, others: Mapping[str, int], stages: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Every choice of a line for each of `stages`, of which `others` have so many lines whatever is exchanged."""
        return tuple(
            choice
            for case in self.cases
            for choice in itertools.product(
                *(range(others[stage]) if stage in others else self.numbers(stage, case) for stage in stages)
            )
        )

    def base_loads(self, loads: Floats, case: Case) -> Floats:
        """[K, C] loads before any table is placed, with what sums around all ranks wait for where there are some."""
        if case != "around":
            return loads
        waiting = loads.copy()
        waiting[:, [ring.column for ring in self.rings]] += self.ring_s
        return waiting

    def add_waits(self, parts: Sequence[Floats], blocks: Blocks, kind: int, case: Case, stages: Sequence[str]) -> None:
        """Add to what blocks cost on a kind of rank, [n, C] each of the parts that holders have, whole and by rows, and
        that every rank has, in columns of these stages: sums around all ranks, beside all bytes; and at lines of a
        case, what those cost that are of another."""
        fixed, _, everywhere = parts
        which = np.flatnonzero(_go_around(blocks))
        for ring in self.rings if len(which) else ():
            of_carriers = [fixed[which, column] * sharing[kind] for column, sharing in ring.carriers]
            fixed[which, ring.column] = np.max(of_carriers, axis=0)
            if case != "around":
                everywhere[which, ring.column] += BEYOND * self.ring_s
        if case == "nothing":
            which = np.flatnonzero(_exchanges(blocks))
            for column, stage in enumerate(stages):
                if stage in self.usual:
                    everywhere[which, column] += BEYOND * self.usual[stage][-1].latency_s


def _exchanges(blocks: Blocks) -> NDArray[np.bool_]:
    """[n] whether ranks exchange anything of a block."""
    return np.asarray(blocks.sharding != DATA_PARALLEL)


def _go_around(blocks: Blocks) -> NDArray[np.bool_]:
    """[n] whether all ranks have sums of a block."""
    return np.asarray((EXTENT_OF_SHARDING[blocks.sharding] == WORLD) & _exchanges(blocks))


def _rings(schedule: Schedule, kinds: int) -> tuple[Ring, ...]:
    """`Exchanged.rings` of a schedule."""
    found = []
    for number, column in enumerate(schedule.columns):
        if column.resource == RING:
            crossed = [
                c
                for c, each in enumerate(schedule.columns)
                if each.stage == column.stage and each.resource.kind in ("nic", "uplink")
            ]
            found.append(Ring(number, tuple((c, _sharing(schedule, c, kinds)) for c in crossed)))
    return tuple(found)


def _sharing(schedule: Schedule, column: int, kinds: int) -> Floats:
    """[K] ranks that share an instance of a column's resource."""
    instance: Ints = schedule.resource_of_rank(schedule.columns[column].resource)
    ranks = np.bincount(instance)[instance]
    return np.array([ranks[schedule.kind_of_rank == k].max() for k in range(kinds)], dtype=float)
