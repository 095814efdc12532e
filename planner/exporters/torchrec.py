"""A plan as TorchRec takes it: the dictionary that its ShardingPlan serialises to, and constraints for its planner.

Nothing of torch is imported here. `planner.integrations.torchrec` makes the objects of these dictionaries.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cost_models.shards import COLUMNS_CUT, Ints
from cost_models.torchrec.topology import TorchRecTopology
from cost_models.workload.kernels import DTYPE_OF, SERVED_OF, KernelSettings
from cost_models.workload.table_profile import TableProfile
from planner.document.plan import Plan, TablePlan
from planner.document.replicas import expect_one_world
from planner.exporters.compressor_notes import compressor_notes
from planner.exporters.formats import Exported, ExportRequest
from planner.exporters.host_memory_notes import host_memory_notes
from planner.exporters.modules import module_paths
from planner.exporters.refusals import Placed, refuse
from planner.exporters.stash_notes import expect_unstashed, stash_notes
from planner.exporters.torchrec_dense import dense_notes, expect_replicated
from planner.exporters.torchrec_groups import (
    MODULES,
    Parameters,
    copied_modules,
    dmp_collection,
    submodule_configs,
    with_one_copy,
)
from planner.exporters.torchrec_qcomms import qcomms, qcomms_notes
from topologies.errors import Fault, InputError
from topologies.sentences import every

VERSION = "1.8.0"
"""The TorchRec whose objects are made of these files, and whose runtime was tried."""
KERNELS = {
    "hbm": "fused",
    "hbm_stash_weights": "fused",
    "ddr_cached": "fused_uvm_caching",
    "ddr": "fused_uvm",
}
DATA_TYPES: dict[str, str] = {ours: theirs for of in (DTYPE_OF, *SERVED_OF.values()) for theirs, ours in of.items()}
"""Our words and the names of torchrec.types.DataType."""


def export_plan(request: ExportRequest) -> Exported:
    """Return the dictionary of a ShardingPlan; see `torchrec_plan`."""
    document = torchrec_plan(
        request.plan, modules=request.modules, compute_device=request.device, source=request.source
    )
    return Exported(document, len(request.plan.tables), _notes(request.plan))


def _notes(plan: Plan) -> tuple[str, ...]:
    """What a trainer has to know beside the plan."""
    of_tables = (*qcomms_notes(plan), *_groups_notes(plan), *compressor_notes(plan), *stash_notes(plan))
    placed = Placed.of(plan, "plan")
    return (*of_tables, *dense_notes(placed), *host_memory_notes(placed))


def export_constraints(request: ExportRequest) -> Exported:
    """Return ParameterConstraints; see `torchrec_constraints`."""
    document = torchrec_constraints(request.plan, source=request.source)
    notes = (*qcomms_notes(request.plan), *compressor_notes(request.plan), *stash_notes(request.plan))
    notes += host_memory_notes(Placed.of(request.plan, request.source))
    return Exported(document, len(request.plan.tables), notes)


def export_easyrec(request: ExportRequest) -> Exported:
    """Return TorchEasyRec's plan file, with its environment as the second file; see `easyrec_plan`."""
    document = easyrec_plan(request.plan, modules=request.modules, source=request.source)
    environment = easyrec_environment(request.plan, source=request.source)
    exports = "".join(f"export {name}={value}\n" for name, value in environment.items())
    notes = (*qcomms_notes(request.plan), *compressor_notes(request.plan))
    return Exported(document, len(request.plan.tables), notes, companion=exports)


