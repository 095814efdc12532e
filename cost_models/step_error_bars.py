"""The 90 % bands of a step and its stages, of the causes of each stage (`stage_causes`).

Whole steps that were measured with the same software on the same hardware tell more than the sum of the terms, whose
errors they compensate.
"""

from dataclasses import replace

import numpy as np

from cost_models.error_bars import Cause, ErrorBand, ErrorBars, combined
from cost_models.evaluation import Evaluation
from cost_models.shards import PlacedShards
from cost_models.stage_causes import stage_causes
from cost_models.step_costs import StepCosts
from cost_models.step_evidence import told_by_steps

UNSEEN_STEPS_90 = 0.25
"""Error of the sum of the terms under software of which no whole step was measured (assumed)."""


def error_bars(model: StepCosts, placed: PlacedShards, evaluation: Evaluation) -> ErrorBars:
    """The 90 % bands of a placement's step and stages."""
    causes = [list(stage_causes(model, placed, evaluation, stage)) for stage in range(len(model.stages))]
    stages = tuple(ErrorBand(combined(of_stage), _basis(of_stage), _spec_only(of_stage)) for of_stage in causes)
    shares = evaluation.stage_seconds / max(evaluation.step_s, 1e-300)
    of_step = [
        replace(cause, share=cause.share * float(share))
        for share, of_stage in zip(shares, causes, strict=True)
        for cause in of_stage
    ]
    if model.floor is not None:  # which hides the rest, unless that errs by more
        of_step = max(of_step, causes[-1], key=combined)
    return ErrorBars(_step_bar(model, placed, of_step), stages)


def _step_bar(model: StepCosts, placed: PlacedShards, causes: list[Cause]) -> ErrorBand:
    software, evidence = model.coefficients.software, model.coefficients.software.steps
    terms = combined(causes)
    if evidence is None:
        words = f"{_sources(causes)}; no whole step of {software.name} was measured"
        return ErrorBand(float(np.hypot(UNSEEN_STEPS_90, terms)), words, (*_spec_only(causes), software.name))
    told = told_by_steps(model, placed, evidence, software.name)
    if told.is_enough:
        return ErrorBand(told.error_90, told.words)
    words = f"{_sources(causes)}; {told.words}"
    return ErrorBand(float(np.hypot(told.error_90, terms)), words, _spec_only(causes))


def _basis(causes: list[Cause]) -> str:
    """The names of what the time rests on, by how they are known; those that matter."""
    kinds = dict.fromkeys(cause.kind for cause in causes if cause.kind != "spec")
    listed = {kind: dict.fromkeys(cause.name for cause in causes if cause.kind == kind) for kind in kinds}
    words = [f"{kind}: {', '.join(sorted(listed[kind]))}" for kind in sorted(listed)]
    return "; ".join(words) or "data sheets"


def _sources(causes: list[Cause]) -> str:
    """The files behind terms with data."""
    files = sorted({cause.source for cause in causes if cause.kind != "spec"})
    return f"terms of {', '.join(files)}" if files else "data sheets"


def _spec_only(causes: list[Cause]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cause.name for cause in causes if cause.kind == "spec"))
