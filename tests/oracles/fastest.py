"""The fastest placement that a document may hold: by trying all, or by many tries where these are too many.

Loads and bytes are never below zero, so that what a part of the tables takes is a bound on what all take.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.shards import COLUMN_WISE, Floats, Ints
from planner.document.plan import TablePlan
from planner.document.planned import placed_tables
from tests.oracles.choices import Cluster, Family, TableChoices, Variant
from tests.oracles.covers import Covers

ROWS_TRIED = 300_000
"""Partial placements that are looked at before trying all is given up."""
STARTS = 12
"""Random starts of the local search."""


@dataclass(frozen=True)
class Found:
    """A placement below the limit, if any; and whether all were tried."""

    tables: tuple[TablePlan, ...] | None
    step_s: float
    is_exact: bool


@dataclass(frozen=True)
class _Held:
    """How one table is held in a placement under construction."""

    family: Family
    counts: Ints
    load: Floats
    ranks: int


def fastest(cluster: Cluster, limit_s: float, seed: int = 0, start: Sequence[TablePlan] = ()) -> Found:
    """The fastest placement that takes less than `limit_s`, at the protocols of the cluster, at those of `start`
    and at others by the seed; any that fits is good where the limit is infinite.

    Where not all can be tried, a local search starts from `start`, if that is given, and from random placements.
    """
    model, protocols = cluster.model, {cluster.model.protocols}
    if np.isfinite(limit_s):
        protocols |= {model.all_protocols[seed % len(model.all_protocols)]}
        protocols |= {model.linearised_at(placed_tables(start)).protocols} if start else set()
    best = Found(None, limit_s, len(protocols) == len(model.all_protocols) or bool(np.isinf(limit_s)))
    for each in sorted(protocols):
        found = _fastest_at(Cluster(cluster.model.at_protocols(each), cluster.rules), best.step_s, seed, start)
        best = Found(found.tables or best.tables, found.step_s, found.is_exact and best.is_exact)
    return best


def _fastest_at(cluster: Cluster, limit_s: float, seed: int, start: Sequence[TablePlan]) -> Found:
    """The fastest placement by what all cost at the protocols of the cluster's model."""
    choices = [cluster.choices(table, limit_s, seed) for table in range(len(cluster.rules.tables))]
    if cluster.overflow(cluster.base[None])[0] > 0:
        return Found(None, limit_s, True)
    if empty := [of for of in choices if not len(of.load)]:
        return Found(None, limit_s, any(of.complete for of in empty))
    groups = _Groups(cluster)
    trial = _Trial(cluster, choices, groups, limit_s)
    trial.run()
    best, best_s, exact = trial.best, trial.best_s, trial.is_exact and all(of.complete for of in choices)
    if not exact and not (best is not None and np.isinf(limit_s)):
        search = _LocalSearch(cluster, choices, groups, np.random.default_rng(seed))
        given = [_as_held(cluster, of, table) for of, table in zip(choices, start, strict=True)] if start else []
        for number in range(STARTS):
            known = [each for each in given if each is not None]
            held = search.run(known if number == 0 and given and len(known) == len(given) else None)
            if held is not None and (step_s := search.step_s(held)) < best_s:
                best, best_s = held, step_s
    if best is None:
        return Found(None, limit_s, exact)
    tables = tuple(cluster.table_plan(t, held.family, held.counts) for t, held in enumerate(best))
    return Found(tables, best_s, exact)


def _as_held(cluster: Cluster, choices: TableChoices, table: TablePlan) -> _Held | None:
    """How a document holds a table; None where that is none of the choices' variants."""
    variant = Variant(table.sharding, table.tier, table.cache_fraction or 0.0, table.dtype, table.optimizer_state)
    family = next((family for family in choices.families if family.variant == variant), None)
    if family is None:
        return None
    counts = np.zeros(family.pieces.shape[:2], dtype=np.int64)
    for start in np.unique(table.shards.column_start).tolist():
        first = int(np.argmax(table.shards.column_start == start))
        width, rank = int(table.shards.columns[first]) // family.unit, int(table.shards.rank[first])
        if width not in family.widths:
            return None
        counts[family.widths.index(width), cluster.place_of(table.sharding, rank)] += 1
    load = counts.ravel().astype(float) @ family.pieces.reshape(counts.size, -1)
    return _Held(family, counts, load, cluster.ranks_of(table.sharding, counts))


