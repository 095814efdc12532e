"""Layers that several functions of a forward pass are together: attention with its projections, cross layers, Wukong's
factorization machines. Each takes the place of the others where its own formulas give their sums."""

from collections.abc import Mapping, Sequence
from typing import Any

from cost_models.workload.layers import Layer
from planner.integrations.torch_layers import Core, Layers, Work, read_by, shared_name
from planner.integrations.torch_values import Value


def join_attention(found: Layers) -> None:
    """Attention instead of products within samples and the projections around them, where these are found."""
    for name, core in list(found.cores.items()):
        if name in found.layers:
            _join_one(found, name, core)


def _join_one(found: Layers, name: str, core: Core) -> None:
    layers, readers = found.layers, read_by(found.layers)
    output = _only_reader(found, readers, name)
    projections = list(dict.fromkeys((core.queries, core.keys, core.values)))
    if output is None or output.kind != "linear" or output.inputs != (name,):
        return
    if any(each not in layers or layers[each].kind != "linear" or readers[each] != [name] for each in projections):
        return
    sizes = _head_sizes(layers, core, projections)
    reads = [layers[each].inputs for each in projections]
    biases = {layers[each].bias for each in (*projections, str(output.name))}
    if sizes is None or any(len(each) != 1 for each in reads) or len({*reads[1:]}) > 1 or len(biases) > 1:
        return
    inputs = reads[0] if reads[0] == reads[-1] else (*reads[0], *reads[-1])
    members = [*projections, name, str(output.name)]
    before, keys = dict(layers), {**sizes, **({} if biases == {True} else {"bias": False})}
    causal = core.causal and len(inputs) == 1
    joined = found.put_attention(_sum(found, members), inputs, causal=causal, **keys)
    if joined:
        _take_place(found, before, members, joined)


def join_machines(found: Layers) -> None:
    """Factorization machines: vectors times their compression, a norm, linear layers to as many numbers as some
    vectors have."""
    for name, layer in list(found.layers.items()):
        if layer.kind == "other" and layer.macs and len(layer.inputs) > 1 and layer.inputs[-1] in found.layers:
            _join_machine(found, name, layer)


def _join_machine(found: Layers, name: str, product: Layer) -> None:
    readers, compress = read_by(found.layers), found.layers[product.inputs[-1]]
    is_machine = compress.kind == "compress" and product.inputs[:-1] == compress.inputs
    if not is_machine or readers[str(compress.name)] != [name]:
        return
    members = [str(compress.name), name]
    following = _only_reader(found, readers, name)
    while following is not None and following.inputs == (members[-1],):
        own = found.layers[members[-1]].kind
        fits = {"other": ("other", "norm"), "norm": ("linear",), "linear": ("linear",)}[own]
        if following.kind not in fits or (following.kind == "other" and (following.macs or following.parameters)):
            break
        members.append(str(following.name))
        following = _only_reader(found, readers, members[-1])
    outs = [found.layers[each].out or 0 for each in members if found.layers[each].kind == "linear"]
    width = found.shape(str(compress.name)).width
    if len(outs) < 2 or outs[-1] % width:
        return
    before = dict(found.layers)
    sizes: dict[str, Any] = {"rank": compress.vectors, "vectors": outs[-1] // width, "sizes": outs[:-1]}
    if joined := found.put_if_equal(_sum(found, members), "fm", compress.inputs, **sizes):
        _take_place(found, before, members, joined)


def join_cross(found: Layers, first: Value, product: Value, last: Value) -> str:
    """A cross layer of DCNv2: the first input times what two linear layers make of the last one, added to that. The
    name of the layer, empty where it is none."""
    readers = read_by(found.layers)
    outer = found.layers.get(product.layers[0]) if len(product.layers) == 1 else None
    inner = found.layers.get(outer.inputs[0]) if outer is not None and len(outer.inputs) == 1 else None
    if outer is None or inner is None or not (outer.kind == inner.kind == "linear") or not outer.bias:
        return ""
    if str(outer.name) in readers or readers[str(inner.name)] != [outer.name] or inner.inputs != last.layers:
        return ""
    members, inputs, count = [str(inner.name), str(outer.name)], inner.inputs, 1
    before = found.layers.get(inner.inputs[0])
    if first.layers != last.layers:
        kept = before is not None and before.kind == "cross" and readers[str(before.name)] == [inner.name]
        if before is None or not kept or before.inputs != first.layers:
            return ""
        if (before.rank, before.inner_bias) != (inner.out, inner.bias):
            return ""
        members, inputs, count = [str(before.name), *members], before.inputs, before.count + 1
    sizes: dict[str, Any] = {"rank": inner.out, **({"count": count} if count > 1 else {})}
    if not inner.bias:
        sizes["inner_bias"] = False
    name = found.put_if_equal(_sum(found, members), "cross", inputs, **sizes)
    if not name:
        return ""
    found.drop(*members)
    return found.renamed(name, shared_name([str(inner.name), str(outer.name)]) or name)


def _only_reader(found: Layers, readers: Mapping[str, Sequence[str]], name: str) -> Layer | None:
    return found.layers[readers[name][0]] if len(readers.get(name, ())) == 1 else None


def _sum(found: Layers, members: Sequence[str]) -> Work:
    """What some layers do together; by the path that they share."""
    macs = sum(product.macs for each in members for product in found.sizes[each].products)
    skipped = sum(found.skipped_macs.get(each, 0.0) for each in members)
    parameters = sum(_parameters(found, each) for each in members)
    place = shared_name(members) or members[-1]
    return Work(place, "", macs + skipped, parameters, found.shape(members[-1]).numbers, 0)


def _take_place(found: Layers, before: Mapping[str, Layer], members: Sequence[str], joined: str) -> None:
    """The joined layer stands where the last of its members stood, which others read by its name."""
    layer, last = found.layers[joined], members[-1]
    order = [joined if each == last else each for each in before if each not in members[:-1]]
    found.drop(*members)
    kept = {each: found.layers[each] if each != joined else layer for each in order}
    found.layers.clear()
    for each, own in kept.items():
        inputs = tuple(joined if read == last else read for read in own.inputs)
        found.layers[each] = own.model_copy(update={"inputs": inputs}) if inputs != own.inputs else own


def _parameters(found: Layers, name: str) -> int:
    sizes = found.sizes[name]
    return sum(each.weights for each in sizes.products) + sum(sizes.vectors)


def _head_sizes(layers: Mapping[str, Layer], core: Core, projections: Sequence[str]) -> dict[str, int] | None:
    """Heads of queries, and of keys and values, from the widths of the projections."""
    outs = [layers[each].out or 0 for each in projections]
    if len(projections) == 3:
        wide, narrow, other = outs
        if narrow != other:
            return None
    elif len(projections) == 2 and core.keys == core.values:
        wide, narrow = outs[0], outs[1] // 2
    elif len(projections) == 1:
        wide = core.heads * core.head_dim or outs[0] // 3
        narrow = (outs[0] - wide) // 2
    else:
        return None
    if not core.head_dim or wide % core.head_dim or narrow % core.head_dim or not narrow:
        return None
    heads, kv_heads = wide // core.head_dim, narrow // core.head_dim
    return {"heads": heads, "head_dim": core.head_dim, **({} if heads == kv_heads else {"kv_heads": kv_heads})}
