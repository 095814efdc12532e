"""What each simple kind of layer makes of its inputs: shapes, matrix products, parameters, numbers read and written."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from cost_models.workload.beside import NO_KERNELS, SUM, Beside, activated, biased, crossed, normed
from cost_models.workload.layers import NUMERICAL, Layer
from topologies.errors import ConflictError


@dataclass(frozen=True)
class Shape:
    """What flows from one layer to another for one sample: tokens of one width."""

    tokens: float
    width: int
    squared_tokens: float | None = None
    """The mean of their squared number, where it varies from sample to sample. Unset: it does not."""
    is_aligned: bool = field(default=True, compare=False)
    """Whether what is joined with it begins at multiples of 16 bytes: pairs of dots and an odd number of numerical
    features shift it."""

    @property
    def numbers(self) -> float:
        """Numbers of a sample, on the mean."""
        return self.tokens * self.width

    @property
    def has_fixed_length(self) -> bool:
        """Whether all samples have the same whole number of tokens."""
        return self.squared_tokens is None and float(self.tokens).is_integer()


Kernel = Literal["layer", "batched", "attention", "totals"]
"""What computes a product: one product of all samples by weights; one of each sample, all in a kernel; a fused kernel
of scores and weighted values, `rows` of queries and `columns` of keys, `inner` of each; nothing that is known."""


@dataclass(frozen=True)
class Product:
    """A matrix product of a sample's forward pass: `rows` x `inner` by `inner` x `columns`, on the mean."""

    rows: float
    inner: float
    columns: float
    kernel: Kernel = "layer"
    count: float = 1.0
    """How many such products there are."""
    is_aligned: bool = True
    """Of a layer: whether its rows begin at multiples of 16 bytes, as fast kernels ask."""

    @property
    def has_weights(self) -> bool:
        """Whether the second matrix is weights; else both come from the sample."""
        return self.kernel == "layer"

    @property
    def macs(self) -> float:
        """Multiply-accumulates."""
        return self.count * self.rows * self.inner * self.columns

    @property
    def read(self) -> float:
        """Numbers of the sample that go into it, weights aside."""
        return self.count * self.inner * (self.rows if self.has_weights else self.rows + self.columns)

    @property
    def made(self) -> float:
        """Numbers that come out of it; scores stay in their kernel."""
        return self.count * self.rows * (self.inner / 2 if self.kernel == "attention" else self.columns)

    @property
    def weights(self) -> int:
        """Weights of the second matrix."""
        return round(self.inner * self.columns) if self.has_weights else 0


@dataclass(frozen=True)
class LayerSizes:
    """What a kind of layer makes of its inputs."""

    output: Shape
    products: tuple[Product, ...] = ()
    vectors: tuple[int, ...] = ()
    """Sizes of the biases, scales and shifts."""
    activation_elements: float = 0
    uncrossed: float = 0
    """How many of these no kernel beside its products reads or writes."""
    picked: float = 0
    """Pairs of dots that are picked."""
    norm_rows: float = 0
    """Vectors that are normed, each by itself."""
    beside: Beside = NO_KERNELS
    """What kernels beside its products read and write, but for inputs that are joined and gradients that are added."""


def _are_aligned(layer: Layer, inputs: Sequence[Shape]) -> bool:
    """Whether what a layer reads as one vector is. A few numerical features by themselves count as such: layers of 13
    are among those that edges of products were fitted to."""
    return layer.inputs == (NUMERICAL,) or all(shape.is_aligned for shape in inputs)


def _one_vector(inputs: Sequence[Shape]) -> Shape:
    """Everything of the inputs as one vector of a sample."""
    if not all(shape.has_fixed_length for shape in inputs):
        raise ConflictError("has as many tokens as a sample's history; pool it first, or work per token", "inputs")
    return Shape(1, round(sum(shape.numbers for shape in inputs)))


def tokens_of(inputs: Sequence[Shape]) -> Shape:
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


