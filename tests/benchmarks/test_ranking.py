"""Picking the faster of two plans or systems."""

import numpy as np
import pandas as pd

from benchmarks.accuracy.ranking import Order, ordered, table
from benchmarks.accuracy.rows import frame


def rows_of(*rows: tuple[str, float, float], gated: bool = True) -> pd.DataFrame:
    """Rows of what they share, measured and predicted seconds."""
    return frame(
        {"alike": alike, "measured_s": measured, "predicted_s": predicted, "gated": gated}
        for alike, measured, predicted in rows
    )


def test_pairs_share_all_but_plan_or_system() -> None:
    """Of a group of three and one of two there are four pairs; one is put in the wrong order."""
    rows = rows_of(("a", 1.0, 1.1), ("a", 2.0, 1.9), ("a", 3.0, 1.5), ("b", 1.0, 2.0), ("b", 2.0, 3.0))
    assert ordered(rows, rows.predicted_s) == Order(4, 0.75)


def test_repeated_runs_are_no_pair() -> None:
    """Rows that are predicted alike, rows of no group, and rows that no target holds for."""
    rows = rows_of(("a", 1.0, 1.5), ("a", 2.0, 1.5))
    assert ordered(rows, rows.predicted_s).pairs == 0
    alone = frame([{"measured_s": 1.0, "predicted_s": 1.0, "gated": True}] * 2)
    assert ordered(alone, alone.predicted_s).pairs == 0
    flagged = rows_of(("a", 1.0, 1.0), ("a", 2.0, 2.0), gated=False)
    assert ordered(flagged, flagged.predicted_s).pairs == 0


def test_close_pairs_may_be_left_out() -> None:
    """Those whose measured times differ by 5 % or less."""
    rows = rows_of(("a", 1.00, 1.0), ("a", 1.04, 0.9), ("a", 2.0, 2.0))
    assert ordered(rows, rows.predicted_s).pairs == 3
    assert ordered(rows, rows.predicted_s, 0.05) == Order(2, 1.0)


def test_who_takes_two_for_equal_picks_none() -> None:
    """A constant is right about no pair that the prediction tells apart."""
    rows = rows_of(("a", 1.0, 1.1), ("a", 2.0, 1.9))
    assert ordered(rows, pd.Series(1.0, index=rows.index)) == Order(1, 0.0)


def test_an_empty_table_has_no_last_line() -> None:
    """And no division by nothing."""
    assert len(table([]).splitlines()) == 2
    assert np.isnan(ordered(rows_of(), pd.Series(dtype=float)).right)
