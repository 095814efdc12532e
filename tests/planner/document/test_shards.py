"""Bytes in each memory: one field for each, those of rarer memories written where there are any."""

import pytest
from pydantic import ValidationError

from planner.document.shards import TierBytes


def test_rare_memories_are_written_where_they_hold_bytes() -> None:
    """HBM, DDR and SSD stand in every plan; storage-class memory and remote hosts where their bytes are not zero."""
    assert TierBytes.of(("hbm", "ddr", "ssd"), (1.4, 2, 3)).model_dump() == {"hbm": 1, "ddr": 2, "ssd": 3}
    found = TierBytes.of(("hbm", "ddr", "ssd", "scm", "remote"), (1, 2, 3, 4, 0))
    assert found.model_dump() == {"hbm": 1, "ddr": 2, "ssd": 3, "scm": 4}
    assert (found["scm"], found["remote"], found.total) == (4, 0, 10)


def test_usual_memories_must_be_stated() -> None:
    """A document without one of them, or with a memory that there is not, is no plan."""
    with pytest.raises(ValidationError, match="ssd"):
        TierBytes.model_validate({"hbm": 1, "ddr": 2})
    with pytest.raises(ValidationError, match="tape"):
        TierBytes.model_validate({"hbm": 1, "ddr": 2, "ssd": 3, "tape": 4})
