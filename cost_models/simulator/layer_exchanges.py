"""What the ranks of a node exchange between layers of which they share the work.

A layer of which each rank has some columns reads all samples of the node and writes its columns of them; one of which
each has some rows reads these columns and writes addends of all outputs; attention of which each has some heads reads
as the former and writes as the latter. A layer of which each rank has some tokens reads and writes those of all samples
of the node. Other layers read and write each rank's own samples. On the way back gradients of what was gathered are
summed, and of what was summed are gathered.
"""

from collections.abc import Sequence
from typing import Literal

from cost_models.coefficients import SoftwareCoefficients
from cost_models.dense_units import DenseUnit
from cost_models.shards import Ints
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.program import COMPUTE, Label, Streams, TaskKind, Wait
from cost_models.simulator.rank_groups import GroupCollectives
from cost_models.workload.checkpoints import is_checkpointed
from cost_models.workload.dense_sharding import LayerCut
from cost_models.workload.layers import NUMERICAL
from cost_models.workload.models import Workload

BETWEEN = "layer exchange"
Call = Literal["gather", "scatter", "sum", "swap"]
KINDS: dict[Call, TaskKind] = {
    "gather": "all-gather",
    "scatter": "reduce-scatter",
    "sum": "all-reduce",
    "swap": "all-to-all",
}
Seen = Literal["columns", "rows", "tokens"] | None
"""How a tensor is there; None: in each rank's own samples."""
WRITES: dict[LayerCut, Seen] = {"columns": "columns", "rows": "rows", "heads": "rows", "tokens": "tokens"}
READS: dict[LayerCut, Seen] = {"columns": "columns", "rows": "rows", "heads": "columns", "tokens": "tokens"}
"""What layers write as, and read as; those that exchange something inside themselves do so in their own samples."""
FORWARD: dict[tuple[Seen, Seen], Call] = {
    (None, "columns"): "gather",
    ("columns", "columns"): "gather",
    ("rows", "columns"): "sum",
    (None, "rows"): "swap",
    ("rows", "rows"): "scatter",
    ("columns", None): "swap",
    ("rows", None): "scatter",
    (None, "tokens"): "swap",
    ("tokens", None): "swap",
    ("tokens", "columns"): "gather",
    ("tokens", "rows"): "swap",
    ("columns", "tokens"): "swap",
    ("rows", "tokens"): "scatter",
}
"""Between the layer that writes and the one that reads; nothing where the columns that one writes are those that the
next one reads."""
BACKWARD: dict[tuple[Seen, Seen], Call] = {
    (None, "columns"): "scatter",
    ("columns", "columns"): "scatter",
    ("rows", "columns"): "sum",
    (None, "rows"): "swap",
    ("rows", "rows"): "gather",
    ("columns", None): "swap",
    ("rows", None): "gather",
    (None, "tokens"): "swap",
    ("tokens", None): "swap",
    ("tokens", "columns"): "scatter",
    ("tokens", "rows"): "swap",
    ("columns", "tokens"): "swap",
    ("rows", "tokens"): "gather",
}
"""Of the gradients."""


class LayerExchanges:
    """The exchanges that units wait for."""

    def __init__(
        self,
        streams: Streams,
        network: SimulatedNetwork,
        workload: Workload,
        software: SoftwareCoefficients,
        units: Sequence[DenseUnit],
    ) -> None:
        self._streams, self._dense = streams, workload.dense
        self._samples = workload.batch(network.world) / network.world
        layers = {layer.name: (layer, unit.held.cut) for unit in units for layer in unit.layers}
        self._cut = {name: cut for name, (_, cut) in layers.items()}
        self._numbers = {name: layer.output.numbers for name, (layer, _) in layers.items()}
        self._numbers[NUMERICAL] = workload.dense.numerical_features
        self._blocks = {name: layer.block for name, (layer, _) in layers.items()}
        self._read = {name for layer, _ in layers.values() for name in layer.inputs}
        self._nodes = None
        if any(self._cut.values()):
            self._nodes = GroupCollectives.of_nodes(streams, network, workload, software)

    def enter(self, unit: DenseUnit, step: int, waits: Sequence[Wait]) -> Sequence[Wait]:
        """What a unit waits for that goes forward."""
        for layer in unit.layers:
            for name in layer.inputs:
                waits = self._called(FORWARD, name, layer.name, step, waits)
        return waits

    def answer(self, unit: DenseUnit, step: int, waits: Sequence[Wait]) -> Sequence[Wait]:
        """What a unit waits for that goes backward: the loss, where it is what the loss is of; and what it reads, once
        more, where it is computed again and the exchange is inside what is."""
        for layer in unit.layers:
            if layer.name not in self._read:
                waits = self._called(FORWARD, layer.name, None, step, waits)
                waits = self._called(BACKWARD, layer.name, None, step, waits)
            if is_checkpointed(self._dense.checkpointing, layer.stated, layer.block):
                for name in layer.inputs:
                    if self._cut.get(layer.name) or self._blocks.get(name) == layer.block:
                        waits = self._called(FORWARD, name, layer.name, step, waits)
        return waits

    def back(self, unit: DenseUnit, step: int) -> Ints:
        """[W] when the gradients of what a unit reads are back that has just gone backward."""
        waits: Sequence[Wait] = ()
        for layer in unit.layers:
            for name in layer.inputs:
                if name != NUMERICAL:
                    waits = self._called(BACKWARD, name, layer.name, step, waits)
        return self._streams.join(COMPUTE, waits) if waits else self._streams.last(COMPUTE)

    def _called(
        self,
        calls: dict[tuple[Seen, Seen], Call],
        writer: str,
        reader: str | None,
        step: int,
        waits: Sequence[Wait],
    ) -> Sequence[Wait]:
        """What is to be waited for beside the compute stream, once a tensor, or its gradient, is on its way from one
        layer to another."""
        written, read = self._cut.get(writer), self._cut.get(reader or "")
        call = calls.get((written and WRITES.get(written), read and READS.get(read)))
        if call is None or self._nodes is None:
            return waits
        label = Label(f"{writer} to {reader or 'the loss'}", KINDS[call], BETWEEN, step)
        own = self._numbers[writer] * self._dense.activation_bytes * self._samples
        after = [self._streams.last(COMPUTE), *waits]
        if call == "swap":
            return [self._nodes.all_to_all(label, own, after)]
        collective = {"gather": self._nodes.gather, "scatter": self._nodes.scatter, "sum": self._nodes.all_reduce}[call]
        return [collective(label, own * self._nodes.size, after)]
