"""What the limits of the option space rest on: `python -m benchmarks.option_space [--json] [--part NAME]`.

Every question is searched with effort 1 over each set of cuts, whatever the planner would take: `blocks`, cuts by the
count of block types; `widths`, one table as wide as can be; `parts`, tables that may be cut into few parts, all of
whose partitions are options, or none. Seconds are of the processor, from the options to the end of the search.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from unittest import mock

from cost_models.step import StepModel
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner.formulation import option_space as space
from planner.formulation.allowed_choices import planning_model
from planner.formulation.option_space import EVERY_CUT, EVERY_CUT_IN_HBM, FEW_CUTS, Cuts
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.formulation.restrictions import restrictions
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from topologies.cluster import Topology
from topologies.loading import load_topology

CUTS = {"every": EVERY_CUT, "every in HBM": EVERY_CUT_IN_HBM, "few": FEW_CUTS}
QUESTIONS = (
    ("dgx-h100", 1, "criteo-kaggle"),
    ("dgx-h100", 1, "dlrm-dcnv2"),
    ("zionex-16", 16, "dlrm-dcnv2"),
    ("zionex-16", 16, "synthetic:100"),
    ("zionex-16", 16, "synthetic:400"),
)
"""Cluster, nodes, and workload."""
COLUMNS = (256, 512, 1024, 2048)
MAX_SHARDS = (2, 3, 4)
TABLES = 8
"""Tables in the questions about widths and parts."""


@dataclass(frozen=True)
class Row:
    """One search."""

    question: str
    space: str
    block_types: int
    seconds: float
    step_s: float | None
    bound_s: float | None

    @property
    def gap(self) -> float | None:
        """The relative distance of the step from the bound."""
        return None if self.step_s is None or not self.bound_s else self.step_s / self.bound_s - 1


def searched(question: str, words: str, cluster: Topology, workload: Workload, policy: Policy, cuts: Cuts) -> Row:
    """The search over one option space."""
    model, begin = planning_model(StepModel.name, cluster, workload, policy), time.process_time()
    options = enumerate_options(model, policy, cuts=cuts)
    found = solve(build_problem(model, options), SearchLimits(), restrictions=restrictions(options))
    took_s = time.process_time() - begin
    return Row(question, words, len(options.block_option), took_s, found.step_s, found.bound_s)


def of_blocks() -> Iterator[Row]:
    """Each question with ever fewer cuts."""
    for cluster, nodes, name in QUESTIONS:
        for words, cuts in CUTS.items():
            where, what = load_topology(cluster, nodes=nodes), load_workload(name)
            yield searched(f"{name} on {cluster}, {nodes} nodes", words, where, what, Policy(), cuts)


def of_widths() -> Iterator[Row]:
    """One table of so many columns beside narrow ones, in HBM."""
    for columns in COLUMNS:
        trained = tables_of(columns)
        for words in ("every", "few"):
            where, policy = load_topology("dgx-h100"), Policy(tiers=("hbm",))
            yield searched(f"one table of {columns} columns", words, where, trained, policy, CUTS[words])


def of_parts() -> Iterator[Row]:
    """Tables of 128 columns in at most so many parts."""
    for most in MAX_SHARDS:
        for words, listed in (("partitions", sys.maxsize - 2), ("widths", 0)):
            with mock.patch.object(space, "MOST_PARTITIONS", listed):
                policy = Policy(tiers=("hbm",), max_shards=most)
                yield searched(
                    f"at most {most} parts", words, load_topology("dgx-h100"), tables_of(128), policy, EVERY_CUT
                )


def tables_of(columns: int) -> Workload:
    """Tables of 128 columns, the first of so many, of very unlike sizes and lookups."""
    tables = [
        {
            "name": f"t{at}",
            "rows": 50_000 * 3**at,
            "dim": 128 if at else columns,
            "pooling_factor": 1 + 40 * (at % 3),
            "zipf_alpha": 0.0,
        }
        for at in range(TABLES)
    ]
    return Workload.model_validate({"name": "wide", "global_batch": 65_536, "tables": tables})


PARTS = {"blocks": of_blocks, "widths": of_widths, "parts": of_parts}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.option_space", description="The option space.")
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated; unset: all")
    parser.add_argument("--json", action="store_true", help="one JSON list")
    wanted = parser.parse_args()
    rows = (row for part in wanted.part or PARTS for row in PARTS[part]())
    if wanted.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    print(f"{'question':36}{'space':>14}{'block types':>13}{'seconds':>9}{'step':>12}{'bound':>12}{'gap':>9}")
    for row in rows:
        step, bound = (("none" if x is None else f"{x * 1e3:.4f}") for x in (row.step_s, row.bound_s))
        gap = "" if row.gap is None else f"{row.gap:.2%}"
        print(
            f"{row.question:36}{row.space:>14}{row.block_types:13,}{row.seconds:9.1f}{step:>12}{bound:>12}{gap:>9}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
