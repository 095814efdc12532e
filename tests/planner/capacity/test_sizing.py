"""The smallest cluster: proofs and plans decide, also where more nodes are slower."""

import itertools

import pytest

from cost_models.workload.loading import load_workload
from planner import plan
from planner.capacity.candidates import Candidate, descend
from planner.capacity.size_floor import size_floor
from planner.capacity.sizing import Sizing, size
from planner.document.planned import planned_inputs
from planner.formulation.policy import Policy
from planner.planning import integer_solution
from planner.planning.integer_solution import Solver
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import load_topology

TABLES = [{"rows": 400_000 * (1 + i % 5), "dim": 64, "pooling_factor": 5 + 5 * i} for i in range(6)]
MODEL = workload(TABLES)
CLUSTER = topology(node_group("a", nodes=2, ranks=2, ssd_bytes=100e9))
OUT_OF_REACH = MODEL.batch(1) / (1.001 * size_floor(CLUSTER, MODEL).seconds)
"""Samples/s: a step that is shorter than that of any size, but not than what all sizes have in common."""
SMALL = topology(node_group("a", nodes=1, ranks=2, hbm_bytes=0.3e9, ddr_bytes=5e9))


def rate(nodes: int) -> float:
    found = plan(topology(node_group("a", nodes=nodes, ranks=2, ssd_bytes=100e9)), MODEL, gap=0.0, simulate=False)
    assert found.objective is not None
    return MODEL.batch(2 * nodes) / found.objective.step_s


@pytest.mark.slow
def test_the_answer_is_the_smallest_that_reaches_the_target() -> None:
    """Every smaller size is rejected, as trying them all shows; the figures are those of `plan`."""
    rates = {nodes: rate(nodes) for nodes in (1, 2, 3)}
    target = (rates[2] + rates[3]) / 2
    assert max(rates[1], rates[2]) < target
    found = size(CLUSTER, MODEL, target_samples_per_s=target, max_nodes=8)
    first = found[0]
    assert first.label == "all tiers"
    assert first.answer is not None
    assert first.plan is not None
    assert first.answer.nodes == 3
    assert first.answer.samples_per_s == pytest.approx(rates[3], rel=0.005)
    assert first.answer.samples_per_s >= target
    assert first.plan.simulated is not None
    assert [one.nodes for one in first.candidates if not one.suffices] == [1, 2]
    assert all(one.judged_by == "bound" for one in first.candidates if not one.suffices)
    assert [sizing.label for sizing in found] == ["all tiers", "without ssd", "without ddr", "without ddr and ssd"]


def test_no_more_nodes_with_more_tiers() -> None:
    """Without DDR the tables need the HBM of more nodes; each rejected size has a proof."""
    found = {sizing.label: sizing for sizing in size(SMALL, MODEL, max_nodes=16)}
    assert set(found) == {"all tiers", "without ddr"}
    nodes = {label: sizing.answer.nodes for label, sizing in found.items() if sizing.answer is not None}
    assert nodes["all tiers"] == 1
    weights = sum(table.rows * table.dim * 4 for table in MODEL.tables)
    assert nodes["without ddr"] >= weights / 0.6e9
    for one in found["without ddr"].candidates:
        assert one.suffices or (one.judged_by == "memory" and "need more memory" in one.reason)
    fewer = plan(
        topology(node_group("a", nodes=nodes["without ddr"] - 1, ranks=2, hbm_bytes=0.3e9)), MODEL, tiers=["hbm"]
    )
    assert fewer.status == "infeasible"


@pytest.mark.parametrize("batch", [{"global_batch": 4096}, {"batch_per_rank": 512}])
def test_what_no_size_can_beat_is_said_at_once(batch: dict[str, int]) -> None:
    """Overhead, launches and the dense part of a rank's batch are in the step of every size, so that none is tried."""
    dense = {"macs_per_sample": 10**9, "parameters": 10**6}
    model = workload(TABLES, **({"global_batch": None} | batch), dense=dense)
    floor = size_floor(CLUSTER, model)
    names = [name for name, seconds in floor.parts if seconds]
    assert names == [
        "step_overhead_s of torchrec",
        "launches of kernels",
        *["dense part of a rank's batch"] * len(names[2:]),
    ]
    assert len(names[2:]) == ("batch_per_rank" in batch)
    told: list[tuple[str, float | None, float | None]] = []
    hear = lambda *heard: told.append(heard)  # noqa: E731
    (found,) = size(CLUSTER, model, max_step_s=floor.seconds * 0.999, progress=hear)
    assert (found.answer, found.candidates, told) == (None, (), [])
    assert found.notes[-1].startswith("no size does: no step is shorter than ")
    assert "7.000 ms step_overhead_s of torchrec" in found.notes[-1]
    tried = size(CLUSTER, model, max_step_s=floor.seconds * 1.001, max_nodes=2, each_tier=False, progress=hear)
    assert tried[0].candidates
    sizes = [step for step, best_s, bound_s in told if best_s is None and bound_s is None]
    assert sizes == ["all tiers: 1 node", "all tiers: 2 nodes"], (
        "each size that is begun, and then its best plan and bound"
    )
    assert told[0][0] == sizes[0]
    assert max(bound_s or 0 for _, _, bound_s in told) > floor.seconds
    assert all(one.lower_bound_s is None or one.lower_bound_s > floor.seconds for one in tried[0].candidates)
    rate = model.batch(2 * 8) / floor.seconds
    (fast,) = size(CLUSTER, model, target_samples_per_s=rate * 1.001, max_nodes=8)
    assert (fast.answer, fast.candidates) == (None, ())


