"""Laws of small products, fitted to what an H100 took: batched ones, attention, layers that no fast kernel takes."""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.one_gpu.models import one_h100
from cost_models.arithmetic import product_rates
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import device_coefficients
from cost_models.dense import product_seconds
from cost_models.shards import Floats

FOLDER = Path(__file__).parent.parent / "data" / "measured_h100"
DEVICE = "H100-SXM5-80GB"
LAUNCHED_S = 4e-6
"""What a kernel takes however little it computes; in no law, as a step's host hides or counts it."""
LARGE_S = 20e-6
"""Products that take longer say little of that."""
FORMATS = {"16 bits": ("bf16", "fp16"), "tf32": ("tf32",), "fp32": ("fp32",)}
"""Formats that have a law together."""
ATTENTION_FORMATS = {"16 bits": ("bf16", "fp16"), "32 bits": ("fp32", "tf32")}
"""The same of attention, which takes as long in tf32 as in fp32."""


def batched(formats: tuple[str, ...]) -> pd.DataFrame:
    """Measured products of each sample in some formats."""
    rows = pd.read_csv(FOLDER / "batched.csv")
    return rows[rows.dtype.isin(formats)].reset_index(drop=True)


def batched_seconds(rows: pd.DataFrame, values: dict[str, float]) -> Floats:
    """Their law."""
    sizes = (rows.m + values["edge"]) * (rows.n + values["edge"]) * (rows.k + values["inner_edge"])
    hbm = one_h100().nodes[0].accelerators.hbm.bandwidth
    return np.asarray(LAUNCHED_S + 2 * rows.batch * sizes / (values["flops_per_byte"] * hbm))


def fitted_batched(rows: pd.DataFrame) -> Fit:
    """FLOPs in the time of a byte of memory, and both edges."""
    start = {"flops_per_byte": 100.0, "edge": 40.0, "inner_edge": 40.0}
    measured = rows.seconds.to_numpy()
    return fit(lambda values: batched_seconds(rows, dict(values)), start, measured, must_be_determined=False)


def attention(formats: tuple[str, ...]) -> pd.DataFrame:
    """Measured attention in some formats: short and long, a row each way."""
    short = pd.read_csv(FOLDER / "short_attention.csv").assign(causal=0)
    rows = pd.concat([pd.read_csv(FOLDER / "attention.csv").assign(dtype="bf16"), short], ignore_index=True)
    rows = rows[rows.dtype.isin(formats)]
    ways = [rows.assign(way=way, seconds=rows[f"{way}_s"]) for way in ("forward", "backward")]
    return pd.concat(ways, ignore_index=True)


def attention_seconds(rows: pd.DataFrame, values: dict[str, float]) -> Floats:
    """Their law; where a token looks at those before it, at half of them on the mean."""
    flops = one_h100().nodes[0].accelerators.flops
    peak = flops.fp32 if {"fp32", "tf32"} & set(rows.dtype) else flops.bf16
    keys = rows.length * np.where(rows.causal == 1, 0.5, 1.0)
    sizes = (rows.length + values["edge"]) * (keys + values["edge"]) * (rows.head_dim + values["inner_edge"])
    share = np.where(rows.way == "forward", values["forward"], values["backward"])
    return np.asarray(LAUNCHED_S + 4 * rows.samples * rows.heads * sizes / (share * float(peak or 0)))


def fitted_attention(rows: pd.DataFrame) -> Fit:
    """Shares of the peak forward and, of the FLOPs forward, backward; edges of tokens and of their numbers."""
    start = {"forward": 0.8, "backward": 0.3, "edge": 100.0, "inner_edge": 70.0}
    measured = rows.seconds.to_numpy()
    return fit(lambda values: attention_seconds(rows, dict(values)), start, measured, must_be_determined=False)


def unaligned() -> pd.DataFrame:
    """Products of layers with an odd number of columns, of 20 us and more, and how many times longer they take than the
    law of aligned ones says."""
    rows = pd.read_csv(FOLDER / "layer_products.csv")
    is_odd = (rows.inputs % 2 == 1) | (rows.outputs % 2 == 1)
    rows = rows[is_odd & (rows.inputs > 13) & (rows.outputs > 1) & (rows.seconds >= LARGE_S)].reset_index(drop=True)
    group, device = one_h100().nodes[0], device_coefficients(DEVICE)
    rates = {dtype: product_rates(group, dtype, device) for dtype in set(rows.dtype)}
    sizes = {
        "forward": lambda row: (row.batch, row.outputs, row.inputs),
        "gradient of inputs": lambda row: (row.batch, row.inputs, row.outputs),
        "gradient of weights": lambda row: (row.inputs, row.outputs, row.batch),
    }
    expected = [product_seconds(rates[row.dtype], *sizes[row.product](row)) for row in rows.itertuples()]
    return rows.assign(times=rows.seconds / expected)


def off(predicted: Floats, measured: Floats) -> Floats:
    """Relative errors, as far above as below."""
    return np.asarray(np.expm1(np.abs(np.log(predicted / measured))))
