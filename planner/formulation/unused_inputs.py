"""What files state that no step depends on, because another key leaves it without effect.

Values that are defaults are not told from those that were left out.
"""

from collections.abc import Iterator

from cost_models.amounts import Amount
from cost_models.between_domains import sums_in_switches
from cost_models.kinds import RankKind, rank_kinds
from cost_models.workload.dense_part import Dense
from cost_models.workload.models import Workload
from planner.formulation.policy import Policy
from topologies.cluster import NodeGroup, Topology
from topologies.documents import Record

OF_INTERACTION = {"dcn_layers": "dcn", "dcn_low_rank": "dcn", "pool_stride": "pool"}
"""Keys of the dense part that are of one interaction."""


def unused_of_dense(dense: Dense) -> Iterator[str]:
    """Keys of the dense part that say nothing beside its other keys."""
    has_layers = bool(dense.stated_layers) and not dense.layers
    if _is_stated(dense, "interaction") and not has_layers:
        yield "dense.interaction is not used: it is of layers (bottom_mlp, top_mlp), and there are none"
    for key, interaction in OF_INTERACTION.items():
        if _is_stated(dense, key) and (dense.interaction != interaction or not has_layers):
            yield f"dense.{key} is not used: it is of interaction {interaction} between layers"
    if dense.optimizer_state is not None and not dense.keeps_state:
        yield f"dense.optimizer_state is not used: {dense.optimizer} keeps nothing of the dense parameters"
    if dense.sharding is not None and dense.sharding.strategy == "replicate" and _is_stated(dense.sharding, "over"):
        yield "dense.sharding.over is not used: replicate shards nothing"


def unused_of_ingestion(workload: Workload) -> Iterator[str]:
    """The share of a reader's work that goes with ids, where nothing says how much work a reader does."""
    ingestion = workload.ingestion
    if ingestion is not None and ingestion.reader_samples_per_s is None and _is_stated(ingestion, "work_by_ids"):
        yield "ingestion.work_by_ids is not used: it is of reader_samples_per_s, which is missing"


def unused_of_links(topology: Topology, workload: Workload) -> Iterator[str]:
    """Latencies of links whose place measured ones take, or which nothing waits for, and switches that sum nothing."""
    for group, kind in zip(topology.nodes, rank_kinds(topology, workload), strict=True):
        up, pcie, front_end = group.links.scale_up, group.links.pcie, group.links.front_end
        if _is_stated(pcie, "latency") and group.host.scm is None and (up is not None or _is_measured(kind)):
            why = (
                f"accelerators reach each other over {up.kind}" if up else "latencies measured over PCIe take its place"
            )
            yield f"{_path(group, 'pcie')} is not used: {why}, and no storage-class memory waits for it"
        if up is not None and _is_stated(up, "latency") and _is_measured(kind):
            yield f"{_path(group, 'scale_up')} is not used: latencies measured over {up.kind} take its place"
        if front_end is not None and _is_stated(front_end, "latency"):
            yield f"{_path(group, 'front_end')} is not used: rows of remote hosts wait for remote.latency, all of it"
    if topology.network.reduces and not sums_in_switches(topology):
        why = "nothing is summed over the network, as all ranks are in one domain"
        yield f"network.in_network_reduction is not used: {why}"
    elif topology.network.reduces and workload.mode != "training":
        yield "network.in_network_reduction is not used: no gradients are summed where nothing is trained"


def unused_of_tables(workload: Workload) -> Iterator[str]:
    """Names of features that change together, where nothing repeats."""
    if alone := [each.name for each in workload.tables if each.dedup_group is not None and each.deduplication == 1]:
        more = f" and {len(alone) - 1:,} more" if len(alone) > 1 else ""
        yield f"dedup_group of {alone[0]!r}{more} is not used: no dedup_factor or duplicate_share says what repeats"


def unused_of_reserve(topology: Topology, policy: Policy) -> Iterator[str]:
    """What is to be kept free of a memory that the cluster has nowhere."""
    for memory, kept in policy.reserve.amounts().items():
        if kept != Amount() and not any(group.memory_bytes(memory) for group in topology.nodes):
            yield f"reserve.{memory} of the policy is not used: {topology.name} has no {memory}"


def _path(group: NodeGroup, link: str) -> str:
    return f"links.{link}.latency of the nodes {group.name}"


def _is_measured(kind: RankKind) -> bool:
    """Whether no collective inside a domain takes the latency that the topology states."""
    protocols = (*kind.exchange_protocols, *kind.reduction_protocols)
    return all(each.latency_s is not None for each in protocols)


def _is_stated(record: Record, key: str) -> bool:
    return bool(getattr(record, key) != type(record).model_fields[key].default)
