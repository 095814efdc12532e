"""Published all-to-all and all-reduce bus bandwidth of 8 to 512 A100 over RoCE: the facts of DMT's figure 5."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.rows import DataSet, frame, leave_one_group_out
from cost_models.between_domains import between_domains
from cost_models.calibration.robust import fit
from cost_models.coefficients import CollectiveOperation, LinkCoefficients, link_coefficients, software_coefficients
from cost_models.collective_laws import collective_law, wire_bytes
from cost_models.error_bars import band, error_90
from cost_models.groups import RankGroup

DEVICE, UP, UP_BYTES_PER_S, OUT, CARD_BYTES_PER_S, DOMAIN = "A100-SXM4-40GB", "nvlink3", 300e9, "roce", 25e9, 8
METRICS: dict[str, tuple[CollectiveOperation, float]] = {
    "alltoall_busbw_GBps_A100": ("all_to_all", 256e6),
    "allreduce_busbw_GBps_A100": ("all_reduce", 64e6),
}
"""Name of the fact: operation and buffer bytes (the conditions of the figure)."""
FITTED = ("all_to_all_efficiency", "all_to_all_loss_per_doubling", "all_reduce_growth")
NAIVE_LATENCY_S = 10e-6
TORCHREC_BYTES_PER_S = (600 * 2**30, 12.5 * 2**30)
"""TorchRec 1.8.0, constants.py: inside a node, across nodes."""


def cases(folder: Path) -> pd.DataFrame:
    """One row per operation and number of GPUs."""
    facts = json.loads((folder / "published.json").read_text())["facts"]
    rows = [
        {"operation": operation, "buffer": size, "ranks": int(ranks), "bus": float(rate) * 1e9}
        for fact in facts
        if fact["metric"] in METRICS and isinstance(fact["value"], dict)
        for operation, size in [METRICS[fact["metric"]]]
        for ranks, rate in fact["value"].items()
    ]
    out = pd.DataFrame(rows, columns=["operation", "buffer", "ranks", "bus"])
    wire = [float(wire_bytes(row.operation, row.buffer, row.ranks)) for row in out.itertuples()]
    out["measured_s"] = np.array(wire) / out.bus
    return out


def shipped() -> dict[str, float]:
    """The fitted coefficients as they are."""
    link = link_coefficients(OUT, "default-scale-out")
    return {name: getattr(link, name).value for name in FITTED}


def seconds(rows: pd.DataFrame, values: dict[str, float]) -> np.ndarray:
    """Predicted seconds: inside one node its law; across nodes the busier of the port and the card."""
    link = link_coefficients(OUT, "default-scale-out")
    link = link.model_copy(
        update={name: getattr(link, name).model_copy(update={"value": values[name]}) for name in FITTED}
    )
    return np.array([_one(row.operation, row.buffer, row.ranks, link) for row in rows.itertuples()])


def _one(operation: CollectiveOperation, buffer: float, ranks: int, link: LinkCoefficients) -> float:
    domain = min(ranks, DOMAIN)
    law = collective_law(operation, DEVICE, UP, UP_BYTES_PER_S, domain)
    assert law is not None
    passes = 2 if operation == "all_reduce" else 1
    inside_share = (domain - 1) / domain if operation == "all_reduce" else (domain - 1) / ranks
    inside = float(law.seconds(passes * buffer * inside_share))
    if ranks == domain:
        return inside
    domains, latency = ranks / domain, software_coefficients("torchrec").collective_latency_s.value
    world = RankGroup(domain, domain, ranks)
    first, rate = law.line_at(passes * buffer * inside_share)
    card = between_domains(link, CARD_BYTES_PER_S, world, rate, in_phases=False, in_network=False)
    if operation == "all_to_all":
        across = buffer * (1 - 1 / domains) / card.all_to_all_bytes_per_s + card.exchange_s
    else:
        latency = max(latency, first)
        across = 2 * buffer * (1 - 1 / domains) / domain / card.all_reduce_bytes_per_s + card.reduction_s
    return max(inside, across + latency)


def _residual_90(operation: CollectiveOperation, ranks: int) -> float:
    if ranks <= DOMAIN:
        law = collective_law(operation, DEVICE, UP, UP_BYTES_PER_S, ranks)
        assert law is not None
        return law.error_90()
    link = link_coefficients(OUT, "default-scale-out")
    governs = link.all_reduce_growth if operation == "all_reduce" else link.all_to_all_efficiency
    assert governs is not None
    return error_90(governs, DEVICE, {"scale_up_domains": ranks / DOMAIN})


def refit(rows: pd.DataFrame, start: dict[str, float], *, must_be_determined: bool = True):
    """The coefficients from the rows beyond one node."""
    rows = rows[rows.ranks > DOMAIN]
    measured = rows.measured_s.to_numpy()
    return fit(lambda values: seconds(rows, dict(values)), start, measured, must_be_determined=must_be_determined)


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    out = frame([])
    out["label"] = [f"{row.operation} {row.ranks} A100" for row in rows.itertuples()]
    out["group"] = [f"{ranks} GPUs" for ranks in rows.ranks]
    out["measured_s"], out["predicted_s"] = rows.measured_s, seconds(rows, shipped())
    out["low_s"], out["high_s"] = band(
        out.predicted_s, [_residual_90(row.operation, row.ranks) for row in rows.itertuples()]
    )
    across = rows.ranks > DOMAIN
    wire = rows.measured_s * rows.bus
    domains = rows.ranks / DOMAIN
    passes = np.where(rows.operation == "all_reduce", 2 / DOMAIN, 1)
    out["naive_s"] = NAIVE_LATENCY_S + np.where(
        across, rows.buffer * passes * (1 - 1 / domains) / CARD_BYTES_PER_S, wire / UP_BYTES_PER_S
    )
    out["torchrec_s"] = rows.buffer / np.where(across, TORCHREC_BYTES_PER_S[1], TORCHREC_BYTES_PER_S[0])
    out["gated"] = True
    out["alike"] = rows.operation
    return out


def held_out(folder: Path) -> pd.Series:
    """Each number of GPUs predicted from a fit to the others."""
    rows = cases(folder)
    return leave_one_group_out(rows, rows.ranks, _predicted)


def _predicted(others: pd.DataFrame, rows: pd.DataFrame) -> np.ndarray:
    """Seconds of some rows by coefficients that others give."""
    return seconds(rows, refit(others, shipped(), must_be_determined=False).values)


DATA_SET = DataSet(
    name="bus_bandwidth",
    grouping="number of GPUs",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(FITTED),
    note="all-to-all and all-reduce of A100 over RoCE, NCCL 2.18: among nodes within 5 %. In one node the law is that "
    "of `nccl`'s rows on such accelerators, NCCL 2.27: 196 GB/s in an all-to-all of 268 MB, where this figure has 155 "
    "in one of 256 MB; nothing is within 10 % of both",
)
