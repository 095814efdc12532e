"""What limits leave of the ways to hold each table, narrowed key by key, and what contradicts.

T tables, W ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import (
    HOME_OF_TIER,
    PLACEMENT_TIERS,
    SHARDING_ROWS,
    SHARDINGS,
    STASHED_TIERS,
    STATE_PLACES,
    Ints,
    PlacementTier,
)
from cost_models.workload.formats import DTYPES
from cost_models.workload.table_names import are_named
from planner.formulation.policy import Policy
from planner.formulation.sites import sites_on
from planner.problem.numbers import Bools
from topologies.documents import Document
from topologies.errors import Fault
from topologies.messages import Key, nearest_name

Path = tuple[Key, ...]


@dataclass(frozen=True)
class Step:
    """One narrowing: the key that asks for it, in words, the tables it concerns, and what it leaves them."""

    path: Path
    words: str
    tables: Bools
    what: str
    """Tiers, shardings, pairs, dtypes, states, ranks, or the key of a number."""
    allowed: Bools
    """Of tiers, shardings, pairs [SHARDINGS, PLACEMENT_TIERS], dtypes, states or ranks; nothing of a number."""

    def forbids(self, sharding: int, tier: int) -> bool:
        """Whether tables that it concerns may not be held so."""
        if self.what == "pairs":
            return not self.allowed[sharding, tier]
        return (self.what == "tiers" and not self.allowed[tier]) or (
            self.what == "shardings" and not self.allowed[sharding]
        )


def memories_of(model: CostModel) -> set[str]:
    """The memories that a cluster has: HBM, and what has a capacity as the cost model counts."""
    has = zip(model.memories, model.memory_capacity, strict=True)
    return {memory for memory, capacity in has if memory == "hbm" or capacity.any()}


def memories_for(tier: PlacementTier) -> set[str]:
    """The memories that a tier needs beside HBM's caches: its home, and DDR for what is stashed."""
    return {HOME_OF_TIER[tier], *(["ddr"] if tier in STASHED_TIERS else [])}


