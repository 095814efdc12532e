"""The dense part of a model, as a workload file states it: a graph of layers, or totals where it has none."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cost_models.dense_size import dense_size
from cost_models.workload.layer_kinds import Shape
from cost_models.workload.models import Workload
from planner.integrations.torch_graph import LayerGraph, TableSource, layer_graph
from planner.integrations.torch_inputs import batch_of, made_arguments, on_meta, unfit_words
from planner.integrations.torch_layers import UnnameableError
from planner.integrations.torchrec_collections import Collection
from planner.integrations.torchrec_dense import DensePart
from topologies.documents import Document, validate
from topologies.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from planner.integrations.torch_trace import Traced

SHORT = {"bfloat16": "bf16", "float16": "fp16"}
"""Our words for types of weights."""
TRIALS = 8
"""Forward passes until the number of numerical features is given up."""


@dataclass(frozen=True)
class ReadDense:
    """What a file says of the dense part, and what is to be said of it."""

    dense: Mapping[str, Any]
    notes: tuple[str, ...] = ()


class UntraceableError(Exception):
    """Why no layers could be read."""

    def __init__(self, message: str, misfit: int | None = None) -> None:
        super().__init__(message)
        self.misfit = misfit
        """Numbers that the first layer lacks, where that is why."""


@dataclass(frozen=True)
class Model:
    """A model with its tables as the file has them, in the order of its collections."""

    module: "nn.Module"
    collections: Sequence[Collection]
    tables: Sequence[Mapping[str, Any]]
    arguments: Any = None
    """Of its forward pass, where its builder gave some."""


def read_dense(model: Model, part: DensePart, batch: int) -> ReadDense:
    """The dense part: layers whose multiply-accumulates and parameters are those that torch counts, else totals."""
    totals = part.totals()
    is_empty = not totals["parameters"] and not totals["extra_bytes"]
    try:
        trace = _trace(model, batch)
    except UntraceableError as error:
        return ReadDense({}) if is_empty else ReadDense(totals, (f"no layers were read: {error}", *_uncounted(model)))
    if is_empty and not trace.macs:
        return ReadDense({})
    try:
        graph, weights = _graph(model, trace), _trained(model)
        dense = {"numerical_features": graph.numerical_features, "layers": list(graph.layers)}
        dense |= _formats({weight.dtype for weight in weights})
        dense |= {key: totals[key] for key in ("optimizer", "extra_bytes")}
        macs = trace.macs - sum(trace.recorder.found.skipped_macs.values())
        _expect_equal(model, dense, macs, sum(weight.numel() for weight in weights))
    except (UnnameableError, InputError) as error:
        macs = math.ceil(trace.macs)
        return ReadDense(totals | {"macs_per_sample": macs}, (f"the dense part is written as totals: {error}",))
    return ReadDense(dense, tuple(_notes(graph)))


def _trained(model: Model) -> "list[nn.Parameter]":
    """Trained parameters outside of tables."""
    tables = {id(weight) for each in model.collections for weight in each.parameters.values()}
    return [each for each in model.module.parameters() if each.requires_grad and id(each) not in tables]


def _formats(types: "set[torch.dtype]") -> dict[str, str]:
    """The formats of weights that are not fp32, in which torch's optimizers keep their state, too. Raises
    UnnameableError where layers have several."""
    words = {str(each).removeprefix("torch.") for each in types}
    if not words or words == {"float32"}:
        return {}
    if len(words) > 1 or not words <= SHORT.keys():
        raise UnnameableError(f"its weights have the types {', '.join(sorted(words))}, and a graph of layers has one")
    word = SHORT[words.pop()]
    return {"dtype": word, "master_weights": word, "optimizer_state": word}


def _graph(model: Model, trace: "Traced") -> LayerGraph:
    weights = dict(model.module.named_parameters())
    unused = {path: weights[path].numel() for path in trace.recorder.unused.values()}
    unsampled = trace.recorder.batch_constant_macs
    return layer_graph(trace.recorder.found, _sources(model), trace.inputs, unused, unsampled)


def _sources(model: Model) -> list[TableSource]:
    tables = iter(model.tables)
    found = []
    for at, each in enumerate(model.collections):
        for place, config in enumerate(each.configs):
            table, count = next(tables), len(config.feature_names)
            shape = Shape(count, config.embedding_dim) if each.is_pooled else Shape(1, count * config.embedding_dim)
            found.append(TableSource(f"table {at} {place}", table["name"], each.path, shape, each.is_pooled))
    return found


def _trace(model: Model, batch: int) -> "Traced":
    """The forward pass with the builder's arguments, else with made ones: how many numerical features there are follows
    from what the first layer lacks."""
    if model.arguments is not None:
        samples = batch_of(model.arguments)
        if samples is None:
            raise UntraceableError("nothing among the arguments of the forward pass tells how many samples they are")
        return _attempt(model, on_meta(model.arguments), samples)
    width, said = 1, ""
    for _ in range(TRIALS):
        misfit = None
        for arguments in made_arguments(model.module, model.collections, batch, width):
            try:
                return _attempt(model, arguments, batch)
            except UntraceableError as error:
                said, misfit = str(error), misfit or error.misfit
        if not misfit or width + misfit < 1:
            break
        width += misfit
    raise UntraceableError(said or unfit_words(model.module))


def _attempt(model: Model, arguments: Any, batch: int) -> "Traced":
    from planner.integrations.torch_trace import Interrupted, traced

    places = [(at, i) for at, each in enumerate(model.collections) for i in range(len(each.configs))]
    sources = dict(zip(places, ((each.name, each.shape) for each in _sources(model)), strict=True))
    try:
        return traced(model.module, model.collections, arguments, batch, sources)
    except Interrupted as error:
        raise UntraceableError(str(error), error.misfit) from error


def _expect_equal(model: Model, dense: Mapping[str, Any], macs: float, parameters: int) -> None:
    """Raise UnnameableError where the layers are not what torch counts, InputError where they are no workload."""
    data = {"name": "model", "batch_per_rank": 1, "dense": dense, "tables": [dict(table) for table in model.tables]}
    size = dense_size(validate(Document(data, "the layers that were read"), Workload))
    if abs(size.macs - macs) > 1e-6 * max(macs, 1) or size.parameters != parameters:
        raise UnnameableError(
            f"layers were read with {size.macs:,.0f} multiply-accumulates and {size.parameters:,} parameters, and torch"
            f" counts {macs:,.0f} and {parameters:,}"
        )


def _uncounted(model: Model) -> list[str]:
    """What totals without a forward pass leave out."""
    from torch import nn

    inside = {id(weight) for each in model.collections for weight in each.module.parameters()}
    kinds = {
        type(part).__name__
        for part in model.module.modules()
        if not isinstance(part, nn.Linear) and any(id(own) not in inside for own in part.parameters(recurse=False))
    }
    if not kinds:
        return ["macs_per_sample has the linear layers, each used once"]
    return [f"macs_per_sample has the linear layers, each used once, and nothing of {', '.join(sorted(kinds))}"]


def _notes(graph: LayerGraph) -> Iterator[str]:
    if graph.numerical_features:
        yield f"numerical_features are the {graph.numerical_features:,} that the forward pass takes"
    if graph.totals:
        yield f"layers that have no kind of their own are written as totals (kind other): {'; '.join(graph.totals)}"
    if graph.between:
        yield f"layers that select, join or multiply numbers, without products (kind other): {', '.join(graph.between)}"
    if graph.causal:
        yield f"of causal attention half of the products that torch counts are written: {', '.join(graph.causal)}"
