"""Memory tiers: one row for each memory that holds tables, and one for each way to keep a table in them.

A memory's rates and what a kernel takes to use it are physics and stand elsewhere: `kinds.memory_rates` for the closed
form, `simulator.network` for the simulator. Whatever else tells one tier from another stands here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from topologies.hardware import MEMORY_TIERS as MEMORY_TIERS
from topologies.hardware import MemoryTier as MemoryTier

Limit = Literal["hbm", "dense", "network", "host", "storage"]
"""What a study says limits a step."""


@dataclass(frozen=True)
class MemoryRow:
    """One memory that holds tables."""

    name: MemoryTier
    label: str
    """What reports call it."""
    shared_by: Literal["rank", "node", "group"]
    """Whose ranks draw on one pool of it."""
    limit: Limit
    """What a study calls a step that waits for it."""
    is_addressable: bool = False
    """Whether kernels read and write it in place; of the others below HBM whole rows are fetched, with their state."""
    is_usual: bool = False
    """Whether it is counted and named in every plan, also where a cluster lacks it."""
    efficiency: str | None = None
    """The device coefficient of the share of its rate that is achieved; None: the data sheet is all that is known."""
    growth: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The rates of its description in a topology that a study of more hardware raises, by what reports call them."""


MEMORIES: dict[MemoryTier, MemoryRow] = {
    row.name: row
    for row in (
        MemoryRow("hbm", "HBM", "rank", "hbm", is_usual=True, growth={"HBM bandwidth": "bandwidth"}),
        MemoryRow(
            "ddr",
            "DDR",
            "node",
            "host",
            is_addressable=True,
            is_usual=True,
            efficiency="ddr_efficiency",
            growth={"DDR bandwidth": "bandwidth"},
        ),
        MemoryRow(
            "ssd",
            "SSD",
            "node",
            "storage",
            is_usual=True,
            growth={"SSD bandwidth": "read_bandwidth", "SSD IOPS": "iops"},
        ),
        MemoryRow(
            "scm",
            "storage-class memory",
            "node",
            "host",
            is_addressable=True,
            growth={"SCM bandwidth": "read_bandwidth"},
        ),
        MemoryRow(
            "remote",
            "remote hosts",
            "group",
            "storage",
            growth={
                "bandwidth of remote hosts' cards": "network_bandwidth",
                "memory bandwidth of remote hosts": "bandwidth",
            },
        ),
    )
}
MEMORY_HBM, MEMORY_DDR, MEMORY_SSD, MEMORY_SCM, MEMORY_REMOTE = range(len(MEMORY_TIERS))
SHARED_BY: dict[MemoryTier, Literal["rank", "node", "group"]] = {name: row.shared_by for name, row in MEMORIES.items()}
"""Whose ranks draw on one pool of each memory."""
EVERYWHERE: tuple[MemoryTier, ...] = tuple(name for name, row in MEMORIES.items() if row.is_usual)
"""Memories that are counted and named whether a cluster has them or not; the others where it does."""
BELOW_HBM: tuple[MemoryTier, ...] = MEMORY_TIERS[1:]
BYTE_ADDRESSABLE: tuple[MemoryTier, ...] = tuple(name for name, row in MEMORIES.items() if row.is_addressable)
"""Memories below HBM that kernels read and write in place."""

PlacementTier = Literal[
    "hbm",
    "ddr_cached",
    "ddr",
    "ssd_cached",
    "ddr_split",
    "scm_cached",
    "scm",
    "remote_cached",
    "hbm_mixed",
    "hbm_stash_weights",
    "hbm_stash_optimizer",
    "hbm_stash_all",
]
"""Where a table lives."""


