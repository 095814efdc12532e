"""Embedding kernels of TorchRec (FBGEMM's TBE) on an H100: rows of NVIDIA's dynamicemb benchmark.

Ids follow a power law drawn by inversion: floor(x) of a continuous x^-a on [1, N + 1), so that the counts of distinct
rows come from that law, not from its usual sum. A cache is 32-way set associative and least-recently-used; the
benchmark reads 100 batches again and again.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.readable import measured, readable
from benchmarks.accuracy.rows import DataSet, frame, leave_one_group_out
from cost_models import lookup_terms as terms
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import Quantity, SoftwareCoefficients, device_coefficients, software_coefficients
from cost_models.error_bars import band, error_90
from cost_models.lookup_rates import LookupRates

DEVICE, SOFTWARE = "H100-SXM5-80GB", "torchrec"
HBM_BYTES_PER_S, PCIE_BYTES_PER_S, L2_BYTES = 3.352e12, 63e9, 50 * 2**20
SECTOR_BYTES = 32
ALPHA = 1.05
BATCHES = 100
"""benchmark_batched_dynamicemb_tables.py: --num_iterations."""
COLD_BATCHES = 10
"""Rows that state no cache ratio: their evaluation pass is faster than their forward pass by the misses of about ten
batches into an empty cache, and fits a cache that then misses nothing."""
SLOTS_SHARE = 0.125
"""Share in the README's runs: benchmark_batched_dynamicemb_tables.sh, gpu_ratio."""
WAYS = 32
"""FBGEMM's cache: rows per set."""
FITTED = {
    "lookup_efficiency": "device",
    "backward_launch_s": "software",
    "sequence_backward_passes": "software",
    "row_update_passes": "software",
    "update_passes": "software",
    "uvm_forward_passes_per_lookup": "software",
    "uvm_forward_passes_per_row": "software",
    "uvm_kept_rows": "software",
    "uvm_backward_passes_per_row": "software",
    "cache_search_s": "software",
    "cache_launch_s": "software",
    "cache_update_s": "software",
    "cache_fetch_passes": "software",
}
"""The coefficients that these rows determine, and the kind of file that holds each."""
TORCHREC = {"hbm": 897 * 2**30, "uvm": 32 * 2**30 / 10, "uvm_caching": (0.2 * 897 + 0.8 * 32) * 2**30 / 10}
"""TorchRec 1.8.0, constants.py: bytes/s of the three kernels."""


@cache
def distinct_rows(rows: int, draws: float) -> float:
    """Distinct rows among `draws` ids, with p_i = (i^(1-a) - (i+1)^(1-a)) / (1 - (N+1)^(1-a))."""
    total, head = 1 - (rows + 1.0) ** (1 - ALPHA), min(rows, 4096)
    i = np.arange(1.0, head + 1)
    chance = (i ** (1 - ALPHA) - (i + 1) ** (1 - ALPHA)) / total
    found = float(-np.expm1(draws * np.log1p(-chance)).sum())
    if rows > head:
        low, high = np.log(head + 1.0), np.log(rows + 1.0)
        nodes, weights = _quadrature()
        rank = np.exp(low + (high - low) * (nodes + 1) / 2)
        tail = -np.expm1(-draws * (ALPHA - 1) * rank**-ALPHA / total)
        found += float((tail * rank * weights).sum() * (high - low) / 2)
    return found


@cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Gauss and Legendre's nodes between -1 and 1, and their weights."""
    return np.polynomial.legendre.leggauss(200)


def hottest_share(rows: np.ndarray, hottest: float) -> np.ndarray:
    """Share of the ids that read so many of the hottest rows."""
    return np.asarray((1 - (hottest + 1.0) ** (1 - ALPHA)) / (1 - (rows + 1.0) ** (1 - ALPHA)))


@cache
def missed_rows(rows: int, draws: int, slots: float | None) -> float:
    """Distinct rows of a batch that a cache lacks; None: an empty cache meets its first COLD_BATCHES batches.

    A row last read k batches ago has left a set of W ways if W other rows of the set were read since, their number
    being Poisson of mean W x distinct rows in k batches / slots.
    """
    if slots is None:
        return distinct_rows(rows, float(COLD_BATCHES * draws)) / COLD_BATCHES
    read = np.array([0.0] + [distinct_rows(rows, float(k * draws)) for k in range(1, BATCHES + 1)])
    gone = np.array([_poisson_tail(WAYS * each / slots) for each in read])
    not_since = np.diff(read)  # of a batch's rows, those that the k batches before did not read
    last_read = np.append(not_since[:-1] - not_since[1:], not_since[-1])
    return float((last_read * gone[1:]).sum())


def _poisson_tail(mean: float) -> float:
    """P(X >= WAYS)."""
    if mean > 20 * WAYS:
        return 1.0
    k = np.arange(WAYS)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, WAYS)))])
    return float(max(0.0, 1 - np.exp(k * np.log(max(mean, 1e-300)) - mean - log_factorial).sum()))


