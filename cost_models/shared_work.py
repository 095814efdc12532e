"""Layers whose work the ranks of a node share: what each rank computes of them, and what is exchanged inside them.

Heads, columns and rows cut products; what comes in and goes out of such a layer is exchanged between layers (see
`cut_layers`). Cross layers add to what they read number by number, in each rank's own samples, so that every product is
gathered and scattered inside: what ColwiseParallel and RowwiseParallel of torch do to its two linear layers. Attention
whose tokens are cut passes keys and values around a ring, or queries, each message while the one before is attended to;
or swaps tokens for heads and back.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from cost_models.collective_calls import CollectiveCall, Members, Phase
from cost_models.dense_size import DenseSize
from cost_models.dense_units import DenseUnit
from cost_models.tensor_layouts import OWN_SAMPLES, Placed, layout_calls
from cost_models.workload.dense_sharding import Held, LayerCut
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.layer_kinds import Product

ProductCut = Literal["columns", "rows"]
PRODUCTS: dict[LayerCut, tuple[ProductCut, ...]] = {
    "columns": ("columns",),
    "rows": ("rows",),
    "heads": ("columns", "columns", "columns", "rows"),
    "inner": ("columns", "rows"),
    "width": ("columns",),
    "tokens": (),
}
"""How each cut divides the products with weights of a layer, one after the other and again from the first: of attention
queries, keys, values, outputs. Where tokens are cut, a rank has as many tokens of more samples."""
GRADIENT_BYTES = 4
"""Of a number of the gradients that are summed on their way around a ring; and of the statistics of a softmax."""


def size_on_rank(unit: DenseUnit, cut_ranks: int) -> DenseSize:
    """What a rank computes of a unit, for each of its own samples: of a layer that is cut a part, for those of all that
    share it. Parameters stay those of the whole."""
    if unit.held.cut is None or cut_ranks == 1:
        return unit.size
    if unit.held.cut == "tokens" and unit.held.passes != "all_to_all":
        own = replace(unit.size, within_samples=_in_steps(unit.size, cut_ranks))
    else:
        own = _cut_size(unit.size, unit.held.cut, cut_ranks)
    return own if unit.size.recomputed is None else replace(own, recomputed=replace(own, recomputed=None))


def _in_steps(size: DenseSize, ranks: int) -> tuple[Product, ...]:
    """Attention of some tokens over as many of each rank, of all samples of the node."""
    return tuple(
        replace(each, rows=each.rows / ranks, columns=each.columns / ranks, count=each.count * ranks**2)
        for each in size.within_samples
    )


def _cut_size(size: DenseSize, cut: LayerCut, cut_ranks: int) -> DenseSize:
    """A rank's part of a layer, but for what is computed again: by columns it has all inputs of all samples, by rows
    addends of all outputs."""
    if not PRODUCTS[cut]:
        return size
    products, read, written = [], 0.0, 0.0
    for product, way in zip(size.products, itertools.cycle(PRODUCTS[cut])):
        inputs, outputs, rows = product.inputs, product.outputs, product.rows * cut_ranks
        if way == "columns":
            read += product.rows * inputs
            products.append(replace(product, outputs=outputs / cut_ranks, rows=rows))
        else:
            written += product.rows * outputs
            products.append(replace(product, inputs=inputs / cut_ranks, rows=rows))
    others = cut_ranks - 1
    return replace(
        size,
        products=tuple(products),
        activation_elements=size.activation_elements + others * (read + written),
        product_inputs=size.product_inputs + others * read,
        product_gradients=size.product_gradients + others * written,
    )


@dataclass(frozen=True)
class Ring:
    """Messages that go around the ranks of a node, each while the one before is attended to. A message is an all-to-all
    of which each rank sends everything to the next one (the rotate method `alltoall` of torch)."""

    steps: int
    """Messages of each rank in a pass."""
    forward: CollectiveCall
    backward: CollectiveCall
    buffer_bytes: float
    """Of a rank's samples, for what comes in and for what goes out in the backward pass."""

    def waits_s(
        self, attention_s: tuple[float, float], seconds: Callable[[CollectiveCall], float]
    ) -> tuple[float, float]:
        """Seconds for which the forward and the backward pass wait for messages, that take so long for attention to
        everything."""
        forward_s, backward_s = (
            self.steps * max(0.0, seconds(call) - whole_s / (self.steps + 1))
            for call, whole_s in zip((self.forward, self.backward), attention_s, strict=True)
        )
        return forward_s, backward_s


