"""What a plan document states that verification takes as stated: which fields, and why."""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from cost_models.replicas import ranks_of
from planner.document.plan import Plan
from planner.document.planned import planned_inputs, planned_replicas
from planner.formulation.option_space import EVERY_CUT
from planner.formulation.question import open_exchanges


class Unchecked(NamedTuple):
    """A field that is not recomputed."""

    field: str
    """Its path in the document."""
    why: str


OF_THE_QUESTION = "the document's own; -t, -w and -p compare them with yours"
OF_THE_SEARCH = "a search is not repeated"
OF_REMEDIES = "each was tried; plan with its flags to see"
OF_TERMS = "what the user set"
UNSTATED = "the document states none"


INPUTS = ("topology", "workload", "policy")
"""What a plan is computed for."""


def unchecked(
    plan: Plan, *, given: Collection[str] = (), has_former: bool = False, has_folder: bool = False
) -> list[Unchecked]:
    """Every field of the document that `planner.verification.verify.verify` takes as stated, in the document's order.

    `given` are those of the INPUTS that the document is held against besides; `has_former` and `has_folder` say whether
    the plan that this one follows, and the folder of its files, are given.
    """
    return [
        *_of_result(plan),
        *_of_tables(plan, has_folder=has_folder),
        *_of_provenance(plan, given),
        *_of_reasons(plan),
        *_of_moves(plan, has_former=has_former),
    ]


def in_words(fields: Sequence[Unchecked]) -> str:
    """One line: the fields, those with the same reason together; of where the plan comes from by their last name."""
    parts = groupby(fields, key=lambda field: field.why)
    names = ((why, [field.field.removeprefix("provenance.") for field in same]) for why, same in parts)
    return "; ".join(f"{', '.join(same)} ({why})" for why, same in names)


def _of_result(plan: Plan) -> Iterator[Unchecked]:
    objective = plan.objective
    if objective is not None and objective.best_step_s is not None:
        yield Unchecked("objective.best_step_s", OF_THE_SEARCH)
        yield Unchecked("objective.given_up_s", OF_THE_SEARCH)
    if objective is not None and objective.solver_bound_s is not None:
        yield Unchecked("objective.solver_bound_s", "a solver's word, without a certificate")
    if objective is not None and objective.error_bar is None and objective.no_error_bar is None:
        yield Unchecked("objective.error_bar", UNSTATED)
        yield Unchecked("objective.no_error_bar", UNSTATED)
    if objective is not None and plan.simulated is None:
        yield Unchecked("simulated", UNSTATED)
    if plan.goals:
        yield Unchecked("goals.*.best", OF_THE_SEARCH)
    if plan.robust is not None:
        yield Unchecked("robust.*.nominal", "the nominal plan is not in the document")
    if plan.replicas is not None and plan.replicas.others:
        yield Unchecked("replicas.others.*", "of other choices that they fit their verdicts; a search is not repeated")
    if plan.dense is not None and plan.dense.others:
        yield Unchecked("dense.others.*", "of other strategies that they fit their verdicts; a search is not repeated")
    if plan.other_exchange is not None:
        yield Unchecked("other_exchange.step_s", OF_THE_SEARCH)
    elif objective is not None and plan.provenance.policy.exchange == "auto" and _has_choice(plan):
        yield Unchecked("provenance.exchange", f"the bound covers {plan.provenance.exchange} alone")
    if plan.status == "timeout":
        yield Unchecked("status", "that nothing was found in time, and that the memory suffices as a whole")


def _has_choice(plan: Plan) -> bool:
    """Whether the policy leaves more than one exchange of vectors open."""
    origin, (topology, workload) = plan.provenance, planned_inputs(plan)
    cluster = ranks_of(planned_replicas(plan), topology)
    return len(open_exchanges(origin.cost_model, cluster, workload, origin.policy)) > 1


def _of_tables(plan: Plan, *, has_folder: bool) -> Iterator[Unchecked]:
    if not has_folder and any(table.remap is not None and table.remap.path for table in plan.tables):
        yield Unchecked("tables.*.remap.path", "the plan's folder is not given")
        yield Unchecked("tables.*.remap.sha256", "the plan's folder is not given")


def _of_provenance(plan: Plan, given: Collection[str]) -> Iterator[Unchecked]:
    for name in INPUTS:
        if name not in given:
            yield Unchecked(f"provenance.{name}", OF_THE_QUESTION)
    for name in ("planner_version", "solver", "seed", "seeds", "ended_by_time"):
        if name != "seeds" or plan.provenance.seeds > 1:
            yield Unchecked(f"provenance.{name}", OF_THE_SEARCH)
    if plan.provenance.policy_fingerprint is None:
        yield Unchecked("provenance.policy_fingerprint", UNSTATED)
    cuts = plan.provenance.cuts
    if "cuts" not in plan.provenance.model_fields_set:
        yield Unchecked("provenance.cuts", "the document states none: the bound covers few column cuts")
    elif cuts != EVERY_CUT:
        yield Unchecked("provenance.cuts", f"the bound covers {cuts.words}, and no others")
    if plan.provenance.cache_fractions:
        yield Unchecked("provenance.cache_fractions", "the bound covers these cache sizes and no others")


def _of_reasons(plan: Plan) -> Iterator[Unchecked]:
    reason = plan.infeasibility
    if reason is not None and reason.memory_multipliers:
        yield Unchecked("infeasibility.tiers.*.short_bytes", "a solver found them")
    for name, given in (("infeasibility", plan.infeasibility), ("unplaced", plan.unplaced)):
        if given is not None:
            yield Unchecked(f"{name}.remedies", OF_REMEDIES)


def _of_moves(plan: Plan, *, has_former: bool) -> Iterator[Unchecked]:
    if plan.moves is None:
        return
    if not has_former:
        yield Unchecked("moves", "give the former plan with --from")
        return
    yield Unchecked("moves.limit_bytes", OF_TERMS)
    yield Unchecked("moves.pay_back_steps", OF_TERMS)
    if plan.objective is None:
        yield Unchecked("moves.found_bytes", OF_THE_SEARCH)
