"""`python -m benchmarks.validation.questions [--count 100] [--first 0] [--without-overhead]`: random questions, planned
by the search of `--effort 0`, estimated and simulated.

One node group of 1 to 8 nodes of 1 to 8 ranks; links, cards, switches, memories, tables, formats, dense part, pipeline,
runtime and shardings follow from a question's number. A line for each that is more than a twentieth apart, with the
stage that makes the difference; then how many are. Exits with 1 where a step is simulated more than a tenth longer.
"""

import argparse
from dataclasses import dataclass
from random import Random
from typing import Any

from cost_models.shards import Sharding
from cost_models.workload.models import Workload
from planner import plan
from planner.diagnosis.drift import DRIFTED, drift, stage_drift
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology

SHOWN = 0.05
SHARDINGS: tuple[tuple[Sharding, ...] | None, ...] = (
    None,
    None,
    None,
    ("table_wise",),
    ("column_wise",),
    ("row_wise",),
    ("table_row_wise", "table_wise"),
    ("data_parallel",),
    ("table_column_wise",),
    ("grid_shard", "row_wise"),
)
"""What a policy allows; None stands for all."""


@dataclass(frozen=True)
class Question:
    """A cluster, a workload and the shardings that a plan may use."""

    cluster: Topology
    workload: Workload
    shardings: tuple[Sharding, ...] | None

    def planned(self) -> Plan:
        """The plan of the search of `--effort 0`, simulated; without an objective where none fits."""
        policy = None if self.shardings is None else Policy(shardings=self.shardings)
        return plan(self.cluster, self.workload, policy=policy, effort=0)

    @property
    def words(self) -> str:
        """Its size and what it is run with."""
        group, asked = self.cluster.nodes[0], self.workload
        of_levels = "".join(f", {each.nodes} nodes below a switch" for each in self.cluster.network.levels)
        size = f"{group.count} x {group.accelerators.count}{of_levels}, {len(asked.tables)} tables"
        allowed = "all shardings" if self.shardings is None else ", ".join(self.shardings)
        return f"{size}, {asked.software}, {asked.pipeline}, {asked.mode}, {allowed}"


def question(number: int, *, without_overhead: bool = False) -> Question:
    """The question of a number."""
    random = Random(f"question {number}")  # of a word: integers close to each other draw alike
    cluster = _cluster(random)
    asked = _workload(random, cluster.world_size)
    if without_overhead:
        asked["overhead"] = "0us"
    tables = asked.pop("tables")
    return Question(cluster, workload(tables, **asked), random.choice(SHARDINGS))


def _cluster(random: Random) -> Topology:
    """Two ranks or more."""
    nodes, ranks = 1, 1
    while nodes * ranks < 2:
        nodes, ranks = random.choice([1, 1, 2, 2, 3, 4, 5, 6, 8]), random.choice([1, 2, 2, 4, 4, 8])
    group: dict[str, Any] = node_group(
        "a",
        nodes=nodes,
        ranks=ranks,
        cards=random.choice([ranks, ranks, 1]),
        hbm_bytes=random.choice([2e9, 8e9, 40e9]),
        hbm_bytes_per_s=random.choice([0.9e12, 1.5e12, 3.3e12]),
        ddr_bytes=random.choice([None, 100e9, 400e9]),
        ssd_bytes=random.choice([None, None, 2e12]),
        scm_bytes=random.choice([None, None, None, 800e9]),
        ranks_per_switch=random.choice([1, 1, 2]) if ranks % 2 == 0 else 1,
        has_scale_up=random.random() < 0.75,
        nic_bytes_per_s=random.choice([3.125e9, 12.5e9, 25e9, 50e9]),
        cards_over_pcie=random.random() < 0.6,
    )
    group["links"]["scale_out"]["kind"] = random.choice(["roce", "infiniband", "ethernet"])
    below = [each for each in range(1, nodes) if nodes % each == 0]
    levels = [(random.choice(below), random.choice([1.5, 2.0, 4.0]))] if nodes > 2 and random.random() < 0.3 else []
    return topology(group, levels=levels)


def _workload(random: Random, ranks: int) -> dict[str, Any]:
    """2 to 30 tables, and their job."""
    software = random.choice(["torchrec", "torchrec", "hugectr", "distributed-embeddings"])
    dense: dict[str, Any] = {
        "macs_per_sample": int(10 ** random.uniform(4, 7.7)),
        "parameters": int(10 ** random.uniform(3, 7.5)),
    }
    if random.random() < 0.5:
        top = [random.choice([128, 256, 512, 1024]) for _ in range(random.randint(1, 3))]
        dense = {"numerical_features": 13, "bottom_mlp": [random.choice([64, 256, 512]), 64], "top_mlp": [*top, 1]}
    return {
        "tables": [
            {
                "rows": int(10 ** random.uniform(2, 7.3)),
                "dim": random.choice([16, 32, 64, 128, 256]),
                "pooling_factor": float(random.choice([1, 2, 8, 20, 50])),
                "zipf_alpha": random.choice([0.0, 0.8, 1.05, 1.2]),
            }
            for _ in range(random.choice([2, 4, 8, 12, 20, 30]))
        ],
        "global_batch": ranks * random.choice([128, 512, 2048, 8192]),
        "pipeline": random.choice(["none", "sparse-dist", "prefetch"]),
        "software": software,
        "mode": random.choice(["training"] * 5 + ["inference"]),
        "communication": {name: random.choice(["fp32", "fp16"]) for name in ("forward", "backward")},
        "embedding": {
            "dtype": "fp32" if software == "hugectr" else random.choice(["fp32", "fp16"]),
            "optimizer": random.choice(["sgd", "adagrad", "rowwise_adagrad", "adam"]),
        },
        "dense": dense,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validation.questions", description="Random questions.")
    parser.add_argument("--count", type=int, default=100, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first question")
    parser.add_argument("--without-overhead", action="store_true", help="steps without the host's fixed overhead")
    wanted = parser.parse_args()
    differences = list[float]()
    for number in range(wanted.first, wanted.first + wanted.count):
        asked = question(number, without_overhead=wanted.without_overhead)
        planned = asked.planned()
        if planned.objective is None:
            continue
        differences.append(drift(planned))
        if abs(differences[-1]) > SHOWN:
            most, step_s = stage_drift(planned), planned.objective.step_s
            where = f"{most.stage} {most.estimated_s * 1e3:.2f} ms, {most.played_s * 1e3:.2f} on the critical path"
            shown = f"{differences[-1]:+.1%} of {step_s * 1e3:.2f} ms: {where}"
            print(f"{number}: {shown}; {asked.words}", flush=True)
    longer = sum(each > DRIFTED for each in differences)
    shorter, beyond = sum(each < -DRIFTED for each in differences), sum(abs(each) > SHOWN for each in differences)
    print(
        f"{len(differences)} of {wanted.count} questions have a plan: {longer} are simulated more than a tenth longer,"
        f" {shorter} shorter; {beyond} are more than a twentieth apart"
    )
    return 1 if longer else 0


if __name__ == "__main__":
    raise SystemExit(main())
