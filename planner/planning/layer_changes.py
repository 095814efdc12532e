"""Layers of a dense part that change their strategies, some at once, while it makes something less."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from cost_models.workload.dense_sharding import DenseSharding, Held
from cost_models.workload.layer_graph import SizedLayer
from planner.formulation.layer_options import LayerOptions

GAIN = 1e-4
"""Share that a change must save."""
MOST_TRIED = 60
"""Strategies of all layers that are costed in one descent."""
LEAST_SHARE = 1e-3
"""Of the weights, or of the multiply-accumulates, of the dense part that layers have which are tried."""

Choice = Mapping[str, Held]


class Costed:
    """What is to become less: of each strategies of all layers, once; and how little it is at least."""

    def __init__(
        self, cost: Callable[[DenseSharding], float], least: Callable[[Choice], float] = lambda _: 0.0
    ) -> None:
        self._cost, self.least = cost, least
        self._known: dict[str, float] = {}

    def of(self, sharding: DenseSharding) -> float:
        """Return it; infinite for strategies that are not to be had."""
        if sharding.words not in self._known:
            self._known[sharding.words] = self._cost(sharding)
        return self._known[sharding.words]

    @property
    def tried(self) -> int:
        """How many were costed."""
        return len(self._known)


def improved(held: Choice, options: LayerOptions, layers: Sequence[SizedLayer], costed: Costed) -> Choice:
    """Change layers that are alike together, one kind or two that follow each other, those first of which least is
    proven, until none saves anything."""
    best, most = costed.of(options.sharding(held, layers)), costed.tried + MOST_TRIED
    is_better = True
    while is_better:
        is_better = False
        changed = ({**held, **change} for change in _changes(held, options, layers))
        proven = [(costed.least(each), each) for each in changed]
        for least, tried in sorted(proven, key=lambda each: each[0]):
            if costed.tried >= most or least >= best * (1 - GAIN):
                break
            found = costed.of(options.sharding(tried, layers))
            if found < best * (1 - GAIN):
                held, best, is_better = tried, found, True
                break
    return held


def _changes(held: Choice, options: LayerOptions, layers: Sequence[SizedLayer]) -> Iterator[dict[str, Held]]:
    """Other ways of layers that are alike; cuts of some that follow each other; other ways of single layers."""
    groups = _alike(held, options, layers)
    group_of = {layer.name: group for group in groups for layer in group}
    for group in groups:
        yield from ({layer.name: way for layer in group} for way in options.ways[group[0].name])
    for group in groups:
        before = group_of.get(group[0].inputs[0]) if len(group[0].inputs) == 1 else None
        if before is not None:
            yield from _cut_pairs(before, group, options)
    for layer in itertools.chain.from_iterable(group for group in groups if len(group) > 1):
        yield from ({layer.name: way} for way in options.ways[layer.name])


def _cut_pairs(
    before: Sequence[SizedLayer], group: Sequence[SizedLayer], options: LayerOptions
) -> Iterator[dict[str, Held]]:
    """Some layers, and those that read them, of which some are cut: columns and then rows, as in Megatron-LM, or
    any other cuts."""
    for first, second in itertools.product(options.ways[before[0].name], options.ways[group[0].name]):
        if (first.cut or second.cut) and (first.strategy, first.over) == (second.strategy, second.over):
            yield {layer.name: first for layer in before} | {layer.name: second for layer in group}


def _alike(held: Choice, options: LayerOptions, layers: Sequence[SizedLayer]) -> list[list[SizedLayer]]:
    """Layers with a choice that are as large as each other and held in the same way; small ones aside."""
    alike: dict[tuple[object, ...], list[SizedLayer]] = {}
    for layer in layers:
        if layer.parameters and len(options.ways[layer.name]) > 1:
            alike.setdefault((layer.kind, layer.parameters, layer.products, held[layer.name]), []).append(layer)
    parameters, macs = sum(layer.parameters for layer in layers), sum(layer.macs for layer in layers)
    return [
        group
        for group in alike.values()
        if sum(layer.parameters for layer in group) > LEAST_SHARE * parameters
        or sum(layer.macs for layer in group) > LEAST_SHARE * macs
    ]
