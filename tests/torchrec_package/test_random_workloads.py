"""Random workloads, planned by us and trained by TorchRec over gloo, equal the unsharded model."""

import numpy as np
import pytest
import torch

from benchmarks.gloo.model import first_weights
from benchmarks.gloo.processes import Processes
from benchmarks.gloo.training import train, unsharded
from cost_models.shards import USUAL_SHARDINGS
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.exporters.torchrec import torchrec_plan
from planner.formulation.policy import Policy
from planner.formulation.runtimes import RUNTIMES
from planner.planning.planning import plan
from topologies.loading import load_topology

SEEDS, LOCAL, BATCH, STEPS = range(25), 2, 6, 3
SEQUENCES = [way for way in USUAL_SHARDINGS if way not in (*RUNTIMES["torchrec"].pooled_only, "data_parallel")]
"""Of tables that are not pooled, on CPU."""


def world_of(seed: int) -> int:
    """Ranks of a workload: 2, or 4 in two nodes."""
    return 2 if seed < 12 else 4


def random_workload(seed: int) -> Workload:
    """8 to 40 tables in up to three collections (bags, weighted bags, sequences) whose tables share names."""
    draw = np.random.default_rng(seed)
    counts = {
        "bags": int(draw.integers(4, 21)),
        "weighted": int(draw.integers(2, 11)),
        "sequences": int(draw.integers(2, 10)),
    }
    tables = [
        {
            "name": f"{module}.t{i}",
            "rows": int(draw.choice([7, 10, 17, 50, 101, 400])),
            "dim": 16 if module == "sequences" else int(4 * draw.integers(4, 17)),
            "features": [f"{module}_{i}_{f}" for f in range(draw.integers(1, 3))],
            "pooling_factor": int(draw.integers(1, 5)),
            "weighted": module == "weighted",
            "pooled": module != "sequences",
        }
        for module, count in counts.items()
        for i in range(count)
    ]
    return Workload.model_validate({"name": f"random {seed}", "batch_per_rank": BATCH, "tables": tables})


def planned(seed: int) -> tuple[Workload, Plan]:
    """With all ways free, or in every second workload one to three for each table, so that all of them mix."""
    workload, draw = random_workload(seed), np.random.default_rng(1000 + seed)
    rules = []
    for table in workload.tables:
        legal = list(USUAL_SHARDINGS) if table.pooled else SEQUENCES
        ways = draw.choice(legal, size=draw.integers(1, 4), replace=False).tolist() if seed % 2 else legal
        rules.append({"match": table.name, "shardings": ways})
    overrides = [f"nodes.0.accelerators.count={LOCAL}", f"nodes.0.links.scale_out.count={LOCAL}"]
    overrides += ["nodes.0.links.pcie.accelerators_per_switch=1"]
    cluster = load_topology("dgx-a100-80", nodes=world_of(seed) // LOCAL, overrides=overrides)
    policy = Policy.model_validate({"runtime": "torchrec", "tables": rules})
    return workload, plan(cluster, workload, policy=policy, effort=0, simulate=False)


@pytest.fixture(scope="module")
def ways() -> dict[int, set[str]]:
    """The shardings that were trained, by the number of ranks."""
    return {2: set(), 4: set()}


@pytest.mark.parametrize("ranks", ["two_ranks", "four_ranks"])
def test_training_equals_the_unsharded_model(
    ranks: str, request: pytest.FixtureRequest, ways: dict[int, set[str]]
) -> None:
    """Losses, vectors and weights of random workloads; every sharding is among the plans of either number of ranks."""
    torch.set_num_threads(1)
    processes: Processes = request.getfixturevalue(ranks)
    world = processes.world
    for seed in (seed for seed in SEEDS if world_of(seed) == world):
        workload, found = planned(seed)
        file = torchrec_plan(found, compute_device="cpu")
        ways[world] |= {table.sharding for table in found.tables}
        ours = processes.run(train, workload.model_dump_json(), file, BATCH, STEPS)[0]
        expected = unsharded(workload, world, BATCH, STEPS)
        for mine, theirs in (
            (ours.losses, expected.losses),
            (ours.vectors, expected.vectors),
            (ours.weights, expected.weights),
        ):
            torch.testing.assert_close(
                mine, theirs, rtol=1e-5, atol=1e-5, msg=lambda words, s=seed: f"seed {s}: {words}"
            )
        before = first_weights(workload)
        assert all(float((before[name] - value).abs().max()) > 1e-4 for name, value in expected.weights.items())
    assert ways[world] == set(USUAL_SHARDINGS)
