"""What makes the longest scenarios of a plan as long as they are, stage by stage."""

import numpy as np

from cost_models.model import CostModel
from cost_models.scenario_steps import ScenarioModels
from cost_models.shards import PlacedShards
from planner.diagnosis.reasons import TailStage
from planner.document.plan import Plan
from planner.problem.scenario_loads import quantile_index
from planner.verification.robustness import scenarios_of


def tail_stages(plan: Plan, model: CostModel, placed: PlacedShards) -> tuple[TailStage, ...]:
    """Seconds of each stage at the profiles' means, and on the mean of the sampled scenarios at the quantile and
    beyond, of a plan that was asked for in scenarios."""
    aim = plan.provenance.policy.robust
    assert aim is not None
    models = ScenarioModels(model, scenarios_of(aim, model, held_back=False))
    evaluations = [each.evaluate(placed, slow) for each, slow in zip(models.models, models.slowness, strict=True)]
    first = quantile_index(aim.quantile, len(evaluations))
    longest = np.argsort([each.step_s for each in evaluations], kind="stable")[first:]
    seconds = [
        dict(zip(models.models[number].stages, evaluations[number].stage_seconds.tolist(), strict=True))
        for number in longest.tolist()
    ]
    names = dict.fromkeys([*model.stages, *(name for each in seconds for name in each)])
    mean = dict(zip(model.stages, model.evaluate(placed).stage_seconds.tolist(), strict=True))
    return tuple(
        TailStage(name, mean.get(name, 0.0), float(np.mean([each.get(name, 0.0) for each in seconds])))
        for name in names
    )
