"""The bands around a plan's times: in the words of the document, and whether a document's are those of its costs."""

from collections.abc import Iterator

import numpy as np

from cost_models import error_bars
from cost_models.model import CostModel
from planner.document.plan import ErrorBar, Plan
from planner.document.planned import placed_shards

BAND_TOLERANCE = 1e-6
"""Relative difference of a band's ends that two orders of summation may make."""


def error_bar(bar: error_bars.ErrorBand, seconds: float) -> ErrorBar:
    """A band in the words of the document."""
    low_s, high_s = bar.around(seconds)
    return ErrorBar(low_s=low_s, high_s=high_s, coverage=error_bars.COVERAGE, basis=bar.basis, spec_only=bar.spec_only)


def with_error_bars(plan: Plan, model: CostModel) -> Plan:
    """The plan with the band of its step and of each stage, or the reason that there are none."""
    assert plan.objective is not None
    bars = model.error_bars(placed_shards(plan))
    if bars is None:
        objective = plan.objective.model_copy(update={"no_error_bar": model.without_error_bars})
        return plan.model_copy(update={"objective": objective})
    objective = plan.objective.model_copy(update={"error_bar": error_bar(bars.step, plan.objective.step_s)})
    stages = tuple(
        stage.model_copy(update={"error_bar": error_bar(bar, stage.seconds)})
        for stage, bar in zip(plan.stages, bars.stages, strict=True)
    )
    return plan.model_copy(update={"objective": objective, "stages": stages})


def faults_of_error_bars(plan: Plan, model: CostModel) -> Iterator[str]:
    """Bands that are not those of the cost model, or another reason for none; a plan that states neither is not asked
    for any."""
    assert plan.objective is not None
    stated = [("step", plan.objective.step_s, plan.objective.error_bar)]
    stated += [(f"stage {stage.name}", stage.seconds, stage.error_bar) for stage in plan.stages]
    has_bars, reason = any(bar is not None for _, _, bar in stated), plan.objective.no_error_bar
    if (not has_bars and reason is None) or len(plan.stages) != len(model.stages):
        return
    bars = model.error_bars(placed_shards(plan))
    if bars is None:
        if has_bars or reason != model.without_error_bars:
            yield f"error bars: {model.without_error_bars}"
        return
    if reason is not None:
        yield "error bars: there are some, and no_error_bar says why there are none"
    for (name, seconds, of_document), bar in zip(stated, (bars.step, *bars.stages), strict=True):
        own = error_bar(bar, seconds)
        if of_document is None:
            yield f"{name}: has no error bar"
        elif not (
            np.isclose([of_document.low_s, of_document.high_s], [own.low_s, own.high_s], rtol=BAND_TOLERANCE).all()
            and (of_document.coverage, of_document.basis, of_document.spec_only)
            == (own.coverage, own.basis, own.spec_only)
        ):
            yield f"{name}: its error bar is not the cost model's"
