"""A tighter bound where blocks pack badly: cuts by dual feasible functions that refute thresholds.

For a threshold z the fluid relaxation gets more limits: a room of one for the transformed shares that blocks take of
each instance and memory pool (`planner.certificates.dual_feasible`), and splittable options are cut into whole blocks.
Limits are priced by Kelley's cutting planes; functions are added where the relaxation's optimum violates them most. If
the bound over the blocks that a plan faster than z may hold reaches z, there is no such plan.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.certificates.dual_feasible import (
    PackedItems,
    PricedFunction,
    cheapest_wholes,
    counted_shares,
    have_own_instances,
    instances,
    items_of_blocks,
    packed_rows,
    shares_of,
    stage_rooms,
    taken_blocks,
    transformed,
)
from planner.certificates.multipliers import Bound, Multipliers, PackingProof
from planner.certificates.tilings import option_tilings
from planner.problem.numbers import Floats, Ints
from planner.problem.products import product
from planner.problem.rounding import COARSE_ROUNDING
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.master import Master
from planner.solvers.bound.threshold import least_of_stages, step_of_block

WORTHWHILE = 3e-4
"""Relative width of the interval at which bisection ends."""
FIRST_RISE = 1e-3
"""Relative distance of the first threshold from the known bound; each that is refuted doubles it."""
CUTS, SEPARATIONS = 40, 8
"""Cutting planes, and additions of functions, for one threshold at most."""
MOST_ITERATIONS = 5_000
"""Simplex iterations of one of the programs; a threshold whose program does not end is not refuted."""
AT_ONCE = 4
"""Functions of each resource or tier that are added at once."""
VIOLATED = 1e-3
"""Share of a resource's room by which a function must be violated."""
TOLERANCE = 1e-4
"""Relative difference of bound and relaxation at which the cutting planes end."""
CANDIDATES = 300
"""Parameters that are tried of each family."""
LARGEST_WHOLE = 12
"""Parameters of the families that round down to parts of the room: so many parts at most."""
TOGETHER = 5
"""Stages, at most, whose seconds on a rank are also looked at together: those whose rooms large blocks fill most."""

_Key = tuple[int, tuple[int, ...], str, float]
"""Kind of rank, columns, family and parameter of a function."""
_KnownItems = dict[tuple[int, tuple[int, ...]], tuple[PackedItems, PackedItems]]
"""What blocks bring of columns, on ranks of a kind and wherever they are."""


def strengthen(
    fluid: Fluid,
    bound: Bound,
    step_s: float,
    is_over: Callable[[], bool] = lambda: False,
    *,
    like: PackingProof | None = None,
) -> Bound:
    """The best bound that thresholds between the known one and the plan's `step_s` prove.

    Where a proof is given that such functions should do `like`, of the same blocks at other costs, the first threshold
    is `step_s` itself, however near, with the functions of that proof, and first at its multipliers.
    """
    low, high, step = bound.seconds, step_s, FIRST_RISE * bound.seconds
    best = bound
    items: _KnownItems = {}
    known: list[_Key] = [] if like is None else [function[:4] for function in like.functions]
    first_s = None if like is None else step_s
    while (first_s is not None or high - low > WORTHWHILE * low) and not is_over():
        z, first_s = min(low + step, (low + high) / 2) if first_s is None else first_s, None
        relaxation = _Relaxation(fluid, bound.multipliers, z, items)
        for function in known:
            relaxation.add(*function)
        packing = None if like is None or best is not bound else relaxation.refuted_like(like)
        packing = packing or relaxation.refuted(is_over)
        known = relaxation.keys
        if packing is None:
            high = z
        else:
            used = {function[:4] for function in packing.functions}
            known = [key for key in known if len(key[1]) == 1 or key in used]
            low, step, best = z, 2 * step, replace(bound, seconds=z, packing=packing)
    return best


