"""Layers that exchange something while they work: cross layers whose products the ranks of a node share, and attention
of which each rank has some tokens of all samples of its node.

Each cross layer multiplies what all ranks of its node read, and adds to it in each rank's own samples. Attention meets
the keys and values of one rank after the other: a message to the next rank is on its way while the one before is
attended to. Backwards keys and values go around with their gradients, which go one step further, to where they belong;
queries with all that their gradients are made of, and the parts of these go home together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cost_models.dense_units import DenseUnit
from cost_models.shards import Floats, Ints
from cost_models.simulator.program import COMPUTE, Label, Streams, TaskKind, Wait
from cost_models.simulator.rank_groups import GroupCollectives
from cost_models.workload.layer_graph import SizedLayer

INSIDE = "layer exchange"
FP32 = 4
"""Bytes of partial gradients, and of a sum of exponentials."""


@dataclass(frozen=True)
class Worked:
    """One way of a pass through a layer, on each of W ranks."""

    layer: str
    label: Label
    seconds: Floats
    """[W] of all of it."""
    attention_s: Floats
    """[W] of scores and their values alone."""
    is_forward: bool


class InsideLayers:
    """Plays layers that exchange something inside."""

    def __init__(self, streams: Streams, nodes: Callable[[], GroupCollectives], samples: float, number_bytes: float):
        self._streams, self._find_nodes, self._samples, self._number_bytes = streams, nodes, samples, number_bytes

    def is_one(self, unit: DenseUnit) -> bool:
        """Whether a unit is such a layer."""
        if unit.held.cut in ("inner", "width"):
            return True
        return unit.held.cut == "tokens" and unit.layers[0].kind == "attention"

    def run(self, unit: DenseUnit, worked: Worked, waits: Sequence[Wait]) -> Ints:
        """Play one way through it; return when it has ended."""
        (layer,) = unit.layers
        if layer.kind == "cross":
            return self._cross(unit, layer, worked, waits)
        if unit.held.passes == "all_to_all":
            return self._swapped(layer, worked, waits)
        return self._around(unit, layer, worked, waits)

    @property
    def _nodes(self) -> GroupCollectives:
        return self._find_nodes()

    def _called(self, worked: Worked, kind: TaskKind, numbers_bytes: float, waits: Sequence[Wait]) -> Wait:
        """A collective of the ranks of each node, on so many bytes of a rank's own samples each."""
        label = Label(f"inside {worked.layer}", kind, INSIDE, worked.label.step)
        own, nodes = numbers_bytes * self._samples, self._nodes
        after = [self._streams.last(COMPUTE), *waits]
        if kind == "all-to-all":
            return nodes.all_to_all(label, own, after)
        return (nodes.gather if kind == "all-gather" else nodes.scatter)(label, own * nodes.size, after)

    def _cross(self, unit: DenseUnit, layer: SizedLayer, worked: Worked, waits: Sequence[Wait]) -> Ints:
        """Forward: all read everything, and each gets its samples of the sums, or of all columns. Backward the same in
        reverse."""
        swaps, size = unit.held.cut == "width", layer.output.numbers * self._number_bytes
        if worked.is_forward:
            before, after = "all-gather", "all-to-all" if swaps else "reduce-scatter"
        else:
            before, after = "all-to-all" if swaps else "all-gather", "reduce-scatter"
        kinds: tuple[TaskKind, TaskKind] = (before, after)  # type: ignore[assignment]
        for _ in range(layer.count):
            waits = [self._called(worked, kinds[0], size, waits)]
            self._streams.run(worked.label, worked.seconds / layer.count, waits)
            waits = [self._called(worked, kinds[1], size, ())]
        return self._streams.join(COMPUTE, waits)

    def _swapped(self, layer: SizedLayer, worked: Worked, waits: Sequence[Wait]) -> Ints:
        """Tokens for heads, of queries, keys and values; attention; heads for tokens, of its outputs. Backward the same
        of the gradients."""
        queries, kv, _ = _numbers(layer)
        read, made = (queries + kv) * self._number_bytes, queries * self._number_bytes
        rest_s = worked.seconds - worked.attention_s
        first, last = (read, made) if worked.is_forward else (made, read)
        self._streams.run(worked.label, rest_s / 2, waits)
        swapped = self._called(worked, "all-to-all", first, ())
        self._streams.run(worked.label, worked.attention_s, [swapped])
        swapped = self._called(worked, "all-to-all", last, ())
        return self._streams.run(worked.label, rest_s / 2, [swapped])

    def _around(self, unit: DenseUnit, layer: SizedLayer, worked: Worked, waits: Sequence[Wait]) -> Ints:
        """Attention in as many steps as there are ranks, with a message beside each but the last."""
        message, home = self._messages(unit, layer, worked.is_forward)
        ranks, rest_s = self._nodes.size, worked.seconds - worked.attention_s
        if worked.is_forward:
            self._streams.run(worked.label, rest_s, waits)
            waits = ()
        for number in range(ranks):
            begun = self._streams.begin(COMPUTE, waits)
            passed = self._passed(worked, message, begun) if number + 1 < ranks else None
            self._streams.run(worked.label, worked.attention_s / ranks, waits)
            waits = [passed]
        returned = self._called(worked, "all-to-all", home, ()) if home else None
        if unit.held.passes == "keys_and_values" and not worked.is_forward:
            returned = self._passed(worked, layer_gradients(layer), self._streams.last(COMPUTE))
        if worked.is_forward:
            return self._streams.join(COMPUTE, [returned])
        return self._streams.run(worked.label, rest_s, [returned])

    def _messages(self, unit: DenseUnit, layer: SizedLayer, is_forward: bool) -> tuple[float, float]:
        """Bytes of a sample in each message, and in what goes home at the end, to all ranks of a node."""
        queries, kv, heads = _numbers(layer)
        if unit.held.passes == "keys_and_values":
            return kv * self._number_bytes + (0 if is_forward else kv * FP32), 0.0
        own = queries * self._number_bytes
        if is_forward:
            return own, (own + heads * FP32) * self._nodes.size
        return 2 * own + 2 * heads * FP32, queries * FP32 * self._nodes.size

    def _passed(self, worked: Worked, size: float, begun: Ints) -> Wait:
        """A message of so many bytes a sample to the next rank: over its port goes what an all-to-all of that much and
        a share of its own sends."""
        label = Label(f"inside {worked.layer}", "all-to-all", INSIDE, worked.label.step)
        ranks = self._nodes.size
        return self._nodes.all_to_all(label, size * self._samples * ranks / (ranks - 1), [begun])


def _numbers(layer: SizedLayer) -> tuple[float, float, float]:
    """Of a sample: numbers of its queries, of its keys and values, and its queries times their heads."""
    widths = [product.rows * product.columns for product in layer.products[:3]]
    return widths[0], widths[1] + widths[2], layer.products[3].rows * layer.products[3].count / 2


def layer_gradients(layer: SizedLayer) -> float:
    """Bytes of a sample's gradients of keys and values."""
    return _numbers(layer)[1] * FP32
