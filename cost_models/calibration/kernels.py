"""What a device achieves, from measured kernels: lookups, gradient updates, copies, streams, matrix products.

Every kind of kernel has a law of a few terms. Those that every measurement of the kind depends on must be determined;
of the others those are kept that the data determine, and the rest are named with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import pandas as pd

from cost_models.calibration.laws import FittedLaw, Law, fitted
from cost_models.calibration.lookups import Lookups, evicted_law, lookup_law, update_law
from cost_models.calibration.robust import Fit, UndeterminedError
from cost_models.coefficients import (
    Coefficient,
    DeviceCoefficients,
    DtypeCoefficient,
    ValidRange,
)
from cost_models.error_bars import HELD_OUT
from cost_models.shards import Floats
from topologies.errors import Fault, InputError

KernelOperation = Literal["lookup", "update", "copy", "stream", "dense_update", "regroup", "id_cut", "matmul"]
COLUMNS = (
    "operation",
    "dtype",
    "lookups",
    "dim",
    "rows",
    "pooling",
    "alpha",
    "evicted",
    "bytes",
    "pieces",
    "m",
    "n",
    "k",
    "seconds",
)
"""The columns of a table of kernels; a kind of kernel uses some of them (NEEDED) and leaves the others empty.

lookup, update: `lookups` rows of `dim` elements are read from tables of `rows` rows in all, or have their gradients
added, `pooling` of them for one output vector, with ids by a power law of exponent `alpha` (0: uniform); before each
run `evicted` bytes of other data pass through the caches (empty: none), as the other tables of a rank do. copy: `bytes`
from host to device. stream: `bytes` of device memory read and written. dense_update: `bytes` of a table whose gradient
is made, averaged and applied as a whole. regroup: `bytes` of vectors joined sample by sample out of `pieces` (empty:
few), and as many of gradients taken apart. id_cut: `lookups` ids sorted by the rank that holds their rows. matmul:
[m, k] x [k, n].
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
    valid: tuple[ValidRange, ...] = ()
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
    taken: Mapping[str, float]
    """What terms of lookups and updates that are not among these were taken to be."""
    predicted: pd.DataFrame = field(repr=False)
    """operation, label, measured_s, predicted_s"""


def calibrate(rows: pd.DataFrame, source: str, sector_bytes: float) -> Calibration:
    """The terms that rows with COLUMNS determine, by kind of kernel; rows of tables are read in whole sectors.

    A kind of kernel whose main term they do not determine is left open as a whole. Raises InputError that names every
    such kind where nothing is determined.
    """
    terms: list[Term] = []
    left_open: list[str] = []
    parts: list[pd.DataFrame] = []
    faults: list[Fault] = []
    rates, taken = {"sector_bytes": sector_bytes}, dict[str, float]()
    for operation in get_args(KernelOperation):
        of_kind = rows[rows.operation == operation]
        for dtype in sorted(set(of_kind.dtype)) if operation == "matmul" else [""]:
            part = of_kind[of_kind.dtype == dtype] if operation == "matmul" else of_kind
            if part.empty:
                continue
            if operation in ("lookup", "update") and len(set(part.evicted > 0)) > 1:
                message = "some runs found the caches as they were, others full of other data; calibrate with one kind"
                faults.append(Fault(source, 0, 0, "evicted", f"{operation}: {message}"))
                continue
            try:
                law = fitted(_law(operation, part, rates))
            except UndeterminedError as error:
                faults.append(Fault(source, 0, 0, " ".join([operation, dtype]).strip(), str(error)))
                continue
            if operation in ("lookup", "update"):
                rates |= law.values
                taken |= law.taken
            terms += _terms(operation, part, law, dtype)
            left_open += law.left_open
            parts.append(_beside(operation, part, law.fit))
    if not terms:
        raise InputError(faults or [Fault(source, 0, 0, "", "holds no measurement of a kernel")])
    left_open += [f"{fault.path}: {fault.message}" for fault in faults]
    return Calibration(tuple(terms), tuple(left_open), taken, pd.concat(parts, ignore_index=True))


def device_coefficients_of(
    calibration: Calibration, name: str, source: str, base: DeviceCoefficients
) -> DeviceCoefficients:
    """The coefficients of a device called `name`: the terms, and what `base` says of everything else."""
    values: dict[str, Coefficient | DtypeCoefficient] = {}
    calibrated = {term.name for term in calibration.terms}
    for term_name in sorted(WITHOUT.keys() & calibration.taken.keys() - calibrated):
        values[term_name] = Coefficient(
            value=calibration.taken[term_name],
            unit=UNITS[term_name],
            kind="assumed" if calibration.taken[term_name] else "fitted",
            source=f"{WITHOUT[term_name]}; {source}",
        )
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


