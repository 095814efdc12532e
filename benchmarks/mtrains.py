"""Fewer nodes with more memories: `python -m benchmarks.mtrains [--targets 3e5,1e6,…] [--json] [--check]`.

MTrainS (Kassa et al., arXiv:2305.01515) trains models that need many nodes for their memory alone on 4 to 8 times
fewer, with storage-class memory and drives in the nodes. Here Neo's Model-F, 12 T parameters, on ZionEX nodes with HBM
only, then with DDR, byte-addressable memory and drives added one after the other: the fewest nodes that reach a
throughput, by the estimate. Below a factor of 4 the line says what holds up the next smaller cluster.

What the nodes have is the catalog's (`zionex-16-scm`). The paper does not say which cluster its factor counts from, so
both are given: nodes with HBM alone, and nodes with HBM and DDR, as Neo's are.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from cost_models.shards import HOME_OF_TIER, MemoryTier
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner.capacity.sizing import Sizing, size
from planner.formulation.policy import Policy
from topologies.cluster import Topology
from topologies.loading import load_topology

CLUSTER, MODEL = "zionex-16-scm", "model-f"
TARGETS = (1e5, 3e5, 1e6, 2e6, 4e6)
"""Samples per second; Neo reached 1.7 million on 16 nodes."""
MEMORIES: tuple[MemoryTier, ...] = ("hbm", "ddr", "scm", "ssd")
MOST_NODES = 256
CLAIM = 4.0


@dataclass(frozen=True)
class Row:
    """The fewest nodes with some memories for one target."""

    target: float
    memories: str
    nodes: int | None
    """None: no size does, up to MOST_NODES."""
    factor: float | None
    """Nodes with HBM alone over these."""
    factor_of_ddr: float | None
    """Nodes with HBM and DDR over these."""
    samples_per_s: float | None
    simulated: float | None
    held_up_by: str
    """Why one size less does not do."""


def rows(
    topology: Topology, workload: Workload, targets: Sequence[float], most_nodes: int = MOST_NODES, effort: int = 0
) -> Iterator[Row]:
    """Target by target, memory by memory."""
    for target in targets:
        fewer: Row | None = None
        alone: int | None = None
        with_ddr: int | None = None
        for count in range(1, len(MEMORIES) + 1):
            there = MEMORIES[:count]
            tiers = tuple(tier for tier in Policy().tiers if HOME_OF_TIER[tier] in there)
            (found,) = size(
                topology,
                workload,
                target_samples_per_s=target,
                max_nodes=most_nodes if fewer is None or fewer.nodes is None else fewer.nodes,
                policy=Policy(tiers=tiers),
                each_tier=False,
                effort=effort,
            )
            alone = found.answer.nodes if found.answer and count == 1 else alone
            fewer = _row(found, fewer, target, " + ".join(there), alone)
            with_ddr = fewer.nodes if count == 2 else with_ddr
            of_ddr = None if with_ddr is None or fewer.nodes is None else with_ddr / fewer.nodes
            fewer = replace(fewer, factor_of_ddr=of_ddr)
            yield fewer


def _row(found: Sizing, fewer: Row | None, target: float, memories: str, alone: int | None) -> Row:
    """The row of a size that was found, or that of `fewer` memories, which is still enough."""
    if found.answer is None or found.plan is None:
        none = Row(target, memories, None, None, None, None, None, held_up_by(found))
        return none if fewer is None or fewer.nodes is None else replace(fewer, memories=memories)
    nodes, played = found.answer.nodes, found.plan.simulated
    return Row(
        target,
        memories,
        nodes,
        None if alone is None else alone / nodes,
        None,
        found.answer.samples_per_s,
        None if played is None else played.samples_per_s,
        held_up_by(found),
    )


def held_up_by(found: Sizing) -> str:
    """The reason against the largest size below the answer; of all, where there is none, or against any size."""
    smaller = [one for one in found.candidates if found.answer is None or one.nodes < found.answer.nodes]
    reasons = (f"{one.nodes} nodes: {one.reason}" for one in reversed(smaller) if one.reason)
    return next(reasons, "; ".join(found.notes) if found.answer is None else "")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mtrains", description="Fewer nodes with more memories.")
    parser.add_argument("--targets", default=",".join(f"{target:g}" for target in TARGETS), help="samples per second")
    parser.add_argument("--effort", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON list")
    parser.add_argument("--check", action="store_true", help="exit with 1 if no target needs 4 times fewer nodes")
    wanted = parser.parse_args()
    targets = [float(word) for word in wanted.targets.split(",")]
    found = []
    if not wanted.json:
        print(f"{'samples/s':>10}  {'memories':24}{'nodes':>6}{'x HBM':>7}{'x DDR':>7}{'reached':>12}{'simulated':>12}")
    for row in rows(load_topology(CLUSTER), load_workload(MODEL), targets, effort=wanted.effort):
        found.append(row)
        if wanted.json:
            continue
        nodes = "none" if row.nodes is None else str(row.nodes)
        factors = "".join(f"{'' if x is None else f'{x:.1f}':>7}" for x in (row.factor, row.factor_of_ddr))
        rates = "".join(f"{'' if rate is None else f'{rate:,.0f}':>12}" for rate in (row.samples_per_s, row.simulated))
        print(f"{row.target:10,.0f}  {row.memories:24}{nodes:>6}{factors}{rates}", flush=True)
        is_full = row.memories.endswith(MEMORIES[-1])
        if is_full and (row.factor is None or row.factor < CLAIM):
            print(f"{'':12}less than {CLAIM:g} times: {row.held_up_by}", flush=True)
    if wanted.json:
        print(json.dumps([asdict(each) for each in found], indent=1))
    best = max((row.factor for row in found if row.factor is not None), default=0.0)
    return int(wanted.check and best < CLAIM)


if __name__ == "__main__":
    sys.exit(main())
