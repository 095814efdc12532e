"""What each strategy of each dense layer takes of a step at least: an input of a choice layer by layer.

Seconds and bytes that add up over layers, and over what one layer gives another, whatever the others do. What does not
add up is left out, so that their sum is never above what the dense part of a step takes: waits for gathers and sums of
gradients, first bytes of what units call together, whole weights while they are gathered, and the begin of sums. See
`dense_timeline` for all of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from cost_models.collective_calls import CollectiveCall
from cost_models.cut_layers import strategy_of
from cost_models.dense import optimizer_seconds, size_seconds
from cost_models.dense_sharding import GATHERED_ELEMENTS, ring_waits_s
from cost_models.dense_size import layer_parts, layer_sizes
from cost_models.dense_strategies import CUTS, DenseStrategy, NumberBytes, TrainedLayer, held_bytes, layer_calls
from cost_models.dense_units import MOST_UNITS, UNIT_PARAMETERS, DenseUnit
from cost_models.group_laws import GroupLaws
from cost_models.kinds import RankKind
from cost_models.shards import Floats
from cost_models.shared_work import InsideCalls, inside_calls, size_on_rank
from cost_models.tensor_layouts import OWN_SAMPLES, Placed, layout_calls
from cost_models.workload.dense_sharding import Held
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.layers import NUMERICAL
from cost_models.workload.models import Workload
from topologies.cluster import Topology

Channel = Literal[
    "work", "first_work", "sums_port", "sums_card", "gathers_port", "gathers_card", "first_port", "first_card"
]
"""What is kept busy: the device, beside the exchange of vectors (`first_work`) or after it; the port of a rank and its
card, from the backward pass on (`sums`), in the forward pass, and in that of the layers that need no vectors."""
CHANNELS: tuple[Channel, ...] = get_args(Channel)
Ways = Sequence[Held]


@dataclass(frozen=True)
class LayerLoads:
    """Those of S strategies of a layer, or of S pairs of them; K kinds of rank."""

    busy_s: dict[Channel, Floats]
    """[K, S] seconds of each channel."""
    late_s: Floats
    """[3, S] what the dense part takes one after the other on the first kind of rank: the forward pass of what needs
    vectors, or its gathers, then gathers and sums of the backward pass; or (`with_turn`) the forward pass, then the
    backward pass as far as a layer, then the sums from there on."""
    update_s: Floats
    """[S] of the optimizer, on the kind of rank that takes longest."""
    gather_s: Floats
    """[S] in which whole weights are gathered after the update."""
    held_bytes: Floats
    """[S] whole bytes on each rank, activations aside."""
    chain_s: Floats
    """[3, S] seconds of the forward pass of what needs vectors, of the backward pass, and in which links carry sums of
    gradients, on the first kind of rank."""


def with_turn(
    loads: Mapping[str, LayerLoads], order: Sequence[str], chosen: Mapping[str, int]
) -> dict[str, LayerLoads]:
    """The loads of layers with a third sequence, that of which most is taken under the strategies `chosen`: sums of a
    layer and of those before it begin no earlier than the backward pass has come to the layer, whatever units are
    summed together. `order` is that of the forward pass, with what needs no vectors first."""
    forward_s, backward_s, sums_s = np.array([loads[name].chain_s[:, chosen[name]] for name in order]).T
    taken_s = forward_s.sum() + np.cumsum(backward_s[::-1])[::-1] + np.cumsum(sums_s)
    turn, found = int(taken_s.argmax()), dict(loads)
    for place, name in enumerate(order):
        forward, backward, sums = loads[name].chain_s
        third = forward + backward * (place >= turn) + sums * (place <= turn)
        found[name] = replace(loads[name], late_s=np.array([*loads[name].late_s[:2], third]))
    return found


class DenseLoads:
    """Those of one workload on one cluster, whose layers may be held in several ways each."""

    def __init__(self, topology: Topology, workload: Workload, kinds: tuple[RankKind, ...], passes: float) -> None:
        """`passes`: times that activations go through device memory (`activation_passes` of the software)."""
        self._topology, self._workload, self._kinds, self._passes = topology, workload, kinds, passes
        self._world, self._per_node = topology.world_size, topology.nodes[0].accelerators.count
        self._samples = workload.batch(self._world) / self._world
        self._laws, self._numbers = GroupLaws(topology, workload), NumberBytes.of(workload.dense)
        self._read = {name for layer in workload.layers for name in layer.inputs}

    @cached_property
    def _is_first(self) -> dict[str, bool]:
        """Whether each layer needs no vectors of tables."""
        parts = zip(self._workload.layers, layer_parts(self._workload.layers), strict=True)
        return {layer.name: part == "bottom_mlp" for layer, part in parts}

    @property
    def order(self) -> tuple[str, ...]:
        """Layers in the order of the forward pass, those first that need no vectors."""
        return tuple(sorted(self._is_first, key=lambda name: not self._is_first[name]))

    @cached_property
    def _sizes(self) -> dict[str, DenseUnit]:
        """Each layer as a unit of its own, held as usual."""
        layers, sizes = self._workload.layers, layer_sizes(self._workload)
        return {
            layer.name: DenseUnit(size, self._is_first[layer.name], Held(), (layer,))
            for layer, size in zip(layers, sizes, strict=True)
        }

    @cached_property
    def _may_stay(self) -> frozenset[str]:
        """Layers that may be in the last unit, whose weights stay whole from the forward to the backward pass."""
        layers = [layer for layer in self._workload.layers if not self._is_first[layer.name]] or self._workload.layers
        parameters = [layer.parameters for layer in layers]
        most = 2 * max(UNIT_PARAMETERS, sum(layer.parameters for layer in self._workload.layers) / MOST_UNITS)
        after = (parameters[number + 1 :] for number in range(len(layers)))
        found = zip(layers, after, strict=True)
        return frozenset(layer.name for layer, later in found if sum(later) - max(later, default=0) < most)

    def of_layer(self, layer: SizedLayer, ways: Ways) -> LayerLoads:
        """Those of a layer by itself, with what it exchanges of its inputs from outside and of its outputs that go to
        the loss."""
        found = [self._of_way(layer, held, self._strategy(held)) for held in ways]
        busy_s = {channel: np.stack([each[channel] for each in found], axis=1) for channel in CHANNELS}
        strategies = [self._strategy(held) for held in ways]
        trained = TrainedLayer(layer.parameters, 0, 0)
        return LayerLoads(
            busy_s,
            np.array([(*self._late_s(layer, held, self._strategy(held)), 0.0) for held in ways]).T,
            np.array([self._update_s(layer, each) for each in strategies]),
            np.array([self._gather_after_update_s(layer, each) for each in strategies]),
            np.floor([held_bytes(each, trained, self._numbers, 0).kept for each in strategies]),
            np.array([self._chain_s(layer, held, self._strategy(held)) for held in ways]).T,
        )

    def between(self, writer: SizedLayer, reader: SizedLayer, writers: Ways, readers: Ways) -> LayerLoads:
        """[S of the writer x S of the reader] those of what one layer gives another, and of its gradient."""
        pairs = [(self._placed(one, writes=True), self._placed(other)) for one in writers for other in readers]
        made = {pair: self._of_tensor(writer.output.numbers, *pair, reader) for pair in dict.fromkeys(pairs)}
        busy_s = {channel: np.stack([made[pair][channel] for pair in pairs], axis=1) for channel in CHANNELS}
        is_first, size = self._is_first[reader.name], writer.output.numbers * self._workload.dense.activation_bytes
        late = {pair: 0.0 if is_first else self._forward_s(size, *pair) for pair in made}
        none = np.zeros(len(pairs))
        forward_s = np.array([late[pair] for pair in pairs])
        return LayerLoads(busy_s, np.array([forward_s, none, forward_s]), none, none, none, np.zeros((3, len(pairs))))

    def _strategy(self, held: Held) -> DenseStrategy:
        return strategy_of(held, self._world, self._per_node)

    def _placed(self, held: Held, *, writes: bool = False) -> Placed:
        row = CUTS[held.cut or "samples"]
        return Placed(row.writes if writes else row.reads, self._per_node) if held.cut else OWN_SAMPLES

    def _none(self) -> dict[Channel, Floats]:
        return {channel: np.zeros(len(self._kinds)) for channel in CHANNELS}

    def _of_way(self, layer: SizedLayer, held: Held, strategy: DenseStrategy) -> dict[Channel, Floats]:
        """[K] seconds of each channel of a layer that is held in one way."""
        busy_s = self._none()
        unit = replace(self._sizes[layer.name], held=held)
        size = size_on_rank(unit, strategy.cut_ranks)
        work: Channel = "first_work" if unit.is_first else "work"
        for number, kind in enumerate(self._kinds):
            only = unit.is_first  # what such layers take backward is the same whoever works for their samples
            seconds = size_seconds(self._workload, size, self._samples, kind, self._passes, forward_only=only)
            busy_s[work][number] += seconds + sum(self._ring_waits_s(layer, held, kind)[: 1 if only else 2])
        for call in self._weight_calls(layer.parameters, strategy):
            if call.phase == "update" or (call.operation == "all_gather" and self._stays_whole(layer, call)):
                continue
            links = self._links(call, is_first=unit.is_first)
            self._add_busy(busy_s, links, call, self._most_times(layer, held))
        numbers = self._workload.dense.numerical_features
        for name in layer.inputs:
            if name == NUMERICAL:
                self._add(busy_s, self._of_tensor(numbers, OWN_SAMPLES, self._placed(held), layer, has_gradient=False))
        self._add(busy_s, self._of_inside(layer, held))
        if layer.name not in self._read:
            self._add(busy_s, self._of_loss(layer, self._placed(held, writes=True), is_first=unit.is_first))
        return busy_s

    def _late_s(self, layer: SizedLayer, held: Held, strategy: DenseStrategy) -> tuple[float, float]:
        """See `LayerLoads`."""
        forward_s, _, sums_s = self._chain_s(layer, held, strategy)
        calls, times = list(self._weight_calls(layer.parameters, strategy)), self._most_times(layer, held)
        gathers_s = 0.0
        if not self._is_first[layer.name]:
            gathers_s = sum(self._carried_s(call, times) for call in calls if call.phase == "forward")
        again = [each for each in calls if each.phase == "backward" and each.operation == "all_gather"]
        after_s = sums_s + sum(self._carried_s(call, times) for call in again if not self._stays_whole(layer, call))
        return forward_s + after_s, gathers_s + after_s

    def _chain_s(self, layer: SizedLayer, held: Held, strategy: DenseStrategy) -> tuple[float, float, float]:
        """See `LayerLoads`."""
        unit, kind = replace(self._sizes[layer.name], held=held), self._kinds[0]
        size, inside, waits_s = size_on_rank(unit, strategy.cut_ranks), self._inside(layer, held), (0.0, 0.0)
        if inside.ring is not None:
            waits_s = self._ring_waits_s(layer, held, kind)
        forward_s, both_s = (
            size_seconds(self._workload, size, self._samples, kind, self._passes, forward_only=only)
            for only in (True, False)
        )
        backward_s = both_s - forward_s + self._laws.total_seconds(inside.backward) + waits_s[1]
        forward_s += self._laws.total_seconds(inside.forward) + waits_s[0]
        numbers = self._workload.dense.numerical_features * self._workload.dense.activation_bytes
        forward_s += layer.inputs.count(NUMERICAL) * self._forward_s(numbers, OWN_SAMPLES, self._placed(held))
        calls = [each for each in self._weight_calls(layer.parameters, strategy) if each.phase == "backward"]
        sums = [call for call in calls if call.operation != "all_gather"][:1]
        sums_s = sum(self._carried_s(call, self._most_times(layer, held)) for call in sums)
        return 0.0 if unit.is_first else forward_s, backward_s, sums_s

    def _most_times(self, layer: SizedLayer, held: Held) -> float:
        """How many times as large a message with a layer's weights may be: with those of all layers; of one that is cut
        it has these alone."""
        if held.cut is not None or not layer.parameters:
            return 1.0
        return sum(each.parameters for each in self._workload.layers) / layer.parameters

    def _carried_s(self, call: CollectiveCall, times: float) -> float:
        """Seconds for which links carry a call, as a part of one that is so many `times` as large."""
        large = replace(call, buffer_bytes=call.buffer_bytes * times)
        return (self._laws.seconds(large) - self._laws.latency_s(large)) / times

    def _forward_s(self, size: float, written: Placed, read: Placed) -> float:
        """Seconds in which a tensor of so many bytes a sample is waited for in the forward pass."""
        calls = layout_calls(written, read, size, self._samples)
        return self._laws.total_seconds(call for call in calls if call.phase == "forward")

    def _stays_whole(self, layer: SizedLayer, call: CollectiveCall) -> bool:
        return call.phase == "backward" and layer.name in self._may_stay

    def _weight_calls(self, parameters: float, strategy: DenseStrategy) -> Iterable[CollectiveCall]:
        return layer_calls(strategy, TrainedLayer(parameters, 0, 0), self._numbers, 0, self._world)

    def _of_tensor(
        self, numbers: float, written: Placed, read: Placed, reader: SizedLayer, *, has_gradient: bool = True
    ) -> dict[Channel, Floats]:
        """[K] what brings a tensor to a layer that reads it, and its gradient back: who waits works for nobody."""
        busy_s, is_first = self._none(), self._is_first[reader.name]
        size = numbers * self._workload.dense.activation_bytes
        for call in layout_calls(written, read, size, self._samples):
            if call.phase == "forward":
                busy_s["first_work" if is_first else "work"] += self._laws.seconds(call)
            elif not has_gradient:
                continue
            elif not is_first:
                busy_s["work"] += self._laws.seconds(call)
            self._add_busy(busy_s, self._links(call, is_first=is_first), call)
        return busy_s

    def _inside(self, layer: SizedLayer, held: Held) -> InsideCalls:
        """What is called inside a layer that is held in one way."""
        return inside_calls(layer, held, self._per_node, self._samples, self._workload.dense.activation_bytes)

    def _ring_waits_s(self, layer: SizedLayer, held: Held, kind: RankKind) -> tuple[float, float]:
        """Seconds for which both passes wait for what goes around."""
        ring = self._inside(layer, held).ring
        if ring is None:
            return 0.0, 0.0
        size = size_on_rank(replace(self._sizes[layer.name], held=held), self._per_node)
        return ring_waits_s(self._workload, size, ring, self._laws, self._samples, kind)

    def _of_inside(self, layer: SizedLayer, held: Held) -> dict[Channel, Floats]:
        """[K] what is called inside a layer, which its pass waits for; of what goes around, the links alone."""
        busy_s, inside, is_first = self._none(), self._inside(layer, held), self._is_first[layer.name]
        is_again = self._sizes[layer.name].size.recomputed is not None
        again = [replace(call, phase="backward") for call in inside.forward if is_again]
        for call in (*inside.forward, *again, *inside.backward):
            if call.phase == "forward" or not is_first:
                busy_s["first_work" if is_first else "work"] += self._laws.seconds(call)
            self._add_busy(busy_s, self._links(call, is_first=is_first), call)
        ring = inside.ring
        for call in () if ring is None else (ring.forward, ring.backward) * ring.steps:
            self._add_busy(busy_s, self._links(call, is_first=is_first), call)
        return busy_s

    def _of_loss(self, layer: SizedLayer, written: Placed, *, is_first: bool) -> dict[Channel, Floats]:
        """[K] what brings the output of a layer to the samples of each rank, and its gradient back, before the backward
        pass."""
        busy_s, size = self._none(), layer.output.numbers * self._workload.dense.activation_bytes
        for call in layout_calls(written, OWN_SAMPLES, size, self._samples):
            busy_s["work"] += 0.0 if is_first else self._laws.seconds(call)
            self._add_busy(busy_s, ("sums_port", "sums_card"), call)
        return busy_s

    def _links(self, call: CollectiveCall, *, is_first: bool) -> tuple[Channel, Channel]:
        """The channels of the port and of the card that carry a call."""
        if call.phase == "backward":
            return "sums_port", "sums_card"
        return ("first_port", "first_card") if is_first else ("gathers_port", "gathers_card")

    def _add_busy(
        self, busy_s: dict[Channel, Floats], links: tuple[Channel, Channel], call: CollectiveCall, times: float = 1.0
    ) -> None:
        """Add what a call keeps busy, at the rate of one that is so many `times` as large."""
        large = replace(call, buffer_bytes=call.buffer_bytes * times)
        for channel, seconds in zip(links, self._laws.busy_s(large), strict=True):
            busy_s[channel] += seconds / times

    def _add(self, busy_s: dict[Channel, Floats], more: dict[Channel, Floats]) -> None:
        for channel in CHANNELS:
            busy_s[channel] += more[channel]

    def _update_s(self, layer: SizedLayer, strategy: DenseStrategy) -> float:
        whole = sum(each.parameters for each in self._workload.layers)
        if not whole:
            return 0.0
        own = layer.parameters / strategy.weight_parts / strategy.shard_ranks
        return optimizer_seconds(self._workload, min(kind.hbm_bytes_per_s for kind in self._kinds)) * own / whole

    def _gather_after_update_s(self, layer: SizedLayer, strategy: DenseStrategy) -> float:
        """As a share of a whole message, in which a weight takes least."""
        calls = (call for call in self._weight_calls(GATHERED_ELEMENTS, strategy) if call.phase == "update")
        return self._laws.total_seconds(calls) * layer.parameters / GATHERED_ELEMENTS
