"""Plans without caches of full precision, where these are a choice.

Two searches that end within the same gap may end apart, and the one with more to choose from with the longer step. So
that nobody is worse off for the choice, the narrower question is planned, too, and what it finds is an option of the
wider one.
"""

import math
from dataclasses import replace

from planner.formulation.formulation import Formulation
from planner.planning.cache_division import among_options
from planner.planning.pipeline import Pipeline, Searched
from planner.solvers.incumbent import OPTIMAL_GAP


def planned_without(formulation: Formulation, pipeline: Pipeline) -> Searched | None:
    """The plan without such caches, in half of the time; None where they are no choice, or nothing fits."""
    plain = formulation.without_precision_caches()
    if plain is None or pipeline.policy.robust is not None:
        return None
    half = replace(pipeline.limits, time_limit_s=pipeline.limits.time_limit_s / 2)
    aside = replace(pipeline, limits=half, progress=None)
    searched = aside.planned(aside.refined(plain))
    return None if searched.outcome.placement is None else searched


def no_slower(searched: Searched, plain: Searched) -> Searched:
    """The plan that was found, or that without such caches where its step is shorter; the bound is that of the wider
    question, of which all sizes of the narrower one's caches are options."""
    outcome, found = searched.outcome, plain.outcome
    if found.placement is None or found.step_s is None or outcome.bound is None:
        return searched
    few, every = plain.formulation, searched.formulation
    if found.step_s >= (outcome.step_s or math.inf) or few.options.cuts != every.options.cuts:
        return searched
    placement = among_options(few, found.placement, every, few.options.cache_fraction)
    is_optimal = found.step_s <= outcome.bound.seconds * (1 + OPTIMAL_GAP)
    taken = replace(outcome, status="optimal" if is_optimal else "feasible", placement=placement, step_s=found.step_s)
    return replace(plain, formulation=every.at_protocols(few.model.protocols), outcome=taken)
