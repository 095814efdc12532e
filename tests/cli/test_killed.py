"""Commands that are killed, or asked to end, at a random moment: what they write is whole or absent."""

import random
from pathlib import Path

import pytest

from tests.cli.kills import COMMANDS, kill, prepare

LONGEST_S = 3.0
"""The latest moment of a signal; most commands have ended by then on an idle machine."""


@pytest.mark.parametrize("count", [2, pytest.param(9, marks=pytest.mark.slow(seconds=15))])
def test_outputs_are_whole_or_absent(tmp_path: Path, count: int) -> None:
    """A file that is whole, or none; after SIGTERM no temporary one; what is read stays as it is. All commands, and
    more often: `python -m tests.cli.kills 200`."""
    chance = random.Random(count)
    prepare(tmp_path)
    for command in chance.sample(list(COMMANDS), count):
        kill(tmp_path, command, chance, LONGEST_S)
