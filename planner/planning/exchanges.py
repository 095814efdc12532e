"""Plans under each exchange of vectors that a policy leaves open: the shortest step is taken, the bound is over all."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.document.plan import OtherExchange, Plan
from planner.formulation.formulation import Formulation
from planner.formulation.question import Question
from planner.planning.pipeline import Searched
from planner.solvers.incumbent import OPTIMAL_GAP
from planner.solvers.limits import SearchLimits
from topologies.cluster import fingerprint


@dataclass(frozen=True)
class PlannedUnder:
    """A plan under one exchange, not simulated, and what a search under another one begins with."""

    plan: Plan
    formulation: Formulation
    searched: Searched | None


PlanUnder = Callable[[Question, SearchLimits, PlannedUnder | None], PlannedUnder]
"""Plans under the exchange that a question settles, after another one where there is one."""


def planned_under_each(question: Question, limits: SearchLimits, plan_under: PlanUnder) -> Plan:
    """The plan with the shortest step, the first of equals. Each search has an equal part of what is left of the time,
    and begins with what the one before has found, too."""
    began, plans = time.monotonic(), list[Plan]()
    former: PlannedUnder | None = None
    for number, exchange in enumerate(question.exchanges):
        left_s = limits.time_limit_s - (time.monotonic() - began)
        part = replace(limits, time_limit_s=max(left_s, 0.0) / (len(question.exchanges) - number))
        former = plan_under(question.settled(exchange), part, former)
        plans.append(_as_asked(former.plan, question))
        if former.plan.status == "infeasible":  # memory is the same under all
            break
    first, *others = sorted(plans, key=_step_s)
    return with_other(first, others[0]) if others else first


def _step_s(plan: Plan) -> float:
    return float("inf") if plan.objective is None else plan.objective.step_s


def _as_asked(plan: Plan, question: Question) -> Plan:
    """The plan with the policy as it was asked for, which may leave the exchange open."""
    told = {"policy": question.policy, "policy_fingerprint": fingerprint(question.policy)}
    return plan.model_copy(update={"provenance": plan.provenance.model_copy(update=told)})


def with_other(plan: Plan, other: Plan) -> Plan:
    """The plan beside what was found and proven under another exchange, with a bound over both.

    Where the other has none, or one of other options, the plan stays as it is: its bound is of its own exchange.
    """
    own, found = plan.objective, other.objective
    if own is None or found is None or other.proof is None or not _alike(plan, other):
        return plan
    beside = OtherExchange(
        exchange=other.provenance.exchange, step_s=found.step_s, lower_bound_s=found.lower_bound_s, proof=other.proof
    )
    bound_s = min(own.lower_bound_s, found.lower_bound_s)
    gap = own.step_s / bound_s - 1 if own.step_s > bound_s > 0 else 0.0
    word_s = min(each.solver_bound_s or each.lower_bound_s for each in (own, found))
    told_by_solver = word_s if word_s > bound_s else None
    objective = own.model_copy(update={"lower_bound_s": bound_s, "gap": gap, "solver_bound_s": told_by_solver})
    status = "optimal" if gap <= OPTIMAL_GAP else "feasible"
    ended = dict.fromkeys((*plan.provenance.ended_by_time, *other.provenance.ended_by_time))
    origin = plan.provenance.model_copy(update={"ended_by_time": tuple(ended)})
    told = {"objective": objective, "status": status, "other_exchange": beside, "provenance": origin}
    return plan.model_copy(update=told)


def _alike(plan: Plan, other: Plan) -> bool:
    """Whether both were chosen from the same options."""
    one, two = plan.provenance, other.provenance
    return one.cuts == two.cuts and one.cache_fractions == two.cache_fractions
