"""The layers of a dense part as a file states them: their kinds, and what each kind takes."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from topologies.documents import Record
from topologies.errors import ConflictError
from topologies.flops import LATER

Width = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
LayerKind = Literal[
    "embeddings",
    "linear",
    "mlp",
    "cross",
    "dot",
    "compress",
    "fm",
    "wukong",
    "attention",
    "attention_tower",
    "norm",
    "pool",
    "add",
    "stack",
    "other",
]
NUMERICAL = "numerical"
"""As an input: the numerical features of a sample."""
HEADS = ("linear", "mlp", "other")
"""Kinds of layers that give the answer of a model, or of one of its tasks."""
KEYS: dict[LayerKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "embeddings": (("tables",), ()),
    "linear": (("out",), ("per", "bias")),
    "mlp": (("sizes",), ("per", "bias")),
    "cross": ((), ("rank", "count", "inner_bias")),
    "dot": ((), ()),
    "compress": (("vectors",), ()),
    "fm": (("vectors", "rank", "sizes"), ()),
    "wukong": (("vectors", "compressed", "rank", "sizes"), ("count",)),
    "attention": (("heads", "head_dim"), ("kv_heads", "causal", "bias")),
    "attention_tower": (("heads", "head_dim", "sizes"), ("kv_heads", "causal", "count")),
    "norm": ((), ()),
    "pool": ((), ("stride",)),
    "add": ((), ()),
    "stack": ((), ()),
    "other": (("out",), ("vectors", "macs", "parameters")),
}
"""What each kind of layer needs, and what it may have beside; all have a name and inputs."""


def _as_list(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[Name, ...], BeforeValidator(_as_list)]


class Layer(Record):
    """One layer, or several that a shorthand stands for (mlp, wukong, attention_tower).

    What flows between layers has tokens of one width for each sample: the vectors of its features, the places of a
    history, or a single one.
    """

    kind: LayerKind
    """embeddings: vectors of tables. linear, mlp: dense layers with their activations. cross: cross layers of DCNv2
    (arXiv:2008.13535), low-rank or full. dot: dots of all pairs of vectors (DLRM, arXiv:1906.00091). compress, fm:
    linear compression of vectors, and factorization machine with an MLP; wukong: layers of both with a residual
    (arXiv:2403.02545). attention: with its projections; attention_tower: attention and an MLP, each with a residual and
    a norm, averaged over the history at the end. norm: layer norm. pool: averages over tokens, or over neighbouring
    numbers. add: the sum of the inputs. stack: the tokens of all inputs. other: what has no kind of its own, by its
    totals."""
    name: Name | None = None
    """What other layers call it. Unset: its kind, with a number where that is taken."""
    inputs: Names = ()
    """Names of layers, or numerical. Unset: the layer before; of embeddings none."""
    tables: Names = ()
    """Tables by name or pattern, whose vectors these are: one for each feature, or the places of a history."""
    out: Width | None = None
    """Output width of a linear layer, and of each vector that another gives."""
    sizes: tuple[Width, ...] = ()
    """Output widths of the layers of an mlp, and of the hidden ones in fm, wukong and attention_tower."""
    per: Literal["sample", "token"] = "sample"
    """Whether a linear layer reads all tokens of a sample as one vector, or each by itself."""
    bias: bool = True
    """Whether linear layers, projections included, add one."""
    inner_bias: Annotated[bool, Field(exclude_if=lambda value: value)] = True
    """Whether the inner product of a cross layer has a bias, too. TorchRec's LowRankCrossNet has none."""
    vectors: Width | None = None
    """Vectors that compress or fm gives, the fm part of each wukong layer, and other (unset: one)."""
    macs: Annotated[Annotated[float, Field(ge=0)] | None, LATER] = None
    """Forward multiply-accumulates of a sample in what has no kind of its own. Unset: none."""
    parameters: Annotated[Annotated[int, Field(ge=0)] | None, LATER] = None
    """Trained numbers of what has no kind of its own. Unset: none."""
    compressed: Width | None = None
    """Vectors that the linear part of each wukong layer gives."""
    rank: Width | None = None
    """Columns of a cross layer's inner product, or to which fm projects the vectors. Unset: cross layers are full, one
    square product each."""
    count: Width = 1
    """Layers in a row."""
    heads: Width | None = None
    """Query heads of an attention."""
    kv_heads: Width | None = None
    """Heads of keys and values, which several query heads share. Unset: as many as heads."""
    head_dim: Width | None = None
    """Numbers of a head."""
    causal: bool = False
    """Whether a place of a history sees only those before, which halves the products."""
    stride: Width | None = None
    """Neighbouring numbers of the first input that pool averages; other inputs join as they are. Unset: it averages
    over tokens."""

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> Self:
        needed, optional = KEYS[self.kind]
        given = self.model_fields_set - {"kind", "name", "inputs"}
        if unfit := sorted(given - {*needed, *optional}):
            raise ConflictError(f"is not of a layer {self.kind}; leave it out", unfit[0], "kind")
        if missing := [key for key in needed if getattr(self, key) in (None, ())]:
            raise ConflictError(f"a layer {self.kind} needs {' and '.join(missing)}", "kind", *missing)
        if self.kind == "cross" and self.rank is None and not self.inner_bias:
            message = "is of the inner product of low-rank cross layers; give rank, or leave it out"
            raise ConflictError(message, "inner_bias")
        if self.kind == "embeddings" and self.inputs:
            raise ConflictError("embeddings read tables, and no layers; leave inputs out", "inputs", "kind")
        if self.heads and self.kv_heads and self.heads % self.kv_heads:
            message = f"{self.kv_heads} do not divide the {self.heads} heads"
            raise ConflictError(message, "kv_heads", "heads")
        return self


def named(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The layers with the names and inputs that they leave unset. Raises ConflictError for a name that stands twice or
    is one of the kinds' own words."""
    taken: dict[str, int] = {NUMERICAL: -1}
    for index, layer in enumerate(layers):
        if layer.name is None:
            continue
        if layer.name in taken:
            other = "the numerical features" if taken[layer.name] < 0 else f"layer {taken[layer.name]}"
            raise ConflictError(f"{layer.name!r} is the name of {other}, too; give another", f"{index}.name")
        taken[layer.name] = index
    complete: list[Layer] = []
    for index, layer in enumerate(layers):
        name = layer.name or _free_name(layer.kind, taken)
        taken.setdefault(name, index)
        inputs = layer.inputs
        if not inputs and layer.kind != "embeddings":
            if not complete:
                raise ConflictError(f"the first layer needs inputs: a layer's name, or {NUMERICAL}", f"{index}.inputs")
            inputs = (str(complete[-1].name),)
        complete.append(layer.model_copy(update={"name": name, "inputs": inputs}))
    return tuple(complete)


def _free_name(kind: str, taken: dict[str, int]) -> str:
    number, name = 1, kind
    while name in taken:
        number += 1
        name = f"{kind}-{number}"
    return name


def expect_heads(layers: tuple[Layer, ...]) -> None:
    """Raise ConflictError for a layer whose output nobody reads, unless it can be the head of a task."""
    read = {name for layer in layers for name in layer.inputs}
    for index, layer in enumerate(layers):
        if layer.name not in read and layer.kind not in HEADS and layer is not layers[-1]:
            raise ConflictError(f"no layer reads {layer.name}; a model ends in {' or '.join(HEADS)}", f"{index}.name")


def within(error: ConflictError, outer: str) -> ConflictError:
    """The same error, its fields inside those of an outer record."""
    return ConflictError(str(error), *(".".join([outer, *map(str, path)]) for path in error.fields or [()]))