def _law(operation: KernelOperation, rows: pd.DataFrame, lookup: Mapping[str, float]) -> Law:
    measured = rows.seconds.to_numpy(float)
    if operation in ("lookup", "update") and (rows.evicted > 0).all():
        return evicted_law(operation, rows, measured, lookup)
    if operation == "lookup":
        return lookup_law(rows, measured, lookup["sector_bytes"])
    if operation == "update":
        return update_law(rows, measured, lookup)
    if operation == "id_cut":
        return _id_cut_law(rows, measured)
    if operation == "regroup" and (rows.pieces > 0).all():
        return _regroup_law(rows, measured)
    if operation == "matmul":
        work, rate = 2 * rows.m.to_numpy(float) * rows.n.to_numpy(float) * rows.k.to_numpy(float), "matmul_flops_per_s"
    else:
        work, rate = rows.bytes.to_numpy(float), f"{operation}_bytes_per_s"
    launch = f"{operation}_launch_s"

    def predict(values: Mapping[str, float]) -> Floats:
        return np.asarray(values[launch] + work / values[rate])

    start = float(np.max(work / measured))
    return Law(measured, predict, {rate: start}, ({launch: float(measured.min()) / 2},), {launch: 0.0})


def _id_cut_law(rows: pd.DataFrame, measured: Floats) -> Law:
    ids = rows.lookups.to_numpy(float)

    def predict(values: Mapping[str, float]) -> Floats:
        return np.asarray(values["id_cut_launch_s"] + ids * values["id_cut_s"])

    launch = {"id_cut_launch_s": float(measured.min()) / 2}
    return Law(measured, predict, {"id_cut_s": float(np.min(measured / ids))}, (launch,), {"id_cut_launch_s": 0.0})


def _regroup_law(rows: pd.DataFrame, measured: Floats) -> Law:
    """Bytes, and pieces of vectors however short they are."""
    parts = {"regroup_launch_s": np.ones_like(measured), "regroup_piece_s": rows.pieces.to_numpy(float)}
    size = rows.bytes.to_numpy(float)

    def predict(values: Mapping[str, float]) -> Floats:
        return np.asarray(size / values["regroup_bytes_per_s"] + sum(values[name] * parts[name] for name in parts))

    further = [{name: float(np.median(measured / part)) / 2} for name, part in parts.items()]
    return Law(
        measured, predict, {"regroup_bytes_per_s": float(np.max(size / measured))}, further, dict.fromkeys(parts, 0.0)
    )


WITHOUT = {
    "l2_reach_bytes": "no cache shows that keeps tables in these times",
    "l2_speedup": "not determined by these times",
    "lookup_distinct_row_s": "none shows in these times, only bytes of distinct rows",
    "update_passes_per_lookup": "none shows in these times, only time of each lookup",
    "update_passes_per_row": "none shows in these times",
    "update_distinct_row_s": "none shows in these times",
}
"""What a device file says of terms that are not left to the data sheet where the measurements have no part of them."""
UNITS = {
    "lookup_bytes_per_s": "bytes/s of rows, ids and outputs",
    "lookup_row_s": "seconds per row read",
    "lookup_vector_s": "seconds per vector",
    "lookup_launch_s": "seconds per forward pass",
    "l2_speedup": "times the rate of device memory",
    "l2_reach_bytes": "bytes",
    "update_passes_per_lookup": "row reads per lookup",
    "lookup_distinct_row_s": "seconds per distinct row",
    "update_row_s": "seconds per lookup",
    "update_distinct_row_s": "seconds per distinct row",
    "update_passes_per_row": "row reads per distinct row",
    "update_launch_s": "seconds per backward pass",
    "copy_bytes_per_s": "bytes/s",
    "copy_launch_s": "seconds per copy",
    "stream_bytes_per_s": "bytes/s read and written",
    "stream_launch_s": "seconds per kernel",
    "dense_update_bytes_per_s": "bytes/s of a table's gradient",
    "dense_update_launch_s": "seconds per update",
    "regroup_bytes_per_s": "bytes/s of vectors",
    "regroup_piece_s": "seconds per piece of a vector",
    "regroup_launch_s": "seconds per step",
    "id_cut_s": "seconds per id",
    "id_cut_launch_s": "seconds per batch of ids",
    "matmul_flops_per_s": "FLOP/s",
    "matmul_launch_s": "seconds per product",
}


def _terms(operation: KernelOperation, rows: pd.DataFrame, law: FittedLaw, dtype: str) -> list[Term]:
    valid: tuple[ValidRange, ...] = ()
    if operation in ("lookup", "update"):
        row_bytes = Lookups.of(rows).row_bytes
        valid = (ValidRange(quantity="row_bytes", low=float(row_bytes.min()), high=float(row_bytes.max())),)
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
