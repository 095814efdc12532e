"""A plan document's own model and shards: what everything about the plan is computed from."""

import numpy as np
import pytest

from cost_models.registry import COST_MODELS
from planner import plan
from planner.document.planned import placed_shards, planned_model, planned_topology
from planner.formulation.policy import Policy, PolicyReserve
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

CLUSTER = topology(node_group("g", nodes=2, ranks=2))
TRAINED = workload([{"rows": 1000 * n, "dim": 32} for n in (1, 2, 3)])


@pytest.mark.parametrize("name", COST_MODELS)
def test_the_model_of_a_plan_repeats_its_figures(name: str) -> None:
    """Stages and capacities, with the reserve of the policy and under the cost model that the document names."""
    policy = Policy(reserve=PolicyReserve.model_validate({"hbm": "10%"}))
    found = plan(CLUSTER, TRAINED, cost_model=name, policy=policy, effort=0, simulate=False)
    model = planned_model(found)
    assert (model.name, model.topology, model.workload) == (name, CLUSTER, TRAINED)
    seconds = model.evaluate(placed_shards(found)).stage_seconds
    np.testing.assert_allclose(seconds, [stage.seconds for stage in found.stages], rtol=1e-9)
    assert model.memory_capacity[0] == pytest.approx([rank.capacity.hbm for rank in found.ranks], abs=1)
    assert model.memory_capacity[0].max() <= 0.9e9


def test_inputs_that_are_no_longer_valid_are_refused_where_they_stand() -> None:
    """The document and the field are named."""
    found = plan(CLUSTER, TRAINED, effort=0, simulate=False)
    source = found.provenance.topology.model_copy(update={"content": {"name": "none"}})
    broken = found.model_copy(update={"provenance": found.provenance.model_copy(update={"topology": source})})
    with pytest.raises(InputError, match=r"old\.json: provenance\.topology\.content"):
        planned_topology(broken, "old.json: ")
