"""Iteration times of MLPerf DLRM-DCNv2 (HugeCTR), by the planner's own step, under the plans that the logs print."""

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from benchmarks.accuracy.hugectr_planner import BYTES_PER_ELEMENT, Settings, bucket_plan
from benchmarks.accuracy.judges import Judge, estimated
from benchmarks.accuracy.mlperf_rows import (
    NoRunError,
    expect_a_run,
    later_rounds,
    plan_index,
    printed_plans,
    printed_rounds,
)
from benchmarks.accuracy.rows import DataSet, frame
from benchmarks.accuracy.step_fit import DOUBTFUL_BEYOND, Linear, Prior, deviations, predictive_spread, solve
from benchmarks.accuracy.systems import UnknownSystemError, network_of, topology_of
from cost_models.coefficients import (
    Place,
    device_coefficients,
    link_coefficients,
    replaced,
    software_coefficients,
)
from cost_models.dense_size import dense_size
from cost_models.error_bars import ErrorBand
from cost_models.hugectr import memory_communication_ratio
from cost_models.memory import block_bytes
from cost_models.shards import (
    DATA_PARALLEL,
    HBM,
    MEMORY_HBM,
    MULTI_NODE_ROW_WISE,
    MULTI_RANK_ROW_WISE,
    ROW_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
    Blocks,
    PlacedShards,
    block_rows,
)
from cost_models.step import StepModel
from cost_models.workload.loading import load_workload
from topologies.cluster import Topology
from topologies.loading import load_topology

WORKLOAD = "dlrm-dcnv2"
UNGATED = ("D54U-3U", "nf5468m6_hugectr", "dgxh100_n8_ngc23.04_merlin_hugectr")
"""Flagged in the data: unexplained; slow links; small tables split over eight nodes."""
COPIES = {("4.0", "XE9640x4H100-SXM-80GB")}
"""Rows whose log is that of an earlier round."""


NEWEST: Place = ("software", "hugectr", "step_overhead_s")
OVERHEADS: dict[str, Place] = {
    "3.0": ("software", "hugectr", "step_overhead_s_23_04"),
    "3.1": ("software", "hugectr", "step_overhead_s_23_09"),
}
"""The fixed part of a step, by round: each used another HugeCTR; later ones share that of the newest."""
PRIORS: dict[Place, tuple[float, float]] = {
    OVERHEADS["3.0"]: (0.3e-3, 0.3),
    OVERHEADS["3.1"]: (0.3e-3, 0.3),
    NEWEST: (0.3e-3, 0.3),
    ("software", "hugectr", "activation_passes"): (2.0, 0.3),
    ("devices", "default", "flop_utilization"): (0.58, 0.2),
    ("devices", "A100-SXM4-80GB", "flop_utilization"): (0.7, 0.2),
    ("devices", "B200-SXM-180GB", "flop_utilization"): (0.465, 0.3),
    ("links", "pcie", "ceiling_bytes_per_s"): (22e9, 0.15),
    ("links", "infiniband", "all_to_all_efficiency"): (0.86, 0.03),
}
"""Fitted coefficients: what is known of each without these rows, and how well (standard deviation of its logarithm).
Activations are written and read once; dense kernels reach half of their peak (0.7 with TF32 on A100, MAD-Max, less
with fp16; a smaller share the higher the peak, so Blackwell less than Hopper's 0.45), their products without edges 1.16
times as much at these layers and batches; NCCL on an
RTX PRO 6000 reaches 18 to 24 GB/s over PCIe 5; DeepEP's kernels take 0.87 of the same
cards, two nodes of A100 0.81 of RoCE."""
_OVERHEADS = (*OVERHEADS.values(), NEWEST)
PRIOR = Prior.of(PRIORS)
NUDGE = 1.05


@dataclass(frozen=True)
class Configuration:
    """What submissions share that should take the same time."""

    round: str
    accelerator: str
    nodes: int
    each: int
    network: str
    """Kind of the cards between nodes, where the submission tells; all that it tells where the catalog has none."""
    batch: int
    plan: int | None
    """Index of the printed plan; None where no log prints one."""

    @property
    def system(self) -> Topology:
        """What it ran on. Raises UnknownSystemError."""
        return topology_of(self.accelerator, self.nodes, self.each, self.network)


