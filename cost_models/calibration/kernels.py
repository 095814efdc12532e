"""What a device achieves, from measured kernels: lookups, gradient updates, copies, streams, matrix products.

Every kind of kernel has a law of a few terms. Those that every measurement of the kind depends on must be determined;
of the others those are kept that the data determine, and the rest are named with the reason.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import pandas as pd

from cost_models import lookup_terms as terms
from cost_models.calibration.robust import Fit, UndeterminedError, fit
from cost_models.coefficients import (
    Coefficient,
    DeviceCoefficients,
    DtypeCoefficient,
    Range,
    software_coefficients,
)
from cost_models.error_bars import HELD_OUT
from cost_models.kinds import LookupRates
from cost_models.shards import Floats
from cost_models.workload.formats import FORMATS
from topologies.errors import Fault, InputError

KernelOperation = Literal["lookup", "update", "copy", "stream", "dense_update", "regroup", "id_cut", "matmul"]
COLUMNS = ("operation", "dtype", "lookups", "dim", "rows", "pooling", "alpha", "bytes", "m", "n", "k", "seconds")
"""Of a table of kernels; a kind of kernel uses some of them (NEEDED) and leaves the others empty.

lookup, update: `lookups` rows of `dim` elements are read from tables of `rows` rows in all, or have their gradients
added, `pooling` of them for one output vector, with ids by a power law of exponent `alpha` (0: uniform). copy: `bytes`
from host to device. stream: `bytes` of device memory read and written. dense_update: `bytes` of a table whose gradient
is made, averaged and applied as a whole. regroup: `bytes` of vectors joined sample by sample, and as many of gradients
taken apart. id_cut: `lookups` ids sorted by the rank that holds their rows. matmul: [m, k] x [k, n].
"""
NEEDED: dict[KernelOperation, tuple[str, ...]] = {
    "lookup": ("lookups", "dim"),
    "update": ("lookups", "dim"),
    "copy": ("bytes",),
    "stream": ("bytes",),
    "dense_update": ("bytes",),
    "regroup": ("bytes",),
    "id_cut": ("lookups",),
    "matmul": ("m", "n", "k"),
}
ID_BYTES = 8
BETTER = 0.97
"""A further term must bring the mean error below this share of what it is without."""


@dataclass(frozen=True)
class Term:
    """A fitted number of a device."""

    name: str
    """As in a device's coefficient file; `matmul_flops_per_s` once per data type."""
    value: float
    unit: str
    uncertainty: float
    """Standard error, as a share of the value."""
    residual_90: float
    """Relative error that nine in ten measurements of its kind stay within."""
    rows: int
    valid: tuple[Range, ...] = ()
    dtype: str = ""

    def record(self) -> dict[str, str | int | float | None]:
        """As a line of a table."""
        return {
            "coefficient": f"{self.name} {self.dtype}".strip(),
            "value": _rounded(self.value),
            "unit": self.unit,
            "standard_error": float(f"{self.uncertainty:.2g}"),
            "residual_90": float(f"{self.residual_90:.2g}"),
            "rows": self.rows,
            "valid": "; ".join(f"{each.quantity} {each.low:g} to {each.high:g}" for each in self.valid),
        }


@dataclass(frozen=True)
class Calibration:
    """The terms of one device, what the data left open, and every measurement beside its prediction."""

    terms: tuple[Term, ...]
    left_open: tuple[str, ...]
    """Terms that the data do not determine, with the reason."""
    l2_speedup: float | None
    """What the fit took for it where it is not among the terms; None where no lookups were measured."""
    predicted: pd.DataFrame = field(repr=False)
    """operation, label, measured_s, predicted_s"""