class _Groups:
    """Which choices of a table go with those of others."""

    def __init__(self, cluster: Cluster) -> None:
        self.groups = [group for group in cluster.rules.groups if group.tables]
        self.bits = [np.array([1 << zone for zone in group.zone_of_rank]) for group in self.groups]

    def zones(self, number: int, ranks: Ints) -> Ints:
        """[n] a bit for each zone of a group that ranks [n] lie in."""
        found = np.zeros(len(ranks), dtype=np.int64)
        for rank, bit in enumerate(self.bits[number].tolist()):
            found |= np.where(ranks >> rank & 1, bit, 0)
        return found

    def fit(self, table: int, ranks: Ints, others: dict[int, int]) -> np.ndarray:
        """[n] whether a table on ranks [n] keeps to the groups, beside others on theirs."""
        fits = np.ones(len(ranks), dtype=bool)
        for number, group in enumerate(self.groups):
            if table not in group.tables:
                continue
            zones = self.zones(number, ranks)
            if group.together:
                fits &= (zones & (zones - 1)) == 0
            for other in group.tables:
                if other in others and other != table:
                    theirs = self.zones(number, np.array([others[other]]))[0]
                    fits &= zones == theirs if group.together else (zones & theirs) == 0
        return fits


class _Trial:
    """Depth first over the tables, with what the others take at least; the last tables all at once."""

    def __init__(self, cluster: Cluster, choices: list[TableChoices], groups: _Groups, limit_s: float) -> None:
        self.cluster, self.choices, self.groups = cluster, choices, groups
        self.best_s, self.best, self.is_exact, self.left = limit_s, None, True, ROWS_TRIED
        self.wants_any = bool(np.isinf(limit_s))
        least = [of.load.min(axis=0) for of in choices]
        self.order = sorted(
            range(len(choices)), key=lambda t: -float(cluster.step_s((cluster.base + least[t])[None])[0])
        )
        self.rest = [
            sum((least[t] for t in self.order[depth + 1 :]), np.zeros(cluster.size)) for depth in range(len(least))
        ]

    best: list[_Held] | None

    def run(self) -> None:
        """Set `best`, `best_s` and `is_exact`."""
        self._descend(0, self.cluster.base, {}, {})

    def _descend(self, depth: int, load: Floats, held: dict[int, _Held], ranks: dict[int, int]) -> None:
        table = self.order[depth]
        choices = self.choices[table]
        self.left -= len(choices.load)
        if self.left < 0:
            self.is_exact = False
            return
        total = load + choices.load
        least = total + self.rest[depth]
        step_s = self.cluster.step_s(least)
        fits = (self.cluster.overflow(least) <= 0) & (step_s < self.best_s)
        fits &= self.groups.fit(table, choices.ranks, ranks)
        index = np.flatnonzero(fits)
        for i in index[np.argsort(step_s[index], kind="stable")].tolist():
            if step_s[i] >= self.best_s or (self.best is not None and self.wants_any):
                return
            own = _Held(choices.families[choices.family[i]], choices.counts[i], choices.load[i], int(choices.ranks[i]))
            if depth + 1 == len(self.order):
                found = {**held, table: own}
                self.best, self.best_s = [found[t] for t in range(len(found))], float(step_s[i])
                return
            self._descend(depth + 1, total[i], {**held, table: own}, {**ranks, table: own.ranks})


