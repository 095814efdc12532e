"""NCCL collectives inside a node: rows of `measured/nccl_collectives.csv` against the fitted protocols."""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.readable import measured, readable
from benchmarks.accuracy.rows import DataSet, frame
from benchmarks.accuracy.systems import UnknownSystemError, topology_of
from cost_models.calibration.collectives import CollectiveTimes, as_law, collective_times, fit_protocols, scaled
from cost_models.calibration.robust import UndeterminedError
from cost_models.coefficients import CollectiveCoefficients, CollectiveOperation, ProtocolLaw, collective_files
from cost_models.collective_laws import collective_law, wire_bytes
from cost_models.error_bars import HELD_OUT, band, doublings_outside

OPERATIONS = {
    "alltoall": "all_to_all",
    "reduce_scatter": "reduce_scatter",
    "all_gather": "all_gather",
    "all_reduce": "all_reduce",
}
NAIVE_LATENCY_S = 10e-6
TORCHREC_BYTES_PER_S = 600 * 2**30
"""TorchRec 1.8.0, constants.py: INTRA_NODE_BANDWIDTH."""
UNGATED = {("l40s", 8)}
"""A broken box: MLPerf's L40 fits 24 GB/s."""
FOLDS = 7
"""Leave-out runs: each leaves out every seventh size, so that neighbours of a left-out size stay."""


def times(folder: Path) -> pd.DataFrame:
    """The rows, in bytes and seconds."""
    rows = measured(folder, "nccl_collectives.csv")
    rows = readable(rows.fillna({"op_name": "", "system": ""}), "nccl", ("num_gpus", "bytes", "t_us"))
    return pd.DataFrame(
        {
            "system": rows.system,
            "device": rows.device,
            "op_name": rows.op_name,
            "operation": rows.op_name.map(OPERATIONS),
            "ranks": rows.num_gpus,
            "buffer_bytes": rows.bytes.astype(float),
            "seconds": rows.t_us * 1e-6,
        }
    )


def predict(folder: Path) -> pd.DataFrame:
    rows = times(folder)
    if unknown := sorted(set(rows.op_name[rows.operation.isna()])):
        print(f"nccl: no collective is called {', '.join(unknown)}; left out", file=sys.stderr)
    files = {file.name: file for file in collective_files()}
    parts, strange = [frame([])], {}
    for (system, operation, ranks), part in rows.groupby(["system", "operation", "ranks"]):
        if system in files and (law := _law(files[system], operation, int(ranks))):
            parts.append(_predicted(files[system], law, part))
            continue
        try:
            parts.append(_transferred(str(system), operation, int(ranks), part))
        except UnknownSystemError as reason:
            strange[str(system)] = str(reason)
    for system, reason in strange.items():
        print(f"nccl: {system} left out: {reason}", file=sys.stderr)
    return pd.concat(parts).sort_index()


def _transferred(system: str, operation: CollectiveOperation, ranks: int, rows: pd.DataFrame) -> pd.DataFrame:
    """By the law that the cost model takes for ranks or devices without measurements.

    Raises UnknownSystemError where it has none.
    """
    named = rows.device.dropna()
    words = str(named.iloc[0]) if len(named) else system.replace("_", " ")
    group = topology_of(words, 1, ranks).nodes[0]
    up, device = group.links.scale_up, group.accelerators.device
    link, port = (up.kind, up.bandwidth) if up else ("pcie", group.links.pcie.bandwidth)
    law = collective_law(operation, device, link, port, ranks)
    if law is None:
        raise UnknownSystemError(f"there are no laws of {operation} over {link}")
    wire = wire_bytes(operation, rows.buffer_bytes, ranks)
    outside = doublings_outside(rows.buffer_bytes, law.buffer_bytes) + abs(np.log2(ranks / law.ranks))
    return _frame(system, operation, ranks, rows, law.seconds(wire), (law.error_90(), outside), port)


@cache
def _laws(file: CollectiveCoefficients) -> dict[tuple[str, int], ProtocolLaw]:
    return {(law.operation, law.ranks): law for law in file.laws}


def _law(file: CollectiveCoefficients, operation: str, ranks: int) -> ProtocolLaw | None:
    return _laws(file).get((operation, ranks))


