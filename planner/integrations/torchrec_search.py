"""The search for the plan of a module's tables, on what a storage reservation leaves of a cluster."""

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchrec.distributed.planner.types import PlannerErrorType, StorageReservation
from torchrec.distributed.planner.types import Topology as TheirTopology

from cost_models.dense import parameter_bytes
from cost_models.shards import HOME_OF_TIER
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.document.reasons import Infeasibility
from planner.formulation.policy import Policy
from planner.integrations.torchrec_collections import Collection
from planner.integrations.torchrec_errors import ShardPlannerError
from planner.integrations.torchrec_inputs import in_pipeline_of_estimators
from planner.integrations.torchrec_reservation import described, with_reserved
from planner.planning import planning as api
from topologies.cluster import Topology
from topologies.errors import Fault
from topologies.units import format_bytes

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reservation:
    """What a storage reservation keeps free of a cluster."""

    topology: Topology
    """The cluster, as ours, before anything is reserved."""
    theirs: TheirTopology
    left: TheirTopology | None
    """What the reservation leaves of TorchRec's topology; None where it leaves nothing."""
    reservation: StorageReservation
    is_asked: bool
    """Whether a user gave it; if not, our topology says what is kept free."""

    def reserved(self) -> Topology:
        """The cluster, with what is kept free on it."""
        if self.left is None or not self.is_asked:
            return self.topology
        return with_reserved(self.topology, self.theirs, self.left, self.reservation)

    def beside(self, dense_bytes: float) -> Topology | None:
        """The cluster beside all that is reserved and a dense part of so many bytes; None where that leaves nothing."""
        if self.left is None:
            return None
        try:
            return with_reserved(self.topology, self.theirs, self.left, self.reservation, dense_bytes)
        except ShardPlannerError:
            return None

    @property
    def words(self) -> str:
        """What is reserved, in words."""
        return f"reserved: {described(self.reservation)}"


def expect_room(collections: Sequence[Collection], topology: TheirTopology, reservation: StorageReservation) -> None:
    """Raise ShardPlannerError where the weights alone exceed all memory that there is."""
    room = sum(device.storage.hbm + device.storage.ddr for device in topology.devices)
    weights = weight_bytes(collections)
    if weights > room:
        message = (
            f"no plan: the weights of the tables take {format_bytes(weights)}, and HBM and DDR together have"
            f" {format_bytes(room)}; train on more ranks, or smaller tables (reserved: {described(reservation)})"
        )
        raise ShardPlannerError.of("module", message, PlannerErrorType.INSUFFICIENT_STORAGE)


@dataclass(frozen=True)
class ModuleSearch:
    """Searches by our cost model and, where nothing fits by our count of memory, by TorchRec's."""

    reservation: Reservation
    cost_model: str
    given_workload: Workload | None
    """What the user said beside the module."""
    limits: Mapping[str, Any]
    """Arguments of `planner.plan` that end the search."""
    weight_bytes: int

    def plan(self, cluster: Topology, workload: Workload, policy: Policy) -> Plan:
        """The best plan that is found, by our count of memory (which has outputs, their gradients and what ranks
        receive); where none is, by TorchRec's, with a warning."""
        plan = self._by_count(self.cost_model, cluster, workload, policy)
        if plan.objective is None and self.cost_model == "physical":
            theirs = self._by_their_count(workload, policy)
            if theirs is not None and theirs.objective is not None:
                why = plan.infeasibility or plan.unplaced
                _log.warning(
                    "the plan fits by TorchRec's count of memory and rating alone, and may run out of memory; by ours,"
                    " with outputs and gradients in flight, %s",
                    why.summary if why else plan.status,
                )
                plan = theirs
        if plan.objective is None:
            raise self._no_plan(plan, workload, policy)
        return plan

    def _by_count(self, cost_model: str, cluster: Topology, workload: Workload, policy: Policy) -> Plan:
        if cost_model == "torchrec":
            workload = in_pipeline_of_estimators(workload, self.given_workload)
        return api.plan(cluster, workload, policy=policy, simulate=False, cost_model=cost_model, **self.limits)

    def _by_their_count(self, workload: Workload, policy: Policy) -> Plan | None:
        """The best plan by TorchRec's count and rating, beside all that its reservation takes, and the dense part by
        ours; None where that leaves nothing."""
        if policy.replicas is not None:  # their count knows one world
            return None
        rest = self.reservation.beside(parameter_bytes(workload))
        return None if rest is None else self._by_count("torchrec", rest, workload, policy)

    def _no_plan(self, plan: Plan, workload: Workload, policy: Policy) -> ShardPlannerError:
        """The error of a search without a plan: why, and the smallest changes that help."""
        reason, source = plan.infeasibility or plan.unplaced, self.reservation.topology.name
        tables = reason.tables if reason else ()
        helpful = [remedy.words for remedy in reason.remedies if remedy.flags is not None] if reason else []
        message = f"no plan: {reason.summary if reason else plan.status}"
        message += f"; what would help, each alone: {'; '.join(helpful)}" if helpful else ""
        message += f" ({self.reservation.words})" if self.reservation.is_asked else ""
        faults = [Fault(source, 0, 0, "", message)]
        faults += [Fault(source, 0, 0, each.name, f"{format_bytes(each.bytes)}: {each.reason}") for each in tables]
        is_short = plan.infeasibility is not None and (
            bool(plan.infeasibility.memory_multipliers)
            or self.weight_bytes > _room_bytes(plan.infeasibility, policy)
            or parameter_bytes(workload) * self.reservation.theirs.world_size
            > _capacity_bytes(plan.infeasibility, ("hbm",))
        )
        return ShardPlannerError(
            faults, PlannerErrorType.INSUFFICIENT_STORAGE if is_short else PlannerErrorType.STRICT_CONSTRAINTS
        )


def weight_bytes(collections: Sequence[Collection]) -> int:
    """The bytes of all tables' weights, those of a shared module once."""
    return sum(
        parameter.numel() * parameter.element_size()
        for parameters in {id(each.module): each.parameters for each in collections}.values()
        for parameter in parameters.values()
    )


def _room_bytes(reason: Infeasibility, policy: Policy) -> int:
    """What the memories have that some table may be in."""
    return _capacity_bytes(
        reason, {"hbm", *(HOME_OF_TIER[tier] for rule in policy.tables for tier in rule.tiers or ())}
    )


def _capacity_bytes(reason: Infeasibility, memories: Container[str]) -> int:
    return sum(tier.capacity_bytes for tier in reason.tiers if tier.tier in memories)
