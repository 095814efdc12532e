"""What a policy means for the tables of a workload on a cluster: a row of permits for each table.

T tables, W ranks, R sets of ranks.
"""

import copy
import fnmatch
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.shards import (
    COLUMN_WISE,
    EXTENT_OF_SHARDING,
    GRID_SHARD,
    HOME_OF_TIER,
    IS_SPLIT,
    NODE,
    PLACEMENT_TIERS,
    SHARDINGS,
    STATE_PLACES,
    TABLE_COLUMN_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
    WORLD,
    Floats,
    Ints,
    Sharding,
)
from cost_models.workload.formats import DTYPES, FORMATS
from cost_models.workload.models import Workload
from cost_models.workload.words import Dtype
from planner.policy import RUNTIMES, USUAL_TIERS, Amount, Group, Limits, Policy, TableRule, rank_ranges
from planner.problem import Bools, TableGroup
from topologies.cluster import Topology
from topologies.documents import Document, did_you_mean
from topologies.errors import Fault, InputError
from topologies.messages import Key

NO_LIMIT = np.iinfo(np.int64).max
WIDEST = 1 << 40
"""A column multiple beyond every width."""
Path = tuple[Key, ...]


@dataclass(frozen=True)
class Permits:
    """What each table may use."""

    tiers: Bools
    """[T, PLACEMENT_TIERS]"""
    shardings: Bools
    """[T, 7]"""
    pairs: Bools
    """[T, 7, PLACEMENT_TIERS] shardings in tiers; both must be permitted by themselves, too."""
    cache_fraction: Floats
    """[T] the only share of the rows that HBM may hold of a table in a tier that is partly there; NaN: any."""
    dtypes: Bools
    """[T, DTYPES] formats of the stored rows: the workload's alone, unless the policy names some."""
    states: Bools
    """[T, STATE_PLACES] where the optimizer state may be: with the rows alone, unless the policy names other places."""
    max_shards: Ints
    """[T] parts that a table may be cut into; NO_LIMIT where any number."""
    column_multiple: Ints
    """[T]"""
    rank_sets: Bools
    """[R, W] sets of ranks; the first one holds all."""
    table_rank_set: Ints
    """[T] the set within which every block of the table must stay."""
    together: tuple[TableGroup, ...]
    apart: tuple[TableGroup, ...]
    rules: tuple[tuple[str, Bools], ...]
    """What limits which tables: words, and [T]."""

    def may(self, sharding: int, tier: int) -> Bools:
        """[T] tables that may be held so."""
        return np.asarray(self.shardings[:, sharding] & self.tiers[:, tier] & self.pairs[:, sharding, tier])

    def may_at_all(self, sharding: int) -> Bools:
        """[T] tables that may be held so in some tier."""
        return np.asarray(np.any([self.may(sharding, tier) for tier in range(len(PLACEMENT_TIERS))], axis=0))

    def words(self, table: int) -> str:
        """The limits that hold for a table, in words; empty where there are none."""
        return "; ".join(words for words, tables in self.rules if tables[table])


def planning_model(name: str, topology: Topology, workload: Workload, policy: Policy) -> CostModel:
    """The cost model with the policy's reserve taken from its memory. Raises InputError for an unknown name."""
    model = cost_model(name, topology, workload)
    if policy.reserve == Policy().reserve:
        return model
    reduced = copy.copy(model)
    ranks_of_host = np.bincount(model.host_of_rank)
    kept = []
    for tier, capacity, pool in zip(model.memories, model.memory_capacity, model.memory_pool_of_rank, strict=True):
        amount: Amount = getattr(policy.reserve, tier)
        # Where the pool of a node is dealt out to its ranks, each part keeps its part free.
        ranks = np.maximum(ranks_of_host[model.host_of_rank], np.bincount(pool)[pool])
        part = 1.0 if tier == "hbm" else 1.0 / ranks
        size = np.bincount(pool, weights=np.broadcast_to(part, pool.shape) * amount.size, minlength=len(capacity))
        kept.append(np.maximum(capacity * (1 - amount.share) - size, 0.0))
    reduced.memory_capacity = tuple(kept)
    return reduced


