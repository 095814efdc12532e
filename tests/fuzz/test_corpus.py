"""Files that once broke a reader, damaged files of every kind, and names that are no names: only clean errors."""

import contextlib
import random
from pathlib import Path

import pytest

from cost_models.coefficients import device_coefficients, link_coefficients
from tests.fuzz.__main__ import damaged
from tests.fuzz.readers import CORPUS, READERS
from topologies.errors import InputError

FILES = 60
"""Damaged files of each reader; `python -m tests.fuzz all` tries as many as one likes."""


@pytest.mark.parametrize("name", READERS)
def test_only_clean_errors(name: str, tmp_path: Path) -> None:
    """A reader takes a file or raises InputError, whatever was done to the file."""
    reader, chance = READERS[name], random.Random(name)
    kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    good = reader.seeds() + kept
    file = tmp_path / f"file{reader.suffix}"
    for data in kept + [damaged(chance.choice(good), chance.choice(good), chance) for _ in range(FILES)]:
        file.write_bytes(data)
        with contextlib.suppress(InputError):
            reader.read(file)


def test_the_corpus_is_that_of_readers() -> None:
    """Every folder is replayed, and all of them are small."""
    assert {path.name for path in CORPUS.iterdir()} <= set(READERS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) < 100_000


@pytest.mark.parametrize("name", ["../devices/A100-SXM4-80GB", "default/../default", "x" * 5000, "a\0b"])
def test_names_of_devices_and_links_are_no_paths(name: str) -> None:
    """A name of somebody's topology finds the file that is called so, or none."""
    assert device_coefficients(name) == device_coefficients("never seen")
    kind = "default-scale-out"
    assert link_coefficients(name, kind) == link_coefficients("never seen", kind)
