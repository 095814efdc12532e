"""Why nothing fits, in the document's words: written from a solver's proof, and checked without one.

The words follow from the inputs and the multipliers of memory alone. So whoever checks a document writes them anew
from the multipliers that it states, and compares.
"""

from collections.abc import Iterator

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import HOME_OF_TIER, MEMORY_HBM, PLACEMENT_TIERS, SHARDINGS
from planner.certificates.exhaustive_search import search_exhaustively
from planner.certificates.lagrangian import cheapest_options, lagrangian_s
from planner.certificates.multipliers import Multipliers
from planner.certificates.shortage import Shortage, blamed_ranks, growth_for
from planner.document.certificates import Proof
from planner.document.differences import differences
from planner.document.migration import is_limit_too_small
from planner.document.plan import Plan
from planner.document.reasons import Infeasibility, Remedy, TableDemand, TierShortage
from planner.document.smallest_shards import SmallestShards, explain_unplaced
from planner.formulation.formulation import Formulation
from planner.formulation.option_space import EVERY_CUT
from planner.formulation.options import Options, build_problem, enumerate_options
from planner.formulation.policy import NEEDED_SITES, Policy, has_sites
from planner.formulation.rank_words import rank_ranges
from planner.formulation.variants import memory_names
from planner.problem.arrays import Problem
from planner.problem.numbers import Ints
from planner.verification.proof import faults_of, read_proof
from planner.verification.proof_places import memory_multipliers
from topologies.units import format_bytes

_BLAMED = 5
"""Tables that are named at most."""


def explain_shortage(formulation: Formulation, shortage: Shortage) -> Infeasibility:
    """A solver's proof in the user's words."""
    model, options, problem = formulation.model, formulation.options, formulation.problem
    tables, of, choices = model.workload.tables, model.tables, options.choices
    every = np.arange(len(tables))
    sizes = of.rows.astype(float) * (of.row_bytes(every, of.dim) + of.row_state_bytes(every, of.dim))
    ranks = problem.reach if shortage.ranks is None else shortage.ranks
    capacity = [
        float(of_pool[np.unique(pool[ranks])].sum())
        for of_pool, pool in zip(problem.pool_capacity, problem.pool_of_rank, strict=True)
    ]
    short = shortage.bytes_short.copy()
    if model.stashes:  # HBM is short at one of its two moments
        short[MEMORY_HBM] = np.fmax(short[MEMORY_HBM], short[len(model.memories)])
    tiers = tuple(
        TierShortage(
            tier=tier,
            capacity_bytes=int(capacity[m]),
            short_bytes=None if np.isnan(short[m]) else int(np.ceil(short[m])),
        )
        for m, tier in enumerate(model.memories)
    )
    within = " within the budget of losses" if options.choices.variants is not None else ""
    concerned = every if shortage.ranks is None else np.flatnonzero(problem.tables_within(shortage.ranks))
    if len(shortage.unplaceable):
        shards = SmallestShards(formulation)
        blamed = shortage.unplaceable[np.argsort(-shards.smallest[shortage.unplaceable], kind="stable")]
        summary = f"{len(blamed)} of {len(tables)} tables fit nowhere, whatever else is placed"
        reasons = _unplaceable_reasons(model, options, blamed[:_BLAMED], shards)
    else:
        blamed = concerned[np.argsort(-sizes[concerned], kind="stable")]
        may_use = np.asarray(choices.tiers[concerned].any(axis=0)).tolist()
        allowed = [tier for tier, may in zip(PLACEMENT_TIERS, may_use, strict=True) if may]
        held_in = {"hbm", *(HOME_OF_TIER[tier] for tier in allowed)}
        room = sum(size for tier, size in zip(model.memories, capacity, strict=False) if tier in held_in)
        what = "the tables"
        if shortage.ranks is not None:
            count = f"{len(concerned)} table{'s' * (len(concerned) > 1)}"
            what = f"the {count} that the policy keeps on ranks {rank_ranges(np.flatnonzero(ranks).tolist())}"
        if sizes[concerned].sum() <= room:
            what += " with what they bring (caches, ids and outputs in flight)"
        summary = f"{what} need more memory{within} than the tiers that may hold them have"
        reasons = ["among the largest"] * _BLAMED
        if shortage.ranks is not None:
            reasons = [choices.words(table) for table in blamed[:_BLAMED].tolist()]
    demand = tuple(
        TableDemand(name=tables[i].name, bytes=int(sizes[i]), reason=reason)
        for i, reason in zip(blamed[:_BLAMED].tolist(), reasons, strict=False)
    )
    return Infeasibility(
        summary=summary,
        tiers=tiers,
        tables=demand,
        memory_multipliers=memory_multipliers(model, problem, shortage.byte),
    )


def explain_exhaustive_search(formulation: Formulation, remedies: tuple[Remedy, ...]) -> Infeasibility:
    """Why nothing fits where only trying everything shows it."""
    unplaced = explain_unplaced(SmallestShards(formulation))
    summary = "the memory suffices for the tables as a whole, but every way to place their pieces was tried: none fits"
    if formulation.problem.grouped.any():
        summary += " and keeps to the policy"
    return Infeasibility(
        summary=summary,
        tiers=(),
        tables=unplaced.tables,
        memory_multipliers=(),
        exhaustive_search=True,
        remedies=remedies,
    )


def _unplaceable_reasons(model: CostModel, options: Options, tables: Ints, shards: SmallestShards) -> list[str]:
    """Why each of some tables fits nowhere: what limits it, if it had an option that fits without the policy."""
    unlimited = build_problem(model, enumerate_options(model, Policy()))
    has_option = np.unique(unlimited.table_of_block[unlimited.allowed.any(axis=0)])
    reasons = []
    for table in tables.tolist():
        words = options.choices.words(table)
        if words and table in has_option:
            reasons.append(f"the policy leaves no option that fits: {words}{_missing_sites(model, options, table)}")
        else:
            reasons.append(shards.words(table))
    return reasons


