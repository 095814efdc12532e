"""What a plan is asked for, before anything is computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cost_models.model import CostModel
from cost_models.shards import PLACEMENT_TIERS, SHARDINGS
from cost_models.workload.models import Workload
from planner.formulation.allowed_choices import planning_model
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.formulation import Formulation
from planner.formulation.options import enumerate_options
from planner.formulation.policy import Policy, narrow, offered, policy_document
from planner.formulation.software import priced_as_run
from topologies.cluster import Topology
from topologies.documents import Document, did_you_mean, validate
from topologies.errors import InputError


@dataclass(frozen=True)
class Question:
    """A cluster, a workload as it is run there, what is allowed, and the cost model that says what is best."""

    topology: Topology
    workload: Workload
    """With the software profile whose times are meant; see `asked`."""
    policy: Policy
    cost_model: str = "physical"
    written_policy: Document = field(default_factory=lambda: Document({}, "policy"))
    """Where each key of the policy stood, for messages."""

    @classmethod
    def asked(
        cls, topology: Topology, workload: Workload, written_policy: Document, cost_model: str = "physical"
    ) -> "Question":
        """The question with a policy as it was written, and the workload in the software profile of its runtime."""
        policy = offered(validate(written_policy, Policy), topology, cost_model)
        return cls(topology, priced_as_run(workload, policy), policy, cost_model, written_policy)

    def model(self) -> CostModel:
        """What placements cost. Raises InputError for an unknown cost model."""
        return planning_model(self.cost_model, self.topology, self.workload, self.policy)

    def formulation(self, tell: Callable[[str, None, None], None] = lambda *_: None) -> Formulation:
        """The options of every table, and their problem. Raises InputError for a policy that contradicts itself."""
        tell("ways to hold each table", None, None)
        model = self.model()
        options = enumerate_options(model, allowed_choices(model, self.policy, self.written_policy))
        tell("what each way costs", None, None)
        return Formulation.of_options(model, options)


def narrowed_policy(
    policy: Policy | Document | str | Path | None, tiers: Sequence[str] | None, shardings: Sequence[str] | None
) -> Document:
    """The policy with the names given as further limits. Raises InputError for an unknown one."""
    named = (("tiers", "tier", tiers, PLACEMENT_TIERS), ("shardings", "sharding", shardings, SHARDINGS))
    unknown = [
        fault
        for _, what, names, known in named
        for word in names or ()
        if word not in known
        for fault in InputError.at(word, f"is not a {what}{did_you_mean(word, known)}").faults
    ]
    if unknown:
        raise InputError(unknown)
    document = policy if isinstance(policy, Document) else policy_document(policy)
    for key, _, names, _ in named:
        if names is not None:
            narrow(document, key, list(names), f"{key}={','.join(names)}")
    return document