@dataclass(frozen=True)
class TierRow:
    """One way to keep a table."""

    home: MemoryTier
    """The memory of what HBM does not hold."""
    how: Literal["whole", "cached", "in_place", "split", "mixed", "stashed"]
    """All in HBM; all at home, behind a row cache in HBM; all at home, read there (UVM); the rows that are read most in
    HBM and the others at home, read there (Sethi et al., RecShard, ASPLOS 2022); all in HBM, and in fp32 those read
    last in a cache beside, where they are updated (Yang et al., arXiv:2010.11305); all in HBM, but for what is in DDR
    from the lookup to the update (TorchRec's memory stashing, meta-pytorch/torchrec#3745)."""
    cache_fractions: tuple[float, ...] = (0.0,)
    """Shares of a table's rows in HBM that are tried where a table has none of its own."""
    stashes: tuple[Literal["weights", "optimizer"], ...] = ()
    """What leaves HBM between the passes."""


TIERS: dict[PlacementTier, TierRow] = {
    "hbm": TierRow("hbm", "whole"),
    "ddr_cached": TierRow("ddr", "cached", (0.02, 0.1, 0.3)),
    "ddr": TierRow("ddr", "in_place"),
    "ssd_cached": TierRow("ssd", "cached", (0.05, 0.2)),
    "ddr_split": TierRow("ddr", "split", (0.02, 0.1, 0.3)),
    "scm_cached": TierRow("scm", "cached", (0.02, 0.1, 0.3)),
    "scm": TierRow("scm", "in_place"),
    "remote_cached": TierRow("remote", "cached", (0.05, 0.2)),
    "hbm_mixed": TierRow("hbm", "mixed", (0.01, 0.05)),
    "hbm_stash_weights": TierRow("hbm", "stashed", stashes=("weights",)),
    "hbm_stash_optimizer": TierRow("hbm", "stashed", stashes=("optimizer",)),
    "hbm_stash_all": TierRow("hbm", "stashed", stashes=("weights", "optimizer")),
}
PLACEMENT_TIERS: tuple[PlacementTier, ...] = tuple(TIERS)
HBM, DDR_CACHED, DDR, SSD_CACHED, DDR_SPLIT, SCM_CACHED, SCM, REMOTE_CACHED, HBM_MIXED, *_ = range(len(PLACEMENT_TIERS))
PARTLY_IN_HBM: frozenset[PlacementTier] = frozenset(
    name for name, row in TIERS.items() if row.how in ("cached", "split", "mixed")
)
"""Tiers of which a share of the rows is in HBM too, or instead, or in HBM twice."""
SIZED_BY_PLAN: frozenset[PlacementTier] = frozenset(name for name in PARTLY_IN_HBM if TIERS[name].how != "mixed")
"""Those of which a plan finds the share; of the others it takes one that is named."""
HOME_OF_TIER: dict[PlacementTier, MemoryTier] = {name: row.home for name, row in TIERS.items()}
"""The memory that holds what HBM does not."""

StatePlace = Literal["with_table", "ddr", "scm"]
STATE_PLACES: tuple[StatePlace, ...] = ("with_table", "ddr", "scm")
"""Where the optimizer state of a table is: where its rows are at home, or in a memory that kernels write in place."""

# The same by index into PLACEMENT_TIERS.
HOME: NDArray[np.int64] = np.array([MEMORY_TIERS.index(row.home) for row in TIERS.values()])
IS_CACHED, IS_IN_PLACE, IS_SPLIT, IS_MIXED, IS_STASHED = (
    np.array([row.how == how for row in TIERS.values()]) for how in ("cached", "in_place", "split", "mixed", "stashed")
)
STASHES_WEIGHTS, STASHES_STATE = (
    np.array([part in row.stashes for row in TIERS.values()]) for part in ("weights", "optimizer")
)
"""Tiers whose rows, or whose optimizer state, leave HBM between the passes."""
STASHED_TIERS: tuple[PlacementTier, ...] = tuple(name for name, row in TIERS.items() if row.how == "stashed")
KEEPS_STATE_BELOW = IS_CACHED & np.array([row.home in BYTE_ADDRESSABLE for row in TIERS.values()])
"""Tiers whose cache holds rows alone: their optimizer state is updated at home (FBGEMM: state of managed tables)."""