class _LocalSearch:
    """One table after the other to its best choice beside the others, from random ones, until none gets better."""

    def __init__(
        self, cluster: Cluster, choices: list[TableChoices], groups: _Groups, random: np.random.Generator
    ) -> None:
        self.cluster, self.choices, self.groups, self.random = cluster, choices, groups, random

    def step_s(self, held: list[_Held]) -> float:
        """Infinite where it does not fit."""
        load = self.cluster.base + sum(each.load for each in held)
        return float("inf") if self.cluster.overflow(load[None])[0] > 0 else float(self.cluster.step_s(load[None])[0])

    def run(self, start: list[_Held] | None) -> list[_Held] | None:
        """A placement from which no table can go to a better place; None where no random start keeps to the groups."""
        held = self._start() if start is None else list(start)
        if held is None:
            return None
        for _ in range(20):
            before = self._score(self.cluster.base + sum(each.load for each in held))
            for table in self.random.permutation(len(held)).tolist():
                held[table] = self._improved(table, held)
            if not self._score(self.cluster.base + sum(each.load for each in held)) < before:
                break
        return held

    def _start(self) -> list[_Held] | None:
        found: dict[int, _Held] = {}
        for table in self.random.permutation(len(self.choices)).tolist():
            fits = self.groups.fit(table, self.choices[table].ranks, {t: each.ranks for t, each in found.items()})
            if not fits.any():
                return None
            found[table] = self._choice(table, int(self.random.choice(np.flatnonzero(fits))))
        return [found[table] for table in range(len(found))]

    def _choice(self, table: int, i: int) -> _Held:
        of = self.choices[table]
        return _Held(of.families[of.family[i]], of.counts[i], of.load[i], int(of.ranks[i]))

    def _score(self, load: Floats) -> float:
        return float(self._scores(load[None])[0])

    def _scores(self, load: Floats) -> Floats:
        """[n] the step; far beyond any where memories overflow, the more so the more they do."""
        overflow = self.cluster.overflow(load)
        return self.cluster.step_s(load) + np.where(overflow > 0, 1e9 * (1 + overflow), 0.0)

    def _improved(self, table: int, held: list[_Held]) -> _Held:
        others = {t: each.ranks for t, each in enumerate(held) if t != table}
        beside = self.cluster.base + sum((each.load for t, each in enumerate(held) if t != table), np.zeros(1))
        best, best_s = held[table], self._score(beside + held[table].load)
        of = self.choices[table]
        scores = np.where(self.groups.fit(table, of.ranks, others), self._scores(beside + of.load), np.inf)
        if scores.min() < best_s:
            best, best_s = self._choice(table, int(scores.argmin())), float(scores.min())
        if of.complete:
            return best
        for _ in range(30):
            near = [
                each for each in self._near(table, best) if self.groups.fit(table, np.array([each.ranks]), others)[0]
            ]
            if not near:
                return best
            scores = self._scores(beside + np.stack([each.load for each in near]))
            if not scores.min() < best_s:
                return best
            best, best_s = near[int(scores.argmin())], float(scores.min())
        return best

    def _near(self, table: int, held: _Held) -> list[_Held]:
        """Column blocks moved, cut in two, joined, or one a unit wider at the cost of another."""
        family, rules = held.family, self.cluster.rules.tables[table]
        is_tied = COLUMN_WISE in self.cluster.model.node_colocated_shardings
        if family.variant.sharding != "column_wise" or is_tied or len(family.widths) == 1:
            return []
        blocks = [(w, p) for w, p in np.argwhere(held.counts).tolist() for _ in range(int(held.counts[w, p]))]
        changed: list[list[tuple[int, int]]] = []
        for k, (w, p) in enumerate(blocks):
            others = blocks[:k] + blocks[k + 1 :]
            changed += [[*others, (w, q)] for q in rules.ranks if q != p]
            changed += [[*others, (a, p), (w - a - 1, q)] for a in range(w) for q in rules.ranks]
            for j, (v, q) in enumerate(others):
                rest = others[:j] + others[j + 1 :]
                changed.append([*rest, (w + v + 1, p)])
                if v:
                    changed.append([*rest, (w + 1, p), (v - 1, q)])
        found = []
        near = [some for some in changed[:400] if len(some) <= rules.max_shards]
        wide = np.zeros((len(near), *held.counts.shape), dtype=np.int64)
        for number, some in enumerate(near):
            np.add.at(wide[number], tuple(np.array(some).T), 1)
        for counts in self.cluster.kept(Covers(family.widths, wide, complete=False), rules, "column_wise").counts:
            if not (counts[~family.supported] > 0).any():
                load = counts.ravel().astype(float) @ family.pieces.reshape(counts.size, -1)
                found.append(_Held(family, counts, load, self.cluster.ranks_of("column_wise", counts)))
        return found
