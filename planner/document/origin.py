"""What a plan was computed from, as the document says it."""

from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from cost_models.shards import PlacementTier
from cost_models.stages import VectorExchange
from planner.formulation.option_space import FEW_CUTS, Cuts
from planner.formulation.policy import Policy
from topologies.documents import Record


class Source(Record):
    """An input that the plan was computed for."""

    name: str
    """Its own name."""
    fingerprint: str
    """Content hash over all fields."""
    content: dict[str, Any]
    """The input itself, with every override; fields at their default are left out."""


class CoefficientSources(Record):
    """The coefficient files behind the costs."""

    fingerprint: str
    """Content hash over all coefficients that were used."""
    software: str
    """The software profile."""
    devices: tuple[str, ...]
    """The devices whose coefficients were used."""
    links: tuple[str, ...]
    """The links and networks whose coefficients were used."""
    kinds: dict[str, int]
    """How many of the coefficients are spec, measured, fitted or assumed."""


def _dump_policy(policy: Policy) -> dict[str, Any]:
    """Tiers and shardings, and what else is not at its default."""
    words = {"tiers": list(policy.tiers), "shardings": list(policy.shardings)}
    return words | policy.model_dump(mode="json", exclude_defaults=True)


Fractions = tuple[Annotated[float, Field(gt=0, le=1)], ...]
"""Shares of a table's rows, ascending."""
TimedWork = Literal["cache sizes", "search"]
"""The search is that for plans and for the bound."""


class Provenance(Record):
    """What the plan was computed for, with and by."""

    planner_version: str
    """The version that wrote the plan."""
    topology: Source
    """The cluster."""
    workload: Source
    """The model."""
    coefficients: CoefficientSources
    """The numbers that the costs rest on."""
    cost_model: str
    """physical, torchrec or hugectr."""
    solver: str
    """What found the plan."""
    seed: int
    """That random choices were drawn with."""
    seeds: Annotated[int, Field(ge=1, exclude_if=lambda seeds: seeds == 1)] = 1
    """From how many seeds was searched, that one and those that follow it."""
    wall_s: float | None = None
    """Always null in a file: the same inputs give the same bytes. The command line prints the time."""
    policy: Annotated[Policy, PlainSerializer(_dump_policy, return_type=dict[str, Any], when_used="json")]
    """What the plan was allowed to use; keys at their default are left out."""
    policy_fingerprint: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """Content hash over all fields of the policy; unset in plans from before there was one."""
    exchange: Annotated[VectorExchange, Field(exclude_if=lambda exchange: exchange == "flat")] = "flat"
    """How vectors are exchanged: what the policy says or, of what it leaves open, the one with the shorter step."""
    cuts: Cuts = Field(default_factory=lambda: FEW_CUTS)
    """The column cuts that were options. The lower bound is one on plans of these cuts."""
    warnings: Annotated[tuple[str, ...], Field(default=(), exclude_if=lambda value: not value)]
    """What a reader must know of how the inputs go together: a runtime other than the software that is priced."""
    ended_by_time: Annotated[tuple[TimedWork, ...], Field(exclude_if=lambda value: not value)] = ()
    """What a time limit ended before it was done: the same inputs may then give another plan."""
    cache_fractions: Annotated[
        dict[PlacementTier, dict[str, Fractions]], Field(default_factory=dict, exclude_if=lambda value: not value)
    ]
    """The cache sizes that were options, by tier and table, in shares of its rows, the same few of every table among
    them; unset: these few alone. The lower bound is one on plans of these sizes."""
