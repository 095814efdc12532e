"""The cards between nodes by a submission's words, such as "8x ConnectX-7 IB NDR 400Gb/s": number, kind and rate.

What is not told is not guessed, and what is told and not understood is no part of an answer: words whose numbers have
no meaning here, or several, are refused with the reason.
"""

import re
from dataclasses import dataclass

PRODUCTS = {
    r"(?:CONNECTX|CX)[- ]?5": 100.0,
    r"(?:CONNECTX|CX)[- ]?6 ?LX": 50.0,
    r"(?:CONNECTX|CX)[- ]?6(?: ?DX)?": 200.0,
    r"(?:CONNECTX|CX)[- ]?7": 400.0,
    r"(?:CONNECTX|CX)[- ]?8": 800.0,
    r"(?:BLUEFIELD|BF)[- ]?3": 400.0,
    r"THOR ?2|BCM57608": 400.0,
    r"POLLARA(?: ?400)?": 400.0,
}
"""Gb/s of one card, of its fastest variant by its data sheet; a rate that is told beside it takes its place."""
GENERATIONS = {r"EDR": 100.0, r"HDR ?100": 100.0, r"HDR": 200.0, r"NDR ?200": 200.0, r"NDR": 400.0, r"XDR": 800.0}
"""Gb/s of a port of InfiniBand's generations, four lanes; of two of them where the name says so."""
KINDS = {
    r"INFINIBAND|\bIB\b|\b(?:EDR|[HN]DR(?: ?\d+)?|XDR)\b": "infiniband",
    r"\bEFA(?: ?V\d)?\b": "efa",
    r"SLINGSHOT(?:[- ]?\d+)?": "slingshot",
    r"ROCE(?: ?V?2)?|ETHERNET|\d ?[GT]BE\b": "roce",
}
FASTEST_GBIT = 1600.0
"""No card is faster: such a rate is that of a node, or a slip of units."""
FASTEST_ALONE_GBIT = 800.0
"""A higher rate beside which no number of cards stands may be that of a node."""
_OTHERS = re.compile(
    r"STORAGE|MANAGEMENT|MGMT|FRONT[- ]?END|NVLINK|NVSWITCH|DATA BANDWIDTH|GPU-PCIE|PCIE-NIC|\bBMC\b", re.IGNORECASE
)
_BETWEEN = re.compile(r"COMPUTE|SCALE[- ]?OUT|BACK[- ]?END|EAST[- ]?WEST", re.IGNORECASE)
_RATE = r"(?<![A-WYZ\d.-])(\d+(?:\.\d+)?) ?([GT])(BYTE/S|B(?:IT)?S?(?:/S(?:EC)?|PS|E)|B|)\b"
_NO_FIGURE = r"PCI[- ]?E(?:XPRESS)?(?: ?GEN)? ?\d(?:\.\d)?(?: ?X ?\d+)?|\bGEN ?\d|\bX\d+\b"
_NUMBER = rf"(?<![A-Z\d.-])(\d+)(?:[X×*]| [X×*](?![A-Z])| ?(?=(?:{'|'.join(PRODUCTS)}|NICS?\b|CARDS?\b|HCAS?\b)))"
_FIGURE = r"(?<![A-Z\d.-])\d+(?:\.\d+)?[A-Z/]*"
_TOTAL = re.compile(r"\bTOTAL|AGGREGATE|(?:PER|/|A) ?(?:NODE|SERVER|GPU)|DUAL|\bPORTS?\b|-PORT", re.IGNORECASE)


class NotUnderstoodError(ValueError):
    """Words about cards whose figures have no one meaning; the message says why."""


@dataclass(frozen=True)
class Cards:
    """The scale-out cards of a node, as far as words tell."""

    kind: str | None = None
    count: int | None = None
    gbit_per_s: float | None = None
    """Of one card, one direction."""

    @property
    def parts(self) -> dict[str, str]:
        """What is told, by the keys that a topology has for it."""
        rate = None if self.gbit_per_s is None else f"{self.gbit_per_s:g}Gb/s"
        found = {"kind": self.kind, "count": self.count, "bandwidth": rate}
        return {key: str(value) for key, value in found.items() if value is not None}

    @property
    def words(self) -> str:
        """The same in short: `8x infiniband 400Gb/s`, which `cards_of` reads as these cards."""
        told = self.parts
        number = f"{told['count']}x" if "count" in told else ""
        return " ".join(filter(None, (number, told.get("kind", ""), told.get("bandwidth", ""))))


def cards_of(words: str) -> Cards:
    """What words tell of the cards between nodes. Raises NotUnderstoodError."""
    text = _capitals(_between_nodes(words))
    kind = kind_of(words)
    if _TOTAL.search(text):
        raise NotUnderstoodError(f"{words!r}: whether a rate is that of a card is not told")
    text = re.sub(_NO_FIGURE, " ", text)
    told, text = {_gbit(*match) for match in re.findall(_RATE, text)}, re.sub(_RATE, " ", text)
    numbers, text = {int(number) for number in re.findall(_NUMBER, text)}, re.sub(_NUMBER, " ", text)
    products, text = _taken(PRODUCTS, text)
    generations, text = _taken(GENERATIONS, text)
    for pattern in KINDS:
        text = re.sub(pattern, " ", text)
    if unread := re.search(_FIGURE, text):
        raise NotUnderstoodError(f"{words!r}: what {unread[0]} is, is not told")
    if max(map(len, (told, numbers, products, generations))) > 1:
        raise NotUnderstoodError(f"{words!r}: several cards, and not which of them are between accelerators")
    rate = min(told or products | generations, default=None)
    count = next(iter(numbers), None)
    if 0 in (rate, count):
        raise NotUnderstoodError(f"{words!r}: none, or at no rate")
    if rate is not None and rate > (FASTEST_GBIT if count or products else FASTEST_ALONE_GBIT):
        raise NotUnderstoodError(
            f"{words!r}: {rate:g} Gb/s is more than one card has, and not said to be that of several"
        )
    return Cards(kind, count, rate)


def kind_of(words: str) -> str | None:
    """The kind of the cards between nodes; None where words do not tell."""
    text = _capitals(_between_nodes(words))
    return next((kind for pattern, kind in KINDS.items() if re.search(pattern, text)), None)


def _between_nodes(words: str) -> str:
    """The part of the words that is about the cards between accelerators: what is said to be, or all but what is said
    to be something else."""
    parts = [part.strip() for part in re.split(r"[;,&]|\band\b", words)]
    named = [part for part in parts if _BETWEEN.search(part)]
    return " ".join(named or [part for part in parts if not _OTHERS.search(part)])


def _capitals(text: str) -> str:
    """Words in capitals, in which bytes (GB/s) are still told from bits (Gb/s)."""
    return re.sub(r"(?<=\d)( ?[GT])B(?:/s(?:ec)?|ps)\b", r"\1BYTE/s", text).upper()


def _gbit(number: str, prefix: str, unit: str) -> float:
    return float(f"{float(number) * (1000 if prefix == 'T' else 1) * (8 if unit.startswith('BYTE') else 1):.6g}")


def _taken(names: dict[str, float], text: str) -> tuple[set[float], str]:
    """The values of the names in a text, and the text without them; the longer name first, as the tables have them."""
    found = set()
    for pattern, value in names.items():
        text, times = re.subn(rf"\b(?:{pattern})\b", " ", text)
        found |= {value} if times else set()
    return found, text