@dataclass
class Narrowing:
    """The ways that are left, and every fault that was found."""

    model: CostModel
    policy: Policy
    document: Document
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        model = self.model
        self.names = [table.name for table in model.workload.tables]
        self.world = len(model.kind_of_rank)
        self.sets: list[Bools] = [np.ones(self.world, dtype=bool)]
        count = len(self.names)
        self.set_of = np.zeros(count, dtype=np.int64)
        self.tiers = np.ones((count, len(PLACEMENT_TIERS)), dtype=bool)
        self.shardings = np.ones((count, len(SHARDINGS)), dtype=bool)
        self.pairs = np.ones((count, len(SHARDINGS), len(PLACEMENT_TIERS)), dtype=bool)
        self.cache_fraction = np.full(count, np.nan)
        self.dtypes = np.ones((count, len(DTYPES)), dtype=bool)
        self.states = np.ones((count, len(STATE_PLACES)), dtype=bool)
        self.dtypes_named, self.states_named = (np.zeros(count, dtype=bool) for _ in range(2))
        self.runtime_lacks: Bools = np.zeros(count, dtype=bool)
        keys = ("tiers", "shardings", "pairs", "dtypes", "states", "ranks")
        self.steps: dict[str, list[Step]] = {key: [] for key in keys}
        self.rules: list[tuple[str, Bools]] = []

    def fault(self, path: Path, message: str) -> None:
        """Note what is wrong with a key."""
        self.faults.append(self.document.fault(path, message))

    def narrow(self, what: str, path: Path, words: str, tables: Bools, allowed: Sequence[bool] | Bools) -> None:
        """Leave some tables what is allowed of tiers, shardings, pairs, dtypes or states."""
        choices: Bools = getattr(self, what)
        choices[tables] &= np.array(allowed)
        self.steps[what].append(Step(path, words, tables, what, np.array(allowed)))

    def keep_within(self, path: Path, words: str, tables: Bools, ranks: Bools) -> None:
        """Narrow the rank sets of some tables: one new set for each that they had."""
        for number in np.unique(self.set_of[tables]).tolist():
            narrower = self.sets[number] & ranks
            index = next((i for i, known in enumerate(self.sets) if np.array_equal(known, narrower)), None)
            if index is None:
                index = len(self.sets)
                self.sets.append(narrower)
            self.set_of[tables & (self.set_of == number)] = index
        self.steps["ranks"].append(Step(path, words, tables, "ranks", ranks))

    def used_sets(self) -> tuple[Bools, Ints]:
        """[R, W] the rank sets that tables have, and [T] which: the first one holds all."""
        used = sorted({0, *self.set_of.tolist()})
        return np.stack([self.sets[number] for number in used]), np.searchsorted(used, self.set_of)

    def named(self, path: Path, patterns: Sequence[str]) -> Bools:
        """[T] tables that one of the patterns names; a pattern that names none is a fault."""
        matching = np.zeros(len(self.names), dtype=bool)
        for number, pattern in enumerate(patterns):
            mine = are_named(pattern, self.names)
            if not mine.any():
                self.fault((*path, number), f"no table is called {pattern!r}{nearest_name(pattern, self.names)}")
            matching |= mine
        return matching

    def follow_ranks(self) -> None:
        """A sharding needs all ranks of one of its sites: world-wide ones all, node-wide ones those of a node, or
        of two nodes where it cuts rows into parts."""
        sites, copies = sites_on(self.model.node_of_rank, self.model.extents), self.model.copies
        for number, of_copies in np.unique(np.stack([self.set_of, copies]), axis=1).T.tolist():
            ranks, tables = self.sets[number], (self.set_of == number) & (copies == of_copies)
            if ranks.all() or not ranks.any():
                continue
            whole = np.array([int(of_extent.all(ranks).sum()) for of_extent in sites])
            extents = self.model.extent_of(np.full(len(SHARDINGS), tables.argmax()), np.arange(len(SHARDINGS)))
            allowed = whole[extents] > [row.cuts_into_sites for row in SHARDING_ROWS.values()]
            last = next(step for step in reversed(self.steps["ranks"]) if (step.tables & tables).any())
            self.narrow("shardings", last.path, last.words, tables, allowed)

    def leave_what_there_is(self) -> None:
        """Drop the tiers whose memory the cluster lacks; name the tables for which all are such."""
        has_memory = memories_of(self.model)
        there = np.array([memories_for(tier) <= has_memory for tier in PLACEMENT_TIERS])
        stranded = np.asarray(self.tiers.any(axis=1) & ~(self.tiers & there).any(axis=1))
        for tiers in np.unique(self.tiers[stranded], axis=0):
            victims = np.flatnonzero(stranded & (self.tiers == tiers).all(axis=1)).tolist()
            named = [tier for tier, may in zip(PLACEMENT_TIERS, tiers.tolist(), strict=True) if may]
            needed = (memory for tier in named for memory in sorted(memories_for(tier) - has_memory))
            memories = ", ".join(dict.fromkeys(needed))
            more = f" and {len(victims) - 1} more" if len(victims) > 1 else ""
            last = next(step for step in reversed(self.steps["tiers"]) if step.tables[victims[0]])
            message = (
                f"{self.names[victims[0]]!r}{more} may only be in {', '.join(named)}, and {self.model.topology.name}"
                f" has no {memories} with a capacity and a bandwidth (as the cost model {self.model.name} counts);"
                " describe it in the topology, or allow another tier"
            )
            self.fault(last.path, message)
        self.tiers[~stranded] &= there
        has_place = np.array([place == "with_table" or place in has_memory for place in STATE_PLACES])
        stranded = np.asarray(self.states_named & self.states.any(axis=1) & ~(self.states & has_place).any(axis=1))
        if stranded.any():
            first = int(np.flatnonzero(stranded)[0])
            last = next(step for step in reversed(self.steps["states"]) if step.tables[first])
            places = [place for place, may in zip(STATE_PLACES, self.states[first].tolist(), strict=True) if may]
            message = (
                f"the optimizer state of {self.names[first]!r} may only be in {', '.join(places)}, and"
                f" {self.model.topology.name} has none; describe it in the topology, or allow with_table"
            )
            self.fault(last.path, message)
        self.states[~stranded] &= has_place

    def refuse_nothing_left(self) -> None:
        """Name the tables that have no rank, tier, format, place or sharding any more."""
        has_rank: Bools = np.array([bool(ranks.any()) for ranks in self.sets])[self.set_of]
        has_sharding: Bools = np.asarray(self.shardings.any(axis=1))
        self._refuse("ranks", ~has_rank, "rank")
        self._refuse("tiers", np.asarray(~self.tiers.any(axis=1)), "tier")
        self._refuse("dtypes", np.asarray(~self.dtypes.any(axis=1)), "dtype")
        self._refuse("states", np.asarray(~self.states.any(axis=1)), "place for optimizer state")
        self._refuse("shardings", has_rank & ~has_sharding, "sharding")
        left = self.pairs & self.shardings[:, :, None] & self.tiers[:, None, :]
        unpaired = has_sharding & self.tiers.any(axis=1) & ~left.any(axis=(1, 2))
        self._refuse("pairs", has_rank & unpaired, "sharding in any tier")

    def _refuse(self, what: str, tables: Bools, word: str) -> None:
        """One fault for all tables that the same limits leave without anything, at the last of the limits."""
        causes: dict[tuple[int, ...], list[int]] = {}
        for table in np.flatnonzero(tables).tolist():
            steps = tuple(i for i, step in enumerate(self.steps[what]) if step.tables[table])
            causes.setdefault(steps, []).append(table)
        for steps, victims in causes.items():
            more = f" and {len(victims) - 1} more" if len(victims) > 1 else ""
            words = " and ".join(dict.fromkeys(self.steps[what][i].words for i in steps))
            message = f"no {word} is left for {self.names[victims[0]]!r}{more}: {words}; allow more in one of them"
            self.fault(self.steps[what][steps[-1]].path, message)
