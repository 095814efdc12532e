"""Planning by piecewise-linear laws: costs at lines that are chosen for the plan that they lead to, a bound at all.

A cost model may have several protocols for the collective of a stage, each a line of latency and rate, of which a
placement takes the one with which the stage ends first (`CostModel.linearised_at`). A search needs costs that add up:
it is made at one protocol for each stage. At any protocols a placement costs at least what it takes, and at its own
just that, so that moving to those of the best plan and searching there again never ends with a longer step (a
majorize-minimize method: Hunter & Lange, The American Statistician 58(1), 2004).

What no placement takes less than is the least of the bounds at all protocols: those that the search's multipliers
prove, or others where these prove too little. A search begins where that bound is least.
"""

import functools
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from cost_models.shards import PlacedShards
from planner.certificates.exhaustive_search import may_be_tried, proven_s
from planner.certificates.multipliers import Bound, ProtocolBound
from planner.formulation.formulation import Formulation
from planner.planning.assembly import rank_rows
from planner.planning.cache_division import bound_at
from planner.planning.known_bounds import ROUNDING, AtProtocols, Elsewhere, KnownBounds, Protocols
from planner.planning.like_bounds import multipliers_at, proven_like, raised_like, strengthened_like
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.threshold import tighten
from planner.solvers.exhaustion import next_threshold_s
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome, Status
from planner.solvers.lower_bound import (
    LOOSE,
    Relaxation,
    divided_quickly,
    divided_thoroughly,
)
from planner.solvers.search import better

NEAR = 0.1
"""Gap of a plan below which a search at its own protocols begins with it, and nowhere else."""
FURTHER = 0.1
"""Share by which other protocols must leave more of a gap to the bound than a plan's own to be searched, too."""
ROUNDS = 3
"""Searches at other protocols than the first, at most, but for those that try every plan."""
TRIED_WORK, TRIALS_WORK = 1e8, 5e8
"""Numbers that trying every plan at some protocols may work on, and at all together."""


def at_lowest_protocols(formulation: Formulation) -> tuple[Formulation, KnownBounds]:
    """The same at the protocols at which the relaxation is least, where a search begins, and the bounds that this
    took; none where nothing fits."""
    known, relaxed_at = KnownBounds(formulation), set[Protocols]()
    for _ in range(ROUNDS if len(formulation.model.all_protocols) > 1 else 0):
        bound = known.at.bound(formulation.model.protocols)
        if bound is None:
            break
        relaxed_at.add(formulation.model.protocols)
        known.keep_all(formulation.model.protocols, bound)
        formulation = known.at.formulation(known.lowest())
        if formulation.model.protocols in relaxed_at:
            break
    return formulation, known


def relaxed_s(formulation: Formulation) -> float | None:
    """The bound of multipliers alone at all protocols, without a search for a placement; None where nothing fits."""
    if len(formulation.model.all_protocols) == 1:
        bound = AtProtocols(formulation).bound(formulation.model.protocols)
        return None if bound is None else bound.seconds
    _, known = at_lowest_protocols(formulation)
    return known.seconds(known.lowest()) or None


def at_own_protocols(formulation: Formulation, placement: Placement, at: AtProtocols | None = None) -> Formulation:
    """The same at the protocols with which the stages of a placement end first; itself where it is at them. It is one
    of those `at` all protocols, where these are given."""
    if len(formulation.model.all_protocols) == 1:
        return formulation
    costed = formulation.options.costed(formulation.model)
    own = costed.linearised_at(shards_of(formulation, placement)).protocols
    return formulation.at_protocols(own) if at is None or own == formulation.model.protocols else at.formulation(own)


Search = Callable[[Formulation, Elsewhere, Placement | None, Relaxation | None], Outcome]
"""Searches at the protocols of a formulation, from a placement or from nothing; told the bounds at others, and the
relaxation, if that was solved."""


