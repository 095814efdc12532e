"""The cases of `tbe`, `torchrec_steps` and `stacks` as workloads, and what the cost model says of them on one GPU."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.one_gpu.models import device_seconds, one_h100
from cost_models.floor import HOST
from cost_models.shards import COLUMN_WISE, HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.stages import LOOKUP, UPDATE
from cost_models.step import StepModel
from cost_models.workload.models import Workload

Case = Mapping[str, Any]


def kernels(case: Case) -> dict[str, float]:
    """Seconds forward and backward of tables whose blocks are all on one GPU: on the device, with what a launch adds,
    and of the backward pass what sorting ids takes."""
    tables = [_table(case, f"t{number}") for number in range(case["tables"])]
    asked = {"name": "kernels", "global_batch": case["batch"], "software": "torchrec", "tables": tables}
    asked |= {"embedding": {"optimizer": case["optimizer"]}, "dense": {"bottom_mlp": [], "top_mlp": [1]}}
    model = StepModel(one_h100(), Workload.model_validate(asked | {"pipeline": "none"}))
    blocks, kind = _blocks(case, case["tables"]), model.kinds[0]
    stages = model.evaluate(_placed(blocks, case["rows"])).stage_seconds
    forward_s, backward_s = (
        float(stages[model.stages.index(stage)]) - launch_s
        for stage, launch_s in zip((LOOKUP, UPDATE), (kind.lookup_launch_s, kind.update_launch_s), strict=True)
    )
    return {
        "forward_s": forward_s,
        "backward_s": backward_s,
        "elapsed_forward_s": forward_s + kind.lookup_launch_s,
        "elapsed_backward_s": backward_s + kind.update_launch_s,
        "sort_s": float(np.sum(model.id_sort_seconds(blocks, 0))),
    }


def step(case: Case) -> dict[str, float]:
    """Seconds of a step of TorchRec's modules and layers, of its host and of its device, which work at the same
    time."""
    tables = [_table(case, f"m{m}.t{i}") for m in range(case["modules"]) for i in range(case["tables"])]
    sizes = [128] * (case["layers"] - 1) + [1]
    asked = {
        "name": "step",
        "global_batch": case["batch"],
        "software": "torchrec",
        "software_mode": case["mode"],
        "embedding": {"optimizer": "rowwise_adagrad"},
        "tables": tables,
        "pipeline": "sparse-dist" if case["pipeline"] == "sparse-dist" else "none",
        "dense": {
            "dtype": "fp32",
            "numerical_features": 13,
            "layers": [
                {"kind": "embeddings", "name": "vectors", "tables": "*"},
                {"kind": "mlp", "name": "over", "inputs": ["numerical", "vectors"], "sizes": sizes},
            ],
        },
    }
    model = StepModel(one_h100(), Workload.model_validate(asked))
    found = model.evaluate(_placed(_blocks(case, len(tables)), case["rows"]))
    host = model.coefficients.host_beside
    assert host is not None
    stages = zip(model.stages, found.stage_seconds.tolist(), strict=True)
    device_s = sum(seconds for stage, seconds in stages if stage != HOST)
    return {"step_s": found.step_s, "host_s": host.value, "device_s": device_s}


def stack(case: Case) -> dict[str, float]:
    """Seconds of a stack of layers on the device."""
    width, layers = case["width"], case["layers"]
    asked = {
        "name": "stack",
        "global_batch": case["batch"],
        "software": "torchrec",
        "software_mode": case["mode"],
        "tables": [{"name": "t", "rows": 1000, "dim": 4, "pooling_factor": 1}],
        "dense": {
            "dtype": case["dtype"].split()[0],
            "optimizer": "sgd",
            "numerical_features": width,
            "layers": [
                {"kind": "embeddings", "name": "vectors", "tables": "*"},
                {"kind": "mlp", "name": "all", "inputs": "numerical", "sizes": [width] * layers},
                {"kind": "linear", "name": "last", "inputs": ["all", "vectors"], "out": 1},
            ],
        },
    }
    return {"seconds": device_seconds(one_h100(), Workload.model_validate(asked))}


def _placed(blocks: Blocks, rows: int) -> PlacedShards:
    """All blocks, of tables with so many rows, on one rank."""
    count = len(blocks)
    opens = np.append(True, (np.diff(blocks.table) != 0) | (blocks.sharding[1:] == COLUMN_WISE))
    return PlacedShards(blocks, np.zeros(count, dtype=int), np.full(count, rows), opens)


def _table(case: Case, name: str) -> dict[str, Any]:
    table = {"name": name, "rows": case["rows"], "dim": case["dim"], "pooling_factor": case["pooling"]}
    return table | {"dtype": case.get("dtype", "fp32"), "zipf_alpha": case.get("alpha", 0.0)}


def _blocks(case: Case, tables: int) -> Blocks:
    cut = case["blocks"]
    table = np.repeat(np.arange(tables), cut)
    same = np.ones(len(table), dtype=int)
    columns = np.full(len(table), case["dim"] // cut)
    return Blocks(table, same * (TABLE_WISE if cut == 1 else COLUMN_WISE), same * HBM, columns, np.zeros(len(table)))
