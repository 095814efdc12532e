"""The graph of a dense part's layers with its shapes: what flows, and the matrix products, weights and numbers of each.

Layers are in the order of the forward pass. A shorthand is there as the simple layers that it stands for.
"""

import fnmatch
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cost_models.workload.layers import NUMERICAL, Layer, named, within
from topologies.errors import ConflictError

if TYPE_CHECKING:
    from cost_models.workload.models import TableProfile


@dataclass(frozen=True)
class Shape:
    """What flows from one layer to another for one sample: tokens of one width."""

    tokens: float
    width: int
    squared_tokens: float | None = None
    """The mean of their squared number, where it varies from sample to sample. Unset: it does not."""

    @property
    def numbers(self) -> float:
        """Numbers of a sample, on the mean."""
        return self.tokens * self.width

    @property
    def has_fixed_length(self) -> bool:
        """Whether all samples have the same whole number of tokens."""
        return self.squared_tokens is None and float(self.tokens).is_integer()


@dataclass(frozen=True)
class Product:
    """A matrix product of a sample's forward pass: `rows` x `inner` by `inner` x `columns`, on the mean."""

    rows: float
    inner: float
    columns: float
    has_weights: bool = True
    """Whether the second matrix is weights; False where both come from the sample."""

    @property
    def macs(self) -> float:
        """Multiply-accumulates."""
        return self.rows * self.inner * self.columns

    @property
    def weights(self) -> int:
        """Weights of the second matrix."""
        return round(self.inner * self.columns) if self.has_weights else 0


