"""Replicas of the tables: groups of ranks that train copies apart, and how the copies are kept together.

Each of M groups shards all tables over its own ranks, and trains them with its own part of the batch (2D sparse
parallelism, arXiv:2508.03854; `DMPCollection` of TorchRec 1.8.0). The dense part stays one world.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from cost_models.groups import RankGroup
from cost_models.workload.models import Workload
from cost_models.workload.table_names import Globs, are_named
from topologies.cluster import NodeGroup, Topology
from topologies.documents import Record
from topologies.errors import InputError
from topologies.hardware import Count
from topologies.messages import nearest_name
from topologies.replica_groups import Layout, group_of

SyncStrategy = Literal["default", "fully_sharded"]
SYNC_STRATEGIES: tuple[SyncStrategy, ...] = get_args(SyncStrategy)


class ReplicaRule(Record):
    """Tables with more copies than the others: TorchRec's `submodule_configs`."""

    tables: Globs
    """Names or patterns of the tables that the rule is for."""
    unless: Annotated[Globs | None, Field(exclude_if=lambda value: value is None)] = None
    """Names that the rule spares."""
    factor: Count
    """Their copies: a multiple of those of the other tables."""

    @model_validator(mode="before")
    @classmethod
    def _in_one_layout(cls, given: object) -> object:
        if isinstance(given, Mapping) and "layout" in given:
            raise ValueError("layout is one for all copies: write it beside rules, not in one of them")
        return given

    def are_meant(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """[T] the tables that the rule is about."""
        meant = np.logical_or.reduce([are_named(pattern, names) for pattern in self.tables])
        return np.asarray(
            meant & ~np.logical_or.reduce([are_named(pattern, names) for pattern in self.unless or ("",)])
        )

    @property
    def words(self) -> str:
        """`4 of user_*`."""
        spared = f" unless {', '.join(self.unless)}" if self.unless else ""
        return f"{self.factor} of {', '.join(self.tables)}{spared}"


class Replicas(Record):
    """How often, and how, M copies of the tables are held and averaged."""

    factor: Annotated[int, Field(ge=1, strict=True)]
    """Groups of ranks, each with all tables: M. 1 where rules alone give tables copies."""
    layout: Layout = "intra"
    """Whether the ranks that hold the same shards are neighbours (intra), or those of a group are (inter)."""
    strategy: SyncStrategy = "default"
    """default: weights and optimizer state are averaged after a step. fully_sharded: each copy of a shard is cut over
    its replicas while it is not read; weights are averaged as they are cut, and gathered before their update."""
    sync_every: Count = 1
    """Steps from one averaging to the next; each step with fully_sharded."""
    state_every: Count | None = None
    """Steps from one averaging of the optimizer state to the next; unset: it is never averaged."""
    rules: Annotated[tuple[ReplicaRule, ...], Field(exclude_if=lambda rules: not rules)] = ()
    """Tables with more copies than M. Within each of the M groups, so many ranks have the same shards of them."""

    @model_validator(mode="after")
    def _whole_intervals(self) -> "Replicas":
        if self.is_fully_sharded and self.sync_every != 1:
            raise ValueError("fully_sharded replicas are averaged in each step; leave out sync_every")
        if self.state_every is not None and self.state_every % self.sync_every:
            raise ValueError(
                f"state_every is {self.state_every}, and must be a multiple of sync_every, which is {self.sync_every}:"
                f" optimizer state is averaged together with weights"
            )
        return self

    @property
    def is_fully_sharded(self) -> bool:
        """Whether copies are cut over their replicas."""
        return self.strategy == "fully_sharded"

    @property
    def share_nodes(self) -> bool:
        """Whether every group has ranks of each node, or there is one."""
        return self.factor == 1 or self.layout == "intra"

    @property
    def averages(self) -> bool:
        """Whether anything is averaged after a step, while everything waits."""
        return not self.is_fully_sharded or self.state_every is not None

    @property
    def state_share(self) -> float:
        """Of all steps, those after which the optimizer state is averaged."""
        return 0.0 if self.state_every is None else 1 / self.state_every

    @property
    def averaged_shares(self) -> tuple[float, float]:
        """Of all steps, those after which weights are averaged while everything waits, and those after which optimizer
        state is."""
        return 0.0 if self.is_fully_sharded else 1 / self.sync_every, self.state_share

    @property
    def words(self) -> str:
        """`4 replicas (intra)`; with rules, `1 replica (intra), 4 of user_*`."""
        words = f"{self.factor} replica{'s' * (self.factor > 1)} ({self.layout})"
        return ", ".join([words, *(rule.words for rule in self.rules)])

    def alike(self, factor: int) -> "Replicas":
        """The same with so many copies of all tables."""
        return self.model_copy(update={"factor": factor, "rules": ()})

    def factors(self, names: Sequence[str]) -> NDArray[np.int64]:
        """[T] copies of each table. Raises InputError for rules that contradict each other, or name no table."""
        copies = np.full(len(names), self.factor, dtype=np.int64)
        ruled = np.zeros(len(names), dtype=bool)
        for number, rule in enumerate(self.rules):
            meant, where = rule.are_meant(names), f"rules[{number}] ({rule.words})"
            if not meant.any():
                raise InputError.at("replicas", f"{where} names no table{nearest_name(rule.tables[0], names)}")
            if rule.factor % self.factor:
                many = "1 copy is" if rule.factor == 1 else f"{rule.factor} copies are"
                message = f"{many} no multiple of the {self.factor} that the other tables have"
                raise InputError.at("replicas", f"{where}: {message}; give the fewest as factor, and rules for more")
            if (other := np.flatnonzero(meant & ruled & (copies != rule.factor))).size:
                message = f"{names[int(other[0])]!r} has {copies[other[0]]} copies by another rule"
                raise InputError.at("replicas", f"{where}: {message}; spare it there (unless: {names[int(other[0])]})")
            copies[meant], ruled = rule.factor, ruled | meant
        levels = np.unique(copies).tolist()
        if levels[0] > self.factor:
            message = f"rules give every table more copies than {self.factor}; give the fewest, {levels[0]}, as factor"
            raise InputError.at("replicas", message)
        for fewer, more in itertools.pairwise(levels):
            if more % fewer:
                message = f"rules with {fewer} and {more} copies: the more must be a multiple, so that groups nest"
                raise InputError.at("replicas", message)
        return copies


def groups_in_words(replicas: Replicas | None) -> str:
    """`4 replicas (intra)` or `one world`."""
    return "one world" if replicas is None else replicas.words


def ranks_of(replicas: "Replicas | None", topology: Topology) -> Topology:
    """The cluster over which tables are sharded: all of it, or what one group has. Raises InputError as `group`."""
    return topology if replicas is None else ReplicatedCluster(topology, replicas).group


@dataclass(frozen=True)
class ReplicatedCluster:
    """A cluster whose ranks are in groups."""

    topology: Topology
    """All of it."""
    replicas: Replicas

    @cached_property
    def group(self) -> Topology:
        """What one group has. Raises InputError where groups would not be alike, or have nothing to shard over."""
        group = group_of(self.topology, self.replicas.factor, self.replicas.layout)
        if group.world_size == 1:
            factor, world = self.replicas.factor, self.topology.world_size
            raise InputError.at("replicas", f"{factor} groups of {world} ranks have one rank each: nothing is sharded")
        return group

    def workload(self, workload: Workload) -> Workload:
        """The workload of one group: its part of each batch. Raises InputError where groups get no equal parts."""
        if workload.global_batch is None:
            return workload
        if workload.global_batch % self.replicas.factor:
            raise InputError.at(
                "replicas",
                f"{workload.name} has batches of {workload.global_batch} samples, no multiple of the"
                f" {self.replicas.factor} groups that divide them",
            )
        return workload.model_copy(update={"global_batch": workload.global_batch // self.replicas.factor})

    def sharing(self, group: NodeGroup) -> RankGroup:
        """The ranks that hold the same shards."""
        factor = self.replicas.factor
        if self.replicas.layout == "intra":
            return RankGroup(factor, factor, factor)
        apart = self.topology.world_size // factor
        near = max(1, group.domain_ranks // apart)
        return RankGroup(max(1, group.accelerators.count // apart), near, factor)