def permits_of(model: CostModel, policy: Policy, document: Document | None = None) -> Permits:
    """The permits of a policy for the tables and ranks of a model.

    `document` says where each key of the policy stood. Raises InputError with every name that matches no table, every
    rank that does not exist and every table for which the limits leave nothing.
    """
    return _Resolver(model, policy, document or Document({}, "policy")).run()


@dataclass
class _Step:
    """One narrowing: the key that asks for it, in words, and the tables it concerns."""

    path: Path
    words: str
    tables: Bools


@dataclass
class _Resolver:
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
        self._runtime_lacks: Bools = np.zeros(count, dtype=bool)
        self.max_shards = np.full(count, NO_LIMIT)
        self.column_multiple = np.ones(count, dtype=np.int64)
        keys = ("tiers", "shardings", "pairs", "dtypes", "states", "ranks")
        self.steps: dict[str, list[_Step]] = {key: [] for key in keys}
        self.rules: list[tuple[str, Bools]] = []

    def run(self) -> Permits:
        """Narrow step by step, then say everything that contradicts."""
        self._apply_runtime()
        every = np.ones(len(self.names), dtype=bool)
        self._apply((), self.policy, every)
        for number, rule in enumerate(self.policy.tables):
            self._apply(("tables", number), rule, self._matching(("tables", number), rule))
        together = self._groups("colocate", self.policy.colocate)
        apart = self._groups("separate", self.policy.separate)
        labels = self._join(together)
        self._part(apart, labels)
        self._follow_ranks()
        self._refuse_formats_of_runtime()
        self._leave_what_there_is()
        self._refuse_nothing_left()
        if self.faults:
            raise InputError(dict.fromkeys(self.faults))
        sets, which = self._used_sets()
        return Permits(
            self.tiers,
            self.shardings,
            self.pairs,
            self.cache_fraction,
            self._dtypes(),
            self._states(),
            self.max_shards,
            self.column_multiple,
            sets,
            which,
            tuple(group for _, _, group in together),
            tuple(group for _, _, group in apart),
            tuple(self.rules),
        )

    def _fault(self, path: Path, message: str) -> None:
        self.faults.append(self.document.fault(path, message))

    # -- limits ------------------------------------------------------------------------------------------------

    def _apply_runtime(self) -> None:
        runtime, model = self.policy.runtime, self.model
        if runtime == "any":
            return
        rules = RUNTIMES[runtime]
        shardings = [sharding in rules.shardings for sharding in SHARDINGS]
        if runtime == "hugectr" and COLUMN_WISE in model.tied_shardings:
            shardings[COLUMN_WISE] = True  # its own cost model's word for rows cut over some ranks
        if len(set(np.bincount(model.host_of_rank).tolist())) > 1:
            shardings = [may and s not in rules.needs_equal_nodes for s, may in zip(SHARDINGS, shardings, strict=True)]
        if runtime == "torchrec" and (model.node_of_rank != model.host_of_rank).any():
            # its cost model takes ranks of one scale-up domain for a node's; the runtime knows those of one host
            of_node = (TABLE_ROW_WISE, TABLE_COLUMN_WISE, GRID_SHARD)
            shardings = [may and s not in of_node for s, may in enumerate(shardings)]
        every = np.ones(len(self.names), dtype=bool)
        words, formats = f"runtime {runtime}", rules.dtypes_in(model.workload.mode)
        self._narrow("tiers", ("runtime",), words, every, [tier in rules.tiers for tier in PLACEMENT_TIERS])
        self._narrow("shardings", ("runtime",), words, every, shardings)
        self._narrow("dtypes", ("runtime",), words, every, [dtype in formats for dtype in DTYPES])
        self._narrow("states", ("runtime",), words, every, [place in rules.state_places for place in STATE_PLACES])
        own = [model.workload.dtype_of(table) for table in model.workload.tables]
        self._runtime_lacks = np.array([dtype not in formats for dtype in own], dtype=bool)
        sequences = np.array([not table.pooled for table in model.workload.tables], dtype=bool)
        if rules.pooled_only and sequences.any():
            bags = f"{words} (not pooled)"
            self._narrow("shardings", ("runtime",), bags, sequences, [s not in rules.pooled_only for s in SHARDINGS])
        self.column_multiple = np.lcm(self.column_multiple, rules.column_multiple)
        self.rules.append((words, every))

    def _apply(self, path: Path, limits: Limits, tables: Bools) -> None:
        said: list[str] = []
        where = f" ({'.'.join(map(str, path))})" if path else ""
        for key, every, usual, words in (
            ("tiers", PLACEMENT_TIERS, USUAL_TIERS, limits.tiers),
            ("shardings", SHARDINGS, SHARDINGS, limits.shardings),
        ):
            if words is not None:
                said += [f"{key} {', '.join(words)}"] if words != usual else []
                allowed = [word in words for word in every]
                self._narrow(key, (*path, key), f"{key} {', '.join(words)}{where}", tables, allowed)
        said += self._apply_pairs(path, limits.tiers_of or {}, tables, where)
        said += self._apply_formats(path, limits, tables, where)
        if limits.forbid_tiers is not None:
            said.append(f"forbid_tiers {', '.join(limits.forbid_tiers)}")
            allowed = [tier not in limits.forbid_tiers for tier in PLACEMENT_TIERS]
            self._narrow("tiers", (*path, "forbid_tiers"), said[-1] + where, tables, allowed)
        for key, numbers in (("ranks", limits.ranks), ("nodes", limits.nodes), ("forbid_ranks", limits.forbid_ranks)):
            if numbers is not None and self._exist((*path, key), numbers):
                said.append(f"{key} {rank_ranges(numbers)}")
                self._keep_within((*path, key), said[-1] + where, tables, self._rank_mask(key, numbers))
        if limits.max_shards is not None:
            said.append(f"max_shards {limits.max_shards}")
            self.max_shards[tables] = np.minimum(self.max_shards[tables], limits.max_shards)
        if limits.column_multiple is not None:
            said.append(f"column_multiple {limits.column_multiple}")
            multiples = (math.lcm(limits.column_multiple, int(n)) for n in self.column_multiple[tables])
            self.column_multiple[tables] = [min(multiple, WIDEST) for multiple in multiples]
        if said:
            self.rules.append((", ".join(said) + where, tables))

    def _apply_formats(self, path: Path, limits: Limits, tables: Bools, where: str) -> list[str]:
        """Formats of rows, places of optimizer state and shares of caches; what was asked for, in words."""
        said: list[str] = []
        if limits.dtypes is not None:
            said.append(f"dtypes {', '.join(limits.dtypes)}")
            self._narrow("dtypes", (*path, "dtypes"), said[-1] + where, tables, [d in limits.dtypes for d in DTYPES])
            self.dtypes_named |= tables
            self._refuse_dtypes((*path, "dtypes"), limits.dtypes, tables)
        if limits.optimizer_state is not None:
            said.append(f"optimizer_state {', '.join(limits.optimizer_state)}")
            allowed = [place in limits.optimizer_state for place in STATE_PLACES]
            self._narrow("states", (*path, "optimizer_state"), said[-1] + where, tables, allowed)
            self.states_named |= tables
            if not self.model.chooses_dtypes and limits.optimizer_state != ("with_table",):
                message = f"the cost model {self.model.name} keeps state with the rows; use --cost-model physical"
                self._fault((*path, "optimizer_state"), message)
        if limits.cache_fraction is not None:
            said.append(f"cache_fraction {limits.cache_fraction:g}")
            self._fix_cache((*path, "cache_fraction"), limits.cache_fraction, tables)
        return said

    def _apply_pairs(
        self, path: Path, tiers_of: Mapping[Sharding, Sequence[str]], tables: Bools, where: str
    ) -> list[str]:
        """Narrow tiers by sharding; what was asked for, in words."""
        if not tiers_of:
            return []
        said = [f"{sharding} in {', '.join(tiers)} only" for sharding, tiers in tiers_of.items()]
        every = np.ones((len(SHARDINGS), len(PLACEMENT_TIERS)), dtype=bool)
        for sharding, tiers in tiers_of.items():
            every[SHARDINGS.index(sharding)] = [tier in tiers for tier in PLACEMENT_TIERS]
        self._narrow("pairs", (*path, "tiers_of"), "; ".join(said) + where, tables, every)
        return said

    def _fix_cache(self, path: Path, share: float, tables: Bools) -> None:
        stated = self.cache_fraction[tables]
        if (other := stated[~np.isnan(stated) & (stated != share)]).size:
            self._fault(path, f"is {share:g} here and {other[0]:g} in another rule for the same table; give one")
        self.cache_fraction[tables] = share

    def _narrow(self, what: str, path: Path, words: str, tables: Bools, allowed: Sequence[bool] | Bools) -> None:
        permits: Bools = getattr(self, what)
        permits[tables] &= np.array(allowed)
        self.steps[what].append(_Step(path, words, tables))

    def _refuse_dtypes(self, path: Path, dtypes: Sequence[Dtype], tables: Bools) -> None:
        """Formats that no training kernel writes, and cost models that know one format of each table."""
        model = self.model
        if not model.chooses_dtypes:
            self._fault(path, f"the cost model {model.name} takes the workload's formats; use --cost-model physical")
        rigid = [dtype for dtype in dtypes if not FORMATS[dtype].updates_in_place]
        profiles = [model.workload.tables[t] for t in np.flatnonzero(tables).tolist()]
        bare = [table.name for table in profiles if table.precision_cache is None]
        if rigid and bare and model.workload.mode == "training":
            more = f" and {len(bare) - 1} more" if len(bare) > 1 else ""
            message = f"training cannot write {', '.join(rigid)} in place: give {bare[0]!r}{more} a precision_cache"
            self._fault(path, message)

    def _dtypes(self) -> Bools:
        """[T, DTYPES] what is named, or the table's own."""
        own = np.array([DTYPES.index(self.model.workload.dtype_of(table)) for table in self.model.workload.tables])
        return np.where(self.dtypes_named[:, None], self.dtypes, np.arange(len(DTYPES)) == own[:, None])

    def _refuse_formats_of_runtime(self) -> None:
        """Tables for which no format is named and whose own the runtime does not have."""
        runtime, workload = self.policy.runtime, self.model.workload
        stranded = np.flatnonzero(self._runtime_lacks & ~self.dtypes_named)
        if len(stranded):
            first, more = workload.tables[int(stranded[0])], len(stranded) - 1
            others = f" and {more} more" if more else ""
            lacks = f"{runtime} has no tables in {workload.dtype_of(first)}, the format of {first.name!r}{others}"
            formats = ", ".join(RUNTIMES[runtime].dtypes_in(workload.mode))
            self._fault(("runtime",), f"{lacks}; give them one of {formats}")

    def _states(self) -> Bools:
        """[T, STATE_PLACES] what is named; of tables without optimizer state, nothing but with the rows."""
        of, every = self.model.tables, np.arange(len(self.names))
        stateless = of.row_state_bytes(every, of.dim) == 0
        plain = stateless | ~self.states_named
        return np.where(plain[:, None], np.arange(len(STATE_PLACES)) == 0, self.states)

    def _exist(self, path: Path, numbers: Sequence[int]) -> bool:
        key = str(path[-1])
        count = self.model.topology.node_count if key == "nodes" else self.world
        outside = [number for number in numbers if number >= count]
        if outside:
            what = "node" if key == "nodes" else "rank"
            name = self.model.topology.name
            there = f"{name} has {what}s 0 to {count - 1}" if count > 1 else f"{name} has {what} 0 only"
            self._fault(path, f"there is no {what} {rank_ranges(outside)}: {there}")
        return not outside

    def _rank_mask(self, key: str, numbers: Sequence[int]) -> Bools:
        of = self.model.host_of_rank if key == "nodes" else np.arange(self.world)
        inside = np.isin(of, numbers)
        return ~inside if key == "forbid_ranks" else inside

    def _keep_within(self, path: Path, words: str, tables: Bools, ranks: Bools) -> None:
        """Narrow the rank sets of some tables: one new set for each that they had."""
        for number in np.unique(self.set_of[tables]).tolist():
            narrower = self.sets[number] & ranks
            found = next((i for i, known in enumerate(self.sets) if np.array_equal(known, narrower)), None)
            if found is None:
                found = len(self.sets)
                self.sets.append(narrower)
            self.set_of[tables & (self.set_of == number)] = found
        self.steps["ranks"].append(_Step(path, words, tables))

    def _used_sets(self) -> tuple[Bools, Ints]:
        used = sorted({0, *self.set_of.tolist()})
        return np.stack([self.sets[number] for number in used]), np.searchsorted(used, self.set_of)

    # -- names -------------------------------------------------------------------------------------------------

    def _matching(self, path: Path, rule: TableRule) -> Bools:
        found = self._named((*path, "match"), rule.match)
        if rule.unless is not None:
            found = found & ~self._named((*path, "unless"), rule.unless)
        return found

    def _named(self, path: Path, patterns: Sequence[str]) -> Bools:
        """[T] tables that one of the patterns names; a pattern that names none is a fault."""
        found = np.zeros(len(self.names), dtype=bool)
        for number, pattern in enumerate(patterns):
            matches = re.compile(fnmatch.translate(pattern)).match
            mine = np.array([name == pattern or matches(name) is not None for name in self.names], dtype=bool)
            if not mine.any():
                self._fault((*path, number), f"no table is called {pattern!r}{_near(pattern, self.names)}")
            found |= mine
        return found

    # -- groups ------------------------------------------------------------------------------------------------

    def _groups(self, key: str, groups: Sequence[Group]) -> list[tuple[Path, Group, TableGroup]]:
        """The groups that ask for something: two tables or more to separate; one to hold together where there are two
        places or more."""
        found: list[tuple[Path, Group, TableGroup]] = []
        for number, group in enumerate(groups):
            tables = np.flatnonzero(self._named((key, number, "tables"), group.tables))
            zones = np.arange(self.world) if group.on == "rank" else self.model.host_of_rank
            if not len(tables) or (len(tables) == 1 if key == "separate" else zones[-1] == 0):
                continue
            found.append(((key, number), group, TableGroup(tables, zones)))
            mask = np.zeros(len(self.names), dtype=bool)
            mask[tables] = True
            self.rules.append((f"{key} on one {group.on} ({key}.{number})", mask))
        return found

    def _join(self, groups: Sequence[tuple[Path, Group, TableGroup]]) -> dict[str, Ints]:
        """Make colocated tables share their ranks; [T] for rank and node a label that tables held together share."""
        labels = {on: np.arange(len(self.names)) for on in ("rank", "node")}
        for _, group, members in groups:
            for on in ("rank", "node") if group.on == "rank" else ("node",):
                mine = np.unique(labels[on][members.tables])
                labels[on][np.isin(labels[on], mine)] = mine[0]
        for path, group, members in groups:
            tables = labels[group.on] == labels[group.on][members.tables[0]]
            zones = members.zone_of_rank
            common = np.ones(self.world, dtype=bool)
            for number in np.unique(self.set_of[tables]).tolist():
                common &= np.isin(zones, zones[self.sets[number]])
            words = f"{path[0]} on one {group.on} ({path[0]}.{path[1]})"
            self._keep_within(path, words, tables, common)
            if group.on == "rank":
                whole = [sharding == TABLE_WISE for sharding in range(len(SHARDINGS))]
            else:
                whole = [EXTENT_OF_SHARDING[sharding] != WORLD for sharding in range(len(SHARDINGS))]
            self._narrow("shardings", path, words, tables, whole)
        return labels

    def _part(self, groups: Sequence[tuple[Path, Group, TableGroup]], labels: dict[str, Ints]) -> None:
        for path, group, members in groups:
            held = labels[group.on][members.tables]
            twice = np.flatnonzero(np.bincount(held, minlength=1) > 1)
            if len(twice):
                names = [self.names[t] for t in members.tables[held == twice[0]][:2]]
                self._fault(path, f"keeps {names[0]!r} and {names[1]!r} apart, which colocate holds on one {group.on}")
            for number in np.unique(self.set_of[members.tables]).tolist():
                ranks = self.sets[number]
                inside = [t for t in members.tables.tolist() if not (self.sets[self.set_of[t]] & ~ranks).any()]
                places = len(np.unique(members.zone_of_rank[ranks]))
                if 0 < places < len(inside):
                    few = f"{places} {group.on}{'s' * (places > 1)}"
                    self._fault(path, f"cannot keep {len(inside)} tables apart that may only use {few}; name fewer")
            mask = np.zeros(len(self.names), dtype=bool)
            mask[members.tables] = True
            extents = [EXTENT_OF_SHARDING[sharding] != WORLD for sharding in range(len(SHARDINGS))]
            self._narrow("shardings", path, f"separate (separate.{path[1]})", mask, extents)

    # -- what is left ------------------------------------------------------------------------------------------

    def _follow_ranks(self) -> None:
        """World-wide shardings need all ranks, node-wide ones a whole node."""
        node_of_rank = self.model.node_of_rank
        for number in np.unique(self.set_of).tolist():
            ranks, tables = self.sets[number], self.set_of == number
            if ranks.all() or not ranks.any():
                continue
            whole = bool((np.bincount(node_of_rank, weights=~ranks) == 0).any())
            allowed = [extent != WORLD and (extent != NODE or whole) for extent in EXTENT_OF_SHARDING.tolist()]
            last = next(step for step in reversed(self.steps["ranks"]) if (step.tables & tables).any())
            self._narrow("shardings", last.path, last.words, tables, allowed)

    def _leave_what_there_is(self) -> None:
        """Drop the tiers whose memory the cluster lacks; name the tables for which all are such."""
        held = {
            memory
            for memory, capacity in zip(self.model.memories, self.model.memory_capacity, strict=True)
            if memory == "hbm" or capacity.any()
        }
        there = np.array([HOME_OF_TIER[tier] in held for tier in PLACEMENT_TIERS])
        stranded = np.asarray(self.tiers.any(axis=1) & ~(self.tiers & there).any(axis=1))
        for tiers in np.unique(self.tiers[stranded], axis=0):
            victims = np.flatnonzero(stranded & (self.tiers == tiers).all(axis=1)).tolist()
            named = [tier for tier, may in zip(PLACEMENT_TIERS, tiers.tolist(), strict=True) if may]
            memories = ", ".join(dict.fromkeys(HOME_OF_TIER[tier] for tier in named))
            more = f" and {len(victims) - 1} more" if len(victims) > 1 else ""
            last = next(step for step in reversed(self.steps["tiers"]) if step.tables[victims[0]])
            message = (
                f"{self.names[victims[0]]!r}{more} may only be in {', '.join(named)}, and {self.model.topology.name}"
                f" has no {memories} with a capacity and a bandwidth (as the cost model {self.model.name} counts);"
                " describe it in the topology, or allow another tier"
            )
            self._fault(last.path, message)
        self.tiers[~stranded] &= there
        has_place = np.array([place == "with_table" or place in held for place in STATE_PLACES])
        stranded = np.asarray(self.states_named & self.states.any(axis=1) & ~(self.states & has_place).any(axis=1))
        if stranded.any():
            first = int(np.flatnonzero(stranded)[0])
            last = next(step for step in reversed(self.steps["states"]) if step.tables[first])
            places = [place for place, may in zip(STATE_PLACES, self.states[first].tolist(), strict=True) if may]
            message = (
                f"the optimizer state of {self.names[first]!r} may only be in {', '.join(places)}, and"
                f" {self.model.topology.name} has none; describe it in the topology, or allow with_table"
            )
            self._fault(last.path, message)
        self.states[~stranded] &= has_place

    def _refuse_nothing_left(self) -> None:
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
            self._fault(self.steps[what][steps[-1]].path, message)


