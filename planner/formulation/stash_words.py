"""What of tables leaves HBM between the passes of a step, as a policy names it."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from cost_models.shards import PlacementTier

StashWay = Literal["none", "weights", "optimizer", "all"]
TIER_OF_WAY: Mapping[StashWay, PlacementTier] = {
    "none": "hbm",
    "weights": "hbm_stash_weights",
    "optimizer": "hbm_stash_optimizer",
    "all": "hbm_stash_all",
}
"""The tier of a table of which so much leaves HBM between the passes."""
AUTO = "auto"


def _as_ways(value: object) -> object:
    words = [value] if isinstance(value, str) else value
    return tuple(TIER_OF_WAY) if isinstance(words, list | tuple) and AUTO in words else words


StashWays = Annotated[tuple[StashWay, ...], BeforeValidator(_as_ways), Field(min_length=1)]
