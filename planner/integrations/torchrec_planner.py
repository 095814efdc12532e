"""`ShardPlanner`: our planner where TorchRec's `EmbeddingShardingPlanner` stands.

It is a planner of TorchRec's (isinstance), so that importing this module imports torch and torchrec; nothing of ours
imports it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from time import perf_counter
from typing import Any

from pydantic import ValidationError
from torch import distributed as dist
from torch import nn
from torchrec.distributed.planner import types
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingPlannerBase
from torchrec.distributed.planner.planners import to_sharding_plan as plan_of_options
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Partitioner,
    PerfModel,
    PlanDebugStats,
    PlanLoader,
    PlannerError,
    PlannerErrorType,
    Proposer,
    ShardingOption,
    Stats,
    StorageReservation,
)
from torchrec.distributed.planner.types import Topology as TheirTopology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ModuleSharder, ShardingPlan, ShardingStrategy

from cost_models.dense import parameter_bytes
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.exporters.torchrec_groups import dmp_collection
from planner.formulation.replica_choices import ReplicaChoices
from planner.integrations.torchrec import to_sharding_plan
from planner.integrations.torchrec_collections import Collection, sharded_collections
from planner.integrations.torchrec_components import DeferredEnumerator, expect_defaults, expect_same
from planner.integrations.torchrec_errors import ShardPlannerError
from planner.integrations.torchrec_inputs import ModuleReader
from planner.integrations.torchrec_options import sharding_options, with_loaded_shards
from planner.integrations.torchrec_reservation import their_topology, with_more_reserved
from planner.integrations.torchrec_search import ModuleSearch, Reservation, expect_room, weight_bytes
from planner.integrations.torchrec_topology import cluster_of
from topologies.cluster import Topology
from topologies.errors import Fault, InputError
from topologies.loading import load_topology

TIME_LIMIT_S = 30.0
_UNHASHABLE: Any = getattr(types, "PlannerContextFingerprintError", ())
"""What newer TorchRecs raise for inputs that they have no lasting hash of."""

_log = logging.getLogger(__name__)


class ShardPlanner(EmbeddingPlannerBase):  # type: ignore[misc]
    """Plans the tables of a module: `plan` in one process, `collective_plan` on rank 0 for all.

    The arguments up to `plan_loader` are those of `EmbeddingShardingPlanner`, in its order. `topology` may be ours too
    (a model, catalog name or file); unset, it is that of the process group. `batch_size` is the samples of one rank,
    512 where it is unset. `storage_reservation` says what is kept free; unset, that is what our topology reserves, and
    15 % of HBM of a TorchRec Topology. `callbacks` change the plan's ShardingOptions, and `stats` report them with the
    times and bytes that TorchRec's estimators give them. `enumerator`, `proposer`, `partitioner` and
    `performance_model` are parts of another search: defaults are accepted, others refused. `timeout_seconds` ends the
    search; so does `time_limit_s`, or `effort` passes. `workload` has what a module does not say (dense part,
    precisions, pipeline): its tables and batch are not looked at. `replicas` are the copies of the tables that
    DMPCollection is to hold: a number, or a policy's choices; `topology` is then that of all ranks, the plan that of
    one group, and `dmp_arguments` says the rest.

    After a plan, `document` is its plan document; None where a `plan_loader` had the plan, or callbacks changed it.
    """

    def __init__(
        self,
        topology: TheirTopology | Topology | str | Path | None = None,
        batch_size: int | None = None,
        enumerator: EmbeddingEnumerator | None = None,
        storage_reservation: StorageReservation | None = None,
        proposer: Proposer | list[Proposer] | None = None,
        partitioner: Partitioner | None = None,
        performance_model: PerfModel | None = None,
        stats: Stats | list[Stats] | None = None,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        debug: bool = True,
        callbacks: list[Callable[[list[ShardingOption]], list[ShardingOption]]] | None = None,
        timeout_seconds: int | None = None,
        plan_loader: PlanLoader | None = None,
        *,
        cost_model: str = "physical",
        workload: Workload | None = None,
        replicas: int | ReplicaChoices | None = None,
        time_limit_s: float | None = None,
        effort: int | None = 1,
        seed: int = 0,
    ) -> None:
        ours = load_topology(topology) if isinstance(topology, str | Path) else topology
        ours = ours if isinstance(ours, Topology) else None
        super().__init__(
            topology=topology if ours is None else their_topology(ours),
            batch_size=batch_size or getattr(enumerator, "_batch_size", None),
            enumerator=enumerator,
            storage_reservation=storage_reservation,
            stats=stats,
            constraints=constraints or getattr(enumerator, "_constraints", None),
            debug=debug,
            callbacks=callbacks,
            timeout_seconds=timeout_seconds,
        )
        parts = {"enumerator": enumerator, "proposer": proposer, "partitioner": partitioner}
        expect_defaults(self._topology, **parts, performance_model=performance_model)
        self._enumerator: Any = DeferredEnumerator(self._enumerator)
        self.compute_device = str(self._topology.compute_device)
        self._cluster = ours
        self.constraints = dict(self._constraints or {})
        self.plan_loader = plan_loader
        self.document: Plan | None = None
        self._reserves = storage_reservation is not None
        self._workload, self._cost_model = workload, cost_model
        self._replicas = ReplicaChoices(factor=replicas, layout="intra") if isinstance(replicas, int) else replicas
        if self._replicas is not None and self._replicas.rules:
            message = "rules: the planner of one module gives all its tables as many copies; use planner plan"
            raise ShardPlannerError.of("replicas", message, PlannerErrorType.INPUT_VALIDATION)
        if self._replicas is not None and (callbacks or plan_loader is not None):
            what = "callbacks" if callbacks else "plan_loader"
            message = "knows one world of ranks; leave it out, or replicas"
            raise ShardPlannerError.of(what, message, PlannerErrorType.INPUT_VALIDATION)
        limit_s = min((each for each in (time_limit_s, timeout_seconds) if each is not None), default=TIME_LIMIT_S)
        self._search = {"time_limit_s": limit_s, "effort": effort, "seed": seed}
        self._num_proposals = self._num_plans = 0
        self._best_plan: list[ShardingOption] | None = None

    @property
    def topology(self) -> Topology:
        """The cluster, as ours."""
        if self._cluster is None:
            self._cluster = cluster_of(self._topology)
        return self._cluster

    def plan(self, module: nn.Module, sharders: Sequence[ModuleSharder[Any]] | None = None) -> ShardingPlan:
        """The plan of a module's tables, in the shardings and kernels of its sharders (unset: TorchRec's default ones).

        Modules without a sharder are left out. Raises ShardPlannerError (TorchRec's PlannerError and our InputError)
        for modules and tables that cannot be planned, and where nothing fits.
        """
        started = perf_counter()
        known = get_default_sharders() if sharders is None else list(sharders)
        self._num_proposals = self._num_plans = 0
        self._best_plan = self.document = None
        try:
            expect_same(self._enumerator, self._topology, self._batch_size, self._constraints)
            collections = sharded_collections(module, known)
            if not collections:
                return ShardingPlan({})
            reservation = self._reservation(module, known)
            # Where the weights exceed all memory, TorchRec's planner proposes once; nothing if its reservation leaves
            # no memory.
            self._num_proposals = int(reservation.left is not None)
            expect_room(collections, self._topology, self._storage_reservation)
            self._num_proposals = 0
            self._enumerator.ask(module, known)
            options = self._chosen(module, known, collections, reservation)
        except ShardPlannerError:
            if self._num_proposals:  # and none of them is a plan
                self._report(ShardingPlan({}), [], known, perf_counter() - started)
            raise
        except InputError as error:
            raise ShardPlannerError(error.faults) from error
        except PlannerError as error:  # of the storage reservation
            message = " ".join(str(error).split())
            raise ShardPlannerError.of("storage_reservation", message, error.error_type) from error
        except ValidationError as error:
            faults = (Fault("module", 0, 0, ".".join(map(str, each["loc"])), each["msg"]) for each in error.errors())
            raise ShardPlannerError(faults) from error
        plan = planned = plan_of_options(options, self._topology)
        for callback in self._callbacks:
            options = callback(options)
            plan = plan_of_options(options, self._topology)
        if plan != planned:
            self.document = None
        self._best_plan = options
        self._report(plan, options, known, perf_counter() - started)
        return plan

    def collective_plan(
        self,
        module: nn.Module,
        sharders: Sequence[ModuleSharder[Any]] | None = None,
        pg: dist.ProcessGroup | None = None,
    ) -> ShardingPlan:
        """`plan` on rank 0 of the group, handed to all; what it raises there is raised on every rank, as is an error
        where the group has other ranks than the topology."""
        self._expect_ranks(dist.get_world_size(pg))
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

    def _expect_ranks(self, ranks: int) -> None:
        told = self._topology.world_size
        if ranks == told:
            return
        message = f"has {told} ranks, and the process group {ranks}; give the topology of all {ranks} ranks"
        if ranks > told and ranks % told == 0:
            message += f" (for DMPCollection, in groups of {told}, with replicas={ranks // told})"
        raise ShardPlannerError.of("topology", message, PlannerErrorType.INPUT_VALIDATION)

    @property
    def dmp_arguments(self) -> dict[str, Any]:
        """Arguments of DMPCollection for the last plan: its groups of ranks. Raises ValueError where it has none."""
        groups = None if self.document is None else dmp_collection(self.document)
        if groups is None:
            raise ValueError("the last plan is for one world of ranks: use DistributedModelParallel")
        own = {key: value for key, value in groups.items() if key not in ("sync_every", "state_every")}
        return own | {"sharding_strategy": ShardingStrategy[groups["sharding_strategy"]]}

    def get_selected_options(self) -> list[ShardingOption]:
        """The options of the last plan, by table, with their ranks; none before."""
        return self._best_plan or []

    def get_search_space(self) -> list[ShardingOption] | None:
        """The options that TorchRec's planner would choose from for the module that was planned last."""
        return self._enumerator.last_stored_search_space  # type: ignore[no-any-return]

    def _chosen(
        self,
        module: nn.Module,
        sharders: Sequence[ModuleSharder[Any]],
        collections: Sequence[Collection],
        reservation: Reservation,
    ) -> list[ShardingOption]:
        """The options of the plan that the loader has, or else of the best that is found, estimated by TorchRec."""
        cluster = reservation.reserved()
        stored = self._stored()
        if stored is not None:
            space = self._enumerator.last_stored_search_space or []
            return with_loaded_shards(space, stored, collections)
        told = getattr(self._storage_reservation, "_dense_tensor_estimate", None) if self._reserves else None
        reader = ModuleReader(cluster, self.compute_device, self.constraints, self._batch_size, self._workload, told)
        workload, policy = reader.read(module, sharders)
        dense = parameter_bytes(workload)
        if self._reserves:  # what is reserved has room for the dense part, which our cost model counts
            cluster = with_more_reserved(cluster, -dense)
        if self._cost_model != "physical":
            cluster = with_more_reserved(cluster, dense)
        if self._replicas is not None:
            policy = policy.model_copy(update={"replicas": self._replicas})
        search = ModuleSearch(reservation, self._cost_model, self._workload, self._search, weight_bytes(collections))
        self._num_proposals = 1
        self.document = search.plan(cluster, workload, policy)
        self._num_plans = 1
        plan = to_sharding_plan(self.document, module, compute_device=self.compute_device, sharders=sharders)
        ranks = len(self.document.ranks)
        options = sharding_options(plan, collections, self.constraints, self._batch_size, world_size=ranks)
        self._enumerator.populate_estimates(options)
        return options

    def _reservation(self, module: nn.Module, sharders: Sequence[ModuleSharder[Any]]) -> Reservation:
        """What is kept free of the cluster for a module."""
        left: TheirTopology | None
        try:
            left = self._storage_reservation.reserve(
                self._topology, self._batch_size, module, list(sharders), self._constraints
            )
        except PlannerError:
            if self._reserves or self.plan_loader is not None:
                raise
            left = None  # the default one reserves a dense part six times
        return Reservation(self.topology, self._topology, left, self._storage_reservation, self._reserves)

    def _stored(self) -> dict[int, ShardingOption] | None:
        """What the loader has, for the inputs at hand; None: nothing."""
        if self.plan_loader is None:
            return None
        try:
            own, stored = self.hash_planner_context_inputs_str(), self.plan_loader.plan_context_hash()
        except _UNHASHABLE as error:
            _log.warning("planned again: nothing says whether the stored plan is for these inputs (%s)", error)
            return None
        if stored is not None and stored != own:
            name = getattr(self.plan_loader, "get_plan_id", lambda: "the stored plan")()
            message = (
                f"planner input mismatch: {name} was made for other inputs (hash {stored}) than these (hash {own});"
                " plan for these without the loader, and store that"
            )
            raise ShardPlannerError.of("plan_loader", message, PlannerErrorType.PLANNER_INPUT_CONTEXT_MISMATCH)
        loaded = self.plan_loader.load()
        return None if loaded is None else deepcopy(loaded)

    def _report(
        self, plan: ShardingPlan, options: list[ShardingOption], sharders: list[ModuleSharder[Any]], seconds: float
    ) -> None:
        """Tell `stats`; without options: that a search found no plan."""
        for stats in self._stats:
            stats.log(
                sharding_plan=plan,
                topology=self._topology,
                batch_size=self._batch_size,
                storage_reservation=self._storage_reservation,
                num_proposals=self._num_proposals,
                num_plans=self._num_plans,
                run_time=seconds,
                best_plan=options,
                constraints=self._constraints,
                sharders=sharders,
                enumerator=self._enumerator,
                debug=self._debug,
                debug_stats=PlanDebugStats(type(self).__name__, self._timeout_seconds),
            )
