"""Bytes by the names of formats and optimizers, beside the records that the estimate looks them up in."""

from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

from cost_models.simulator.named_bytes import NamedTables, bytes_of_row
from cost_models.tables import Tables
from cost_models.workload.formats import FORMATS
from cost_models.workload.optimizers import Optimizer
from cost_models.workload.words import Dtype
from tests.oracles.instances import workload


@pytest.mark.parametrize("dtype", get_args(Dtype))
@pytest.mark.parametrize("columns", [4, 16, 64, 100, 128])
def test_bytes_of_a_row_follow_from_the_name_of_its_format(dtype: Dtype, columns: int) -> None:
    """As many as the format's row says."""
    assert bytes_of_row(dtype, columns) == int(FORMATS[dtype].vector_bytes(columns))


def test_a_format_whose_name_says_nothing_is_refused() -> None:
    """By name."""
    with pytest.raises(ValueError, match="brainfloat"):
        bytes_of_row("brainfloat", 4)


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("optimizer", get_args(Optimizer))
def test_state_and_ids_are_those_looked_up(optimizer: Optimizer, mode: str) -> None:
    """Of every optimizer, for weighted tables and others."""
    tables = [{"rows": 10, "dim": 64, "weighted": weighted} for weighted in (True, False)]
    given = workload(tables, embedding={"optimizer": optimizer}, mode=mode, dense={})
    same(given)


@pytest.mark.parametrize("dtype", get_args(Dtype))
def test_elements_on_the_wire_are_those_looked_up(dtype: Dtype) -> None:
    """In every format, each way, of sums, of gradients, and of what encodes them."""
    try:
        given = workload(
            [{"rows": 10, "dim": 64}],
            communication={"forward": dtype, "backward": dtype},
            dense={"gradients": dtype},
        )
    except ValueError:
        pytest.skip("no format of vectors")
    same(given)


def same(given: object) -> None:
    """All arrays, and the state of a row."""
    own, stated = NamedTables.named(given, 8), Tables.of(given, 8)  # type: ignore[arg-type]
    for each in fields(Tables):
        assert np.all(getattr(own, each.name) == getattr(stated, each.name)), each.name
    table = np.arange(len(stated.rows))
    assert own.row_state_bytes(table, 32 + table).tolist() == stated.row_state_bytes(table, 32 + table).tolist()