def cases(folder: Path) -> pd.DataFrame:
    """The TBE rows with their counts."""
    rows = measured(folder, "embedding_kernels.csv")
    wanted = (rows.impl == "torchrec_tbe") & rows.source.astype(str).str.contains("recsys") & rows["pass"].isin(_PASSES)
    numbers = ("batch", "num_tables", "rows_per_table", "dim", "time_ms")
    rows = readable(rows[wanted], "tbe_h100", numbers, device=("gpu", "H100"), known={"optimizer": _OPTIMIZERS})
    rows["tier"] = np.where(rows.placement.isin(["hbm", "uvm_caching"]), rows.placement, "uvm")
    per_table = [(int(n), int(batch)) for n, batch in zip(rows.rows_per_table, rows.batch, strict=True)]
    rows["lookups"] = rows.batch * rows.num_tables.astype(float)
    rows["unique"] = [distinct_rows(n, float(batch)) for n, batch in per_table] * rows.num_tables
    rows["missed"] = [
        missed_rows(n, batch, _slots(row)) if row.tier == "uvm_caching" else 0.0
        for (n, batch), row in zip(per_table, rows.itertuples(), strict=True)
    ] * rows.num_tables
    return rows


_PASSES = ("forward", "backward", "train")
_OPTIMIZERS = {"sgd": 0, "adam": 2}
"""Numbers that each keeps for a weight."""


def _slots(row: object) -> float | None:
    """Rows that the cache of a row's run can hold; None where the source does not say."""
    rows, batch = int(row.rows_per_table), int(row.batch)
    if row.cache_ratio == row.cache_ratio:
        return float(row.cache_ratio) * distinct_rows(rows, float(BATCHES * batch))
    return SLOTS_SHARE * rows if "hbm_for_embeddings" in row.note else None


def shipped() -> dict[str, float]:
    """The fitted coefficients as they are."""
    device, software = device_coefficients(DEVICE), software_coefficients(SOFTWARE)
    records = {"device": device, "software": software}
    return {name: getattr(records[kind], name).value for name, kind in FITTED.items()}


def _software(values: dict[str, float]) -> SoftwareCoefficients:
    software = software_coefficients(SOFTWARE)
    changed = {
        name: getattr(software, name).model_copy(update={"value": values[name]})
        for name, kind in FITTED.items()
        if kind == "software"
    }
    return software.model_copy(update=changed)


@dataclass(frozen=True)
class Measured:
    """What predictions take of rows, as arrays [rows]: made once for the many predictions of a fit."""

    reads: terms.Reads
    missed: np.ndarray
    tables: np.ndarray
    rows_per_table: np.ndarray
    tiers: list[np.ndarray]
    """Whether rows are in HBM, behind a cache, read in place."""
    passes: list[np.ndarray]
    """Whether a pass is the forward one, the backward one."""

    @classmethod
    def of(cls, rows: pd.DataFrame) -> "Measured":
        """Those of a table of cases."""
        arrays = rows.optimizer.map(_OPTIMIZERS).to_numpy(float)
        row_bytes = terms.in_sectors(rows.dim.to_numpy(float) * 4, SECTOR_BYTES)
        reads = terms.Reads(
            lookups=rows.lookups.to_numpy(),
            unique=rows.unique.to_numpy(),
            id_bytes=8,
            row_bytes=row_bytes,
            output_bytes=rows.lookups.to_numpy() * rows.dim.to_numpy(float) * 4,
            table_bytes=rows.rows_per_table.to_numpy(float) * row_bytes,
            state_bytes=row_bytes * arrays,
            state_arrays=arrays,
        )
        return cls(
            reads,
            missed=rows.missed.to_numpy(),
            tables=rows.num_tables.to_numpy(),
            rows_per_table=rows.rows_per_table.to_numpy(float),
            tiers=[(rows.tier == tier).to_numpy(bool) for tier in ("hbm", "uvm_caching", "uvm")],
            passes=[(rows["pass"] == name).to_numpy(bool) for name in ("forward", "backward")],
        )


