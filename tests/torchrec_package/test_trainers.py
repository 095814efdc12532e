"""Trainers of every kind of module learn the same by our plan as by that of TorchRec's planner."""

from collections.abc import Mapping
from typing import Any

import pytest
from trainers import NAMES, OPTIMIZERS, PLANNERS, Run, train

from benchmarks.gloo.processes import Processes

STEPS = 12
BY_ROWS, IN_NODE, BY_COLUMNS, _, _, REPLICATED = NAMES
ROWS_CUT = ["table_wise", "row_wise", "table_row_wise"]
"""Shardings with whole rows: row-wise Adagrad has one state for the columns of a shard, so it learns otherwise where
columns are cut."""
Constraints = Mapping[str, Mapping[str, Any]]


def constraints_of(kind: str, optimizer: str) -> Constraints:
    """Such that every planner replicates one table, and cuts some by rows or columns where CPUs can."""
    if kind == "managed":  # TorchRec's planner has no bandwidth of its own for other kernels on CPUs
        return {name: {"compute_kernels": ["fused"]} for name in NAMES}
    replicated = {"sharding_types": ["data_parallel"]}
    if optimizer == "adam":  # of which there is no fused kernel on CPUs
        return dict.fromkeys(NAMES, replicated)
    found: dict[str, dict[str, Any]] = {
        name: {"sharding_types": ROWS_CUT, "compute_kernels": ["fused"], "pooling_factors": [2.5]} for name in NAMES
    }
    if kind in ("processed", "sequences"):  # plain bags are not cut by rows on CPUs
        found[BY_ROWS]["sharding_types"] = ["row_wise"]
    if kind == "processed":
        found[IN_NODE]["sharding_types"] = ["table_row_wise"]
    elif optimizer == "sgd":
        found[BY_COLUMNS]["sharding_types"] = ["column_wise"]
    if kind not in ("sequences", "variable batch"):  # there, TorchRec cannot replicate tables on CPUs
        found[REPLICATED] = replicated
    return found


CASES = [
    *((kind, optimizer, 2) for kind in ("dlrm", "two towers") for optimizer in OPTIMIZERS),
    *((kind, "rowwise_adagrad", 2) for kind in ("variable batch", "weighted", "processed", "sequences")),
    ("managed", "sgd", 2),  # of evicted rows there is no state to reset on CPUs
    *(("dlrm", optimizer, 4) for optimizer in OPTIMIZERS),
    *((kind, "sgd", 4) for kind in ("two towers", "variable batch", "weighted", "processed", "sequences", "managed")),
]


@pytest.fixture(scope="module")
def trained(two_ranks: Processes, four_ranks: Processes) -> dict[tuple[str, str, int], dict[str, list[Run]]]:
    """By case and planner, the runs of all ranks."""
    found: dict[tuple[str, str, int], dict[str, list[Run]]] = {}
    for kind, optimizer, world in CASES:
        processes, told = two_ranks if world == 2 else four_ranks, constraints_of(kind, optimizer)
        found[kind, optimizer, world] = {
            whose: processes.run(train, kind, optimizer, whose, told, STEPS) for whose in PLANNERS
        }
    return found


@pytest.mark.parametrize(("kind", "optimizer", "world"), CASES)
def test_losses_are_those_of_torchrecs_planner(trained, kind: str, optimizer: str, world: int) -> None:
    """Of every rank and step; they differ between the steps."""
    theirs, ours = (trained[kind, optimizer, world][whose] for whose in ("torchrec", "ours"))
    for one, other in zip(theirs, ours, strict=True):
        assert other.losses == pytest.approx(one.losses, rel=1e-4)
        assert len(set(one.losses)) == STEPS


@pytest.mark.parametrize(("kind", "optimizer", "world"), CASES)
def test_every_table_is_trained(trained, kind: str, optimizer: str, world: int) -> None:
    """Dense part, replicated and fused tables: every parameter has changed on some rank that holds it."""
    for runs in trained[kind, optimizer, world].values():
        changed = set().union(*(run.changed for run in runs))
        everything = changed.union(*(run.kept for run in runs))
        assert changed == everything
        assert sum(any(f".{name}." in parameter for parameter in changed) for name in NAMES) == len(NAMES)


@pytest.mark.parametrize(("kind", "optimizer", "world"), CASES)
def test_shardings_and_kernels_are_those_of_the_constraints(trained, kind: str, optimizer: str, world: int) -> None:
    """In our plan: limits that TorchRec's planner keeps are kept."""
    plan = trained[kind, optimizer, world]["ours"][0].plan
    for name, told in constraints_of(kind, optimizer).items():
        sharding, kernel = plan[name]
        assert sharding in told.get("sharding_types", [sharding])
        assert kernel in told.get("compute_kernels", [kernel])