def searched(
    formulation: Formulation, search: Search, gap: float, is_over: Callable[[], bool] = lambda: False
) -> tuple[Formulation, Outcome]:
    """What a search finds from the protocols where the relaxation is least, and at others that leave more of a gap to
    the bound, each at those of its own plan, until a plan is within `gap` of the bound; with bounds at all protocols.
    A few others are searched, and all of those where every plan can be tried: but not where plans are few enough for
    trying alone, which ends when time `is_over`.
    """
    formulation, known = at_lowest_protocols(formulation)
    searches = ProtocolSearches(search, known, gap, is_over)
    formulation, outcome = searches.settled(formulation, searches.at(formulation))
    rounds = 0
    while rounds < ROUNDS:
        formulation, outcome = searches.tried(formulation, outcome)
        bound, step_s = outcome.bound, outcome.step_s
        if bound is None or step_s is None:
            return formulation, outcome
        outcome = over_protocols(formulation, replace(outcome, elsewhere=()), known)
        enough_s = enough_elsewhere_s(bound.seconds, step_s, gap)
        below = [each for each in outcome.elsewhere if each.bound.seconds < enough_s]
        below = [each for each in below if each.protocols not in searches.done]
        if not below:
            return formulation, with_least_raised(formulation, outcome, known, searches.done)
        other = known.at.formulation(min(below, key=lambda each: each.bound.seconds).protocols)
        other, found = searches.settled(other, searches.at(other))
        rounds += found.bound is None or found.bound.exhaustive_search_s is None
        if found.step_s is not None and found.step_s < step_s:
            formulation, outcome = other, found
    outcome = over_protocols(formulation, replace(outcome, elsewhere=()), known)
    return formulation, with_least_raised(formulation, outcome, known, searches.done)


def enough_elsewhere_s(bound_s: float, step_s: float, gap: float) -> float:
    """The bound at other protocols than a plan's own from which on they are not searched."""
    return min(bound_s * (1 - OPTIMAL_GAP) - FURTHER * (step_s - bound_s), step_s / (1 + gap))