def seconds(measured: Measured, values: dict[str, float]) -> np.ndarray:
    """Predicted seconds of each row."""
    device, software, reads = device_coefficients(DEVICE), _software(values), measured.reads
    rates = LookupRates(
        hbm_bytes_per_s=HBM_BYTES_PER_S * values["lookup_efficiency"],
        l2_bytes_per_s=HBM_BYTES_PER_S * values["lookup_efficiency"] * device.l2_speedup.value,
        l2_reach_bytes=L2_BYTES * device.l2_reach.value,
        pcie_bytes_per_s=PCIE_BYTES_PER_S * device.pcie_efficiency.value,
        sector_bytes=SECTOR_BYTES,
    )
    passes = software.sequence_backward_passes.value
    host = rates.pcie_bytes_per_s
    ids, outputs = terms.stream(reads, rates)
    fetched = terms.fetched_bytes(measured.missed, reads.row_bytes, software) / host
    rewritten = terms.rewritten_rows(reads.unique, software)
    rows_in_place, state_in_place = rewritten * reads.row_bytes / host, rewritten * reads.state_bytes / host
    without_state = replace(reads, state_arrays=0.0)
    sorting = terms.id_sort(reads.lookups, rates, software)
    on_cache = terms.backward(without_state, passes, rates, software) + reads.unique * software.cache_update_s.value
    kept_rows = values["uvm_kept_rows"]
    of_table = reads.lookups / measured.tables
    hottest = hottest_share(measured.rows_per_table, kept_rows)
    kept = terms.kept_reads(hottest, of_table, kept_rows) * measured.tables
    tiers = measured.tiers
    on_device = terms.read_rows(reads, rates)
    forward = (
        ids
        + outputs
        + np.select(
            tiers,
            [
                on_device,
                on_device + software.cache_launch_s.value + terms.cache_search(reads, software) + fetched,
                terms.in_place_rows(reads, software, kept) * reads.row_bytes / host,
            ],
        )
    )
    backward = sorting + np.select(
        tiers,
        [
            terms.backward(reads, passes, rates, software),
            on_cache + state_in_place,
            terms.backward_in_place(reads, passes, rates) + rows_in_place + state_in_place,
        ],
    )
    forward, backward = forward + software.forward_launch_s.value, backward + software.backward_launch_s.value
    return np.select(measured.passes, [forward, backward], forward + backward)


def refit(rows: pd.DataFrame, start: dict[str, float], *, must_be_determined: bool = True) -> Fit:
    """The coefficients from these rows; a training pass is the sum of the other two, so it is left out."""
    rows = rows[rows["pass"] != "train"]
    measured = Measured.of(rows)
    return fit(
        lambda values: seconds(measured, dict(values)),
        start,
        rows.time_ms.to_numpy() * 1e-3,
        must_be_determined=must_be_determined,
    )


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    out = frame([])
    out["label"] = _labels(rows)
    out["group"] = _groups(rows)
    out["measured_s"] = rows.time_ms.to_numpy() * 1e-3
    out["predicted_s"] = seconds(Measured.of(rows), shipped())
    out["low_s"], out["high_s"] = band(out.predicted_s, _residual_90(rows))
    passes = np.select([rows["pass"] == "forward", rows["pass"] == "backward"], [1, 2], 3)
    moved = rows.lookups.to_numpy() * rows.dim.to_numpy() * 4 * passes
    peak = np.where(rows.tier == "hbm", HBM_BYTES_PER_S, PCIE_BYTES_PER_S)
    out["naive_s"] = moved / peak
    out["torchrec_s"] = (2 * moved + rows.lookups.to_numpy() * 8 * passes) / rows.tier.map(TORCHREC).to_numpy()
    out["gated"] = True
    out["alike"] = [
        f"{row.num_tables} x {row.rows_per_table} x {row.dim}, batch {row.batch}, {row.optimizer}, {name}"
        for row, name in zip(rows.itertuples(), rows["pass"], strict=True)
    ]
    return out.set_index(rows.index)


def _residual_90(rows: pd.DataFrame) -> np.ndarray:
    """The error of each row's time by the coefficient that governs it."""
    device, software = device_coefficients(DEVICE), software_coefficients(SOFTWARE)
    governs = {
        "hbm": device.lookup_efficiency,
        "uvm": software.uvm_backward_passes_per_row,
        "uvm_caching": software.cache_fetch_passes,
    }
    case: dict[Quantity, float] = {"row_bytes": float(rows.dim.iloc[0] * 4)} if len(rows) else {}
    return rows.tier.map({tier: error_90(each, DEVICE, case) for tier, each in governs.items()}).to_numpy(float)


def held_out(folder: Path) -> pd.Series:
    """Each configuration of tables and tier predicted from a fit to the others."""
    rows = cases(folder)
    return leave_one_group_out(rows, _groups(rows), _predicted)


def _predicted(others: pd.DataFrame, rows: pd.DataFrame) -> np.ndarray:
    """Seconds of some rows by coefficients that others give."""
    return seconds(Measured.of(rows), refit(others, shipped(), must_be_determined=False).values)


def _labels(rows: pd.DataFrame) -> list[str]:
    return [
        f"{tier} {kind} {optimizer} {tables} x {n} rows, {batch} ids"
        for tier, kind, optimizer, tables, n, batch in zip(
            rows.tier, rows["pass"], rows.optimizer, rows.num_tables, rows.rows_per_table, rows.batch, strict=True
        )
    ]


def _groups(rows: pd.DataFrame) -> list[str]:
    return [
        f"{tier} {tables} x {n}, {batch}"
        for tier, tables, n, batch in zip(rows.tier, rows.num_tables, rows.rows_per_table, rows.batch, strict=True)
    ]


DATA_SET = DataSet(
    name="tbe_h100",
    grouping="tables, tier and batch",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(FITTED),
    note="TorchRec's kernels on an H100: HBM, cached, UVM; SGD and Adam; forward, backward, both",
)
