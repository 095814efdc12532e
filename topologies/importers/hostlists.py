"""Slurm's lists of hosts: `node[001-016,20],login1` is seventeen nodes and one more."""

import re
from collections.abc import Iterable

from topologies.importers.facts import MOST_LISTED

_TOKEN = re.compile(r"\[([^\[\]]*)\]|[^\[\],\s]+|,")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand(text: str) -> list[str]:
    """The names that a list stands for, in order. Raises ValueError, with what is wrong, for anything else."""
    names: list[str] = []
    for item in _items(text):
        found = [""]
        for token in item:
            pieces = _numbers(token[1:-1]) if token.startswith("[") else [token]
            if len(names) + len(found) * len(pieces) > MOST_LISTED:
                raise ValueError(f"stands for more than {MOST_LISTED:,} names")
            found = [head + piece for head in found for piece in pieces]
        names += found
    if not names:
        raise ValueError("names nothing; write for example node[01-16]")
    return names


def _items(text: str) -> list[list[str]]:
    """The tokens of every element between commas."""
    items: list[list[str]] = [[]]
    at = 0
    for token in _TOKEN.finditer(text):
        if text[at : token.start()].strip():
            raise ValueError(f"{text[at : token.start()].strip()!r} does not belong there; write node[01-16]")
        at = token.end()
        if token[0] == ",":
            items.append([])
        else:
            items[-1].append(token[0])
    if text[at:].strip():
        raise ValueError(f"{text[at:].strip()!r} does not belong there; write node[01-16]")
    return [item for item in items if item]


def _numbers(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None or len(part) > 40:
            raise ValueError(f"{part.strip()!r} is no number nor a range of numbers as 001-016")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):
            raise ValueError(f"the range {part.strip()} runs backwards")
        if int(last) - int(first) >= MOST_LISTED:
            raise ValueError(f"stands for more than {MOST_LISTED:,} names")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def fold(names: Iterable[str]) -> str:
    """Names as a list of runs: `node[001-016],node020`."""
    runs: list[tuple[str, str, str]] = []  # what stands before the number, the first and the last number
    for name in names:
        found = re.search(r"\d+(?=\D*$)", name)
        if found is None or found.end() != len(name):
            runs.append((name, "", ""))
            continue
        head, number = name[: found.start()], found[0]
        if runs and runs[-1][0] == head and runs[-1][2]:
            _, first, last = runs[-1]
            if len(last) == len(number) and int(number) == int(last) + 1:
                runs[-1] = (head, first, number)
                continue
        runs.append((head, number, number))
    return ",".join(head + (first if first == last else f"[{first}-{last}]") for head, first, last in runs)