class ProtocolSearches:
    """Searches at one protocol after the other, at each once, for a plan within `gap` of the bound."""

    def __init__(
        self, search: Search, known: KnownBounds, gap: float, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self._search, self._known, self._gap, self._is_over = search, known, gap, is_over
        self._gave_up: set[Protocols] = set()
        self._trials_left = TRIALS_WORK
        self.done: set[Protocols] = set()
        self._begun_anew: set[Protocols] = set()

    def at(self, formulation: Formulation, start: Placement | None = None) -> Outcome:
        """Search at the protocols of a formulation, and keep the bound."""
        protocols = formulation.model.protocols
        self.done.add(protocols)
        if start is None:
            self._begun_anew.add(protocols)
        relaxation = self._known.at.relaxation(formulation)
        outcome = self._search(formulation, self._known.elsewhere(protocols), start, relaxation)
        if outcome.bound is not None:
            self._known.keep_found(protocols, outcome.bound)
        return outcome

    def tried(self, formulation: Formulation, outcome: Outcome) -> tuple[Formulation, Outcome]:
        """Return an outcome once every plan was tried that may be faster at its own protocols, where these are few and
        its bound is not within the gap, and at all others every one below what is proven at its own; the same where the
        former takes too much work or time, or a model has one protocol."""
        first, bound, known = (formulation, outcome), outcome.bound, self._known
        own, everywhere = formulation.model.protocols, formulation.model.all_protocols
        if bound is None or outcome.step_s is None or own in self._gave_up or len(everywhere) == 1:
            return first
        if not may_be_tried(formulation.problem):
            return first
        known.keep_all(own, bound)
        gap = max(self._gap, OPTIMAL_GAP)
        if self._is_within(gap, formulation, outcome):
            return first
        is_loose = outcome.step_s > bound.seconds * (1 + gap)
        while self._trials_left > 0:
            assert outcome.step_s is not None
            at = own = formulation.model.protocols
            own_s, threshold_s = known.seconds(own), next_threshold_s(known.seconds(own), outcome.step_s)
            if not is_loose or own_s >= proven_s(outcome.step_s):
                threshold_s = min(outcome.step_s, own_s * (1 + OPTIMAL_GAP / 2))
                left = [each for each in everywhere if each not in (own, *self._gave_up)]
                left = [each for each in left if known.seconds(each) < proven_s(threshold_s)]
                if not left:
                    break
                at = min(left, key=known.seconds)
            found = known.tried(at, threshold_s, TRIED_WORK, self._is_over)
            self._trials_left -= TRIED_WORK if found is None else found.work
            if found is None:
                self._gave_up.add(at)
                if self._is_over():
                    return formulation, replace(outcome, ran_out_of_time=True)
                if at == own:
                    return first
            elif found.placement is not None:
                faster = at_own_protocols(known.at.formulation(at), found.placement, known.at)
                formulation, outcome = faster, moved(faster, outcome, found.placement, known)
        assert outcome.placement is not None
        return formulation, moved(formulation, outcome, outcome.placement, known)

    def settled(self, formulation: Formulation, outcome: Outcome) -> tuple[Formulation, Outcome]:
        """Return what is found at the protocols of its own plan, from an outcome at others; and at those of the plans
        that it had earlier, where fewer passes would have gone on, so that more passes are not worse there."""
        first, earlier = formulation, outcome.earlier
        formulation, outcome = self._from_own(formulation, outcome)
        for placement in earlier:
            if outcome.step_s is None or self._is_within(self._gap, formulation, outcome):
                break
            own = at_own_protocols(first, placement, self._known.at)
            if own is first:
                continue
            there = moved(own, outcome, placement, self._known)
            start = self._start(own, there)
            if own.model.protocols in (self._begun_anew if start is None else self.done):
                continue
            other, found = self.settled(own, better(there, self.at(own, start)))
            if found.step_s is not None and found.step_s < outcome.step_s:
                formulation, outcome = other, found
        return formulation, outcome

    def _from_own(self, formulation: Formulation, outcome: Outcome) -> tuple[Formulation, Outcome]:
        """Return what is found at the protocols of the plan itself, as long as these are others. Where a plan without
        sums around all ranks takes as long as beside such sums, and hardly less is proven, that search will do."""
        for _ in range(ROUNDS):
            if outcome.placement is None or outcome.bound is None:
                break
            own = at_own_protocols(formulation, outcome.placement, self._known.at)
            if own is formulation:
                break
            if self._will_do(own, outcome):
                self.done.add(own.model.protocols)
            formulation, outcome = own, moved(own, outcome, outcome.placement, self._known)
            if own.model.protocols not in self.done and not self._is_within(self._gap, own, outcome):
                outcome = better(outcome, self.at(own, self._start(own, outcome)))
        return formulation, outcome

    def _will_do(self, own: Formulation, outcome: Outcome) -> bool:
        """Whether what was found beside sums around all ranks takes as long at its own protocols, without any, and
        hardly less is proven there. What branching, patterns or trying proves is proven beside such sums alone."""
        assert outcome.placement is not None
        assert outcome.bound is not None
        assert outcome.step_s is not None
        bound = outcome.bound
        least_s = bound.seconds - FURTHER * (outcome.step_s - bound.seconds)
        stays = bound.tree is not None or bound.patterns is not None or bound.exhaustive_search_s is not None
        if stays or own.model.around is None or self._known.seconds(own.model.protocols) < least_s:
            return False
        return load_state(own.problem, outcome.placement).step_s() >= outcome.step_s * (1 - ROUNDING)

    def _start(self, formulation: Formulation, outcome: Outcome) -> Placement | None:
        """Return the plan that a search begins with, where it is near enough."""
        return outcome.placement if self._is_within(NEAR, formulation, outcome) else None

    def _is_within(self, gap: float, formulation: Formulation, outcome: Outcome) -> bool:
        assert outcome.step_s is not None
        assert outcome.bound is not None
        bound_s = min(outcome.bound.seconds, self._known.elsewhere_s(formulation.model.protocols))
        return outcome.step_s <= bound_s * (1 + gap)


def moved(formulation: Formulation, outcome: Outcome, placement: Placement, known: KnownBounds) -> Outcome:
    """An outcome with its plan, or a better one, at other protocols, with the bound there."""
    assert outcome.bound is not None
    step_s = load_state(formulation.problem, placement).step_s()
    bound = known.above(formulation.model.protocols, outcome.bound)
    if bound is None:
        bound = known.better(formulation.model.protocols, bound_at(formulation.problem, outcome.bound))
    bound = replace(bound, seconds=min(bound.seconds, step_s))
    status: Status = "optimal" if step_s <= bound.seconds * (1 + OPTIMAL_GAP) else "feasible"
    return replace(outcome, placement=placement, step_s=step_s, bound=bound, status=status)


def over_protocols(formulation: Formulation, outcome: Outcome, known: KnownBounds | None = None) -> Outcome:
    """The outcome of a search with bounds at all other protocols than its own, some of which are `known`."""
    if outcome.bound is None or outcome.elsewhere:
        return outcome
    return replace(outcome, elsewhere=bounds_elsewhere(formulation, outcome.bound, known))


def bounds_elsewhere(
    formulation: Formulation, bound: Bound, known: KnownBounds | None = None
) -> tuple[ProtocolBound, ...]:
    """Bounds at all protocols but those of the formulation, at which one is given and others may be `known`: what its
    multipliers prove; where that is less than the bound itself, others. No more than that is of use."""
    at = AtProtocols(formulation) if known is None else known.at
    proven: list[ProtocolBound] = []
    for protocols in formulation.model.all_protocols:
        if protocols == formulation.model.protocols:
            continue
        make = functools.partial(_bound_elsewhere, at, protocols, bound, known)
        there = make() if known is None else known.made_elsewhere(protocols, bound, make)
        proven.append(ProtocolBound(protocols, there))
    return tuple(proven)


def _bound_elsewhere(at: AtProtocols, protocols: Protocols, bound: Bound, known: KnownBounds | None) -> Bound:
    """One of `bounds_elsewhere`."""
    fluid = at.fluid(protocols)
    best = multipliers_at(fluid, bound)
    if best.seconds < bound.seconds and known is not None:
        best = known.better(protocols, best)
    if best.cases is None and bound.cases is not None:
        best = raised_like(fluid, best, bound)
    if best.seconds < bound.seconds * (1 - ROUNDING):
        anew = tighten(fluid, at.optimum(protocols, fluid), bound.seconds)
        best = max(best, anew, key=lambda each: each.seconds)
    return strengthened_like(fluid, best, bound) if bound.cases is None else best


def with_least_raised(
    formulation: Formulation, outcome: Outcome, known: KnownBounds, done: Collection[Protocols] = ()
) -> Outcome:
    """The outcome with the least of its bounds at all protocols raised, until it is near the plan or nothing proves
    more; by what takes little time alone at those that are `done`, where searches raised it before. What proves more at
    one share of what is prefetched mostly does at others, too."""
    if outcome.bound is None or outcome.step_s is None:
        return outcome
    own = formulation.model.protocols
    bounds = {own: outcome.bound, **{each.protocols: each.bound for each in outcome.elsewhere}}
    while True:
        least = min(bounds, key=lambda each: (bounds[each].seconds, not known.at.is_solved(each)))
        raised = _raised(known, least, bounds[least], outcome, is_done=least in done)
        if raised is None:
            break
        bounds[least] = raised
        for other in formulation.model.other_shares(least):
            if bounds[other].seconds < raised.seconds:
                like = proven_like(known.at.fluid(other), raised)
                bounds[other] = max(bounds[other], like, key=lambda each: each.seconds)
    elsewhere = tuple(ProtocolBound(each.protocols, bounds[each.protocols]) for each in outcome.elsewhere)
    return replace(outcome, bound=bounds[own], elsewhere=elsewhere)


def _raised(known: KnownBounds, protocols: Protocols, bound: Bound, outcome: Outcome, *, is_done: bool) -> Bound | None:
    """A higher bound at some protocols, of a plan's step at most; None where there is none, or none is needed, as a
    search that divided the plans has looked for all that takes little time."""
    placement, step_s = outcome.placement, outcome.step_s
    assert placement is not None
    assert step_s is not None
    if bound.seconds * (1 + LOOSE) >= step_s or (is_done and bound.cases is not None):
        return None
    fluid = known.at.fluid(protocols)
    relaxed = known.at.optimum(protocols, fluid)
    raised = divided_quickly(fluid, relaxed, step_s)
    if raised.seconds <= bound.seconds and not is_done:
        raised = divided_thoroughly(fluid, relaxed, placement)
    return replace(raised, seconds=min(raised.seconds, step_s)) if raised.seconds > bound.seconds else None


def shards_of(formulation: Formulation, placement: Placement) -> PlacedShards:
    """The shards of a placement, block by block."""
    problem, begun = formulation.problem, set[int]()
    ranks, rows, counts, opens = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)], list[int](), list[bool]()
    for block, place in zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True):
        members, _, held = rank_rows(problem, block, place)
        ranks.append(members)
        rows.append(held)
        counts.append(len(members))
        option = int(problem.block_option[block])
        opens.append(not problem.option_apart[option] or option not in begun)
        begun.add(option)
    count = np.array(counts, dtype=np.int64)
    first = np.zeros(count.sum(), dtype=bool)
    first[np.cumsum(count) - count] = opens
    blocks = formulation.options.blocks.take(placement.item_block).repeated(count)
    return PlacedShards(blocks, np.concatenate(ranks), np.concatenate(rows), first)
