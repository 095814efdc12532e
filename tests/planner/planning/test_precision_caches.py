"""Nobody is worse off for a choice of caches of full precision."""

import pytest

from cost_models.workload.loading import load_workload
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.verification.verify import verify
from topologies.cluster import Topology
from topologies.loading import load_topology

CHOICE = Policy.model_validate({"precision_caches": ["off", "1%", "5%"]})


def _cluster(hbm: str) -> Topology:
    document = load_topology("dgx-a100-80", nodes=1).model_dump(mode="json", exclude_none=True)
    document["nodes"][0]["accelerators"]["hbm"] |= {"capacity": hbm}
    return Topology.model_validate(document)


@pytest.mark.parametrize(
    ("tables", "hbm", "gap"),
    [
        (30, "3GB", 0.01),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [(60, "6GB", 0.01), (60, "8GB", 0.05)]),
    ],
)
def test_a_choice_makes_no_plan_slower(tables: int, hbm: str, gap: float) -> None:
    """The search alone ends 0.23, 0.11 and 0.97 % above the plan without the choice, within the gap that is asked."""
    rm3, cluster = load_workload("rm3"), _cluster(hbm)
    workload = rm3.model_copy(update={"tables": rm3.tables[:tables]})
    without = plan(cluster, workload, effort=0, gap=gap, simulate=False)
    found = plan(cluster, workload, effort=0, gap=gap, simulate=False, policy=CHOICE)
    assert without.objective is not None
    assert found.objective is not None
    assert found.objective.step_s <= without.objective.step_s
    assert found.objective.lower_bound_s <= without.objective.step_s  # which the choice allows, too
    assert verify(found) == []