def calibrate(rows: pd.DataFrame, source: str, sector_bytes: float) -> Calibration:
    """The terms that rows with COLUMNS determine, by kind of kernel; rows of tables are read in whole sectors.

    A kind of kernel whose main term they do not determine is left open as a whole. Raises InputError that names every
    such kind where nothing is determined.
    """
    found: list[Term] = []
    left_open: list[str] = []
    parts: list[pd.DataFrame] = []
    faults: list[Fault] = []
    rates = {"sector_bytes": sector_bytes}
    for operation in get_args(KernelOperation):
        of_kind = rows[rows.operation == operation]
        for dtype in sorted(set(of_kind.dtype)) if operation == "matmul" else [""]:
            part = of_kind[of_kind.dtype == dtype] if operation == "matmul" else of_kind
            if part.empty:
                continue
            try:
                law = _fit(_law(operation, part, rates))
            except UndeterminedError as error:
                faults.append(Fault(source, 0, 0, " ".join([operation, dtype]).strip(), str(error)))
                continue
            if operation == "lookup":
                rates |= law.fit.values
            found += _terms(operation, part, law, dtype)
            left_open += law.left_open
            parts.append(_beside(operation, part, law.fit))
    if not found:
        raise InputError(faults or [Fault(source, 0, 0, "", "holds no measurement of a kernel")])
    left_open += [f"{fault.path}: {fault.message}" for fault in faults]
    return Calibration(tuple(found), tuple(left_open), rates.get("l2_speedup"), pd.concat(parts, ignore_index=True))


def device_coefficients_of(
    calibration: Calibration, name: str, source: str, base: DeviceCoefficients
) -> DeviceCoefficients:
    """The coefficients of a device called `name`: the terms, and what `base` says of everything else."""
    values: dict[str, Coefficient | DtypeCoefficient] = {}
    found = {term.name for term in calibration.terms}
    if "lookup_bytes_per_s" in found and "l2_reach_bytes" not in found:
        words = f"no cache shows in these times; {source}"
        values["l2_reach_bytes"] = Coefficient(value=0.0, unit=UNITS["l2_reach_bytes"], kind="fitted", source=words)
    elif "l2_reach_bytes" in found and "l2_speedup" not in found and calibration.l2_speedup is not None:
        words = f"not determined by these times; {source}"
        values["l2_speedup"] = Coefficient(
            value=_rounded(calibration.l2_speedup), unit=UNITS["l2_speedup"], kind="assumed", source=words
        )
    if "update_row_s" in found and "update_passes_per_lookup" not in found:
        words = f"none shows in these times, only time of each lookup; {source}"
        unit = UNITS["update_passes_per_lookup"]
        values["update_passes_per_lookup"] = Coefficient(value=0.0, unit=unit, kind="fitted", source=words)
    for term in calibration.terms:
        if term.name not in DeviceCoefficients.model_fields:
            continue
        worth = {
            "unit": term.unit,
            "kind": "fitted",
            "source": source,
            "residual_90": float(f"{HELD_OUT * term.residual_90:.3g}"),
            "valid": term.valid,
        }
        if term.dtype:
            others = values.get(term.name)
            by_dtype = dict(others.by_dtype) if isinstance(others, DtypeCoefficient) else {}
            if others is not None and others.residual_90 is not None:
                worth["residual_90"] = max(others.residual_90, float(f"{HELD_OUT * term.residual_90:.3g}"))
            values[term.name] = DtypeCoefficient(by_dtype={**by_dtype, term.dtype: _rounded(term.value)}, **worth)
        else:
            values[term.name] = Coefficient(value=_rounded(term.value), **worth)
    return base.model_copy(update={"name": name, **values})


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
class _Law:
    """What a kind of kernel may take its time for."""

    measured: Floats
    predict: Callable[[Mapping[str, float]], Floats]
    main: Mapping[str, float]
    """Terms that must be determined, with where the search starts."""
    further: Sequence[Mapping[str, float]] = ()
    """Groups of terms that are tried one after the other."""
    absent: Mapping[str, float] = field(default_factory=dict)
    """What a term is where the data leave it out."""
    instead: Sequence[Mapping[str, float]] = ()
    """Terms that may stand in the main ones' place."""


@dataclass(frozen=True)
class _Fitted:
    fit: Fit
    left_open: tuple[str, ...]


def _fit(law: _Law) -> _Fitted:
    """The main terms with the further ones that explain most, of all choices that the data determine.

    Raises UndeterminedError, that of the main terms alone, where they determine none.
    """
    found: dict[frozenset[str], Fit] = {}
    cost: dict[frozenset[str], float] = {}
    refused: dict[frozenset[str], UndeterminedError] = {}
    groups = (law.main, *law.instead)
    for main, count in itertools.product(groups, range(len(law.further) + 1)):
        for chosen in itertools.combinations(law.further, count):
            start = {name: value for group in (main, *chosen) for name, value in group.items()}
            names = frozenset(start)
            if names in found or names in refused:
                continue
            try:
                found[names] = fit(lambda values: law.predict({**law.absent, **values}), start, law.measured)
                cost[names] = found[names].mean_error / BETTER**count
            except UndeterminedError as error:
                refused[names] = error
    if not found:
        raise refused[frozenset(law.main)]
    best = min(cost, key=cost.__getitem__)
    reasons = [
        f"{', '.join(group)}: {refused.get(best | set(group), 'no visible part of these times')}"
        for group in (law.main, *law.further)
        if not best >= set(group)
    ]
    fitted = found[best]
    return _Fitted(Fit({**law.absent, **fitted.values}, fitted.uncertainty, fitted.relative_errors), tuple(reasons))


