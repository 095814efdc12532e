"""Layers whose work the ranks of a node share: what each rank computes of them, and what is called between layers.

What several layers read is brought to each by itself, before it works; its gradient goes back once it has worked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cost_models.collective_calls import CollectiveCall
from cost_models.dense_size import DenseSize
from cost_models.dense_strategies import CUTS, DenseStrategy, Stage
from cost_models.dense_units import DenseUnit
from cost_models.tensor_layouts import OWN_SAMPLES, Placed, layout_calls
from cost_models.workload.checkpoints import is_checkpointed
from cost_models.workload.dense_sharding import DenseStrategyWord, Held, LayerCut, LayerSharding
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.layers import NUMERICAL
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.errors import InputError

STAGE_OF: dict[DenseStrategyWord, Stage] = {"replicate": 0, "zero1": 1, "zero2": 2, "fsdp": 3}
CUT_KIND = "linear"
"""Of the layers that can be cut by columns or rows: one matrix product with weights."""


def strategy_of(held: Held, world: int, per_node: int) -> DenseStrategy:
    """How a layer is run on so many ranks, so many of them on each node."""
    cut_ranks = 1 if held.cut is None else per_node
    ranks = world // cut_ranks if held.cut or held.over == "world" else min(per_node, world)
    cut = held.cut or "samples"
    if STAGE_OF[held.strategy] == 0 or ranks == 1:
        return DenseStrategy(cut, cut_ranks)
    return DenseStrategy(cut, cut_ranks, STAGE_OF[held.strategy], ranks)


def size_on_rank(unit: DenseUnit, cut_ranks: int) -> DenseSize:
    """What a rank computes of a unit, for each of its own samples: of a layer that is cut a part, for those of all that
    share it. Parameters stay those of the whole."""
    if unit.held.cut is None or cut_ranks == 1:
        return unit.size
    own = _cut_size(unit.size, unit.held.cut, cut_ranks)
    return own if unit.size.recomputed is None else replace(own, recomputed=replace(own, recomputed=None))


def _cut_size(size: DenseSize, cut: LayerCut, cut_ranks: int) -> DenseSize:
    """A rank's part of a layer, but for what is computed again."""
    (product,), others = size.products, cut_ranks - 1
    rows = product.rows * cut_ranks
    if cut == "columns":
        whole = product.rows * product.inputs  # each rank has all inputs of all samples
        return replace(
            size,
            products=(replace(product, outputs=product.outputs / cut_ranks, rows=rows),),
            activation_elements=size.activation_elements + others * whole,
            product_inputs=size.product_inputs + others * whole,
        )
    whole = product.rows * product.outputs  # and here addends of all outputs
    return replace(
        size,
        products=(replace(product, inputs=product.inputs / cut_ranks, rows=rows),),
        activation_elements=size.activation_elements + others * whole,
        product_gradients=size.product_gradients + others * whole,
    )


@dataclass(frozen=True)
class UnitCalls:
    """Collectives that a unit waits for, beside those of its weights, one after the other."""

    enter: tuple[CollectiveCall, ...] = ()
    """Of what it reads, before it goes forward."""
    back: tuple[CollectiveCall, ...] = ()
    """Of the gradients of that, after it has gone backward."""
    answer: tuple[CollectiveCall, ...] = ()
    """Of what nobody but the loss reads, and of its gradient, before it goes backward; then of what it reads once more,
    where it is computed again."""

    @property
    def backward(self) -> tuple[CollectiveCall, ...]:
        """Those of the backward pass."""
        return self.answer + self.back


def calls_of_units(workload: Workload, units: Sequence[DenseUnit], world: int, cut_ranks: int) -> list[UnitCalls]:
    """[units] what each calls in a world of ranks, where layers are cut over so many of them."""
    if all(unit.held.cut is None for unit in units):
        return [UnitCalls()] * len(units)
    graph = _Placing(workload, units, world, cut_ranks)
    return [graph.calls(unit) for unit in units]


