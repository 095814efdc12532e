"""The resources that a stage can be bound by: values with a kind, a direction and a level, and one row for each kind.

Strings such as `nic_out` or `uplink0_in_with_ids` are their spelling in files and tables, nothing else.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from cost_models.tiers import BELOW_HBM, MEMORIES, Limit

Way = Literal["out", "in"]
WAYS: tuple[Way, Way] = ("out", "in")
WAY_WORDS: dict[Way, str] = {"out": "sending", "in": "receiving"}


@dataclass(frozen=True)
class ResourceKind:
    """What resources of one kind have in common."""

    name: str
    label: str
    """What reports call it, beside its direction; of an uplink, before the name of its level."""
    shared_by: Literal["rank", "card", "pcie_switch", "node", "tower", "group", "switch"]
    """Whose ranks use one instance of it."""
    limit: Limit | None = None
    """What a study calls a step that waits for it; None where that depends on the stage."""
    is_below_hbm: bool = False
    """Whether it is on the way to memories below HBM: who waits for one of these waits for what ranks fetch from the
    others, too."""


RESOURCE_KINDS: dict[str, ResourceKind] = {
    kind.name: kind
    for kind in (
        ResourceKind("device", "accelerator (HBM, kernels)", "rank"),
        ResourceKind("bags", "accelerator (longest bag of a table)", "rank"),
        ResourceKind("host", "host (fixed overhead)", "rank"),
        ResourceKind("link", "scale-up link", "rank", "network"),
        ResourceKind("nic", "scale-out card", "card", "network"),
        ResourceKind("rails", "scale-out cards of its tower", "tower", "network"),
        ResourceKind("uplink", "uplink of", "switch", "network"),
        ResourceKind("ring", "sums around all ranks", "rank", "network"),
        ResourceKind("sums", "sums of dense gradients", "rank", "network"),
        ResourceKind("host_link", "its own PCIe link", "rank", "host", is_below_hbm=True),
        ResourceKind("pcie", "PCIe switch", "pcie_switch", "host", is_below_hbm=True),
        ResourceKind("stash", "PCIe switch, stashed tables both ways", "pcie_switch", "host"),
        ResourceKind("stash_out", "PCIe switch, tables that leave, then the backward pass", "pcie_switch", "host"),
        ResourceKind("stash_in", "the forward pass, then PCIe switch, tables that come back", "pcie_switch", "host"),
        ResourceKind("fetches", "its own cache misses", "rank", "host", is_below_hbm=True),
        ResourceKind("front_end", "front-end cards of its node", "node", "storage", is_below_hbm=True),
        *(
            ResourceKind(
                memory,
                row.label if row.shared_by == "group" else f"{row.label} of its {row.shared_by}",
                row.shared_by,
                row.limit,
                is_below_hbm=True,
            )
            for memory, row in MEMORIES.items()
            if memory in BELOW_HBM
        ),
    )
}


_SPELLING = re.compile(r"(?P<kind>[a-z_]+?)(?P<level>\d+)?(?:_(?P<way>out|in))?(?P<more>_with_ids|_with_rows|_ahead)?")


@dataclass(frozen=True)
class Resource:
    """Something that ranks load: of one kind, in one direction where it has two."""

    kind: str
    """A name of RESOURCE_KINDS."""
    way: Way | None = None
    level: int | None = None
    """The network level whose switches an uplink leaves, counted from 0 at the leaves."""
    table: int | None = None
    """The number of the table whose bags it reads beside all others; of `bags`, every such one where it is unset."""
    with_ids: bool = False
    """Whether its load counts the next batch's ids, less what other stages hide of them, beside the load without."""
    ahead: bool = False
    """Whether its load is the next batch's cache misses, with what meets these, less what other stages hide of them."""
    with_rows: bool = False
    """Whether that counts the rows that kernels read and update in place, and no time for which misses leave it idle,
    beside the load without the one and with the other."""

    def __str__(self) -> str:
        level = next((str(number) for number in (self.level, self.table) if number is not None), "")
        way = "" if self.way is None else f"_{self.way}"
        more = "_with_rows" * self.with_rows or "_ahead" * self.ahead
        return f"{self.kind}{level}{way}{'_with_ids' * self.with_ids}{more}"

    @classmethod
    def parse(cls, text: str) -> "Resource":
        """The resource that a file or a command line spells so. Raises ValueError for what is no resource."""
        spelling = _SPELLING.fullmatch(text)
        if spelling is None or spelling["kind"] not in RESOURCE_KINDS:
            raise ValueError(f"there is no resource {text!r}; kinds are {', '.join(RESOURCE_KINDS)}")
        way: Way | None = None if spelling["way"] is None else ("out" if spelling["way"] == "out" else "in")
        level = None if spelling["level"] is None else int(spelling["level"])
        more = spelling["more"]
        is_of_table = spelling["kind"] == "bags"
        level, table = (None, level) if is_of_table else (level, None)
        ahead, with_rows = more in ("_ahead", "_with_rows"), more == "_with_rows"
        return cls(spelling["kind"], way, level, table, more == "_with_ids", ahead, with_rows)

    @property
    def row(self) -> ResourceKind:
        """What it has in common with others of its kind."""
        return RESOURCE_KINDS[self.kind]


def with_rows(resource: Resource) -> Resource:
    """The same as rows in place and cache misses meet on it."""
    return replace(resource, with_rows=True)


DEVICE, HOST_LINK, PCIE, FETCHES, FRONT_END, RING, SUMS = (
    Resource(kind) for kind in ("device", "host_link", "pcie", "fetches", "front_end", "ring", "sums")
)
BAGS = Resource("bags")
STASHES = STASH, STASH_OUT, STASH_IN = tuple(Resource(kind) for kind in ("stash", "stash_out", "stash_in"))
HOST_LINK_OUT, HOST_LINK_IN = (Resource("host_link", way) for way in WAYS)
LINKS = LINK_OUT, LINK_IN = Resource("link", "out"), Resource("link", "in")
CARDS = NIC_OUT, NIC_IN = Resource("nic", "out"), Resource("nic", "in")
