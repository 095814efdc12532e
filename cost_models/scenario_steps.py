"""The step of a placement in each of many scenarios, in closed form."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost_models.model import CostModel
from cost_models.scenarios import Scenario
from cost_models.shards import Floats, PlacedShards


@dataclass(frozen=True)
class ScenarioSteps:
    """What a placement takes, scenario by scenario; [N]."""

    step_s: Floats
    is_overfull: NDArray[np.bool_]
    """Whether some memory would hold more than it can."""


@dataclass(frozen=True)
class ScenarioModels:
    """The costs of a workload in N scenarios, each at its own numbers of ids and curves of access."""

    model: CostModel
    """The costs at the profiles' means, whose capacities hold in every scenario."""
    scenarios: Sequence[Scenario]

    @cached_property
    def models(self) -> list[CostModel]:
        """One for each scenario."""
        return [self.model.on(self.model.topology, scenario.workload) for scenario in self.scenarios]

    @cached_property
    def slowness(self) -> Floats:
        """[N, W] how many times as long as usual each device takes."""
        world = len(self.model.kind_of_rank)
        return np.array([scenario.slowness(world) for scenario in self.scenarios])

    def of(self, placed: PlacedShards) -> ScenarioSteps:
        """The steps that shards make, by the laws of their exchanges in each scenario."""
        steps, overfull = [], []
        for model, slowness in zip(self.models, self.slowness, strict=True):
            evaluation = model.evaluate(placed, slowness)
            steps.append(evaluation.step_s)
            overfull.append(self._is_overfull(evaluation.rank_bytes))
        return ScenarioSteps(np.array(steps), np.array(overfull))

    def _is_overfull(self, rank_bytes: Floats) -> bool:
        pools = zip(rank_bytes.T, self.model.memory_pool_of_rank, self.model.memory_capacity, strict=True)
        return any(
            bool((np.bincount(pool, weights=taken, minlength=len(capacity)) > capacity + 1).any())
            for taken, pool, capacity in pools
        )
