"""HugeCTR's own planner, written anew: the plans that MLPerf's logs print, from the commands that they print."""

import ast
import json
import re

import numpy as np
import pytest

from benchmarks.accuracy.__main__ import FACTS
from benchmarks.accuracy.hugectr_planner import Settings, bucket_plan
from cost_models.workload.loading import load_workload

PRINTED = json.loads((FACTS / "published.json").read_text())["mlperf_dcnv2_plans"]
TABLES = load_workload("dlrm-dcnv2").tables
HOTNESS = np.array([table.pooling_factor for table in TABLES])
ROWS = np.array([table.rows for table in TABLES])


def option(command: str, name: str, default: float) -> float:
    """The value of an option of `train.py`."""
    match = re.search(rf"--{name}[ =](\S+)", command)
    return float(match.group(1)) if match else default


@pytest.mark.parametrize("printed", PRINTED, ids=lambda plan: f"{plan['round']} {plan['dir'].split('/')[2]}")
def test_a_printed_plan_is_found_again(printed: dict[str, str]) -> None:
    """Table by table, in the order in which the log lists them; replicated ones come last on every GPU."""
    settings = Settings(
        memory_communication_ratio=option(printed["cmd"], "mem_comm_bw_ratio", 3.35e12 / 450e9),
        memory_gb=option(printed["cmd"], "memory_cap_for_embedding", 60.0),
        replicated_below_gb=option(printed["cmd"], "dp_sharding_threshold", 0.0),
    )
    plan = bucket_plan(HOTNESS, ROWS, 128, len(printed["matrix"]), settings)
    assert list(plan.replicated) == dict(ast.literal_eval(str(printed["strategy"])))["dp"]
    assert [[*bucket, *plan.replicated] for bucket in plan.buckets] == printed["matrix"]


def test_what_does_not_fit_is_said() -> None:
    """Even cut over all buckets."""
    with pytest.raises(ValueError, match="do not fit into 2 buckets of 60"):
        bucket_plan(HOTNESS, ROWS, 128, 2, Settings(7.0))