def cases(folder: Path) -> pd.DataFrame:
    """One row per submission on GPUs: what it ran on, its time, and the printed plan it shares with its like.

    What no topology of the catalog describes, cards whose figures are not understood, and what is no time or batch, is
    left out; that, and where cards are the catalog's because a row does not tell, is said on standard error.
    """
    plans, rows = printed_plans(folder), []
    for run in [*printed_rounds(folder), *later_rounds(folder)]:
        label = f"{run['round']} {run['org']} {run['system']}"
        try:
            expect_a_run(run)
            words, nodes, each = str(run["accelerator"]), int(float(run["nodes"])), int(float(run["each"]))
            network = network_of(words, nodes, each, str(run["network"]), partial(_say, label))
            system = topology_of(words, nodes, each, network)
            device = system.nodes[0].accelerators.device
            plan = plan_index(plans, str(run["round"]), device, nodes * each)
            if plan is None or nodes > 1:
                rebuilt(system, str(run["round"]))
        except (UnknownSystemError, NoRunError) as reason:
            _say(f"{label} left out", str(reason))
            continue
        rows.append(
            {
                "label": label,
                "configuration": Configuration(
                    str(run["round"]), device, nodes, each, network, int(float(run["batch"])), plan
                ),
                "measured_s": float(run["iter_ms"]) * 1e-3,
                "gated": run["system"] not in UNGATED and (run["round"], run["system"]) not in COPIES,
            }
        )
    return pd.DataFrame(rows, columns=["label", "configuration", "measured_s", "gated"])


