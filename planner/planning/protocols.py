"""Planning by bent laws: costs at straight lines, chosen for the plan that they lead to, and a bound at all of them.

A cost model may have several protocols for the collective of a stage, each a line of latency and rate, of which a
placement takes the one with which the stage ends first (`CostModel.linearised_at`). A search needs costs that add up:
it is made at one protocol for each stage. At any protocols a placement costs at least what it takes, and at its own
just that, so that moving to those of the best plan and searching there again never ends with a longer step (a
majorize-minimize method: Hunter & Lange, The American Statistician 58(1), 2004).

What no placement takes less than is the least of the bounds at all protocols: those that the search's multipliers
prove, or others where these prove too little. A search begins where that bound is least.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from cost_models.shards import PlacedShards
from planner.certificates.multipliers import Bound, ProtocolBound
from planner.certificates.shortage import Shortage
from planner.formulation.formulation import Formulation
from planner.planning.assembly import rank_rows
from planner.planning.cache_division import bound_at, multipliers_at
from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.threshold import tighten
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome, Status
from planner.solvers.lower_bound import relaxed_optimum
from planner.solvers.search import better, relaxed

ROUNDS = 3
"""Searches at other protocols than the first, at most."""


def at_lowest_protocols(formulation: Formulation) -> Formulation:
    """The same at the protocols at which the relaxation is least: where a search begins."""
    protocols = formulation.model.all_protocols
    for _ in range(ROUNDS if len(protocols) > 1 else 0):
        bound = relaxed(formulation.problem)
        if isinstance(bound, Shortage):
            break
        others = [formulation.at_protocols(each) for each in protocols if each != formulation.model.protocols]
        lowest = min(others, key=lambda other: multipliers_at(other.problem, bound).seconds)
        if multipliers_at(lowest.problem, bound).seconds >= bound.seconds:
            break
        formulation = lowest
    return formulation


def at_own_protocols(formulation: Formulation, placement: Placement) -> Formulation:
    """The same at the protocols with which the stages of a placement end first; itself where it is at them."""
    if len(formulation.model.all_protocols) == 1:
        return formulation
    own = formulation.model.linearised_at(shards_of(formulation, placement))
    return formulation.at_protocols(own.protocols)


Search = Callable[[Formulation], Outcome]


def searched(formulation: Formulation, search: Search) -> tuple[Formulation, Outcome]:
    """What a search finds from the protocols where the relaxation is least, and at others whose bound is below its own,
    each at those of its own plan; with bounds at all protocols."""
    formulation = at_lowest_protocols(formulation)
    formulation, outcome = settled(formulation, search(formulation), search)
    known: dict[tuple[int, ...], Bound] = {}
    for _ in range(ROUNDS):
        bound, step_s = outcome.bound, outcome.step_s
        if bound is None or step_s is None:
            return formulation, outcome
        known[formulation.model.protocols] = bound
        outcome = over_protocols(formulation, replace(outcome, elsewhere=()), known)
        below = [each for each in outcome.elsewhere if each.bound.seconds < bound.seconds * (1 - OPTIMAL_GAP)]
        below = [each for each in below if each.protocols not in known]
        if not below:
            break
        other = formulation.at_protocols(min(below, key=lambda each: each.bound.seconds).protocols)
        found = search(other)
        if found.bound is not None:
            known[other.model.protocols] = found.bound
        other, found = settled(other, found, search)
        if found.step_s is not None and found.step_s < step_s:
            formulation, outcome = other, found
    return formulation, over_protocols(formulation, replace(outcome, elsewhere=()), known)


def settled(formulation: Formulation, outcome: Outcome, search: Search) -> tuple[Formulation, Outcome]:
    """What a search finds at the protocols of its own plan, from an outcome at others."""
    for _ in range(ROUNDS):
        if outcome.placement is None or outcome.bound is None:
            break
        own = at_own_protocols(formulation, outcome.placement)
        if own is formulation:
            break
        formulation, outcome = own, better(_moved(own, outcome, outcome.placement, outcome.bound), search(own))
    return formulation, outcome


def _moved(formulation: Formulation, outcome: Outcome, placement: Placement, bound: Bound) -> Outcome:
    """The same plan at other protocols, with what the multipliers of its bound prove there."""
    step_s = load_state(formulation.problem, placement).step_s()
    bound = bound_at(formulation.problem, bound)
    bound = replace(bound, seconds=min(bound.seconds, step_s))
    status: Status = "optimal" if step_s <= bound.seconds * (1 + OPTIMAL_GAP) else "feasible"
    return replace(outcome, step_s=step_s, bound=bound, status=status)


def over_protocols(
    formulation: Formulation, outcome: Outcome, known: Mapping[tuple[int, ...], Bound] = MappingProxyType({})
) -> Outcome:
    """The outcome of a search with bounds at all other protocols than its own, some of which are `known`."""
    if outcome.bound is None or outcome.elsewhere:
        return outcome
    elsewhere = bounds_elsewhere(formulation, outcome.bound)
    best = (max(each.bound, known.get(each.protocols, each.bound), key=lambda of: of.seconds) for each in elsewhere)
    others = (ProtocolBound(each.protocols, bound) for each, bound in zip(elsewhere, best, strict=True))
    return replace(outcome, elsewhere=tuple(others))


def bounds_elsewhere(formulation: Formulation, bound: Bound) -> tuple[ProtocolBound, ...]:
    """Bounds at all protocols but those of the formulation, at which one is known."""
    others = [each for each in formulation.model.all_protocols if each != formulation.model.protocols]
    return tuple(ProtocolBound(each, _bound_of(formulation.at_protocols(each).problem, bound)) for each in others)


def _bound_of(problem: Problem, known: Bound) -> Bound:
    """What the multipliers of a bound prove of a problem, or others where these prove less than the bound; no more than
    that is of use."""
    bound = multipliers_at(problem, known)
    if bound.seconds < known.seconds:
        fluid = Fluid(problem, integrality_floors(problem))
        bound = max(bound, tighten(fluid, relaxed_optimum(fluid), known.seconds), key=lambda each: each.seconds)
    return bound


def shards_of(formulation: Formulation, placement: Placement) -> PlacedShards:
    """The shards of a placement, block by block."""
    problem, blocks = formulation.problem, formulation.options.blocks
    index, ranks, rows, opens = [], [], [], []
    for block, place in zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True):
        of_table = int(problem.table_rows[problem.table_of_block[block]])
        members, _, held = rank_rows(problem, block, place, of_table)
        index.append(np.full(len(members), block))
        ranks.append(members)
        rows.append(held)
        opens.append(np.arange(len(members)) == 0)
    if not index:
        none = np.zeros(0, dtype=np.int64)
        return PlacedShards(blocks.take(none), none, none, none.astype(bool))
    return PlacedShards(
        blocks.take(np.concatenate(index)), np.concatenate(ranks), np.concatenate(rows), np.concatenate(opens)
    )