def _near(pattern: str, names: Sequence[str]) -> str:
    """The nearest name; of a pattern, the nearest to its letters."""
    if close := did_you_mean(re.sub(r"[*?\[\]!]", "", pattern), names):
        return close if close.startswith("; did") or len(names) <= 8 else f"; the first are {', '.join(names[:4])}"
    return ""


@dataclass(frozen=True)
class Held:
    """How a plan holds one table."""

    name: str
    tier: int
    sharding: int
    dtype: int
    state: int
    """Index into STATE_PLACES."""
    ranks: Ints
    """Of its shards."""
    parts: int
    """Shards, replicas counted once."""
    widths: Ints
    """Columns of its column blocks."""
    cache_fraction: float | None = None
    """Share of its rows that HBM holds, where it is in a tier that is partly there."""


def permitted_states(permits: Permits, tier: int) -> Bools:
    """[T, STATE_PLACES] places for the state of tables in a tier; where their rows are at home it is with them."""
    found, home = permits.states.copy(), HOME_OF_TIER[PLACEMENT_TIERS[tier]]
    if home in STATE_PLACES:
        at_home = STATE_PLACES.index(home)
        if not IS_SPLIT[tier]:
            found[:, 0] |= found[:, at_home]
        found[:, at_home] = False
    return found


