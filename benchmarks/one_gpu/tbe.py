"""FBGEMM's table-batched embedding kernels on one device: forward, backward with its update, and kernel by kernel.

Rows, columns, bags, formats, optimizers and skew one by one from a base, ids in the backward pass up to 4,000 to a bag,
and tables cut into blocks of columns that one rank holds all of. A time of the device is that of a queue which the host
has filled beforehand, the median of several; `elapsed` is from an empty queue, as the host launches kernel by kernel.
Every repeat reads other ids than the one before.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.one_gpu.timing import Bench

Row = dict[str, object]
Case = dict[str, Any]
REPEATS, ID_SETS, MOST_IDS = 7, 3, 40_000_000
AHEAD_CYCLES = 8_000_000
"""Clock cycles that the device waits while the host fills its queue: 4 to 5 ms."""
BASE: Case = {
    "tables": 8,
    "rows": 2**20,
    "dim": 128,
    "pooling": 20,
    "batch": 4096,
    "dtype": "fp32",
    "optimizer": "rowwise_adagrad",
    "alpha": 0.0,
    "blocks": 1,
}
CLASSES = {
    "sort_s": ("radixsort", "radix_sort", "onesweep"),
    "runs_s": ("deviceruns", "encode", "rle", "scan", "cumsum", "delinearize", "linearize", "find_long_segments"),
    "update_s": ("backward_codegen", "grad_mean", "split_embedding_backward"),
}
"""Parts of kernels' names, in the order in which they are looked for."""


def kernel_cases() -> Iterator[Case]:
    """What a pass depends on, one by one from the base, some with skewed ids, in 16 bits or with another optimizer."""
    yield BASE
    for dim in (16, 32, 64, 256, 512, 1024):
        yield {**BASE, "dim": dim}
    for pooling in (1, 5, 80, 320):
        yield {**BASE, "pooling": pooling}
    for batch in (64, 256, 1024, 16384, 65536):
        yield {**BASE, "batch": batch}
    for rows in (1000, 10_000, 100_000, 10_000_000):
        yield {**BASE, "rows": rows}
    for tables in (1, 2, 32, 128):
        yield {**BASE, "tables": tables, "rows": 2**18}
    for dim in (32, 128, 512):
        yield {**BASE, "dim": dim, "dtype": "fp16"}
        yield {**BASE, "dim": dim, "optimizer": "sgd"}
        yield {**BASE, "dim": dim, "alpha": 1.05}
    for changed in (
        {"pooling": 1, "dtype": "fp16"},
        {"pooling": 1, "optimizer": "sgd"},
        {"pooling": 1, "alpha": 1.05},
        {"pooling": 80, "alpha": 1.05},
        {"pooling": 80, "dtype": "fp16", "alpha": 1.05},
        {"pooling": 80, "optimizer": "sgd"},
        {"batch": 65536, "pooling": 1},
        {"batch": 65536, "pooling": 1, "alpha": 1.05},
        {"alpha": 1.3},
        {"optimizer": "sgd", "dtype": "fp16", "alpha": 1.05},
    ):
        yield {**BASE, **changed}


def long_bag_cases() -> Iterator[Case]:
    """Ids to a bag up to 4,000, of one table and several, of many rows and few."""
    one = {**BASE, "tables": 1, "dim": 64, "batch": 2048}
    for pooling in (10, 100, 500, 1000, 2000, 3000, 4000):
        yield {**one, "pooling": pooling}
    for pooling in (500, 2000, 4000):
        yield {**one, "tables": 4, "pooling": pooling}
    for pooling in (1000, 4000):
        yield {**one, "batch": 512, "pooling": pooling}
        yield {**one, "alpha": 1.05, "pooling": pooling}
        yield {**one, "rows": 2**27, "dim": 16, "dtype": "fp16", "pooling": pooling}
    for rows in (1000, 100_000):
        yield {**one, "rows": rows, "pooling": 4000}


