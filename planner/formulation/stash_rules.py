"""Which tables may leave HBM between the passes of a step, of what a policy names."""

from collections.abc import Iterator, Sequence

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import HBM, HBM_MIXED, IS_STASHED, PLACEMENT_TIERS, STASHES_STATE
from planner.formulation.narrowing import Narrowing
from planner.formulation.runtimes import RUNTIMES, Runtime
from planner.formulation.stash_words import TIER_OF_WAY, StashWay
from planner.problem.numbers import Bools


class StashRules:
    """The ways that are left to each of T tables."""

    def __init__(self, model: CostModel, runtime: Runtime) -> None:
        self._model, self._runtime = model, runtime
        self._left: list[frozenset[StashWay] | None] = [None] * len(model.workload.tables)

    def narrow(self, ways: Sequence[StashWay], tables: Bools) -> Iterator[str]:
        """Leave some tables [T] these ways; what is wrong with that."""
        named, runtime = frozenset(ways), self._runtime
        if runtime != "any" and not any(TIER_OF_WAY[way] in RUNTIMES[runtime].tiers for way in named):
            yield f"{runtime} stashes no table so ({', '.join(ways)}); leave it out, or plan for any runtime"
        for table in np.flatnonzero(tables).tolist():
            before = self._left[table]
            self._left[table] = left = named if before is None else before & named
            if not left:
                yield f"no way is left for {self._name(table)}: another rule names others"
                return

    def widen(self, tiers: Bools) -> Iterator[str]:
        """Put the tiers of what may be stashed beside HBM, or in its place, in what is allowed of [T, tiers]; what is
        wrong with that: tables of which nothing can be, as they are asked to."""
        possible, why_not = self._possible()
        for table, left in enumerate(self._left):
            if left is None:
                tiers[table] &= possible[table] | ~IS_STASHED
                continue
            was_in_hbm = tiers[table, HBM]
            for way in TIER_OF_WAY:
                code = PLACEMENT_TIERS.index(TIER_OF_WAY[way])
                tiers[table, code] = was_in_hbm & (way in left) & possible[table, code]
            if "none" in left:
                continue
            tiers[table, HBM_MIXED] = False
            if not was_in_hbm:
                yield f"{self._name(table)} may not be in HBM by another key, and what is in HBM is stashed"
            elif not tiers[table, IS_STASHED].any():
                yield f"{self._name(table)}: {why_not[table]}; leave it out, or allow none"

    def _possible(self) -> tuple[Bools, list[str]]:
        """[T, tiers] those of which a table has anything to stash; why there is none."""
        model, count = self._model, len(self._left)
        possible, why_not = np.ones((count, len(PLACEMENT_TIERS)), dtype=bool), [""] * count
        runtime = RUNTIMES[self._runtime].tiers
        possible &= np.array([tier in runtime for tier in PLACEMENT_TIERS]) | ~IS_STASHED
        of, every = model.tables, np.arange(count)
        stateless = of.row_state_bytes(every, of.dim) == 0
        for table in range(count):
            why_not[table] = f"its rows are no part of what {self._runtime} stashes"
            if stateless[table]:
                possible[table] &= ~STASHES_STATE
                why_not[table] = "its optimizer has no state that could be stashed"
        return possible, why_not

    def _name(self, table: int) -> str:
        return repr(self._model.workload.tables[table].name)


def widen_by_stash(narrowing: Narrowing, rules: StashRules) -> None:
    """Allow the tiers of what may be stashed, where the policy names any."""
    for message in rules.widen(narrowing.tiers) if narrowing.policy.stashes else ():
        narrowing.fault(("stash",), message)
