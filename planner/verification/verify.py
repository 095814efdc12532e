"""Whether a plan document says the truth: recomputed from the inputs it carries, without a solver.

Nothing here knows how a plan was found. Shards are read from the document, checked as rectangles, costed one by one
by the cost model and summed; then every figure of the document is compared.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import (
    PLACEMENT_TIERS,
    SHARDINGS,
    STATE_PLACES,
)
from cost_models.workload.formats import DTYPES
from cost_models.workload.models import Workload
from planner.document.migration import migration_from, plan_fingerprint
from planner.document.origin import Provenance, Source
from planner.document.plan import Plan, TablePlan
from planner.document.planned import placed_shards, planned_model
from planner.document.provenance import (
    coefficient_sources,
    faults_of_cuts,
    faults_of_fractions,
    planned_options,
    tried_fractions,
)
from planner.document.remaps import faults_of_files
from planner.document.traffic import moves_of
from planner.formulation.allowed_choices import AllowedChoices, HeldTable, violations
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.formulation import Formulation
from planner.formulation.option_space import Space
from planner.formulation.options import fixed_fractions
from planner.formulation.software import plan_warnings
from planner.verification.dense import faults_of_dense
from planner.verification.error_bars import faults_of_error_bars
from planner.verification.exchanges import exchange_faults, other_exchange_faults
from planner.verification.figures import (
    ROUNDED,
    TOLERANCE,
    capacity_faults,
    figure_faults,
)
from planner.verification.goals import faults_of_goals
from planner.verification.groups import faults_of_replicas
from planner.verification.infeasibility import faults_of_reason
from planner.verification.protocol_proofs import faults_of_proofs, proven_s
from planner.verification.robustness import faults_of_robustness
from planner.verification.shape import OPTIMAL_GAP, status_faults, structure_faults
from planner.verification.simulation import simulation_faults
from planner.verification.variants import faults_of_variants, held_choices
from topologies.cluster import Topology, fingerprint
from topologies.errors import InputError


def verify(plan: Plan, former: Plan | None = None, folder: str | Path | None = None) -> list[str]:
    """Everything that does not hold, in words; empty for a plan that is right.

    Checked: the inputs are those of the fingerprints; every table is covered exactly once, the way its sharding
    says; bytes of shards and ranks, and no memory over its capacity; stage times, critical ranks, their sum, their
    error bars and the gap; the bound is not above the objective, and is proven; the policy is kept; the status goes
    with them; split tables have as many hot rows as their bytes hold; of a plan that places nothing, that nothing fits
    and why. What moved is checked against the `former` plan, and the files of remapped ids in the plan's `folder`,
    where these are given. What is not checked, `planner.verification.unchecked` lists. Raises InputError if the inputs
    in the document cannot be read.
    """
    model, policy = planned_model(plan), plan.provenance.policy
    faults = [*_sources(plan.provenance, model.cluster, model.stated_workload), *status_faults(plan)]
    faults += exchange_faults(plan, model.topology, model.workload)
    faults += _coefficients(plan, model)
    faults += _warnings(plan, model)
    faults += faults_of_replicas(plan, model)
    faults += faults_of_dense(plan, model)
    try:
        choices = allowed_choices(model, policy)
    except InputError as error:
        return [*faults, *(f"policy: {fault.path}: {fault.message}" for fault in error.faults)]
    if fractions := list(faults_of_fractions(plan.provenance, choices.costed(model))):
        return [*faults, *fractions]
    faults += faults_of_cuts(plan.provenance, model, choices)
    if unknown := list(faults_of_variants(plan, choices)):
        return [*faults, *unknown]
    if plan.objective is None:
        options = planned_options(plan.provenance, model, choices)
        faults += faults_of_reason(plan, model, options)
        return [*faults, *(() if plan.tables else _moves(plan, model, choices, former))]
    placed = list(structure_faults(plan, model)) or list(_policy(plan, model, choices))
    faults += placed
    if placed:
        return faults
    model = model.linearised_at(placed_shards(plan))
    evaluation = model.evaluate(placed_shards(plan))
    faults += figure_faults(plan, model, evaluation)
    faults += _options(plan, model, choices)
    faults += faults_of_error_bars(plan, model)
    faults += _proof(plan, model, choices)
    faults += other_exchange_faults(plan, choices)
    faults += _moves(plan, model, choices, former)
    faults += simulation_faults(plan)
    faults += faults_of_robustness(plan, model)
    faults += faults_of_goals(plan)
    faults += [] if folder is None else faults_of_files(plan, Path(folder))
    return faults


def verify_limits(plan: Plan, model: CostModel) -> list[str]:
    """What does not keep to the policy, or else to the memory, in words.

    For a plan whose tables are covered and whose figures the `model` computed a moment ago; `verify` checks these, too.
    """
    choices = allowed_choices(model, plan.provenance.policy)
    broken = list(faults_of_variants(plan, choices)) or list(_policy(plan, model, choices))
    return broken or list(capacity_faults(plan, model, model.evaluate(placed_shards(plan))))


def _policy(plan: Plan, model: CostModel, choices: AllowedChoices) -> Iterator[str]:
    choices = held_choices(plan, choices)
    yield from violations(choices, [_held(*each) for each in zip(plan.tables, model.copies.tolist(), strict=True)])


def _options(plan: Plan, model: CostModel, choices: AllowedChoices) -> Iterator[str]:
    """Whether every table is held in a way that the bound covers, or is said not to be."""
    assert plan.objective is not None
    outside, stated = outside_options(plan, model, choices), plan.objective.outside
    for name, words in outside.items():
        if name not in stated:
            yield f"table {name}: the bound does not cover how it is held: {words}"
    for name in stated:
        if name not in outside:
            yield f"objective: table {name} is said to be held in a way that the bound does not cover"
    if len(set(stated)) < len(stated):
        yield "objective: a table is said twice to be held in a way that the bound does not cover"
    if plan.status == "optimal" and stated:
        yield "status: optimal, though the bound does not cover how tables are held"


def outside_options(plan: Plan, model: CostModel, choices: AllowedChoices) -> dict[str, str]:
    """The names of tables that are held in a way that is no option, each with the reason in words."""
    tried, variants = tried_fractions(plan.provenance, choices.costed(model)), choices.variants
    if variants is not None:
        held = variants.of_tables([table.variant for table in plan.tables])
        tried = {tier: shares[held] for tier, shares in tried.items()}
    choices = held_choices(plan, choices)
    space = Space(model, choices, plan.provenance.cuts)
    fractions = fixed_fractions(tried, choices)
    outside = {}
    for number, table in enumerate(plan.tables):
        tier, sharding = PLACEMENT_TIERS.index(table.tier), SHARDINGS.index(table.sharding)
        _, first, ranks = np.unique(table.shards.column_start, return_index=True, return_counts=True)
        words = space.outside(number, tier, sharding, table.shards.columns[first], int(ranks.max()))
        if (
            words is None
            and table.cache_fraction is not None
            and not (fractions[table.tier][number] == table.cache_fraction).any()
        ):
            words = f"a cache of {table.cache_fraction:g} of its rows is not tried"
        if words is not None:
            outside[table.name] = f"{table.sharding} in {table.tier}: {words}"
    return outside


def _held(table: TablePlan, copies: int) -> HeldTable:
    """How the plan holds a table of which ranks have so many copies, in the words of the choices."""
    shards = table.shards
    replicated = table.sharding == "data_parallel"
    return HeldTable(
        table.name,
        PLACEMENT_TIERS.index(table.tier),
        SHARDINGS.index(table.sharding),
        DTYPES.index(table.dtype),
        STATE_PLACES.index(table.optimizer_state),
        shards.rank,
        1 if replicated else len(shards) // copies,
        shards.columns[np.unique(shards.column_start, return_index=True)[1]],
        table.cache_fraction,
    )


def _moves(plan: Plan, model: CostModel, choices: AllowedChoices, former: Plan | None) -> Iterator[str]:
    """Whether what moves keeps to the limit, and follows from the former plan."""
    moves = plan.moves
    if moves is None:
        if former is not None:
            yield "moves: the plan does not say that it follows another"
        return
    if plan.objective is not None and moves.limit_bytes is not None and moves.moved_bytes > moves.limit_bytes + ROUNDED:
        yield f"moves: {moves.moved_bytes} bytes move, the limit is {moves.limit_bytes}"
    if plan.objective is not None and moves.moved_bytes < moves.least_bytes - ROUNDED:
        yield f"moves: {moves.moved_bytes} bytes move, and no plan is said to move less than {moves.least_bytes}"
    if former is None:
        return
    if plan_fingerprint(former) != moves.former.fingerprint:
        yield "moves: the plan given with --from is not the one that this plan follows"
        return
    formulation = Formulation.of_options(model, planned_options(plan.provenance, model, choices))
    migration = migration_from(former, model, moves.former.lost_nodes)
    least = migration.incumbent(formulation).least_moved_bytes(formulation.problem)
    found_bytes = None if plan.tables else moves.found_bytes
    recomputed = moves_of(migration, plan.tables, least, moves.limit_bytes, moves.pay_back_steps, found_bytes)
    for name, stated in moves:
        if getattr(recomputed, name) != stated:
            yield f"moves: {name} is {getattr(recomputed, name)!r}, the document says {stated!r}"


def _warnings(plan: Plan, model: CostModel) -> Iterator[str]:
    expected = plan_warnings(model, plan.provenance.policy)
    if plan.provenance.warnings != expected:
        yield f"warnings: the document has {list(plan.provenance.warnings)}, its inputs give {list(expected)}"


def _coefficients(plan: Plan, model: CostModel) -> Iterator[str]:
    if plan.provenance.coefficients != coefficient_sources(model.coefficients):
        yield "coefficients: the plan was costed with others than this planner has"


def _sources(origin: Provenance, topology: Topology, workload: Workload) -> Iterator[str]:
    """Whether the inputs are those whose names and fingerprints the document states."""
    yield from _source("topology", origin.topology, topology)
    yield from _source("workload", origin.workload, workload)
    recomputed = fingerprint(origin.policy)
    if origin.policy_fingerprint not in (None, recomputed):
        yield f"policy: the content hashes to {recomputed}, the document says {origin.policy_fingerprint}"
    if origin.wall_s is not None:
        yield f"provenance: wall_s is {origin.wall_s!r}; a document states none"


def _source(kind: str, source: Source, record: Topology | Workload) -> Iterator[str]:
    recomputed = fingerprint(record)
    if recomputed != source.fingerprint:
        yield f"{kind}: the content hashes to {recomputed}, the document says {source.fingerprint}"
    if record.name != source.name:
        yield f"{kind}: is called {record.name!r}, the document says {source.name!r}"


def _proof(plan: Plan, model: CostModel, choices: AllowedChoices) -> Iterator[str]:
    assert plan.objective is not None
    if plan.proof is None:
        yield "proof: the lower bound comes without one"
        return
    formulation = Formulation.of_options(model, planned_options(plan.provenance, model, choices))
    faults = list(faults_of_proofs(plan.proof, formulation))
    yield from (f"proof: {fault}" for fault in faults)
    if faults:
        return
    proven = model.whole_step_s(proven_s(plan.proof, formulation))
    if proven < plan.objective.lower_bound_s * (1 - TOLERANCE):
        yield f"proof: its multipliers prove {proven!r}, the document says {plan.objective.lower_bound_s!r}"
    if plan.status == "feasible" and plan.objective.gap <= OPTIMAL_GAP - TOLERANCE and not plan.objective.outside:
        yield "status: feasible, though the bound proves the plan optimal"
