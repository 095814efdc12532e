"""Record what the package says of some shards, for the tests that run without it.

python tests/torchrec_package/record.py > tests/cost_models/torchrec/shards.json
"""

import json
import logging
from dataclasses import asdict

import numpy as np
from oracle import Run, ask, shard_sizes, topology_of
from test_estimators import CASE, our_tables, random_table, ways

from cost_models.torchrec.topology import TorchRecTopology


def main() -> None:
    """Print one JSON document."""
    logging.disable(logging.WARNING)
    rng = np.random.default_rng(0)
    groups = []
    runs = (Run(2048), Run(512, "sparse-dist", codecs=(2.0, 2.0)), Run(64, "prefetch"), Run(100, inference=True))
    for run, (world, local, pod) in zip(runs, ((16, 8, None), (8, 8, None), (128, 8, None), (16, 4, 2)), strict=True):
        case = {**CASE, "world_size": world, "local_world_size": local, "pod_size": pod}
        own = TorchRecTopology.from_case(case)
        tables = [random_table(rng) for _ in range(2)]
        ours = our_tables(tables, run)
        group = {"case": case, "pipeline": run.pipeline, "training": not run.inference, "tables": [], "shards": []}
        for index, table in enumerate(tables):
            arrays = ("rows", "dim", "element_bytes", "batch_inputs", "batch_outputs", "pooled", "weighted")
            arrays += ("all_to_all_bytes", "reduce_scatter_bytes", "state_per_weight")
            told = {name: getattr(ours, name)[index].tolist() for name in arrays}
            told["expected_misses"] = float(np.prod(table.misses or (0.0, 0)))
            group["tables"].append(told)
            for way in ways(rng, table):
                sizes = shard_sizes(way, table, own)
                perfs, storages = ask(topology_of(own), table, way, run, sizes)
                for i in sorted({0, len(sizes) - 1}):
                    group["shards"].append(
                        {
                            "table": index,
                            "sharding": way.sharding,
                            "kernel": way.kernel,
                            "cache_fraction": way.cache_fraction,
                            "rows": sizes[i][0],
                            "columns": sizes[i][1],
                            "perf_ms": asdict(perfs[i]),
                            "total_ms": perfs[i].total,
                            "bytes": [storages[i].hbm, storages[i].ddr],
                        }
                    )
        groups.append(group)
    document = {"source": "torchrec 1.8.0, fbgemm-gpu-cpu 1.8.0, torch 2.13.0", "groups": groups}
    print(json.dumps(document, separators=(",", ":")).replace('{"table"', '\n{"table"'))


if __name__ == "__main__":
    main()