@dataclass(frozen=True)
class SizedLayer:
    """A simple layer with its sizes for one sample's forward pass."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    output: Shape
    products: tuple[Product, ...] = ()
    other_parameters: int = 0
    """Biases, scales and shifts."""
    activation_elements: float = 0
    """Numbers that it reads and writes."""
    needs_vectors: bool = False
    """Whether it reads vectors of tables, itself or through others."""

    @property
    def parameters(self) -> int:
        """Trained numbers."""
        return sum(product.weights for product in self.products) + self.other_parameters

    @property
    def macs(self) -> float:
        """Forward multiply-accumulates."""
        return sum(product.macs for product in self.products)


@dataclass(frozen=True)
class _Sizes:
    """What a kind of layer makes of its inputs."""

    output: Shape
    products: tuple[Product, ...] = ()
    other_parameters: int = 0
    activation_elements: float = 0


def sized_layers(
    layers: Sequence[Layer], numerical: int, tables: "Sequence[TableProfile]", vectors: Shape | None = None
) -> tuple[SizedLayer, ...]:
    """The graph of some layers in the order of the forward pass.

    `vectors` are those of all tables together, where they reach the dense part in another shape than the tables' own.
    Raises ConflictError, its fields relative to the layers, for inputs that do not exist or do not fit, for a cycle,
    and for tables or numerical features that no layer reads.
    """
    builder, complete = _Builder(numerical, tables, vectors), named(tuple(layers))
    for index in _forward_order(complete):
        builder.put(index, complete[index])
    builder.expect_all_read()
    return tuple(builder.done)


def _forward_order(layers: Sequence[Layer]) -> list[int]:
    """Indices of layers, inputs first; as they stand where nothing forbids it."""
    index_of = {str(layer.name): index for index, layer in enumerate(layers)}
    edges: list[tuple[int, int]] = []
    for index, layer in enumerate(layers):
        for place, name in enumerate(layer.inputs):
            if name == NUMERICAL:
                continue
            if name not in index_of:
                known = ", ".join([NUMERICAL, *(each for each in index_of if each != layer.name)])
                raise ConflictError(f"there is no layer {name!r}; known here: {known}", f"{index}.inputs.{place}")
            edges.append((index_of[name], index))
    if all(before < after for before, after in edges):
        return list(range(len(layers)))
    return _sorted(layers, edges)


def _sorted(layers: Sequence[Layer], edges: Sequence[tuple[int, int]]) -> list[int]:
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(layers)))
    graph.add_edges_from(edges)
    try:
        return list(nx.lexicographical_topological_sort(graph))
    except nx.NetworkXUnfeasible:
        cycle = [start for start, _ in nx.find_cycle(graph)]
        words = " -> ".join(str(layers[index].name) for index in [*cycle, cycle[0]])
        raise ConflictError(f"layers read each other in a circle: {words}", f"{cycle[0]}.inputs") from None


@dataclass
class _Builder:
    """Puts layer after layer, and knows what is there."""

    numerical: int
    tables: "Sequence[TableProfile]"
    vectors: Shape | None
    done: list[SizedLayer] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    """Names of tables whose vectors some layer has; `numerical`."""

    def put(self, index: int, layer: Layer) -> None:
        """Add a layer of the file, or those that it stands for."""
        try:
            if layer.kind == "embeddings":
                output = self._vectors_of(layer)
                self.done.append(SizedLayer(str(layer.name), layer.kind, (), output, needs_vectors=True))
            else:
                self._put(layer)
        except ConflictError as error:
            raise within(error, str(index)) from None

    def _put(self, layer: Layer) -> None:
        if layer.kind in SHORTHANDS:
            for simple in SHORTHANDS[layer.kind](layer, [self._shape(name) for name in layer.inputs]):
                self._put(simple)
            return
        sizes = KINDS[layer.kind](layer, [self._shape(name) for name in layer.inputs])
        self.read |= {NUMERICAL} & set(layer.inputs)
        self.done.append(
            SizedLayer(
                str(layer.name),
                layer.kind,
                layer.inputs,
                sizes.output,
                sizes.products,
                sizes.other_parameters,
                sizes.activation_elements,
                needs_vectors=any(each.needs_vectors for each in self.done if each.name in layer.inputs),
            )
        )

    def _shape(self, name: str) -> Shape:
        if name == NUMERICAL:
            if not self.numerical:
                raise ConflictError("needs numerical_features, how many there are", "inputs")
            return Shape(1, self.numerical)
        return next(each.output for each in self.done if each.name == name)

    def _vectors_of(self, layer: Layer) -> Shape:
        found = [table for table in self.tables if any(fnmatch.fnmatchcase(table.name, name) for name in layer.tables)]
        for place, pattern in enumerate(layer.tables):
            if not any(fnmatch.fnmatchcase(table.name, pattern) for table in self.tables):
                raise ConflictError(f"no table is called {pattern!r}", f"tables.{place}")
        self.read |= {table.name for table in found}
        if self.vectors is not None:
            if len(found) < len(self.tables):
                raise ConflictError("modules of towers join vectors of tables: read all with tables: '*'", "tables")
            return self.vectors
        pooled = {table.pooled for table in found}
        if len(pooled) > 1:
            raise ConflictError("are bags and sequences; read these with layers of their own", "tables")
        return _bags(found) if pooled == {True} else _history(found)

    def expect_all_read(self) -> None:
        """Raise ConflictError for what the workload has and no layer reads."""
        unread = [table.name for table in self.tables if table.name not in self.read]
        if unread:
            more = f" and {len(unread) - 5:,} more" if len(unread) > 5 else ""
            message = f"no layer reads the vectors of {', '.join(unread[:5])}{more}; name them in a layer embeddings"
            raise ConflictError(message)
        if self.numerical and NUMERICAL not in self.read:
            raise ConflictError(f"no layer reads the numerical features; give one the input {NUMERICAL}")


def _bags(tables: "Sequence[TableProfile]") -> Shape:
    """Pooled vectors: tokens where they have one width, else one vector of all."""
    count = sum(table.feature_count for table in tables)
    widths = {table.dim for table in tables}
    if len(widths) == 1:
        return Shape(count, widths.pop())
    return Shape(1, sum(table.feature_count * table.dim for table in tables))


def _history(tables: "Sequence[TableProfile]") -> Shape:
    """Places of a history, each with the vectors that all tables have for it."""
    lengths = {table.pooling_factor / table.feature_count for table in tables}
    spreads = {table.pooling_std / table.feature_count for table in tables}
    if len(lengths) > 1 or len(spreads) > 1:
        shown = ", ".join(f"{table.name} {table.pooling_factor / table.feature_count:g}" for table in tables[:5])
        raise ConflictError(f"have histories of several lengths ({shown}); read each with a layer of its own", "tables")
    mean, spread = lengths.pop(), spreads.pop()
    squared = mean**2 + spread**2 if spread or not mean.is_integer() else None
    return Shape(mean, sum(table.feature_count * table.dim for table in tables), squared)


def _one_vector(inputs: Sequence[Shape]) -> Shape:
    """Everything of the inputs as one vector of a sample."""
    if not all(shape.has_fixed_length for shape in inputs):
        raise ConflictError("has as many tokens as a sample's history; pool it first, or work per token", "inputs")
    return Shape(1, round(sum(shape.numbers for shape in inputs)))


def _tokens(inputs: Sequence[Shape]) -> Shape:
    """The tokens of all inputs, of one width."""
    widths = {shape.width for shape in inputs}
    if len(widths) > 1:
        raise ConflictError(
            f"have tokens of {', '.join(map(str, sorted(widths)))} numbers; give them one width", "inputs"
        )
    if len(inputs) == 1:
        return inputs[0]
    if not all(shape.has_fixed_length for shape in inputs):
        raise ConflictError("has as many tokens as a sample's history; pool it before it joins others", "inputs")
    return Shape(sum(shape.tokens for shape in inputs), widths.pop())


def _fixed_tokens(inputs: Sequence[Shape]) -> Shape:
    shape = _tokens(inputs)
    if not shape.has_fixed_length:
        raise ConflictError("has as many tokens as a sample's history; pool it first", "inputs")
    return shape


def _linear(layer: Layer, inputs: Sequence[Shape]) -> _Sizes:
    read = _tokens(inputs) if layer.per == "token" else _one_vector(inputs)
    output = Shape(read.tokens, layer.out or 0, read.squared_tokens)
    product = Product(read.tokens, read.width, output.width)
    return _Sizes(output, (product,), output.width * layer.bias, read.numbers + output.numbers)


def _cross(layer: Layer, inputs: Sequence[Shape]) -> _Sizes:
    """Each: two products with biases, and one by the first layer's input, number by number."""
    read, rank = _one_vector(inputs), layer.rank or 0
    products = (Product(1, read.width, rank), Product(1, rank, read.width)) * layer.count
    return _Sizes(
        read,
        products,
        layer.count * (rank + read.width),
        layer.count * (2 * (read.width + rank) + 2 * read.width),
    )