def torchrec_plan(
    plan: Plan, *, modules: Sequence[str] = (), compute_device: str = "cuda", source: str = "plan"
) -> dict[str, Any]:
    """The dictionary that a ShardingPlan serialises to, with what that leaves out: cache, type, rows and columns; and
    the precision of exchanges (`qcomms`) where the step assumes another than fp32.

    `modules` says where the tables sit (`exporters.modules`). Raises InputError with every table that TorchRec cannot
    execute, and why.
    """
    placed = Placed.of(plan, source)
    refuse(placed, "torchrec")
    if compute_device == "cpu":
        _refuse_on_cpu(placed)
    paths = module_paths(plan, modules, source)
    model, local = placed.model, placed.ranks_of_host
    workload, copies_of = model.workload, copied_modules(model, source)
    plans: dict[str | None, Parameters] = {None: {}} | {module: {} for module in copies_of}
    for (path, name), table, profile in zip(paths, plan.tables, workload.tables, strict=True):
        module = MODULES[profile.pooled] if MODULES[profile.pooled] in copies_of else None
        copies = 1 if module is None else copies_of[module]
        own = local[: len(local) // copies] if model.copies_apart else [ranks // copies for ranks in local]
        kept = with_one_copy(table, copies, model)
        parameter = _parameter(kept, profile, workload.stored_shape(profile), _placements(own, compute_device))
        plans[module].setdefault(path, {})[name] = parameter
    quantized, groups = qcomms(workload), dmp_collection(plan)
    if groups is not None and copies_of:
        groups["submodule_configs"] = submodule_configs(model, copies_of, plans, source)
    return {
        "kind": "torchrec_plan",
        "torchrec": VERSION,
        "world_size": sum(local),
        "local_world_size": local[0] if len(set(local)) == 1 else None,
        "compute_device": compute_device,
        **({} if quantized is None else {"qcomms": quantized}),
        **({} if groups is None else {"dmp_collection": groups}),
        "plan": plans[None],
    }


def _placements(ranks_of_host: Sequence[int], compute_device: str) -> list[str]:
    """The device of each rank, as TorchRec writes it."""
    local_ranks = [here for ranks in ranks_of_host for here in range(ranks)]
    if compute_device == "cpu":
        return [f"rank:{rank}/cpu" for rank in range(len(local_ranks))]
    return [f"rank:{rank}/{compute_device}:{here}" for rank, here in enumerate(local_ranks)]


def _groups_notes(plan: Plan) -> tuple[str, ...]:
    """What a trainer has to do with a plan for groups of ranks."""
    groups = dmp_collection(plan)
    if groups is None:
        return ()
    own = ("world_size", "sharding_group_size", "node_group_size", "use_inter_host_allreduce")
    arguments = ", ".join(f"{name}={groups[name]}" for name in own)
    strategy = f"sharding_strategy=ShardingStrategy.{groups['sharding_strategy']}"
    notes = [f"The plan is that of one group: DMPCollection(..., plan=..., {arguments}, {strategy}) deals it out"]
    if plan.replicas is not None and plan.replicas.rules:
        notes.append("Types of modules with more copies have plans of their own, in submodule_configs")
    if groups["sync_every"] is not None:
        state = groups["state_every"]
        with_state = "never" if state is None else every(state, "step")
        notes.append(
            f"A trainer calls sync() {every(groups['sync_every'], 'step')}, with include_optimizer_state {with_state}"
        )
    return tuple(notes)


def _refuse_on_cpu(placed: Placed) -> None:
    """Raise InputError with every table that TorchRec's CPU kernels do not execute, and for copies that are cut.

    They pool the replicated tables of an EmbeddingCollection, and crash on a rank whose tables have no rows. Copies are
    averaged on a CUDA stream as they are cut (`ShardedBatchedFusedEmbeddingBag` of TorchRec 1.8.0 and 1.9.2).
    """
    faults = []
    if (dmp_collection(placed.plan) or {}).get("sharding_strategy") == "FULLY_SHARDED":
        message = "torchrec cuts copies (FULLY_SHARDED) on GPUs alone; plan with strategy: default"
        faults.append(Fault(placed.source, 0, 0, "replicas.strategy", message))
    for number, (table, profile) in enumerate(zip(placed.plan.tables, placed.model.workload.tables, strict=True)):
        reasons = []
        if table.sharding == "data_parallel" and not profile.pooled:
            reasons.append("it is data_parallel and not pooled, and TorchRec's kernel on CPU pools it")
        if (table.shards.rows == 0).any():
            reasons.append("a rank has none of its rows, and TorchRec's kernels on CPU crash where it has no others")
        faults += [
            Fault(
                placed.source,
                0,
                0,
                f"tables.{number}",
                f"torchrec cannot execute table {table.name!r} on CPU: {reason}; plan with another sharding",
            )
            for reason in reasons
        ]
    if faults:
        raise InputError(faults)


def _parameter(
    table: TablePlan, profile: TableProfile, shape: tuple[int, int], placement: Sequence[str]
) -> dict[str, Any]:
    """One ParameterSharding of a table of so many stored rows and columns."""
    replicated = table.sharding == "data_parallel"
    shards = table.shards.as_matrix()[:, :5]
    shards = shards if replicated else _of_one_width(shards)
    parameter: dict[str, Any] = {
        "sharding_type": table.sharding,
        "compute_kernel": _kernel(table, profile),
        "ranks": shards[:, 0].tolist(),
        "num_embeddings": shape[0],
        "embedding_dim": shape[1],
        "data_type": DATA_TYPES[table.dtype],
    }
    parameter |= _settings(table, profile)
    if not replicated:
        parameter["shards"] = [
            {"shard_offsets": [row, column], "shard_sizes": [rows, columns], "placement": placement[rank]}
            for rank, row, rows, column, columns in shards.tolist()
        ]
    return parameter


def _of_one_width(shards: Ints) -> Ints:
    """Shards [n, 5] (rank, row, rows, column, columns) of a table of which no rank holds blocks of several widths.

    TorchRec takes a table's blocks on a rank for equally wide: it crashes otherwise, or joins parts of other tables to
    them. Where a rank has such blocks, all blocks of the same holders become one: it is all the same which columns
    they are.
    """
    ranks, columns = shards[:, 0], shards[:, 4]
    if all(len(set(columns[ranks == rank].tolist())) == 1 for rank in set(ranks.tolist())):
        return shards
    merged: dict[tuple[int, ...], Ints] = {}
    for column in np.unique(shards[:, 3]):
        block = shards[shards[:, 3] == column]
        block = block[np.argsort(block[:, 1], kind="stable")]
        holders = tuple(block[:, 0].tolist())
        if holders in merged:
            merged[holders][:, 4] += block[:, 4]
        else:
            merged[holders] = block.copy()
    column = 0
    for block in merged.values():
        block[:, 3] = column
        column += int(block[0, 4])
    return np.concatenate(list(merged.values()))


def torchrec_constraints(plan: Plan, *, source: str = "plan") -> dict[str, Any]:
    """ParameterConstraints by table: the plan's sharding, kernel and column width, for TorchRec's own planner to place.

    That planner chooses the ranks itself, and of the widths only the narrowest is told (`min_partition`). Raises
    InputError with every table that TorchRec cannot execute, and why.
    """
    placed = Placed.of(plan, source)
    expect_one_world(plan.replicas, source, "TorchRec's planner plans no groups; export to torchrec, and use that plan")
    refuse(placed, "torchrec")
    expect_replicated(placed, "constraints")
    return {
        "kind": "torchrec_constraints",
        "torchrec": VERSION,
        "constraints": {
            table.name: _constraint(table, profile)
            for table, profile in zip(plan.tables, placed.model.workload.tables, strict=True)
        },
    }


def _constraint(table: TablePlan, profile: TableProfile) -> dict[str, Any]:
    count = profile.feature_count
    constraint: dict[str, Any] = {
        "sharding_types": [table.sharding],
        "compute_kernels": [_kernel(table, profile)],
        "pooling_factors": [profile.pooling_factor / profile.poolings / count] * count,
        "is_weighted": profile.weighted,
    }
    if profile.poolings != 1:
        constraint["num_poolings"] = [profile.poolings] * count
    if table.sharding in COLUMNS_CUT:
        constraint["min_partition"] = int(table.shards.columns.min())
    if not isinstance(profile.features, int):
        constraint["feature_names"] = list(profile.features)
    return constraint | _settings(table, profile)


def _kernel(table: TablePlan, profile: TableProfile) -> str:
    if table.sharding == "data_parallel":
        return "dense"
    return (profile.kernel.hbm_kernel if KERNELS[table.tier] == KERNELS["hbm"] else None) or KERNELS[table.tier]


def _settings(table: TablePlan, profile: TableProfile) -> dict[str, Any]:
    """What the kernel is told, in the words of ParameterSharding; the size of a cache is the plan's."""
    settings = settings_document(profile.kernel)
    if table.cache_fraction is not None:
        precision = {} if profile.precision_cache is None else {"precision": DATA_TYPES["fp32"]}
        settings["cache_params"] = settings.get("cache_params", {}) | precision | {"load_factor": table.cache_fraction}
    return settings


def settings_document(kernel: KernelSettings) -> dict[str, Any]:
    """Settings as plain data with TorchRec's keys; what is unset is left out."""
    return kernel.model_dump(mode="json", exclude_none=True, exclude={"hbm_kernel"})


def easyrec_plan(plan: Plan, *, modules: Sequence[str], source: str = "plan") -> dict[str, Any]:
    """The file `plan` that TorchEasyRec keeps in a checkpoint: sharding, kernel and ranks of each parameter."""
    expect_one_world(plan.replicas, source, "TorchEasyRec trains one world; plan without --replicas")
    whole = torchrec_plan(plan, modules=modules, source=source)["plan"]
    _refuse_precise_caches(Placed.of(plan, source))
    expect_unstashed(plan, source, "torcheasyrec")
    expect_replicated(Placed.of(plan, source), "TorchEasyRec")
    kept = ("sharding_type", "compute_kernel", "ranks")
    return {
        path: {name: {key: parameter[key] for key in kept} for name, parameter in parameters.items()}
        for path, parameters in whole.items()
    }


def _refuse_precise_caches(placed: Placed) -> None:
    """Raise InputError with every table whose cache is to hold fp32: the file has no word for it."""
    words = "torcheasyrec's file has no precision_cache, as"
    faults = [
        Fault(placed.source, 0, 0, f"tables.{number}", f"{words} {table.name!r} has; leave it out of the workload")
        for number, table in enumerate(placed.model.workload.tables)
        if table.precision_cache is not None
    ]
    if faults:
        raise InputError(faults)


def easyrec_environment(plan: Plan, *, source: str = "plan") -> dict[str, str]:
    """The environment variables from which TorchEasyRec takes its topology; bandwidths in bytes per millisecond."""
    placed = Placed.of(plan, source)
    torchrec_topology = TorchRecTopology.from_topology(placed.model.topology)
    reserve = max(group.reserve.hbm for group in placed.model.topology.nodes)
    return {
        "INTRA_NODE_BANDWIDTH": f"{torchrec_topology.intra_host_bytes_per_s / 1000:.0f}",
        "CROSS_NODE_BANDWIDTH": f"{torchrec_topology.inter_host_bytes_per_s / 1000:.0f}",
        "STORAGE_RESERVE_PERCENT": f"{reserve:g}",
        "FORCE_LOAD_SHARDING_PLAN": "1",
    }
