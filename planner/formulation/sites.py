"""The sites of the extents that costs know, on given nodes."""

from cost_models.shards import EXTENTS, Ints
from planner.problem.sites import Sites


def sites_on(node_of_rank: Ints) -> tuple[Sites, ...]:
    """The sites of every extent, where the ranks [W] are on these nodes."""
    return tuple(Sites(extent.reach, extent.site_of_rank(node_of_rank)) for extent in EXTENTS)
