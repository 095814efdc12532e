"""A workload's software profile, and what its host does in a step that no placement changes.

Where a workload states nothing, the profile's `step_overhead_s` holds, one number. A stated overhead takes its place; a
stated mode makes it the sum of what the host does: for the step, for each module of tables, each table and each layer.
"""

from dataclasses import dataclass, replace

from cost_models.coefficients import (
    Coefficient,
    HostCoefficients,
    SoftwareCoefficients,
    host_coefficients,
    software_coefficients,
)
from cost_models.workload.checkpoints import is_checkpointed
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.models import SoftwareMode, Workload
from cost_models.workload.towers import Towers

CROSS_LAYER_PRODUCTS = 2
"""Matrix products of a low-rank cross layer."""
EAGER_TABLES, EAGER_LAYERS = 26, 8
"""The model that the profile's `step_overhead_s` was measured on: DLRM, its tables in one module."""


@dataclass(frozen=True)
class HostCounts:
    """What the host's work in a step grows with."""

    modules: int
    """Modules of tables; one with several kinds of sharding that exchange counts once for each."""
    replicated: int
    """Modules with replicated tables."""
    tables: int
    layers: int
    """Dense layers whose kernels the host launches one by one."""
    stateful_layers: int
    """Those whose optimizer keeps state."""
    compiled: int = 0
    """Compiled dense parts."""
    captured: int = 0
    """Dense parts, with their optimizer, that are captured as a graph."""
    checkpointed_blocks: int = 0
    layers_again: int = 0
    """Dense layers of these blocks, which the host launches once more in the backward pass."""


@dataclass(frozen=True)
class HostPart:
    """One thing that the host does in a step."""

    name: str
    count: int
    seconds: float
    coefficient: str
    evidence: Coefficient


def host_parts(host: HostCoefficients, counts: HostCounts, factor: float = 1.0) -> tuple[HostPart, ...]:
    """What the host does, in seconds of the processor it was measured on times `factor`."""
    rows: list[tuple[str, int, str]] = [
        ("the step", 1, "step_s"),
        ("modules of tables", counts.modules, "module_s"),
        ("modules with replicas", counts.replicated, "replicas_s"),
        ("tables", counts.tables, "table_s"),
        ("dense layers", counts.layers, "layer_s"),
        ("optimizer state of dense layers", counts.stateful_layers, "state_s"),
        ("checkpointed blocks", counts.checkpointed_blocks, "checkpoint_block_s"),
        ("dense layers that go forward again", counts.layers_again, "checkpoint_layer_s"),
        ("entering the compiled dense part", counts.compiled, "compiled_step_s"),
        ("what compiling saves of dense layers", -counts.layers * counts.compiled, "compiled_layer_saved_s"),
        ("launching the captured dense part", counts.captured, "replay_s"),
    ]
    evidence: dict[str, Coefficient] = {key: getattr(host, key) for _, _, key in rows}
    return tuple(
        HostPart(name, abs(count), factor * count * evidence[key].value, key, evidence[key])
        for name, count, key in rows
        if count
    )


def host_counts(workload: Workload) -> HostCounts:
    """Counts of a workload whose modules have one kind of sharding each."""
    modules = {(table.name.rpartition(".")[0], table.pooled, table.weighted) for table in workload.tables}
    layers, mode = dense_layers(workload) + tower_layers(workload.towers), workload.software_mode
    if mode == "graph":
        return HostCounts(len(modules), 0, len(workload.tables), 0, 0, captured=min(layers, 1))
    has_state = workload.mode == "training" and workload.dense.keeps_state
    stateful = layers if has_state else 0
    compiled = min(layers, 1) if mode == "compiled" else 0
    again = () if compiled else checkpointed_layers(workload)
    blocks = len({layer.block for layer in again})
    return HostCounts(
        len(modules), 0, len(workload.tables), layers, stateful, compiled, 0, blocks, sum(map(_products, again))
    )


def dense_layers(workload: Workload) -> int:
    """Matrix products of the dense part with weights; of one that is given by its totals, as many as the DLRM's."""
    if workload.dense.macs_per_sample is not None:
        return EAGER_LAYERS if workload.dense.macs_per_sample else 0
    return sum(map(_products, workload.layers))


def checkpointed_layers(workload: Workload) -> tuple[SizedLayer, ...]:
    """Those that go forward again in the backward pass: what compiled or captured dense parts compute again is in
    kernels that are launched anyhow."""
    again = workload.dense.checkpointing
    layers = (layer for layer in workload.layers if layer.kind != "embeddings")
    return tuple(layer for layer in layers if is_checkpointed(again, layer.stated, layer.block))


def _products(layer: SizedLayer) -> int:
    return sum(product.has_weights for product in layer.products)


def tower_layers(towers: Towers | None) -> int:
    """Matrix products of the module of a tower."""
    if towers is None or not towers.has_modules:
        return 0
    cross = CROSS_LAYER_PRODUCTS * towers.dcn_layers if towers.module == "dcn" else 0
    return len(towers.sizes) or cross + 1


def host_work(workload: Workload) -> tuple[HostPart, ...]:
    """The parts of the fixed overhead of a workload's step, which add up to it; none where one number was stated, or
    where nothing is known of the profile's parts.

    Without a mode the profile's one number is shared out as the host's work in an eager step is.
    """
    overhead_s = software_coefficients(workload.software).step_overhead_s.value
    host = host_coefficients(workload.software)
    if host is None or workload.overhead is not None:
        return ()
    counts = host_counts(workload)
    if workload.software_mode is None:
        counts = replace(counts, checkpointed_blocks=0, layers_again=0)
    fitted_to = HostCounts(1, 0, EAGER_TABLES, EAGER_LAYERS, 0) if workload.software_mode else counts
    return host_parts(host, counts, overhead_s / sum(part.seconds for part in host_parts(host, fitted_to)))


def _of_mode(software: SoftwareCoefficients, mode: SoftwareMode | None) -> SoftwareCoefficients:
    """The profile, whose kernels beside products are counted in a stated mode, where they were measured."""
    if mode is None or software.counted_passes is None:
        return software
    return software.model_copy(update={"activation_passes": software.counted_passes})


def kernels_of(workload: Workload) -> str | None:
    """The software whose kernels look up a workload's pooled tables; None without such: other tables have others."""
    return workload.software if any(table.pooled for table in workload.tables) else None


def software_of(workload: Workload) -> SoftwareCoefficients:
    """The software profile of a workload, with the fixed overhead that it states or that its mode has."""
    software = _of_mode(software_coefficients(workload.software), workload.software_mode)
    own = software.step_overhead_s
    if workload.overhead is not None:
        told = {"value": workload.overhead, "kind": "assumed", "source": "stated by the workload", "residual_90": 0.0}
        told |= {"fitted_on": (), "elsewhere_90": None}
    elif workload.software_mode is not None and (parts := host_work(workload)):
        source = f"the host's work in mode {workload.software_mode}, counted; its speed: {own.source}"
        told = {"value": sum(part.seconds for part in parts), "source": source}
    else:
        return software
    return software.model_copy(update={"step_overhead_s": own.model_copy(update=told)})
