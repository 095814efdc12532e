"""Group-wide blocks put on sites, longest first, where there are many sites: each site counts as one bin.

The ranks of a site take nearly the same of a block, so that the fullest instance among them stands for all: the
aggregation of identical machines into one, which leaves as many numbers as there are sites instead of ranks.
"""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.problem.numbers import Floats, Ints
from planner.problem.sites import Sites
from planner.solvers.construct.potential import FAINT, SQUARINGS


class SitePlacer:
    """Sites of one extent as bins: their fullest loads and the room of their fullest memories, block by block."""

    def __init__(self, problem: Problem, sites: Sites, state: LoadState, aim: Floats, tiers: Ints) -> None:
        """Loads are relative to the times `aim` [C]; of `tiers`, too, the fullest decide."""
        self._problem, self._aim, self._tiers = problem, aim, tiers
        self._kind: Ints = problem.kind_of_rank[sites.first]
        self._is_within = sites.all(problem.reach)
        empty = np.maximum(LoadState(problem).free, 1.0)
        self._room: Floats = np.minimum.reduceat(state.free / empty, sites.first, axis=1)
        """[M, N] shares of what each memory has for tables, as `pool_demand` is one."""
        full = np.maximum.reduceat(state.load / aim[:, None], sites.first, axis=1)
        self._full: Floats = np.concatenate([full, 1.0 - self._room[tiers]])
        """[C + tiers, N] shares of the times, then of those memories."""
        self._power: Floats = _power(self._full)

    def places(self, blocks: Ints) -> Ints | None:
        """Return a site [n] for each block, in this order: the one with room where the potential grows least, for parts
        of the same rows another one each; None where there is none for one of them."""
        problem, kind = self._problem, self._kind
        load = np.stack([problem.extremes.peak_load(k, blocks) / self._aim for k in range(problem.kinds)])
        stored, allowed = problem.extremes.pool_demand[:, blocks], problem.allowed[:, blocks]
        load = np.concatenate([load, stored[..., self._tiers]], axis=2)
        is_felt = (load > FAINT * load.max(axis=2, keepdims=True)).any(axis=0)
        is_apart, option = problem.option_apart[problem.block_option[blocks]], problem.block_option[blocks]
        taken: dict[int, list[int]] = {}
        places = np.empty(len(blocks), dtype=np.int64)
        for n in range(len(blocks)):
            felt = np.flatnonzero(is_felt[n])
            grown = (_power(self._full[felt] + load[kind, n][:, felt].T) - self._power[felt]).sum(axis=0)
            size = stored[kind, n].T
            possible = (self._room >= size).all(axis=0) & allowed[kind, n] & self._is_within
            of_option = taken.setdefault(int(option[n]), []) if is_apart[n] else []
            possible[of_option] = False
            site = int(np.where(possible, grown, np.inf).argmin())
            if not possible[site]:
                return None
            places[n] = site
            of_option.append(site)
            self._full[:, site] += load[kind[site], n]
            self._power[:, site] = _power(self._full[:, site])
            self._room[:, site] -= size[:, site]
        return places


def _power(x: Floats) -> Floats:
    x = np.maximum(x, 0.0)  # below it something hides the load
    for _ in range(SQUARINGS):
        x = x * x
    return x
