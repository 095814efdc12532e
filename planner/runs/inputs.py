"""What a run is of: its cluster with some number of nodes, its model with some batch, its policy, prices and plan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from cost_models.workload.loading import changed_workload
from cost_models.workload.models import Workload
from planner.capacity.prices import PriceSheet, load_prices
from planner.capacity.sizing import group_index
from planner.document.plan import Plan
from planner.formulation.dense_choices import expect_one_strategy
from planner.formulation.policy import Policy, policy_document
from planner.runs.run import Run
from planner.studies.inputs import named_in
from planner.verification.loading import load_plan
from topologies.cluster import Topology
from topologies.documents import Document, Key, Origin, assign_everywhere, validate
from topologies.errors import Fault, InputError
from topologies.loading import changed_topology

Made = TypeVar("Made")
Changes = Sequence[tuple[str, Any, Origin]]
"""Fields of an input that a run's axes change: path, value, and where that is said."""


@dataclass
class RunInputs:
    """The inputs of a run, each made once."""

    run: Run
    document: Document
    changes: Mapping[str, Changes] = field(default_factory=dict)
    """By input: topology, workload, policy."""
    _topologies: dict[int | None, Topology] = field(default_factory=dict)
    _workloads: dict[tuple[int | None, int], Workload] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises InputError with what is wrong with any of them."""
        faults: list[Fault] = []
        for make in (
            self._base_topology,
            self._base_workload,
            lambda: self.policy,
            lambda: self.prices,
            lambda: self.plan,
        ):
            try:
                make()
            except InputError as error:
                faults += error.faults
        if faults:
            raise InputError(dict.fromkeys(faults))

    @property
    def own_batch(self) -> int | None:
        """The batch of the workload; None where it says the batch of a rank."""
        return self._base_workload().global_batch

    @property
    def own_nodes(self) -> int:
        """Nodes of the group that stages number."""
        return self._base_topology().nodes[self._group].count

    def topology(self, nodes: int, where: tuple[Key, ...] = ()) -> Topology:
        """The cluster with so many nodes, as the document says at `where`. Raises InputError for what cannot be."""
        if nodes == self.own_nodes:
            return self._base_topology()
        if nodes not in self._topologies:
            count = (f"nodes.{self._group}.count", nodes, (self.document, (*where, "nodes")))
            self._topologies[nodes] = self._changed_topology([count])
        return self._topologies[nodes]

    def workload(self, batch: int, extra_bytes: int = 0, where: tuple[Key, ...] = ()) -> Workload:
        """The model with a batch, where every rank holds so many bytes more. Raises InputError."""
        if (batch, extra_bytes) not in self._workloads:
            changes: Changes = [("global_batch", batch, (self.document, (*where, "global_batch")))]
            made = self._changed_workload(changes)
            if extra_bytes:
                more = {"extra_bytes": made.dense.extra_bytes + extra_bytes}
                made = made.model_copy(update={"dense": made.dense.model_copy(update=more)})
            self._workloads[batch, extra_bytes] = made
        return self._workloads[batch, extra_bytes]

    @cached_property
    def policy(self) -> Document:
        """The policy, checked, as it was written."""
        document = self._named("policy", policy_document) if self.run.policy is not None else policy_document(None)
        for path, value, origin in self.changes.get("policy", ()):
            assign_everywhere(document, path, value, Policy, origin)
        policy = validate(document, Policy)
        policy.expect_nominal("the steps of a run are")
        policy.expect_stated_tables("the steps of a run are")
        expect_one_strategy(policy.dense, "the stages of a run are")
        policy.expect_no_moves()
        if policy.replicas is not None:
            message = "the stages of a run are planned as one world; leave replicas out of its policy"
            raise InputError([document.fault(("replicas",), message)])
        return document

    @cached_property
    def prices(self) -> PriceSheet | None:
        """The price sheet, where there is one."""
        return None if self.run.prices is None else self._named("prices", load_prices)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan that all stages run under, where one is given. Raises InputError for one that places nothing."""
        if self.run.plan is None:
            return None
        plan = self._named("plan", load_plan)
        if plan.objective is None:
            raise InputError([self.document.fault(("plan",), f"is {plan.status}: it places no tables; give another")])
        return plan

    def _base_topology(self) -> Topology:
        if None not in self._topologies:
            self._topologies[None] = self._changed_topology([])
            _ = self._group
        return self._topologies[None]

    @cached_property
    def _group(self) -> int:
        topology = self._topologies[None]
        try:
            return group_index(topology, self.run.group)
        except InputError as error:
            raise InputError(self.document.fault(("group",), fault.message) for fault in error.faults) from None

    def _base_workload(self) -> Workload:
        if (None, 0) not in self._workloads:
            workload = self._changed_workload([])
            if workload.mode != "training":
                message = f"{workload.name} is of mode {workload.mode}; a run trains: take one of mode training"
                raise InputError([self.document.fault(("workload",), message)])
            self._workloads[None, 0] = workload
        return self._workloads[None, 0]

    def _changed_topology(self, more: Changes) -> Topology:
        changes = [*self.changes.get("topology", ()), *more]
        return self._named("topology", lambda source: changed_topology(source, changes))

    def _changed_workload(self, more: Changes) -> Workload:
        changes = [*self.changes.get("workload", ()), *more]
        return self._named("workload", lambda source: changed_workload(source, changes))

    def _named(self, key: str, make: Callable[[str | Path], Made]) -> Made:
        return named_in(self.document, (key,), getattr(self.run, key), make)
