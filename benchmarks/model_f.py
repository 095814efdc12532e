"""Neo's Model-F, 12 T parameters, on 16 ZionEX nodes: `python -m benchmarks.model_f [--json]`.

Neo measured 1.7 million samples per second (arXiv:2104.05158). Beside it: plans with fewer tiers, with another skew
of the ids (how often rows repeat is not published; the workload assumes a power law of exponent 1.05, near the one
under which Meta's public tables would have as many distinct ids as they have), and what the step would be if nothing
waited for host memory.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from cost_models.power_laws import unique_rows
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner import plan
from planner.document.plan import Plan
from topologies.loading import load_topology

CLUSTER, MODEL = "zionex-16", "model-f"
PUBLISHED_QPS = 1.7e6
ALPHAS = (0.0, 0.6, 0.8, 0.9, 1.05)
TIERS = (("hbm",), ("hbm", "ddr_cached"), ("hbm", "ddr_cached", "ddr"), ("hbm", "ddr_cached", "ddr", "ssd_cached"))
PUBLIC_TABLES = Path(__file__).parent / "data" / "meta_t856_rows.json"
ROOMY = "nodes.0.accelerators.hbm.capacity=400GB"
"""An accelerator that would hold its part of everything."""
LOOKUP = ("cache_fetch", "lookup_forward", "lookup_backward")


@dataclass(frozen=True)
class Row:
    """One plan."""

    case: str
    status: str
    step_s: float | None = None
    simulated_s: float | None = None
    samples_per_s: float | None = None
    of_published: float | None = None


def row(case: str, found: Plan, samples: float) -> Row:
    """A line of the table."""
    if found.objective is None or found.simulated is None:
        return Row(case, found.status)
    rate = samples / found.objective.step_s
    return Row(case, found.status, found.objective.step_s, found.simulated.step_s, rate, rate / PUBLISHED_QPS)


def with_skew(workload: Workload, alpha: float) -> Workload:
    """The same tables under another power law."""
    tables = tuple(table.model_copy(update={"zipf_alpha": alpha}) for table in workload.tables)
    return workload.model_copy(update={"tables": tables})


def skew_of_public_tables() -> float:
    """The exponent under which the tables of `data/meta_t856_rows.json` have its distinct ids, all read as often."""
    told = json.loads(PUBLIC_TABLES.read_text())
    rows = np.array([count for count in told["rows"] if count > 1], dtype=float)
    lookups = told["ids"] / len(rows)
    return float(brentq(lambda alpha: unique_rows(rows, alpha, lookups).sum() - told["distinct_ids"], 0.5, 1.5))


def rows() -> Iterator[Row]:
    """All lines."""
    workload, cluster = load_workload(MODEL), load_topology(CLUSTER)
    samples = workload.batch(cluster.world_size)
    for tiers in TIERS:
        yield row(" + ".join(tiers), plan(cluster, workload, tiers=tiers), samples)
    for alpha in ALPHAS[:-1]:
        yield row(f"all tiers, power law {alpha}", plan(cluster, with_skew(workload, alpha)), samples)
    roomy = plan(load_topology(CLUSTER, overrides=[ROOMY]), workload)
    yield row("everything in HBM", roomy, samples)
    seconds = {stage.name: stage.seconds for stage in roomy.stages}
    without = sum(seconds.values()) - seconds["overhead"]
    looked_up = sum(seconds.get(name, 0.0) for name in LOOKUP)
    for case, step_s in (("the same, no fixed overhead", without), ("the same, lookups alone", looked_up)):
        yield Row(case, "", step_s, None, samples / step_s, samples / step_s / PUBLISHED_QPS)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.model_f", description="Neo's Model-F.")
    parser.add_argument("--json", action="store_true", help="one JSON list")
    wanted = parser.parse_args()
    if wanted.json:
        print(json.dumps([asdict(each) for each in rows()], indent=1))
        return 0
    print(f"Meta's public tables: power law {skew_of_public_tables():.2f}")
    print(f"{'':36}{'step':>9}{'simulated':>11}{'samples/s':>12}{'x published':>13}")
    for each in rows():
        if each.step_s is None or each.samples_per_s is None:
            print(f"{each.case:36}{each.status:>9}")
            continue
        played = "" if each.simulated_s is None else f"{each.simulated_s * 1e3:.2f}"
        print(
            f"{each.case:36}{each.step_s * 1e3:9.2f}{played:>11}{each.samples_per_s / 1e6:10.2f} M"
            f"{each.of_published or 0.0:13.2f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
