"""The schedule of a step: its stages, what runs in which, and the resources that ranks share (see `stages`)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.cost_arrays import Column
from cost_models.dense_sharding import DENSE_GATHER, ShardedDense, sharding_of
from cost_models.dense_update import DenseUpdate
from cost_models.exchange_lines import ExchangeLine
from cost_models.kinds import RankKind
from cost_models.path_latency import leave_domains
from cost_models.replicas import Replicas
from cost_models.replication import Replication, Sums
from cost_models.resources import (
    BAGS,
    DEVICE,
    FETCHES,
    FRONT_END,
    HOST_LINK,
    HOST_LINK_IN,
    HOST_LINK_OUT,
    NIC_OUT,
    PCIE,
    RING,
    STASH,
    STASH_IN,
    STASH_OUT,
    SUMS,
    WAYS,
    Resource,
    with_rows,
)
from cost_models.shards import BELOW_HBM, BYTE_ADDRESSABLE, Floats, Ints, MemoryTier
from cost_models.sharing import RAIL, instances_of_ranks, most_sharing, share_of_card
from cost_models.stage_lines import EXCHANGED, StageLines
from cost_models.stages import (
    CUT_TERMS,
    LOOKUP,
    STAGES,
    TERMS,
    UPDATE,
    Over,
    StepSetting,
    hidden_stages,
    stage_of_terms,
)
from cost_models.term_rates import GRADIENTS, IN_TOWER, climbs, own_link_share
from cost_models.uplinks import Uplink, exchange_uplinks, is_of_rail, sum_uplinks
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.fabric import Fabric

_BY_CARD = ("nic", "uplink")
_EXCHANGE = tuple(Resource(kind, way) for kind in ("link", "nic") for way in WAYS)


class Schedule:
    """Stages and columns of one workload on one topology."""

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        kinds: tuple[RankKind, ...],
        software: SoftwareCoefficients,
        replication: Replication | None = None,
        *,
        has_towers: bool = False,
        copies: Replicas | None = None,
        update: DenseUpdate,
        copy_meets_rows: bool = False,
        stashes: bool = False,
        long_tables: tuple[int, ...] = (),
    ) -> None:
        """`update`: what the dense optimizer takes. `copies`: how copies of all tables, or of some, are kept
        together; None where no table has any. `copy_meets_rows`: whether rows may wait for the copy of a batch.
        `stashes`: whether tables may leave HBM between the passes. `long_tables`: see `long_bags`."""
        self.long_tables = long_tables
        self._topology, self._workload = topology, workload
        self._kinds, self._software, self.has_towers = kinds, software, has_towers
        self._stage_lines = StageLines(topology, kinds, software, has_towers=has_towers)
        self._replication, self.update = replication, update
        self.fabric = Fabric(topology)
        has_rings = not has_towers and replication is None and copies is None
        self.ring_s = max(kind.ring_hops_s for kind in kinds) if has_rings else 0.0
        """What sums around all ranks wait for in an exchange, beyond what vectors do."""
        is_training = workload.mode == "training"
        self._setting = StepSetting(
            is_training=is_training,
            has_pipeline=is_training and workload.pipeline != "none",
            has_prefetch=is_training and workload.pipeline == "prefetch",
            has_memories=bool(self.memories),
            all_reduce_overlaps=software.all_reduce_overlaps_dense,
            averages_replicas=is_training and copies is not None and copies.averages,
            shards_replicas=is_training and copies is not None and copies.is_fully_sharded,
            has_towers=has_towers,
            has_modules=has_towers and bool(workload.tower_modules),
            gathers_dense=sharding_of(workload).gathers_after_update,
            gathers_units=sharding_of(workload).gathers_units or sharding_of(workload).cuts,
            copy_meets_rows=copy_meets_rows,
            stashes=stashes,
            shards_dense=sharding_of(workload).is_sharded,
        )
        self.update_hides_ids = self._setting.update_hides_ids and not software.ids_arrive_sharded
        self.update_hides_sums = self._setting.update_hides_sums
        self.stage_of_term: dict[str, str] = stage_of_terms(self._setting)
        self.stages: tuple[str, ...] = tuple(dict.fromkeys(self.stage_of_term.values()))
        self.columns: tuple[Column, ...] = tuple(dict.fromkeys(self._list_columns()))
        self._index = {(column.stage, column.resource): i for i, column in enumerate(self.columns)}
        self._targets: dict[tuple[str, Resource, int], list[tuple[int, float]]] = {}

    def _list_columns(self) -> list[Column]:
        exchange = [resource for resource in _EXCHANGE if self._has(resource)]
        exchange += [uplink.resource for uplink in self.uplinks]
        if any(kind.shares_own_link for kind in self._kinds):
            exchange += [HOST_LINK_OUT, HOST_LINK_IN]
        in_place = [Resource(memory) for memory in self.memories if memory in BYTE_ADDRESSABLE]
        host = [PCIE, *in_place] if in_place else []
        with_ids = [replace(resource, with_ids=True) for resource in exchange] if self.ids_overlap else []
        resources: dict[Over, Sequence[Resource]] = {
            "device": [DEVICE],
            "bottom": [DEVICE] if any(not each.needs_vectors for each in self._workload.layers) else [],
            "tables": [DEVICE, *host],
            "exchange": exchange,
            "inside": [resource for resource in exchange if resource.kind in self._stage_lines.tower_links],
            "ids": with_ids or exchange,
            "reduction": exchange + (with_ids if self.all_reduce_meets_ids else []),
            "fetch": self.fetched_over,
            "copy": [HOST_LINK],
            "stash": [STASH, STASH_OUT, STASH_IN, *self._own_link_ways],
            "nothing": [],
        }
        over = {term.name: term.over for term in TERMS}
        beyond = {term: [uplink.resource for uplink in uplinks] for term, uplinks in self._sum_uplinks.items()}
        bags = [replace(BAGS, table=table) for table in self.long_tables]
        beyond |= {"lookup_forward": bags, UPDATE: [SUMS] * self.update_hides_sums + bags}
        if self.ring_s:
            beyond |= {term: [RING] for term in EXCHANGED}
        columns = [
            Column(self.stages.index(shown), self.carrier(stage, resource))
            for term, stage in self.stage_of_term.items()
            for resource in (*resources[over[term]], *beyond.get(term, ()))
            for shown in self._shown_in(stage, resource)
        ]
        return sorted(columns, key=lambda column: column.stage)

    def _shown_in(self, stage: str, resource: Resource) -> tuple[str, ...]:
        """The stages in which what a resource carries of a stage's work shows; a share in each where there are two."""
        if not (resource.ahead or (resource.with_ids and self.update_hides_ids)):
            return (stage,)
        return (LOOKUP, UPDATE) if self.is_prefetched else (UPDATE,)

    @property
    def columns_ahead(self) -> list[int]:
        """The columns of what comes for the next batch, less what other stages hide of it."""
        return [c for c, column in enumerate(self.columns) if column.resource.ahead or column.resource.with_ids]

    def prefetch_shares(self, of_lookup: float) -> Floats:
        """[C] what shows in each column of what it carries, where prefetched ids and misses show with such a share in
        the stage of the lookup, and with the rest in that of the update."""
        shares = np.ones(len(self.columns))
        for c in self.columns_ahead if self.is_prefetched else ():
            shares[c] = of_lookup if self.stages[self.columns[c].stage] == LOOKUP else 1.0 - of_lookup
        return shares

    def carrier(self, stage: str, resource: Resource) -> Resource:
        """What carries the traffic of a resource in a stage: in exchanges among peers, all cards of a tower alike."""
        if self.has_towers and stage in EXCHANGED and resource.kind == "nic":
            return Resource("rails", resource.way)
        return resource

    def _has(self, resource: Resource) -> bool:
        if resource.kind == "nic":
            sums = () if self._replication is None else self._replication.kinds
            return leave_domains((*self._kinds, *sums))
        return True

    @property
    def memories(self) -> tuple[MemoryTier, ...]:
        """Those below HBM that some node has."""
        return tuple(memory for memory in BELOW_HBM if any(memory in kind.memories for kind in self._kinds))

    @property
    def fetched_over(self) -> tuple[Resource, ...]:
        """What cache misses load: what ranks share on the way to each memory, the rank that waits for them, its own
        link where they meet what ranks exchange, and, prefetched, what they meet rows in place on."""
        over_network = any(rates.is_remote for kind in self._kinds for rates in kind.memories.values())
        cards = (FRONT_END,) if over_network else ()
        over = (PCIE, *cards, *map(Resource, self.memories), FETCHES)
        if not self.is_prefetched:
            return over
        met = [with_rows(PCIE), *(with_rows(Resource(each)) for each in self.memories if each in BYTE_ADDRESSABLE)]
        met = met if len(met) > 1 else []
        return tuple(replace(each, ahead=True) for each in (*over, *self._own_link_ways, *met))

    @property
    def _own_link_ways(self) -> tuple[Resource, ...]:
        """Both ways of a rank's own link to its host, where it exchanges over that, too."""
        return (HOST_LINK_OUT, HOST_LINK_IN) if self._exchanges_over_host_links else ()

    def sums(self, column: Column) -> bool:
        """Whether a column has the sums of gradients beside the dense part, and nothing that comes before."""
        resource = column.resource
        is_own = resource.kind == "host_link" and resource.way is not None and not self._setting.stashes
        carries = resource.kind in ("link", "nic", "uplink") or is_own
        return self.stages[column.stage] == "dense" and carries and not resource.with_ids

    @property
    def _exchanges_over_host_links(self) -> bool:
        """Whether ranks exchange over links that lead to hosts, too."""
        has_cards = self._has(NIC_OUT)
        return self._topology.world_size > 1 and any(
            kind.exchanges_over_pcie or (has_cards and kind.cards_over_pcie) for kind in self._kinds
        )

    @property
    def is_prefetched(self) -> bool:
        """Whether ids and cache misses come during the step before, ids a step earlier."""
        return self._setting.has_prefetch

    @property
    def ids_overlap(self) -> bool:
        """Whether a batch's ids travel during the step before."""
        return self.stage_of_term["input_dist"] == "dense" and not self._software.ids_arrive_sharded

    @property
    def hidden(self) -> dict[str, str]:
        """Maps a stage that others hide to the stage in which the rest of it shows."""
        hidden = hidden_stages(self._setting)
        shown = {name: shown for name, shown in hidden.items() if name != "input_dist" or self.ids_overlap}
        ahead = [name for name in shown if name == "cache_fetch" or (name == "input_dist" and self.update_hides_ids)]
        return shown | dict.fromkeys(ahead, UPDATE)

    @property
    def all_reduce_meets_ids(self) -> bool:
        """Whether dense gradients and ids share the links."""
        return self.ids_overlap and self.stage_of_term.get("all_reduce") == "dense"

    def columns_of(self, term: str, resource: Resource) -> list[int]:
        """The columns that a term's load on a resource belongs to; none where no such thing can bind."""
        if term not in self.stage_of_term:
            return []
        shown = (self.stages.index(stage) for stage in self._shown_in(self.stage_of_term[term], resource))
        found = (self._index.get((stage, resource)) for stage in shown)
        return [column for column in found if column is not None]

    def column(self, term: str, resource: Resource) -> int | None:
        """The only one of `columns_of`; None where there is none."""
        columns = self.columns_of(term, resource)
        return columns[0] if columns else None

    def targets(self, term: str, resource: Resource, kind: int) -> list[tuple[int, float]]:
        """(column, factor) of everything that a second of a term's load on a resource of a rank of a kind loads."""
        asked = term, resource, kind
        if asked not in self._targets:
            self._targets[asked] = self._list_targets(*asked)
        return self._targets[asked]

    def _list_targets(self, term: str, resource: Resource, kind: int) -> list[tuple[int, float]]:
        reached = [(resource, 1.0)]
        if resource in (DEVICE, BAGS) and self.stage_of_term.get(term) in ("lookup_forward", UPDATE):
            reached += [(replace(BAGS, table=table), 1.0) for table in self.long_tables]
        sums_up = self._sum_uplinks.get(term)
        if resource.kind == "nic" and term not in IN_TOWER:
            climbing = climbs(term, self._kinds[kind]) if sums_up is None else 1.0
            reached += [
                (uplink.resource, float(uplink.seconds_per_card_second[kind]) * climbing)
                for uplink in (self.uplinks if sums_up is None else sums_up)
                if uplink.resource.way == resource.way
            ]
        if self._stage_lines.in_phases and term in EXCHANGED and resource.kind == "link":
            reached.append((Resource("nic", resource.way), share_of_card(self._topology.nodes[kind])))
            for uplink in (each.resource for each in self.uplinks if each.resource.way == resource.way):
                reached.append((uplink, 1 / most_sharing(self.resource_of_rank(uplink), self.kind_of_rank == kind)))
        share = own_link_share(term, resource, self._kinds_in(term)[kind])
        own = [(Resource("host_link", resource.way), share)] * (share > 0)
        if term == "input_dist" and self.ids_overlap:
            reached = [(replace(one, with_ids=True), factor) for one, factor in reached + own]
            reached += _ahead(own) if self.is_prefetched else own if self._setting.stashes else []
        elif term in GRADIENTS and self.all_reduce_meets_ids:
            reached += own
            reached += [(replace(one, with_ids=True), factor) for one, factor in reached]
            reached += _ahead(own) if self.is_prefetched else []
        elif self.is_prefetched and term in ("cache_fetch", "beside_misses"):
            reached = _ahead(reached)
        elif self.is_prefetched and term == "stash":
            reached += _ahead(reached)
        else:
            reached += own
        if self._replication is not None:
            shared = self._replication.groups_per_card[kind]
            reached = [(one, factor * shared if one.kind in _BY_CARD else factor) for one, factor in reached]
        return [target for one, factor in reached for target in self._targets_of(term, one, factor, kind)]

    def _targets_of(self, term: str, resource: Resource, factor: float, kind: int) -> list[tuple[int, float]]:
        """The columns of what carries a term's traffic of a resource, and its seconds for one of the resource's."""
        carrier = self.carrier(self.stage_of_term.get(term, ""), resource)
        seconds = factor if carrier == resource else factor / self._cards_of_tower[kind]
        return [(column, seconds) for column in self.columns_of(term, carrier)]

    @cached_property
    def _cards_of_tower(self) -> Ints:
        """[K] scale-out cards of a tower of each kind of rank."""
        pairs = np.unique(np.stack([self.tower_of_rank, self.fabric.nic_of_rank]), axis=1)
        first_rank = np.unique(self.kind_of_rank, return_index=True)[1]
        return np.bincount(pairs[0])[self.tower_of_rank[first_rank]]

    @cached_property
    def overheads(self) -> Floats:
        """[S] seconds that a stage takes whatever its loads, latencies of collectives aside.

        The dense optimizer was measured as a part of the fixed overhead; it counts where it takes longer, and what it
        computes of matrices comes on top.
        """
        overhead_s = self._software.step_overhead_s.value
        if self._setting.is_training:
            overhead_s = max(overhead_s, self.update.moved_s) + self.update.beyond_overhead_s
        constants = {"overhead": overhead_s}
        if self._setting.gathers_dense:
            constants[DENSE_GATHER] = ShardedDense(self._topology, self._workload).gather_after_update_s()
        return np.array([constants.get(stage, 0.0) for stage in self.stages])

    @property
    def collectives(self) -> tuple[str, ...]:
        """The stages that end with a collective. Ids that arrive where their rows are need none."""
        if self._topology.world_size == 1:
            return ()
        arrived = ("input_dist",) if self._software.ids_arrive_sharded else ()
        return tuple(stage for stage in self.stages if STAGES[stage].is_collective and stage not in arrived)

    @cached_property
    def lines(self) -> dict[str, tuple[ExchangeLine, ...]]:
        """Those of the collective of each of these stages."""
        return {stage: self._lines(stage) for stage in self.collectives}

    @cached_property
    def reduction_lines(self) -> tuple[ExchangeLine, ...]:
        """Those of sums over all ranks, whether or not they have a stage of their own; none for one rank."""
        return self._lines("all_reduce") if self._topology.world_size > 1 else ()

    @cached_property
    def cut_lines(self) -> tuple[ExchangeLine, ...]:
        """Those of the cut of copies over their replicas, and of gathering them."""
        return self._lines(CUT_TERMS["dense"])

    def _lines(self, stage: str) -> tuple[ExchangeLine, ...]:
        return self._stage_lines.of(stage, self._kinds_in(stage))

    def _kinds_in(self, term: str) -> tuple[RankKind, ...]:
        """What ranks achieve in a term: among those of their group, or in sums beyond it."""
        sums = self._sums_of(term)
        return self._kinds if sums is None else sums.kinds

    @cached_property
    def uplinks(self) -> tuple[Uplink, ...]:
        """Both directions of every oversubscribed level that exchanges cross."""
        return exchange_uplinks(self._topology, self.fabric, self._kinds)

    @cached_property
    def _sum_uplinks(self) -> dict[str, tuple[Uplink, ...]]:
        """Those that each term crosses which sums beyond a group of ranks."""
        sums = {term: self._sums_of(term) for term in self.stage_of_term}
        return {
            term: sum_uplinks(self._topology, self.fabric, each.kinds, each.leaving)
            for term, each in sums.items()
            if each is not None
        }

    def _sums_of(self, term: str) -> Sums | None:
        """The sums beyond a group of ranks that a term makes; None for what stays within it."""
        return None if self._replication is None else self._replication.sums_of(term)

    @cached_property
    def kind_of_rank(self) -> Ints:
        """[W] node group of each rank."""
        return np.asarray(self.fabric.group_of_rank, dtype=np.int64)

    @cached_property
    def node_of_rank(self) -> Ints:
        """[W]"""
        return np.asarray(self.fabric.node_of_rank, dtype=np.int64)

    @cached_property
    def tower_of_rank(self) -> Ints:
        """[W] tower of each rank: consecutive scale-up domains."""
        return np.asarray(self.fabric.domain_of_rank, dtype=np.int64) // self._kinds[0].tower_domains

    def resource_of_rank(self, resource: Resource) -> Ints:
        """[W] which instance of a resource each rank uses, numbered from 0; see `instances_of_ranks`."""
        if is_of_rail(self.fabric, resource.way, resource.level):
            return self._instances[RAIL]
        return self._instances[resource.row.shared_by if resource.level is None else resource.level]

    @cached_property
    def _instances(self) -> dict[str | int, Ints]:
        """[W] `resource_of_rank` of a resource, by who shares it; of an uplink, by its level."""
        return instances_of_ranks(self.fabric, self.tower_of_rank)


def _ahead(reached: Sequence[tuple[Resource, float]]) -> list[tuple[Resource, float]]:
    """The same of what comes for the next batch."""
    return [(replace(resource, ahead=True), factor) for resource, factor in reached]
