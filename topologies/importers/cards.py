"""The network cards of one node as scale-out cards: those near an accelerator, in numbers that share them equally."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from topologies.importers.facts import Fact, Text
from topologies.units import format_bytes

MOST_CARDS = 4
"""For each accelerator; AWS's p5 has as many."""


@dataclass(frozen=True)
class Card:
    """One port of a node. Rates in bytes/s; None: the file does not say."""

    name: str
    is_near: bool
    """Whether it hangs on a PCIe switch with an accelerator."""
    line: int
    kind: str | None = None
    bytes_per_s: float | None = None
    words: str = ""


def scale_out(cards: Sequence[Card], accelerators: int, text: Text) -> tuple[dict[str, Fact], list[str]]:
    """Facts of links.scale_out, and remarks: the cards near an accelerator, or all where none is; no facts for none."""
    near = [card for card in cards if card.is_near] or list(cards)
    if not near:
        return {}, []
    remarks = [] if near[0].is_near or len(near) == 1 else [f"no card is near an accelerator: {len(near)} cards count"]
    if kinds := {card.kind for card in near} - {None}:
        kind = Counter(card.kind for card in near if card.kind).most_common(1)[0][0]
        if len(kinds) > 1 and kind:
            near = [card for card in near if card.kind in (kind, None)]
            remarks.append(
                f"cards of several kinds ({', '.join(sorted(map(str, kinds)))}); {kind} is taken as scale-out"
            )
    left = [card.name for card in cards if card not in near]
    if left:
        remarks.append(f"{', '.join(left[:6])}{' …' if len(left) > 6 else ''}: no scale-out cards; left out")
    rates = {card.bytes_per_s for card in near}
    rate = min((rate for rate in rates if rate), default=None)
    if len(rates - {None}) > 1 and rate:
        remarks.append(f"cards of several speeds; each counts as {format_bytes(rate)}/s, the slowest")
    if len(near) > MOST_CARDS * accelerators:
        remarks.append(
            f"{len(near)} cards for {accelerators} accelerators: virtual functions of a card look like cards"
        )
    line = near[0].line
    count, each = shares(len(near), accelerators, rate)
    said = f"{len(near)} {'near an accelerator' if near[0].is_near else 'cards'}"
    if count != len(near):
        remarks.append(
            f"{len(near)} cards do not serve {accelerators} accelerators in equal shares; taken as {count}"
            f"{' with their bandwidth together' if rate else ''}"
        )
    facts = {"links.scale_out.count": text.fact(count, line, said)}
    if kinds:
        facts["links.scale_out.kind"] = text.fact(near[0].kind or next(iter(kinds)), line)
    if each:
        facts["links.scale_out.bandwidth"] = text.fact(each, line, next((c.words for c in near if c.words), ""))
    return facts, remarks


def shares(count: int, accelerators: int, bytes_per_s: float | None) -> tuple[int, float | None]:
    """As many cards, at most `count`, as serve the accelerators in equal shares, and the rate that keeps their sum."""
    fitting = next(n for n in range(count, 0, -1) if accelerators % n == 0 or n % accelerators == 0)
    return fitting, bytes_per_s * count / fitting if bytes_per_s else None