@dataclass(frozen=True)
class InsideCalls:
    """Collectives inside a layer that its pass waits for, and what goes around meanwhile."""

    forward: tuple[CollectiveCall, ...] = ()
    backward: tuple[CollectiveCall, ...] = ()
    ring: Ring | None = None


def inside_calls(layer: SizedLayer, held: Held, ranks: int, samples: float, number_bytes: float) -> InsideCalls:
    """Those of a layer that so many ranks share, each with so many samples of its own, and so many bytes for each
    number that a layer reads or writes."""
    if held.cut in ("inner", "width"):
        return _of_cross(layer, held.cut, ranks, samples, number_bytes)
    if held.cut == "tokens" and layer.kind == "attention" and ranks > 1:
        return _OfTokens(layer, ranks, samples, number_bytes).calls(held)
    return InsideCalls()


def _of_cross(layer: SizedLayer, cut: LayerCut, ranks: int, samples: float, number_bytes: float) -> InsideCalls:
    """What each cross layer reads is gathered; addends of its outputs are summed into the samples of each rank, or its
    columns swapped for these."""
    size, written = layer.output.numbers * number_bytes, Placed("partial" if cut == "inner" else "columns", ranks)
    calls = [
        *layout_calls(OWN_SAMPLES, Placed("replicated", ranks), size, samples),
        *layout_calls(written, OWN_SAMPLES, size, samples),
    ]
    return _by_phase(calls * layer.count)


def _by_phase(calls: Iterable[CollectiveCall]) -> InsideCalls:
    calls = list(calls)
    forward = tuple(call for call in calls if call.phase == "forward")
    return InsideCalls(forward, tuple(call for call in calls if call.phase == "backward"))


class _OfTokens:
    """What attention exchanges of which each rank has a part of the tokens."""

    def __init__(self, layer: SizedLayer, ranks: int, samples: float, number_bytes: float) -> None:
        self._ranks, self._samples, self._number_bytes = ranks, samples, number_bytes
        queries, keys, values, scores = layer.products[:4]
        self._queries = queries.rows * queries.columns
        """Numbers of a sample."""
        self._kv = keys.rows * keys.columns + values.rows * values.columns
        self._rows = scores.rows * scores.count / 2
        """Of scores, one of two products: a head of a token each, which has a sum of exponentials."""

    def calls(self, held: Held) -> InsideCalls:
        """By what is passed."""
        if held.passes == "all_to_all":
            there, back = Placed("tokens", self._ranks), Placed("columns", self._ranks)
            read, made = (self._queries + self._kv) * self._number_bytes, self._queries * self._number_bytes
            swaps = layout_calls(there, back, read, self._samples), layout_calls(back, there, made, self._samples)
            return _by_phase(itertools.chain(*swaps))
        return self._of_queries() if held.passes == "queries" else self._of_keys_and_values()

    def _of_keys_and_values(self) -> InsideCalls:
        """Their gradients go with them, and are home a step later."""
        forward, gradients = self._kv * self._number_bytes, self._kv * GRADIENT_BYTES
        return InsideCalls((), (self._message("backward", gradients),), self._ring(forward, forward + gradients))

    def _of_queries(self) -> InsideCalls:
        """With the gradients of their outputs and two statistics of each head on the way back; partial outputs, and
        partial gradients of queries, go home all at once."""
        numbers, statistics = self._queries * self._number_bytes, self._rows * GRADIENT_BYTES
        outputs = self._home("forward", numbers + statistics)
        gradients = self._home("backward", self._queries * GRADIENT_BYTES)
        return InsideCalls((outputs,), (gradients,), self._ring(numbers, 2 * (numbers + statistics)))

    def _ring(self, forward: float, backward: float) -> Ring:
        messages = self._message("forward", forward), self._message("backward", backward)
        return Ring(self._ranks - 1, *messages, buffer_bytes=2 * backward * self._samples)

    def _message(self, phase: Phase, size: float) -> CollectiveCall:
        whole = size * self._samples * self._ranks / (self._ranks - 1)
        return CollectiveCall("all_to_all", phase, whole, Members(self._ranks))

    def _home(self, phase: Phase, size: float) -> CollectiveCall:
        return CollectiveCall("all_to_all", phase, size * self._samples * self._ranks, Members(self._ranks))
