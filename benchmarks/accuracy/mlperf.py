"""Iteration times of MLPerf DLRM-DCNv2 (HugeCTR), with the plans that the logs print, through the planner's own step."""

import ast
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.rows import DataSet, frame
from cost_models.error_bars import band
from cost_models.model import Evaluation
from cost_models.shards import DATA_PARALLEL, HBM, TABLE_ROW_WISE, TABLE_WISE, Blocks, PlacedShards, block_rows
from cost_models.step import StepModel
from cost_models.workload.loading import load_workload
from planner import api
from planner.verification import placed_shards
from topologies.loading import load_topology

BAND_90 = 0.1
WORKLOAD = "dlrm-dcnv2"
BYTES_PER_ELEMENT, REPLICATED_BELOW_BYTES = 8, 12.5e6
"""Weights and Adagrad state; DP_SHARDING_THRESHOLD=0.0125 (GB)."""


@dataclass(frozen=True)
class System:
    """What a submission ran on."""

    topology: str
    overrides: tuple[str, ...] = ()


SYSTEMS = {
    ("H100-SXM", 1, 8): System("dgx-h100"),
    ("H100-SXM", 8, 8): System("dgx-h100", ("nodes.0.count=8",)),
    ("H100-SXM", 1, 4): System("h100-sxm-4"),
    ("H100-SXM", 2, 4): System("h100-sxm-4", ("nodes.0.count=2",)),
    ("A100-SXM", 1, 8): System("dgx-a100-80"),
    ("H100-PCIe", 1, 8): System("h100-pcie-8"),
    ("L40", 1, 8): System("l40-8"),
    ("A40", 1, 8): System("a40-8"),
}
"""By accelerator, nodes and accelerators of a node."""
UNGATED = ("D54U-3U", "nf5468m6_hugectr", "dgxh100_n8_ngc23.04_merlin_hugectr")
"""Flagged in the data: unexplained; slow links; no data-parallel threshold over eight nodes."""
COPIES = {("4.0", "XE9640x4H100-SXM-80GB")}
"""Rows whose log is that of an earlier round."""


@cache
def _facts(folder: Path) -> dict[str, list[dict[str, object]]]:
    facts = json.loads((folder / "published.json").read_text())
    return {name: facts.get(name, []) for name in ("mlperf_dcnv2_runs", "mlperf_dcnv2_plans")}


def cases(folder: Path) -> pd.DataFrame:
    """One row per submission on GPUs: what it ran on, its time, and the printed plan it shares with its like."""
    facts = _facts(folder)
    rows = []
    for run in facts["mlperf_dcnv2_runs"]:
        found = run["sys"]
        nodes, each = int(found["number_of_nodes"]), int(found["accelerators_per_node"])
        device = next((name for name, _, _ in SYSTEMS if name in found["accelerator_model_name"]), None)
        if (device, nodes, each) not in SYSTEMS and run["system"] not in UNGATED:
            continue
        if (device, nodes, each) not in SYSTEMS:
            continue
        plan = _plan(facts["mlperf_dcnv2_plans"], run["round"], device, nodes * each)
        rows.append(
            {
                "label": f"{run['round']} {run['org']} {run['system']}",
                "round": run["round"],
                "device": device,
                "nodes": nodes,
                "each": each,
                "batch": int(run["batch"]),
                "measured_s": float(run["iter_ms"]) * 1e-3,
                "plan": plan,
                "gated": run["system"] not in UNGATED and (run["round"], run["system"]) not in COPIES,
            }
        )
    return pd.DataFrame(rows)


def _plan(plans: list[dict[str, object]], version: str, device: str, ranks: int) -> int | None:
    """Index of the printed plan of as many ranks: of the same device and round, else round, else device."""
    scored = [
        ((plan["round"] == version) + 2 * (device.split("-")[0] in plan["devices"][0]), -i, i)
        for i, plan in enumerate(plans)
        if plan["n_dev"] == ranks
    ]
    return max(scored)[2] if scored else None


