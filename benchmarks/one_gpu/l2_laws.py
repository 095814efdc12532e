"""`python -m benchmarks.one_gpu.l2_laws`: laws of the share of reads that an L2 cache serves, beside measured ones.

Each law gives that share; launch, rows, vectors, the rate of device memory and of the cache are fitted for each law
alike. FBGEMM's forward passes on an H100 (uniform ids and row-wise Adagrad of half of the cases; bags of at most 320
ids), then judged by what was not fitted, and by the cases in which laws differ by more than a fifth; and the sweep over
widths of TorchRec's pull request 2365, each width left out in turn.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from benchmarks.accuracy import dim_sweep
from benchmarks.accuracy.__main__ import FACTS
from benchmarks.one_gpu.laws import FOLDER
from benchmarks.one_gpu.torchrec_report import LONGEST
from cost_models.access import AccessCurves
from cost_models.shards import Floats
from cost_models.workload.table_profile import TableProfile

H100_L2_BYTES = 50 * 2**20
Law = Callable[["Reads"], Floats]


class Reads:
    """Lookups of `tables` alike, one case a row: `ids` of each table, of rows of `row_bytes` in whole sectors."""

    def __init__(self, cases: pd.DataFrame, l2_bytes: float) -> None:
        self.tables, self.rows, self.row_bytes, self.ids = (
            cases[name].to_numpy(float) for name in ("tables", "rows", "row_bytes", "ids")
        )
        profiles = [
            TableProfile(name="t", rows=rows, dim=4, pooling_factor=1, zipf_alpha=alpha)
            for rows, alpha in zip(cases.rows, cases.alpha, strict=True)
        ]
        self._access, self._every = AccessCurves.from_tables(profiles, 1.0), np.arange(len(cases))
        self.unique = self._access.unique_rows(self._every, self.ids)
        self.l2_bytes, self.table_bytes = l2_bytes, self.rows * self.row_bytes

    def held(self, tables: Floats | float) -> Floats:
        """Share that a cache serves which so many tables share, and which is empty at first."""
        fraction = self.l2_bytes / tables / self.table_bytes
        return 1 - self._access.read_from_memory(self._every, fraction, self.ids) / self.ids

    def by_size(self, size: Floats, reach: float) -> Floats:
        """The share by size, whose reach is so many times the cache."""
        return np.asarray(1 / np.sqrt(1 + (size / self.l2_bytes / reach) ** 2))


LAWS: dict[str, Law] = {
    "table, reach 3.741": lambda reads: reads.by_size(reads.table_bytes, 3.741),
    "table, reach 0.9353": lambda reads: reads.by_size(reads.table_bytes, 0.9353),
    "all tables, reach 3.741": lambda reads: reads.by_size(reads.tables * reads.table_bytes, 3.741),
    "all tables, reach 0.9353": lambda reads: reads.by_size(reads.tables * reads.table_bytes, 0.9353),
    "table, 0.9353, read again": lambda reads: (
        reads.by_size(reads.table_bytes, 0.9353) * (1 - reads.unique / reads.ids)
    ),
    "all that is read again": lambda reads: 1 - reads.unique / reads.ids,
    "held, tables side by side": lambda reads: reads.held(reads.tables),
    "held, table after table": lambda reads: reads.held(1.0),
}


def on_h100() -> tuple[pd.DataFrame, Floats, Floats]:
    """(cases, seconds, whether fitted to)."""
    rows = pd.read_csv(FOLDER / "tbe.csv")
    rows = rows[((rows.run == 1) | (rows.what == "drawn")) & (rows.pooling <= LONGEST)].reset_index(drop=True)
    half = (rows.what != "drawn") | (rows.groupby("what").cumcount() % 2 == 0)
    fitted = half & (rows.alpha == 0) & (rows.optimizer == "rowwise_adagrad")
    rows["tables"] *= rows.blocks
    rows["width"] = rows.dim // rows.blocks
    rows["row_bytes"] = np.ceil(rows.width * rows.dtype.map({"fp32": 4, "fp16": 2}) / 32) * 32
    rows["ids"] /= rows.tables
    rows["vectors"] = rows.tables * rows.batch
    return rows, rows.forward_s.to_numpy(), fitted.to_numpy(float)


def of_the_sweep() -> tuple[pd.DataFrame, Floats]:
    """(cases, seconds)."""
    rows = dim_sweep.cases(FACTS)
    rows = rows[rows.gated]
    cases = pd.DataFrame({"tables": rows.num_tables, "rows": rows.rows_per_table, "alpha": 0.0, "width": rows.dim})
    cases["row_bytes"] = np.ceil(rows.dim * 4 / 32) * 32
    cases["ids"] = rows.batch * rows.pooling.astype(float) / rows.num_tables
    return cases.assign(vectors=0.0, batch=rows.batch / rows.num_tables), rows.time_ms.to_numpy() * 1e-3


def predicted(cases: pd.DataFrame, seconds: Floats, share: Floats, fitted: Floats) -> Floats:
    """Seconds of all cases by non-negative prices of a launch, rows, vectors, bytes of memory and of the cache."""
    ids = (cases.ids * cases.tables).to_numpy()
    read, written = ids * cases.row_bytes, cases.batch * cases.tables * cases.width * 4
    parts = np.stack([np.ones(len(ids)), ids, cases.vectors, 8 * ids + written + read * (1 - share), read * share])
    some = fitted.astype(bool)
    scale = np.maximum((parts / seconds)[:, some].max(axis=1, keepdims=True), 1e-300)
    prices, _ = nnls((parts / seconds / scale)[:, some].T, np.ones(some.sum()))
    return np.asarray((prices / scale[:, 0]) @ parts)


def main() -> None:
    """Print both comparisons."""
    cases, seconds, fitted = on_h100()
    reads = Reads(cases, H100_L2_BYTES)
    times = {name: predicted(cases, seconds, law(reads), fitted) for name, law in LAWS.items()}
    spread = np.log([times[name] for name in LAWS])
    tells, skewed = np.ptp(spread, axis=0) > np.log(1.2), cases.alpha.to_numpy() > 0
    last, other = times["held, table after table"], times["all that is read again"]
    judged = {
        "not fitted to": fitted == 0,
        "laws differ": tells,
        "of these, uniform": tells & ~skewed,
        "skewed": skewed,
        "held or not": np.abs(np.log(last / other)) > np.log(1.1),
    }
    table = pd.DataFrame(
        {
            f"{group} ({some.sum()})": {
                name: f"{np.median(each[some]):.1%}, {np.quantile(each[some], 0.9):.0%}"
                for name, found in times.items()
                for each in [np.abs(found / seconds - 1)]
            }
            for group, some in judged.items()
        }
    )
    print(f"H100: median error, nine in ten\n{table.to_string()}")
    cases, seconds = of_the_sweep()
    reads = Reads(cases, dim_sweep.L2_BYTES)
    print("sweep: mean error, worst, each width left out")
    for name, law in LAWS.items():
        share, every = law(reads), np.arange(len(cases))
        found = [predicted(cases, seconds, share, (every != left).astype(float))[left] for left in every]
        errors = np.abs(np.array(found) / seconds - 1)
        print(f"  {name:<28}{errors.mean():6.1%} {errors.max():6.0%}")


if __name__ == "__main__":
    main()
