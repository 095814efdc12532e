"""What modules in towers would make of a plan whose policy leaves the exchange of vectors open.

They make another model, so that no policy turns them on: this only tells what they would be worth.
"""

from dataclasses import dataclass

from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.document.planned import planned_inputs, planned_replicas, planned_topology
from planner.formulation.question import Question
from planner.planning.planning import plan
from topologies.documents import Document, validate
from topologies.errors import InputError

COMPRESSION = 2
"""Columns of a tower over what its module gives: the least that DMT weighs against accuracy (arXiv:2403.00877)."""


@dataclass(frozen=True)
class TowerModules:
    """A plan with a linear module in each tower."""

    towers: int
    step_s: float
    """Of a plan that was found: the shortest is at most that."""

    @property
    def words(self) -> str:
        """`linear, compression 2, 4 towers`."""
        return f"linear, compression {COMPRESSION}, {self.towers:,} towers"


def with_tower_modules(planned: Plan) -> TowerModules | None:
    """What a short search finds for linear modules; None where it is no shorter than the plan's step, where the
    exchange is not open, or where the model, the cluster or the policy has no room for them."""
    origin = planned.provenance
    if planned.objective is None or origin.policy.exchange != "auto":
        return None
    topology, workload = planned_inputs(planned)
    if workload.towers is not None or planned_replicas(planned) is not None:
        return None
    if "sptt" not in Question(topology, workload, origin.policy, origin.cost_model).exchanges:
        return None
    towers = topology.world_size // min(topology.nodes[0].domain_ranks, topology.world_size)
    described = {"count": towers, "module": "linear", "compression": COMPRESSION}
    content = {**origin.workload.content, "towers": described}
    policy = origin.policy.model_copy(update={"exchange": "sptt"})
    try:
        other = validate(Document(content, "provenance.workload.content"), Workload)
        found = plan(planned_topology(planned), other, policy=policy, effort=0, seed=origin.seed, simulate=False)
    except InputError:
        return None
    if found.objective is None or found.objective.step_s >= planned.objective.step_s:
        return None
    return TowerModules(towers, found.objective.step_s)