def fixed_tokens(inputs: Sequence[Shape]) -> Shape:
    """The same, of which every sample has as many."""
    shape = tokens_of(inputs)
    if not shape.has_fixed_length:
        raise ConflictError("has as many tokens as a sample's history; pool it first", "inputs")
    return shape


def _linear(layer: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    read = tokens_of(inputs) if layer.per == "token" else _one_vector(inputs)
    output = Shape(read.tokens, layer.out or 0, read.squared_tokens)
    product = Product(read.tokens, read.width, output.width, is_aligned=_are_aligned(layer, inputs))
    beside = activated(output.numbers, bias=layer.bias, tokens=output.tokens)
    return LayerSizes(output, (product,), (output.width,) * layer.bias, read.numbers + output.numbers, beside=beside)


def _cross(layer: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    """Each: two products, of which the first may have a bias and the second has one, or a square one with a bias; and
    one by the first layer's input, number by number."""
    read, rank = _one_vector(inputs), layer.rank
    if rank is None:
        square = Product(1, read.width, read.width, is_aligned=_are_aligned(layer, inputs))
        moved, beside = layer.count * 4 * read.width, crossed(read.width, layer.count, 0)
        return LayerSizes(read, (square,) * layer.count, (read.width,) * layer.count, moved, beside=beside)
    down = Product(1, read.width, rank, is_aligned=_are_aligned(layer, inputs))
    products = (down, replace(down, inner=rank, columns=read.width)) * layer.count
    return LayerSizes(
        read,
        products,
        layer.count * ((rank,) * layer.inner_bias + (read.width,)),
        layer.count * (2 * (read.width + rank) + 2 * read.width),
        beside=crossed(read.width, layer.count, rank * layer.inner_bias),
    )


def _dot(_: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    """All n x n pairs of the n vectors are multiplied; n(n-1)/2 are kept. The gradients of both factors are added, one
    of which is transposed."""
    read = fixed_tokens(inputs)
    count = round(read.tokens)
    product = Product(count, read.width, count, "batched")
    pairs = count * (count - 1) // 2
    output = Shape(1, pairs, is_aligned=False)
    kept, zeros = 2 * pairs, count * count
    beside = Beside(kept, zeros, kept, zeros, turned_backward=SUM * read.numbers)
    return LayerSizes(output, (product,), (), read.numbers + count * count, picked=pairs, beside=beside)


def _compress(layer: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    """Weights by vectors: `torch.matmul` of a matrix by matrices copies these transposed, and what comes out, too."""
    read = fixed_tokens(inputs)
    output = Shape(layer.vectors or 0, read.width)
    product = Product(read.width, read.tokens, output.tokens)
    beside = Beside(turned_forward=2 * (read.numbers + output.numbers), turned_backward=2 * output.numbers)
    return LayerSizes(output, (product,), (), read.numbers + output.numbers, beside=beside)


def _fm(layer: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    """X (X^T Y) with a projection Y of the n vectors to k, a norm of the n k numbers, and an MLP to the vectors.

    Vectors are copied transposed for the projection; the gradients of both uses are added, and put in order.
    """
    read, rank, vectors = fixed_tokens(inputs), layer.rank or 0, layer.vectors or 0
    pairs = round(read.tokens) * rank
    widths = (pairs, *layer.sizes, vectors * read.width)
    mlp = [Product(1, i, o) for i, o in itertools.pairwise(widths)]
    products = (
        Product(read.width, read.tokens, rank),
        Product(read.tokens, read.width, rank, "batched"),
        *mlp,
    )
    projected = rank * read.width
    moved = 2 * read.numbers + 2 * projected + 3 * pairs + sum(p.inner + p.columns for p in mlp)
    beside = Beside(turned_forward=2 * read.numbers, turned_backward=(SUM + 2) * read.numbers)
    beside = sum(map(activated, layer.sizes), beside + normed(pairs) + biased(widths[-1]))
    return LayerSizes(Shape(vectors, read.width), products, (pairs, *widths), moved, norm_rows=1, beside=beside)


def _attention(layer: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    """Queries of the first input over keys and values of the second, or of the same; scores stay in the kernel
    (FlashAttention, arXiv:2205.14135)."""
    if len(inputs) > 2:
        raise ConflictError("takes one input, or queries and what they look at", "inputs")
    if len(inputs) == 2 and layer.causal:
        raise ConflictError("is of places that look at their own history; give one input, or leave it out", "causal")
    queries, seen = inputs[0], inputs[-1]
    heads, head_dim = layer.heads or 0, layer.head_dim or 0
    wide, narrow = heads * head_dim, (layer.kv_heads or heads) * head_dim
    itself = queries.squared_tokens or queries.tokens**2
    pairs = itself if len(inputs) == 1 else queries.tokens * seen.tokens
    share = 0.5 if layer.causal else 1.0
    looked_at = pairs / queries.tokens * share if queries.tokens else 0.0
    products = (
        Product(queries.tokens, queries.width, wide),
        Product(seen.tokens, seen.width, narrow),
        Product(seen.tokens, seen.width, narrow),
        Product(queries.tokens, head_dim, looked_at, "attention", 2 * heads),
        Product(queries.tokens, wide, queries.width),
    )
    moved = queries.tokens * (2 * queries.width + 4 * wide) + seen.tokens * (2 * seen.width + 4 * narrow)
    biases = (wide, narrow, narrow, queries.width) * layer.bias
    within_kernel = 2 * (queries.tokens * wide + seen.tokens * narrow)  # what the fused kernel's own time is of
    gathered = queries.tokens * wide + 2 * seen.tokens * narrow  # gradients of heads are stacked, then put in order
    beside = Beside(turned_backward=4 * gathered)
    if layer.bias:
        beside += biased(gathered, queries.tokens) + biased(queries.numbers, queries.tokens)
    return LayerSizes(queries, products, biases, moved, within_kernel, beside=beside)


def _norm(_: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    read = tokens_of(inputs)
    beside = normed(read.numbers)
    return LayerSizes(read, (), 2 * (read.width,), 2 * read.numbers, norm_rows=read.tokens, beside=beside)


def _pool(layer: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    read = sum(shape.numbers for shape in inputs)
    beside = Beside(read, read, read, read)
    if layer.stride is None:
        if len(inputs) > 1:
            raise ConflictError("averages over the tokens of one input; give one, or stride", "inputs")
        return LayerSizes(Shape(1, inputs[0].width), (), (), read, beside=beside)
    first, others = _one_vector(inputs[:1]), inputs[1:]
    width = -(-first.width // layer.stride) + (_one_vector(others).width if others else 0)
    return LayerSizes(Shape(1, width), (), (), read, beside=beside)


def _add(_: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    """Sums go forward only, and gradients of what is read twice are summed once: two of six passes."""
    if len({(shape.tokens, shape.width) for shape in inputs}) > 1:
        shown = ", ".join(f"{shape.tokens:g} x {shape.width}" for shape in inputs)
        raise ConflictError(f"cannot be added: they have {shown} numbers", "inputs")
    read_and_written = (len(inputs) + 1) * inputs[0].numbers
    beside = Beside(SUM * (len(inputs) - 1) * inputs[0].numbers, 0, read_and_written)
    return LayerSizes(inputs[0], (), (), read_and_written, read_and_written * 2 / 3, beside=beside)


def _other(layer: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    """Its totals. Its products, of which no sizes are known, count at the full rate."""
    output = Shape(layer.vectors or 1, layer.out or 0)
    products = (Product(1, layer.macs, 1, "totals"),) if layer.macs else ()
    vectors = (layer.parameters,) if layer.parameters else ()
    moved = sum(shape.numbers for shape in inputs) + output.numbers
    return LayerSizes(output, products, vectors, moved, beside=activated(output.numbers))


def _stack(_: Layer, inputs: Sequence[Shape]) -> LayerSizes:
    return LayerSizes(tokens_of(inputs))


KINDS: dict[str, Callable[[Layer, Sequence[Shape]], LayerSizes]] = {
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
    "other": _other,
}
"""What each simple kind makes of its inputs."""
