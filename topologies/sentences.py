"""Words that sentences are made of."""


def counted(number: float, word: str) -> str:
    """A number of things as a sentence says it: `1 table`, `2,000 tables`."""
    return f"{number:,.0f} {word}{'' if number == 1 else 's'}"
