"""In what two plain documents differ."""

import itertools
from collections.abc import Iterator


def differences(was: object, now: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Every leaf (path, was, now) in which two plain documents differ; None where one has no such leaf."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was | now:
            yield from differences(was.get(key), now.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(was, list) and isinstance(now, list):
        for index, (old, new) in enumerate(itertools.zip_longest(was, now)):
            yield from differences(old, new, f"{path}.{index}".lstrip("."))
    elif was != now:
        yield path, was, now