class _Placing:
    """How the tensors between layers are placed."""

    def __init__(self, workload: Workload, units: Sequence[DenseUnit], world: int, cut_ranks: int) -> None:
        self._workload, self._cut_ranks = workload, cut_ranks
        self._samples = workload.batch(world) / world
        self._cut: dict[str, LayerCut | None] = {layer.name: unit.held.cut for unit in units for layer in unit.layers}
        self._numbers = {layer.name: layer.output.numbers for unit in units for layer in unit.layers}
        self._numbers[NUMERICAL] = workload.dense.numerical_features
        self._blocks = {layer.name: layer.block for unit in units for layer in unit.layers}
        self._read = {name for unit in units for layer in unit.layers for name in layer.inputs}

    def calls(self, unit: DenseUnit) -> UnitCalls:
        """What a unit calls."""
        enter: list[CollectiveCall] = []
        back: list[CollectiveCall] = []
        answer: list[CollectiveCall] = []
        again: list[CollectiveCall] = []
        for layer in unit.layers:
            for name in layer.inputs:
                for call in self._brought(name, self._placed(name, writes=True), self._placed(layer.name)):
                    if call.phase == "forward":
                        enter.append(call)
                        again += [call] * self._is_called_again(name, layer)
                    elif name != NUMERICAL:
                        back.append(call)
            if layer.name not in self._read:
                answer += self._brought(layer.name, self._placed(layer.name, writes=True), OWN_SAMPLES)
        return UnitCalls(tuple(enter), tuple(back), (*answer, *again))

    def _is_called_again(self, name: str, reader: SizedLayer) -> bool:
        """Whether a layer that is computed again calls for what it reads once more: its block keeps what comes from
        outside as it was written."""
        if not is_checkpointed(self._workload.dense.checkpointing, reader.stated, reader.block):
            return False
        return self._cut.get(reader.name) is not None or self._blocks.get(name) == reader.block

    def _placed(self, name: str, *, writes: bool = False) -> Placed:
        """How a layer reads its inputs, or writes its output."""
        cut = self._cut.get(name)
        if cut is None:
            return OWN_SAMPLES
        return Placed(CUTS[cut].writes if writes else CUTS[cut].reads, self._cut_ranks)

    def _brought(self, name: str, written: Placed, read: Placed) -> Iterator[CollectiveCall]:
        workload = self._workload
        size = self._numbers[name] * workload.dense.activation_bytes
        return layout_calls(written, read, size, self._samples)


def expect_held_layers(topology: Topology, workload: Workload) -> None:
    """Raise InputError for rules about layers that cannot hold on a cluster, by the layer and the reason."""
    sharding = workload.dense.sharding
    if sharding is None or not sharding.layers:
        return
    if not workload.layers:
        message = "the dense part is given by totals, and not by layers; describe these, or leave the rules out"
        raise InputError.at("dense", message, path="sharding.layers")
    ranks = {group.accelerators.count for group in topology.nodes}
    for number, rule in enumerate(sharding.layers):
        matched = [layer for layer in workload.layers if rule.matches(layer.name)]
        reason = _why_not(rule, matched, workload, ranks)
        if reason:
            raise InputError.at("dense", reason, path=f"sharding.layers.{number}")


def _why_not(rule: LayerSharding, matched: Sequence[SizedLayer], workload: Workload, ranks: set[int]) -> str:
    """Why layers are not held as a rule says; empty where they are."""
    if not matched:
        known = ", ".join(layer.name for layer in workload.layers if layer.parameters)
        return f"no layer is called {','.join(rule.match)}; with parameters there are {known}"
    if rule.cut is None:
        return ""
    if len(ranks) > 1:
        return f"{rule.cut}: nodes have different numbers of ranks, over which layers are cut; leave cut out"
    if ranks == {1}:
        return f"{rule.cut}: nodes have one rank each, and layers are cut over those of a node; leave cut out"
    return next(filter(None, (why_uncut(layer, rule.cut, max(ranks)) for layer in matched)), "")


def why_uncut(layer: SizedLayer, cut: LayerCut, ranks: int) -> str:
    """Why a layer is not cut so over so many ranks; empty where it is."""
    if layer.kind != CUT_KIND:
        return f"{layer.name} is a layer {layer.kind}, and only linear ones are cut by {cut}; leave it out of match"
    (product,) = layer.products
    size = round(product.columns if cut == "columns" else product.inner)
    if size % ranks:
        what = "outputs" if cut == "columns" else "inputs"
        return f"{layer.name} has {size:,} {what}, which {ranks} ranks do not share evenly; leave it out of match"
    return ""