class _Relaxation:
    """The relaxation below one threshold."""

    def __init__(self, fluid: Fluid, multipliers: Multipliers, threshold_s: float, items: _KnownItems) -> None:
        """Stages last as long as their weights among the `multipliers` prove, at least; `items` are those of the
        problem's blocks that are known, and will be."""
        self._fluid, self._threshold_s, problem = fluid, threshold_s, fluid.problem
        self._problem = problem
        self._usable = step_of_block(fluid, multipliers) < threshold_s
        self._rooms = stage_rooms(problem, threshold_s * (1 + COARSE_ROUNDING), least_of_stages(fluid, multipliers))
        self._widths = option_tilings(problem)
        self._known_items = items
        self.keys: list[_Key] = []
        self._shares: list[tuple[Floats, Floats]] = []
        self._room: list[float] = []
        self._proposals: list[tuple[Ints, Floats, Ints]] = []

    def add(self, kind: int, columns: tuple[int, ...], family: str, parameter: float) -> None:
        """Limit what a function makes of the blocks on ranks of a kind."""
        key = (kind, columns, family, parameter)
        items = self._items(kind, columns)
        self.keys.append(key)
        self._shares.append(counted_shares(self._problem, PricedFunction(*key, 1.0), items, self._rooms))
        self._room.append(float(instances(self._problem, kind, columns)))

    def _items(self, kind: int, columns: tuple[int, ...]) -> tuple[PackedItems, PackedItems]:
        """What blocks bring on ranks of a kind, and wherever they are."""
        if (kind, columns) not in self._known_items:
            self._known_items[kind, columns] = items_of_blocks(self._problem, kind, columns)
        return self._known_items[kind, columns]

    def refuted(self, is_over: Callable[[], bool]) -> PackingProof | None:
        """What proves that no plan is faster than the threshold, if that is found."""
        for _ in range(SEPARATIONS):
            proof, master = self._solve(is_over)
            if proof is not None or master is None or is_over() or not self._separate(master):
                return proof
        return None

    def refuted_like(self, proof: PackingProof) -> PackingProof | None:
        """What the multipliers of another proof, of whose functions this relaxation has limits, prove here of the
        threshold, if that is all of it."""
        tiers = self._fluid.capacity.shape[1]
        byte = np.zeros((len(self._fluid.capacity), tiers + len(self.keys)))
        byte[:, :tiers] = proof.multipliers.byte
        for function in proof.functions:
            byte[function.kind, tiers + self.keys.index(function[:4])] = function.price_s
        multipliers = Multipliers(proof.multipliers.weight, byte)
        return self._packed(multipliers) if self._value(multipliers)[0] >= self._threshold_s else None

    def _solve(self, is_over: Callable[[], bool]) -> tuple[PackingProof | None, Master | None]:
        """Cutting planes with the functions so far; the program, where that does not reach the threshold."""
        fluid, z = self._fluid, self._threshold_s
        tiers = fluid.capacity.shape[1]
        capacity = np.ones((len(fluid.capacity), tiers + len(self.keys)))
        capacity[:, :tiers] = fluid.capacity
        for r, (key, room) in enumerate(zip(self.keys, self._room, strict=True)):
            capacity[key[0], tiers + r] = room
        master = Master(self._problem, fluid.instances, fluid.shared_columns, capacity, fluid.floors)
        point, best_s = master.start(), -np.inf
        best: Multipliers | None = None
        for known in self._proposals:
            self._add_cut(master, known)
        if self._proposals:
            solved = master.attempt(MOST_ITERATIONS)
            if solved is None:
                return None, None
            point, _ = solved
        for _ in range(CUTS):
            query = point if best is None else _mean(best, point)
            value, proposal = self._value(query)
            if value >= z:
                return self._packed(query), None
            if proposal is None or is_over():
                return None, None
            if value > best_s:
                best, best_s = query, value
            self._proposals.append(proposal)
            self._add_cut(master, proposal)
            solved = master.attempt(MOST_ITERATIONS)
            if solved is None:
                return None, None
            point, ceiling = solved[0], solved[1] + float(self._problem.stage_constants.sum())
            if ceiling < z or ceiling - best_s <= TOLERANCE * abs(best_s):
                break
        return None, master

    def _split(self, multipliers: Multipliers) -> tuple[Multipliers, Floats]:
        """Prices of seconds and bytes, and [R] of the functions."""
        tiers = self._fluid.capacity.shape[1]
        of_functions = np.array([multipliers.byte[key[0], tiers + r] for r, key in enumerate(self.keys)])
        return Multipliers(multipliers.weight, multipliers.byte[:, :tiers]), of_functions

    def _value(self, multipliers: Multipliers) -> tuple[float, tuple[Ints, Floats, Ints] | None]:
        """The bound at the multipliers, and the blocks that attain it: how often each is taken, and on which kind."""
        problem, (plain, of_functions) = self._problem, self._split(multipliers)
        more, anywhere = np.zeros((problem.kinds, len(problem.block_option))), np.zeros(len(problem.block_option))
        for key, (placed, spread), multiplier in zip(self.keys, self._shares, of_functions, strict=True):
            more[key[0]] += multiplier * placed
            anywhere += multiplier * spread
        values = np.where(self._usable, self._fluid.block_values(plain, more) + anywhere, np.inf)
        cheapest, chosen, tilings = cheapest_wholes(problem, values, self._widths)
        options_s = float(cheapest.sum())
        if math.isinf(options_s):
            return np.inf, None
        taken = taken_blocks(problem, chosen, self._widths, tilings)
        blocks = np.flatnonzero(taken)
        kind = self._fluid.kinds_of(plain, blocks, more[:, blocks])
        paid = float(product(of_functions, np.array(self._room))) if self.keys else 0.0
        value = self._fluid.total(plain, options_s) - paid - COARSE_ROUNDING * paid
        return value, (blocks, taken[blocks], kind)

    def _add_cut(self, master: Master, proposal: tuple[Ints, Floats, Ints]) -> None:
        blocks, count, kind = proposal
        seconds, size = self._fluid.usage_of(blocks, count, kind)
        shares = np.zeros((len(size), len(self.keys)))
        world = self._problem.is_world_wide[blocks]
        for r, (key, (placed, anywhere)) in enumerate(zip(self.keys, self._shares, strict=True)):
            here = world | (kind == key[0])
            shares[key[0], r] = product(count[here], placed[blocks[here]]) + product(count, anywhere[blocks])
        master.add_cut(seconds, np.concatenate([size, shares], axis=1), [])

    def _packed(self, multipliers: Multipliers) -> PackingProof:
        plain, of_functions = self._split(multipliers)
        functions = [
            PricedFunction(*key, float(multiplier))
            for key, multiplier in zip(self.keys, of_functions, strict=True)
            if multiplier > 0
        ]
        return PackingProof(self._threshold_s, plain, tuple(functions))

    # -- functions that the optimum violates ---------------------------------------------------------------------

    def _separate(self, master: Master) -> bool:
        """Add the functions that the optimum of the cutting planes violates most; whether there are any."""
        problem, mixed = self._problem, np.zeros((self._problem.kinds, len(self._problem.block_option)))
        spread = np.zeros(mixed.shape[1])
        for share, (blocks, count, of_block) in zip(master.shares(), self._proposals, strict=True):
            world = problem.is_world_wide[blocks]
            for k in range(problem.kinds):
                mixed[k, blocks] += share * count * (world | (of_block == k))
            spread[blocks] += share * count
        is_any_added = False
        for kind in range(problem.kinds):
            alone: list[tuple[int, ...]] = [(row,) for row in range(packed_rows(problem))]
            counted = {columns: self._counted(kind, columns, mixed[kind], spread) for columns in alone}
            for columns, (share, count) in counted.items():
                is_any_added |= self._add_violated(self._violated(kind, columns, share, count)[:AT_ONCE])
            together = [
                each
                for columns in self._together(counted)
                for each in self._violated(kind, columns, *self._counted(kind, columns, mixed[kind], spread))
            ]
            is_any_added |= self._add_violated(sorted(together, reverse=True)[:AT_ONCE])
        return is_any_added

    def _counted(self, kind: int, columns: tuple[int, ...], mixed: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """[n] what parts of blocks are of the room of one resource, or of several together, and [n] how many there are;
        `mixed` [B] says how often blocks are on the kind, `spread` [B] anywhere."""
        shares, counts = [], []
        for items, times in zip(self._items(kind, columns), (mixed, spread), strict=True):
            some = times[items.block] > 1e-9
            shares.append(shares_of(self._problem, kind, columns, self._rooms, items.amount[some]))
            counts.append(items.ranks[some] * times[items.block[some]])
        return np.concatenate(shares), np.concatenate(counts)

    def _together(self, counted: dict[tuple[int, ...], tuple[Floats, Floats]]) -> list[tuple[int, ...]]:
        """Columns that are looked at together: of the stages whose rooms are filled most by large blocks, the one that
        is, among those that each rank has an instance of to itself; all of these, and all but one."""
        problem = self._problem
        own = np.flatnonzero(have_own_instances(problem)).tolist()
        filled = {column: float(product(count, share**2)) for column in own for share, count in [counted[column,]]}
        found, stages = list[int](), set[int]()
        for column in sorted(own, key=lambda column: (-filled[column], column)):
            stage = int(problem.stage_of_column[column])
            if filled[column] > 0 and stage not in stages and len(found) < TOGETHER:
                found.append(column)
                stages.add(stage)
        sizes = range(max(2, len(found) - 2), len(found) + 1)
        return [columns for size in sizes for columns in itertools.combinations(sorted(found), size)]

    def _violated(self, kind: int, columns: tuple[int, ...], share: Floats, count: Floats) -> list[tuple[float, _Key]]:
        """By how much functions of one resource, or of several together, are violated, and which, the most violated
        first; parts of blocks take `share` [n], `count` [n] times."""
        room = instances(self._problem, kind, columns)
        if 2 * float(product(count, share)) <= room:
            return []  # no function counts a share for more than twice of it
        tried = [
            (more, family, parameter)
            for family, parameters in _candidates(share)
            for more, parameter in zip(
                (product(transformed(family, parameters[:, None], share), count) / room - 1).tolist(),
                parameters.tolist(),
                strict=True,
            )
            if more > VIOLATED
        ]
        some = sorted(tried, reverse=True)[:AT_ONCE]
        return [(more, (kind, columns, family, parameter)) for more, family, parameter in some]

    def _add_violated(self, violated: list[tuple[float, _Key]]) -> bool:
        """Add functions that are not there yet; whether there are any."""
        new = [key for _, key in violated if key not in self.keys]
        for key in new:
            self.add(*key)
        return bool(new)


def _candidates(share: Floats) -> list[tuple[str, Floats]]:
    """Families and their parameters [p], as they change at the shares [n] of blocks."""
    large = np.unique(np.round(share[share > 1 / LARGEST_WHOLE], 4))
    parts = np.arange(1, LARGEST_WHOLE)
    breaks = np.unique(np.round((parts[:, None] / large[None]).ravel() + 1e-6, 5))
    breaks = _some(breaks[(breaks >= 1) & (breaks <= LARGEST_WHOLE)])
    small = _some(np.unique(np.minimum(large, 1 - large) + 1e-6)) if len(large) else large
    return [
        ("fekete_schepers", parts.astype(float)),
        ("martello_toth", small[(small >= 0) & (small <= 0.5)]),
        ("burdett_johnson", breaks),
        ("carlier_clautiaux_moukrim", breaks),
    ]


def _some(values: Floats) -> Floats:
    """Some of the values, evenly chosen."""
    return values[:: -(-len(values) // CANDIDATES)] if len(values) else values


def _mean(first: Multipliers, second: Multipliers) -> Multipliers:
    return Multipliers((first.weight + second.weight) / 2, (first.byte + second.byte) / 2)