def _predicted(file: CollectiveCoefficients, law: ProtocolLaw, rows: pd.DataFrame) -> pd.DataFrame:
    wire = wire_bytes(law.operation, rows.buffer_bytes, law.ranks)
    seconds = as_law(law).seconds(wire)
    error = HELD_OUT * law.band_90, doublings_outside(rows.buffer_bytes, law.buffer_bytes)
    return _frame(file.name, law.operation, law.ranks, rows, seconds, error, file.bytes_per_s)


def _frame(
    system: str,
    operation: CollectiveOperation,
    ranks: int,
    rows: pd.DataFrame,
    seconds: np.ndarray,
    error: tuple[float, np.ndarray],
    port_bytes_per_s: float,
) -> pd.DataFrame:
    """Some rows of one law with their predicted seconds; `error` as `band` takes it."""
    low, high = band(seconds, *error)
    out = frame([])
    out["label"] = [f"{system} {operation} {ranks} ranks {size:.0f} B" for size in rows.buffer_bytes]
    out["group"] = [f"{size:.0f} B" for size in rows.buffer_bytes]
    out["measured_s"], out["predicted_s"] = rows.seconds.to_numpy(), seconds
    out["low_s"], out["high_s"] = low, high
    out["naive_s"] = wire_bytes(operation, rows.buffer_bytes, ranks) / port_bytes_per_s + NAIVE_LATENCY_S
    out["torchrec_s"] = rows.buffer_bytes.to_numpy() / TORCHREC_BYTES_PER_S
    out["gated"] = (system, ranks) not in UNGATED
    out["alike"] = [f"{operation} {ranks} ranks {size:.0f} B" for size in rows.buffer_bytes]
    return out.set_index(rows.index)


def held_out(folder: Path) -> pd.Series:
    """Each size predicted from laws fitted to other sizes (its neighbours among them)."""
    return held_out_of(times(folder))


def held_out_of(rows: pd.DataFrame) -> pd.Series:
    """The same for rows of `times`."""
    found = pd.Series(np.nan, index=rows.index)
    for (system, _, _), part in rows.groupby(["system", "operation", "ranks"]):
        everything = collective_times(part)[0]
        sizes = np.unique(everything.buffer_bytes)
        for fold in range(FOLDS):
            out = np.isin(everything.buffer_bytes, sizes[fold::FOLDS])
            kept = CollectiveTimes(
                everything.operation, everything.ranks, everything.buffer_bytes[~out], everything.seconds[~out]
            )
            wire = wire_bytes(everything.operation, everything.buffer_bytes[out], everything.ranks)
            try:
                found.loc[part.index[out]] = as_law(fit_protocols(kept)).seconds(wire)
            except UndeterminedError as error:
                print(f"nccl: {system}: nothing held out: {error}", file=sys.stderr)
                break
    return found


DATA_SET = DataSet(
    name="nccl",
    grouping="buffer size",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: sum(2 * len(law.protocols) for file in collective_files() for law in file.laws),
    note="collectives inside a node, nine systems, 2 to 8 ranks",
)


def transfer(folder: Path) -> pd.DataFrame:
    """Mean error on each NVLink system's rows of every other one's laws, scaled by the data sheet's bandwidth."""
    rows, files = times(folder), [file for file in collective_files() if file.link.startswith("nvlink")]
    found = []
    for system, own in rows.groupby("system"):
        target = next((file for file in files if file.name == system), None)
        for file in files if target else ():
            if file.name == system:
                continue
            errors = [
                (scaled(law, target.bytes_per_s / file.bytes_per_s).seconds(_wire(part)) / part.seconds - 1).abs()
                for (operation, ranks), part in own.groupby(["operation", "ranks"])
                if (law := _law(file, str(operation), int(ranks)))
            ]
            kind = "sibling" if file.link == target.link else "generation"
            found.append((system, file.name, kind, float(pd.concat(errors).mean())))
    return pd.DataFrame(found, columns=["system", "laws_of", "origin", "mean_error"])


def _wire(rows: pd.DataFrame) -> np.ndarray:
    return wire_bytes(rows.operation.iloc[0], rows.buffer_bytes, int(rows.ranks.iloc[0]))
