"""How the dense part is held over ranks, as PyTorch takes it: units of `fully_shard`, a device mesh, formats.

Nothing of torch is imported here; docs/how-to/dense-strategies.md has the lines that read the document.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.activations import kept_blocks
from cost_models.cut_layers import strategy_of
from cost_models.dense_sharding import sharding_of
from cost_models.dense_strategies import CUTS, STAGES, Cut, DenseStrategy, Stage
from cost_models.dense_units import dense_units
from cost_models.workload.dense_part import Dense
from cost_models.workload.dense_sharding import DenseSharding, Passed
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.layer_shorthands import REPEATED
from cost_models.workload.layers import named
from cost_models.workload.models import Workload
from planner.exporters.formats import Exported, ExportRequest
from planner.exporters.refusals import Placed
from topologies.errors import Fault, InputError
from topologies.sentences import counted

VERSION = "2.13"
"""The torch whose functions are named, and with which the document was tried."""
TYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Our words and torch's, of formats that torch.distributed.fsdp.MixedPrecisionPolicy takes."""
HOOKS = {"bf16": "bf16_compress_hook", "fp16": "fp16_compress_hook"}
"""Communication hooks of DistributedDataParallel, by the format in which gradients are summed."""
WHOLE: tuple[Cut, ...] = ("samples", "tokens")
"""Cuts under which every rank has all weights."""
ROTATE_METHOD = "alltoall"
"""Of torch.distributed.tensor.experimental: keys and values go around; the other gathers them."""
WITHOUT = ("embeddings", "dot", "pool", "add", "stack")
"""Kinds of layers that have no parameters."""
IN_ONE = "plan with dense: {by: whole} in the policy"
"""The remedy where layers are held in several ways."""
APIS: dict[Stage, str] = {0: "ddp", 1: "zero_redundancy_optimizer", 2: "fully_shard", 3: "fully_shard"}
"""What holds a model so, by the stage of ZeRO."""


@dataclass(frozen=True)
class HeldLayer:
    """A layer with parameters, as a plan holds it."""

    name: str
    """Of the layer: the path of its module, or a pattern of paths."""
    strategy: DenseStrategy
    inputs: tuple[str, ...] = ()
    """Names of the layers that it reads, through what has no parameters; for those that are cut over ranks."""
    kind: str = "linear"
    count: int = 1
    """Cross layers that follow each other."""
    passes: Passed = "keys_and_values"
    """Of attention whose tokens are cut."""


def export(request: ExportRequest) -> Exported:
    """Return how the dense part of a plan is held; see `dense_strategy`.

    Raises InputError also for a plan for HugeCTR, which trains the dense part itself (its Model.add of DenseLayer).
    """
    placed = Placed.of(request.plan, request.source)
    workload, ranks = placed.model.workload, placed.ranks_of_host
    if workload.software == "hugectr":
        message = "is for hugectr, which trains the dense part itself, without PyTorch; plan with --runtime torchrec"
        raise InputError.at(request.source, message, path="provenance.workload.content.software")
    layers = held_layers(workload.dense, sharding_of(workload), sum(ranks), ranks[0], request.source, workload.layers)
    document = dense_strategy(layers, workload.dense, sum(ranks), request.source)
    again = [block.name for block in kept_blocks(workload) if block.is_checkpointed]
    notes = (*strategy_notes(layers), *_unit_notes(workload, layers), *_notes_of_cuts(document))
    modules = {layer.block for layer in workload.layers if layer.kind not in WITHOUT and layer.parameters}
    if held := [block for block in again if block in modules]:
        document["checkpointed"] = held
        notes += ("The step assumes torch.utils.checkpoint around each block of `checkpointed`, before it is sharded",)
    if loose := [block for block in again if block not in modules]:
        words = "functions without parameters, so without a module here; wrap what calls them"
        notes += (f"The step assumes torch.utils.checkpoint around {', '.join(loose)}: {words}",)
    return Exported(document, 0, notes)


def _unit_notes(workload: Workload, layers: Sequence[HeldLayer]) -> tuple[str, ...]:
    """Where the plan gathers layers together that torch is told to gather one by one."""
    units = len(dense_units(workload))
    if not sharding_of(workload).is_sharded or units >= len(layers):
        return ()
    least = f"{counted(units, 'unit')} of consecutive layers"
    return (f"The step assumes that weights are gathered in {least}; here each of {len(layers)} layers is a unit",)


def _notes_of_cuts(document: Mapping[str, Any]) -> Iterator[str]:
    """What a trainer must look at where layers are cut."""
    names = [name for name, each in document.get("parallel_plan", {}).items() if "columns" in each]
    if names:
        yield (
            f"The names of linear layers inside {', '.join(names)} (columns, rows) are assumed; put those of your"
            " modules"
        )
    if "context_parallel" in document:
        yield (
            "Before `context_parallel`'s layers the ranks of a node swap samples for tokens, and back behind them"
            " (all_to_all_single); torch's context_parallel is for flash attention on GPUs"
        )


