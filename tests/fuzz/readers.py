"""Every reader of a file of others, by name: what it is called with, and small files that it takes."""

import gzip
import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cost_models.calibration import kernel_tables, measurements
from cost_models.calibration.nccl_tests import read_logs
from cost_models.calibration.trace_events import read_events
from cost_models.workload.loading import load_workload
from cost_models.workload.profiles import read_profiles
from planner.capacity.prices import load_prices
from planner.document.files import faults_located, read_json
from planner.document.plan import read_plan
from planner.formulation.policy import Policy, load_policy, offered
from planner.importers.adoption import AdoptionInputs
from planner.importers.hugectr import planned_with
from planner.importers.hugectr_config import hugectr_workload
from planner.importers.mps_solution import solution_tables
from planner.importers.tbe_config import read_tbe_reports
from planner.importers.torcheasyrec_config import read_torcheasyrec
from planner.importers.torchrec import parameters_of, unpickled
from planner.importers.torchrec_topology import topology_of
from planner.oracle.changes import read_changes
from planner.profiling import kinds
from planner.profiling.run import Settings, profile
from planner.profiling.sources.tables import TableSource
from planner.runs.results import read_result
from planner.runs.run import read_run
from planner.studies.results import read_results
from planner.studies.study import read_study
from tests.oracles.instances import node_group, topology, workload
from tests.topologies.importers import dumps
from topologies.documents import Document, override, validate
from topologies.importers.imported import imported
from topologies.loading import load_topology

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).with_name("corpus")


@dataclass(frozen=True)
class Reader:
    """What is fuzzed: raises nothing but InputError, whatever the file at a path holds."""

    read: Callable[[Path], object]
    suffix: str
    seeds: Callable[[], list[bytes]]


def _shipped(*names: str) -> Callable[[], list[bytes]]:
    return lambda: [(ROOT / name).read_bytes() for name in names]


def _zipped(*documents: object) -> Callable[[], list[bytes]]:
    return lambda: [gzip.compress(json.dumps(document).encode(), mtime=0) for document in documents]


def _beside(name: str, text: str, read: Callable[[Path], object]) -> Callable[[Path], object]:
    """A reader of a file that another names, which lies beside it."""

    def run(path: Path) -> object:
        (path.parent / name).write_text(text)
        return read(path.parent / name)

    return run


def _solution(path: Path) -> object:
    return solution_tables(path, _adopting())


@cache
def _adopting() -> AdoptionInputs:
    """A small cluster and model, for a solution of their programme."""
    cluster = topology(node_group("a", ranks=2))
    rules = offered(Policy(), cluster, "physical")
    return AdoptionInputs(cluster, workload([{"rows": 100, "dim": 8}, {"rows": 50, "dim": 4}]), "physical", rules)


def _log(path: Path) -> object:
    """Counts of a log of ids, as `planner profile` makes them."""
    source = kinds.opened([path], kinds.kind_of([path]), ("user", "items"), (), "|")
    tables = TableSource(source, {feature: (feature,) for feature in source.features})
    return [table.record() for table in profile(tables, {}, Settings(batch=2, workers=1, memory_bytes=1 << 20)) or []]


def _pickles() -> list[bytes]:
    """Two that are no ShardingPlan, and one of a class that has what such a plan has."""
    plan = SimpleNamespace(plan={"m": {"t": SimpleNamespace(**SHARDING, sharding_spec=None)}})
    return [pickle.dumps(each) for each in ({"plan": {}}, [1, "a"], plan)]


