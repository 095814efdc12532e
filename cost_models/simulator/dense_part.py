"""The dense part of a step: its kernels forward and backward, its optimizer, and the host's fixed overhead."""

import math
from collections.abc import Sequence

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.dense_size import FORWARD_FLOPS_PER_MAC, DenseSize, PartName, dense_parts, tower_sizes
from cost_models.shards import Floats, Ints
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.program import COMPUTE, Label, Streams, Wait
from cost_models.workload.dense_part import COMPUTE_DTYPE_BYTES
from cost_models.workload.formats import codec_bytes, wire_bytes, written_bytes
from cost_models.workload.models import Workload
from cost_models.workload.optimizers import STATE

BUCKET_BYTES = 25e6
"""Dense gradients that one all-reduce takes (`bucket_cap_mb` of DistributedDataParallel)."""
MOST_BUCKETS = 16
BACKWARD_OVER_FORWARD = 2.0
"""The backward pass computes gradients of the inputs and of the weights, 2 FLOPs each per multiply-accumulate."""
ACTIVATIONS_FORWARD = 1 / 3
"""Share of the activations' traffic of a training step that its forward pass makes."""
BEFORE_OUTPUTS: PartName = "bottom_mlp"
"""The part that needs no vectors: it runs while they are exchanged."""

Bucket = tuple[Ints, float]
"""[W] activities after which gradients are ready, and their bytes."""


class DenseKernels:
    """Puts the kernels of the dense part on the compute stream of W ranks."""

    def __init__(
        self, streams: Streams, network: SimulatedNetwork, workload: Workload, software: SoftwareCoefficients
    ) -> None:
        self._streams, self._network, self._workload, self._software = streams, network, workload, software
        self._sizes = dense_parts(workload, software.tile_columns)
        modules = tower_sizes(workload)
        self.parameters = sum(size.parameters for size in self._sizes.values())
        self.parameters += max((size.parameters for size in modules), default=0)
        """Weights of the dense part, on every rank, and of the largest module of a tower."""
        self._samples = workload.batch(network.world) / network.world
        self.first = [part for part in self._sizes if part == BEFORE_OUTPUTS]
        """The parts that run while vectors are exchanged, in the order of the forward pass."""
        self.rest = [part for part in self._sizes if part != BEFORE_OUTPUTS]
        """The parts that need the vectors, in the order of the forward pass."""

    def forward(self, parts: Sequence[PartName], step: int, slow: Floats, after: Sequence[Wait] = ()) -> None:
        """Run these parts one after the other; the first of them waits for `after`, too."""
        for number, part in enumerate(parts):
            label = Label(f"{_words(part)} forward", "dense forward", COMPUTE, step)
            self._streams.run(label, self._forward_s(part, slow), () if number else after)

    def backward(self, parts: Sequence[PartName], step: int, slow: Floats) -> list[Bucket]:
        """Run these parts from the last to the first, bucket by bucket."""
        buckets: list[Bucket] = []
        for part in reversed(parts):
            gradient = self._sizes[part].parameters * wire_bytes(self._workload.dense.gradient_format)
            count = max(1, min(MOST_BUCKETS, math.ceil(gradient / BUCKET_BYTES)))
            seconds = BACKWARD_OVER_FORWARD * self._forward_s(part, slow) / count
            label = Label(f"{_words(part)} backward", "dense backward", COMPUTE, step)
            buckets += [(self._streams.run(label, seconds), gradient / count) for _ in range(count)]
        return buckets

    def _forward_s(self, part: PartName, slow: Floats) -> Floats:
        """[W] multiply-accumulates at the device's rate, and activations through its memory."""
        return self._layers_s(self._sizes[part], self._samples) * slow

    def module_s(self, slow: Floats) -> Floats:
        """[W] the module of each rank's tower forward, for the samples of its peers."""
        network, sizes = self._network, tower_sizes(self._workload, self._software.tile_columns)
        tower = network.tower_of_rank
        samples: Floats = np.asarray(self._samples * network.peers.size, dtype=np.float64)
        seconds = [self._layers_s(size, samples) for size in sizes]
        return np.stack(seconds)[tower, np.arange(network.world)] * slow

    def _layers_s(self, size: DenseSize, samples: Floats | float) -> Floats:
        """[W] seconds of layers of this size forward."""
        network = self._network
        flops = network.of_kind([kind.flops_per_s for kind in network.kinds])
        hbm = network.of_kind([kind.hbm_bytes_per_s for kind in network.kinds])
        crossings = self._software.activation_passes.value * ACTIVATIONS_FORWARD
        moved = size.activation_elements * COMPUTE_DTYPE_BYTES[self._workload.dense.dtype] * crossings
        return np.asarray(samples * (FORWARD_FLOPS_PER_MAC * size.tile_macs / flops + moved / hbm))

    def optimizer_s(self, slow: Floats) -> Floats:
        """[W] weights, gradients and state of the dense part read, weights, their copy and state written."""
        network, dense = self._network, self._workload.dense
        hbm = network.of_kind([kind.hbm_bytes_per_s for kind in network.kinds])
        state = STATE[dense.optimizer].dense_arrays * wire_bytes(dense.optimizer_state or "fp32")
        twice = wire_bytes(dense.master_weights or "fp32") + state
        moved = 2 * twice + written_bytes(dense.gradient_format) + dense.copy_bytes
        return np.asarray(moved * self.parameters / hbm * slow)

    def codec_s(self, gradients: Floats | float, slow: Floats) -> Floats:
        """[W] so many gradients [W] encoded and decoded on the way to their sums, and the sums on their way back."""
        network = self._network
        hbm = network.of_kind([kind.hbm_bytes_per_s for kind in network.kinds])
        there_and_back = 2 * gradients + gradients / network.world + gradients
        moved = there_and_back * codec_bytes(self._workload.dense.gradient_format)
        return np.asarray(self._software.codec_passes.value * moved / hbm * slow)

    def overhead_s(self, slow: Floats) -> Floats:
        """[W] the step's fixed overhead; the dense optimizer, which was measured as a part of it, has its own task."""
        optimizer_s = self.optimizer_s(slow) if self._workload.mode == "training" else 0.0
        return np.maximum(self._software.step_overhead_s.value - optimizer_s, 0.0) * np.ones(self._network.world)


def _words(part: PartName) -> str:
    return part.replace("_", " ")
