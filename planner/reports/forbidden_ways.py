"""Ways to hold a table that are no options, rule by rule."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from cost_models.shards import PLACEMENT_TIERS, SHARDINGS
from planner.diagnosis.forbidden_ways import ForbiddenWay, Forbids

if TYPE_CHECKING:
    from rich.console import Console


def render_forbidden(ways: Sequence[ForbiddenWay], console: "Console") -> None:
    """Print each rule that forbids some of the ways, and which."""
    if not ways:
        return
    from rich.padding import Padding

    console.print()
    console.print("Forbidden, rule by rule:")
    rules = dict.fromkeys(rule for way in ways for rule in way.rules)
    for rule in sorted(rules, key=lambda rule: get_args(Forbids).index(rule.kind)):
        of_rule = [way for way in ways if rule in way.rules]
        console.print()
        words = f"policy: {rule.words}" if rule.kind == "policy" else rule.words
        console.print(Padding(words, (0, 0, 0, 2), expand=False))
        for line in _lines(of_rule):
            console.print(Padding(line, (0, 0, 0, 4), expand=False))


def _lines(ways: Sequence[ForbiddenWay]) -> list[str]:
    """The ways in words: whole tiers, then shardings of the same tiers together."""
    pairs = {(way.sharding, way.tier) for way in ways}
    shut = [tier for tier in PLACEMENT_TIERS if pairs.issuperset((sharding, tier) for sharding in SHARDINGS)]
    shardings_in: dict[str, list[str]] = {}
    for sharding in SHARDINGS:
        tiers = [tier for tier in PLACEMENT_TIERS if (sharding, tier) in pairs]
        left = [tier for tier in tiers if tier not in shut]
        if left:
            where = "any tier" if len(tiers) == len(PLACEMENT_TIERS) else ", ".join(left)
            shardings_in.setdefault(where, []).append(sharding)
    whole = [f"any sharding in {', '.join(shut)}"] if shut else []
    return [*whole, *(f"{', '.join(shardings)} in {where}" for where, shardings in shardings_in.items())]
