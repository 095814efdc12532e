"""Layers whose work the ranks of a node share: which can be, and what is called between layers.

What several layers read is brought to each by itself, before it works; its gradient goes back once it has worked.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cost_models.collective_calls import CollectiveCall
from cost_models.dense_strategies import CUTS, DenseStrategy, Stage
from cost_models.dense_units import DenseUnit
from cost_models.shared_work import InsideCalls, Ring, inside_calls
from cost_models.tensor_layouts import OWN_SAMPLES, Placed, layout_calls
from cost_models.workload.checkpoints import is_checkpointed
from cost_models.workload.dense_sharding import DenseStrategyWord, Held, LayerCut, LayerSharding
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.layers import NUMERICAL
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.errors import InputError

STAGE_OF: dict[DenseStrategyWord, Stage] = {"replicate": 0, "zero1": 1, "zero2": 2, "fsdp": 3}
Uncut = str
"""Why a layer is not cut so; empty where it is."""
PER_TOKEN = ("attention", "linear", "norm", "add")
"""Kinds of layers whose tokens can be cut: attention, and what works on each token by itself."""


def strategy_of(held: Held, world: int, per_node: int) -> DenseStrategy:
    """How a layer is run on so many ranks, so many of them on each node."""
    cut_ranks = 1 if held.cut is None else per_node
    ranks = world if held.cut or held.over == "world" else min(per_node, world)
    ranks //= cut_ranks if held.cuts_weights else 1
    cut = held.cut or "samples"
    if STAGE_OF[held.strategy] == 0 or ranks == 1:
        return DenseStrategy(cut, cut_ranks)
    return DenseStrategy(cut, cut_ranks, STAGE_OF[held.strategy], ranks)


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
    ring: Ring | None = None
    """What goes around while it works."""

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
        if unit.held.cut is None:
            return UnitCalls(tuple(enter), tuple(back), (*answer, *again))
        inside = self._inside(unit)
        again += inside.forward * (unit.size.recomputed is not None)
        return UnitCalls((*enter, *inside.forward), (*inside.backward, *back), (*answer, *again), inside.ring)

    def _inside(self, unit: DenseUnit) -> InsideCalls:
        """What is called inside a layer that is cut."""
        (layer,), number_bytes = unit.layers, self._workload.dense.activation_bytes
        return inside_calls(layer, unit.held, self._cut_ranks, self._samples, number_bytes)

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
    held = Held(cut=rule.cut, passes=rule.passes or "keys_and_values")
    if rule.passes is not None and all(layer.kind != "attention" for layer in matched):
        return f"{rule.passes}: {matched[0].name} is a layer {matched[0].kind}, and only attention passes; leave it out"
    return next(filter(None, (why_uncut(layer, held, max(ranks)) for layer in matched)), "")


def why_uncut(layer: SizedLayer, held: Held, ranks: int) -> Uncut:
    """Why a layer is not cut so over so many ranks; empty where it is."""
    return "" if held.cut is None else WHY_UNCUT[held.cut](layer, held, ranks)


def _of_product(layer: SizedLayer, held: Held, ranks: int) -> Uncut:
    if layer.kind != "linear":
        return f"{_what(layer)}, and only linear ones are cut by {held.cut}; leave it out of match"
    (product,) = layer.products
    size, what = (product.columns, "outputs") if held.cut == "columns" else (product.inner, "inputs")
    return _uneven(layer, size, what, ranks)


def _what(layer: SizedLayer) -> str:
    return f"{layer.name} is a layer {layer.kind}"


def _of_heads(layer: SizedLayer, _: Held, ranks: int) -> Uncut:
    if layer.kind != "attention":
        return f"{_what(layer)}, and only attention is cut by heads; leave it out of match"
    queries, keys, _values, scores, *_others = layer.products
    heads = _uneven(layer, queries.columns / scores.inner, "heads", ranks)
    return heads or _uneven(layer, keys.columns / scores.inner, "key-value heads", ranks)


def _of_cross(layer: SizedLayer, held: Held, ranks: int) -> Uncut:
    is_full = len(layer.products) == layer.count
    if layer.kind != "cross" or is_full != (held.cut == "width"):
        which = "full" if held.cut == "width" else "low-rank"
        own = f"{layer.name} is {'full' if is_full else 'low-rank'}" if layer.kind == "cross" else _what(layer)
        return f"{own}, and only {which} cross layers are cut by {held.cut}; leave it out of match"
    return _uneven(layer, layer.products[0].columns, "columns" if is_full else "inner columns", ranks)


def _of_tokens(layer: SizedLayer, held: Held, ranks: int) -> Uncut:
    is_cut = layer.kind in PER_TOKEN and (layer.kind != "linear" or layer.products[0].rows != 1)
    if not is_cut:
        known = "attention, norm, add and linear layers per token"
        return f"{_what(layer)}, and only {known} are cut by tokens; leave it out of match"
    if layer.kind == "attention" and held.passes == "all_to_all" and (uneven := _of_heads(layer, held, ranks)):
        return uneven
    if not layer.output.has_fixed_length:
        return ""
    if layer.kind == "attention" and layer.products[3].columns < layer.products[1].rows:  # causal: both ends alike
        return _uneven(layer, layer.output.tokens, "tokens", ranks, chunks=2)
    return _uneven(layer, layer.output.tokens, "tokens", ranks)


def _uneven(layer: SizedLayer, size: float, what: str, ranks: int, chunks: int = 1) -> Uncut:
    if round(size) % (ranks * chunks) == 0:
        return ""
    how = f"in {chunks} chunks each" if chunks > 1 else "evenly"
    return f"{layer.name} has {round(size):,} {what}, which {ranks} ranks do not share {how}; leave it out of match"


WHY_UNCUT: dict[LayerCut, Callable[[SizedLayer, Held, int], Uncut]] = {
    "columns": _of_product,
    "rows": _of_product,
    "heads": _of_heads,
    "inner": _of_cross,
    "width": _of_cross,
    "tokens": _of_tokens,
}