def test_a_target_out_of_reach_has_no_answer() -> None:
    """The bound rejects every size that was looked at."""
    (found,) = size(CLUSTER, MODEL, target_samples_per_s=OUT_OF_REACH, max_nodes=4, each_tier=False)
    assert found.answer is None
    assert found.plan is None
    assert {one.nodes for one in found.candidates} >= {1, 2, 4}
    assert all(one.judged_by == "bound" for one in found.candidates)
    assert all(one.most_samples_per_s is not None and one.most_samples_per_s < OUT_OF_REACH for one in found.candidates)


def test_interrupted_says_what_it_knows() -> None:
    """The sizes judged so far are kept, and it says that it is not done."""
    asked = itertools.count()
    (found,) = size(CLUSTER, MODEL, max_nodes=64, target_samples_per_s=OUT_OF_REACH, stop=lambda: next(asked) > 0)
    assert not found.finished
    assert any("interrupted" in note for note in found.notes)


def test_whole_scale_up_domains_and_parts_of_one() -> None:
    """A domain of two nodes: sizes are one, and even ones, beyond which odd ones make domains of a node each."""
    group = node_group("a", nodes=2, ranks=2)
    links = group["links"]
    assert isinstance(links, dict)
    links["scale_up"] = {"kind": "nvlink3", "bandwidth": "300GB/s", "domain": 4}
    (found,) = size(topology(group), MODEL, target_samples_per_s=OUT_OF_REACH, max_nodes=7, each_tier=False)
    assert {one.nodes for one in found.candidates} <= {1, 2, 4, 6, 7}
    (part,) = size(topology(group), MODEL, max_nodes=1, each_tier=False)
    assert part.answer is not None
    assert part.answer.nodes == 1
    with pytest.raises(InputError, match="0 is below 1"):
        size(topology(group), MODEL, max_nodes=0)


def test_a_part_of_a_rack_may_be_enough() -> None:
    """One tray of an NVL72 holds what fits into its four accelerators."""
    (found,) = size(load_topology("gb200-nvl72"), load_workload("dlrm-dcnv2"), each_tier=False, effort=0)
    assert found.answer is not None
    assert found.answer.nodes == 1


def racks() -> Topology:
    """A rack of six nodes with two ranks each in one scale-up domain."""
    group = node_group("a", nodes=6, ranks=2, hbm_bytes=0.2e9, ddr_bytes=1e6)
    links = group["links"]
    assert isinstance(links, dict)
    links["scale_up"] = {"kind": "nvlink3", "bandwidth": "300GB/s", "domain": 12}
    return topology(group)


SPLIT = [{"rows": 1_000_000, "dim": 64, "pooling_factor": 5}] * 10
"""2.6 GB: somewhat more than a rack has, where some is for other things."""


def test_equal_domains_of_parts_of_racks_are_sizes_too() -> None:
    """What needs a little more than a rack is not said to need two: 8 nodes are two domains of 4, as `--nodes` makes
    them; 7 make none, which is said."""
    found = size(racks(), workload(SPLIT), each_tier=False, max_nodes=12)[0]
    assert found.answer is not None
    assert found.answer.nodes == 8
    assert {7, 11} & {one.nodes for one in found.candidates} == set()
    assert "8 nodes: 2 scale-up domains of 8 ranks each, fewer than the topology's domains have" in found.notes
    assert any(note.startswith("7 nodes were not tried: they make no equal scale-up domains") for note in found.notes)
    assert found.plan is not None
    assert planned_inputs(found.plan)[0] == racks().resized(0, 8)


def test_sizes_beyond_the_last_rack_are_tried_as_well() -> None:
    """Up to 11 nodes, with one whole rack: 8, 9 and 10."""
    found = size(racks(), workload([*SPLIT, *SPLIT[:6]]), each_tier=False, max_nodes=11)[0]
    assert found.answer is None
    assert {6, 10} <= {one.nodes for one in found.candidates} <= {1, 2, 3, 4, 5, 6, 8, 9, 10}
    assert any(note.startswith("7 and 11 nodes were not tried") for note in found.notes)