def _texts(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


def _documents(*documents: object) -> Callable[[], list[bytes]]:
    return lambda: [json.dumps(document).encode() for document in documents]


def _located(read: Callable[[dict[str, Any], str], object]) -> Callable[[Path], object]:
    """A reader of a JSON document, as `planner import` calls it."""

    def run(path: Path) -> object:
        document = read_json(path)
        with faults_located(path):
            return read(document, str(path))

    return run


def _flags(path: Path) -> object:
    """A policy from the command line: lines PATH=VALUE."""
    document = Document({}, "policy")
    for line in path.read_bytes().decode(errors="replace").split("\n")[:20]:
        key, _, value = line.partition("=")
        override(document, key, value, Policy, f"--set {line}")
    return validate(document, Policy)


def _exhausted(read: Callable[[Path], Iterator[object]]) -> Callable[[Path], object]:
    return lambda path: sum(1 for _ in read(path))


PLAN = "tests/golden/plans/version-1/"
RELEASED = "tests/golden/released/1.0.0rc1/"
SHARDING = {"sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1], "shards": [{"size": [1, 2]}]}
LOG = """# nThread 1 nGpus 2 all_reduce_perf
#  Rank  0 Group  0 Pid 1 on a device  0
#  Rank  1 Group  0 Pid 1 on a device  1
     1048576        262144     float     sum      -1    37.21   28.18   28.18      0    36.02   29.11   29.11      0
"""
WORKLOAD = "name: w\nglobal_batch: 64\ntables:\n  - {name: a, rows: 100, dim: 8, pooling_factor: 2, features: 1}\n"
TABLES = "name,rows,dim,pooling_factor,features\na,100,8,2,1\nb,5,16,1,x|y\n"
COLLECTIVES = "operation,ranks,buffer_bytes,seconds\nall_reduce,2,8,1\nall_to_all,8,1024,1e-5\nall_gather,4,64,2\n"
KERNELS = (
    "operation,dtype,rows,dim,lookups,pooling,seconds\nlookup,fp32,100,8,64,4,0.5\nupdate,fp16,100,8,64,,0.5\n",
    "pass,placement,num_tables,rows_per_table,batch,pooling,dim,dtype,time_ms\nforward,hbm,2,50,8,4,8,fp32,1\n",
    "kernel,indices,dim,rows,t_us\nforward_x,64,8,100,3\nbackward,1,8,100,3\n",
)
GROUP = {
    "Collective name": "all_to_allv",
    "In msg nelems": 512,
    "Out msg nelems": 1024,
    "Group size": 8,
    "dtype": "Half",
}
SHAPES = [[1], [700], [0], [0], [2], [2], [3], [], [], [3], [], [90], [17], []]
OPERATOR = {"External id": 7, "Input Dims": SHAPES, "Concrete Inputs": [""] * 7 + ["128", "64", "", "40", "", "", "0"]}
KERNEL_NAME = "split_embedding_codegen_forward_unweighted_kernel"
STEP_TRACE = {
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "fbgemm::split_embedding_codegen_lookup", "args": OPERATOR},
        {"ph": "X", "cat": "kernel", "name": KERNEL_NAME, "ts": 1, "dur": 5.0, "args": {"External id": 7, "stream": 7}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv", "ts": 9, "dur": 3.0, "args": GROUP},
    ]
}
LOSSES = "table,variant,loss\na,hash:50,0.1\nb,fp16,0.2\n"
NAMES_LOSSES = "variants: {losses: file.csv, budget: 0.5}\n"
NAMES_AFFINITIES = """name: w
global_batch: 64
towers: {count: 2, affinity: file.csv, imbalance: 1.5}
tables:
  - {name: a, rows: 100, dim: 8, pooling_factor: 2, features: 1}
  - {name: b, rows: 100, dim: 8, pooling_factor: 2, features: 1}
"""
IDS = "label,user,items\n1,5,1|2|2\n0,,7\n1,9,\n"
SOLUTION = """Model status
Optimal
count:t0:hbm/fp32/with_table/1xtable_wise.8.100:table_wise.8.100:0 1
count:t1:hbm/fp32/with_table/2xcolumn_wise.4.50:column_wise.4.50:1 2
# Dual solution values
"""
TRACE = {"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "k", "ts": 1.5, "dur": 2, "args": {"stream": 7}}]}
RESULTS = {
    "kind": "study_results",
    "schema_version": 1,
    "points": [{"a": 1}],
    "axes": [],
    "name": "n",
    "description": "",
} | {
    "objective": "step_s",
    "pareto": ["a", "b"],
    "findings": [],
}
LAW = {"heavy_hitters": [0.5], "zipf_q": 1.0, "zipf_s": 2.0}
REPORT = {"T": 1, "E": 10, "D": 8, "weighted": False, "batch_params": {"B": 100}, "indices_params": LAW} | {
    "pooling_params": {"L": 3},
    "max_indices": 9,
}
MODEL = {
    "solver": {"batchsize": 64, "gpu": [[0, 1]]},
    "optimizer": {"type": "Adam"},
    "layers": [
        {"type": "Data", "sparse": [{"top": "s", "slot_num": 2, "nnz_per_slot": 1}], "dense": {"dense_dim": 3}},
        {
            "type": "DistributedSlotSparseEmbeddingHash",
            "bottom": "s",
            "top": "e",
            "sparse_embedding_hparam": {"embedding_vec_size": 8, "slot_size_array": [9, 10], "combiner": "sum"},
        },
    ],
}
CONFIG = """train_input_path: "a" data_config { batch_size: 64 }
feature_configs { id_feature { feature_name: "u" num_buckets: 100 embedding_dim: 8 } }
model_config { dlrm { dense { input: "d" } } }
"""
READERS = {
    "topology": Reader(load_topology, ".yaml", _shipped("topologies/catalog/l4-8.yaml", "topologies/catalog/cpu.yaml")),
    "workload": Reader(load_workload, ".yaml", _texts(WORKLOAD)),
    "policy": Reader(load_policy, ".yaml", _texts("tiers: [hbm, ddr]\nshardings: [row_wise]\nruntime: torchrec\n")),
    "policy-flags": Reader(_flags, ".txt", _texts("runtime=torchrec\ntiers=[hbm]\nmax_shards=4", "reserve.hbm=10%")),
    "study": Reader(read_study, ".yaml", _shipped("planner/studies/catalog/growth.yaml")),
    "run": Reader(read_run, ".yaml", _shipped("planner/runs/catalog/growing-batch.yaml")),
    "prices": Reader(load_prices, ".yaml", _shipped("planner/capacity/price_sheets/example-2025-01.yaml")),
    "tables-csv": Reader(
        read_profiles, ".csv", _texts("name,rows,dim,pooling_factor,features\na,100,8,2,1\nb,5,16,1,x|y\n")
    ),
    "tables-yaml": Reader(read_profiles, ".yaml", _texts("tables:\n  - {name: a, rows: 100, dim: 8, features: 2}\n")),
    "tables-parquet": Reader(read_profiles, ".parquet", _shipped("tests/fuzz/corpus/tables-parquet/good.parquet")),
    "changes": Reader(read_changes, ".csv", _texts("name,a.rows,b.dim\none,100,8\ntwo,,16\n")),
    "plan": Reader(read_plan, ".json", _shipped(PLAN + "nothing-packs.json", PLAN + "drives.json")),
    "results": Reader(read_results, ".json", _documents(RESULTS)),
    "run-result": Reader(read_result, ".json", _shipped(RELEASED + "run.json", RELEASED + "grid.json")),
    "trace": Reader(_exhausted(read_events), ".json", _documents(TRACE)),
    "nccl-log": Reader(lambda path: read_logs([path]), ".txt", _texts(LOG)),
    "collectives": Reader(lambda path: measurements.read([path]), ".csv", _texts(COLLECTIVES)),
    "kernels": Reader(lambda path: kernel_tables.read([path]), ".csv", _texts(*KERNELS)),
    "kernels-trace": Reader(lambda path: kernel_tables.read([path]), ".json", _documents(STEP_TRACE)),
    "collectives-trace": Reader(lambda path: measurements.read([path]), ".json", _documents(STEP_TRACE)),
    "trace-gz": Reader(lambda path: measurements.read([path]), ".json.gz", _zipped(STEP_TRACE, TRACE)),
    "losses": Reader(_beside("policy.yaml", NAMES_LOSSES, load_policy), ".csv", _texts(LOSSES)),
    "affinities": Reader(
        _beside("w.yaml", NAMES_AFFINITIES, load_workload), ".csv", _texts("table,other,affinity\na,b,0.5\n")
    ),
    "profile-log": Reader(_log, ".csv", _texts(IDS)),
    "mps-solution": Reader(_solution, ".sol", _texts(SOLUTION)),
    "pickle": Reader(unpickled, ".pickle", _pickles),
    "dump": Reader(
        lambda path: imported([path], "t"),
        ".txt",
        _texts(
            dumps.HGX,
            dumps.ROCM,
            dumps.NCCL,
            dumps.HWLOC,
            dumps.SLURM_TREE,
            dumps.SLURM_YAML,
            dumps.TOPOGRAPH,
            dumps.INFRAGRAPH,
            dumps.ASTRA,
            dumps.fabric(pods=2, hosts=2, rails=2, uplinks=1),
        ),
    ),
    "torchrec-plan": Reader(_located(parameters_of), ".json", _documents({"plan": {"m": {"t": SHARDING}}})),
    "torchrec-topology": Reader(
        _located(lambda document, source: topology_of(document, load_topology("dgx-a100-80"), "t", source)),
        ".json",
        _documents({"world_size": 8, "compute_device": "cuda", "hbm_cap": 80, "local_world_size": 8}),
    ),
    "hugectr-plan": Reader(_located(planned_with), ".json", _documents({"kind": "hugectr", "cost_model": "hugectr"})),
    "hugectr-config": Reader(_located(hugectr_workload), ".json", _documents(MODEL)),
    "torcheasyrec-config": Reader(read_torcheasyrec, ".config", _texts(CONFIG)),
    "tbe-report": Reader(read_tbe_reports, ".json", _documents(REPORT)),
}
"""The readers. Parquet's and pickles' own parsers are libraries'; a pickle is read where `--trust-pickle` says so."""