def held_layers(
    dense: Dense,
    sharding: DenseSharding,
    world: int,
    per_node: int,
    source: str = "plan",
    sized: Sequence[SizedLayer] = (),
) -> list[HeldLayer]:
    """The layers of a dense part that have parameters, on so many ranks, so many of them on each node; `sized` are the
    simple ones that repeated layers stand for.

    Raises InputError for layers that stand for others which are held in several ways.
    """
    layers = named(dense.stated_layers)
    trained = [each for each in layers if each.kind not in WITHOUT and (each.kind != "other" or each.parameters)]
    found, faults = [], []
    for layer in trained:
        simple = [f"{layer.name}.{number}" for number in range(len(layer.sizes) - 1)] if layer.kind == "mlp" else []
        repeated = [each.name for each in sized if each.stated == layer.name and layer.kind in REPEATED]
        names = [each for each in repeated if each != layer.name] or [*simple, str(layer.name)]
        ways = {sharding.of_layer(name) for name in names}
        if len(ways) > 1:
            words = (
                f"stands for layers that are held in several ways; state each with the path of its module, or {IN_ONE}"
            )
            faults.append(Fault(source, 0, 0, f"dense.layers.{layer.name}", words))
        held = ways.pop()
        strategy, told = strategy_of(held, world, per_node), (layer.kind, layer.count, held.passes)
        found.append(HeldLayer(str(layer.name), strategy, layer.inputs, *told))
    if faults:
        raise InputError(faults)
    return found


def dense_strategy(layers: Sequence[HeldLayer], dense: Dense, world: int, source: str = "plan") -> dict[str, Any]:
    """The strategy of a dense part on so many ranks.

    Raises InputError with every layer that torch cannot hold so beside the others, and with formats that it has not.
    """
    tensor = max((each.strategy.weight_parts for each in layers), default=1)
    _refuse(layers, dense, tensor, world, source)
    first = next((each.strategy for each in layers if each.strategy.cut in WHOLE), layers[0].strategy)
    api = "fully_shard" if tensor > 1 else APIS[first.stage]
    document: dict[str, Any] = {"torch": VERSION, "api": api, "mesh": _mesh(first, world, tensor)}
    document |= {"optimizer": dense.optimizer, "parameters": TYPES[dense.master_weights or "fp32"]}
    if api == "fully_shard":
        document["units"] = {each.name: each.strategy.stage == 3 for each in layers}
        document["mixed_precision"] = _mixed_precision(dense)
    else:
        document["autocast"] = TYPES[dense.dtype] if dense.copy_bytes else None
        document["gradient_hook"] = HOOKS.get(dense.gradient_format)
    if tensor > 1:
        document["parallel_plan"] = {
            each.name: _style(each, layers) for each in layers if each.strategy.cut not in WHOLE
        }
    if around := [each for each in layers if each.strategy.cut == "tokens"]:
        names, ranks = [each.name for each in around], around[0].strategy.cut_ranks
        document["context_parallel"] = {"ranks": ranks, "rotate_method": ROTATE_METHOD, "layers": names}
    if dense.dtype == "tf32":
        document["float32_matmul_precision"] = "high"
    return document


def strategy_notes(layers: Sequence[HeldLayer]) -> tuple[str, ...]:
    """Where torch does something else than the plan's step assumes."""
    if any(each.strategy.stage == 1 for each in layers):
        return (
            "The step assumes that ZeRO-1 reduce-scatters gradients; torch's ZeroRedundancyOptimizer is beside"
            " DistributedDataParallel, which all-reduces whole ones",
        )
    return ()


def _refuse(layers: Sequence[HeldLayer], dense: Dense, tensor: int, world: int, source: str) -> None:
    faults = [
        Fault(source, 0, 0, f"dense.{key}", f"torch.distributed.fsdp has no policy for {word}; plan with {known}")
        for known in [", ".join(TYPES)]
        for key, word in (("dtype", dense.dtype), ("gradients", dense.gradient_format))
        if word not in TYPES
    ]
    whole = [each for each in layers if each.strategy.cut in WHOLE]
    for layer in layers:
        reason = _cut_refused(layer, layers, tensor, world) or _refused(
            layer.strategy, (whole or [*layers])[0].strategy
        )
        if reason:
            faults.append(Fault(source, 0, 0, f"dense.layers.{layer.name}", reason))
    if not layers:
        faults.append(
            Fault(
                source,
                0,
                0,
                "dense.layers",
                "no layer with parameters is stated; describe the dense part by its layers",
            )
        )
    if faults:
        raise InputError(faults)


def _refused(own: DenseStrategy, first: DenseStrategy) -> str:
    """Why torch does not hold a layer so beside the first one; empty where it does."""
    if own.cut in WHOLE and (own.shard_ranks, min(own.stage, 2)) != (first.shard_ranks, min(first.stage, 2)):
        return (
            f"is held as {STAGES[own.stage].words} over {own.shard_ranks} ranks, and another as"
            f" {STAGES[first.stage].words} over {first.shard_ranks}; torch holds a model in one way: {IN_ONE}"
        )
    return ""


