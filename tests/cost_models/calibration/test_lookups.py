"""Laws of lookups whose runs find other data in the caches, as the tables of a rank find those of the others."""

import numpy as np
import pandas as pd
import pytest

from cost_models.calibration.kernels import COLUMNS, Calibration, calibrate, device_coefficients_of
from cost_models.coefficients import device_coefficients

LINE = 64.0
RATE, SPEEDUP, LAUNCH, ROW, DISTINCT = 2e10, 6.0, 3e-4, 2e-9, 6e-9
VECTOR = 4e-9
UPDATE_LAUNCH, UPDATE_ROW, UPDATE_DISTINCT, PASSES, ROW_PASSES = 2e-4, 1e-8, 2e-8, 3.0, 5.0


def evicted(speedup: float = SPEEDUP, noise: float = 0.0) -> pd.DataFrame:
    """Lookups and updates of a processor with known terms; ids are uniform."""
    random, rows = np.random.default_rng(3), []
    for dim in (4, 16, 32, 64, 128):
        for table in (1000, 30_000, 1_000_000):
            for ids, pooling in ((256, 1), (20_000, 1), (20_000, 10), (60_000, 40)):
                width, vectors = max(dim * 4, LINE), ids / pooling * dim * 4
                distinct = -table * np.expm1(ids * np.log1p(-1 / table))
                read = (ids * 8 + vectors + distinct * width + (ids - distinct) * width / speedup) / RATE
                summed = PASSES * (vectors + (ids * width - vectors) / speedup) / RATE
                rewritten = ROW_PASSES * distinct * width / RATE + distinct * UPDATE_DISTINCT
                lookup = LAUNCH + ids * ROW + distinct * DISTINCT + ids / pooling * VECTOR + read
                update = UPDATE_LAUNCH + ids * UPDATE_ROW + summed + rewritten
                case = {"lookups": ids, "dim": dim, "rows": table, "pooling": pooling, "dtype": "fp32"}
                case |= {"evicted": 2**26}
                for operation, seconds in (("lookup", lookup), ("update", update)):
                    factor = np.exp(noise * random.standard_normal())
                    rows.append({"operation": operation, "seconds": seconds * factor, **case})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def values(found: Calibration) -> dict[str, float]:
    return {term.name: term.value for term in found.terms}


def test_terms_of_distinct_rows_come_back() -> None:
    """What a row costs each time, what it costs once in a batch, what a vector costs, how much faster a cache is."""
    found = values(calibrate(evicted(), "test", LINE))
    expected = {
        "lookup_bytes_per_s": RATE,
        "l2_speedup": SPEEDUP,
        "lookup_launch_s": LAUNCH,
        "lookup_row_s": ROW,
        "lookup_distinct_row_s": DISTINCT,
        "lookup_vector_s": VECTOR,
        "update_launch_s": UPDATE_LAUNCH,
        "update_row_s": UPDATE_ROW,
        "update_distinct_row_s": UPDATE_DISTINCT,
        "update_passes_per_lookup": PASSES,
        "update_passes_per_row": ROW_PASSES,
    }
    assert found == {name: pytest.approx(value, rel=0.02) for name, value in expected.items()}


def test_a_speedup_that_nothing_tells_is_assumed_and_says_so() -> None:
    """A cache so fast that its reads take no time has no rate: no number is fitted, and no reach of a cache claimed."""
    found = calibrate(evicted(speedup=1e6, noise=0.1), "test", LINE)
    assert "l2_speedup" not in values(found)
    assert any("l2_speedup" in words for words in found.left_open)
    device = device_coefficients_of(found, "MINE", "test", device_coefficients("default"))
    assert device.l2_speedup.kind == "assumed"
    assert device.l2_speedup.value == 10
    assert device.l2_reach_bytes is not None
    assert device.l2_reach_bytes.value == 0
    assert device.lookup_distinct_row_s is not None


def test_runs_of_both_kinds_are_not_mixed() -> None:
    """Those that found the caches as they were are named, not taken for the others."""
    rows = evicted()
    rows.loc[rows.dim == 4, "evicted"] = None
    copies = [
        {"operation": "copy", "dtype": "int8", "bytes": 2.0**n, "seconds": 1e-6 + 2.0**n / 1e10} for n in (12, 22, 26)
    ]
    found = calibrate(pd.concat([rows, pd.DataFrame(copies, columns=list(COLUMNS))]), "test", LINE)
    assert set(values(found)) == {"copy_bytes_per_s", "copy_launch_s"}
    assert any("lookup: some runs found the caches as they were" in words for words in found.left_open)
