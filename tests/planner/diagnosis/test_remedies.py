"""Where nothing fits: the smallest single change of each kind that helps, and what would not."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.model import CostModel
from cost_models.registry import COST_MODELS
from cost_models.shards import EVERYWHERE
from cost_models.step import StepModel
from cost_models.workload import load_workload
from cost_models.workload.models import Workload
from planner import plan
from planner.diagnosis.remedies import remedies
from planner.document.plan import Plan
from planner.document.reasons import Remedy
from planner.formulation.options import Policy, build_problem, enumerate_options
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import fits
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.loading import load_topology

SIX = [{"rows": 700_000, "dim": 64}] * 6


def found_for(cluster: Topology, model: Workload, policy: Policy, name: str = "physical") -> dict[str, Remedy]:
    """The remedies by kind of change, and of reserves and groups by their names too."""
    of = COST_MODELS[name](cluster, model)
    return {f"{remedy.change} {remedy.group}": remedy for remedy in remedies(of, policy, None)}


def fits_with(cluster: Topology, model: Workload, policy: Policy) -> bool:
    costs = StepModel(cluster, model)
    return fits(Fluid(build_problem(costs, enumerate_options(costs, policy))))


def flag_value(remedy: Remedy) -> tuple[str, str]:
    assert remedy.flags is not None
    path, value = remedy.flags.removeprefix("--set topology.").split("=")
    return path, value


@pytest.mark.slow
def test_model_f_in_the_hbm_of_zionex() -> None:
    """24.2 TB: DDR, or some 82 nodes, or 190 GB on each of 128 accelerators; no dtype, reserve or stash does it."""
    found = plan("zionex-16", "model-f", tiers=["hbm"])
    assert found.infeasibility is not None
    by_change = {remedy.change: remedy for remedy in found.infeasibility.remedies}
    assert by_change["tiers"].flags == "--tiers hbm,ddr_cached"
    assert by_change["nodes"].least is not None
    assert by_change["nodes"].value is not None
    assert 80 <= int(by_change["nodes"].least) <= int(by_change["nodes"].value) <= 88
    path, value = flag_value(by_change["hbm"])
    assert path == "nodes.0.accelerators.hbm.capacity"
    assert 24.2e12 / 128 / 0.95 <= int(value.removesuffix("GiB")) << 30 <= 1.04 * 24.2e12 / 128 / 0.95
    assert {change for change, remedy in by_change.items() if remedy.flags is None} == {
        *("reserve", "dtype", "optimizer", "optimizer_state", "stash")
    }
    assert verify(found) == []


def test_one_step_less_of_a_memory_does_not_fit() -> None:
    """`least` is the first size, in whole steps, that passes the planner's test; the one before fails it."""
    cluster = topology(node_group("a", ranks=2, hbm_bytes=0.3e9, ddr_bytes=0.2e9))
    model = workload(SIX, global_batch=256)
    policy = Policy(tiers=("hbm", "ddr"))
    found = found_for(cluster, model, policy)
    for change, path in (("hbm a", "accelerators.hbm"), ("ddr a", "host.ddr")):
        least = found[change].least
        assert least is not None
        mib = int(least.removesuffix("MiB"))
        step = 8 if change == "hbm a" else 4
        assert mib % step == 0
        for size, expected in ((mib, True), (mib - step, False)):
            group = node_group("a", ranks=2, hbm_bytes=0.3e9, ddr_bytes=0.2e9)
            holder, tier = path.split(".")
            group[holder][tier]["capacity"] = f"{size}MiB"  # type: ignore[index]
            assert fits_with(topology(group), model, policy) is expected


def test_one_node_less_does_not_fit() -> None:
    """The count is the first of all that passes the test, and a plan exists for it."""
    model = workload(SIX, global_batch=256)
    policy = Policy(tiers=("hbm",))
    remedy = found_for(topology(node_group("a", hbm_bytes=0.3e9)), model, policy)["nodes a"]
    assert remedy.value is not None
    assert remedy.least is not None
    counts = range(1, int(remedy.value) + 1)
    passing = [n for n in counts if fits_with(topology(node_group("a", nodes=n, hbm_bytes=0.3e9)), model, policy)]
    assert passing[0] == int(remedy.least)
    enough = topology(node_group("a", nodes=int(remedy.value), hbm_bytes=0.3e9))
    assert plan(enough, model, tiers=["hbm"], gap=1.0).status in {"feasible", "optimal"}
    assert remedy.flags == f"--nodes {remedy.value}"


