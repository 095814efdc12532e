"""What a runtime cannot execute: every table with its reason, in one error."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import COLUMN_WISE, ROWS_OF_NODE
from cost_models.workload.table_profile import TableProfile
from planner.document.plan import Plan, TablePlan
from planner.document.planned import planned_model
from planner.formulation.runtimes import RUNTIMES, Runtime
from planner.verification.coverage import coverage_fault
from topologies.errors import Fault, InputError


@dataclass(frozen=True)
class Placed:
    """A plan that places something, beside the models that it was computed with."""

    plan: Plan
    model: CostModel
    source: str
    """What messages call the plan."""

    @classmethod
    def of(cls, plan: Plan, source: str) -> "Placed":
        """Raises InputError for a plan that places nothing."""
        if plan.objective is None:
            raise InputError.at(source, f"is {plan.status} and places nothing: there is nothing to export")
        return cls(plan, planned_model(plan), source)

    @property
    def ranks_of_host(self) -> list[int]:
        """Ranks of each host."""
        counts: list[int] = np.bincount(self.model.host_of_rank).tolist()
        return counts


def refuse(placed: Placed, runtime: Runtime) -> None:
    """Raise InputError with every table that the runtime does not execute correctly, and why."""
    expect_own_tables(placed)
    exchange = placed.model.exchange
    if exchange not in RUNTIMES[runtime].exchanges:
        message = f"{runtime} has no exchange {exchange}, and the plan is made for it; plan with --exchange flat"
        raise InputError.at(placed.source, message, path="provenance.exchange")
    faults = [
        Fault(placed.source, 0, 0, f"tables.{number}", f"{runtime} cannot execute table {table.name!r}: {reason}")
        for number, table in enumerate(placed.plan.tables)
        for reason in _reasons(placed, table, number, runtime)
    ]
    if faults:
        raise InputError(faults)


def expect_own_tables(placed: Placed) -> None:
    """Raise InputError where the tables of the plan are not those of its workload."""
    if [table.name for table in placed.plan.tables] != [table.name for table in placed.model.workload.tables]:
        message = "are not those of the plan's workload, in its order: the plan was changed; make it again"
        raise InputError.at(placed.source, message, path="tables")


def _stored_otherwise(model: CostModel, table: TablePlan, profile: TableProfile, runtime: Runtime) -> Iterator[str]:
    """Formats and compressors that the runtime does not have."""
    rules = RUNTIMES[runtime]
    if (compressor := model.workload.compressor_of(profile)).kind not in rules.compressors:
        parts = "two tables on the same ranks, whose vectors are combined there"
        yield f"it is {compressor}, {parts}, and {runtime} has no module for that; hold it whole, or as hash or dim"
    formats = rules.dtypes_in(model.workload.mode)
    if table.dtype not in formats:
        yield f"its rows are {table.dtype}, and only {', '.join(formats)} can be"


def _reasons(placed: Placed, table: TablePlan, number: int, runtime: Runtime) -> Iterator[str]:
    rules, model = RUNTIMES[runtime], placed.model
    profile = model.workload.tables[number]
    remedy = f"plan with --runtime {runtime}"
    yield from _stored_otherwise(model, table, profile, runtime)
    is_rows = (
        table.sharding == "column_wise" and COLUMN_WISE in model.node_colocated_shardings
    )  # HugeCTR's rows over some ranks
    if table.tier not in rules.tiers:
        yield f"it is held in {table.tier}, and only {', '.join(rules.tiers)} can be; {remedy}"
    elif profile.precision_cache is not None and table.tier not in rules.precise_caches:
        beside = "its hottest rows are held in fp32 beside it (precision_cache)"
        yield f"{beside}, and {runtime} has no such cache; {remedy}"
    if table.optimizer_state not in rules.state_places:
        yield f"its optimizer state is in {table.optimizer_state}, and {runtime} keeps it where the rows are; {remedy}"
    if table.sharding not in rules.shardings and not (runtime == "hugectr" and is_rows):
        yield f"it is {table.sharding}, and only {', '.join(rules.shardings)} can be; {remedy}"
        return
    if table.sharding in rules.needs_equal_nodes and len(set(placed.ranks_of_host)) > 1:
        yield f"{table.sharding} needs as many ranks on every node; {remedy}"
    if runtime == "torchrec" and is_rows:
        rating = placed.plan.provenance.cost_model
        yield f"under {rating}'s rating {table.sharding} stands for rows cut over some ranks; plan with another one"
    if table.sharding in ROWS_OF_NODE and (model.node_of_rank != model.host_of_rank).any():
        yield f"its rows are cut over several hosts (a scale-up domain), and {table.sharding} over one is all that runs"
    if not profile.pooled and table.sharding in rules.pooled_only:
        yield f"it is {table.sharding}, which only pooled tables can be; {remedy}"
    if runtime == "torchrec" and table.sharding in ROWS_OF_NODE and model.copies[number] > 1:
        yield f"it is {table.sharding}, and DMPCollection has no nodes for submodule_configs; {remedy}"
    nodes = model.host_of_rank if runtime == "torchrec" else model.node_of_rank
    shape = model.workload.stored_shape(profile)
    copies, apart, one_domain = int(model.copies[number]), model.copies_apart, model.topology.is_one_domain
    colocated = model.node_colocated_shardings
    if fault := coverage_fault(table, shape, nodes, colocated, copies, apart=apart, one_domain=one_domain):
        yield f"{fault}; with anything else it crashes or computes wrong numbers"
