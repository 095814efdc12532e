"""Proofs that nothing fits: multipliers per byte at which even the cheapest options cost more than all memory is worth.

These are Farkas certificates of the fluid relaxation, found by cutting planes over the multipliers.
"""

from dataclasses import dataclass

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.certificates.shortage import Shortage, confined_regions, growth_for
from planner.problem.numbers import Bools, Floats
from planner.problem.rounding import ROUNDING
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.programs import LinearProgram, optimum

ROUNDS = 200
"""Cutting planes at most; a few dozen do."""
DECIDED = 1e-9
"""Share of the capacity that a largest excess may be above 0 and count as none."""
DEAR = 1e4
"""Price of another tier's whole capacity, over that of the growing tier's, from which on nothing replaces it."""


def shortage(fluid: Fluid, usable: Bools | None = None, headroom: float = 1.0) -> Shortage | None:
    """A proof that the fluid does not fit into `headroom` of the memory; None where it does, or none is found."""
    problem = fluid.problem
    free = fluid.no_multipliers()
    unplaceable = np.flatnonzero(np.isinf(fluid.price(free, usable)[0]))
    nothing = np.full(fluid.capacity.shape[1], np.nan)
    if len(unplaceable):
        return Shortage(unplaceable, free.byte, nothing if usable is not None else growth_for(problem, unplaceable))
    capacity = fluid.capacity * headroom
    excess = _largest_excess(fluid, capacity, usable)
    if excess.value <= 0:
        return None
    byte = excess.byte
    if usable is not None:
        return Shortage(unplaceable, byte, nothing)
    byte, ranks = _blamed(fluid, byte)
    growth = np.array([_growth_of_tier(fluid, capacity, tier) for tier in range(capacity.shape[1])])
    total = _capacity_of(fluid, problem.reach if ranks is None else ranks)
    return Shortage(unplaceable, byte, growth * total, ranks)


def _blamed(fluid: Fluid, byte: Floats) -> tuple[Floats, Bools | None]:
    """The multipliers of one confined set of ranks [W] alone, where they prove as much; else all of them, and None."""
    for mine in confined_regions(fluid.problem):
        alone = np.where(mine[:, None], byte, 0.0)
        if _excess_at(fluid, alone, fluid.capacity) > 0:
            return alone, np.asarray(fluid.problem.capacity_regions.ranks[mine].any(axis=0))
    return byte, None


def _capacity_of(fluid: Fluid, ranks: Bools) -> Floats:
    """[M] bytes that tables may use in the pools of some ranks."""
    problem = fluid.problem
    pools = zip(problem.pool_of_rank, problem.pool_capacity, problem.base_bytes, strict=True)
    return np.array([capacity[np.unique(pool[ranks])].sum() - ranks.sum() * base for pool, capacity, base in pools])


def _excess_at(fluid: Fluid, byte: Floats, capacity: Floats, usable: Bools | None = None) -> float:
    """What the cheapest options of all tables cost at the multipliers `byte` beyond the priced capacity, rounded
    down."""
    need = float(fluid.price(Multipliers(np.zeros_like(fluid.instances), byte), usable)[0].sum())
    paid = float((byte * capacity).sum())
    return need - paid - ROUNDING * (need + abs(paid))


def fits(fluid: Fluid) -> bool:
    """Whether the fluid problem is known to fit: `shortage` without what would have to be explained."""
    if np.isinf(fluid.price(fluid.no_multipliers())[0]).any():
        return False
    return _largest_excess(fluid, fluid.capacity, None).fits


@dataclass(frozen=True)
class _Excess:
    """A priced need beyond the priced capacity, over multipliers that sum to one per capacity."""

    value: float
    """Above 0: a proof that the fluid problem does not fit."""
    byte: Floats
    """The multipliers of it."""
    fits: bool
    """Whether no multipliers have one above 0. Neither where no solver ends the programs: then nothing is known."""


