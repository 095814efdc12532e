"""`ShardPlanner`: our planner where TorchRec's `EmbeddingShardingPlanner` stands. torch is imported inside."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cost_models.workload.models import Workload
from planner import api
from planner.document import Plan
from planner.integrations.torchrec import to_sharding_plan
from planner.integrations.torchrec_inputs import ModuleReader
from planner.integrations.torchrec_topology import cluster_of
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import load_topology

if TYPE_CHECKING:
    from torch import distributed as dist
    from torch import nn
    from torchrec.distributed.planner.types import ParameterConstraints
    from torchrec.distributed.types import ModuleSharder, ShardingPlan

BATCH = 512
"""Samples of one rank where none are told, as TorchRec's planner takes them."""


class ShardPlanner:
    """Plans the tables of a module: `plan` in one process, `collective_plan` on rank 0 for all.

    `topology` is ours (a model, catalog name or file) or a TorchRec `Topology`. `batch_size` is the samples of one
    rank, `constraints` are TorchRec's by table: shardings, kernels, pooling factors, weights, and `min_partition`, of
    which widths are multiples. The search ends after `time_limit_s`, or `effort` passes. `workload` has what a module
    does not say (optimizer, dense part, precisions, pipeline): its tables and batch are not looked at.

    After a plan, `document` is its plan document.
    """

    def __init__(
        self,
        topology: "Topology | str | Path | Any",
        *,
        batch_size: int = BATCH,
        constraints: "Mapping[str, ParameterConstraints] | None" = None,
        cost_model: str = "physical",
        workload: Workload | None = None,
        time_limit_s: float = 30.0,
        effort: int | None = 1,
        seed: int = 0,
    ) -> None:
        self.compute_device = str(getattr(topology, "compute_device", "cuda"))
        if isinstance(topology, Topology):
            self.topology = topology
        elif isinstance(topology, str | Path):
            self.topology = load_topology(topology)
        else:
            self.topology = cluster_of(topology)
        self.constraints = dict(constraints or {})
        self.document: Plan | None = None
        self._batch_size, self._workload = batch_size, workload
        self._search = {"cost_model": cost_model, "time_limit_s": time_limit_s, "effort": effort, "seed": seed}

    def plan(self, module: "nn.Module", sharders: "Sequence[ModuleSharder[Any]] | None" = None) -> "ShardingPlan":
        """The plan of a module's tables, in the shardings and kernels of its sharders (unset: TorchRec's default ones).

        Raises InputError for modules and tables that cannot be planned, and where nothing fits.
        """
        reader = ModuleReader(self.topology, self.compute_device, self.constraints, self._batch_size, self._workload)
        workload, policy = reader.read(module, sharders)
        found = api.plan(self.topology, workload, policy=policy, simulate=False, **self._search)  # type: ignore[arg-type]
        self.document = found
        if found.objective is None:
            reason = found.infeasibility or found.unplaced
            raise InputError.at(self.topology.name, f"no plan: {reason.summary if reason else found.status}")
        return to_sharding_plan(found, module, compute_device=self.compute_device)

    def collective_plan(
        self,
        module: "nn.Module",
        sharders: "Sequence[ModuleSharder[Any]] | None" = None,
        pg: "dist.ProcessGroup | None" = None,
    ) -> "ShardingPlan":
        """`plan` on rank 0 of the group, handed to all; what it raises there is raised on every rank."""
        from torch import distributed as dist

        result: list[Any] = [None]
        if dist.get_rank(pg) == 0:
            try:
                result = [self.plan(module, sharders)]
            except InputError as error:
                result = [error]
            except Exception as error:  # noqa: BLE001 - the other ranks wait: they must hear of it
                result = [RuntimeError(f"rank 0 could not plan: {error!r}")]
        first = 0 if pg is None else dist.get_global_rank(pg, 0)
        dist.broadcast_object_list(result, src=first, group=pg)
        if isinstance(result[0], Exception):
            raise result[0]
        return result[0]