def test_no_number_of_nodes_helps_a_table_that_is_too_large_for_every_rank() -> None:
    """Whole tables only: the one that fits no accelerator is named."""
    model = workload([{"rows": 1000, "dim": 64}, {"rows": 4_000_000, "dim": 64}])
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    found = found_for(topology(node_group("a")), model, policy)
    assert found["nodes a"].value is None
    assert found["nodes a"].flags is None
    assert "t1 still fits nowhere" in found["nodes a"].words
    assert found["shardings None"].value == "table_wise,column_wise"
    assert found["dtype None"].value == "fp16"


def test_each_group_of_nodes_has_its_own() -> None:
    """Two groups that differ: paths name the group's index, and the words its name."""
    groups = (node_group("old", hbm_bytes=0.2e9, ddr_bytes=None), node_group("new", hbm_bytes=0.3e9, ddr_bytes=None))
    found = found_for(topology(*groups), workload(SIX, global_batch=256), Policy(tiers=("hbm",)))
    assert flag_value(found["nodes new"])[0] == "nodes.1.count"
    assert flag_value(found["hbm old"])[0] == "nodes.0.accelerators.hbm.capacity"
    assert "in group old" in found["hbm old"].words
    assert not any(name.startswith(("ddr", "ssd")) for name in found), "there is none to grow"


def test_a_smaller_reserve_is_the_largest_that_does() -> None:
    """Whole percents: 2.04 GB on two ranks of 1.1 GB need all but 7 % of it."""
    group = node_group("a", hbm_bytes=1.1e9)
    group["reserve"] = {"hbm": "25%"}
    model = workload([{"rows": 2_000_000, "dim": 64}] * 4, global_batch=64)
    policy = Policy(tiers=("hbm",))
    remedy = found_for(topology(group), model, policy)["reserve a"]
    path, value = flag_value(remedy)
    assert path == "nodes.0.reserve.hbm"
    assert remedy.least is not None
    percent = int(remedy.least.removesuffix("%"))
    for reserve, expected in ((percent, True), (percent + 1, False)):
        group["reserve"] = {"hbm": f"{reserve}%"}
        assert fits_with(topology(group), model, policy) is expected
    assert int(value.removesuffix("%")) <= percent


def test_the_smallest_step_down_in_precision_and_in_state() -> None:
    """Adam keeps two more copies: Adagrad is enough here, and so is fp16."""
    tables = [{"rows": 1_000_000, "dim": 64}] * 4
    model = workload(tables, global_batch=64, embedding={"dtype": "fp32", "optimizer": "adam"})
    found = found_for(topology(node_group("a", hbm_bytes=1.2e9)), model, Policy(tiers=("hbm",)))
    assert found["optimizer None"].flags == "--set workload.embedding.optimizer=adagrad"
    model = workload(tables, global_batch=64, embedding={"dtype": "fp32", "optimizer": "sgd"})
    found = found_for(topology(node_group("a", hbm_bytes=0.35e9)), model, Policy(tiers=("hbm",)))
    assert found["dtype None"].flags == "--set workload.embedding.dtype=fp16"
    assert "optimizer None" not in found, "sgd has no state"


def test_state_may_live_elsewhere() -> None:
    """Adam's state of two tables is twice their rows: HBM that holds the rows alone is enough once DDR has the state,
    and the advised flag leads to a plan."""
    cluster = topology(node_group("a", hbm_bytes=0.4e9, scm_bytes=1e6))
    model = workload(
        [{"rows": 1_000_000, "dim": 64}] * 2, global_batch=64, embedding={"dtype": "fp32", "optimizer": "adam"}
    )
    policy = Policy(tiers=("hbm",))
    remedy = found_for(cluster, model, policy)["optimizer_state None"]
    assert remedy.flags == "--optimizer-state with_table,ddr"
    assert remedy.words == "optimizer state in ddr allowed beside with_table"
    found = plan(cluster, model, policy=Policy(tiers=("hbm",), optimizer_state=("with_table", "ddr")), effort=0)
    assert "ddr" in {table.optimizer_state for table in found.tables}
    assert verify(found) == []
    refused = plan(cluster, model, policy=policy, effort=0)
    assert refused.infeasibility is not None
    assert "optimizer_state" in {each.change for each in refused.infeasibility.remedies if each.flags}
    assert verify(refused) == []