@dataclass(frozen=True)
class Held:
    """Who holds which table: replicated ones everywhere, each other one cut by rows over some groups of ranks."""

    replicated: frozenset[int]
    groups: tuple[tuple[int, ...], ...]
    """Tables of each group."""
    group_ranks: int
    """Consecutive ranks of a group: 1, or a node's."""


def printed(plan: dict[str, object]) -> Held:
    """A plan as a log prints it: tables by GPU."""
    replicated = frozenset(dict(ast.literal_eval(str(plan["strategy"])))["dp"])
    groups = tuple(tuple(t for t in own if t not in replicated) for own in plan["matrix"])
    return Held(replicated, groups, 1)


@cache
def hierarchical(nodes: int, each: int) -> Held:
    """What HugeCTR's planner makes over several nodes (`hier_auto`): nodes for GPUs, then rows cut inside a node.

    No log prints it, so our planner searches under HugeCTR's rating, with the numbers of NVIDIA's v3.1 configuration
    (config_DGXH100_8x8x2112.sh): memory to communication bandwidth 67, tables below 12.5 MB replicated.
    """
    link, ratio, capacity_gb = 50, 67, 60 * each
    overrides = [
        f"nodes.0.accelerators.count={nodes}",
        f"nodes.0.accelerators.hbm.capacity={capacity_gb}GB",
        f"nodes.0.accelerators.hbm.bandwidth={ratio * link}GB/s",
        f"nodes.0.links.scale_up.bandwidth={link}GB/s",
        f"nodes.0.links.scale_out.count={nodes}",
        "nodes.0.links.pcie.accelerators_per_switch=1",
        "nodes.0.reserve.hbm=0%",
    ]
    plan = api.plan(load_topology("dgx-h100", overrides=overrides), WORKLOAD, cost_model="hugectr")
    rank, of_shard = (getattr(placed_shards(plan), name) for name in ("rank", "blocks"))
    model = StepModel(load_topology("dgx-h100"), load_workload(WORKLOAD))
    small = np.flatnonzero(model.tables.rows * model.tables.dim * BYTES_PER_ELEMENT < REPLICATED_BELOW_BYTES)
    replicated = frozenset(small.tolist())
    groups = tuple(tuple(sorted(set(of_shard.table[rank == node].tolist()) - replicated)) for node in range(nodes))
    return Held(replicated, groups, each)


def placed(held: Held, model: StepModel) -> PlacedShards:
    """The same as shards of our words."""
    world, rows_of = len(model.kind_of_rank), model.tables.rows.tolist()
    by_rows = TABLE_WISE if held.group_ranks == 1 else TABLE_ROW_WISE
    shards = [(t, DATA_PARALLEL, rank, rows_of[t], rank == 0) for t in held.replicated for rank in range(world)]
    for t in set(range(len(rows_of))) - held.replicated:
        groups = [g for g, own in enumerate(held.groups) if t in own]
        parts = len(groups) * held.group_ranks
        for position in range(parts):
            group, inside = groups[position // held.group_ranks], position % held.group_ranks
            rows = int(block_rows(rows_of[t], parts, position))
            shards.append((t, by_rows, group * held.group_ranks + inside, rows, inside == 0))
    table, sharding, rank, rows, opens = (np.array(column) for column in zip(*shards, strict=True))
    n = len(table)
    blocks = Blocks(table, sharding, np.full(n, HBM), model.tables.dim[table], np.zeros(n))
    return PlacedShards(blocks, rank, rows, opens)


@cache
def step(
    device: str, nodes: int, each: int, batch: int, plan: int | None, folder: Path
) -> tuple[StepModel, Evaluation]:
    """The step of a configuration under its plan, with the shipped coefficients."""
    system = SYSTEMS[device, nodes, each]
    model = StepModel(
        load_topology(system.topology, overrides=system.overrides), load_workload(WORKLOAD, global_batch=batch)
    )
    plans = _facts(folder)["mlperf_dcnv2_plans"]
    held = hierarchical(nodes, each) if nodes > 1 or plan is None else printed(plans[plan])
    return model, model.evaluate(placed(held, model))
