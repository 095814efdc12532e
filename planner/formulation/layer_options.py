"""In which ways each layer of a dense part may be held, and what such a choice is as rules about layers."""

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from cost_models.cut_layers import why_uncut
from cost_models.dense_sharding import is_shardable
from cost_models.workload.dense_sharding import (
    STRATEGY_WORDS,
    WEIGHT_CUTS,
    DenseSharding,
    Held,
    LayerCut,
    LayerSharding,
    Passed,
    ShardedOver,
)
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.models import Workload
from planner.formulation.dense_choices import DenseChoices, with_sharding
from topologies.cluster import Topology

CUTS_OF: dict[str, tuple[LayerCut, ...]] = {
    "linear": ("columns", "rows"),
    "attention": ("heads", "tokens"),
    "cross": ("inner", "width"),
}
"""Cuts that are chosen of each kind of layer. What works on each token by itself may be cut as stated rules say, beside
attention."""
PASSES: tuple[Passed, ...] = get_args(Passed)


@dataclass(frozen=True)
class LayerOptions:
    """The ways of every layer, the simplest first; one alone where there is nothing to choose."""

    ways: Mapping[str, tuple[Held, ...]]
    """By layer, in the order of the forward pass."""
    sharded: DenseSharding
    """The first strategy of the whole dense part that shards it."""
    stated: tuple[LayerSharding, ...] = ()
    """Rules of the policy, which come first."""

    def sharding(self, held: Mapping[str, Held], layers: Sequence[SizedLayer]) -> DenseSharding:
        """The rules that hold each layer in its way: that of most weights for all, and others by name."""
        free = [layer for layer in layers if layer.parameters and not self._rule_of(layer.name)]
        weights: dict[Held, int] = {}
        for layer in free:
            if held[layer.name].cut is None:
                weights[held[layer.name]] = weights.get(held[layer.name], 0) + layer.parameters
        usual = max(weights, key=lambda way: weights[way], default=Held())
        rules = []
        for way in dict.fromkeys(held[layer.name] for layer in free if held[layer.name] != usual):
            names = [layer.name for layer in free if held[layer.name] == way]
            others = [layer.name for layer in layers if layer.name not in names and (layer.parameters or way.cut)]
            rules.append(_rule(way, names, others))
        return DenseSharding(strategy=usual.strategy, over=usual.over, layers=(*self.stated, *rules))

    def _rule_of(self, name: str) -> LayerSharding | None:
        return next((rule for rule in self.stated if rule.matches(name)), None)

    def held(self, sharding: DenseSharding) -> dict[str, Held]:
        """How each layer is held under some rules."""
        return {name: sharding.of_layer(name) if len(ways) > 1 else ways[0] for name, ways in self.ways.items()}


def layer_options(choices: DenseChoices | None, topology: Topology, workload: Workload) -> LayerOptions | None:
    """Those that a policy leaves open; None where it chooses no strategy layer by layer, or nothing can be sharded.

    Layers without weights are held as the others are.
    """
    if choices is None or choices.settled is not None or choices.by != "layer" or not workload.layers:
        return None
    plain = [each for each in choices.listed() if each.strategy != "replicate"]
    plain = [each for each in plain if is_shardable(topology, with_sharding(workload, each))]
    if not plain or len({group.accelerators.count for group in topology.nodes}) > 1:
        return None
    has_nodes = topology.node_count > 1
    over: set[ShardedOver] = {each.over for each in plain if has_nodes or choices.over or each.over == "world"}
    whole = (Held(), *(each.of_others for each in plain if each.over in over))
    ranks = topology.nodes[0].accelerators.count
    ways: dict[str, tuple[Held, ...]] = {}
    for layer in workload.layers:
        rule = next((rule for rule in choices.layers if rule.matches(layer.name)), None)
        if rule is not None:
            ways[layer.name] = _ways_of(rule, has_copies=has_nodes)
        elif not layer.parameters:
            ways[layer.name] = (Held(),)
        else:
            cuts = _cut_ways(layer, ranks, has_copies=has_nodes)
            ways[layer.name] = (*whole, *(way for way in cuts if choices.cuts is None or way.cut in choices.cuts))
    return LayerOptions(ways, plain[0], choices.layers)


def _cut_ways(layer: SizedLayer, ranks: int, *, has_copies: bool) -> Iterator[Held]:
    """Ways that cut a layer's work over the ranks of a node."""
    for cut in CUTS_OF.get(layer.kind, ()) if ranks > 1 else ():
        for passes in PASSES if cut == "tokens" else PASSES[:1]:
            if not why_uncut(layer, Held(cut=cut, passes=passes), ranks):
                for strategy in STRATEGY_WORDS if has_copies or cut not in WEIGHT_CUTS else STRATEGY_WORDS[:1]:
                    yield Held(strategy, "world", cut, passes)


def _ways_of(rule: LayerSharding, *, has_copies: bool) -> tuple[Held, ...]:
    """Those that a rule leaves, which may leave the strategy to that of other layers."""
    has_copies = has_copies or rule.cut not in WEIGHT_CUTS
    words = STRATEGY_WORDS if rule.strategy is None and has_copies else (rule.strategy or "replicate",)
    return tuple(Held(word, rule.over or "world", rule.cut, rule.passes or PASSES[0]) for word in words)


def _rule(way: Held, names: Sequence[str], others: Sequence[str]) -> LayerSharding:
    """The rule that holds some layers in a way: by patterns where these match none of some others."""
    match: list[str] = []
    for name in names:
        for pattern in (re.sub(r"\d+", "*", name), name, glob.escape(name)):
            if not any(map(LayerSharding(match=(pattern,), strategy="fsdp").matches, others)):
                match.append(pattern)
                break
    over = way.over if way.cut is None and way.strategy != "replicate" else None
    passes = None if way.passes == PASSES[0] else way.passes
    matched = tuple(dict.fromkeys(match))
    return LayerSharding(match=matched, cut=way.cut, passes=passes, strategy=way.strategy, over=over)
