"""What never happens to a bound: more hardware raises it, names change it, a narrower policy lowers it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.registry import why_no_stash
from cost_models.shards import NODE, PLACEMENT_TIERS, RANK, SHARDINGS, STASHED_TIERS, PlacementTier, Sharding
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from tests.oracles.instances import confined_instance, tiny_instance
from tests.oracles.placements import random_placement
from topologies.cluster import Topology
from topologies.documents import Record
from topologies.errors import InputError

REGROUPED = 0.01
"""Relative amount by which a smaller set of ranks may lower a bound: ranks are counted together in another way, and
0.1 % has been seen."""
SOLVED = 1e-5
"""The cutting planes stop within this of the fluid optimum."""
SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=15, deadline=None, derandomize=True)

LARGER = (
    "accelerators.hbm.capacity",
    "accelerators.hbm.bandwidth",
    "accelerators.flops.tf32",
    "host.ddr.capacity",
    "host.ddr.bandwidth",
    "host.ssd.capacity",
    "host.ssd.read_bandwidth",
    "host.ssd.write_bandwidth",
    "host.ssd.iops",
    "host.scm.capacity",
    "host.scm.read_bandwidth",
    "host.scm.write_bandwidth",
    "remote.capacity",
    "remote.bandwidth",
    "remote.network_bandwidth",
    "links.front_end.bandwidth",
    "links.scale_out.bandwidth",
    "links.scale_up.bandwidth",
    "links.pcie.bandwidth",
)


def bound_s(topology: Topology, workload: Workload, policy: Policy, tolerance: float = SOLVED) -> float:
    """The fluid bound over all options that the policy allows; infinite where nothing fits, or a policy names tiers
    alone whose memory the cluster lacks."""
    model = planning_model("physical", topology, workload, policy)
    try:
        fluid = Fluid(build_problem(model, enumerate_options(model, policy)))
    except InputError:
        return math.inf
    return math.inf if shortage(fluid) else solve_relaxation(fluid, tolerance=tolerance).bound_s


def enlarged(record: Record, path: list[str], factor: float) -> Record:
    """The record with the figure at the path larger; itself where the path leads to nothing."""
    name, *rest = path
    value = getattr(record, name)
    if value is None:
        return record
    larger = enlarged(value, rest, factor) if rest else type(value)(value * factor)
    return record.model_copy(update={name: larger})


@FEW
@given(seed=SEEDS, path=st.sampled_from(LARGER), factor=st.floats(1.05, 8), group=st.integers(0, 2))
def test_more_hardware_never_raises_the_bound(seed: int, path: str, factor: float, group: int) -> None:
    """More capacity or bandwidth of anything, everywhere or in one node group (the last where it has the number 2)."""
    instance = tiny_instance(seed)
    before = bound_s(instance.model.topology, instance.model.workload, instance.policy)
    groups = list(instance.model.topology.nodes)
    for chosen in [min(group, len(groups) - 1)] if group else range(len(groups)):
        groups[chosen] = enlarged(groups[chosen], path.split("."), factor)
    larger = instance.model.topology.model_copy(update={"nodes": tuple(groups)})
    assert larger != instance.model.topology or path.startswith(("host", "remote", "links.scale_up", "links.front_end"))
    after = bound_s(larger, instance.model.workload, instance.policy)
    assert after <= before * (1 + SOLVED)


@FEW
@given(seed=SEEDS, random=st.randoms(use_true_random=False))
def test_names_and_order_of_tables_do_not_matter(seed: int, random: object) -> None:
    """Renamed and shuffled tables have the same bound, to 1e-6."""
    instance = tiny_instance(seed)
    workload = instance.model.workload
    tables = [table.model_copy(update={"name": f"renamed {i}"}) for i, table in enumerate(workload.tables)]
    random.shuffle(tables)
    shuffled = workload.model_copy(update={"tables": tuple(tables)})
    first, second = (bound_s(instance.model.topology, each, instance.policy, 1e-8) for each in (workload, shuffled))
    assert first == pytest.approx(second, rel=1e-6)


def reordered(topology: Topology) -> tuple[Topology, np.ndarray, np.ndarray]:
    """The cluster with its two node groups in the other order, and the new numbers of its ranks and its nodes."""
    first, second = topology.nodes
    (a, b), (c, d) = ((group.count, group.count * group.accelerators.count) for group in (second, first))
    swapped = topology.model_copy(update={"nodes": (second, first)})
    ranks = np.concatenate([np.arange(d) + b, np.arange(b)])
    return swapped, ranks, np.concatenate([np.arange(c) + a, np.arange(a)])


def even(workload: Workload) -> Workload:
    """With as many rows in each table as 2, 3 and 4 ranks can share evenly: no block of rows is shorter than another.

    Ceil-blocks are dealt out in the order of the ranks, so where the rows do not come out even, the order says on whose
    rank the short block falls, and the step and the bound may differ by that much.
    """
    tables = tuple(table.model_copy(update={"rows": -(-table.rows // 12) * 12}) for table in workload.tables)
    return workload.model_copy(update={"tables": tables})


MIXED = st.deferred(
    lambda: st.sampled_from([seed for seed in range(60) if len(tiny_instance(seed).model.topology.nodes) == 2])
)
"""Tiny instances with two kinds of rank."""


@FEW
@given(seed=MIXED)
def test_the_order_of_ranks_does_not_change_the_bound(seed: int) -> None:
    """Node groups in another order, and with them all ranks renamed: the same bound, to 1e-6."""
    instance = tiny_instance(seed)
    workload = even(instance.model.workload)
    before, after = instance.model.topology, reordered(instance.model.topology)[0]
    first, second = (bound_s(topology, workload, instance.policy, 1e-8) for topology in (before, after))
    assert first == pytest.approx(second, rel=1e-6)


@FEW
@given(seed=MIXED, draw=st.integers(0, 2**32))
def test_the_order_of_ranks_does_not_change_what_a_placement_takes(seed: int, draw: int) -> None:
    """The same placement on renamed ranks: the same seconds in every stage, the same bytes free on every rank.

    Nothing is promised of the search, whose random choices follow the numbers of the ranks.
    """
    instance = tiny_instance(seed)
    workload = even(instance.model.workload)
    topology, new_rank, new_node = reordered(instance.model.topology)
    model, options = StepModel(instance.model.topology, workload), instance.options
    options = replace(options, block_rows=model.tables.rows[options.table[options.block_option]])
    before, after = build_problem(model, options), build_problem(StepModel(topology, workload), options)
    placement = random_placement(before, np.random.default_rng(draw))
    extent = before.block_extent[placement.item_block]
    place = placement.item_place.copy()
    place[extent == RANK] = new_rank[place[extent == RANK]]
    place[extent == NODE] = new_node[place[extent == NODE]]
    first, second = load_state(before, placement), load_state(after, Placement(placement.item_block, place))
    assert first.stage_seconds() == pytest.approx(second.stage_seconds(), rel=1e-9)
    assert first.free == pytest.approx(second.free[:, new_rank], rel=1e-9, abs=1.0)


@st.composite
def policies(draw: st.DrawFn, tiers: tuple[PlacementTier, ...], shardings: tuple[Sharding, ...]) -> Policy:
    """Some of the tiers and shardings, at least one of each, in their order."""
    some_tiers = draw(st.sets(st.sampled_from(tiers), min_size=1))
    some_shardings = draw(st.sets(st.sampled_from(shardings), min_size=1))
    return Policy(tiers=tuple(some_tiers), shardings=tuple(some_shardings))


@FEW
@given(seed=SEEDS, data=st.data())
def test_a_narrower_policy_never_lowers_the_bound(seed: int, data: st.DataObject) -> None:
    """Fewer tiers and fewer shardings allow nothing that more did not."""
    instance = tiny_instance(seed)
    topology, workload = instance.model.topology, instance.model.workload
    stashes = why_no_stash("physical", workload, None) is None
    tiers = tuple(tier for tier in PLACEMENT_TIERS if stashes or tier not in STASHED_TIERS)
    wide = data.draw(policies(tiers, SHARDINGS))
    narrow = data.draw(policies(wide.tiers, wide.shardings))
    assert bound_s(topology, workload, narrow) >= bound_s(topology, workload, wide) * (1 - SOLVED)


@FEW
@given(seed=SEEDS)
def test_a_confining_policy_never_lowers_the_bound(seed: int) -> None:
    """Pins, forbidden ranks, groups, fewer shards and less memory allow nothing that was not allowed without them."""
    instance = confined_instance(seed)
    topology, workload = instance.model.topology, instance.model.workload
    confined = bound_s(topology, workload, instance.policy)
    assert confined >= bound_s(topology, workload, Policy()) * (1 - SOLVED)


@FEW
@given(seed=SEEDS, data=st.data())
def test_a_smaller_set_of_ranks_never_lowers_the_bound(seed: int, data: st.DataObject) -> None:
    """A table that may use some of the ranks, and then only some of these."""
    instance = tiny_instance(seed)
    topology, workload = instance.model.topology, instance.model.workload
    wide = data.draw(st.sets(st.integers(0, topology.world_size - 1), min_size=1))
    narrow = data.draw(st.sets(st.sampled_from(sorted(wide)), min_size=1))
    names = data.draw(st.sets(st.sampled_from([table.name for table in workload.tables]), min_size=1))
    bounds = [
        bound_s(
            topology, workload, Policy.model_validate({"tables": [{"match": sorted(names), "ranks": sorted(ranks)}]})
        )
        for ranks in (wide, narrow)
    ]
    assert bounds[1] >= bounds[0] * (1 - REGROUPED)


@FEW
@given(seed=SEEDS)
def test_fewer_options_never_lower_the_bound(seed: int) -> None:
    """A tiny instance keeps some options of each table: its bound is at least the bound over all of them."""
    instance = tiny_instance(seed)
    fluid = Fluid(instance.problem)
    some = math.inf if shortage(fluid) else solve_relaxation(fluid).bound_s
    everything = bound_s(instance.model.topology, instance.model.workload, instance.policy)
    assert some >= everything * (1 - SOLVED)


@FEW
@given(seed=SEEDS, scale=st.floats(0.01, 100))
def test_seconds_scale(seed: int, scale: float) -> None:
    """Everything that takes longer by a factor makes the bound longer by it: no unit is hidden in the solver."""
    problem = tiny_instance(seed).problem
    if shortage(Fluid(problem)):
        return
    times = ("stage_constants", "base_loads", "fixed", "by_rows", "everywhere")
    scaled = replace(problem, **{name: getattr(problem, name) * scale for name in times})
    expected = solve_relaxation(Fluid(problem)).bound_s * scale
    assert solve_relaxation(Fluid(scaled)).bound_s == pytest.approx(expected, rel=4 * SOLVED)
    assert np.isfinite(expected)
