"""Small plans that candidates are costed beside, and random candidates."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from planner import plan
from planner.document.plan import Plan
from planner.oracle import Oracle
from tests.oracles.instances import node_group, topology, workload

TABLES = [
    {"rows": 2_000_000, "dim": 64},
    {"rows": 5_000, "dim": 32, "pooling_factor": 3},
    {"rows": 900_000, "dim": 128, "zipf_alpha": 1.05},
    {"rows": 300, "dim": 16, "pooling_factor": 1},
    {"rows": 40_000, "dim": 64, "pooling_factor": 25, "features": 2},
]
COMPRESSED = [
    TABLES[0] | {"compressor": "qr:4:concat"},
    TABLES[1] | {"compressor": "hash:2"},
    TABLES[2] | {"compressor": "dim:8"},
    *TABLES[3:],
]
DENSE = {"numerical_features": 13, "bottom_mlp": [64, 16], "interaction": "dcn", "top_mlp": [256, 64, 1]}
CASES: dict[str, dict[str, Any]] = {
    "torchrec": {"workload": {"software": "torchrec"}},
    "hugectr": {"workload": {"software": "hugectr"}},
    "scarce": {"workload": {"software": "torchrec"}, "group": {"hbm_bytes": 3.4e8, "ddr_bytes": 1e10}},
    "prefetch": {"workload": {"pipeline": "prefetch"}, "group": {"hbm_bytes": 4e8}},
    "serial": {"workload": {"pipeline": "none"}},
    "inference": {"workload": {"mode": "inference"}},
    "compressed": {
        "tables": COMPRESSED,
        "workload": {"embedding": {"compressor": "qr:8", "compress_above": 10_000}},
        "group": {"hbm_bytes": 2.5e8, "ddr_bytes": 1e10},
    },
}
"""Plans that differ in what runs beside what, and in what memory is worth."""
COMPRESSORS = (None, None, None, "none", "hash:3", "qr:4", "qr:60:add", "qr:2:concat", "dim:4", "dim:6")


@dataclass(frozen=True)
class Case:
    plan: Plan
    oracle: Oracle


@cache
def case_of(name: str) -> Case:
    """A plan on two nodes of two, and an oracle beside it; made once."""
    case = CASES[name]
    cluster = topology(node_group("a", nodes=2, **case.get("group", {})))
    made = plan(
        cluster, workload(case.get("tables", TABLES), dense=DENSE, **case["workload"]), effort=0, simulate=False
    )
    assert made.objective is not None
    return Case(made, Oracle(made))


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return case_of(request.param)


def random_changes(seed: int, count: int) -> dict[str, list[Any]]:
    """Columns of random candidates: rows, widths, pooling, compressors, tables that are left out, widths of the dense
    part."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {}
    there = random.random((count, len(TABLES))) < 0.8
    there[:, 0] = True
    for t, table in enumerate(TABLES):
        own = {
            "rows": [int(table["rows"] * f) for f in random.choice([0.3, 1, 2], count)],
            "dim": [int(table["dim"] * f) for f in random.choice([0.5, 1, 2], count)],
            "pooling_factor": [float(f) for f in random.choice([1, 4, 30], count)],
            "compressor": [COMPRESSORS[n] for n in random.integers(0, len(COMPRESSORS), count)],
        }
        for name, values in own.items():
            columns[f"t{t}.{name}"] = [v if is_there else None for v, is_there in zip(values, there[:, t], strict=True)]
        columns[f"t{t}.present"] = there[:, t].tolist()
    columns["dense.top_mlp"] = [["512|64|1", "64|1", None][n] for n in random.integers(0, 3, count)]
    columns["dense.bottom_mlp"] = [[(128, 16), None][n] for n in random.integers(0, 2, count)]
    return columns
