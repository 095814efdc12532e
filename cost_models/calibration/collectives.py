"""The protocols of a collective from measured times."""

import itertools
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from cost_models.calibration.robust import SOFT_RELATIVE_ERROR, UndeterminedError
from cost_models.coefficients import CollectiveCoefficients, CollectiveOperation, ProtocolLaw
from cost_models.collective_laws import CollectiveLaw, wire_bytes
from cost_models.shards import Floats
from topologies.errors import Fault, InputError

COLLECTIVE_UNIT = "protocols as [s, bytes/s]; buffer_bytes in bytes; errors as shares"
PROTOCOLS = 3
"""NCCL has three: LL, LL128, Simple."""
LEAST_SIZES = 2 * PROTOCOLS
"""Different sizes below which two numbers per protocol are not determined."""
POLISHED = 3
"""How many cuts of the sizes into segments are refined by least squares."""


@dataclass(frozen=True)
class CollectiveTimes:
    """Measured times of one operation among one number of ranks."""

    operation: CollectiveOperation
    ranks: int
    buffer_bytes: Floats
    """[rows]"""
    seconds: Floats
    """[rows]"""


def collective_times(frame: pd.DataFrame) -> list[CollectiveTimes]:
    """Fit a law for each operation and number of ranks, from a frame with operation, ranks, buffer_bytes, seconds."""
    times = []
    for operation, of_operation in frame.groupby("operation", sort=True):
        for ranks in sorted(set(of_operation.ranks)):
            rows = of_operation[of_operation.ranks == ranks]
            columns = rows.buffer_bytes.to_numpy(float), rows.seconds.to_numpy(float)
            times.append(CollectiveTimes(cast("CollectiveOperation", operation), int(ranks), *columns))
    return times


def fit_protocols(times: CollectiveTimes) -> ProtocolLaw:
    """The law of these times. Raises UndeterminedError for fewer different sizes than it has numbers.

    First guesses cut the ascending sizes into one run per protocol, in every way, with a line through each run; the
    best ones are refined on all rows by robust least squares in relative errors. A protocol that is fastest at none of
    the sizes is left out: nothing was measured of it.
    """
    from scipy.optimize import least_squares  # heavy; only calibration needs it

    wire = wire_bytes(times.operation, times.buffer_bytes, times.ranks)
    sizes, which = np.unique(wire, return_inverse=True)
    if len(sizes) < LEAST_SIZES:
        raise UndeterminedError((f"{times.operation} among {times.ranks} ranks",), len(wire))
    typical = np.array([np.median(times.seconds[which == i]) for i in range(len(sizes))])

    def errors(point: Floats) -> Floats:
        latency, per_byte = np.exp(point).reshape(2, -1)
        return np.asarray(np.log((latency[:, None] + per_byte[:, None] * wire).min(axis=0) / times.seconds))

    fits = [
        least_squares(errors, np.log(guess).ravel(), loss="soft_l1", f_scale=SOFT_RELATIVE_ERROR, max_nfev=200)
        for guess in _guesses(sizes, typical)
    ]
    best = min(fits, key=lambda each: float(each.cost))
    latency, per_byte = np.exp(best.x).reshape(2, -1)
    used = np.unique((latency[:, None] + per_byte[:, None] * wire).argmin(axis=0))
    order = used[np.argsort(latency[used], kind="stable")]
    relative = np.abs(np.expm1(errors(best.x)))
    return ProtocolLaw(
        operation=times.operation,
        ranks=times.ranks,
        protocols=tuple((_rounded(latency[i]), _rounded(1 / per_byte[i])) for i in order),
        buffer_bytes=(float(times.buffer_bytes.min()), float(times.buffer_bytes.max())),
        rows=len(wire),
        mean_error=_rounded(relative.mean(), 3),
        band_90=_rounded(np.quantile(relative, 0.9), 3),
    )


def calibrated(
    frame: pd.DataFrame,
    *,
    name: str,
    device: str,
    link: str,
    bytes_per_s: float,
    source: str,
    among_processes: bool = False,
) -> CollectiveCoefficients:
    """Coefficients of one device from its measurements (see `collective_times`).

    Among processes, whose processors copy what they send and get, both take turns, and sums have laws of their own.

    Raises InputError that names every operation and number of ranks that the measurements do not determine.
    """
    laws: list[ProtocolLaw] = []
    faults: list[Fault] = []
    for times in collective_times(frame):
        try:
            laws.append(fit_protocols(times))
        except UndeterminedError as error:
            faults.append(Fault(source, 0, 0, "", f"{error}; {LEAST_SIZES} different sizes are the least"))
    if faults:
        raise InputError(faults)
    return CollectiveCoefficients(
        name=name,
        devices=(device,),
        link=link,
        sums_apart=among_processes,
        takes_turns=among_processes,
        bytes_per_s=bytes_per_s,
        unit=COLLECTIVE_UNIT,
        kind="fitted",
        source=source,
        laws=tuple(laws),
    )


def predicted_beside_measured(frame: pd.DataFrame, found: CollectiveCoefficients) -> pd.DataFrame:
    """operation, measured_s, predicted_s of measurements by the laws fitted to them."""
    laws = {(law.operation, law.ranks): law for law in found.laws}
    parts = []
    for times in collective_times(frame):
        law = laws[times.operation, times.ranks]
        wire = wire_bytes(times.operation, times.buffer_bytes, times.ranks)
        label = f"{times.operation}, {times.ranks} ranks"
        parts.append(
            pd.DataFrame({"operation": label, "measured_s": times.seconds, "predicted_s": as_law(law).seconds(wire)})
        )
    return pd.concat(parts, ignore_index=True)


def _guesses(sizes: Floats, typical: Floats) -> list[Floats]:
    """The POLISHED best first guesses, each [2, PROTOCOLS]: latencies and seconds per byte."""
    lines: dict[tuple[int, int], Floats] = {}
    rated: list[tuple[float, int, Floats]] = []
    for cuts in itertools.combinations(range(2, len(sizes) - 1), PROTOCOLS - 1):
        edges = [0, *cuts, len(sizes)]
        runs = list(itertools.pairwise(edges))
        if min(end - start for start, end in runs) < 2:
            continue
        for run in runs:
            if run not in lines:
                lines[run] = _line(sizes[slice(*run)], typical[slice(*run)])
        guess = np.stack([lines[run] for run in runs], axis=1)
        fastest = (guess[0][:, None] + guess[1][:, None] * sizes).min(axis=0)
        rated.append((float(np.abs(np.log(fastest / typical)).sum()), len(rated), guess))
    return [guess for _, _, guess in sorted(rated, key=lambda each: each[:2])[:POLISHED]]


def _line(sizes: Floats, seconds: Floats) -> Floats:
    """Positive latency and seconds per byte of the line with the least squared relative error."""
    from scipy.optimize import nnls

    unit = np.array([seconds.min(), seconds.max() / sizes.max()])
    weights, _ = nnls(np.stack([np.ones_like(sizes), sizes], axis=1) * unit / seconds[:, None], np.ones_like(sizes))
    return np.asarray(np.maximum(weights, 1e-3) * unit)


def as_law(law: ProtocolLaw) -> CollectiveLaw:
    """The law as the cost model uses it."""
    return scaled(law, 1.0)


def scaled(law: ProtocolLaw, bandwidth_ratio: float, system: str = "") -> CollectiveLaw:
    """The law of a link that is so many times as fast."""
    latencies, rates = zip(*law.protocols, strict=True)
    return CollectiveLaw(latencies, tuple(rate * bandwidth_ratio for rate in rates), "own", system)


def _rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")