def _law(operation: KernelOperation, rows: pd.DataFrame, lookup: Mapping[str, float]) -> _Law:
    measured = rows.seconds.to_numpy(float)
    if operation == "lookup":
        return _lookup_law(rows, measured, lookup["sector_bytes"])
    if operation == "update":
        return _update_law(rows, measured, lookup)
    if operation == "id_cut":
        return _id_cut_law(rows, measured)
    if operation == "matmul":
        work, rate = 2 * rows.m.to_numpy(float) * rows.n.to_numpy(float) * rows.k.to_numpy(float), "matmul_flops_per_s"
    else:
        work, rate = rows.bytes.to_numpy(float), f"{operation}_bytes_per_s"
    launch = f"{operation}_launch_s"

    def predict(values: Mapping[str, float]) -> Floats:
        return np.asarray(values[launch] + work / values[rate])

    start = float(np.max(work / measured))
    return _Law(measured, predict, {rate: start}, ({launch: float(measured.min()) / 2},), {launch: 0.0})


def _id_cut_law(rows: pd.DataFrame, measured: Floats) -> _Law:
    ids = rows.lookups.to_numpy(float)

    def predict(values: Mapping[str, float]) -> Floats:
        return np.asarray(values["id_cut_launch_s"] + ids * values["id_cut_s"])

    launch = {"id_cut_launch_s": float(measured.min()) / 2}
    return _Law(measured, predict, {"id_cut_s": float(np.min(measured / ids))}, (launch,), {"id_cut_launch_s": 0.0})


@dataclass(frozen=True)
class _Lookups:
    """Measured lookups as arrays [rows]."""

    lookups: Floats
    row_bytes: Floats
    output_bytes: Floats
    table_rows: Floats
    """Infinite where not said."""
    alpha: Floats

    @classmethod
    def of(cls, rows: pd.DataFrame, sector_bytes: float = 1.0) -> "_Lookups":
        lookups = rows.lookups.to_numpy(float)
        pairs = zip(rows.dtype, rows.dim, strict=True)
        width = np.array([int(FORMATS[dtype].vector_bytes(dim)) for dtype, dim in pairs], dtype=float)
        outputs = np.asarray(lookups / rows.pooling.fillna(1.0).to_numpy(float) * width, dtype=np.float64)
        row_bytes = terms.in_sectors(width, sector_bytes)
        alpha = rows.alpha.fillna(0.0).to_numpy(float)
        return cls(lookups, row_bytes, outputs, rows.rows.fillna(np.inf).to_numpy(float), alpha)

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
        found = []
        for lookups, rows, alpha in zip(self.lookups, self.table_rows, self.alpha, strict=True):
            if not np.isfinite(rows):
                found.append(1.0)
                continue
            weight = np.arange(1.0, rows + 1) ** -alpha
            found.append(float(-np.expm1(-lookups * weight / weight.sum()).sum() / lookups))
        return np.array(found)

    def parts(self, reach_bytes: float) -> Floats:
        """[4, rows] what a launch, a row, a byte of memory and a byte of the cache are multiplied by."""
        read, held = self.row_reads(reach_bytes)
        streamed = self.lookups * ID_BYTES + self.output_bytes
        return np.stack([np.ones_like(read), self.lookups, streamed + read * (1 - held), read * held])


LIKELY_SPEEDUPS = (2.0, 30.0)
"""Of a cache over its memory, where the measurements tell its size but not its rate (assumed)."""
_REACHES = 24
"""Sizes of the cache that are tried to find where to start."""


