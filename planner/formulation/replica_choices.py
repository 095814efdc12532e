"""How many copies of the tables a policy allows, in which groups of ranks: the candidates that a plan is sought for.

A candidate is `Replicas`, or None for one world of ranks.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cost_models.kinds import domains_per_tower
from cost_models.replicas import ReplicaRule, Replicas, ReplicatedCluster, SyncStrategy
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.documents import Record
from topologies.errors import InputError
from topologies.hardware import Count
from topologies.replica_groups import LAYOUTS, Layout

AUTO: Literal["auto"] = "auto"


def _as_list(value: object) -> object:
    return value if isinstance(value, list | tuple) or value == AUTO else [value]


def _ascending(values: tuple[int, ...] | Literal["auto"]) -> tuple[int, ...] | Literal["auto"]:
    return values if values == AUTO else tuple(sorted(set(values)))


Factors = Annotated[Literal["auto"] | tuple[Count, ...], BeforeValidator(_as_list), AfterValidator(_ascending)]
Layouts = Annotated[tuple[Layout, ...], BeforeValidator(_as_list), Field(min_length=1)]


class ReplicaChoices(Record):
    """Copies of the tables that a plan may have, each over a group of the ranks; the best of all choices is taken."""

    factor: Annotated[Factors, Field(min_length=1)] = AUTO
    """Copies: one number, several, or all that the cluster can be divided into (auto). 1 is one world."""
    layout: Layouts | None = None
    """Whether the ranks that hold the same shards are neighbours (intra), or those of a group are (inter). Unset: both;
    beside rules, intra."""
    sync_every: Count = 1
    """Steps from one averaging of the copies' weights to the next."""
    state_every: Count | Literal["never"] | None = None
    """Steps from one averaging of their optimizer state to the next; unset: with the weights, or never where these are
    fully_sharded."""
    strategy: SyncStrategy = "default"
    """What TorchRec calls its sharding strategy; see docs/reference/formats.md."""
    rules: Annotated[tuple[ReplicaRule, ...], Field(exclude_if=lambda rules: not rules)] = ()
    """Tables with more copies than `factor`."""

    @model_validator(mode="after")
    def _of_some_copies(self) -> "ReplicaChoices":
        for layout in self._layouts:
            self.replicas(2, layout)
        return self

    @property
    def _layouts(self) -> tuple[Layout, ...]:
        """Those that are tried: with rules, where none are stated, the one that TorchRec takes by default."""
        return self.layout or (("intra",) if self.rules else LAYOUTS)

    @classmethod
    def of(cls, replicas: Replicas) -> "ReplicaChoices":
        """The choice that there is no other than these."""
        return cls(
            factor=(replicas.factor,),
            layout=(replicas.layout,),
            sync_every=replicas.sync_every,
            state_every="never" if replicas.state_every is None else replicas.state_every,
            strategy=replicas.strategy,
            rules=replicas.rules,
        )

    def replicas(self, factor: int, layout: Layout) -> Replicas:
        """The choice of so many copies."""
        state = self.state_every
        if state is None and self.strategy == "default":
            state = self.sync_every
        return Replicas(
            factor=factor,
            layout=layout,
            strategy=self.strategy,
            sync_every=self.sync_every,
            state_every=None if state == "never" else state,
            rules=self.rules,
        )

    @property
    def without_effect(self) -> tuple[str, ...]:
        """What is said of copies, in words, where there are none in any case."""
        given = [name for name in ("layout", "sync_every", "state_every", "strategy") if name in self.model_fields_set]
        if self.factor != (1,) or not given or self.rules:
            return ()
        does = "does" if len(given) == 1 else "do"
        return (f"replicas: factor 1 is one world of ranks, which {' and '.join(given)} {does} not concern",)

    def listed(self, world: int) -> Iterator[Replicas | None]:
        """Every choice on so many ranks, whether or not it can be had there."""
        factors = [each for each in range(1, world // 2 + 1) if world % each == 0] or [1]
        for factor in factors if self.factor == AUTO else self.factor:
            if factor == 1 and not self.rules:
                yield None
            else:
                yield from (self.replicas(factor, layout) for layout in self._layouts)


def candidates(choices: ReplicaChoices | None, topology: Topology, workload: Workload) -> tuple[Replicas | None, ...]:
    """The choices that the cluster and the batch can be divided into, fewer copies first.

    Raises InputError for a stated number of copies that it can be divided into in none of the layouts.
    """
    if choices is None:
        return (None,)
    found: list[Replicas | None] = []
    refused: dict[int, InputError] = {}
    for each in choices.listed(topology.world_size):
        try:
            if each is not None:
                _expect_groups(each, topology, workload)
            found.append(each)
        except InputError as error:
            assert each is not None
            refused[each.factor] = error
    missing = set(refused) - {1 if each is None else each.factor for each in found}
    if missing and (choices.factor != AUTO or not found):
        (fault,) = refused[min(missing)].faults
        raise InputError.at("replicas", f"{fault.message}{_remedy(choices, topology, workload)}")
    if any(found):
        _expect_known(workload)
    return tuple(found)


def _remedy(choices: ReplicaChoices, topology: Topology, workload: Workload) -> str:
    """What could be had in the place of choices that cannot, as the end of a sentence."""
    if choices.rules and choices.layout is None:
        apart = choices.model_copy(update={"layout": ("inter",)})
        can = _known(apart, topology, workload)
        return "; beside rules layout is intra unless stated, and with layout inter it can be" if can else ""
    if choices.rules or choices.factor == AUTO:
        return ""
    known = _known(choices.model_copy(update={"factor": AUTO}), topology, workload)
    return f"; {', '.join(map(str, known))} can be" if known else ""


def _known(choices: ReplicaChoices, topology: Topology, workload: Workload) -> list[int]:
    """The numbers of copies that there can be in some layout, ascending; 1 for one world."""
    known = set()
    for each in choices.listed(topology.world_size):
        with suppress(InputError):
            if each is not None:
                _expect_groups(each, topology, workload)
            known.add(1 if each is None else each.factor)
    return sorted(known)


def _expect_groups(replicas: Replicas, topology: Topology, workload: Workload) -> None:
    """Raise InputError where the groups of tables with some number of copies cannot be, or are not alike."""
    towers = {}
    for copies in np.unique(replicas.factors([table.name for table in workload.tables])).tolist():
        cluster = ReplicatedCluster(topology, replicas.alike(copies))
        group, _ = cluster.group, cluster.workload(workload)
        towers[domains_per_tower(group, workload)] = copies
    if not replicas.rules or replicas.layout == "intra":
        return
    if len(towers) > 1:
        sizes = " and ".join(f"{domains} hosts with {copies} copies" for domains, copies in towers.items())
        message = f"towers (count: {workload.towers and workload.towers.count}) would have {sizes}"
        raise InputError.at("replicas", f"inter layout beside rules: {message}; leave towers out, or take layout intra")
    for level in topology.network.levels:
        if level.oversubscription > 1 and topology.node_count % level.nodes and topology.node_count > level.nodes:
            message = f"{topology.node_count} nodes do not fill switches of {level.nodes} ({level.name}) evenly"
            raise InputError.at("replicas", f"inter layout beside rules: {message}; take layout intra")


def _expect_known(workload: Workload) -> None:
    """Raise InputError where no software that is known trains copies so."""
    if workload.mode != "training":
        raise InputError.at("replicas", f"{workload.name} answers and does not train; copies of it are other clusters")
    if workload.software == "hugectr":
        message = "HugeCTR, which the workload is priced for, has no replica groups; use --runtime torchrec"
        raise InputError.at("replicas", message)


def the_choice(choices: ReplicaChoices | None, topology: Topology, workload: Workload) -> Replicas | None:
    """The only choice. Raises InputError where there are several."""
    found = candidates(choices, topology, workload)
    if len(found) > 1:
        words = ", ".join("1 world" if each is None else each.words for each in found[:4]) + "..." * (len(found) > 4)
        one_factor = len({1 if each is None else each.factor for each in found}) == 1
        missing = "layout" if one_factor else "one factor and layout"
        raise InputError.at(
            "replicas", f"is a choice of {len(found)} ({words}), and here one is needed; write {missing}"
        )
    return found[0]
