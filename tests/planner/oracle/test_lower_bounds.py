"""Lower bounds of candidates: never above what planning them anew proves."""

import numpy as np
import pytest

from cost_models.step_costs import StepCosts
from planner import plan
from planner.document.planned import planned_model
from planner.formulation.allowed_choices import planning_model
from planner.oracle import Oracle
from tests.oracles.instances import node_group, topology, workload
from tests.planner.oracle.conftest import CASES, DENSE, TABLES, case_of, random_changes
from tests.seeds import seeds


def test_the_bound_of_the_base_is_what_its_multipliers_prove(case):
    """A candidate that changes nothing has nearly the bound of the plan: its option space is wider."""
    bound = case.oracle.cost({"name": ["same"]}).lower_bound_s[0]
    assert case.plan.objective is not None
    assert case.plan.objective.lower_bound_s * 0.9 <= bound <= case.plan.objective.lower_bound_s


@pytest.mark.parametrize("seed", seeds(range(1), range(1, 9)))
@pytest.mark.parametrize("name", list(CASES))
def test_no_bound_is_above_that_of_planning_anew(name, seed):
    """Nor is any above the step of the plan that is found."""
    case = case_of(name)
    costs = case.oracle.cost(random_changes(seed, 2))
    exact = case.oracle.exact(costs, 2, effort=0, gap=1.0)  # which ends at the relaxation's bound, the least of all
    found = [(number, made.objective) for number, made in exact.plans.items() if made.objective is not None]
    assert found
    for number, objective in found:
        assert costs.lower_bound_s[number] <= objective.lower_bound_s


def test_fixed_parts_are_those_of_the_model(case):
    """What a step takes before any table is placed is just what the cost model of the candidate says."""
    oracle, base = case.oracle, planned_model(case.plan)
    candidates = oracle.candidates(random_changes(7, 3))
    rows = oracle._profiles.rows_of(candidates.profiles)
    row = np.stack([of[candidates.profile[:, t]] for t, of in enumerate(rows)], axis=1)
    fixed = oracle._dense_parts.fixed_parts(candidates, row, np.arange(len(candidates)))
    for number in range(len(candidates)):
        changed = candidates.workload(number)
        model = planning_model("physical", base.cluster, changed, case.plan.provenance.policy, base.exchange)
        assert isinstance(model, StepCosts)
        lines = zip(model.protocol_stages, model.protocols, strict=True)
        latencies = sum(model.lines_of(stage)[line].latency_s for stage, line in lines)
        loads = fixed.loads[number] * model.shares_at(model.protocols) + fixed.unshared[number]
        np.testing.assert_allclose(loads, model.base_loads, rtol=1e-12, atol=1e-18)
        own = fixed.constants[number]
        np.testing.assert_allclose(own.sum() + latencies, model.constants.sum(), rtol=1e-12, atol=1e-18)
        np.testing.assert_allclose(fixed.base_bytes[number], model.base_bytes[0], rtol=1e-12)
        np.testing.assert_allclose(fixed.output_copies[number], model.batching.output_copies, rtol=1e-9, atol=1e-12)
        if model.floor is not None:
            np.testing.assert_allclose(fixed.floor_s[number], model.floor.longest_s, rtol=1e-12)


def test_a_table_that_fits_nowhere_has_no_bound():
    """Where no memory holds a table, the bound is infinite, and there is no estimate."""
    costs = case_of("scarce").oracle.cost({"t0.rows": [10**11]})
    assert np.isinf(costs.lower_bound_s[0])
    assert costs.records()[0]["lower_bound_s"] is None
    assert costs.records()[0]["estimate_s"] is None


def test_costs_of_choices_add_up():
    """What choices of several tables add to the bound is the sum of what each adds, where no layer reads them."""
    made = plan(topology(node_group("a", nodes=2)), workload(TABLES, software="hugectr"), effort=0, simulate=False)
    oracle = Oracle(made)
    columns = {"t0.dim": [32, 64, 128], "t2.rows": [9_000, 900_000, 1_800_000]}
    of = oracle.table(columns)
    assert of["t0"][1] == of["t2"][1] == 0.0
    assert of["t0"][0] < 0 < of["t0"][2]
    both = oracle.cost({name: [values[0], values[2]] for name, values in columns.items()}).lower_bound_s
    base = oracle.cost({"name": ["base"]}).lower_bound_s[0]
    np.testing.assert_allclose(both - base, of["t0"][[0, 2]] + of["t2"][[0, 2]], rtol=1e-6, atol=1e-9)


def test_compressed_tables_have_the_bytes_of_their_parts():
    """A quotient and a remainder table are as many bytes as two tables of these rows, halves half as many numbers."""
    oracle = case_of("torchrec").oracle
    rows = [2_000_000, 500_000, 500_004, 500_000, None, None, None]
    words = [None, None, None, "none", "hash:4", "qr:4", "qr:4:add"]
    _, hashed, parts, *rest = oracle.cost({"t0.rows": rows, "t0.compressor": words}).bytes.tolist()
    assert rest == [hashed, hashed, parts, parts]


def test_candidates_beside_compressed_tables_keep_their_compressors_until_told():
    """Their bytes are those of the same models beside a base without any; a small table is below `compress_above`."""
    tables = ["qr:4:concat", "hash:2", "dim:8", None]
    asked = {"t4.rows": [None, 9_000, None, None], "t4.compressor": [None, None, "none", "hash:4"]}
    stated = {f"t{t}.compressor": [word] * 4 for t, word in enumerate(tables)}
    stated |= {"t4.rows": asked["t4.rows"], "t4.compressor": ["qr:8", None, None, "hash:4"]}
    found, expected = (
        case_of(name).oracle.cost(columns).bytes.tolist()
        for name, columns in (("compressed", asked), ("torchrec", stated))
    )
    assert found == expected
    assert len(set(found)) == 4


def test_a_compressed_candidate_is_planned_as_the_model_that_states_it():
    """With the same step as the workload that has the compressor in its table."""
    case = case_of("hugectr")
    exact = case.oracle.exact(case.oracle.cost({"t0.compressor": ["qr:8:concat"]}), 1, effort=0)
    stated = workload([TABLES[0] | {"compressor": "qr:8:concat"}, *TABLES[1:]], dense=DENSE, software="hugectr")
    made = plan(topology(node_group("a", nodes=2)), stated, effort=0, gap=0, simulate=False)
    assert made.objective is not None
    assert exact.plans[0].objective == made.objective
    assert exact.lower_bound_s[0] <= made.objective.lower_bound_s


def test_what_is_rounded_off_a_bound_is_no_part_of_an_estimate():
    """Where it is as much as tables take, estimates still differ as steps do."""
    tables = [{"rows": 20_000, "dim": 16, "pooling_factor": read} for read in (1, 2, 3, 4)]
    made = plan(
        topology(node_group("a")), workload(tables, dense=DENSE, software="torchrec"), effort=1, gap=0, simulate=False
    )
    oracle = Oracle(made)
    exact = oracle.exact(oracle.cost({"t3.pooling_factor": [2, 4, 16, 32]}), 4)
    found = [exact.plans[number].objective for number in range(4)]
    steps = np.array([each.best_step_s or each.step_s for each in found if each is not None])
    np.testing.assert_allclose(np.diff(exact.estimate_s)[::2], np.diff(steps)[::2], rtol=0.1)
