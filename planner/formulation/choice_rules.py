"""The allowed choices of a policy: limits of its runtime, its top, its rules and its groups, one after the other.

T tables.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.kinds import domains_per_tower
from cost_models.model import CostModel
from cost_models.shards import (
    COLUMN_WISE,
    PLACEMENT_TIERS,
    SHARDING_ROWS,
    SHARDINGS,
    STATE_PLACES,
    USUAL_SHARDINGS,
    WITHIN_NODE,
    Sharding,
)
from cost_models.workload.formats import DTYPES, FORMATS
from cost_models.workload.words import Dtype
from planner.formulation.allowed_choices import NO_LIMIT, AllowedChoices
from planner.formulation.choice_groups import groups_of, join, part
from planner.formulation.compressor_rules import keep_parts_together
from planner.formulation.copy_rules import narrow_copies, refuse_caches_of_copies, refuse_groups_of_copies
from planner.formulation.narrowing import Narrowing, Path, Step
from planner.formulation.policy import USUAL_TIERS, Limits, Policy, TableRule
from planner.formulation.precision_rules import PrecisionRules
from planner.formulation.rank_words import rank_ranges
from planner.formulation.runtimes import RUNTIMES
from planner.formulation.stash_rules import StashRules, widen_by_stash
from planner.formulation.variant_rules import variants_of
from planner.problem.numbers import Bools
from topologies.documents import Document
from topologies.errors import InputError
from topologies.fabric import Fabric

WIDEST = 1 << 40
"""A column multiple beyond every width."""


@dataclass(frozen=True)
class NumberRule:
    """A limit that is a number of each table."""

    unlimited: int
    """What tables that nothing limits have."""
    both: Callable[[int, int], int]
    """The limit of a table under two of them."""


NUMBER_RULES = {
    "max_shards": NumberRule(NO_LIMIT, min),
    "column_multiple": NumberRule(1, lambda one, other: min(math.lcm(one, other), WIDEST)),
}
"""The limits on numbers, by their keys in a policy."""


def allowed_choices(model: CostModel, policy: Policy, document: Document | None = None) -> AllowedChoices:
    """The allowed choices of a policy for the tables and ranks of a model.

    `document` says where each key of the policy stood. Raises InputError with every name that matches no table, every
    rank that does not exist and every table for which the limits leave nothing.
    """
    return _Resolver(model, policy, document or Document({}, "policy")).run()


class _Resolver(Narrowing):
    """Narrows by what a policy says."""

    def run(self) -> AllowedChoices:
        """Narrow step by step, then say everything that contradicts."""
        self.precision = PrecisionRules(self.model, self.policy.runtime)
        self.stash = StashRules(self.model, self.policy.runtime)
        self.numbers = {
            key: np.full(len(self.names), rule.unlimited, dtype=np.int64) for key, rule in NUMBER_RULES.items()
        }
        self._apply_runtime()
        narrow_copies(self)
        self._apply_towers()
        keep_parts_together(self)
        every = np.ones(len(self.names), dtype=bool)
        self._apply((), self.policy, every)
        for number, rule in enumerate(self.policy.tables):
            self._apply(("tables", number), rule, self._matching(("tables", number), rule))
        self._take_load_factors()
        together = groups_of(self, "colocate", self.policy.colocate)
        apart = groups_of(self, "separate", self.policy.separate)
        refuse_groups_of_copies(self, (*together, *apart))
        labels = join(self, together)
        part(self, apart, labels)
        self.follow_ranks()
        self._refuse_formats_of_runtime()
        refuse_caches_of_copies(self, self.precision.has_cache)
        self.precision.widen(self.tiers)
        widen_by_stash(self, self.stash)
        variants = variants_of(self)
        self.leave_what_there_is()
        self.refuse_nothing_left()
        if self.faults:
            raise InputError(dict.fromkeys(self.faults))
        sets, which = self.used_sets()
        return AllowedChoices(
            self.tiers,
            self.shardings,
            self.pairs,
            self.cache_fraction,
            self.precision.shares(),
            self._dtypes(),
            self._states(),
            rank_sets=sets,
            table_rank_set=which,
            together=tuple(group for _, _, group in together),
            apart=tuple(group for _, _, group in apart),
            rules=tuple(self.rules),
            steps=tuple(itertools.chain.from_iterable(self.steps.values())),
            variants=variants,
            **self.numbers,
        )

    def _apply_towers(self) -> None:
        """The tables of each tower stay on its ranks; none has rows in several nodes, or on some ranks of one, where
        vectors travel through towers."""
        if self.model.exchange == "sptt":
            every = np.ones(len(self.names), dtype=bool)
            allowed = [not row.cuts_into_sites for row in SHARDING_ROWS.values()]
            self.narrow("shardings", ("exchange",), "exchange sptt, which sums inside a host", every, allowed)
        topology, workload = self.model.topology, self.model.workload
        tower_of_rank = Fabric(topology).domain_of_rank // domains_per_tower(topology, workload)
        for number, tower in enumerate(workload.tower_parts):
            tables = np.isin(np.arange(len(self.names)), tower.tables)
            words = f"tower {number} of the workload"
            self.keep_within(("towers",), words, tables, tower_of_rank == number)
            self.rules.append((words, tables))

    def _apply_runtime(self) -> None:
        runtime, model = self.policy.runtime, self.model
        if runtime == "any":
            return
        rules = RUNTIMES[runtime]
        shardings = [sharding in rules.shardings for sharding in SHARDINGS]
        if runtime == "hugectr" and COLUMN_WISE in model.node_colocated_shardings:
            shardings[COLUMN_WISE] = True  # its own cost model's word for rows cut over some ranks
        if len(set(np.bincount(model.host_of_rank).tolist())) > 1:
            shardings = [may and s not in rules.needs_equal_nodes for s, may in zip(SHARDINGS, shardings, strict=True)]
        if runtime == "torchrec" and (model.node_of_rank != model.host_of_rank).any():
            # its cost model takes ranks of one scale-up domain for a node's; the runtime knows those of one host
            shardings = [may and s not in WITHIN_NODE for s, may in zip(SHARDINGS, shardings, strict=True)]
        every = np.ones(len(self.names), dtype=bool)
        words, formats = f"runtime {runtime}", rules.dtypes_in(model.workload.mode)
        self.narrow("tiers", ("runtime",), words, every, [tier in rules.tiers for tier in PLACEMENT_TIERS])
        self.narrow("shardings", ("runtime",), words, every, shardings)
        self.narrow("dtypes", ("runtime",), words, every, [dtype in formats for dtype in DTYPES])
        self.narrow("states", ("runtime",), words, every, [place in rules.state_places for place in STATE_PLACES])
        own = [model.workload.dtype_of(table) for table in model.workload.tables]
        self.runtime_lacks = np.array([dtype not in formats for dtype in own], dtype=bool)
        sequences = np.array([not table.pooled for table in model.workload.tables], dtype=bool)
        if rules.pooled_only and sequences.any():
            bags = f"{words} (not pooled)"
            self.narrow("shardings", ("runtime",), bags, sequences, [s not in rules.pooled_only for s in SHARDINGS])
        precise = np.array([table.precision_cache is not None for table in model.workload.tables], dtype=bool)
        if precise.any():
            beside = f"{words} (beside a precision_cache)"
            self.narrow(
                "tiers", ("runtime",), beside, precise, [tier in rules.precise_caches for tier in PLACEMENT_TIERS]
            )
        self._limit(("runtime",), words, "column_multiple", rules.column_multiple, every)
        self.rules.append((words, every))

    def _apply(self, path: Path, limits: Limits, tables: Bools) -> None:
        said: list[str] = []
        where = f" ({'.'.join(map(str, path))})" if path else ""
        for key, every, usual, words in (
            ("tiers", PLACEMENT_TIERS, USUAL_TIERS, limits.tiers),
            ("shardings", SHARDINGS, USUAL_SHARDINGS, limits.shardings),
        ):
            if words is not None:
                said += [f"{key} {', '.join(words)}"] if words != usual else []
                allowed = [word in words for word in every]
                self.narrow(key, (*path, key), f"{key} {', '.join(words)}{where}", tables, allowed)
        said += self._apply_pairs(path, limits.tiers_of or {}, tables, where)
        said += self._apply_formats(path, limits, tables, where)
        if limits.forbid_tiers is not None:
            said.append(f"forbid_tiers {', '.join(limits.forbid_tiers)}")
            allowed = [tier not in limits.forbid_tiers for tier in PLACEMENT_TIERS]
            self.narrow("tiers", (*path, "forbid_tiers"), said[-1] + where, tables, allowed)
        for key, numbers in (("ranks", limits.ranks), ("nodes", limits.nodes), ("forbid_ranks", limits.forbid_ranks)):
            if numbers is not None and self._exist((*path, key), numbers):
                said.append(f"{key} {rank_ranges(numbers)}")
                self.keep_within((*path, key), said[-1] + where, tables, self._rank_mask(key, numbers))
        for key in NUMBER_RULES:
            if (number := getattr(limits, key)) is not None:
                said.append(f"{key} {number}")
                self._limit((*path, key), said[-1] + where, key, number, tables)
        if said:
            self.rules.append((", ".join(said) + where, tables))

    def _limit(self, path: Path, words: str, key: str, number: int, tables: Bools) -> None:
        """Limit a number of some tables."""
        self.steps.setdefault(key, []).append(Step(path, words, tables, key, np.array([], dtype=bool)))
        of_table = self.numbers[key]
        of_table[tables] = [NUMBER_RULES[key].both(number, limit) for limit in of_table[tables].tolist()]

    def _apply_formats(self, path: Path, limits: Limits, tables: Bools, where: str) -> list[str]:
        """Formats of rows, places of optimizer state and shares of caches; what was asked for, in words."""
        said: list[str] = []
        if limits.precision_caches is not None:
            said.append(f"precision_caches {', '.join(map(str, limits.precision_caches))}")
            for message in self.precision.narrow(limits.precision_caches, tables):
                self.fault((*path, "precision_caches"), message)
        if limits.stash is not None:
            said.append(f"stash {', '.join(limits.stash)}")
            for message in self.stash.narrow(limits.stash, tables):
                self.fault((*path, "stash"), message)
        if limits.dtypes is not None:
            said.append(f"dtypes {', '.join(limits.dtypes)}")
            self.narrow("dtypes", (*path, "dtypes"), said[-1] + where, tables, [d in limits.dtypes for d in DTYPES])
            self.dtypes_named |= tables
            self._refuse_dtypes((*path, "dtypes"), limits.dtypes, tables)
            self._refuse_other_rows((*path, "dtypes"), limits.dtypes, tables)
        if limits.optimizer_state is not None:
            said.append(f"optimizer_state {', '.join(limits.optimizer_state)}")
            allowed = [place in limits.optimizer_state for place in STATE_PLACES]
            self.narrow("states", (*path, "optimizer_state"), said[-1] + where, tables, allowed)
            self.states_named |= tables
            if not self.model.chooses_dtypes and limits.optimizer_state != ("with_table",):
                message = f"the cost model {self.model.name} keeps state with the rows; use --cost-model physical"
                self.fault((*path, "optimizer_state"), message)
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
        self.narrow("pairs", (*path, "tiers_of"), "; ".join(said) + where, tables, every)
        return said

    def _take_load_factors(self) -> None:
        """Caches of the size that the workload's kernels are told, where the policy says no other."""
        settings = (table.kernel.cache_params for table in self.model.workload.tables)
        told = np.array([np.nan if each is None or each.load_factor is None else each.load_factor for each in settings])
        told[~np.isnan(self.cache_fraction)] = np.nan
        for share in np.unique(told[~np.isnan(told)]).tolist():
            self.rules.append((f"cache_params.load_factor {share:g} of the workload", told == share))
            self.cache_fraction[told == share] = share

    def _fix_cache(self, path: Path, share: float, tables: Bools) -> None:
        stated = self.cache_fraction[tables]
        if (other := stated[~np.isnan(stated) & (stated != share)]).size:
            self.fault(path, f"is {share:g} here and {other[0]:g} in another rule for the same table; give one")
        self.cache_fraction[tables] = share

    def _refuse_dtypes(self, path: Path, dtypes: Sequence[Dtype], tables: Bools) -> None:
        """Formats that no training kernel writes, and cost models that know one format of each table."""
        model = self.model
        if not model.chooses_dtypes:
            self.fault(path, f"the cost model {model.name} takes the workload's formats; use --cost-model physical")
        rigid = [dtype for dtype in dtypes if not FORMATS[dtype].updates_in_place]
        profiles = [model.workload.tables[t] for t in np.flatnonzero(tables & ~self.precision.has_cache).tolist()]
        bare = [table.name for table in profiles if table.precision_cache is None]
        if rigid and bare and model.workload.mode == "training":
            more = f" and {len(bare) - 1} more" if len(bare) > 1 else ""
            message = f"training cannot write {', '.join(rigid)} in place: give {bare[0]!r}{more} a precision_cache"
            self.fault(path, f"{message}, or name precision_caches here")

    def _refuse_other_rows(self, path: Path, dtypes: Sequence[Dtype], tables: Bools) -> None:
        """Formats of which some tables would have other rows than in their own: blocks are cut from one number."""
        workload = self.model.workload
        for profile in (workload.tables[t] for t in np.flatnonzero(tables).tolist()):
            own = workload.dtype_of(profile)
            others = [dtype for dtype in dtypes if FORMATS[dtype].ids_per_row != FORMATS[own].ids_per_row]
            if others:
                message = f"{others[0]} stores another number of rows of {profile.name!r} than its format, {own}"
                self.fault(path, f"{message}; state it as the dtype of the table in the workload")
                return

    def _dtypes(self) -> Bools:
        """[T, DTYPES] what is named, or the table's own."""
        own = np.array([DTYPES.index(self.model.workload.dtype_of(table)) for table in self.model.workload.tables])
        return np.where(self.dtypes_named[:, None], self.dtypes, np.arange(len(DTYPES)) == own[:, None])

    def _refuse_formats_of_runtime(self) -> None:
        """Tables for which no format is named and whose own the runtime does not have."""
        runtime, workload = self.policy.runtime, self.model.workload
        stranded = np.flatnonzero(self.runtime_lacks & ~self.dtypes_named)
        if len(stranded):
            first, more = workload.tables[int(stranded[0])], len(stranded) - 1
            others = f" and {more} more" if more else ""
            lacks = f"{runtime} has no tables in {workload.dtype_of(first)}, the format of {first.name!r}{others}"
            formats = ", ".join(RUNTIMES[runtime].dtypes_in(workload.mode))
            self.fault(("runtime",), f"{lacks}; give them one of {formats}")

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
            self.fault(path, f"there is no {what} {rank_ranges(outside)}: {there}")
        return not outside

    def _rank_mask(self, key: str, numbers: Sequence[int]) -> Bools:
        of = self.model.host_of_rank if key == "nodes" else np.arange(self.world)
        inside = np.isin(of, numbers)
        return ~inside if key == "forbid_ranks" else inside

    def _matching(self, path: Path, rule: TableRule) -> Bools:
        matching = self.named((*path, "match"), rule.match)
        if rule.unless is not None:
            matching = matching & ~self.named((*path, "unless"), rule.unless)
        return matching