def test_state_stays_where_nothing_can_move_it() -> None:
    """A runtime that keeps it with the rows, a cost model that does not know of it, an optimizer without any."""
    cluster = topology(node_group("a", hbm_bytes=0.4e9))
    tables = [{"rows": 1_000_000, "dim": 64}] * 2
    adam, sgd = (workload(tables, global_batch=64, embedding={"optimizer": name}) for name in ("adam", "sgd"))
    in_hbm, runtime = Policy(tiers=("hbm",)), Policy(tiers=("hbm",), runtime="torchrec")
    assert "optimizer_state None" not in found_for(cluster, adam, runtime)
    assert "optimizer_state None" not in found_for(cluster, adam, in_hbm, "torchrec")
    assert "optimizer_state None" not in found_for(cluster, sgd, in_hbm)


def test_more_of_a_memory_that_state_may_be_in() -> None:
    """Rows in HBM and their state in DDR: it is DDR that has to grow."""
    cluster = topology(node_group("a", hbm_bytes=0.4e9, ddr_bytes=0.1e9))
    model = workload([{"rows": 1_000_000, "dim": 64}] * 2, global_batch=64, embedding={"optimizer": "adam"})
    found = found_for(cluster, model, Policy(tiers=("hbm",), optimizer_state=("ddr",)))
    assert found["ddr a"].value is not None
    assert "--set topology.nodes.0.host.ddr.capacity=" in str(found["ddr a"].flags)


def test_a_dense_part_that_fills_the_accelerators_is_said() -> None:
    """Not that the tables are too large."""
    dense = {"macs_per_sample": 1000, "parameters": 10**9}
    found = plan(topology(node_group("a", hbm_bytes=1e9)), workload([{"rows": 100, "dim": 4}], dense=dense))
    assert found.infeasibility is not None
    assert "the dense part of the model alone" in found.infeasibility.tables[0].reason
    assert {remedy.change for remedy in found.infeasibility.remedies if remedy.flags} == {"hbm"}


def test_pieces_that_do_not_pack_are_named() -> None:
    """Three tables of 0.6 of a rank on two ranks: the sum fits, the pieces do not, and one more rank would do."""
    model = workload([{"rows": 2_300_000, "dim": 64}] * 3, global_batch=64)
    found = plan(topology(node_group("a", hbm_bytes=1e9)), model, tiers=["hbm"], shardings=["table_wise"])
    assert found.status == "infeasible"
    assert found.unplaced is None
    assert found.infeasibility is not None
    assert found.infeasibility.exhaustive_search
    assert {table.name for table in found.infeasibility.tables} == {"t0", "t1", "t2"}
    assert "table_wise in hbm, takes" in found.infeasibility.tables[0].reason
    by_change = {remedy.change: remedy for remedy in found.infeasibility.remedies}
    assert by_change["nodes"].flags == "--nodes 2"
    assert by_change["shardings"].value == "table_wise,column_wise"
    assert Plan.model_validate_json(found.to_json()) == found
    assert verify(found) == []


@pytest.mark.parametrize("name", ["physical", "torchrec", "hugectr"])
def test_every_cost_model_has_remedies(name: str) -> None:
    """Each counts bytes in its own way; the flags are of the same inputs."""
    cluster = load_topology("zionex", overrides=["nodes.0.accelerators.hbm.capacity=2GB"])
    found = found_for(cluster, load_workload("dlrm-dcnv2"), Policy(tiers=("hbm",)), name)
    assert found["nodes zionex"].value is not None
    assert found["hbm zionex"].value is not None


@pytest.mark.parametrize("name", ["physical", "torchrec", "hugectr"])
def test_the_bytes_of_a_cost_model_are_those_of_its_costs(name: str) -> None:
    """The problem without seconds has the same blocks, bytes and permissions as the whole one."""
    from cost_models.memory_model import MemoryModel

    whole: CostModel = COST_MODELS[name](load_topology("zionex", nodes=2), load_workload("nv-tiny"))
    policy = Policy()
    full = build_problem(whole, enumerate_options(whole, policy))
    bare = build_problem(MemoryModel(whole), enumerate_options(MemoryModel(whole), policy))
    for field in ("bytes_fixed", "bytes_by_rows", "allowed", "pool_of_rank", "base_bytes", "block_units"):
        assert np.array_equal(getattr(full, field), getattr(bare, field)), field
    assert len(full.pool_capacity) == len(EVERYWHERE)
    assert not bare.fixed.any()
    assert replace(bare, fixed=full.fixed).world == full.world
