"""The graph of layers as a workload file states it, of what a forward pass was seen to do: projections joined to their
attention, linear layers to MLPs, tables that the same layers read to one layer."""

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.workload.layer_kinds import Shape
from cost_models.workload.layers import HEADS, NUMERICAL, Layer
from planner.integrations.torch_layers import Form, Layers, read_by, renamed, shared_name, whole_numbers
from planner.integrations.torch_patterns import join_attention, join_machines


@dataclass(frozen=True)
class TableSource:
    """The vectors of one table."""

    name: str
    """What layers call them while they are read."""
    table: str
    module: str
    """The path of its collection."""
    shape: Shape
    is_pooled: bool


@dataclass(frozen=True)
class LayerGraph:
    """Layers as a file states them, and what is to be said of them."""

    layers: tuple[dict[str, Any], ...]
    numerical_features: int
    totals: tuple[str, ...]
    """Layers that have no kind of their own and do work, each with what it does."""
    between: tuple[str, ...]
    """Those that only bring numbers from one layer to the next."""
    causal: tuple[str, ...]
    """Layers of which half of the products count."""


def layer_graph(
    found: Layers,
    tables: Sequence[TableSource],
    inputs: Sequence[tuple[str, int]],
    unused: Mapping[str, int],
    unsampled_macs: float,
) -> LayerGraph:
    """The graph. `inputs` are numerical ones, with their numbers; `unused` the numbers of parameters by path that no
    layer has, and `unsampled_macs` those that belong to no sample."""
    groups = _groups(found, tables)
    join_attention(found)
    join_machines(found)
    _prune(found)
    numerical = _join_inputs(found, inputs)
    read = read_by(found.layers)
    unread = [each["name"] for each in groups if each["name"] not in read]
    rest = _rest(unread, groups, numerical, unused, unsampled_macs, found)
    return LayerGraph(
        (*groups, *rest, *_with_mlps(_heads_last(found), {NUMERICAL, *found.sizes})),
        numerical,
        tuple(_totals(found, rest, unused)),
        tuple(name for name, layer in found.layers.items() if layer.kind == "other" and not _works(layer)),
        tuple(found.skipped_macs),
    )


def _works(layer: Layer) -> bool:
    return bool(layer.macs or layer.parameters)


def _totals(found: Layers, rest: Sequence[Mapping[str, Any]], unused: Mapping[str, int]) -> Iterator[str]:
    for name, layer in found.layers.items():
        if layer.kind == "other" and _works(layer):
            yield f"{name} ({found.made_of[name]})"
    for each in rest:
        shown = ", ".join([*unused][:5]) + f" and {len(unused) - 5:,} more" * (len(unused) > 5)
        yield f"{each['name']} (what no layer reads or has: {shown or 'vectors or numbers'})"


def _prune(found: Layers) -> None:
    """Forget what nobody reads and does no work."""
    while True:
        readers = read_by(found.layers)
        dead = [
            name
            for name, layer in found.layers.items()
            if name not in readers
            and layer.kind in ("other", "add", "pool", "stack")
            and not _works(layer)
            and len(found.layers) > 1
        ]
        if not dead:
            return
        found.drop(*dead)


def _join_inputs(found: Layers, inputs: Sequence[tuple[str, int]]) -> int:
    """Numerical features: one input has that name, each of several is selected from all. How many are read."""
    readers = read_by(found.layers)
    read = [(name, numbers) for name, numbers in inputs if name in readers]
    used = read or list(inputs[:1])
    if len(used) == 1:
        names = {used[0][0]: NUMERICAL}
    else:
        before = dict(found.layers)
        found.layers.clear()
        found.give_source(NUMERICAL, Shape(1, sum(numbers for _, numbers in used)))
        words = "selects numbers"
        names = {name: found.put_other("inputs", words, (NUMERICAL,), Form(1, numbers)) for name, numbers in used}
        found.layers |= before
    for name, layer in list(found.layers.items()):
        if layer.inputs != (NUMERICAL,) or len(used) == 1:
            found.layers[name] = renamed(layer, names)
    return sum(numbers for _, numbers in used)


