"""`python -m benchmarks.one_gpu`: what an H100 took, beside what the cost model says; and the law of products, fitted.

Predictions are those of the shipped coefficients. The rows were measured by `measure.py`.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.one_gpu.models import device_seconds, one_h100, workload
from cost_models.arithmetic import product_rates
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import device_coefficients, optimizer_coefficients, software_coefficients
from cost_models.dense import product_seconds
from cost_models.shampoo import root_seconds

FOLDER = Path(__file__).parent.parent / "data" / "measured_h100"
DEVICE = "H100-SXM5-80GB"
ON_UNITS = ("bf16", "fp16", "tf32", "fp8")
LARGE_S = 20e-6
"""Products that take longer say little of what a kernel costs however small it is."""


def products() -> pd.DataFrame:
    """Measured products with what is predicted of each."""
    rows = pd.read_csv(FOLDER / "products.csv")
    group, device = one_h100().nodes[0], device_coefficients(DEVICE)
    rates = {dtype: product_rates(group, dtype, device) for dtype in set(rows.dtype)}
    rows["predicted_s"] = [product_seconds(rates[row.dtype], row.m, row.n, row.k) for row in rows.itertuples()]
    return rows


def fitted_products(dtype: str) -> Fit:
    """The share of the peak, both edges and what a kernel costs of the products in a format."""
    rows = pd.read_csv(FOLDER / "products.csv")
    rows = rows[rows.dtype == dtype]
    peak = float(getattr(one_h100().nodes[0].accelerators.flops, dtype))

    def predict(values: dict[str, float]) -> np.ndarray:
        sizes = (rows.m + values["edge"]) * (rows.n + values["edge"]) * (rows.k + values["inner_edge"])
        return np.asarray(values["kernel_s"] + 2 * sizes / (peak * values["share"]))

    start = {"share": 0.6, "edge": 40.0, "inner_edge": 40.0, "kernel_s": 3e-6}
    return fit(lambda values: predict(dict(values)), start, rows.seconds.to_numpy(), must_be_determined=False)


def passes() -> pd.DataFrame:
    """Measured dense parts with what is predicted of the device, from batches of 2,048 on."""
    names = ("passes.csv", "other_passes.csv", "passes_in_bf16.csv")
    rows = pd.concat([pd.read_csv(FOLDER / name) for name in names], ignore_index=True)
    rows, topology = rows[rows.batch >= 2048].reset_index(drop=True), one_h100()
    rows["predicted_s"] = [
        device_seconds(
            topology,
            workload(
                row.model, row.dtype.split()[0], row.batch, row.optimizer, row.mode, checkpointed=bool(row.checkpointed)
            ),
        )
        for row in rows.itertuples()
    ]
    return rows


def roots() -> pd.DataFrame:
    """Inverse roots by eigenvalues, with what is predicted of each."""
    rows = pd.read_csv(FOLDER / "roots.csv")
    rows, own = rows[rows.method == "eigh"].reset_index(drop=True), optimizer_coefficients("shampoo")
    rate = product_rates(one_h100().nodes[0], "fp32", device_coefficients(DEVICE))
    of_cube_s = own.root_flops.value / min(each.flops_per_s for each in rate)
    rows["predicted_s"] = [root_seconds((size,), own.root_column_s.value, of_cube_s) for size in rows.n]
    return rows


def sorts() -> pd.DataFrame:
    """Ids sorted and runs found, from a million on, with what is predicted of the bytes of an id."""
    rows = pd.read_csv(FOLDER / "sorts.csv")
    rows = rows[rows.ids >= 2**20].reset_index(drop=True)
    per_id = software_coefficients("torchrec").id_sort_bytes
    assert per_id is not None
    rows["seconds"] = rows.sort_s + rows.runs_s
    rows["predicted_s"] = rows.ids * per_id.value / one_h100().nodes[0].accelerators.hbm.bandwidth
    return rows


def _shown(title: str, rows: pd.DataFrame, by: list[str]) -> None:
    rows = rows.assign(ratio=rows.predicted_s / rows.seconds)
    rows["off"] = np.exp(np.abs(np.log(rows.ratio))) - 1
    table = rows.groupby(by).agg(rows=("ratio", "size"), ratio=("ratio", "median"), off=("off", "median"))
    print(f"\n{title}\n{table.round(3).to_string()}")


def main() -> None:
    print("products: share of the peak, edges, seconds of a kernel; errors")
    for dtype in ON_UNITS:
        found = fitted_products(dtype)
        off = np.abs(found.relative_errors)
        values = ", ".join(
            f"{name} {value:.4g} ± {found.uncertainty[name]:.0%}" for name, value in found.values.items()
        )
        print(f"  {dtype}: {values}; median {np.median(off):.1%}, nine in ten {np.quantile(off, 0.9):.0%}")
    rows = products()
    _shown("products of 20 us and more", rows[rows.seconds >= LARGE_S], ["dtype"])
    seen = passes()
    of_device = seen[seen["mode"] == "graph"]
    _shown("dense parts on the device (captured)", of_device, ["dtype", "model"])
    _shown("the same by batch", of_device, ["model", "dtype", "batch"])
    eager = seen[(seen["mode"] == "eager") & (seen.checkpointed == 0)].assign(
        predicted_s=lambda frame: np.maximum(frame.host_s, frame.predicted_s)
    )
    _shown("eager: the larger of the measured host and the predicted device", eager, ["dtype", "model"])
    _shown("inverse roots", roots(), ["n"])
    _shown("ids sorted", sorts(), ["row_bits"])


if __name__ == "__main__":
    main()
