"""Laws of lookups and of their updates, as the cost model counts both."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from cost_models import lookup_terms as terms
from cost_models.calibration.laws import Law
from cost_models.calibration.robust import UndeterminedError
from cost_models.coefficients import software_coefficients
from cost_models.lookup_rates import LookupRates
from cost_models.shards import Floats
from cost_models.workload.formats import FORMATS

ID_BYTES = 8


def hottest_share(rows: Floats, alpha: Floats, fraction: Floats) -> Floats:
    """Share of the reads that the hottest `fraction` of the rows takes under a power law; the fraction, where uniform.

    Sums of i^-alpha as integrals from i - 1/2 to i + 1/2.
    """
    exponent = np.where(np.abs(1 - alpha) < 1e-6, 1e-6, 1 - alpha)

    def total(count: Floats) -> Floats:
        return np.asarray(((count + 0.5) ** exponent - 0.5**exponent) / exponent)

    with np.errstate(over="ignore", invalid="ignore"):
        share = total(fraction * rows) / total(rows)
    return np.asarray(np.where(alpha > 0, np.clip(share, 0.0, 1.0), fraction))


@dataclass(frozen=True)
class Lookups:
    """Measured lookups as arrays [rows]."""

    lookups: Floats
    row_bytes: Floats
    output_bytes: Floats
    vector_bytes: Floats
    """Of one output."""
    table_rows: Floats
    """Infinite where not said."""
    alpha: Floats

    @classmethod
    def of(cls, rows: pd.DataFrame, sector_bytes: float = 1.0) -> "Lookups":
        """Those of rows with `kernels.COLUMNS`; a row of a table is read in whole sectors."""
        lookups = rows.lookups.to_numpy(float)
        pairs = zip(rows.dtype, rows.dim, strict=True)
        width = np.array([int(FORMATS[dtype].vector_bytes(dim)) for dtype, dim in pairs], dtype=float)
        outputs = np.asarray(lookups / rows.pooling.fillna(1.0).to_numpy(float) * width, dtype=np.float64)
        row_bytes = terms.in_sectors(width, sector_bytes)
        alpha = rows.alpha.fillna(0.0).to_numpy(float)
        return cls(lookups, row_bytes, outputs, width, rows.rows.fillna(np.inf).to_numpy(float), alpha)

    def row_reads(self, reach_bytes: float) -> tuple[Floats, Floats]:
        """Bytes of the rows, and the share that the cache serves: it holds a share of them (`lookup_terms.l2_share`),
        the hottest ones."""
        read = self.lookups * self.row_bytes
        if not reach_bytes:
            return read, np.zeros_like(read)
        rates = LookupRates(1.0, 1.0, reach_bytes, 1.0, 1.0)
        fraction = terms.l2_share(self.table_rows * self.row_bytes, rates)
        return read, hottest_share(self.table_rows, self.alpha, fraction)

    def unique_share(self) -> Floats:
        """[rows] distinct rows over lookups, each drawn from the power law by itself."""
        drawn = np.stack([self.lookups, self.table_rows, self.alpha], axis=1)
        cases, which = np.unique(drawn, axis=0, return_inverse=True)
        shares = np.ones(len(cases))
        for i, (lookups, rows, alpha) in enumerate(cases):
            if np.isfinite(rows):
                weight = np.arange(1.0, rows + 1) ** -alpha
                shares[i] = -np.expm1(-lookups * weight / weight.sum()).sum() / lookups
        return shares[which.reshape(-1)]

    def parts(self, reach_bytes: float) -> Floats:
        """[4, rows] what a launch, a row, a byte of memory and a byte of the cache are multiplied by."""
        read, held = self.row_reads(reach_bytes)
        streamed = self.lookups * ID_BYTES + self.output_bytes
        return np.stack([np.ones_like(read), self.lookups, streamed + read * (1 - held), read * held])


LIKELY_SPEEDUP = 10.0
"""The speed-up of a cache over its memory for rows that a batch reads again (assumed where it is not measured)."""
_REACHES = 24
"""Sizes of the cache that are tried to find where to start."""


def lookup_law(rows: pd.DataFrame, measured: Floats, sector_bytes: float) -> Law:
    """Fit runs that find small tables in the cache, which holds a share of a table by its size."""
    kernels = Lookups.of(rows, sector_bytes)

    def predict(values: Mapping[str, float]) -> Floats:
        per_byte = 1 / values["lookup_bytes_per_s"]
        cached = per_byte / values.get("l2_speedup", 1.0)
        prices = (values["lookup_launch_s"], values["lookup_row_s"], per_byte, cached)
        return np.asarray(np.array(prices) @ kernels.parts(values["l2_reach_bytes"]))

    begin = _lookup_start(kernels, measured)
    further: list[Mapping[str, float]] = [{name: begin[name]} for name in ("lookup_launch_s", "lookup_row_s")]
    if begin["l2_reach_bytes"]:
        further.append({name: begin[name] for name in ("l2_reach_bytes", "l2_speedup")})  # one tells nothing alone
    absent = {"lookup_launch_s": 0.0, "lookup_row_s": 0.0, "l2_reach_bytes": 0.0}
    return Law(measured, predict, {"lookup_bytes_per_s": begin["lookup_bytes_per_s"]}, further, absent)


def _lookup_start(kernels: Lookups, measured: Floats) -> dict[str, float]:
    """Times are straight in all but the size of the cache: the best non-negative prices for some sizes of it."""
    from scipy.optimize import nnls  # heavy; only calibration needs it

    sizes = kernels.table_rows * kernels.row_bytes
    reaches = [0.0]
    if np.isfinite(sizes).all() and sizes.max() > 2 * sizes.min():
        reaches += np.geomspace(sizes.min(), sizes.max(), _REACHES).tolist()
    fits = []
    for reach in reaches:
        parts = kernels.parts(reach) / measured
        scale = np.maximum(parts.max(axis=1, keepdims=True), 1e-300)
        prices, error = nnls((parts / scale).T, np.ones_like(measured))
        fits.append((float(error), reach, prices / scale[:, 0]))
    _, reach, (launch, row, byte, cached) = min(fits, key=lambda each: each[0])
    byte = max(byte, float((measured / kernels.parts(0.0)[2]).min()) * 1e-3)
    return {
        "lookup_bytes_per_s": 1 / byte,
        "lookup_launch_s": max(launch, float(measured.min()) * 1e-2),
        "lookup_row_s": max(row, float((measured / kernels.lookups).min()) * 1e-2),
        "l2_speedup": min(byte / cached, 1e3) if cached > 0 else 10.0,
        "l2_reach_bytes": reach,
    }


def update_law(rows: pd.DataFrame, measured: Floats, lookup: Mapping[str, float]) -> Law:
    """In units of a lookup's row reads, beside the distinct rows' own update, as the cost model counts them."""
    if "lookup_bytes_per_s" not in lookup:
        raise UndeterminedError(
            ("update_passes_per_lookup (in row reads of a lookup, of which there are none)",), len(rows)
        )
    rate, reach = lookup["lookup_bytes_per_s"], lookup["l2_reach_bytes"]
    kernels = Lookups.of(rows, lookup["sector_bytes"])
    read, held = kernels.row_reads(reach)
    per_pass = read * ((1 - held) + held / lookup.get("l2_speedup", 1.0)) / rate

    rewritten = software_coefficients("torchrec").row_update_passes.value * kernels.unique_share() * per_pass

    def predict(values: Mapping[str, float]) -> Floats:
        by_row = values["update_row_s"] * kernels.lookups
        passes = values["update_passes_per_lookup"] * per_pass + rewritten
        return np.asarray(values["update_launch_s"] + by_row + passes)

    left = np.maximum(measured - rewritten, 0.1 * measured)
    start = {"update_passes_per_lookup": float(np.median(left / per_pass)) / 2}
    by_row = {"update_row_s": float(np.median(measured / kernels.lookups)) / 2}
    further = ({"update_launch_s": float(measured.min()) / 2}, by_row)
    absent = {"update_passes_per_lookup": 0.0, "update_launch_s": 0.0, "update_row_s": 0.0}
    return Law(measured, predict, start, further, absent, instead=(by_row,))


def evicted_law(
    operation: Literal["lookup", "update"], rows: pd.DataFrame, measured: Floats, lookup: Mapping[str, float]
) -> Law:
    """Fit runs that find no row in the caches: distinct rows come from memory, one that is read again from a cache.

    An update reads the gradient of a vector for each of its lookups, and rewrites distinct rows.
    """
    kernels = Lookups.of(rows, lookup["sector_bytes"])
    ids, width, outputs = kernels.lookups, kernels.row_bytes, kernels.output_bytes
    distinct = kernels.unique_share() * ids
    each = float(np.median(measured / ids))
    if operation == "update":
        if "lookup_bytes_per_s" not in lookup:
            raise UndeterminedError(("update_row_s (beside the reads of a lookup, of which there are none)",), len(ids))
        per_byte = 1 / lookup["lookup_bytes_per_s"]
        gradients = (outputs + (ids * width - outputs) / lookup["l2_speedup"]) * per_byte
        parts = {
            "update_row_s": ids,
            "update_launch_s": np.ones_like(ids),
            "update_distinct_row_s": distinct,
            "update_passes_per_lookup": gradients,
            "update_passes_per_row": distinct * width * per_byte,
        }
        begin = {name: float(np.median(measured / part)) / 4 for name, part in parts.items()}

        def updated(values: Mapping[str, float]) -> Floats:
            return np.asarray(sum(values[name] * part for name, part in parts.items()))

        main, *further = ({name: value} for name, value in begin.items())
        return Law(measured, updated, main, further, dict.fromkeys(parts, 0.0), instead=(further[-1],))
    from_memory, again = ids * ID_BYTES + outputs + distinct * width, (ids - distinct) * width
    vectors = outputs / kernels.vector_bytes

    def read(values: Mapping[str, float]) -> Floats:
        moved = (from_memory + again / values["l2_speedup"]) / values["lookup_bytes_per_s"]
        by_row = ids * values["lookup_row_s"] + distinct * values["lookup_distinct_row_s"]
        return np.asarray(values["lookup_launch_s"] + by_row + vectors * values["lookup_vector_s"] + moved)

    begin = dict.fromkeys(("lookup_row_s", "lookup_distinct_row_s", "lookup_vector_s"), each / 4)
    begin = {"lookup_launch_s": float(measured.min()) / 2, **begin}
    further = [{name: value} for name, value in (begin | {"l2_speedup": LIKELY_SPEEDUP}).items()]
    absent = {**dict.fromkeys(begin, 0.0), "l2_speedup": LIKELY_SPEEDUP, "l2_reach_bytes": 0.0}
    return Law(measured, read, {"lookup_bytes_per_s": float(np.median(from_memory / measured))}, further, absent)
