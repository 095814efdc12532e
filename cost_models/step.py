"""The physical cost model of a training step: its costs, and how far they may be from a measurement."""

from cost_models.compressed_costs import CompressedCosts
from cost_models.error_bars import ErrorBars
from cost_models.hot_rows import hot_rows_s
from cost_models.length_imbalance import length_imbalance_s
from cost_models.shards import PlacedShards
from cost_models.step_error_bars import error_bars


class StepModel(CompressedCosts):
    """The physical cost model of one workload on one topology."""

    without_error_bars = None

    @property
    def length_imbalance_s(self) -> float:
        """What the slowest of all ranks is expected to work longer on its histories than they do on the mean."""
        ranks, passes = self.cluster.world_size, self.coefficients.software.activation_passes.value
        samples = self.stated_workload.batch(ranks) / ranks
        per_node = self.topology.nodes[0].accelerators.count
        return max(
            length_imbalance_s(self.stated_workload, kind, samples, ranks, passes, per_node) for kind in self.kinds
        )

    def hot_rows_s(self, placed: PlacedShards) -> float:
        """What a step is expected to take longer as few ranks have the hot rows of tables that are cut by rows."""
        return hot_rows_s(self, placed)

    def error_bars(self, placed: PlacedShards) -> ErrorBars | None:
        """The 90 % bands of a placement's step and stages; None with replicas, of which no step was measured."""
        if self.replicas is not None:
            return None
        own = self.linearised_at(placed)
        return error_bars(own, placed, own.evaluate(placed))
