"""Whose overheads and overlaps a plan is priced with: those of the runtime that is to execute it, unless the user chose
others."""

from collections.abc import Iterator

from cost_models.activations import why_kept
from cost_models.dense_sharding import why_replicated
from cost_models.model import CostModel
from cost_models.workload.models import MODES, Workload
from planner.formulation.checkpoint_choices import with_settled_checkpointing
from planner.formulation.dense_choices import with_settled_sharding
from planner.formulation.long_bags import long_bags
from planner.formulation.policy import Policy
from planner.formulation.slow_widths import slow_widths
from planner.formulation.unlike_parts import unlike_kernels, unlike_parts
from planner.formulation.unused_inputs import (
    unused_of_dense,
    unused_of_ingestion,
    unused_of_links,
    unused_of_reserve,
    unused_of_tables,
)
from topologies.cluster import Topology
from topologies.errors import InputError

ROUNDED = 1e-5
"""Relative amount by which products of figures that were written with six digits may be off."""


def priced_as_run(workload: Workload, policy: Policy) -> Workload:
    """The workload with its dense part held and checkpointed as the policy says, and the software profile of the
    policy's runtime; as it is where several ways are open, its user chose a profile, or any runtime will do."""
    workload = with_settled_sharding(workload, policy.dense)
    workload = with_settled_checkpointing(workload, policy.checkpointing)
    if policy.runtime in ("any", workload.software) or workload.names_software:
        return workload
    mode = workload.software_mode
    if mode is not None and mode not in MODES.get(policy.runtime, ()):
        message = (
            f"{mode} is no known mode of {policy.runtime}, the policy's runtime; give overhead, the seconds of a step"
        )
        raise InputError.at(workload.name, message, path="software_mode")
    return workload.model_copy(update={"software": policy.runtime})


def input_warnings(
    workload: Workload, policy: Policy, stepped_on: Topology | None, *, in_groups: bool | None = None
) -> tuple[str, ...]:
    """What a reader must know of how the inputs of a plan go together; mostly nothing. `stepped_on` is the cluster
    whose steps are timed; None of a rating, which has no links of its own. `in_groups`: whether ranks are in groups
    with copies of the tables; unset, where the policy says so."""
    of_replicas, of_links = () if policy.replicas is None else policy.replicas.without_effect, tuple[str, ...]()
    if stepped_on is not None:
        in_groups = policy.replicas is not None if in_groups is None else in_groups
        of_links = (*unused_of_links(stepped_on, workload), *unlike_parts(stepped_on, in_groups=in_groups))
        of_links += tuple(unused_of_reserve(stepped_on, policy))
        of_links += tuple(unlike_kernels(stepped_on, priced_as_run(workload, policy)))
    return (*software_warnings(workload, policy, stepped_on), *of_replicas, *_of_dense(workload, policy), *of_links)


def plan_warnings(model: CostModel, policy: Policy) -> tuple[str, ...]:
    """The same of the inputs of a plan by this cost model."""
    stepped_on = model.cluster if model.quantity == "step" else None
    return input_warnings(model.stated_workload, policy, stepped_on, in_groups=model.replicas is not None)


def _of_dense(workload: Workload, policy: Policy) -> Iterator[str]:
    """What a policy leaves open of the dense part where there is one way alone."""
    is_open = policy.dense is not None and policy.dense.settled is None
    if is_open and workload.dense.sharding is None and (reason := why_replicated(workload)) is not None:
        yield f"dense auto: every rank holds the whole dense part; {reason}"
    is_open = policy.checkpointing == "auto" and workload.dense.checkpointing is None
    if is_open and (reason := why_kept(workload)) is not None:
        yield f"checkpointing auto: nothing is computed again; {reason}"


def software_warnings(workload: Workload, policy: Policy, stepped_on: Topology | None = None) -> tuple[str, ...]:
    """What a reader must know of what a plan is priced with; mostly nothing. `stepped_on` as in `input_warnings`."""
    of_tables = (*_of_duplicates(workload), *unused_of_tables(workload))
    of_dense = (*unused_of_dense(workload.dense), *slow_widths(workload))
    priced = priced_as_run(workload, policy)
    of_tables += tuple(long_bags(priced, stepped_on))
    return (*_of_software(workload, policy), *of_tables, *of_dense, *unused_of_ingestion(workload))


def _of_duplicates(workload: Workload) -> tuple[str, ...]:
    """Tables said to repeat more than they can."""
    beyond = [table for table in workload.tables if table.stated_deduplication > table.deduplication * (1 + ROUNDED)]
    if not beyond:
        return ()
    first, more = beyond[0], f" and {len(beyond) - 1:,} more" if len(beyond) > 1 else ""
    return (
        f"deduplication of {first.name}{more} acts as {first.deduplication:.6g}, not {first.stated_deduplication:.6g}:"
        f" unique_fraction says that {first.unique_fraction:g} of the ids are distinct, and those stay",
    )


def _of_software(workload: Workload, policy: Policy) -> tuple[str, ...]:
    if policy.runtime in ("any", workload.software):
        return ()
    return (
        f"the plan is for {policy.runtime} (runtime), but its times are those of {workload.software}"
        f" (workload.software); leave workload.software out, or set it to {policy.runtime}",
    )
