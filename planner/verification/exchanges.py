"""Whether a document's exchange of vectors is one that its policy asks for, and what is proven under the other one."""

from collections.abc import Iterator

from cost_models.workload.models import Workload
from planner.document.plan import OtherExchange, Plan
from planner.document.planned import model_under
from planner.document.provenance import planned_options
from planner.formulation.allowed_choices import AllowedChoices
from planner.formulation.formulation import Formulation
from planner.formulation.question import open_exchanges
from planner.verification.figures import TOLERANCE
from planner.verification.protocol_proofs import faults_of_proofs, proven_s
from topologies.cluster import Topology


def exchange_faults(plan: Plan, topology: Topology, workload: Workload) -> Iterator[str]:
    """An exchange that is none of the policy's; another one that it does not leave open."""
    origin = plan.provenance
    asked = origin.policy.exchange
    among = (asked,) if asked != "auto" else open_exchanges(origin.cost_model, topology, workload, origin.policy)
    if origin.exchange not in among:
        yield f"provenance: exchange is {origin.exchange}, the policy leaves {' and '.join(among)}"
    other = plan.other_exchange
    if other is not None and (other.exchange not in among or other.exchange == origin.exchange):
        yield f"other_exchange: {other.exchange} is none that the policy leaves beside {origin.exchange}"


def other_exchange_faults(plan: Plan, choices: AllowedChoices) -> Iterator[str]:
    """Whether the bound holds under the other exchange, too, and the plan's step is not the longer one."""
    other, objective = plan.other_exchange, plan.objective
    if other is None or objective is None:
        return
    if other.step_s < objective.step_s * (1 - TOLERANCE):
        yield f"other_exchange: {other.exchange} takes {other.step_s!r} s, less than the plan"
    if not 0 <= other.lower_bound_s <= other.step_s:
        yield f"other_exchange: the bound {other.lower_bound_s!r} is not between 0 and the step {other.step_s!r}"
    if objective.lower_bound_s > other.lower_bound_s * (1 + TOLERANCE):
        yield f"objective: the bound {objective.lower_bound_s!r} is above that of {other.exchange}"
    yield from _proof(plan, other, choices)


def _proof(plan: Plan, other: OtherExchange, choices: AllowedChoices) -> Iterator[str]:
    model = model_under(plan, other.exchange)
    formulation = Formulation.of_options(model, planned_options(plan.provenance, model, choices))
    faults = list(faults_of_proofs(other.proof, formulation))
    yield from (f"other_exchange: proof: {fault}" for fault in faults)
    if faults:
        return
    proven = model.whole_step_s(proven_s(other.proof, formulation))
    if proven < other.lower_bound_s * (1 - TOLERANCE):
        yield f"other_exchange: its multipliers prove {proven!r}, the document says {other.lower_bound_s!r}"
