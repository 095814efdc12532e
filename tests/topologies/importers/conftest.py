"""Imports of texts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from topologies.importers.imported import Imported, imported

Import = Callable[..., Imported]


@pytest.fixture
def import_(tmp_path: Path) -> Import:
    """`import_(text, text, like=…)`: the topology of texts, as files `0.txt`, `1.txt` …"""

    def run(*texts: str, **options) -> Imported:
        files = []
        for number, text in enumerate(texts):
            files.append(tmp_path / f"{number}.txt")
            files[-1].write_text(text)
        return imported(files, "cluster", **options)

    return run
