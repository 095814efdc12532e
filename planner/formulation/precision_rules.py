"""Which caches of full precision tables in HBM may have beside them, as a policy names them."""

from collections.abc import Iterator, Sequence

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import HBM, HBM_MIXED, TIERS, Floats
from planner.formulation.policy import OFF
from planner.formulation.runtimes import RUNTIMES, Runtime
from planner.problem.numbers import Bools

UNNAMED = TIERS["hbm_mixed"].cache_fractions
"""Shares that are tried of tables whose tier is named and whose caches are not."""


class PrecisionRules:
    """The caches that are left to each of T tables."""

    def __init__(self, model: CostModel, runtime: Runtime) -> None:
        self._model, self._runtime = model, runtime
        self._left: list[frozenset[float] | None] = [None] * len(model.workload.tables)

    def narrow(self, caches: Sequence[str | float], tables: Bools) -> Iterator[str]:
        """Leave some tables [T] these caches; what is wrong with that."""
        model, runtime = self._model, self._runtime
        named = frozenset(0.0 if cache == OFF else float(cache) for cache in caches)
        mine = np.flatnonzero(tables).tolist()
        if not model.chooses_dtypes:
            yield f"the cost model {model.name} knows no caches of full precision; use --cost-model physical"
        if named != {0.0} and runtime != "any" and "hbm_mixed" not in RUNTIMES[runtime].tiers:
            yield f"{runtime} has no caches of full precision beside tables; leave it out, or plan for any runtime"
        stated = [model.workload.tables[t].name for t in mine if model.workload.tables[t].precision_cache is not None]
        if stated:
            yield f"the workload gives {stated[0]!r} a precision_cache; say it there or here"
        for table in mine:
            before = self._left[table]
            self._left[table] = left = named if before is None else before & named
            if not left:
                yield f"no cache is left for {model.workload.tables[table].name!r}: another rule names other shares"
                return

    @property
    def has_cache(self) -> Bools:
        """[T] whether a table may have one by what is named."""
        return np.array([left is not None and bool(left - {0.0}) for left in self._left], dtype=bool)

    def widen(self, tiers: Bools) -> None:
        """Put the tier of tables with such a cache beside HBM, or in its place, in what is allowed of [T, tiers]."""
        has_cache = self.has_cache
        tiers[has_cache, HBM_MIXED] |= tiers[has_cache, HBM]
        never_off: Bools = np.array([left is not None and 0.0 not in left for left in self._left], dtype=bool)
        tiers[never_off, HBM] = False
        never: Bools = np.array([left is not None and not left - {0.0} for left in self._left], dtype=bool)
        tiers[never, HBM_MIXED] = False

    def shares(self) -> Floats:
        """[T, n] ascending; NaN where there are fewer."""
        shares = [sorted(UNNAMED if left is None else left - {0.0}) for left in self._left]
        table = np.full((len(shares), max(1, max(map(len, shares)))), np.nan)
        for row, of_table in zip(table, shares, strict=True):
            row[: len(of_table)] = of_table
        return table
