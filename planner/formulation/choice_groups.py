"""Tables that a policy holds together, or apart."""

from collections.abc import Sequence

import numpy as np

from cost_models.shards import EXTENT_OF_SHARDING, EXTENTS, SHARDING_ROWS, SHARDINGS, TABLE_WISE, Ints
from planner.formulation.narrowing import Narrowing, Path
from planner.formulation.policy import Group
from planner.formulation.sites import sites_on
from planner.problem.regions import TableGroup
from planner.problem.sites import Sites


def groups_of(limits: Narrowing, key: str, groups: Sequence[Group]) -> list[tuple[Path, Group, TableGroup]]:
    """The groups that ask for something: two tables or more to separate; one to hold together where there are two
    places or more."""
    asked: list[tuple[Path, Group, TableGroup]] = []
    for number, group in enumerate(groups):
        tables = np.flatnonzero(limits.named((key, number, "tables"), group.tables))
        zones = np.arange(limits.world) if group.on == "rank" else limits.model.host_of_rank
        if not len(tables) or (len(tables) == 1 if key == "separate" else zones[-1] == 0):
            continue
        asked.append(((key, number), group, TableGroup(tables, zones)))
        mask = np.zeros(len(limits.names), dtype=bool)
        mask[tables] = True
        limits.rules.append((_words((key, number), group), mask))
    return asked


def _words(path: Path, group: Group) -> str:
    """What a group asks for, and where the policy says it."""
    asks = "colocate on one" if path[0] == "colocate" else "separate, no two on one"
    return f"{asks} {group.on} ({path[0]}.{path[1]})"


def join(limits: Narrowing, groups: Sequence[tuple[Path, Group, TableGroup]]) -> dict[str, Ints]:
    """Make colocated tables share their ranks; [T] for rank and node a label that tables held together share."""
    labels = {on: np.arange(len(limits.names)) for on in ("rank", "node")}
    for _, group, members in groups:
        for on in ("rank", "node") if group.on == "rank" else ("node",):
            mine = np.unique(labels[on][members.tables])
            labels[on][np.isin(labels[on], mine)] = mine[0]
    for path, group, members in groups:
        tables = labels[group.on] == labels[group.on][members.tables[0]]
        zones = members.zone_of_rank
        common = np.ones(limits.world, dtype=bool)
        for number in np.unique(limits.set_of[tables]).tolist():
            common &= np.isin(zones, zones[limits.sets[number]])
        words = _words(path, group)
        limits.keep_within(path, words, tables, common)
        if group.on == "rank":
            whole = [sharding == TABLE_WISE for sharding in range(len(SHARDINGS))]
        else:
            sites = sites_on(limits.model.node_of_rank)
            rows = SHARDING_ROWS.values()
            whole = [_keeps_within(sites[row.extent], zones) and not row.cuts_into_sites for row in rows]
        limits.narrow("shardings", path, words, tables, whole)
    return labels


def _keeps_within(sites: Sites, zones: Ints) -> bool:
    """Whether blocks have a choice of sites, each of which is in one zone; `zones` [W]."""
    return sites.reach != "world" and bool((zones[sites.first[sites.of_rank]] == zones).all())


def part(limits: Narrowing, groups: Sequence[tuple[Path, Group, TableGroup]], labels: dict[str, Ints]) -> None:
    """Refuse groups that cannot be kept apart, and keep their tables from ways that are on all ranks."""
    for path, group, members in groups:
        own = labels[group.on][members.tables]
        twice = np.flatnonzero(np.bincount(own, minlength=1) > 1)
        if len(twice):
            names = [limits.names[t] for t in members.tables[own == twice[0]][:2]]
            limits.fault(path, f"keeps {names[0]!r} and {names[1]!r} apart, which colocate holds on one {group.on}")
        for number in np.unique(limits.set_of[members.tables]).tolist():
            ranks = limits.sets[number]
            inside = [t for t in members.tables.tolist() if not (limits.sets[limits.set_of[t]] & ~ranks).any()]
            places = len(np.unique(members.zone_of_rank[ranks]))
            if 0 < places < len(inside):
                few = f"{places} {group.on}{'s' * (places > 1)}"
                limits.fault(path, f"cannot keep {len(inside)} tables apart that may only use {few}; name fewer")
        mask = np.zeros(len(limits.names), dtype=bool)
        mask[members.tables] = True
        extents = [EXTENTS[extent].reach != "world" for extent in EXTENT_OF_SHARDING]
        limits.narrow("shardings", path, _words(path, group), mask, extents)
