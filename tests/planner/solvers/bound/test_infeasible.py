"""Where nothing fits, the answer says so, with the tables to blame and numbers that are right."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner import plan
from planner.certificates.multipliers import Multipliers
from planner.certificates.shortage import Shortage
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.verification.verify import verify
from tests.oracles.brute_force import optimum
from tests.oracles.instances import node_group, tiny_instance, topology, workload
from topologies.loading import load_topology

RESERVE = 0.05


def problem_of(model: StepModel, policy: Policy) -> Problem:
    return build_problem(model, enumerate_options(model, policy))


def grown(problem: Problem, tier: int, more: float) -> Problem:
    """The problem with `more` bytes of a tier, in proportion to what each pool has."""
    capacity = list(problem.pool_capacity)
    capacity[tier] = capacity[tier] * (1 + more / capacity[tier].sum())
    return replace(problem, pool_capacity=tuple(capacity))


def too_big(tiers: tuple[str, ...] = ("hbm",)) -> Problem:
    """Six tables of about 1 GB in all on two ranks of 0.3 GB."""
    model = StepModel(
        topology(node_group("a", ranks=2, hbm_bytes=0.3e9, ddr_bytes=0.2e9)),
        workload([{"rows": 700_000, "dim": 64}] * 6, global_batch=256),
    )
    return problem_of(model, Policy(tiers=tiers))


def test_model_f_needs_more_than_the_hbm_of_zionex() -> None:
    """24 TB of weights and 0.1875 TB of state, 187 GB per rank, against 38 GB usable: short by the difference."""
    found = plan("zionex-16", "model-f", tiers=["hbm"])
    assert found.status == "infeasible"
    assert found.objective is None
    assert found.infeasibility is not None
    hbm, ddr, ssd = found.infeasibility.tiers
    assert hbm.capacity_bytes == pytest.approx(128 * 40e9 * (1 - RESERVE))
    needed = 12e12 * 2 + 64 * 732_421_875 * 4
    assert needed / 128 == pytest.approx(189e9, rel=1e-3)
    assert hbm.short_bytes is not None
    assert needed - hbm.capacity_bytes < hbm.short_bytes < 1.02 * needed - hbm.capacity_bytes
    assert (ddr.short_bytes, ssd.short_bytes) == (None, None), "neither is allowed, so more of it does not help"
    assert {table.bytes for table in found.infeasibility.tables} == {732_421_875 * (256 * 2 + 4)}
    assert verify(found) == []


def test_model_f_fits_in_all_tiers_of_zionex() -> None:
    """HBM with DDR and SSD hold it, and the plan stands up to verification."""
    found = plan("zionex-16", "model-f", gap=0.5)
    assert found.status == "feasible"
    assert {table.tier for table in found.tables} & {"ddr_cached", "ddr", "ssd_cached"}
    assert verify(found) == []


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_table_that_fits_nowhere_is_named(position: int) -> None:
    """Wherever it stands; the ones that would fit are not blamed."""
    tables = [{"rows": 1000, "dim": 64} for _ in range(3)]
    tables[position] = {"rows": 10**9, "dim": 128}
    found = plan(topology(node_group("a")), workload(tables))
    assert found.status == "infeasible"
    assert found.infeasibility is not None
    assert [table.name for table in found.infeasibility.tables] == [f"t{position}"]
    assert "1 of 3 tables" in found.infeasibility.summary
    assert found.infeasibility.tables[0].bytes == 10**9 * (128 * 4 + 4)


def test_a_table_that_no_sharding_of_the_policy_fits_is_named() -> None:
    """Four columns make no grid, and nothing else is allowed."""
    tables = [{"rows": 3, "dim": 4}, {"rows": 1000, "dim": 64}]
    found = plan(topology(node_group("a", nodes=2)), workload(tables), shardings=["grid_shard"])
    assert found.status == "infeasible"
    assert found.infeasibility is not None
    assert [table.name for table in found.infeasibility.tables] == ["t0"]


@pytest.mark.parametrize("tiers", [("hbm",), ("hbm", "ddr"), ("ddr_cached",)])
def test_the_growth_is_the_smallest_that_helps(tiers: tuple[str, ...]) -> None:
    """With short_bytes more of a tier the fluid problem fits; with 1 % less it does not."""
    problem = too_big(tiers)
    found = shortage(Fluid(problem))
    assert found is not None
    helped = [tier for tier in range(3) if not np.isnan(found.bytes_short[tier])]
    assert helped
    for tier in helped:
        more = float(found.bytes_short[tier])
        assert shortage(Fluid(grown(problem, tier, more * 1.0001))) is None
        assert shortage(Fluid(grown(problem, tier, more * 0.99))) is not None


def test_the_prices_prove_the_shortage() -> None:
    """At the byte prices of the proof the cheapest options of all tables cost more than all memory is worth."""
    fluid = Fluid(too_big())
    found = shortage(fluid)
    assert found is not None
    assert (found.byte >= 0).all()
    cheapest, _ = fluid.price(Multipliers(np.zeros_like(fluid.instances), found.byte))
    assert cheapest.sum() > (found.byte * fluid.capacity).sum()


def test_a_shortage_is_no_shortage_of_a_problem_that_has_a_placement() -> None:
    """Against trying everything: what fits is never called short, and every proof is right."""
    proofs: list[Shortage] = []
    for seed in range(1, 200, 2):
        problem = tiny_instance(seed).problem
        found = shortage(Fluid(problem))
        if found is not None:
            proofs.append(found)
            assert optimum(problem) is None, seed
    assert len(proofs) >= 5


def test_memory_below_what_the_dense_part_takes_is_infeasible() -> None:
    """The dense part alone overfills the devices: nothing can be placed."""
    dense = {"macs_per_sample": 1000, "parameters": 10**9}
    model = workload([{"rows": 100, "dim": 4}], dense=dense)
    assert plan(topology(node_group("a", hbm_bytes=1e9)), model).status == "infeasible"


def test_more_nodes_make_it_fit() -> None:
    """dlrm-dcnv2 with its state takes 209 GB: too much for the HBM of one node of 8 x 24 GB, and fine on two."""
    small = ["nodes.0.accelerators.hbm.capacity=24GB"]
    model = load_workload("dlrm-dcnv2")
    one = plan(load_topology("zionex", overrides=small), model, tiers=["hbm"])
    assert one.status == "infeasible"
    assert plan(load_topology("zionex", nodes=2, overrides=small), model, tiers=["hbm"], gap=1.0).status == "feasible"
