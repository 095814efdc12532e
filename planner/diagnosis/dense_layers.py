"""What each layer of the dense part takes on a rank: FLOPs, parameters, activations, seconds."""

import fnmatch
from dataclasses import dataclass

from cost_models.dense import size_seconds
from cost_models.dense_size import FORWARD_FLOPS_PER_MAC, TRAINING_FLOPS_PER_MAC, layer_size
from cost_models.step import StepModel
from cost_models.workload.layer_graph import SizedLayer


@dataclass(frozen=True)
class LayerReasons:
    """One layer, on the rank that takes longest."""

    layer: SizedLayer
    flops_per_sample: float
    """Of a step: forward, and in training backward."""
    activation_bytes: float
    """What it reads and writes in its forward pass, for the samples of a rank."""
    forward_s: float
    backward_s: float

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.forward_s + self.backward_s


def layer_reasons(model: StepModel, pattern: str = "*") -> tuple[LayerReasons, ...]:
    """The layers whose names match, in the order of the forward pass; layers of no cost are among them."""
    workload, samples = model.workload, model.batching.samples_per_rank
    passes, training = model.coefficients.software.activation_passes.value, workload.mode == "training"
    found = []
    for layer in workload.layers:
        if not fnmatch.fnmatchcase(layer.name, pattern):
            continue
        size = layer_size(layer)
        seconds = [
            max(size_seconds(workload, size, samples, kind, passes, forward_only=only) for kind in model.kinds)
            for only in (True, not training)
        ]
        flops = (TRAINING_FLOPS_PER_MAC if training else FORWARD_FLOPS_PER_MAC) * size.macs
        moved = size.activation_elements * workload.dense.activation_bytes * samples
        found.append(LayerReasons(layer, flops, moved, seconds[0], seconds[1] - seconds[0]))
    return tuple(found)