def test_domains_of_one_of_several_groups_stay_as_they_are() -> None:
    """Whole racks alone; what is between is said not to be tried."""
    rack = racks().nodes[0]
    both = topology(node_group("b", nodes=1, ranks=2, hbm_bytes=0.2e9, ddr_bytes=1e6))
    mixed = both.model_copy(update={"nodes": (*both.nodes, rack)})
    (found,) = size(mixed, workload([*SPLIT, *SPLIT[:6]]), group="a", each_tier=False, max_nodes=12)
    assert found.answer is not None
    assert found.answer.nodes == 12
    assert any(note.startswith("7 to 11 nodes were not tried: they do not fill whole") for note in found.notes)


@pytest.mark.parametrize("nodes", [1, 9, 18, 20, 22, 32, 36, 54, 100])
def test_a_resized_rack_is_what_nodes_makes(nodes: int) -> None:
    """Byte for byte the cluster of `--nodes`."""
    assert load_topology("gb200-nvl72").resized(0, nodes) == load_topology("gb200-nvl72", nodes=nodes)


def test_several_groups_need_a_name() -> None:
    """The named group is sized, the other stays."""
    mixed = topology(node_group("a", nodes=1, ranks=2), node_group("b", nodes=1, ranks=2))
    with pytest.raises(InputError, match="name the one to size: a, b"):
        size(mixed, MODEL)
    with pytest.raises(InputError, match="'c' is not a node group"):
        size(mixed, MODEL, group="c")
    (found,) = size(mixed, MODEL, group="b", max_nodes=2, each_tier=False)
    assert found.answer is not None
    assert (found.answer.nodes, found.answer.ranks) == (1, 4)


def test_the_integer_programme_follows_a_search_that_decides_nothing() -> None:
    """What its solver says rejects no size, but stands in the reason; the answer's plan has it, too."""
    few, policy = workload(TABLES[:6]), Policy(tiers=("hbm",), shardings=("table_wise", "column_wise"))
    cluster = topology(node_group("a", nodes=1, ranks=2))

    def sized(solver: Solver, longest_s: float | None = None) -> Sizing:
        return size(cluster, few, max_step_s=longest_s, max_nodes=1, policy=policy, each_tier=False, solver=solver)[0]

    plan = sized("ilp").plan
    assert plan is not None
    assert plan.objective is not None
    assert "integer programme" in plan.provenance.solver
    for solver, word in (("search", False), ("ilp", True)):
        (only,) = sized(solver, plan.objective.lower_bound_s * (1 + 1e-3)).candidates
        assert (only.suffices, only.judged_by) == (False, "search")
        assert ("the solver of the integer programme does" in only.reason) == word


def test_a_programme_that_is_too_large_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As is a word that is none."""
    monkeypatch.setitem(integer_solution.MOST_VARIABLES, "ilp", 10)
    with pytest.raises(InputError, match="solver: ilp takes at most 10 variables"):
        size(SMALL, MODEL, max_nodes=2, each_tier=False, solver="ilp")
    with pytest.raises(InputError, match="'simplex' is none of auto, search, ilp"):
        size(SMALL, MODEL, solver="simplex")  # type: ignore[arg-type]


def test_a_wrong_policy_is_an_input_error() -> None:
    """Where no size can be planned for, the fault is the user's."""
    with pytest.raises(InputError, match="nothing_is_called_so"):
        size(CLUSTER, MODEL, policy=Policy.model_validate({"tables": [{"match": "nothing_is_called_so", "ranks": 0}]}))


@pytest.mark.parametrize("doing", [{3}, {5, 6, 7, 8}, {4, 9, 10, 11, 12}, {1}, {12}, {6}, set(), {3, 4, 5, 7, 8}])
def test_the_descent_finds_a_least_size(doing: set[int]) -> None:
    """On every pattern the answer does and its neighbour below does not; on a rising one it is the smallest."""
    seen: dict[int, Candidate] = {}
    peak = sum(doing) / len(doing) if doing else 0.0

    def suffices(position: int) -> bool:
        nodes = position + 1
        seen[position] = Candidate(nodes, nodes, nodes in doing, "bound", samples_per_s=100 - abs(nodes - peak))
        return nodes in doing

    descend(suffices, seen, 11)
    found = min((position for position, one in seen.items() if one.suffices), default=None)
    if found is None:
        assert not doing
        return
    for below in (found - 1, found - 2):
        assert below < 0 or not seen[below].suffices
    if doing in ({3}, {5, 6, 7, 8}, {1}, {12}, {6}):
        assert found + 1 == min(doing)
