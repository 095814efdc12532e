"""Who says how long a step takes: the estimate that plans rest on, or the simulator."""

from collections.abc import Callable

from cost_models.model import CostModel
from cost_models.shards import PlacedShards
from cost_models.simulator.simulation import simulate

Judge = Callable[[CostModel, PlacedShards], float]


def estimated(model: CostModel, placed: PlacedShards) -> float:
    """Seconds of a step, in closed form."""
    return model.evaluate(placed).step_s


def simulated(model: CostModel, placed: PlacedShards) -> float:
    """Seconds of a mean step, played."""
    return simulate(model.topology, model.workload, placed, steps=1).step_s
