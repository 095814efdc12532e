"""Results of studies with known figures, made without a planner."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from planner.studies.results import Axis, StudyResults

NODES = Axis("topology.nodes.0.count", "nodes", "", is_number=True)
NIC = Axis("topology.nodes.0.links.scale_out.bandwidth_bytes_per_s", "scale-out bandwidth", "B/s", is_number=True)
BATCH = Axis("workload.batch.global", "global batch", "samples", is_number=True)
DTYPE = Axis("workload.embedding.dtype", "embedding dtype", "", is_number=False)

STAGES = (
    "input_dist",
    "lookup_forward",
    "output_dist",
    "dense",
    "gradient_dist",
    "lookup_backward",
    "all_reduce",
    "overhead",
)


def study(
    axes: Sequence[tuple[Axis, Sequence[object]]],
    *,
    scenarios: Sequence[str] = (),
    priced: bool = True,
    measured: bool = False,
    name: str = "Nodes and network",
) -> StudyResults:
    """A grid: throughput falls off with nodes, steps shorten with bandwidth, one point is infeasible."""
    rows = []
    levels = [values for _, values in axes]
    for point, (scenario, *at) in enumerate(itertools.product(scenarios or ("",), *levels)):
        place = dict(zip([axis.column for axis, _ in axes], at, strict=True))
        rows.append(_row(point, scenario, place, priced=priced, measured=measured))
    frame = pd.DataFrame(rows)
    if not scenarios:
        frame = frame.drop(columns="scenario")
    return StudyResults(
        name=name,
        description="How far the cluster scales, and what a faster network brings.",
        axes=tuple(axis for axis, _ in axes),
        objective="usd_per_billion_samples" if priced else "samples_per_s",
        findings=("Throughput grows to 6.1 times at 16 times the nodes.", "From 8 nodes on, the network is the limit."),
        pareto=("samples_per_s", "usd_per_billion_samples"),
        frame=_with_frontier(frame),
    )


def _row(point: int, scenario: str, place: dict[str, object], *, priced: bool, measured: bool) -> dict[str, object]:
    nodes = int(place.get(NODES.column, 4))  # type: ignore[call-overload]
    nic = float(place.get(NIC.column, 25e9))  # type: ignore[arg-type]
    batch = float(place.get(BATCH.column, 65536))  # type: ignore[arg-type]
    narrow = place.get(DTYPE.column, "fp32") == "fp16" or scenario == "fp16"
    width = 0.5 if narrow else 1.0
    share = batch / 65536 / nodes
    fabric = 25e9 / nic * (1 - 1 / nodes)
    seconds = {
        "input_dist": 0.05e-3 * share * fabric,
        "lookup_forward": 0.8e-3 * share * width,
        "output_dist": 0.9e-3 * share * fabric + 0.05e-3,
        "dense": 5.3e-3 * share,
        "gradient_dist": 0.9e-3 * share * fabric + 0.05e-3,
        "lookup_backward": 1.3e-3 * share * width,
        "all_reduce": 0.7e-3 * fabric,
        "overhead": 0.3e-3,
    }
    hbm = 412e9 * width + nodes * 2e9
    fits = hbm <= nodes * 8 * 38e9
    step = sum(seconds.values())
    speed = batch / step
    usd = nodes * 8 * 1.844 if priced else math.nan
    row: dict[str, object] = {"point": point, "scenario": scenario} | place
    row |= {
        "status": ("optimal" if point % 3 else "feasible") if fits else "infeasible",
        "reason": None if fits else "the tables need 13.4 GiB more of HBM than all ranks have",
        "meets": fits,
        "nodes": nodes,
        "ranks": nodes * 8,
        "samples_per_step": batch,
    }
    figures = {
        "step_s": step,
        "lower_bound_s": step / 1.008,
        "gap": 0.008 if point % 3 == 0 else 0.0,
        "samples_per_s": speed,
        "simulated_step_s": step * 1.01,
        "simulated_samples_per_s": speed / 1.01,
        "measured_samples_per_s": speed * (0.93 + 0.02 * (point % 5)) if measured and point % 2 == 0 else math.nan,
        "usd_per_hour": usd,
        "usd_per_billion_samples": usd / 3600 / speed * 1e9,
        "kilowatts": nodes * 6.5,
        "joules_per_sample": nodes * 6500 / speed,
    }
    kinds = {
        "network": seconds["output_dist"] + seconds["gradient_dist"] + seconds["all_reduce"],
        "dense": seconds["dense"],
        "hbm": seconds["lookup_forward"] + seconds["lookup_backward"],
    }
    figures |= {f"stage_{name}_s": value for name, value in seconds.items()}
    figures |= {"hbm_used_bytes": hbm, "hbm_capacity_bytes": nodes * 8 * 38e9}
    figures |= {"ddr_used_bytes": 0.0, "ddr_capacity_bytes": nodes * 1.35e12}
    saves = {"nic_bandwidth": kinds["network"], "flops": kinds["dense"], "hbm_bandwidth": kinds["hbm"]}
    figures |= {f"plus10_{name}_saves": part / step / 11 for name, part in saves.items()}
    kept = {"usd_per_hour", "kilowatts", "hbm_capacity_bytes", "ddr_capacity_bytes"}
    row |= {key: value if fits or key in kept else math.nan for key, value in figures.items()}
    return row | {"limit": max(kinds, key=lambda kind: kinds[kind]) if fits else None}


def _with_frontier(frame: pd.DataFrame) -> pd.DataFrame:
    """Points that no other beats in both throughput and cost."""
    speed, cost = frame["samples_per_s"].to_numpy(), frame["usd_per_billion_samples"].to_numpy()
    beaten = [
        bool(((speed >= s) & (cost <= c) & ((speed > s) | (cost < c))).any()) for s, c in zip(speed, cost, strict=True)
    ]
    return frame.assign(on_pareto=~np.array(beaten) & ~np.isnan(cost) & ~np.isnan(speed))


def grid() -> StudyResults:
    """Two axes, 5 x 4 points, the first four without room."""
    return study([(NODES, [1, 2, 4, 8, 16]), (NIC, [12.5e9, 25e9, 50e9, 100e9])])


HOSTILE_NAMES = ("<b>bold</b> & <i>", "</script><script>window.stolen = 1</script>", "%{x} &lt; $x$")


def hostile() -> StudyResults:
    """Names that would be tags, scripts or templates if they were not escaped."""
    results = study(
        [(DTYPE, ["fp32", "fp16", "int8"]), (NODES, [2, 4])], name="</title><script>window.stolen = 2</script>"
    )
    names = dict(zip(("fp32", "fp16", "int8"), HOSTILE_NAMES, strict=True))
    frame = results.frame.assign(**{DTYPE.column: results.frame[DTYPE.column].map(names)})
    return StudyResults(
        name=results.name,
        description="<img src=x onerror='window.stolen = 3'>",
        axes=(Axis(DTYPE.column, "<i>dtype</i>", "", is_number=False), NODES),
        objective=results.objective,
        findings=("<script>window.stolen = 4</script>",),
        pareto=results.pareto,
        frame=frame,
    )