def block_cases() -> Iterator[Case]:
    """Tables cut into blocks of columns, all of them on the device: of as many columns together as before."""
    for changed in (
        {},
        {"pooling": 1},
        {"dim": 512},
        {"dim": 512, "pooling": 1},
        {"tables": 1, "dim": 1024},
        {"alpha": 1.05},
    ):
        for blocks in (1, 2, 4, 8):
            yield {**BASE, **changed, "blocks": blocks}


def drawn_cases(count: int = 60, seed: int = 105) -> Iterator[Case]:
    """Random ones, to judge by what was fitted to the others: at most 32 GB of rows and 40 million ids."""
    draw = random.Random(seed)
    while count:
        case = {
            "tables": draw.choice((1, 2, 3, 5, 8, 13, 26, 40)),
            "rows": int(10 ** draw.uniform(3, 7)),
            "dim": draw.choice((16, 32, 64, 96, 128, 192, 256, 512)),
            "pooling": int(10 ** draw.uniform(0, 2.3)),
            "batch": 2 ** draw.randint(9, 16),
            "dtype": draw.choice(("fp32", "fp32", "fp16")),
            "optimizer": draw.choice(("rowwise_adagrad", "rowwise_adagrad", "sgd")),
            "alpha": draw.choice((0.0, 0.0, 0.8, 1.05, 1.2)),
            "blocks": draw.choice((1, 1, 1, 2, 4)),
        }
        ids = case["tables"] * case["blocks"] * case["batch"] * case["pooling"]
        is_small = case["tables"] * case["rows"] * case["dim"] <= 8e9 and 20_000 <= ids <= MOST_IDS
        if is_small and case["dim"] // case["blocks"] % 4 == 0:
            count -= 1
            yield case