def violations(permits: Permits, tables: Sequence[Held]) -> Iterator[str]:
    """Everything about held tables that the permits do not allow, naming the table, the rank and the limit."""
    for number, held in enumerate(tables):
        because = permits.words(number)
        if not permits.may(held.sharding, held.tier)[number]:
            yield (
                f"table {held.name}: {SHARDINGS[held.sharding]} in {PLACEMENT_TIERS[held.tier]} is not what the "
                f"policy allows: {because}"
            )
        if not permits.dtypes[number, held.dtype]:
            yield f"table {held.name}: is stored as {DTYPES[held.dtype]}, which neither workload nor policy says"
        if not permitted_states(permits, held.tier)[number, held.state]:
            yield f"table {held.name}: its optimizer state is in {STATE_PLACES[held.state]}, which no policy says"
        share = float(permits.cache_fraction[number])
        if held.cache_fraction is not None and not np.isnan(share) and held.cache_fraction != share:
            yield f"table {held.name}: HBM holds {held.cache_fraction:g} of its rows, against the policy: {because}"
        outside = held.ranks[~permits.rank_sets[permits.table_rank_set[number]][held.ranks]]
        if len(outside):
            yield f"table {held.name}: is on rank {outside[0]}, against the policy: {because}"
        if held.parts > permits.max_shards[number]:
            yield f"table {held.name}: is cut into {held.parts} parts, against the policy: {because}"
        odd = held.widths[(held.widths % permits.column_multiple[number] > 0) & (len(held.widths) > 1)]
        if len(odd):
            yield f"table {held.name}: has a block of {odd[0]} columns, against the policy: {because}"
    yield from _group_violations(permits, tables)


def _group_violations(permits: Permits, tables: Sequence[Held]) -> Iterator[str]:
    for group in permits.together:
        zones = [group.zone_of_rank[tables[t].ranks] for t in group.tables.tolist()]
        first = zones[0][0]
        for t, of_table in zip(group.tables.tolist(), zones, strict=True):
            if (of_table != first).any():
                rank = int(tables[t].ranks[of_table != first][0])
                yield (
                    f"table {tables[t].name}: is on rank {rank}, away from {tables[group.tables[0]].name}, against "
                    f"the policy: {permits.words(t)}"
                )
    for group in permits.apart:
        owner: dict[int, int] = {}
        for t in group.tables.tolist():
            for zone in np.unique(group.zone_of_rank[tables[t].ranks]).tolist():
                if owner.setdefault(zone, t) != t:
                    rank = int(tables[t].ranks[group.zone_of_rank[tables[t].ranks] == zone][0])
                    yield (
                        f"table {tables[t].name}: is on rank {rank}, beside {tables[owner[zone]].name}, against "
                        f"the policy: {permits.words(t)}"
                    )
