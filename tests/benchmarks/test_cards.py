"""Cards between nodes by the words of those who measured: what is told is read, and what has no one meaning refused."""

import pytest

from benchmarks.accuracy.cards import Cards, NotUnderstoodError, cards_of


@pytest.mark.parametrize(
    ("words", "cards"),
    [
        ("", Cards()),
        ("some fabric", Cards()),
        ("8x ConnectX-7", Cards(None, 8, 400)),
        ("8 CX7 cards", Cards(None, 8, 400)),
        ("8xCX-7", Cards(None, 8, 400)),
        ("ConnectX-6 Lx", Cards(None, None, 50)),
        ("8x BlueField-3 RoCE v2", Cards("roce", 8, 400)),
        ("ConnectX-6 25Gb/s Ethernet", Cards("roce", None, 25)),
        ("8x ConnectX-7 NDR200", Cards("infiniband", 8, 200)),
        ("HDR100", Cards("infiniband", None, 100)),
        ("4x IB XDR", Cards("infiniband", 4, 800)),
        ("IB 0.4Tb/s", Cards("infiniband", None, 400)),
        ("4x 1.6 Tb/s", Cards(None, 4, 1600)),
        ("2x200 Gb/s", Cards(None, 2, 200)),
        ("8 x 400 Gbps", Cards(None, 8, 400)),
        ("8x 50GB/s", Cards(None, 8, 400)),
        ("8x 12.5 GB/s", Cards(None, 8, 100)),
        ("8x 400gb/s", Cards(None, 8, 400)),
        ("8x 400G", Cards(None, 8, 400)),
        ("400GbE", Cards("roce", None, 400)),
        ("8x ConnectX-7 PCIe Gen5 x16 400Gb/s", Cards(None, 8, 400)),
        ("NVLink 900GB/s; 8x IB NDR 400Gb/s", Cards("infiniband", 8, 400)),
        ("Storage: 2x 100GbE; scale-out: 8x 400Gb/s IB", Cards("infiniband", 8, 400)),
        ("ROCE2; Data bandwidth for GPU-PCIe: 504 GB/s; PCIe-NIC: 500 GB/s", Cards("roce")),
    ],
)
def test_what_is_told_is_read_and_read_again(words: str, cards: Cards) -> None:
    """In any usual spelling; the short words of the answer mean the same."""
    assert cards_of(words) == cards
    assert cards_of(cards.words) == cards


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("1.6 Tb/s", "1600 Gb/s is more than one card has"),
        ("EFA 3200Gb/s", "3200 Gb/s is more than one card has"),
        ("8x 400GB/s", "3200 Gb/s is more than one card has"),
        ("3.2 Tb/s per node", "whether a rate is that of a card"),
        ("2x dual-port 200Gb/s", "whether a rate is that of a card"),
        ("8x ConnectX-7 + 2x BlueField-3", "several cards"),
        ("8x 400Gb/s IB and 1x 100GbE", "several cards"),
        ("1.5x 200Gb/s", "what 1.5X is"),
        ("8 of something", "what 8 is"),
        ("0x 400Gb/s", "none"),
    ],
)
def test_figures_without_one_meaning_are_refused(words: str, reason: str) -> None:
    """With the words and the reason: no card is guessed."""
    with pytest.raises(NotUnderstoodError, match=reason):
        cards_of(words)
