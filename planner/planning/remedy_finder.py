"""What would make the tables fit, asked after a search that found no plan."""

import time

from cost_models.model import CostModel
from planner.diagnosis.remedies import remedies
from planner.document.reasons import Remedy
from planner.formulation.dense_choices import is_leanest
from planner.formulation.policy import Policy
from planner.solvers.incumbent import Outcome, Progress
from planner.solvers.limits import SearchLimits


class RemedyFinder:
    """Finds what would make the tables fit, after a search that starts now."""

    def __init__(self, model: CostModel, policy: Policy, limits: SearchLimits, progress: Progress | None) -> None:
        self._model, self._policy, self._limits, self._progress = model, policy, limits, progress
        self._began = time.monotonic()

    def of(self, outcome: Outcome) -> tuple[Remedy, ...]:
        """Nothing where there is a plan, where the search ended for want of time and not of room, where copies of the
        tables take the room, or where another strategy of the dense part that is tried leaves more of it."""
        model = self._model
        if model.replicas is not None:
            return ()
        is_stopped = self._limits.stop or (lambda: False)
        in_time = time.monotonic() - self._began < self._limits.time_limit_s and not is_stopped()
        if outcome.placement is not None or not (outcome.status == "infeasible" or in_time):
            return ()
        if not is_leanest(self._policy.dense, model.cluster, model.stated_workload, model.name):
            return ()
        if self._progress:
            self._progress("what would make it fit", None, None)
        short = None if outcome.shortage is None else outcome.shortage.bytes_short
        return remedies(model, self._policy.model_copy(update={"replicas": None}), short, is_stopped)
