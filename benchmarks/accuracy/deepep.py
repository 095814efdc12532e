"""All-to-alls of expert-parallel kernels among 2 to 8 nodes of 8 H100: DeepEP, over the same cards as NCCL's.

A token goes once to each other node that holds one of its experts, through the card of its rank: `dispatch` in one
byte per element, `combine` in two. Experts are drawn evenly, within the 4 nodes that a token may use at most. The rate
of a card is that fitted to MLPerf's runs; only the fixed time of a kernel is of this data. Rows with 24 SMs, which are
enough for the card.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.readable import measured, readable
from benchmarks.accuracy.rows import DataSet, frame, leave_one_group_out, refitted
from cost_models.between_domains import all_to_all_rate
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import harness_coefficients, link_coefficients
from cost_models.error_bars import band

HARNESS, LINK, CARD_BYTES_PER_S = "deepep", "infiniband", 50e9
FITTED = ("dispatch_launch_s", "combine_launch_s")
ELEMENT_BYTES = {"dispatch": 1, "combine": 2}
NODES_OF_A_TOKEN, SMS = 4, 24
NAIVE_LATENCY_S = 10e-6
TORCHREC_BYTES_PER_S = 12.5 * 2**30
"""TorchRec 1.8.0, constants.py: across nodes."""
GATED_NODES = 4
"""Among 8 nodes kernels take up to three times what their bytes need, some from 16 tokens on, some from 16,384, which
nothing in the data explains."""


def cases(folder: Path) -> pd.DataFrame:
    """One row per kernel, number of nodes and tokens."""
    rows = measured(folder, "deepep_alltoall_internode.csv")
    counts = rows[["node_num", "dispatch_sms"]].apply(pd.to_numeric, errors="coerce")
    rows = rows[(counts.node_num > 1) & rows.kind.astype(str).str.contains("normal") & (counts.dispatch_sms == SMS)]
    numbers = (
        "node_num",
        "num_token",
        "hidden_size",
        "num_topk",
        *(f"{kernel}_transmit_us" for kernel in ELEMENT_BYTES),
    )
    rows = readable(rows, "deepep", numbers, device=("device", "H100"))
    parts = [
        rows.assign(kernel=kernel, element_bytes=size, seconds=rows[f"{kernel}_transmit_us"] * 1e-6)
        for kernel, size in ELEMENT_BYTES.items()
    ]
    found = pd.concat(parts, ignore_index=True)
    reached = np.minimum(found.node_num, NODES_OF_A_TOKEN)
    others = reached * (1 - (1 - 1 / reached) ** found.num_topk) * (1 - 1 / found.node_num)
    found["card_bytes"] = found.num_token * others * found.hidden_size * found.element_bytes
    return found


def shipped() -> dict[str, float]:
    """The fitted coefficients as they are."""
    return {name: harness_coefficients(HARNESS)[name] for name in FITTED}


def seconds(rows: pd.DataFrame, values: dict[str, float]) -> np.ndarray:
    """Predicted seconds of each row."""
    link = link_coefficients(LINK, "default-scale-out")
    rate = np.array([all_to_all_rate(link, CARD_BYTES_PER_S, nodes - 1) for nodes in rows.node_num])
    launch = rows.kernel.map({kernel: values[f"{kernel}_launch_s"] for kernel in ELEMENT_BYTES}).to_numpy(float)
    return launch + rows.card_bytes.to_numpy() / rate


def refit(rows: pd.DataFrame, start: dict[str, float], *, must_be_determined: bool = True) -> Fit:
    """The coefficients from the rows that a target holds for."""
    rows = rows[rows.node_num <= GATED_NODES]
    measured = rows.seconds.to_numpy()
    return fit(lambda values: seconds(rows, dict(values)), start, measured, must_be_determined=must_be_determined)


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    out = frame([])
    out["label"] = [f"{row.kernel} {row.node_num} nodes {row.num_token} tokens" for row in rows.itertuples()]
    out["group"] = _groups(rows)
    out["measured_s"], out["predicted_s"] = rows.seconds.to_numpy(), seconds(rows, shipped())
    out["low_s"], out["high_s"] = band(out.predicted_s, harness_coefficients(HARNESS)["band_90"])
    out["naive_s"] = NAIVE_LATENCY_S + rows.card_bytes / CARD_BYTES_PER_S
    out["torchrec_s"] = rows.card_bytes / TORCHREC_BYTES_PER_S
    out["gated"] = (rows.node_num <= GATED_NODES).to_numpy()
    return out.set_index(rows.index)


def held_out(folder: Path) -> pd.Series:
    """Each number of nodes predicted from a fit to the others."""
    rows = cases(folder)
    return leave_one_group_out(rows, _groups(rows), refitted(refit, shipped, seconds))


def _groups(rows: pd.DataFrame) -> list[str]:
    return [f"{nodes} nodes" for nodes in rows.node_num]


DATA_SET = DataSet(
    name="deepep",
    grouping="number of nodes",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(FITTED),
    note="expert-parallel all-to-alls among 2 and 4 nodes of H100, by the card's rate from MLPerf; those among 8 nodes,"
    " in the rows only, take up to three times what their bytes need, unexplained",
)
