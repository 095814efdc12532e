"""Whole runs of MLPerf Training v4.1 on DLRM-DCNv2 are within the band of their step.

Those on several nodes run under the plans that HugeCTR's planner makes. On one node it cuts rows over two of eight
accelerators, for which we have no word: that run is under our own plan for HugeCTR.
"""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from benchmarks.accuracy.__main__ import FACTS
from benchmarks.accuracy.mlperf import rebuilt
from benchmarks.hugectr_nodes import sharding_of
from cost_models.workload.loading import load_workload
from planner.document.plan import write_plan
from planner.formulation.policy import Policy, offered
from planner.importers.adoption import AdoptionInputs, adopted
from planner.importers.hugectr import hugectr_tables
from planner.runs.running import cost_run
from topologies.loading import load_topology

SAMPLES = 4_195_197_692
"""`train_samples` of every log: one pass."""
PUBLISHED = [
    # Of the run with the median time of the ten that each submission logs: `epoch_num` of `run_stop`, and how often
    # `eval_start` stands before it (mlcommons/training_results_v4.1, NVIDIA/results/SYSTEM/dlrm_dcnv2/result_*.txt).
    ("eos_ngc24.04_merlin_hugectr", 0.7498978502418643, 15),
    ("eos_n8_ngc24.06_merlin_hugectr", 0.8994748203756806, 18),
    ("eos_n16_ngc24.06_merlin_hugectr", 0.8994748203756806, 18),
]


def write_theirs(folder: Path, system: str, nodes: int, batch: int) -> str:
    """The plan of HugeCTR's planner as a document, and the name of its file."""
    topology, model = load_topology("dgx-h100", nodes=nodes), load_workload("dlrm-dcnv2", global_batch=batch)
    inputs = AdoptionInputs(topology, model, "physical", offered(Policy(runtime="hugectr"), topology, "physical"))
    theirs = hugectr_tables(sharding_of(rebuilt(topology, "4.1"), topology), inputs, system)
    write_plan(adopted(theirs, inputs, "hugectr", system, simulate=False), folder / "plan.json")
    return "plan.json"


@pytest.mark.parametrize(("system", "passes", "evaluations"), PUBLISHED)
def test_published_runs_are_within_the_band_of_their_step(tmp_path: Path, system: str, passes: float, evaluations: int):
    """Steps are counted from the published batch and samples, evaluations have the published time; what the run took is
    not looked at."""
    rows = pd.read_csv(FACTS / "measured" / "mlperf_dlrm_dcnv2_v41_v51.csv").query("round == 'v4.1'")
    row = rows.set_index("system").loc[system]
    samples, batch, nodes = round(passes * SAMPLES), int(row["batch"]), int(row["nodes"])
    (tmp_path / "policy.yaml").write_text(json.dumps({"runtime": "hugectr"}))
    given = {"plan": write_theirs(tmp_path, system, nodes, batch)} if nodes > 1 else {"search": {"effort": 0}}
    run = {
        "name": system,
        "topology": "dgx-h100",
        "workload": "dlrm-dcnv2",
        "policy": "policy.yaml",
        **given,
        "stages": [{"global_batch": batch, "samples": samples, "nodes": nodes}],
        "evaluation": {"every": samples // evaluations, "seconds": f"{row['eval_ms_median']}ms"},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    result = cost_run(tmp_path / "run.yaml").result
    (stage,) = result.stages
    assert stage.steps == -(-samples // batch)
    assert stage.evaluations == evaluations
    assert result.low_s is not None
    assert result.high_s is not None
    assert result.low_s <= row["ttt_s_median"] <= result.high_s