@cache
def _say(whose: str, words: str) -> None:
    """On standard error, once."""
    print(f"mlperf: {whose}: {words}", file=sys.stderr)


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
def rebuilt(topology: Topology, version: str) -> Held:
    """What HugeCTR's planner makes where no log prints a plan, under the settings of the submissions.

    In one scale-up domain it deals out tables to GPUs, with tables below 8 MB replicated (none among more than eight,
    as NVIDIA's on 64 GB200). Over several (`hier_auto`) it takes nodes for GPUs and cuts rows inside a node, with
    tables below 12.5 MB replicated; none in round v3.0. The ratio of memory to communication bandwidth is that of the
    data sheets, rounded: 7 and 9 inside a domain of Hopper and Blackwell, 67 and 160 over cards. Tables have 60 GB of
    an accelerator, and all of it where they need more. Raises NoRunError where that is too little, too.
    """
    tables, group = load_workload(WORKLOAD).tables, topology.nodes[0]
    hotness = np.array([table.pooling_factor for table in tables])
    rows = np.array([table.rows for table in tables])
    is_flat = group.domain_ranks >= topology.world_size
    members = 1 if is_flat else group.accelerators.count
    replicated_below_gb = (0.008 if topology.world_size <= 8 else 0.0) if is_flat else 0.0125 * (version != "3.0")
    needed_gb = rows.sum() * tables[0].dim * BYTES_PER_ELEMENT * 1e-9 / topology.world_size
    memory_gb = 60.0 if needed_gb <= 60.0 else group.accelerators.hbm.capacity * 1e-9
    if needed_gb > memory_gb:
        raise NoRunError(f"tables and their optimizer state take {needed_gb:.0f} GB of each {memory_gb:.0f} GB")
    settings = Settings(
        float(round(memory_communication_ratio(topology, group))),
        memory_gb=memory_gb * members,
        replicated_below_gb=replicated_below_gb,
    )
    plan = bucket_plan(hotness, rows, tables[0].dim, topology.world_size // members, settings)
    return Held(frozenset(plan.replicated), plan.buckets, members)


def placed(held: Held, model: StepModel) -> PlacedShards:
    """The same as shards of our words: a table in one part, in some, or in a part on every rank or node."""
    world, rows_of = len(model.kind_of_rank), model.tables.rows.tolist()
    every = len(held.groups)
    one, some = (TABLE_WISE, MULTI_RANK_ROW_WISE) if held.group_ranks == 1 else (TABLE_ROW_WISE, MULTI_NODE_ROW_WISE)
    shards = [(t, DATA_PARALLEL, rank, rows_of[t], rank == 0, 0) for t in held.replicated for rank in range(world)]
    for t in set(range(len(rows_of))) - held.replicated:
        groups = [g for g, own in enumerate(held.groups) if t in own]
        sharding = one if len(groups) == 1 else ROW_WISE if len(groups) == every else some
        parts = len(groups) * held.group_ranks
        for position in range(parts):
            group, inside = groups[position // held.group_ranks], position % held.group_ranks
            rows = int(block_rows(rows_of[t], parts, position))
            holders = parts if sharding == some else 0
            shards.append((t, sharding, group * held.group_ranks + inside, rows, position == 0, holders))
    table, sharding_of, rank, rows_held, opens, holders_of = (np.array(column) for column in zip(*shards, strict=True))
    n = len(table)
    blocks = Blocks(table, sharding_of, np.full(n, HBM), model.tables.dim[table], np.zeros(n), holders=holders_of)
    return PlacedShards(blocks, rank, rows_held, opens)


def _planned(case: Configuration, folder: Path) -> tuple[StepModel, PlacedShards]:
    model = StepModel(case.system, load_workload(WORKLOAD, global_batch=case.batch))
    plans = printed_plans(folder)
    is_printed = case.plan is not None and case.nodes == 1
    held = printed(plans[case.plan]) if is_printed else rebuilt(case.system, case.round)
    return model, placed(held, model)


def _error_bar(case: Configuration, folder: Path) -> ErrorBand:
    model, shards = _planned(case, folder)
    return model.error_bars(shards).step


def seconds(
    case: Configuration,
    folder: Path,
    values: Mapping[Place, float] = MappingProxyType({}),
    judge: Judge = estimated,
) -> float:
    """The step of a configuration under its plan, with the shipped coefficients or others in place of some."""
    with replaced({place: value for place, value in values.items() if place not in _OVERHEADS}):
        model, shards = _planned(case, folder)
        step_s = judge(model, shards)
    software = software_coefficients("hugectr")
    place = OVERHEADS.get(case.round, NEWEST)
    own = getattr(software, place[2])
    return step_s - software.step_overhead_s.value + values.get(place, own.value)


def shipped() -> dict[Place, float]:
    """The fitted coefficients as they are."""
    readers = {
        "software": software_coefficients,
        "devices": device_coefficients,
        "links": lambda name: link_coefficients(name, "default-scale-out"),
    }
    return {place: getattr(readers[place[0]](place[1]), place[2]).value for place in PRIORS}


def configurations(rows: pd.DataFrame) -> dict[Configuration, float]:
    """Median measured seconds of each configuration of some rows."""
    return {
        case: float(rows.measured_s[[each == case for each in rows.configuration]].median())
        for case in dict.fromkeys(rows.configuration)
    }


def linear(cases: Sequence[Configuration], folder: Path, at: dict[Place, float]) -> Linear:
    """The linear model of the steps, from differences of 5 % of each coefficient."""
    here = np.array([seconds(case, folder, at) for case in cases])
    slopes = np.zeros((len(cases), len(at)))
    for j, (place, value) in enumerate(at.items()):
        moved = {**at, place: value * NUDGE}
        there = np.array([seconds(case, folder, moved) for case in cases])
        slopes[:, j] = np.log(there / here) / np.log(NUDGE)
    return Linear(at, here, slopes)


@cache
def _linear_at(cases: tuple[Configuration, ...], folder: Path, at: tuple[tuple[Place, float], ...]) -> Linear:
    return linear(cases, folder, dict(at))


def refit(folder: Path) -> dict[Place, float]:
    """The coefficients from all configurations, in a few steps of Gauss and Newton."""
    times = configurations(believed(folder))
    measured, values = np.array(list(times.values())), shipped()
    for _ in range(3):
        values = solve(linear(tuple(times), folder, values), PRIOR, measured, np.ones(len(times), dtype=bool))
    return values


@cache
def believed(folder: Path) -> pd.DataFrame:
    """The gated rows that something explains; the others are said on standard error, and are in no fit nor band."""
    rows = cases(folder)
    rows = rows[rows.gated]
    all_cases = tuple(dict.fromkeys(rows.configuration))
    model = _linear_at(all_cases, folder, tuple(shipped().items()))
    number = rows.configuration.map({case: i for i, case in enumerate(all_cases)}).to_numpy(int)
    each = Linear(model.at, model.seconds[number], model.slopes[number])
    far = deviations(each, PRIOR, rows.measured_s.to_numpy(float))
    for label, measured_s, predicted_s, by in zip(rows.label, rows.measured_s, each.seconds, far, strict=True):
        if abs(by) > DOUBTFUL_BEYOND:
            print(
                f"mlperf: {label}: {measured_s * 1e3:.2f} ms, predicted {predicted_s * 1e3:.2f}: {abs(by):.0f} standard"
                " deviations from what is known of such a system; it is in no fit and no band. Is its time or its batch"
                " that of another run?",
                file=sys.stderr,
            )
    return rows[np.abs(far) <= DOUBTFUL_BEYOND]


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    by_case = {case: seconds(case, folder) for case in dict.fromkeys(rows.configuration)}
    out = frame([])
    out["label"], out["group"] = rows.label, [_group(case) for case in rows.configuration]
    out["measured_s"], out["predicted_s"] = rows.measured_s, rows.configuration.map(by_case)
    bars = {case: _error_bar(case, folder) for case in by_case}
    ends = [bars[case].around(by_case[case]) for case in rows.configuration]
    out["low_s"], out["high_s"] = zip(*ends, strict=True) if ends else ([], [])
    out["naive_s"] = [_naive_seconds(case) for case in rows.configuration]
    out["gated"] = rows.gated
    out["alike"] = [f"{OVERHEADS.get(case.round, NEWEST)[2]}, batch {case.batch}" for case in rows.configuration]
    return out


def _naive_seconds(case: Configuration) -> float:
    """Everything spread evenly, at the data sheet's rates: products, rows once forward and once backward, exchanges."""
    group = case.system.nodes[0]
    workload = load_workload(WORKLOAD, global_batch=case.batch)
    world, up, out, dense = case.nodes * case.each, group.links.scale_up, group.links.scale_out, dense_size(workload)
    port = up.bandwidth if up else group.links.pcie.bandwidth
    if case.nodes > 1 and out:
        port = out.count * out.bandwidth / case.each
    samples = case.batch / world
    row_bytes = sum(table.pooling_factor * table.dim * 4 for table in workload.tables)
    sent_bytes = sum(table.dim * 2 for table in workload.tables) * samples * (world - 1) / world
    gradient_bytes = 2 * dense.parameters * 2 * (world - 1) / world
    return (
        samples * dense.training_flops / (group.accelerators.flops.fp16 or group.accelerators.flops.fp32)
        + 2 * samples * row_bytes / group.accelerators.hbm.bandwidth
        + (2 * sent_bytes + gradient_bytes) / port
    )


def memory(folder: Path) -> pd.DataFrame:
    """Gigabytes of weights and optimizer state of each GPU of each printed plan: by the log, and ours."""
    model = StepModel(load_topology("dgx-h100"), load_workload(WORKLOAD))
    rows = []
    for index, plan in enumerate(printed_plans(folder)):
        shards = placed(replace(printed(plan), replicated=frozenset()), model)
        sizes = block_bytes(model.tables, shards.blocks, model.batching)
        share = shards.rows / model.tables.rows[shards.blocks.table]
        ours = sum(np.asarray(sizes[MEMORY_HBM, part].by_rows) * share for part in ("weights", "optimizer"))
        of_rank = np.bincount(shards.rank, weights=ours, minlength=len(plan["matrix"]))
        rows += [(index, rank, *pair) for rank, pair in enumerate(zip(plan["mem_GB"], of_rank / 1e9, strict=True))]
    return pd.DataFrame(rows, columns=["plan", "rank", "log_gb", "ours_gb"])


def held_out(
    folder: Path, left_out: Callable[[Configuration], object] = lambda case: case, judge: Judge = estimated
) -> pd.Series:
    """Each configuration (or what `left_out` makes of it) predicted from a fit to the others and the priors.

    The fit is the estimate's, whoever judges.
    """
    rows = cases(folder)
    times = configurations(believed(folder))
    measured = np.array(list(times.values()))
    model = _linear_at(tuple(times), folder, tuple(shipped().items()))
    found: dict[Configuration, float] = {}
    for group in dict.fromkeys(map(left_out, rows.configuration[rows.gated])):
        kept = np.array([left_out(case) != group for case in times])
        values = solve(model, PRIOR, measured, kept)
        own = dict.fromkeys(case for case in rows.configuration if left_out(case) == group)
        found.update({case: seconds(case, folder, values, judge) for case in own})
    return rows.configuration.map(found)


def coefficient_spread(folder: Path, left_out: Callable[[Configuration], object]) -> pd.Series:
    """How far each believed row may be off for want of the others of its group: standard deviation of its logarithm,
    by the coefficients that are fitted without them."""
    rows = believed(folder)
    cases = tuple(dict.fromkeys(rows.configuration))
    model = _linear_at(cases, folder, tuple(shipped().items()))
    groups = np.array([str(left_out(case)) for case in cases])
    found: dict[Configuration, float] = {}
    for group in dict.fromkeys(groups):
        spread = predictive_spread(model, PRIOR, groups != group)
        found.update({cases[i]: float(spread[i]) for i in np.flatnonzero(groups == group)})
    return rows.configuration.map(found)


def _group(case: Configuration) -> str:
    return f"v{case.round} {case.nodes} x {case.each} {case.accelerator}"


DATA_SET = DataSet(
    name="mlperf",
    grouping="configuration",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(PRIORS),
    note="iteration times of MLPerf DLRM-DCNv2, HugeCTR; plans as printed in the logs, of several nodes as its planner "
    "would make them",
)
