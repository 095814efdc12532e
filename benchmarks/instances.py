"""The registry of planning problems, and of the solvers that are run on them. Data only."""

import json
from pathlib import Path
from typing import Any

from benchmarks import neuroshard
from benchmarks.baselines import BASELINES
from benchmarks.contest import Instance, Search
from benchmarks.figures import GIB, Limit
from cost_models.torchrec.cases import case_topology, case_workload
from cost_models.workload.loading import load_workload
from topologies.cluster import Topology
from topologies.loading import load_topology

SEARCHES = {
    "ours": Search(),
    "ours-10s": Search(time_limit_s=10.0, gap=0.0002),
    "ours-60s": Search(time_limit_s=60.0, gap=0.0002),
}
"""Our planner as it comes, and for as long as the targets give it."""
SOLVERS: dict[str, Search | None] = {**SEARCHES, **dict.fromkeys(BASELINES)}
"""Every solver; None for a baseline."""
SHIPPED_CASES = Path(__file__).parent / "data" / "torchrec_cases"
MOST_TABLES = {"neuroshard": 200}
"""What a baseline is run on: NeuroShard's search places every candidate anew."""

HUGECTR_RATIO, HUGECTR_GB, HUGECTR_LINK_GB_PER_S = 7, 60, 450
"""Memory to communication bandwidth, GB per GPU: what the submissions to MLPerf Training v3.1 and v4.0 plan with."""


def hugectr_topology() -> Topology:
    """A DGX H100 with the numbers that the submissions gave to HugeCTR's planner instead of the data sheet's."""
    return load_topology(
        "dgx-h100",
        overrides=[
            f"nodes.0.accelerators.hbm.capacity={HUGECTR_GB}GB",
            f"nodes.0.accelerators.hbm.bandwidth={HUGECTR_RATIO * HUGECTR_LINK_GB_PER_S}GB/s",
            f"nodes.0.links.scale_up.bandwidth={HUGECTR_LINK_GB_PER_S}GB/s",
            "nodes.0.reserve.hbm=0%",
        ],
    )


HUGECTR = Instance(
    "hugectr/dlrm-dcnv2",
    hugectr_topology,
    lambda: load_workload("dlrm-dcnv2"),
    cost_model="hugectr",
    peers=(("HugeCTR, published", 29.5), ("HugeCTR, run again", 29.0)),
    limits=(("ours-10s", Limit("objective", 28.75)), ("ours-10s", Limit("gap", 0.005))),
)


def _physical(name: str, workload: str, nodes: int, *limits: tuple[str, Limit]) -> Instance:
    return Instance(
        name, lambda: load_topology("zionex-16", nodes=nodes), lambda: load_workload(workload), limits=limits
    )


PHYSICAL = (
    _physical("zionex-16/dlrm-dcnv2", "dlrm-dcnv2", 16, ("ours", Limit("peak_bytes", 400e6))),
    _physical(
        "synthetic:1000x128",
        "synthetic:1000",
        16,
        ("ours-10s", Limit("gap", 0.006)),
        ("ours-60s", Limit("gap", 0.004)),
    ),
    _physical(
        "synthetic:10000x1024",
        "synthetic:10000",
        128,
        ("ours-10s", Limit("gap", 0.008)),
        ("ours-10s", Limit("first_plan_s", 3.0)),
        ("ours-60s", Limit("gap", 0.004)),
        ("ours-60s", Limit("peak_bytes", 4 * GIB)),
    ),
    _physical("synthetic:2000x4096", "synthetic:2000", 512, ("ours-60s", Limit("first_plan_s", 60.0))),
)


def torchrec_cases(folder: Path) -> list[Instance]:
    """The instances of a folder of the form of `data/torchrec_cases`."""
    return [_torchrec_case(folder, case) for case in json.loads((folder / "cases.json").read_text())["cases"]]


def _torchrec_case(folder: Path, case: dict[str, Any]) -> Instance:
    def read(key: str) -> Any:
        return json.loads((folder / case[key]).read_text())

    return Instance(
        f"torchrec/{case['id']}",
        lambda: case_topology(read("topology")),
        lambda: case_workload(read("tables"), case["batch_per_rank"]),
        cost_model="torchrec",
        peers=(("TorchRec 1.8.0", case["torchrec_1.8.0"]["rating_ms"] / 1e3),),
        limits=(("ours-10s", Limit("gap", 0.03)),),
    )


def instances() -> dict[str, Instance]:
    """All instances by name; of NeuroShard's tasks the first of each kind."""
    tasks = [neuroshard.instance(devices, dim, 0, 0) for devices in neuroshard.DEVICES for dim in neuroshard.MAX_DIMS]
    every = [*torchrec_cases(SHIPPED_CASES), HUGECTR, *PHYSICAL, *tasks]
    return {instance.name: instance for instance in every}
