"""Words that sentences are made of."""


def counted(number: float, word: str) -> str:
    """A number of things as a sentence says it: `1 table`, `2,000 tables`."""
    return f"{number:,.0f} {word}{'' if number == 1 else 's'}"


def every(number: int, word: str) -> str:
    """How often, as a sentence says it: `every step`, `every 20 steps`."""
    return f"every {word}" if number == 1 else f"every {counted(number, word)}"