def _missing_sites(model: CostModel, options: Options, table: int) -> str:
    """What clusters the shardings need that are left to a table, if this one has no sites for any of them."""
    left = [SHARDINGS[number] for number in np.flatnonzero(options.choices.shardings[table]).tolist()]
    needed = [NEEDED_SITES[each] for each in left if each in NEEDED_SITES and not has_sites(each, model.topology)]
    return f" ({'; '.join(needed)})" if needed and len(needed) == len(left) else ""


def explain_limit(least_bytes: int, limit_bytes: int) -> Infeasibility:
    """Why there is no plan where more must move than may."""
    summary = f"at least {format_bytes(least_bytes)} must move, and the limit is {format_bytes(limit_bytes)}"
    return Infeasibility(summary=summary, tiers=(), tables=(), memory_multipliers=())


# -- checked -----------------------------------------------------------------------------------------------------------


def faults_of_reason(plan: Plan, model: CostModel, options: Options) -> Iterator[str]:
    """What does not hold of why a plan places nothing: its proof, and every word and number that follows from it."""
    recomputed: dict[str, object] = {}
    if plan.infeasibility is not None and "cuts" in plan.provenance.model_fields_set and options.cuts != EVERY_CUT:
        yield f"infeasible: shown for {options.cuts.words} alone"
    if plan.infeasibility is not None:
        stated = plan.infeasibility.model_dump(mode="json")
        claim = _limit_claim(plan)
        if claim is None:
            formulation = Formulation.of_options(model, options)
            if fault := _unproven(plan.infeasibility, model, formulation.problem):
                yield fault
                return
            claim = _recomputed(plan.infeasibility, formulation)
        recomputed = claim.model_dump(mode="json")
    elif plan.unplaced is not None:
        formulation = Formulation.of_options(model, options)
        if len(_without_option(formulation.problem)):
            yield "unplaced: some tables fit nowhere, which is infeasible"
        stated = plan.unplaced.model_dump(mode="json")
        recomputed = explain_unplaced(SmallestShards(formulation), plan.unplaced.remedies).model_dump(mode="json")
    else:
        return
    for path, was, now in differences(recomputed, stated):
        yield f"{plan.status}: {path} is {was!r}, the document says {now!r}"


def _limit_claim(plan: Plan) -> Infeasibility | None:
    """What the document should say where more must move than may; None where it claims a want of memory."""
    moves, reason = plan.moves, plan.infeasibility
    assert reason is not None
    if reason.exhaustive_search or reason.tiers or not is_limit_too_small(plan):
        return None
    assert moves is not None
    assert moves.limit_bytes is not None
    return explain_limit(moves.least_bytes, moves.limit_bytes)


def _unproven(reason: Infeasibility, model: CostModel, problem: Problem) -> str | None:
    """Why a claim that the memory does not suffice is not proven; None where it is."""
    if reason.exhaustive_search:
        return None if nothing_fits(problem) else "infeasible: trying all placements does not show that none fits"
    if is_infeasible(reason, model, problem):
        return None
    return "infeasible: its memory multipliers do not prove that the tables need more memory than there is"


def nothing_fits(problem: Problem) -> bool:
    """Whether no placement fits into memory and keeps to the policy, as trying them all shows."""
    tried = search_exhaustively(problem.without_seconds(), 1.0)
    return tried is not None and tried.placement is None


def is_infeasible(reason: Infeasibility, model: CostModel, problem: Problem) -> bool:
    """Whether no placement fits: a table has no option, or the multipliers put the need above all memory."""
    claim = _priced(reason)
    if any(faults_of(claim, model, problem)):
        return False
    multipliers, usable = read_proof(claim, model, problem)
    nothing = np.zeros(len(problem.stage_constants))
    return lagrangian_s(problem, multipliers, usable, nothing) > float(problem.stage_constants.sum())


def _priced(reason: Infeasibility) -> Proof:
    return Proof(threshold_s=None, weights=(), memory_multipliers=reason.memory_multipliers)


def _without_option(problem: Problem) -> Ints:
    """The tables without an option that fits on empty hardware."""
    capacity_regions, columns = len(problem.capacity_regions.kind), len(problem.stage_of_column)
    zero = Multipliers(np.zeros((capacity_regions, columns)), np.zeros((capacity_regions, len(problem.pool_capacity))))
    usable = np.asarray(problem.allowed.any(axis=0))
    return np.flatnonzero(np.isinf(cheapest_options(problem, zero, usable)))


def _recomputed(reason: Infeasibility, formulation: Formulation) -> Infeasibility:
    """What the document should say of a proven want of memory; how much is short where a solver found it, and the
    remedies, as it says."""
    if reason.exhaustive_search:
        return explain_exhaustive_search(formulation, reason.remedies)
    model, problem = formulation.model, formulation.problem
    multipliers, _ = read_proof(_priced(reason), model, problem)
    unplaceable = _without_option(problem)
    if len(unplaceable):
        shortage = Shortage(unplaceable, np.zeros_like(multipliers.byte), growth_for(problem, unplaceable))
    else:
        stated: dict[str, int | None] = {tier.tier: tier.short_bytes for tier in reason.tiers}
        memories = memory_names(model, len(problem.pool_capacity))
        short = [np.nan if (size := stated.get(tier)) is None else float(size) for tier in memories]
        shortage = Shortage(unplaceable, multipliers.byte, np.array(short), blamed_ranks(problem, multipliers.byte))
    recomputed = explain_shortage(formulation, shortage)
    return recomputed.model_copy(update={"remedies": reason.remedies})