def _dot(_: Layer, inputs: Sequence[Shape]) -> _Sizes:
    """All n x n pairs of the n vectors are multiplied; n(n-1)/2 are kept."""
    read = _fixed_tokens(inputs)
    count = round(read.tokens)
    product = Product(count, read.width, count, has_weights=False)
    return _Sizes(Shape(1, count * (count - 1) // 2), (product,), 0, read.numbers + count * count)


def _compress(layer: Layer, inputs: Sequence[Shape]) -> _Sizes:
    read = _fixed_tokens(inputs)
    output = Shape(layer.vectors or 0, read.width)
    product = Product(read.width, read.tokens, output.tokens)
    return _Sizes(output, (product,), 0, read.numbers + output.numbers)


def _fm(layer: Layer, inputs: Sequence[Shape]) -> _Sizes:
    """X (X^T Y) with a projection Y of the n vectors to k, a norm of the n k numbers, and an MLP to the vectors."""
    read, rank, vectors = _fixed_tokens(inputs), layer.rank or 0, layer.vectors or 0
    pairs = round(read.tokens) * rank
    widths = (pairs, *layer.sizes, vectors * read.width)
    mlp = [Product(1, i, o) for i, o in itertools.pairwise(widths)]
    products = (
        Product(read.width, read.tokens, rank),
        Product(read.tokens, read.width, rank, has_weights=False),
        *mlp,
    )
    projected = rank * read.width
    moved = 2 * read.numbers + 2 * projected + 3 * pairs + sum(p.inner + p.columns for p in mlp)
    return _Sizes(Shape(vectors, read.width), products, 2 * pairs + sum(widths[1:]), moved)


def _attention(layer: Layer, inputs: Sequence[Shape]) -> _Sizes:
    """Queries of the first input over keys and values of the second, or of the same; scores stay in the kernel
    (FlashAttention, arXiv:2205.14135)."""
    if len(inputs) > 2:
        raise ConflictError("takes one input, or queries and what they look at", "inputs")
    queries, seen = inputs[0], inputs[-1]
    heads, head_dim = layer.heads or 0, layer.head_dim or 0
    wide, narrow = heads * head_dim, (layer.kv_heads or heads) * head_dim
    itself = queries.squared_tokens or queries.tokens**2
    pairs = itself if len(inputs) == 1 else queries.tokens * seen.tokens
    share = 0.5 if layer.causal else 1.0
    looked_at = pairs / queries.tokens * share if queries.tokens else 0.0
    rows = heads * queries.tokens
    products = (
        Product(queries.tokens, queries.width, wide),
        Product(seen.tokens, seen.width, narrow),
        Product(seen.tokens, seen.width, narrow),
        Product(rows, head_dim, looked_at, has_weights=False),
        Product(rows, looked_at, head_dim, has_weights=False),
        Product(queries.tokens, wide, queries.width),
    )
    moved = queries.tokens * (2 * queries.width + 4 * wide) + seen.tokens * (2 * seen.width + 4 * narrow)
    biases = (wide + 2 * narrow + queries.width) * layer.bias
    return _Sizes(queries, products, biases, moved)


def _norm(_: Layer, inputs: Sequence[Shape]) -> _Sizes:
    read = _tokens(inputs)
    return _Sizes(read, (), 2 * read.width, 2 * read.numbers)


def _pool(layer: Layer, inputs: Sequence[Shape]) -> _Sizes:
    read = sum(shape.numbers for shape in inputs)
    if layer.stride is None:
        if len(inputs) > 1:
            raise ConflictError("averages over the tokens of one input; give one, or stride", "inputs")
        return _Sizes(Shape(1, inputs[0].width), (), 0, read)
    first, others = _one_vector(inputs[:1]), inputs[1:]
    width = -(-first.width // layer.stride) + (_one_vector(others).width if others else 0)
    return _Sizes(Shape(1, width), (), 0, read)


def _add(_: Layer, inputs: Sequence[Shape]) -> _Sizes:
    if len({(shape.tokens, shape.width) for shape in inputs}) > 1:
        shown = ", ".join(f"{shape.tokens:g} x {shape.width}" for shape in inputs)
        raise ConflictError(f"cannot be added: they have {shown} numbers", "inputs")
    return _Sizes(inputs[0], (), 0, (len(inputs) + 1) * inputs[0].numbers)


def _stack(_: Layer, inputs: Sequence[Shape]) -> _Sizes:
    return _Sizes(_tokens(inputs))


KINDS: dict[str, Callable[[Layer, Sequence[Shape]], _Sizes]] = {
    "linear": _linear,
    "cross": _cross,
    "dot": _dot,
    "compress": _compress,
    "fm": _fm,
    "attention": _attention,
    "norm": _norm,
    "pool": _pool,
    "add": _add,
    "stack": _stack,
}
"""What each simple kind makes of its inputs."""


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
    read, count = layer.inputs, round(_fixed_tokens(inputs).tokens)
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
    read, width = layer.inputs, _tokens(inputs).width
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