def _groups(found: Layers, tables: Sequence[TableSource]) -> list[dict[str, Any]]:
    """Layers of tables, those of one collection and width together that the same layers read, which read the group."""
    readers = read_by(found.layers)
    groups: dict[tuple[object, ...], list[TableSource]] = {}
    for source in tables:
        alone = () if source.is_pooled else (source.name,)
        key = (source.module, source.shape.width, *sorted(readers.get(source.name, ())), *alone)
        groups.setdefault(key, []).append(source)
    stated: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for own in groups.values():
        first, several = own[0], sum(each[0].module == own[0].module for each in groups.values()) > 1
        which = f".{first.table if len(own) == 1 else first.shape.width}" if several else ""
        name = found.free_name((first.module or "embeddings") + which)
        found.give_source(name, Shape(sum(each.shape.tokens for each in own), first.shape.width))
        patterns = [glob.escape(each.table) for each in own]
        stated.append({"kind": "embeddings", "name": name, "tables": patterns if len(patterns) > 1 else patterns[0]})
        names |= {each.name: name for each in own}
    for name, layer in list(found.layers.items()):
        found.layers[name] = layer = renamed(layer, names)
        if layer.kind == "stack" and len(layer.inputs) == 1:
            names[name] = layer.inputs[0]
            found.drop(name)
    return stated


def _heads_last(found: Layers) -> list[Layer]:
    """Layers in order; what nobody reads and is no head stands last, where a file may have one."""
    readers = read_by(found.layers)
    tails = [name for name, layer in found.layers.items() if name not in readers and layer.kind not in HEADS]
    return [layer for name, layer in found.layers.items() if name not in tails] + [found.layers[name] for name in tails]


def _rest(
    unread: Sequence[str],
    groups: Sequence[Mapping[str, Any]],
    numerical: int,
    unused: Mapping[str, int],
    unsampled_macs: float,
    found: Layers,
) -> list[dict[str, Any]]:
    """A layer for what the forward pass does not use, and no other layer has."""
    ignored = [NUMERICAL] if numerical and not any(NUMERICAL in each.inputs for each in found.layers.values()) else []
    inputs = [*ignored, *unread] or [groups[0]["name"]]
    parameters = sum(unused.values())
    if not (parameters or unsampled_macs or ignored or unread):
        return []
    totals = {"macs": unsampled_macs, "parameters": parameters}
    name = found.free_name("unused")
    return [{"kind": "other", "name": name, "inputs": inputs, "out": 1, **{k: v for k, v in totals.items() if v}}]


def _with_mlps(layers: Sequence[Layer], taken: set[str]) -> Iterator[dict[str, Any]]:
    """Layers as a file states them; linear layers that read each other alone are an MLP, by what their names share
    where no other layer has it."""
    readers = read_by({str(layer.name): layer for layer in layers})
    runs: list[list[Layer]] = []
    for layer in layers:
        if runs and _continues(runs[-1][-1], layer, readers):
            runs[-1].append(layer)
        else:
            runs.append([layer])
    names = {str(run[-1].name): shared_name([str(layer.name) for layer in run]) for run in runs if len(run) > 1}
    shared = list(names.values())
    names = {last: own for last, own in names.items() if own and own not in taken and shared.count(own) == 1}
    for run in runs:
        yield _stated([renamed(layer, names) for layer in run], names)


def _continues(last: Layer, layer: Layer, readers: Mapping[str, Sequence[str]]) -> bool:
    """Whether a linear layer is the next one of an MLP."""
    is_chain = layer.inputs == (last.name,) and readers[str(last.name)] == [layer.name]
    return is_chain and last.kind == layer.kind == "linear" and (last.per, last.bias) == (layer.per, layer.bias)


def _stated(run: Sequence[Layer], names: Mapping[str, str]) -> dict[str, Any]:
    last = whole_numbers(run[-1])
    if len(run) == 1:
        return last
    name = names.get(last["name"], last["name"])
    keys: dict[str, Any] = {key: last[key] for key in ("per", "bias") if key in last}
    return {"kind": "mlp", "name": name, "inputs": [*run[0].inputs], "sizes": [each.out for each in run], **keys}
