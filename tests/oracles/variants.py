"""The best choice of variants within a budget, by trying every one: each as a workload and a policy that state it."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from cost_models.workload.models import Workload
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.formulation.seconds_at_lines import at_lines
from tests.oracles.brute_force import optimum
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology

WORDS = (
    *("hash:2", "hash:8", "qr:4", "qr:4:add", "qr:8:concat", "dim:4"),
    *("dim:4+fp16", "fp16", "hash:4+fp16", "qr:3+fp16"),
)
LIMITS: dict[str, object] = {"tiers": ["hbm"], "shardings": ["table_wise", "data_parallel"]}
Loss = dict[str, object]


def instance(seed: int) -> tuple[Topology, Workload, list[Loss], float]:
    """Two ranks whose HBM holds everything or nearly half of it, two or three tables with two variants each beside
    themselves, and a budget."""
    random = np.random.default_rng(seed)
    tables = [
        {
            "name": f"t{i}",
            "rows": int(random.integers(1000, 200_000)),
            "dim": int(random.choice([8, 16, 24])),
            "pooling_factor": float(random.integers(1, 40)),
            "zipf_alpha": float(random.choice([0.0, 0.8, 1.1])),
        }
        for i in range(int(random.integers(2, 4)))
    ]
    losses: list[Loss] = [
        {"table": table["name"], "variant": word, "loss": int(random.integers(1, 10)) / 10}
        for table in tables
        for word in random.choice(WORDS, size=2, replace=False).tolist()
    ]
    budget = int(random.integers(0, 12)) / 10
    size = sum(int(str(table["rows"])) * int(str(table["dim"])) * 4 for table in tables)
    hbm_bytes = float(random.choice([2e9, 0.4 * size + 30e6]))
    cluster = topology(node_group("a", ranks=2, hbm_bytes=hbm_bytes, ddr_bytes=None))
    return cluster, workload(tables, name=f"variants {seed}"), losses, budget


def best_s(cluster: Topology, stated: Workload, losses: Sequence[Loss], budget: float) -> float | None:
    """The shortest step of all choices within the budget; None where none fits."""
    steps = [
        step_s for chosen, policy in _choices(stated, losses, budget) for step_s in _optima(cluster, chosen, policy)
    ]
    return min(steps, default=None)


def _choices(stated: Workload, losses: Sequence[Loss], budget: float) -> Iterator[tuple[Workload, Policy]]:
    of_table = [
        [
            ("none", 0.0),
            *((str(row["variant"]), float(str(row["loss"]))) for row in losses if row["table"] == table.name),
        ]
        for table in stated.tables
    ]
    for choice in itertools.product(*of_table):
        if sum(loss for _, loss in choice) > budget + 1e-9:
            continue
        tables, rules = [], []
        for table, (word, _) in zip(stated.tables, choice, strict=True):
            compressor = [part for part in word.split("+") if ":" in part]
            formats = [part for part in word.split("+") if ":" not in part and part != "none"]
            tables.append(table.model_dump(exclude_defaults=True) | {"compressor": (compressor or ["none"])[0]})
            rules += [{"match": table.name, "dtypes": formats}] if formats else []
        data = stated.model_dump(exclude_defaults=True) | {"tables": tables}
        yield Workload.model_validate(data), Policy.model_validate({**LIMITS, "tables": rules})


def _optima(cluster: Topology, chosen: Workload, policy: Policy) -> Iterator[float]:
    """At each line of the laws of exchanges, where something fits."""
    model = planning_model("physical", cluster, chosen, policy)
    options = enumerate_options(model, policy)
    problem = build_problem(model, options)
    for protocols in model.all_protocols:
        found = optimum(at_lines(problem, model.at_protocols(protocols), options, model.protocols))
        if found is not None:
            yield found.step_s