def _largest_excess(fluid: Fluid, capacity: Floats, usable: Bools | None) -> _Excess:
    """The first one whose sign is decided. Options that fit as they are, the cheapest at equal multipliers, say so
    without a program."""
    byte = _equal_multipliers(capacity)
    multipliers = Multipliers(np.zeros_like(fluid.instances), byte)
    _, choices = fluid.price(multipliers, usable)
    if (fluid.usage(multipliers, choices)[1] <= capacity).all():
        return _Excess(_excess_at(fluid, byte, capacity, usable), byte, True)
    program, ceiling = _MultiplierProgram(fluid, capacity, usable), np.nan
    program.limit_sum()
    for _ in range(ROUNDS):
        value, ceiling = program.round()
        if value > 0 or ceiling <= DECIDED or np.isnan(ceiling):
            break
    return _Excess(program.best, program.best_byte, program.best <= 0 and ceiling <= DECIDED)


def _growth_of_tier(fluid: Fluid, capacity: Floats, tier: int) -> float:
    """Share by which one tier must grow, in all its pools alike, for the fluid problem to fit; NaN if none suffice.

    The dual of the least growth: the largest priced excess where one byte of the tier has a multiplier of 1.
    """
    if capacity[:, tier].sum() <= 0:
        return float("nan")
    program = _MultiplierProgram(fluid, capacity, None)
    program.limit_tier(tier, DEAR)
    ceiling = np.inf
    for _ in range(ROUNDS):
        value, ceiling = program.round()
        if np.isnan(ceiling):
            return ceiling
        if ceiling - value <= 1e-4 * abs(ceiling):
            break
    grown = capacity.copy()
    grown[:, tier] *= 1 + ceiling * (1 + 1e-6)
    return ceiling if _largest_excess(fluid, grown, None).fits else float("nan")


def _equal_multipliers(capacity: Floats) -> Floats:
    """[D, M] at which the whole capacity of every tier costs the same, and all of them 1."""
    return 1.0 / capacity.size / np.where(capacity > 0, capacity, 2.0**30)


class _MultiplierProgram:
    """Cutting planes over the multipliers of whole capacities: the largest priced need beyond the capacity."""

    def __init__(self, fluid: Fluid, capacity: Floats, usable: Bools | None) -> None:
        self._fluid, self._capacity, self._usable = fluid, capacity, usable
        self._unit: Floats = np.where(capacity > 0, capacity, 2.0**30)
        self._program = LinearProgram(maximize=True)
        (self._bound,) = self._program.add_variables(1, lower=-np.inf, is_counted=True)
        self._multipliers = self._program.add_variables(capacity.size, upper=1.0)
        self._multiplier: Floats = np.full(capacity.size, 1.0 / capacity.size)
        self.best, self.best_byte = -np.inf, np.zeros_like(capacity)

    def limit_sum(self) -> None:
        """All multipliers together are 1."""
        self._program.add_row(self._multipliers, np.ones(len(self._multipliers)), 1.0, 1.0)

    def limit_tier(self, tier: int, dear: float) -> None:
        """Those of a tier, by the share of its capacity that each kind has, sum to 1; others are up to `dear`."""
        for index, multiplier in enumerate(self._multipliers):
            self._program.limit(multiplier, 1.0 if index % self._capacity.shape[1] == tier else dear)
        own = self._multipliers[tier :: self._capacity.shape[1]]
        self._program.add_row(own, np.ones(len(own)), -np.inf, 1.0)

    def round(self) -> tuple[float, float]:
        """Price once, cut, and move to the best multipliers known: the best value so far, and what no others exceed.

        The latter is NaN where every solver gives up: then there is nothing more to learn.
        """
        fluid, capacity = self._fluid, self._capacity
        byte = (self._multiplier / self._unit.ravel()).reshape(capacity.shape)
        weight = np.zeros_like(fluid.instances)
        cheapest, choices = fluid.price(Multipliers(weight, byte), self._usable)
        need, paid = float(cheapest.sum()), float((byte * capacity).sum())
        value = need - paid - ROUNDING * (need + abs(paid))
        if value > self.best:
            self.best, self.best_byte = value, byte
        _, size = fluid.usage(Multipliers(weight, byte), choices)
        excess = ((size - capacity) / self._unit).ravel()
        self._program.add_row([self._bound, *self._multipliers], np.concatenate([[-1.0], excess]), 0.0, np.inf)
        found = optimum(self._program)
        if found is None:
            return self.best, float("nan")
        values = found.values
        self._multiplier = np.maximum(values[self._multipliers], 0.0)
        return self.best, float(values[self._bound])
