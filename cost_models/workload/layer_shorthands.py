"""The simpler layers that shorthands of a file stand for: mlp, wukong, attention_tower."""

from collections.abc import Callable, Iterator, Sequence

from cost_models.workload.layer_kinds import Shape, fixed_tokens, tokens_of
from cost_models.workload.layers import Layer
from topologies.errors import ConflictError


def _linears(layer: Layer, _: Sequence[Shape]) -> Iterator[Layer]:
    """An MLP: linear layers, the last of which has the name of the whole; tokens stay where each is read by itself."""
    inputs = layer.inputs
    for number, width in enumerate(layer.sizes):
        name = str(layer.name) if number == len(layer.sizes) - 1 else f"{layer.name}.{number}"
        yield Layer(kind="linear", name=name, inputs=inputs, out=width, per=layer.per, bias=layer.bias)
        inputs = (name,)


def _wukong(layer: Layer, inputs: Sequence[Shape]) -> Iterator[Layer]:
    """Wukong layers as TorchEasyRec's WuKongLayer has them: both blocks, a residual that is projected where the number
    of vectors changes, a norm (arXiv:2403.02545)."""
    read, count = layer.inputs, round(fixed_tokens(inputs).tokens)
    vectors, compressed = layer.vectors or 0, layer.compressed or 0
    if len(read) > 1:
        yield Layer(kind="stack", name=f"{layer.name}.inputs", inputs=read)
        read = (f"{layer.name}.inputs",)
    for number in range(layer.count):
        name = str(layer.name) if number == layer.count - 1 else f"{layer.name}.{number}"
        yield Layer(kind="fm", name=f"{name}.fm", inputs=read, vectors=vectors, rank=layer.rank, sizes=layer.sizes)
        yield Layer(kind="compress", name=f"{name}.compress", inputs=read, vectors=compressed)
        yield Layer(kind="stack", name=f"{name}.stack", inputs=(f"{name}.fm", f"{name}.compress"))
        residual = read[0]
        if count != vectors + compressed:
            residual, count = f"{name}.residual", vectors + compressed
            yield Layer(kind="compress", name=residual, inputs=read, vectors=count)
        yield Layer(kind="add", name=f"{name}.add", inputs=(f"{name}.stack", residual))
        yield Layer(kind="norm", name=name, inputs=(f"{name}.add",))
        read = (name,)


def _attention_tower(layer: Layer, inputs: Sequence[Shape]) -> Iterator[Layer]:
    """Self-attention and an MLP per place, each with a residual and a norm, then the mean over the places."""
    read, width = layer.inputs, tokens_of(inputs).width
    if len(read) > 1:
        raise ConflictError("reads one history; give one input", "inputs")
    for number in range(layer.count):
        name = f"{layer.name}.{number}"
        yield Layer(
            kind="attention",
            name=f"{name}.attention",
            inputs=read,
            heads=layer.heads,
            head_dim=layer.head_dim,
            **({"kv_heads": layer.kv_heads} if layer.kv_heads else {}),
            causal=layer.causal,
        )
        yield Layer(kind="add", name=f"{name}.attention-add", inputs=(*read, f"{name}.attention"))
        yield Layer(kind="norm", name=f"{name}.attention-norm", inputs=(f"{name}.attention-add",))
        normed = (f"{name}.attention-norm",)
        mlp = Layer(kind="mlp", name=f"{name}.mlp", inputs=normed, sizes=(*layer.sizes, width), per="token")
        yield mlp
        yield Layer(kind="add", name=f"{name}.add", inputs=(*normed, f"{name}.mlp"))
        yield Layer(kind="norm", name=name, inputs=(f"{name}.add",))
        read = (name,)
    yield Layer(kind="pool", name=str(layer.name), inputs=read)


SHORTHANDS: dict[str, Callable[[Layer, Sequence[Shape]], Iterator[Layer]]] = {
    "mlp": _linears,
    "wukong": _wukong,
    "attention_tower": _attention_tower,
}
"""The simpler layers that each shorthand stands for, given the shapes of its inputs."""

REPEATED = ("wukong", "attention_tower")
"""Shorthands whose layers follow each other `count` times."""


def block_of(stated: Layer, name: str) -> str:
    """The name of the block that a simple layer of a stated one is in: of what is repeated each repetition by itself,
    of anything else the whole."""
    place = name.removeprefix(f"{stated.name}.").partition(".")[0]
    return f"{stated.name}.{place}" if stated.kind in REPEATED and place.isdigit() else str(stated.name)
