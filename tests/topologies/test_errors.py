"""Messages are printable whatever they quote, and are so soon."""

import time
import unicodedata

from topologies.errors import HIDDEN, printable


def test_hidden_characters_are_written_as_their_escapes() -> None:
    """Every one of the basic plane and of the tags, but for those to keep; nothing else changes."""
    every = "".join(map(chr, [*range(0x10000), *range(0xE0000, 0xE0100)]))
    shown = "".join(printable(every[at : at + 256], keep="\n") for at in range(0, len(every), 256))
    hidden = [each for each in every if unicodedata.category(each) in HIDDEN and each != "\n"]
    assert not set(hidden) & set(shown)
    assert set(every) - set(hidden) == set(shown)
    assert printable("a\x1b[1m\n\u202eb\ud800", keep="\n") == "a\\x1b[1m\n\\u202eb\\ud800"


def test_long_messages_cost_no_time() -> None:
    """A character that a message has a thousand times is judged once."""
    begin = time.process_time()
    for number in range(2000):
        printable(f"{number} \N{BULLET} {'x' * 20_000}\x1b")
    assert time.process_time() - begin < 1.5, "4 s where each character is judged"
