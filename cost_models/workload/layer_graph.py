"""The graph of a dense part's layers with its shapes: what flows, and the matrix products, weights and numbers of each.

Layers are in the order of the forward pass. A shorthand is there as the simple layers that it stands for.
"""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field

from cost_models.workload.beside import NO_KERNELS, Beside, added, copied, joined
from cost_models.workload.layer_kinds import KINDS, Product, Shape
from cost_models.workload.layer_shorthands import SHORTHANDS, block_of
from cost_models.workload.layers import NUMERICAL, Layer, named, within
from cost_models.workload.table_profile import TableProfile
from topologies.errors import ConflictError

JOINING = ("linear", "cross", "dot", "compress", "fm", "norm", "stack")
"""Kinds of layers that read all inputs as one, which is written first."""


@dataclass(frozen=True)
class SizedLayer:
    """A simple layer with its sizes for one sample's forward pass."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    output: Shape
    products: tuple[Product, ...] = ()
    vectors: tuple[int, ...] = ()
    """Sizes of its biases, scales and shifts."""
    activation_elements: float = 0
    """Numbers that it reads and writes."""
    uncrossed: float = 0
    """How many of these no kernel beside its products reads or writes."""
    picked: float = 0
    """Pairs of dots that it picks."""
    norm_rows: float = 0
    """Vectors that it norms."""
    needs_vectors: bool = False
    """Whether it reads vectors of tables, itself or through others."""
    stated: str = ""
    """The layer of the file that it is a part of."""
    block: str = ""
    """The same; of a repeated wukong or attention_tower, the repetition."""
    count: int = 1
    """How many cross layers follow each other in it."""
    beside: Beside = NO_KERNELS
    """What kernels beside its products read and write."""

    def __hash__(self) -> int:
        """Of what tells layers of a model apart: sizes of models are looked up by all their layers."""
        return hash((self.name, self.kind, self.inputs))

    @property
    def parameters(self) -> int:
        """Trained numbers."""
        return sum(product.weights for product in self.products) + sum(self.vectors)

    @property
    def weight_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what is trained: matrices, then vectors."""
        matrices = [(round(each.inner), round(each.columns)) for each in self.products if each.has_weights]
        return (*matrices, *((size,) for size in self.vectors))

    @property
    def macs(self) -> float:
        """Forward multiply-accumulates."""
        return sum(product.macs for product in self.products)


def sized_layers(
    layers: Sequence[Layer], numerical: int, tables: Sequence[TableProfile], vectors: Shape | None = None
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
    tables: Sequence[TableProfile]
    vectors: Shape | None
    done: list[SizedLayer] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    """Names of tables whose vectors some layer has; `numerical`."""
    gradients: set[str] = field(default_factory=set)
    """Names of layers of which some layer gives gradients."""

    def put(self, index: int, layer: Layer) -> None:
        """Add a layer of the file, or those that it stands for."""
        try:
            if layer.kind == "embeddings":
                output = self._vectors_of(layer)
                name = str(layer.name)
                self.done.append(SizedLayer(name, layer.kind, (), output, needs_vectors=True, stated=name, block=name))
            else:
                self._put(layer, layer)
        except ConflictError as error:
            raise within(error, str(index)) from None

    def _put(self, layer: Layer, stated: Layer) -> None:
        """Add a layer, or those that it stands for, which is a part of what is stated."""
        if layer.kind in SHORTHANDS:
            for simple in SHORTHANDS[layer.kind](layer, [self._shape(name) for name in layer.inputs]):
                self._put(simple, stated)
            return
        sizes = KINDS[layer.kind](layer, [self._shape(name) for name in layer.inputs])
        beside = self._beside(layer, sizes.beside)
        self.read |= {NUMERICAL} & set(layer.inputs)
        self.done.append(
            SizedLayer(
                str(layer.name),
                layer.kind,
                layer.inputs,
                sizes.output,
                sizes.products,
                sizes.vectors,
                sizes.activation_elements,
                sizes.uncrossed,
                sizes.picked,
                sizes.norm_rows,
                needs_vectors=any(each.needs_vectors for each in self.done if each.name in layer.inputs),
                stated=str(stated.name),
                block=block_of(stated, str(layer.name)),
                count=layer.count if layer.kind == "cross" else 1,
                beside=beside,
            )
        )

    def _beside(self, layer: Layer, own: Beside) -> Beside:
        """What its kernels read and write, with its inputs joined, unless it adds or averages them, and gradients added
        of what others read, too."""
        if len(layer.inputs) > 1 and layer.kind in JOINING:
            own += joined(sum(self._shape(name).numbers for name in layer.inputs))
            own += copied(
                sum(
                    each.output.numbers for each in self.done if each.name in layer.inputs and each.kind == "embeddings"
                )
            )
        again = [name for name in layer.inputs if name in self.gradients]
        self.gradients |= {*layer.inputs} - {NUMERICAL}
        return sum((added(self._shape(name).numbers) for name in again), own)

    def _shape(self, name: str) -> Shape:
        if name == NUMERICAL:
            if not self.numerical:
                raise ConflictError("needs numerical_features, how many there are", "inputs")
            return Shape(1, self.numerical, is_aligned=self.numerical % 2 == 0)
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


def _bags(tables: Sequence[TableProfile]) -> Shape:
    """Pooled vectors: tokens where they have one width, else one vector of all."""
    count = sum(table.feature_count for table in tables)
    widths = {table.dim for table in tables}
    if len(widths) == 1:
        return Shape(count, widths.pop())
    return Shape(1, sum(table.feature_count * table.dim for table in tables))


def _history(tables: Sequence[TableProfile]) -> Shape:
    """Places of a history, each with the vectors that all tables have for it."""
    lengths = {table.pooling_factor / table.feature_count for table in tables}
    spreads = {table.pooling_std / table.feature_count for table in tables}
    if len(lengths) > 1 or len(spreads) > 1:
        shown = ", ".join(f"{table.name} {table.pooling_factor / table.feature_count:g}" for table in tables[:5])
        raise ConflictError(f"have histories of several lengths ({shown}); read each with a layer of its own", "tables")
    mean, spread = lengths.pop(), spreads.pop()
    squared = mean**2 + spread**2 if spread or not mean.is_integer() else None
    return Shape(mean, sum(table.feature_count * table.dim for table in tables), squared)
