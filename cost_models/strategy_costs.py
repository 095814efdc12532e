"""What strategies of dense layers cost on a cluster, as arrays: seconds and bytes of a layer's, seconds between two.

All strategies compute as many FLOPs on each rank, so that these seconds are those of what differs: collectives, one
after the other, and the update. What of them the computation hides is for whoever knows the step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.collective_calls import CollectiveCall
from cost_models.dense_strategies import DenseStrategy, NumberBytes, TrainedLayer, held_bytes, layer_calls
from cost_models.group_laws import GroupLaws
from cost_models.shards import Floats
from cost_models.tensor_layouts import layout_calls


@dataclass(frozen=True)
class LayerCosts:
    """Those of each of S strategies of a layer."""

    forward_s: Floats
    """[S] collectives of the forward pass."""
    backward_s: Floats
    """[S] those of the backward pass."""
    update_s: Floats
    """[S] the optimizer, which device memory limits, and collectives after it."""
    kept_bytes: Floats
    """[S] whole bytes that add up over layers."""
    gathered_bytes: Floats
    """[S] whole bytes that are there while the layer works."""

    @property
    def seconds(self) -> Floats:
        """[S] all of them, where nothing is hidden."""
        return self.forward_s + self.backward_s + self.update_s


@dataclass(frozen=True)
class StrategyCosts:
    """The costs of a training step on the ranks of a cluster."""

    laws: GroupLaws
    numbers: NumberBytes
    samples_per_rank: float
    world_size: int
    hbm_bytes_per_s: float

    def layer(self, layer: TrainedLayer, strategies: Sequence[DenseStrategy]) -> LayerCosts:
        """Those of a layer by itself."""
        calls = [tuple(self._calls(layer, each)) for each in strategies]
        held = [held_bytes(each, layer, self.numbers, self.samples_per_rank) for each in strategies]
        updated_s = np.array([self._update_s(layer, each) for each in strategies])
        return LayerCosts(
            forward_s=self._seconds(calls, "forward"),
            backward_s=self._seconds(calls, "backward"),
            update_s=updated_s + self._seconds(calls, "update"),
            kept_bytes=np.ceil([each.kept for each in held]),
            gathered_bytes=np.ceil([each.gathered for each in held]),
        )

    def between(self, elements: float, writers: Sequence[DenseStrategy], readers: Sequence[DenseStrategy]) -> Floats:
        """[S of the writer, S of the reader] seconds in which so many numbers of a sample, and their gradients, come
        from one layer to the next. What several layers read is brought to each by itself."""
        size = elements * self.numbers.computed
        placed = {
            (written, read): self.laws.total_seconds(layout_calls(written, read, size, self.samples_per_rank))
            for written in {each.writes for each in writers}
            for read in {each.reads for each in readers}
        }
        return np.array([[placed[writer.writes, reader.reads] for reader in readers] for writer in writers])

    def _calls(self, layer: TrainedLayer, strategy: DenseStrategy) -> Iterable[CollectiveCall]:
        return layer_calls(strategy, layer, self.numbers, self.samples_per_rank, self.world_size)

    def _seconds(self, calls: Sequence[Sequence[CollectiveCall]], phase: str) -> Floats:
        return np.array([self.laws.total_seconds(call for call in own if call.phase == phase) for own in calls])

    def _update_s(self, layer: TrainedLayer, strategy: DenseStrategy) -> float:
        own = layer.parameters / strategy.weight_parts / strategy.shard_ranks
        return own * self.numbers.update_bytes / self.hbm_bytes_per_s
