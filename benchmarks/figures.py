"""The registry: what is run or computed, and the figures it is held to. Data only."""

from dataclasses import dataclass
from typing import Literal

MIB, GIB = 2**20, 2**30

Measure = Literal["wall_s", "cpu_s", "first_plan_s", "peak_bytes", "objective", "gap"]
Format = Literal["seconds", "bytes", "number"]


@dataclass(frozen=True)
class Limit:
    """An upper limit on what a run takes."""

    measure: Measure
    target: float


@dataclass(frozen=True)
class CommandRun:
    """One run of the command line in a process of its own, from its start to its end."""

    name: str
    words: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    exit_code: int = 0
    """What it must end with: 4 where infeasible is the right answer."""
    is_big: bool = False
    """Left out of the smoke size."""
    before: tuple[tuple[str, ...], ...] = ()
    """Commands that make what it reads; they are not measured."""


@dataclass(frozen=True)
class Quantity:
    """A number that the cost model must give exactly, or within a relative tolerance."""

    name: str
    workload: str
    what: Literal["table_bytes", "training_flops"]
    target: float
    tolerance: float
    overrides: tuple[str, ...] = ()
    format: Format = "bytes"


@dataclass(frozen=True)
class TinyInstances:
    """Random instances on which bound ≤ optimum ≤ plan must hold, against brute force."""

    name: str
    count: int
    is_big: bool = True


def plan(topology: str, workload: str, *flags: str) -> tuple[str, ...]:
    """The words of a planning command; `{folder}` stands for one that is thrown away."""
    return ("plan", "--topology", topology, "--workload", workload, *flags, "-o", "{folder}/plan.json", "--quiet")


def torchrec_import(name: str, topology: str, nodes: int, workload: str, *limits: Limit) -> CommandRun:
    """The import of a plan for TorchRec, with shards of every kind, simulated."""
    inputs, theirs = ("--topology", topology, "--workload", workload, "--nodes", str(nodes)), "{folder}/theirs.json"
    planned = plan(topology, workload, "--nodes", str(nodes), "--runtime", "torchrec", "--effort", "0", "--no-simulate")
    exported = ("export", "{folder}/plan.json", "--to", "torchrec", "-o", theirs)
    words = ("import", theirs, "--from", "torchrec", *inputs, "-o", "{folder}/ours.json")
    return CommandRun(name, words, limits, before=(planned, exported))


RUNS = (
    CommandRun("planner --help", ("--help",), (Limit("wall_s", 0.3),)),
    CommandRun("planner check zionex-16", ("check", "zionex-16"), (Limit("cpu_s", 0.6),)),
    torchrec_import("import, 128 ranks x 1,000 tables", "zionex-16", 16, "synthetic:1000", Limit("cpu_s", 2.0)),
    torchrec_import("import, 16 ranks x 1,000 tables", "dgx-a100-80", 2, "synthetic:1000", Limit("cpu_s", 2.0)),
    CommandRun(
        "zionex-16 x dlrm-dcnv2",
        plan("zionex-16", "dlrm-dcnv2"),
        (Limit("wall_s", 3.0), Limit("peak_bytes", 400e6)),
    ),
    CommandRun(
        "128 ranks x synthetic:1000",
        plan("zionex-16", "synthetic:1000"),
        (Limit("wall_s", 8.0),),
        is_big=True,
    ),
    CommandRun(
        "1,024 ranks x synthetic:10000",
        plan("zionex-16", "synthetic:10000", "--nodes", "128"),
        (Limit("wall_s", 60.0), Limit("peak_bytes", 3 * GIB)),
        is_big=True,
    ),
    CommandRun(
        "zionex-16 x model-f, HBM alone: infeasible",
        plan("zionex-16", "model-f", "--tiers", "hbm"),
        exit_code=4,
    ),
    CommandRun("zionex-16 x model-f, all tiers: found", plan("zionex-16", "model-f")),
)

FP32_ADAGRAD = ("embedding.dtype=fp32", "embedding.optimizer=adagrad")
FP32_NO_STATE = ("embedding.dtype=fp32", "embedding.optimizer=sgd")
FP16_ROWWISE = ("embedding.dtype=fp16", "embedding.optimizer=rowwise_adagrad")

QUANTITIES = (
    Quantity("dlrm-dcnv2 in fp32", "dlrm-dcnv2", "table_bytes", 204_184_588 * 128 * 4, 0.0, FP32_NO_STATE),
    Quantity("dlrm-dcnv2 with AdaGrad", "dlrm-dcnv2", "table_bytes", 204_184_588 * 128 * 8, 0.0, FP32_ADAGRAD),
    Quantity("model-f, fp32 and element-wise", "model-f", "table_bytes", 96e12, 0.0, FP32_ADAGRAD),
    Quantity("model-f, fp16 and row-wise", "model-f", "table_bytes", 24e12 + 0.1875e12, 0.0, FP16_ROWWISE),
    Quantity("dlrm-dcnv2, training FLOP", "dlrm-dcnv2", "training_flops", 96.2e6, 1e-3, format="number"),
    Quantity("dlrm-v1, training FLOP", "dlrm-v1", "training_flops", 14.74e6, 1e-3, format="number"),
)

TINY = (TinyInstances("bound <= optimum <= plan", 200),)
