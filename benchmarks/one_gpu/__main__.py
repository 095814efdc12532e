"""`python -m benchmarks.one_gpu`: what an H100 took, beside what the cost model says; and laws of products, fitted.

Predictions are those of the shipped coefficients. The rows were measured by `measure.py`.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from benchmarks.one_gpu import laws
from benchmarks.one_gpu.laws import DEVICE, FOLDER, LARGE_S, off
from benchmarks.one_gpu.models import device_seconds, one_h100, workload
from cost_models.arithmetic import product_rates
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import device_coefficients, optimizer_coefficients, software_coefficients
from cost_models.dense import product_seconds
from cost_models.shampoo import root_seconds

ON_UNITS = ("bf16", "fp16", "tf32", "fp8")


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
    names = ("passes", "other_passes", "passes_in_bf16", "mixed_passes", "compiled_passes")
    rows = pd.concat([pd.read_csv(FOLDER / f"{name}.csv") for name in names], ignore_index=True)
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


def left_out() -> pd.DataFrame:
    """Errors of the laws of small products on what their fits had not seen: each of two formats by the other one, dots
    of 27 vectors by others, a number of numbers a head, and short or long histories."""
    found = []

    def add(law: str, name: str, part: pd.DataFrame, rows: pd.DataFrame, seconds: Callable[..., np.ndarray]) -> None:
        fitted = laws.fitted_batched if law == "batched" else laws.fitted_attention
        errors = off(seconds(part, dict(fitted(rows.drop(part.index)).values)), part.seconds.to_numpy())
        found.append((law, name, len(part), np.median(errors), np.quantile(errors, 0.9)))

    for name, formats in laws.FORMATS.items():
        rows = laws.batched(formats)
        parts = {f"{name}, {each}": rows[rows.dtype == each] for each in formats if len(formats) > 1}
        parts |= {f"{name}, 27 vectors": rows[rows.m == 27], f"{name}, 64 rows": rows[rows.m == 64]}
        for of, part in parts.items():
            add("batched", of, part, rows, laws.batched_seconds)
    for name, formats in laws.ATTENTION_FORMATS.items():
        rows = laws.attention(formats)
        parts = {f"{name}, {each}": rows[rows.dtype == each] for each in formats}
        parts |= {f"{name}, {size} numbers a head": rows[rows.head_dim == size] for size in (32, 64, 128)}
        parts |= {f"{name}, up to 40 tokens": rows[rows.length <= 40]}
        for of, part in parts.items():
            add("attention", of, part, rows, laws.attention_seconds)
    return pd.DataFrame(found, columns=["law", "left out", "rows", "median", "nine in ten"])


def _small_products() -> None:
    print("\nbatched products and attention: rates, edges; errors, and those on what was left out")
    for name, formats in laws.FORMATS.items():
        rows = laws.batched(formats)
        _told(name, fit := laws.fitted_batched(rows), laws.batched_seconds(rows, dict(fit.values)), rows)
    for name, formats in laws.ATTENTION_FORMATS.items():
        rows = laws.attention(formats)
        _told(name, fit := laws.fitted_attention(rows), laws.attention_seconds(rows, dict(fit.values)), rows)
    print(left_out().round(3).to_string(index=False))
    print("\nodd numbers of columns: times that products of layers take longer")
    print(laws.unaligned().groupby("dtype").times.describe()[["count", "25%", "50%", "75%"]].round(2).to_string())


def _told(name: str, fit: Fit, predicted: np.ndarray, rows: pd.DataFrame) -> None:
    errors = off(predicted, rows.seconds.to_numpy())
    values = ", ".join(f"{key} {value:.4g} ± {fit.uncertainty[key]:.0%}" for key, value in fit.values.items())
    print(f"  {name}: {values}; median {np.median(errors):.1%}, nine in ten {np.quantile(errors, 0.9):.0%}")


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
    _small_products()
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
