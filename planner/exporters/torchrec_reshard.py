"""From one plan to another while a trainer of TorchRec's runs: the tables that `reshard` moves.

Nothing of torch is imported here. `planner.integrations.torchrec_runtime` makes the objects of these dictionaries.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile
from planner.document.plan import Plan
from planner.document.planned import planned_inputs
from planner.document.replicas import expect_one_world
from planner.exporters.formats import Exported, ExportRequest
from planner.exporters.torchrec import VERSION, torchrec_plan
from planner.exporters.torchrec_qcomms import qcomms_notes
from topologies.errors import Fault, InputError

RESHARDED = ("table_wise", "column_wise")
"""Ways between whose ranks `DistributedModelParallel.reshard` moves tables (TorchRec 1.8, dynamic_sharding.py)."""
MOVABLE_STATE = ("sgd", "rowwise_adagrad", "adagrad")
"""Optimizers of which it moves all state: of others, one array of two."""
Entries = dict[str, dict[str, dict[str, Any]]]
"""ParameterSharding by module path and table."""
USE = (
    "In the trainer call planner.integrations.torchrec_runtime.reshard with both plans:"
    " DistributedModelParallel.reshard alone may leave features in their old order"
)


def export(request: ExportRequest) -> Exported:
    """Return the tables that `reshard` moves; see `torchrec_reshard`."""
    assert request.previous is not None
    document = torchrec_reshard(
        request.previous,
        request.plan,
        modules=request.modules,
        compute_device=request.device,
        sources=(request.previous_source, request.source),
    )
    return Exported(document, sum(map(len, document["plan"].values())), (*qcomms_notes(request.plan), USE))


def torchrec_reshard(
    before: Plan,
    after: Plan,
    *,
    modules: Sequence[str] = (),
    compute_device: str = "cuda",
    sources: tuple[str, str] = ("the former plan", "plan"),
) -> dict[str, Any]:
    """What `DistributedModelParallel.reshard` needs to go from one plan to another: the tables that change, by module.

    It moves weights and optimizer state of bags in HBM, between ranks, whole or column by column. Raises InputError
    with every table whose change is another one, and why: such a plan needs a start from a checkpoint.
    """
    for plan, source in zip((before, after), sources, strict=True):
        expect_one_world(plan.replicas, source, "reshard knows one world; start from a checkpoint")
    was, now = (
        torchrec_plan(plan, modules=modules, compute_device=compute_device, source=source)
        for plan, source in zip((before, after), sources, strict=True)
    )
    faults = list(_other_runs(was, now, sources[1]))
    workload = planned_inputs(after)[1]
    profiles = {table.name: table for table in workload.tables}
    entries: Entries = {}
    for path, tables in now["plan"].items() if not faults else ():
        for name, entry in tables.items():
            former = was["plan"][path][name]
            if former == entry:
                continue
            profile = profiles.get(name, profiles.get(f"{path}.{name}"))
            reasons = list(_unmovable(former, entry, profile, workload))
            remedy = "keep it where it is, or start from a checkpoint"
            faults += [
                Fault(sources[1], 0, 0, f"{path}.{name}".lstrip("."), f"reshard cannot move it: {reason}; {remedy}")
                for reason in reasons
            ]
            entries.setdefault(path, {})[name] = entry
    if faults:
        raise InputError(faults)
    head = {key: now[key] for key in ("world_size", "local_world_size", "compute_device")}
    return {"kind": "torchrec_reshard", "torchrec": VERSION, **head, "plan": entries}


def _other_runs(was: Mapping[str, Any], now: Mapping[str, Any], source: str) -> Iterator[Fault]:
    """Why the two are not plans of one run."""
    if was["world_size"] != now["world_size"]:
        message = f"is for {now['world_size']} ranks and the former for {was['world_size']}: start from a checkpoint"
        yield Fault(source, 0, 0, "ranks", message)
    tables = [{(path, name) for path, of in each["plan"].items() for name in of} for each in (was, now)]
    for word, names in (("lacks", tables[0] - tables[1]), ("has, and the former lacks,", tables[1] - tables[0])):
        if names:
            shown = ", ".join(sorted(f"{path}.{name}".lstrip(".") for path, name in names)[:5])
            yield Fault(source, 0, 0, "tables", f"{word} {shown}: start from a checkpoint")


def _unmovable(
    was: Mapping[str, Any], now: Mapping[str, Any], profile: TableProfile | None, workload: Workload
) -> Iterator[str]:
    """Why `reshard` of TorchRec 1.8 does not bring a table from one way to another."""
    if was["sharding_type"] != now["sharding_type"]:
        yield f"it goes from {was['sharding_type']} to {now['sharding_type']}, and the way has to stay"
    elif now["sharding_type"] not in RESHARDED:
        yield f"it is {now['sharding_type']}, and only {' and '.join(RESHARDED)} tables move"
    for each, plan in ((was, "former"), (now, "new")):
        if each["compute_kernel"] != "fused":
            yield f"its kernel in the {plan} plan is {each['compute_kernel']}, and only fused ones move"
    if any(was[key] != now[key] for key in ("num_embeddings", "embedding_dim", "data_type")):
        yield "its rows, columns or type change"
    if "shards" not in was or "shards" not in now or was["sharding_type"] != now["sharding_type"]:
        return
    if len(set(now["ranks"])) < len(now["ranks"]):
        yield "a rank of the new plan has several of its shards, and each may have one"
    if profile is None:
        return
    if not profile.pooled:
        yield "it is of an EmbeddingCollection, whose sharder does not reshard"
    optimizer = workload.optimizer_of(profile)
    if optimizer not in MOVABLE_STATE:
        yield f"{optimizer} has two state arrays, of which one moves"
    if optimizer == "rowwise_adagrad" and _cuts(was) != _cuts(now):
        yield "its columns are cut elsewhere, and the state of rowwise_adagrad is one of each cut"


def _cuts(entry: Mapping[str, Any]) -> list[int]:
    return [shard["shard_sizes"][1] for shard in entry["shards"]]
