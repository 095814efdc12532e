"""NeuroShard's protocol: random sharding tasks on 4 and 8 GPUs, for our planner, its baselines and its own search.

    python -m benchmarks.neuroshard [--tasks 100] [--devices 4,8] [--max-dims 4,8,…,128] [--seed N] [--json] [--check]

Taken from Zha et al., "Pre-train and Search" (MLSys 2023, arXiv:2305.01868) and its code (github.com/daochenzha/
neuroshard, tools/gen_tasks.py, eval.py): 100 tasks for each number of GPUs and largest dimension; a task draws 10 to 59
tables for 4 GPUs, 20 to 119 for 8, from the 856 of Meta's 2021 set, with repetition, none below 100 rows; each gets a
dimension of 4, 8, … up to the largest; the draw is repeated until its fp32 weights take at most 15 GiB (31 GiB for 8),
of 4 GiB on each GPU; SGD; a global batch of 65,536; whole tables and column-wise splits in HBM. A plan that overflows
a GPU fails.

What differs, because Meta's batches are not at hand or nothing is run here:

* Pooling factors of single tables are not known. They are drawn log-normally (sigma 1, as in the generator of synthetic
  workloads) and scaled to the mean of the set, 15.8 ids per sample and table; a table that is empty in the set has 0.01.
* Access follows a power law with the exponent 1.05, under which the set's share of distinct ids comes out (0.145).
* The cost is that of the `physical` cost model on GPUs of a DGX A100 instead of a measurement on RTX 2080 Ti: the stages
  of the embeddings alone, without the dense part, latencies and the overhead of a step, which no plan changes. The
  step is the sum of the slowest ranks of all stages, NeuroShard's the slowest rank's sum.
* Memory counts weights alone, as theirs does: 7 of the 11 GB of their GPUs are left to everything else.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np

from benchmarks.baselines import BASELINES
from benchmarks.contest import Attempt, attempt
from cost_models.model import BlockCosts
from cost_models.shards import MEMORY_HBM, Blocks, Floats
from cost_models.step import StepModel
from cost_models.workload.models import Communication, Embedding, TableProfile, Workload
from planner.api import make_policy
from topologies.loading import load_topology

POOL = Path(__file__).parent / "data" / "meta_t856_rows.json"
DEVICES = {4: ((10, 60), 15), 8: ((20, 120), 31)}
"""GPUs → (tables from, to below), most GiB of a task."""
MAX_DIMS = (4, 8, 16, 32, 64, 128)
GPU_GIB = 4
FEWEST_ROWS = 100
EMPTY_POOLING = 0.01
POOLING_SIGMA = 1.0
ZIPF_ALPHA = 1.05
POOL_SEED = 0
SHARDINGS = ("table_wise", "column_wise")
EXCESS, SECONDS = 0.015, 1.0
"""Targets: mean distance from the bound; time of one task, from its tables to the plan document."""
HEADER = ("GPUs", "max dim", "solver", "success", "above bound", "worst", "mean s", "max s", "over ours")


class EmbeddingsAlone(StepModel):
    """The physical cost model, less what the protocol leaves out: constants of the stages, and bytes in flight."""

    def __init__(self, devices: int, workload: Workload) -> None:
        limits = [f"accelerators.count={devices}", f"accelerators.hbm.capacity={GPU_GIB}GiB", "reserve.hbm=0%"]
        super().__init__(load_topology("dgx-a100-40", overrides=[f"nodes.0.{limit}" for limit in limits]), workload)
        self.constants = np.zeros_like(self.constants)
        self.base_bytes = np.zeros_like(self.base_bytes)

    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """With the bytes of the weights only."""
        costs = super().block_costs(blocks, kind)
        weights = np.zeros_like(costs.bytes_by_rows)
        rows = self.tables.rows[blocks.table].astype(float)
        weights[:, MEMORY_HBM] = rows * self.tables.row_bytes(blocks.table, blocks.columns)
        return BlockCosts(
            costs.fixed, costs.by_rows, costs.everywhere, np.zeros_like(weights), weights, costs.supported
        )


@cache
def pool() -> tuple[Floats, Floats, int]:
    """Rows and pooling factors of the 856 tables, and the batch."""
    data = json.loads(POOL.read_text())
    rows = np.array(data["rows"])
    draws = np.clip(np.random.Generator(np.random.PCG64(POOL_SEED)).random(len(rows)), 1e-12, 1 - 1e-12)
    pooling = np.exp(POOLING_SIGMA * np.array([NormalDist().inv_cdf(share) for share in draws]))
    pooling[rows == 1] = 0.0
    pooling *= data["ids_per_sample"] / pooling.sum()
    return np.maximum(rows, FEWEST_ROWS), np.maximum(pooling, EMPTY_POOLING).round(2), data["batch"]


def task(devices: int, max_dim: int, seed: int, number: int) -> Workload:
    """Task `number` of a seed: it follows from these four figures alone, on every machine."""
    rows, pooling, batch = pool()
    random = np.random.Generator(np.random.PCG64([seed, devices, max_dim, number]))
    (fewest, end), most_gib = DEVICES[devices]
    dims = np.array([dim for dim in MAX_DIMS if dim <= max_dim])
    count = fewest + int(random.random() * (end - fewest))
    while True:
        chosen = (random.random(count) * len(rows)).astype(int)
        dim = dims[(random.random(count) * len(dims)).astype(int)]
        if (rows[chosen] * dim * 4).sum() <= most_gib * 2**30:
            break
    tables = tuple(
        TableProfile(
            name=f"{i}: t{t}", rows=int(rows[t]), dim=int(dim[i]), pooling_factor=pooling[t], zipf_alpha=ZIPF_ALPHA
        )
        for i, t in enumerate(chosen.tolist())
    )
    return Workload(
        name=f"neuroshard: {devices} GPUs, max dim {max_dim}, seed {seed}, task {number}",
        global_batch=batch,
        tables=tables,
        embedding=Embedding(dtype="fp32", optimizer="sgd"),
        communication=Communication(forward="fp32", backward="fp32"),
    )
