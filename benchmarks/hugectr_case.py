"""HugeCTR's planner against ours under its own rating: MLPerf DLRM-DCNv2 on 8 GPUs.

    python -m benchmarks.hugectr_case [--time-limit 10s] [--gap 0.02%] [--seed N] [--plan FILE] [--json]

60 GB per GPU, memory to communication bandwidth 7, tables below 8 MB replicated, as the submissions to MLPerf Training
v3.1 and v4.0 have it. Their logs print the plan that HugeCTR made, at 29.5; running its planner again gives 29.0.
"""

import argparse
import json
import time
from pathlib import Path

from planner import api
from planner.document import write_plan
from topologies.cluster import Topology
from topologies.loading import load_topology
from topologies.units import parse_fraction, parse_quantity

WORKLOAD = "dlrm-dcnv2"
PUBLISHED, RERUN = 29.5, 29.0
RATIO, CAPACITY_GB = 7, 60


def case_topology() -> Topology:
    """A DGX H100 with the numbers that the submissions gave to the planner instead of the data sheet's."""
    link_gb_per_s = 450
    return load_topology(
        "dgx-h100",
        overrides=[
            f"nodes.0.accelerators.hbm.capacity={CAPACITY_GB}GB",
            f"nodes.0.accelerators.hbm.bandwidth={RATIO * link_gb_per_s}GB/s",
            f"nodes.0.links.scale_up.bandwidth={link_gb_per_s}GB/s",
            "nodes.0.reserve.hbm=0%",
        ],
    )


def main() -> None:
    """Plan the case and print what came out."""
    parser = argparse.ArgumentParser(description="HugeCTR's planner against ours under HugeCTR's own rating.")
    parser.add_argument("--time-limit", default="10s", metavar="TIME", help="of the search (default 10s)")
    parser.add_argument("--gap", default="0.02%", metavar="SHARE", help="stop this close to the bound")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="write the plan document here")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args()
    began = time.perf_counter()
    plan = api.plan(
        case_topology(),
        WORKLOAD,
        cost_model="hugectr",
        time_limit_s=parse_quantity(given.time_limit, "second", "10s"),
        gap=parse_fraction(given.gap),
        seed=given.seed,
    )
    seconds = time.perf_counter() - began
    if given.plan is not None:
        write_plan(plan, given.plan)
    objective = plan.objective
    result = {
        "case": "mlperf_dlrm_dcnv2_8gpus_60gb_ratio7",
        "status": plan.status,
        "rating": objective.step_s if objective else None,
        "bound": objective.lower_bound_s if objective else None,
        "gap": objective.gap if objective else None,
        "seconds": seconds,
        "hugectr_published": PUBLISHED,
        "hugectr_rerun": RERUN,
    }
    if given.json:
        print(json.dumps(result, indent=1))
    elif objective is None:
        print(plan.status)
    else:
        print(f"rating {objective.step_s:.3f}, bound {objective.lower_bound_s:.3f}, gap {objective.gap:.2%}", end="")
        print(f", {seconds:.1f} s; HugeCTR's planner: {PUBLISHED} published, {RERUN} when run again")


if __name__ == "__main__":
    main()
