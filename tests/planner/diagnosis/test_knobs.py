"""Knobs change one thing of the inputs: what their flags say, by ever larger steps, from a guess that counts bytes."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cost_models.registry import COST_MODELS
from cost_models.shards import MEMORY_TIERS, MemoryTier
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner.diagnosis.knobs import FINEST_STEP, Change, Knob, knobs_of
from planner.formulation.policy import USUAL_TIERS, Policy
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import MOST_RANKS, Topology
from topologies.documents import Document, override, validate

MIB, GIB = 1 << 20, 1 << 30
TABLES = [{"rows": 700_000, "dim": 64}] * 6
EVERY_MEMORY = node_group("g", nodes=2, ssd_bytes=3e12, scm_bytes=5e11, remote_bytes=4e12)


def _knobs(
    cluster: Topology, policy: Policy | None = None, trained: Workload | None = None, short: float = math.nan
) -> list[Knob]:
    """The knobs of a question; each memory is short of so many bytes."""
    model = StepModel(cluster, trained or workload(TABLES))
    return list(knobs_of(model, policy or Policy(), np.full(len(model.memories), short)))


def _of_kind(knobs: list[Knob], kind: str) -> Knob:
    (found,) = (knob for knob in knobs if knob.kind == kind)
    return found


def _changes(knob: Knob) -> Iterator[Change]:
    """The first steps of a knob, its guess and its last one."""
    for step in sorted({*range(1, min(knob.most, 4) + 1), max(1, min(knob.guess, knob.most)), knob.most}):
        if (change := knob.at(step)) is not None:
            yield change


def _as_flagged(flags: str, cluster: Topology, trained: Workload) -> tuple[Topology, Workload, dict[str, Any]]:
    """The inputs that a command line with these flags has, read as the files and flags of users are."""
    documents = {
        "topology": Document(cluster.model_dump(mode="json"), "topology"),
        "workload": Document(trained.model_dump(mode="json", exclude_unset=True), "workload"),
    }
    models = {"topology": Topology, "workload": Workload}
    policy: dict[str, Any] = {}
    flag, text = flags.split(" ", maxsplit=1)
    if flag == "--set":
        path, value = text.split("=")
        which, rest = path.split(".", maxsplit=1)
        override(documents[which], rest, value, models[which], flags)
    elif flag == "--nodes":
        override(documents["topology"], "nodes.0.count", text, Topology, flags)
    elif flag == "--stash":
        policy["stash"] = Policy.model_validate({"stash": text}).stash
    else:
        policy[flag.removeprefix("--").replace("-", "_")] = tuple(text.split(","))
    return validate(documents["topology"], Topology), validate(documents["workload"], Workload), policy


def test_more_nodes_have_the_groups_of_the_dense_optimizer() -> None:
    """Of four ranks that share it, on nodes of two: an even number of nodes."""
    dense = {"numerical_features": 1, "top_mlp": [8, 1], "optimizer": "shampoo", "shampoo": {"group": 4}}
    trained = workload(TABLES, dense=dense)
    nodes = _of_kind(_knobs(topology(node_group("g", nodes=2)), trained=trained), "nodes")
    counts = [change.inputs.topology.nodes[0].count for change in _changes(nodes)]
    assert counts
    assert all(count % 2 == 0 for count in counts)


@pytest.mark.parametrize(
    "cluster",
    [
        topology(EVERY_MEMORY | {"reserve": {"hbm": 0.085, "ssd": 0.2}}),
        topology(node_group("old"), node_group("new", hbm_bytes=3e8, ddr_bytes=None)),
    ],
    ids=["every memory", "two groups"],
)
def test_flags_say_what_is_changed_and_nothing_else_is(cluster: Topology) -> None:
    """Every step of every knob, typed as flags, gives the same topology, workload and policy as the change itself."""
    trained = workload(TABLES, embedding={"optimizer": "adam"})
    policy = Policy(tiers=("hbm", "ddr_cached", "ssd_cached"), shardings=("table_wise",))
    kinds = set()
    for knob in _knobs(cluster, policy, trained, short=1e9):
        for change in _changes(knob):
            kinds.add(knob.kind)
            flagged, typed, narrowed = _as_flagged(change.flags, cluster, trained)
            assert change.inputs.topology == flagged, change.flags
            assert change.inputs.workload == typed, change.flags
            assert change.inputs.policy == policy.model_copy(update=narrowed), change.flags
            assert change.value in change.flags
    assert {"nodes", "hbm", "ddr", "tiers", "shardings", "dtype", "optimizer", "optimizer_state", "stash"} <= kinds


def test_what_is_offered_is_what_the_question_leaves_open() -> None:
    """Memories that hold something and are described, reserves above zero, and what policy and workload do not use."""
    cluster = topology(EVERY_MEMORY | {"reserve": {"hbm": 0.05, "ddr": 0, "ssd": 0, "scm": 0, "remote": 0.1}})
    every = [knob.kind for knob in _knobs(cluster)]
    assert every.count("reserve") == 2
    assert {*every} == {"nodes", *MEMORY_TIERS, "reserve", "dtype", "optimizer_state", "stash", "optimizer"}
    hbm_alone = [knob.kind for knob in _knobs(cluster, Policy(tiers=("hbm",)))]
    assert {*hbm_alone} == {"tiers", "nodes", "hbm", "reserve", "dtype", "optimizer", "optimizer_state", "stash"}
    stated = workload([{**table, "dtype": "fp32", "optimizer": "adam"} for table in TABLES])
    assert not {"dtype", "optimizer"} & {knob.kind for knob in _knobs(cluster, trained=stated)}
    served = workload(TABLES, mode="inference")
    assert not {"optimizer", "optimizer_state"} & {knob.kind for knob in _knobs(cluster, trained=served)}
    torchrec = Policy(runtime="torchrec")
    assert "optimizer_state" not in {knob.kind for knob in _knobs(cluster, torchrec)}
    narrow = workload(TABLES, embedding={"dtype": "int8", "optimizer": "sgd"})
    assert not {"dtype", "optimizer"} & {knob.kind for knob in _knobs(cluster, trained=narrow)}


@pytest.mark.parametrize("name", COST_MODELS)
def test_state_apart_is_offered_where_a_cost_model_knows_of_it(name: str) -> None:
    """Cost models that keep state with the rows have no such knob."""
    model = COST_MODELS[name](topology(node_group("g")), workload(TABLES, embedding={"optimizer": "adam"}))
    kinds = {knob.kind for knob in knobs_of(model, Policy(), np.full(len(model.memories), np.nan))}
    assert ("optimizer_state" in kinds) == model.chooses_dtypes


@pytest.mark.parametrize("size", [5e7, 1e9, 3.9e9, 4 * GIB, 1.5e11, 3e12])
def test_a_memory_grows_in_steps_that_people_buy(size: float) -> None:
    """Whole MiB, or GiB from 4 GiB on, of at most one part in 32 of its size where that is more; step by step."""
    (knob,) = (knob for knob in _knobs(topology(node_group("g", hbm_bytes=size))) if knob.kind == "hbm")
    sizes = [int(size)]
    for step in range(1, 6):
        change = knob.at(step)
        assert change is not None
        sizes.append(change.inputs.topology.nodes[0].accelerators.hbm.capacity)
        assert change.inputs.same_blocks
    unit = sizes[2] - sizes[1]
    assert unit & (unit - 1) == 0
    assert unit >= (GIB if size >= 4 * GIB else MIB)
    assert unit <= max(size / FINEST_STEP, GIB if size >= 4 * GIB else MIB)
    assert np.diff(sizes)[1:].tolist() == [unit] * 4
    assert 0 < sizes[1] - sizes[0] <= unit
    assert all(each % unit == 0 for each in sizes[1:])


POOLS: dict[MemoryTier, int] = {"hbm": 4, "ddr": 2, "ssd": 2, "scm": 2, "remote": 2}
"""Of two nodes with two ranks each, and two remote hosts."""


@pytest.mark.parametrize("memory", MEMORY_TIERS)
@pytest.mark.parametrize("short_gib", [1, 100, 12_345])
def test_the_guess_is_the_first_step_that_adds_the_missing_bytes(memory: MemoryTier, short_gib: int) -> None:
    """All pools of the group, less their reserve, grow by what was short; a step less would be too little."""
    capacities = {"hbm_bytes": 8 * GIB, "ddr_bytes": 64 * GIB, "ssd_bytes": 512 * GIB, "scm_bytes": 64 * GIB}
    group = node_group("g", nodes=2, remote_bytes=512 * GIB, **capacities)
    cluster = topology(group | {"reserve": dict.fromkeys(MEMORY_TIERS, 0.25)})
    short = short_gib * float(GIB)
    knob = _of_kind(_knobs(cluster, short=short), memory)
    before = cluster.nodes[0].memory(memory)
    assert before is not None

    def added(step: int) -> float:
        change = knob.at(step)
        assert change is not None
        after = change.inputs.topology.nodes[0].memory(memory)
        assert after is not None
        return 0.75 * POOLS[memory] * (after.capacity - before.capacity)

    assert added(knob.guess) >= short * (1 - 1e-12)
    assert knob.guess == 1 or added(knob.guess - 1) < short


def test_nodes_come_in_equal_domains() -> None:
    """A scale-up domain of six accelerators over nodes of two: of three nodes, or of two, up to 64 times as many."""
    group = node_group("g", nodes=2)
    group["links"] = {**group["links"], "scale_up": {"kind": "nvlink3", "bandwidth": "300GB/s", "domain": 6}}  # type: ignore[dict-item]
    knob = _of_kind(_knobs(topology(group)), "nodes")
    counts = []
    for step in (1, 2, 3, knob.most):
        change = knob.at(step)
        assert change is not None
        counts.append(change.inputs.topology.nodes[0].count)
        assert change.flags == f"--nodes {counts[-1]}"
    assert counts == [3, 4, 6, 128]
    knob = _of_kind(_knobs(topology({**group, "count": 1})), "nodes")
    grown = [knob.at(step) for step in (1, 2)]
    assert [change.inputs.topology.nodes[0].count for change in grown if change is not None] == [2, 3]


def test_no_more_ranks_than_can_be_planned_for() -> None:
    """The last step of a huge cluster stays within the limit; of one that is at the limit there is none."""
    ranks = 1 << 11
    large = node_group("g", nodes=MOST_RANKS // ranks - 3, ranks=ranks)
    change = (knob := _of_kind(_knobs(topology(large)), "nodes")).at(knob.most)
    assert change is not None
    assert change.inputs.topology.world_size == MOST_RANKS
    full = node_group("g", nodes=MOST_RANKS // ranks, ranks=ranks)
    assert "nodes" not in {knob.kind for knob in _knobs(topology(full))}


def test_a_reserve_falls_by_whole_percents_to_nothing() -> None:
    """8.5 % is eight steps above zero and one below nine; the last step keeps nothing."""
    group = node_group("g") | {"reserve": {**dict.fromkeys(MEMORY_TIERS, 0), "hbm": 0.085}}
    knob = _of_kind(_knobs(topology(group)), "reserve")
    shares = []
    for step in range(1, knob.most + 1):
        change = knob.at(step)
        assert change is not None
        shares.append(change.inputs.topology.nodes[0].reserve.hbm)
    assert shares == pytest.approx([n / 100 for n in range(8, -1, -1)])
    assert (knob.was, knob.futile) == ("8.5%", "no reserve of HBM")


def test_words_are_allowed_one_by_one_and_then_together() -> None:
    """Each missing tier beside those in use, then all; tiers that are used where they are named only are not told."""
    knob = _of_kind(_knobs(topology(node_group("g", ssd_bytes=1e12)), Policy(tiers=("hbm",))), "tiers")
    assert not knob.ordered
    allowed = [change.inputs.policy.tiers for change in map(knob.at, range(1, knob.most + 1)) if change is not None]
    missing = [tier for tier in USUAL_TIERS if tier in ("ddr_cached", "ddr", "ssd_cached")]
    assert allowed == [*(("hbm", tier) for tier in missing), ("hbm", *missing)]
