"""What shows of prefetched ids and cache misses, which lookup and update hide together, in stages that add up.

Where both stages last L and U seconds, and what is prefetched M seconds beyond all that is the same for any placement,
a step waits for max(L + U, M). As L and U are maxima over ranks, that is no sum of stages. But it is the least of

    max(L, a M) + max(U, (1 - a) M)

over all shares a, each of which is a sum of two stages that rises with every load, and so does the least of any of
them. So the share is one more choice of a line (see `costs_at_lines`), of a few fixed ones. Where the share that a
placement would take is `d` from the nearest one, a tenth at most, it takes `d` M longer than that, M with what the
dense part hides (which is taken off beside the update alone, see `StepBase`); nothing where M is further from L + U.
See docs/decisions/0107-shares-of-what-is-prefetched.md.
"""

from dataclasses import dataclass

PREFETCH = "prefetch"
"""What the choice of a share is called among those of lines of stages."""


@dataclass(frozen=True)
class PrefetchLine:
    """The share of what is prefetched that shows in the stage of the lookup; the rest shows in that of the update."""

    of_lookup: float
    latency_s: float = 0.0
    """It is waited for in no other stage."""


LINES = tuple(PrefetchLine(share) for share in (0.3, 0.5, 0.1, 0.7, 0.9))
"""The first is near that of most tables in HBM."""