def ids_of(case: Case, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of all bags, table by table, those of a table once for each of its blocks; and where each bag begins."""
    count, rows = case["batch"] * case["pooling"], case["rows"]
    if case["alpha"]:
        weights = torch.arange(1, rows + 1, device=device, dtype=torch.float64).pow(-case["alpha"])
        below = weights.cumsum(0)
        drawn = torch.rand(case["tables"] * count, device=device, dtype=torch.float64) * below[-1]
        ranks = torch.searchsorted(below, drawn).clamp_(max=rows - 1)
        ids = ranks * 2_654_435_761 % rows if rows & (rows - 1) == 0 else ranks  # an odd factor: a permutation
    else:
        ids = torch.randint(0, rows, (case["tables"] * count,), device=device)
    ids = ids.view(case["tables"], 1, count).expand(-1, case["blocks"], -1).reshape(-1)
    bags = case["tables"] * case["blocks"] * case["batch"]
    return ids, torch.arange(0, bags + 1, device=device) * case["pooling"]


def kernels_of(case: Case, device: str) -> Any:
    """The module of all blocks of a case; its weights are random numbers."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    rule = {"rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "sgd": EmbOptimType.EXACT_SGD}[case["optimizer"]]
    where = (EmbeddingLocation.DEVICE, ComputeDevice.CUDA)
    if device == "cpu":
        where = (EmbeddingLocation.HOST, ComputeDevice.CPU)
    made = SplitTableBatchedEmbeddingBagsCodegen(
        [(case["rows"], case["dim"] // case["blocks"], *where)] * (case["tables"] * case["blocks"]),
        optimizer=rule,
        learning_rate=0.01,
        weights_precision=SparseType.FP16 if case["dtype"] == "fp16" else SparseType.FP32,
        output_dtype=SparseType.FP32,
        device=torch.device(device),
    )
    made.init_embedding_weights_uniform(-0.01, 0.01)
    return made


def measured(bench: Bench, cases: Iterator[Case]) -> Iterator[Row]:
    """A row of each case; a case that fails says so instead."""
    for case in cases:
        shown = case if bench.is_cuda else {**case, "rows": min(case["rows"], 1000), "batch": 4, "pooling": 3}
        try:
            yield {**shown, **_measured(bench, shown)}
        except Exception as error:  # noqa: BLE001 (the other cases are measured all the same)
            yield {**shown, "error": str(error)[:300]}
        if bench.is_cuda:
            torch.cuda.empty_cache()


def _measured(bench: Bench, case: Case) -> Row:
    torch.manual_seed(0)
    tables = kernels_of(case, bench.device)
    ids = case["tables"] * case["blocks"] * case["batch"] * case["pooling"]
    sets = [ids_of(case, bench.device) for _ in range(ID_SETS if ids <= MOST_IDS else 1)]
    at = 0

    def forward() -> torch.Tensor:
        nonlocal at
        at += 1
        vectors: torch.Tensor = tables(*sets[at % len(sets)])
        return vectors

    gradient = torch.randn_like(forward())

    def step() -> None:
        forward().backward(gradient)

    for _ in range(3):
        step()
    one = sets[0][0].view(case["tables"], case["blocks"], -1)[:, 0]
    row: Row = {
        "ids": ids,
        "distinct": sum(int(each.unique().numel()) for each in one) * case["blocks"],
    }
    queued = [_passes_s(bench, forward, gradient, AHEAD_CYCLES) for _ in range(REPEATS)]
    alone = [_passes_s(bench, forward, gradient, 0) for _ in range(REPEATS)]
    names = ("forward_s", "backward_s", "forward_host_s", "backward_host_s")
    row |= {name: statistics.median(each[i] for each in queued) for i, name in enumerate(names[:2])}
    row |= {f"elapsed_{name}": statistics.median(each[i] for each in alone) for i, name in enumerate(names)}
    return row | (_kernel_seconds(step) if bench.is_cuda else {})


def _passes_s(
    bench: Bench, forward: Callable[[], torch.Tensor], gradient: torch.Tensor, ahead: int
) -> tuple[float, ...]:
    """Seconds forward and backward on the device, and of the host, which are not waited for in between."""
    bench.sync()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)] if bench.is_cuda else []
    if ahead and bench.is_cuda:
        torch.cuda._sleep(ahead)
    at = [time.perf_counter()]
    for mark in marks[:1]:
        mark.record()
    vectors = forward()
    for mark in marks[1:2]:
        mark.record()
    at.append(time.perf_counter())
    vectors.backward(gradient)
    for mark in marks[2:]:
        mark.record()
    at.append(time.perf_counter())
    bench.sync()
    host = (at[1] - at[0], at[2] - at[1])
    if not marks:
        return (*host, *host)
    return (marks[0].elapsed_time(marks[1]) * 1e-3, marks[1].elapsed_time(marks[2]) * 1e-3, *host)


def _kernel_seconds(step: Callable[[], None]) -> Row:
    """Seconds of the sort, of finding runs, of the update and of other kernels of a step; and how many there are."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    found: dict[str, float] = dict.fromkeys((*CLASSES, "forward_kernel_s", "others_s"), 0.0)
    count, told = 0, {}
    for each in seen.key_averages():
        if not each.device_time_total:
            continue
        lower = each.key.lower()
        name = next((key for key, parts in CLASSES.items() if any(part in lower for part in parts)), "others_s")
        if "forward" in lower and "embedding" in lower:
            name = "forward_kernel_s"
        found[name] += each.device_time_total * 1e-6
        count += each.count
        told[each.key[:90]] = [each.count, round(each.device_time_total, 1)]
    return {**found, "kernels": count, "_told": told}


def tbe(bench: Bench) -> Iterator[Row]:
    """Kernels by what they depend on."""
    yield from measured(bench, kernel_cases())


def long_bags(bench: Bench) -> Iterator[Row]:
    """The same with long bags."""
    yield from measured(bench, long_bag_cases())


def drawn(bench: Bench) -> Iterator[Row]:
    """The same, drawn at random."""
    yield from measured(bench, drawn_cases())


def blocks(bench: Bench) -> Iterator[Row]:
    """The same with tables cut into blocks."""
    yield from measured(bench, block_cases())
