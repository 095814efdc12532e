"""HugeCTR's plans for some nodes beside ours: MLPerf DLRM-DCNv2, what its planner makes for each number of nodes.

    python -m benchmarks.hugectr_nodes [--topology NAME] [--nodes N,N,...] [--global-batch N] [--effort N] [--json]
                                       [--check]

Its planner deals tables out to nodes (`hier_auto`) and cuts the rows of a hot table over 2, 4, 8, ... of them, or of
the GPUs of a single one, or of nodes that are one scale-up domain (`--topology gb200-nvl72`). Each of its plans is held
against the options that our bound covers, against that bound, and against our plan for HugeCTR. Submissions to MLPerf
train with batches of 55,296 on one node or two, and of 135,168 on 8 nodes or more; the workload's own is 65,536.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.accuracy.mlperf import WORKLOAD, Held, rebuilt
from cost_models.workload.loading import load_workload
from planner import plan
from planner.document.plan import Plan
from planner.document.planned import placed_tables
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.policy import Policy, offered
from planner.importers.adoption import AdoptedTable, AdoptionInputs, costed
from planner.importers.hugectr import hugectr_tables
from planner.verification.verify import outside_options
from topologies.cluster import Topology
from topologies.loading import load_topology

NODES = tuple(range(1, 17))
SETTINGS = ("3.0", "4.0")
"""Rounds of MLPerf Training whose submissions set its planner up in different ways."""


@dataclass(frozen=True)
class Pair:
    """A plan of HugeCTR's planner beside our bound and our plan."""

    topology: str
    nodes: int
    batch: int
    settings: str
    ways: dict[str, int]
    """Tables of each sharding of its plan."""
    outside: dict[str, str]
    """Tables that are held in a way that the bound does not cover."""
    theirs_s: float
    ours_s: float
    bound_s: float

    @property
    def holds(self) -> bool:
        """Whether its plan is one of our options, not below our bound, and not faster than ours."""
        return not self.outside and self.bound_s <= self.theirs_s * (1 + 1e-9) and self.ours_s <= self.theirs_s

    @property
    def line(self) -> str:
        """What is printed of it."""
        ways = ", ".join(f"{count} {sharding}" for sharding, count in sorted(self.ways.items()))
        return (
            f"{self.topology} x {self.nodes:2}, batch {self.batch:,}, as in v{self.settings}: theirs"
            f" {self.theirs_s * 1e3:.4f} ms, ours {self.ours_s * 1e3:.4f}, bound {self.bound_s * 1e3:.4f}; {ways};"
            f" outside: {self.outside or 'none'}"
        )


def pairs(name: str, nodes: int, effort: int, batch: int | None = None) -> Iterator[Pair]:
    """Its plan under each setting, for so many nodes of a topology, and a batch where it is not the workload's own."""
    topology = load_topology(name, nodes=nodes)
    workload = load_workload(WORKLOAD) if batch is None else load_workload(WORKLOAD, global_batch=batch)
    policy = offered(Policy(runtime="hugectr"), topology, "physical")
    inputs = AdoptionInputs(topology, workload, "physical", policy)
    ours = plan(topology, workload, policy=policy, effort=effort, simulate=False)
    assert ours.objective is not None
    for settings in SETTINGS:
        theirs = hugectr_tables(sharding_of(rebuilt(topology, settings), topology), inputs, WORKLOAD)
        yield _pair(inputs, theirs, ours, settings)


def sharding_of(held: Held, topology: Topology) -> dict[str, Any]:
    """A plan as its samples write it: the tables of each GPU, by number."""
    each = held.group_ranks
    matrix = [[*held.groups[rank // each], *held.replicated] for rank in range(topology.world_size)]
    parallel = sorted({table for group in held.groups for table in group} - held.replicated)
    return {"shard_matrix": matrix, "shard_strategy": [["mp", parallel], ["dp", sorted(held.replicated)]]}


def _pair(inputs: AdoptionInputs, theirs: list[AdoptedTable], ours: Plan, settings: str) -> Pair:
    assert ours.objective is not None
    tables = costed(theirs, inputs, WORKLOAD)
    outside = outside_options(
        ours.model_copy(update={"tables": tables}), inputs.model, allowed_choices(inputs.model, inputs.policy)
    )
    placed = placed_tables(tables)
    return Pair(
        inputs.topology.name,
        inputs.topology.node_count,
        round(inputs.workload.batch(inputs.topology.world_size)),
        settings,
        dict(Counter(table.sharding for table in theirs)),
        outside,
        inputs.model.linearised_at(placed).evaluate(placed).step_s,
        ours.objective.step_s,
        ours.objective.lower_bound_s,
    )


def main() -> int:
    """Print a line for each number of nodes and setting."""
    parser = argparse.ArgumentParser(description="HugeCTR's plans for some nodes beside ours.")
    parser.add_argument("--topology", default="dgx-h100", metavar="NAME", help="nodes of this one (default dgx-h100)")
    parser.add_argument("--nodes", default=",".join(map(str, NODES)), metavar="N,N,...", help="default 1 to 16")
    parser.add_argument("--global-batch", type=int, metavar="N", help="samples a step (default: the workload's)")
    parser.add_argument("--effort", type=int, default=1, metavar="N", help="passes of our search (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--check", action="store_true", help="exit with 1 where one of its plans is outside or better")
    given = parser.parse_args()
    found = []
    for nodes in given.nodes.split(","):
        for pair in pairs(given.topology, int(nodes), given.effort, given.global_batch):
            found.append(pair)
            if not given.json:
                print(pair.line, flush=True)
    if given.json:
        print(json.dumps([asdict(pair) for pair in found], indent=1))
    return int(given.check and not all(pair.holds for pair in found))


if __name__ == "__main__":
    sys.exit(main())