def _cut_refused(layer: HeldLayer, layers: Sequence[HeldLayer], tensor: int, world: int) -> str:
    """Why torch does not cut a layer so, or not beside one that is cut; empty where it does."""
    own = layer.strategy
    if own.cut == "tokens" and (reason := _tokens_refused(layer, layers)):
        return reason
    if tensor == 1:
        return ""
    if own.cut in WHOLE:
        shards = own.stage > 1 and own.shard_ranks == world
        return "" if shards else "stands beside layers that are cut; plan it as FSDP or ZeRO-2 over all ranks"
    if own.cut_ranks != tensor:
        return f"is cut over {own.cut_ranks} ranks, and another over {tensor}; torch's mesh has one such dimension"
    if world == tensor:
        return "is cut over all ranks: torch's FSDP sums gradients among copies, and it has one; cut it over fewer"
    if own.stage < 2 or own.shard_ranks != world // tensor:
        return "has copies that neither FSDP nor ZeRO-2 shards, as torch holds layers that are cut"
    of_style = STYLES.get(own.cut)
    reads_cut = {of_style and each.strategy.cut == of_style.other for each in layers if layer.name in each.inputs}
    if len(reads_cut) > 1:
        return "is read by a layer that is cut and by one that is not; torch gives its output in one layout"
    return ""


def _tokens_refused(layer: HeldLayer, layers: Sequence[HeldLayer]) -> str:
    """Why torch does not cut the tokens of a layer; empty where it does: of attention that passes keys and values, and
    of layers beside such attention."""
    if layer.passes != "keys_and_values":
        return f"passes {layer.passes}: torch's context_parallel passes keys and values; plan with these"
    if not any(each.kind == "attention" and each.strategy.cut == "tokens" for each in layers):
        return f"is {CUTS['tokens'].words}: torch has no style for it; plan with data or tensor parallel strategies"
    return ""


@dataclass(frozen=True)
class Style:
    """A way in which torch cuts a linear layer."""

    name: str
    """Of its class in torch.distributed.tensor.parallel."""
    other: str
    """The cut of neighbours with which it exchanges what its default layouts say."""


STYLES: dict[str, Style] = {"columns": Style("ColwiseParallel", "rows"), "rows": Style("RowwiseParallel", "columns")}


def _style(layer: HeldLayer, layers: Sequence[HeldLayer]) -> dict[str, Any]:
    """The class that cuts a layer, and along which dimension its input and output are cut where its neighbours are not
    cut themselves: each rank has samples of its own, along the first one."""
    if layer.strategy.cut in ("heads", "inner", "width"):
        return _linear_layers(layer)
    style, cut_of = STYLES[layer.strategy.cut], {each.name: each.strategy.cut for each in layers}
    of_inputs = {cut_of.get(name) == style.other for name in layer.inputs}
    of_readers = {each.strategy.cut == style.other for each in layers if layer.name in each.inputs}
    found: dict[str, Any] = {"style": style.name}
    if of_inputs != {True}:
        found["input_shard"] = 0
    if of_readers != {True}:
        found["output_shard"] = 0
    return found


def _linear_layers(layer: HeldLayer) -> dict[str, Any]:
    """Those inside an attention that is cut by heads, or inside cross layers, by paths that are assumed: each rank has
    samples of its own before and after."""
    if layer.strategy.cut == "heads":
        columns, rows = ["q_proj", "k_proj", "v_proj"], ["out_proj"]
        return {"style": "heads", "inputs": len(layer.inputs) or 1, "columns": columns, "rows": rows}
    first, second = ("V", "U") if layer.strategy.cut == "inner" else ("W", "")
    columns, rows = ([f"{name}.{number}" for number in range(layer.count) if name] for name in (first, second))
    return {"style": str(layer.strategy.cut), "columns": columns, "rows": rows}


def _mesh(strategy: DenseStrategy, world: int, tensor: int) -> dict[str, Any]:
    """Dimensions of the device mesh, the outermost first; consecutive ranks are along the last one."""
    shards = strategy.shard_ranks
    sizes = {"replicate": world // shards, "shard": shards}
    if tensor > 1:
        sizes = {"shard": world // tensor, "tensor": tensor}
    elif strategy.stage and shards == world:
        sizes = {"shard": world}
    elif not strategy.stage:
        sizes = {"replicate": world}
    return {"shape": [*sizes.values()], "dim_names": [*sizes]}


def _mixed_precision(dense: Dense) -> Mapping[str, str | None]:
    """Arguments of MixedPrecisionPolicy, types by their names in torch; None as the parameters are."""
    return {
        "param_dtype": TYPES[dense.dtype] if dense.copy_bytes else None,
        "reduce_dtype": TYPES[dense.gradient_format],
    }
