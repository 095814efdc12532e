"""Numbers as a topology file has them: `143771MiB`, `450GB/s`, `2us`."""

from typing import Any

_BYTES = (("TiB", 2**40), ("TB", 10**12), ("GiB", 2**30), ("GB", 10**9), ("MiB", 2**20), ("MB", 10**6), ("B", 1))


def quantity(path: str, value: Any) -> Any:
    """The value of the field at a path with its unit; what has none stays as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    key = path.rpartition(".")[2]
    if key == "capacity":
        exact = [f"{value // size}{unit}" for unit, size in _BYTES if value % size == 0]
        return min(exact, key=len) if exact else f"{value}B"
    if key.endswith("bandwidth"):
        return f"{value / 1e9:.12g}GB/s"
    if key == "latency":
        return f"{value * 1e6:.12g}us"
    return value
