"""A seeded generator of realistic table sets: `synthetic:1000@seed=7`.

What is imitated, and from where:

* rows: log-uniform from 10^2 to 10^8, one table per quantile (in random order), so that the total grows
  with the count and hardly varies with the seed. Published sets spread over that range on a log scale:
  Criteo's from 3 to 4·10^7, NVIDIA's and HugeCTR's benchmark sets from 10 to 5·10^9. (The 856 sizes of
  Meta's 2021 set are hashed: half of them stand at a cap of 6·10^6, which today's tables exceed.)
* dim: 16 to 256, 85 on average; Neo's models (arXiv:2104.05158) average 92 and 93 over 4 to 384.
* pooling factor: log-normal around a mean of 15.8, the mean over Meta's 2021 set (dlrm_datasets: 13,535
  lookups over 856 tables); never below 1.
* access: a power law with an exponent from 0.6 to 1.3, around the 1.05 and 1.1 of NVIDIA's benchmarks.
* tables in fp32 with row-wise Adagrad; pooled vectors and gradients in fp16 on the wire; 512 samples per rank
  (Neo's model A); a dense part of 20 million multiply-accumulates per sample.

1,000 tables take 2.5 TB with their optimizer state, half of the HBM of 128 A100-40GB; 10,000 take 25 TB.
"""

import math
import re
from statistics import NormalDist
from typing import Any

import numpy as np

from cost_models.elementary import exp, power
from topologies.documents import did_you_mean
from topologies.errors import InputError

PREFIX = "synthetic"
KNOBS = {"seed": False, "dim": False, "pooling": True, "zipf_alpha": True, "batch_per_rank": False}
"""What may follow the @ → whether it may be a fraction."""
MOST_TABLES = 100_000
ROWS_LOG10 = (2.0, 8.0)
DIMS = {16: 0.10, 32: 0.20, 64: 0.30, 96: 0.10, 128: 0.20, 192: 0.05, 256: 0.05}
"""Dimension → share of the tables."""
MEAN_POOLING = 15.8
POOLING_SIGMA = 1.0
"""The standard deviation of the logarithm."""
POOLING_MOST = 500.0
ZIPF_ALPHA = (0.6, 1.3)
STEEPEST = 10.0
"""The most that a table profile may have."""
BATCH_PER_RANK = 512
DENSE_MACS = 20_000_000


def synthetic_workload(text: str) -> dict[str, Any]:
    """The plain data of the workload `synthetic:COUNT[@knob=value,…]`.

    Knobs: `seed` (0), `dim` (one for all tables), `pooling` (mean ids per sample and table), `zipf_alpha`
    (one for all tables), `batch_per_rank`. The same text always gives the same tables. Raises InputError.
    """
    count, knobs = _parse(text)
    dense = {"macs_per_sample": DENSE_MACS, "parameters": DENSE_MACS, "dtype": "tf32"}
    return {
        "name": text,
        "description": f"{count} generated tables, seed {knobs.get('seed', 0)}",
        "batch_per_rank": knobs.get("batch_per_rank", BATCH_PER_RANK),
        "tables": _tables(count, knobs),
        "embedding": {"dtype": "fp32", "optimizer": "rowwise_adagrad"},
        "communication": {"forward": "fp16", "backward": "fp16"},
        "dense": dense,
    }


def _parse(text: str) -> tuple[int, dict[str, Any]]:
    example = "write for example synthetic:1000 or synthetic:1000@seed=7"
    head, _, tail = text.removeprefix(f"{PREFIX}:").partition("@")
    if not re.fullmatch(r"\d{1,18}", head) or not 1 <= int(head) <= MOST_TABLES:
        raise InputError.at(text, f"needs a count of tables from 1 to {MOST_TABLES}; {example}")
    knobs: dict[str, Any] = {}
    for part in filter(None, tail.split(",")):
        key, _, value = part.partition("=")
        if key not in KNOBS:
            raise InputError.at(text, f"unknown knob {key!r}{did_you_mean(key, KNOBS)}")
        form = r"\d{1,18}(\.\d+)?" if KNOBS[key] else r"\d{1,18}"
        if not re.fullmatch(form, value):
            raise InputError.at(text, f"{key} needs a {'' if KNOBS[key] else 'whole '}number, not {value!r}")
        knobs[key] = float(value) if KNOBS[key] else int(value)
    if knobs.get("pooling") == 0:
        raise InputError.at(text, "pooling must be above 0")
    if knobs.get("dim", 4) % 4 or knobs.get("dim") == 0:
        raise InputError.at(text, "dim must be a multiple of 4")
    if knobs.get("zipf_alpha", 0) > STEEPEST:
        raise InputError.at(text, f"zipf_alpha must be at most {STEEPEST:g}")
    return int(head), knobs


def _tables(count: int, knobs: dict[str, Any]) -> list[dict[str, Any]]:
    """Only uniform draws are taken from the generator: their stream is the same in every version of numpy."""
    random = np.random.Generator(np.random.PCG64(knobs.get("seed", 0)))
    quantile = (np.argsort(random.random(count), kind="stable") + random.random(count)) / count
    low, high = ROWS_LOG10
    rows = power(10.0, low + (high - low) * quantile)
    dims = np.array(list(DIMS))[np.searchsorted(np.cumsum(list(DIMS.values()))[:-1], random.random(count))]
    mean = knobs.get("pooling", MEAN_POOLING)
    normal = NormalDist(math.log(mean) - POOLING_SIGMA**2 / 2, POOLING_SIGMA)
    draws = [normal.inv_cdf(share) for share in np.clip(random.random(count), 1e-12, 1 - 1e-12)]
    pooling = exp(np.clip(draws, min(0.0, math.log(mean)), math.log(POOLING_MOST)))
    low, high = ZIPF_ALPHA
    alpha = low + (high - low) * random.random(count)
    digits = len(str(count - 1))
    return [
        {
            "name": f"t{index:0{digits}}",
            "rows": int(float(f"{rows[index]:.4g}")),
            "dim": knobs.get("dim", int(dims[index])),
            "pooling_factor": round(float(pooling[index]), 2),
            "zipf_alpha": knobs.get("zipf_alpha", round(float(alpha[index]), 3)),
        }
        for index in range(count)
    ]