def _lookup_law(rows: pd.DataFrame, measured: Floats, sector_bytes: float) -> _Law:
    kernels = _Lookups.of(rows, sector_bytes)

    def predict(values: Mapping[str, float]) -> Floats:
        per_byte = 1 / values["lookup_bytes_per_s"]
        prices = (values["lookup_launch_s"], values["lookup_row_s"], per_byte, per_byte / values["l2_speedup"])
        return np.asarray(np.array(prices) @ kernels.parts(values["l2_reach_bytes"]))

    begin = _lookup_start(kernels, measured)
    further: list[Mapping[str, float]] = [{name: begin[name]} for name in ("lookup_launch_s", "lookup_row_s")]
    if begin["l2_reach_bytes"]:
        further += [{name: begin[name]} for name in ("l2_reach_bytes", "l2_speedup")]
    speedup = float(np.clip(begin["l2_speedup"], *LIKELY_SPEEDUPS))
    absent = {"lookup_launch_s": 0.0, "lookup_row_s": 0.0, "l2_speedup": speedup, "l2_reach_bytes": 0.0}
    return _Law(measured, predict, {"lookup_bytes_per_s": begin["lookup_bytes_per_s"]}, further, absent)


def _lookup_start(kernels: _Lookups, measured: Floats) -> dict[str, float]:
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


def _update_law(rows: pd.DataFrame, measured: Floats, lookup: Mapping[str, float]) -> _Law:
    """In units of a lookup's row reads, beside the distinct rows' own update, as the cost model counts them."""
    if "lookup_bytes_per_s" not in lookup:
        raise UndeterminedError(
            ("update_passes_per_lookup (in row reads of a lookup, of which there are none)",), len(rows)
        )
    rate, reach = lookup["lookup_bytes_per_s"], lookup["l2_reach_bytes"]
    kernels = _Lookups.of(rows, lookup["sector_bytes"])
    read, held = kernels.row_reads(reach)
    per_pass = read * ((1 - held) + held / lookup["l2_speedup"]) / rate

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
    return _Law(measured, predict, start, further, absent, instead=(by_row,))


UNITS = {
    "lookup_bytes_per_s": "bytes/s of rows, ids and outputs",
    "lookup_row_s": "seconds per row read",
    "lookup_launch_s": "seconds per forward pass",
    "l2_speedup": "times the rate of device memory",
    "l2_reach_bytes": "bytes",
    "update_passes_per_lookup": "row reads per lookup",
    "update_row_s": "seconds per lookup",
    "update_launch_s": "seconds per backward pass",
    "copy_bytes_per_s": "bytes/s",
    "copy_launch_s": "seconds per copy",
    "stream_bytes_per_s": "bytes/s read and written",
    "stream_launch_s": "seconds per kernel",
    "dense_update_bytes_per_s": "bytes/s of a table's gradient",
    "dense_update_launch_s": "seconds per update",
    "regroup_bytes_per_s": "bytes/s of vectors",
    "regroup_launch_s": "seconds per step",
    "id_cut_s": "seconds per id",
    "id_cut_launch_s": "seconds per batch of ids",
    "matmul_flops_per_s": "FLOP/s",
    "matmul_launch_s": "seconds per product",
}


def _terms(operation: KernelOperation, rows: pd.DataFrame, law: _Fitted, dtype: str) -> list[Term]:
    valid: tuple[Range, ...] = ()
    if operation in ("lookup", "update"):
        row_bytes = _Lookups.of(rows).row_bytes
        valid = (Range(quantity="row_bytes", low=float(row_bytes.min()), high=float(row_bytes.max())),)
    return [
        Term(
            name=name,
            value=law.fit.values[name],
            unit=UNITS[name],
            uncertainty=uncertainty,
            residual_90=law.fit.band_90,
            rows=len(rows),
            valid=valid,
            dtype=dtype if name == "matmul_flops_per_s" else "",
        )
        for name, uncertainty in law.fit.uncertainty.items()
    ]


def _beside(operation: KernelOperation, rows: pd.DataFrame, found: Fit) -> pd.DataFrame:
    measured = rows.seconds.to_numpy(float)
    columns = NEEDED[operation]
    labels = [
        " ".join(f"{name}={value:g}" for name, value in zip(columns, each, strict=True))
        for each in rows[list(columns)].to_numpy(float)
    ]
    return pd.DataFrame(
        {
            "operation": operation,
            "label": labels,
            "measured_s": measured,
            "predicted_s": measured * (1 + found.relative_errors),
        }
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
