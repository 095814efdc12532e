"""What a plan is asked for, before anything is computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cost_models.dense_sharding import sharding_of
from cost_models.model import CostModel
from cost_models.registry import COST_MODELS, why_flat
from cost_models.replicas import Replicas, groups_in_words, ranks_of
from cost_models.shards import PLACEMENT_TIERS, SHARDINGS
from cost_models.stages import VectorExchange
from cost_models.towers import has_towers
from cost_models.workload.models import Workload
from planner.formulation.allowed_choices import model_of_replicas, planning_model
from planner.formulation.checkpoint_choices import checkpoint_candidates
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.dense_choices import candidates as dense_candidates
from planner.formulation.dense_choices import is_left_to_workload
from planner.formulation.formulation import Formulation
from planner.formulation.options import enumerate_options
from planner.formulation.policy import Policy, narrow, offered, policy_document
from planner.formulation.replica_choices import candidates, the_choice
from planner.formulation.runtimes import RUNTIMES
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
    chosen: tuple[Replicas | None] | None = None
    """Which of the policy's choices of replicas is meant; None where it leaves no choice."""

    @classmethod
    def asked(
        cls, topology: Topology, workload: Workload, written_policy: Document, cost_model: str = "physical"
    ) -> "Question":
        """The question with a policy as it was written, and the workload in the software profile of its runtime."""
        policy = offered(validate(written_policy, Policy), topology, cost_model)
        return cls(topology, priced_as_run(workload, policy), policy, cost_model, written_policy)

    @property
    def exchanges(self) -> tuple[VectorExchange, ...]:
        """The exchanges of vectors that are to be planned for."""
        if self.policy.exchange != "auto":
            return (self.policy.exchange,)
        (replicas,) = self.chosen or (the_choice(self.policy.replicas, self.topology, self.workload),)
        return open_exchanges(self.cost_model, ranks_of(replicas, self.topology), self.workload, self.policy)

    def settled(self, exchange: VectorExchange) -> "Question":
        """The same question under one exchange."""
        return replace(self, policy=self.policy.model_copy(update={"exchange": exchange}))

    def model(self) -> CostModel:
        """What placements cost. Raises InputError for an unknown cost model, or an open choice of replicas."""
        inputs = self.cost_model, self.topology, self.workload, self.policy
        return planning_model(*inputs) if self.chosen is None else model_of_replicas(*inputs, *self.chosen)

    def choices_of_replicas(self) -> list["Question"]:
        """The question for each of the choices of replicas that there are. Raises InputError as `candidates` does."""
        found = candidates(self.policy.replicas, self.topology, self.workload)
        return [replace(self, chosen=(each,)) for each in found]

    def choices_of_dense(self) -> list["Question"]:
        """The question for each strategy of the dense part that there is, and each way to checkpoint it.

        A strategy that the workload states leaves the policy nothing to say.

        Raises InputError as `candidates` does, and for what is planned with a replicated one alone.
        """
        self._expect_a_dense_part()
        policy, held = self.policy, dense_candidates(self.policy.dense, self.topology, self.workload, self.cost_model)
        if any(sharding_of(each).is_sharded for each in held):
            for name, value in (("replicas", policy.replicas), ("robust", policy.robust)):
                if value is not None:
                    message = f"plans with {name} have a replicated dense part; leave {name} or the strategy out"
                    raise InputError.at("dense", message, path="strategy")
        found = [way.workload for each in held for way in replace(self, workload=each).choices_of_checkpointing()]
        if is_left_to_workload(policy.dense, self.workload):
            policy = policy.model_copy(update={"dense": None})
        return [replace(self, workload=workload, policy=policy) for workload in found]

    def _expect_a_dense_part(self) -> None:
        """Raise InputError for a rating of tables alone that is asked to choose of the dense part."""
        is_rating = self.cost_model in COST_MODELS and COST_MODELS[self.cost_model].quantity != "step"
        is_open = self.policy.dense is not None and self.policy.dense.settled is None
        open_keys = {"dense": is_open, "checkpointing": self.policy.checkpointing == "auto"}
        for key in (key for key, is_left in open_keys.items() if is_rating and is_left):
            message = f"auto: {self.cost_model} rates tables alone; use the cost model physical, or leave {key} out"
            raise InputError.at("policy", message, path=key)

    def choices_of_checkpointing(self) -> list["Question"]:
        """The question for each way to checkpoint the dense part that there is, not checkpointed first. Raises
        InputError as `checkpoint_candidates` does."""
        choice = self.policy.checkpointing if self.cost_model == "physical" else None
        return [replace(self, workload=each) for each in checkpoint_candidates(choice, self.workload)]

    @property
    def groups(self) -> str:
        """The choice of replicas in words."""
        return groups_in_words(None if self.chosen is None else self.chosen[0])

    def formulation(self, tell: Callable[[str, None, None], None] = lambda *_: None) -> Formulation:
        """The options of every table, and their problem. Raises InputError for a policy that contradicts itself."""
        tell("ways to hold each table", None, None)
        model = self.model()
        options = enumerate_options(model, allowed_choices(model, self.policy, self.written_policy))
        tell("what each way costs", None, None)
        return Formulation.of_options(model, options)


def open_exchanges(
    cost_model: str, topology: Topology, workload: Workload, policy: Policy
) -> tuple[VectorExchange, ...]:
    """The exchanges among which `auto` chooses on a cluster, or on what one group of ranks has of it: one where the
    runtime, the cost model, the cluster or the model has no other."""
    there = RUNTIMES[policy.runtime].exchanges
    if workload.tower_modules:
        return there[-1:]
    if cost_model not in COST_MODELS or why_flat(cost_model, topology, workload):
        return there[:1]
    return there if has_towers(topology, workload, "sptt") else there[:1]


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
