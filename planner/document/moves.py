"""What moves from a former plan, as the document says it."""

from planner.document.shards import TierBytes
from topologies.documents import Record


class FormerPlan(Record):
    """The plan that this one follows."""

    fingerprint: str
    """Hash over where it holds its tables."""
    step_s: float | None
    """Its step, for the inputs that it was made for."""
    lost_nodes: tuple[int, ...] = ()
    """Nodes of it that are gone."""


class RankTraffic(Record):
    """Bytes in or out of one rank."""

    rank: int
    """Its number."""
    bytes: int
    """How many."""


class Moves(Record):
    """What changes its place when this plan follows another: weights and optimizer state, as this plan stores them. In
    groups of ranks, all of it is of one group: every other one moves as much."""

    former: FormerPlan
    """The plan that was followed."""
    limit_bytes: int | None
    """The most that may move (--max-move)."""
    pay_back_steps: int | None
    """Steps within which moves had to pay for themselves; null: they had no price."""
    least_bytes: int
    """No plan for these inputs moves less."""
    found_bytes: int | None = None
    """The fewest moved bytes of any plan found, where none was within the limit."""
    moved: TierBytes
    """Into ranks that did not hold them, by the memory they go to. This is what a limit limits."""
    copied: TierBytes
    """From one memory of a rank's host to another."""
    new: TierBytes
    """Bytes of tables and rows that the former plan did not have: nothing of them moves."""
    lost_bytes: int
    """Those of the moved bytes that no rank holds any more: they come from a checkpoint."""
    tables: int = 0
    """Tables of which something moves."""
    shards: int = 0
    """Shards into which something moves."""
    busiest_in: RankTraffic | None = None
    """The rank of this plan into which the most bytes move."""
    busiest_out: RankTraffic | None = None
    """The rank of the former plan from which the most bytes move."""

    @property
    def moved_bytes(self) -> int:
        """In all tiers."""
        return self.moved.total
