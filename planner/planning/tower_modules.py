"""What modules in towers would make of a plan whose policy leaves the exchange of vectors open.

They make another model, so that no policy turns them on: this only tells what they would be worth.
"""

from dataclasses import dataclass

from cost_models.dense_sharding import sharding_of
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.document.planned import planned_inputs, planned_replicas, planned_topology
from planner.formulation.question import Question
from planner.planning.planning import plan
from topologies.documents import Document, validate
from topologies.errors import InputError

COMPRESSION = 2
"""Columns of a tower over what its module gives: the least that DMT weighs against accuracy (arXiv:2403.00877)."""


class _Faster:
    """A search for a step below `best_s`: it goes no further once its bound says that there is none."""

    def __init__(self, best_s: float) -> None:
        self._best_s, self._is_out = best_s, False

    def tell(self, _step: str, _best_s: float | None, bound_s: float | None) -> None:
        """Hear how far the search is."""
        self._is_out = self._is_out or (bound_s is not None and bound_s >= self._best_s)

    def stop(self) -> bool:
        """Whether to go no further."""
        return self._is_out


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
    """The shortest step that short searches find for linear modules in as many towers as the cluster may have: all
    numbers that divide its scale-up domains, most towers first. None where none is shorter than the plan's step, where
    the exchange is not open, or where the model, the cluster or the policy has no room for them."""
    origin = planned.provenance
    if planned.objective is None or origin.policy.exchange != "auto":
        return None
    topology, workload = planned_inputs(planned)
    if workload.towers is not None or planned_replicas(planned) is not None or sharding_of(workload).is_sharded:
        return None
    if "sptt" not in Question(topology, workload, origin.policy, origin.cost_model).exchanges:
        return None
    domains = topology.world_size // min(topology.nodes[0].domain_ranks, topology.world_size)
    best: TowerModules | None = None
    for towers in (count for count in range(domains, 1, -1) if domains % count == 0):
        best_s = planned.objective.step_s if best is None else best.step_s
        step_s = _step_s(planned, towers, best_s)
        if step_s is not None and step_s < best_s:
            best = TowerModules(towers, step_s)
    return best


def _step_s(planned: Plan, towers: int, best_s: float) -> float | None:
    """The step of a plan with so many towers, as far as it takes to know whether it is below `best_s`; None where there
    is none."""
    origin, faster = planned.provenance, _Faster(best_s)
    described = {"count": towers, "module": "linear", "compression": COMPRESSION}
    content = {**origin.workload.content, "towers": described}
    policy = origin.policy.model_copy(update={"exchange": "sptt"})
    try:
        other = validate(Document(content, "provenance.workload.content"), Workload)
        found = plan(
            planned_topology(planned),
            other,
            policy=policy,
            effort=0,
            seed=origin.seed,
            progress=faster.tell,
            stop=faster.stop,
            simulate=False,
        )
    except InputError:
        return None
    return None if found.objective is None else found.objective.step_s
