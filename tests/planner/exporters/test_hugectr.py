"""Plans for HugeCTR: what goes out comes in again as it was."""

from dataclasses import replace

import numpy as np
import pytest

from planner import plan
from planner.document.plan import Plan
from planner.exporters.hugectr import hugectr_sharding
from planner.formulation.policy import Policy
from planner.importers.adoption import AdoptionInputs, adopted
from planner.importers.hugectr import differences, hugectr_tables, planned_with
from tests.oracles.instances import tiny_instance
from tests.seeds import seeds
from topologies.errors import InputError

RUNTIME = Policy(runtime="hugectr")
FEW = (0, 1, 4, 5, 7, 12, 33, 41, 50)


def exported(seed: int, cost_model: str) -> tuple[Plan, AdoptionInputs] | None:
    """The plan of a tiny instance, its tables in the one format that HugeCTR stores; None where nothing fits."""
    model = tiny_instance(seed).model
    tables = tuple(table.model_copy(update={"dtype": "fp32"}) for table in model.workload.tables)
    trained = model.workload.model_copy(update={"tables": tables})
    inputs = AdoptionInputs(model.topology, trained, cost_model, RUNTIME)
    made = plan(model.topology, trained, policy=RUNTIME, cost_model=cost_model, effort=0, gap=0.05, simulate=False)
    return (made, inputs) if made.tables else None


@pytest.mark.parametrize("cost_model", ["physical", "hugectr"])
@pytest.mark.parametrize("seed", seeds(FEW, (20,)))
def test_a_plan_comes_back_as_it_went_out(seed: int, cost_model: str) -> None:
    """Under its own cost model: every shard on its rank with its bytes, the same step; nothing is said to differ."""
    found = exported(seed, cost_model)
    if found is None:
        return
    made, inputs = found
    document = hugectr_sharding(made)
    assert planned_with(document, "x") == cost_model
    held = hugectr_tables(document, inputs, "x")
    again = adopted(held, inputs, "hugectr", "x", simulate=False)
    for before, after in zip(made.tables, again.tables, strict=True):
        assert (before.name, before.tier, before.dtype) == (after.name, after.tier, after.dtype)
        np.testing.assert_array_equal(before.shards.as_matrix()[:, :5], after.shards.as_matrix()[:, :5])
    assert again.objective is not None
    assert made.objective is not None
    assert again.objective.step_s == pytest.approx(made.objective.step_s, rel=1e-12)
    assert list(differences(document, inputs, held)) == []


def test_what_differs_is_said_with_what_to_change() -> None:
    """Another workload, another topology, another cost model, and rows that the rating has no word for."""
    made, inputs = next(found for seed in FEW if (found := exported(seed, "physical")) is not None)
    document = hugectr_sharding(made)
    held = hugectr_tables(document, inputs, "x")
    other = replace(inputs, given_workload=inputs.given_workload.model_copy(update={"name": "other"}))
    (said,) = differences(document, other, held)
    assert "another workload" in said
    assert "-w, --global-batch and --set" in said
    other = replace(inputs, topology=inputs.topology.model_copy(update={"name": "other"}))
    (said,) = differences(document, other, held)
    assert "-t, --nodes and --set" in said
    rated = replace(inputs, cost_model="hugectr")
    said, *_ = differences(document, rated, held)
    assert said.endswith("--cost-model physical")


def test_an_unknown_cost_model_is_refused() -> None:
    """By name."""
    with pytest.raises(InputError, match="'magic' is none of physical, torchrec, hugectr"):
        planned_with({"planned_with": {"cost_model": "magic"}}, "x")
