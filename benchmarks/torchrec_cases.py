"""TorchRec's own planner against ours under its own objective, on any folder of cases.

    python -m benchmarks.torchrec_cases [DIR] [--time-limit 10s] [--gap 0.02%] [--seed N] [--plans OUT] [--json]

A folder holds `cases.json` and the table sets and topologies that it names; the shipped one is
`benchmarks/data/torchrec_cases` (ten instances on which TorchRec 1.8.0's planner was run; its ratings are in the file).
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cost_models.torchrec.cases import case_topology, case_workload
from planner import api
from planner.document import Plan, write_plan
from topologies.cluster import Topology
from topologies.units import format_seconds, parse_fraction, parse_quantity

SHIPPED = Path(__file__).parent / "data" / "torchrec_cases"
HEADER = ("case", "rating", "bound", "gap", "time", "TorchRec", "its time", "ratio")


@dataclass(frozen=True)
class Result:
    """What one case gave; ratings in milliseconds, as TorchRec has them."""

    case: str
    tables: int
    ranks: int
    status: str
    rating_ms: float | None
    bound_ms: float | None
    gap: float | None
    seconds: float
    torchrec_rating_ms: float
    torchrec_seconds: float
    ratio: float | None
    """TorchRec's rating over ours."""


def run(folder: Path, time_limit_s: float, gap: float, seed: int, plans: Path | None) -> Iterator[Result]:
    """Plan every case of a folder, one after the other."""
    for case in json.loads((folder / "cases.json").read_text())["cases"]:
        cluster = case_topology(json.loads((folder / case["topology"]).read_text()))
        workload = case_workload(json.loads((folder / case["tables"]).read_text()), case["batch_per_rank"])
        began = time.perf_counter()
        plan = api.plan(cluster, workload, cost_model="torchrec", time_limit_s=time_limit_s, gap=gap, seed=seed)
        seconds = time.perf_counter() - began
        if plans is not None:
            plans.mkdir(parents=True, exist_ok=True)
            write_plan(plan, plans / f"{case['id']}.json")
        yield _result(case, plan, cluster, seconds)


def _result(case: dict[str, Any], plan: Plan, cluster: Topology, seconds: float) -> Result:
    theirs, objective = case["torchrec_1.8.0"], plan.objective
    return Result(
        case=case["id"],
        tables=len(plan.provenance.workload.content["tables"]),
        ranks=cluster.world_size,
        status=plan.status,
        rating_ms=objective.step_s * 1e3 if objective else None,
        bound_ms=objective.lower_bound_s * 1e3 if objective else None,
        gap=objective.gap if objective else None,
        seconds=seconds,
        torchrec_rating_ms=theirs["rating_ms"],
        torchrec_seconds=theirs["plan_s"],
        ratio=theirs["rating_ms"] / (objective.step_s * 1e3) if objective else None,
    )


def geometric_mean(results: list[Result]) -> float | None:
    """Of the ratios; None where a case has no plan."""
    ratios = [result.ratio for result in results]
    if not ratios or any(ratio is None for ratio in ratios):
        return None
    return math.exp(sum(math.log(ratio) for ratio in ratios if ratio) / len(ratios))


def main() -> None:
    """Run the cases and print what came out."""
    parser = argparse.ArgumentParser(description="TorchRec's planner against ours under TorchRec's own objective.")
    parser.add_argument("folder", nargs="?", type=Path, default=SHIPPED, metavar="DIR")
    parser.add_argument("--time-limit", default="10s", metavar="TIME", help="of each search (default 10s)")
    parser.add_argument("--gap", default="0.02%", metavar="SHARE", help="stop this close to the bound")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--plans", type=Path, metavar="OUT", help="write the plan documents here")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args()
    limit_s = parse_quantity(given.time_limit, "second", "10s")
    results = []
    if not given.json:
        print("{:<24}{:>12}{:>12}{:>8}{:>8}{:>12}{:>10}{:>7}".format(*HEADER))
    for result in run(given.folder, limit_s, parse_fraction(given.gap), given.seed, given.plans):
        results.append(result)
        if not given.json:
            print(_line(result), flush=True)
    mean = geometric_mean(results)
    if given.json:
        print(json.dumps({"cases": [asdict(result) for result in results], "geometric_mean_ratio": mean}, indent=1))
    elif mean is not None:
        print(f"geometric mean of TorchRec's rating over ours: {mean:.3f}")


def _line(result: Result) -> str:
    theirs = f"{format_seconds(result.torchrec_rating_ms / 1e3):>12}{result.torchrec_seconds:>8.1f} s"
    if result.rating_ms is None or result.bound_ms is None:
        return f"{result.case:<24}{result.status:>12}{'':>20}{result.seconds:>6.1f} s{theirs}"
    ours = f"{format_seconds(result.rating_ms / 1e3):>12}{format_seconds(result.bound_ms / 1e3):>12}{result.gap:>8.2%}"
    return f"{result.case:<24}{ours}{result.seconds:>6.1f} s{theirs}{result.ratio:>7.2f}"


if __name__ == "__main__":
    main()
