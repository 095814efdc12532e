"""Short microbenchmarks of this machine with PyTorch: what `planner calibrate --device cpu|cuda` measures.

Rows read by pooled lookups and gradients added to them by dim, rows, pooling and skew; copies from host to device;
a stream through device memory; matrix products by shape and data type. Each time is that of the fastest of several
runs after one that is not counted, some in each of several passes through all cases, so that no burst of other work
hits all of them: by CUDA events on a GPU, by the clock on a CPU, and where PyTorch has one thread
there, by the time that the processor worked for it, whatever else the machine does. Ids change from run to run.

With fbgemm_gpu, lookups and updates (SGD) are those of its table-batched embeddings, which TorchRec runs. Before each
of their runs, and before others on a CPU, other data pass through the caches: a rank holds many tables, and when a
table's turn comes the others have pushed its rows out.
"""

import itertools
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from cost_models.calibration.kernels import COLUMNS
from cost_models.calibration.table_batched import batched, fbgemm, version
from topologies.errors import MissingPackageError

Device = Literal["cpu", "cuda"]
DEVICES: tuple[Device, ...] = ("cpu", "cuda")
ELEMENT_BYTES = 4
UPDATE_DIM = 64
REGROUPED_SAMPLES, REGROUPED_PARTS, REGROUPED_WIDTHS = (1024, 4096), (2, 20, 60), (4, 8, 16, 48)
CUT_LOOKUPS, CUT_POOLING, CUT_RANKS = (1000, 20_000, 100_000, 400_000), 10, 4
PASSES, RUNS = 3, 3
"""Through all cases, and of a case in each pass."""
LEAST_EVICTED_BYTES = 2**26
AHEAD_BYTES = 2**33
"""Of other data, read and written before a run on a GPU while the host launches all kernels of the run (5 ms on an
H100), so that no time between launches counts."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux has a folder for each cache that serves the first core, with its `size`."""
ID_SETS = 3
"""Ids that take turns, so that one run does not find the rows of the one before in a cache."""
SEED = 20240613


class UnavailableError(RuntimeError):
    """This machine cannot run them; says what is missing."""


@dataclass(frozen=True)
class BenchmarkPlan:
    """What is measured. Tables larger than `largest_table_bytes` are left out."""

    dims: tuple[int, ...]
    rows: tuple[int, ...]
    poolings: tuple[int, ...]
    alphas: tuple[float, ...]
    lookups: tuple[int, ...]
    largest_table_bytes: int
    copy_bytes: tuple[int, ...]
    stream_bytes: tuple[int, ...]
    products: tuple[tuple[int, int, int], ...]
    dtypes: tuple[str, ...]


_CPU = BenchmarkPlan(
    dims=(4, 16, 32, 64, 128),
    rows=(1000, 30_000, 200_000, 1_000_000),
    poolings=(1, 10, 40),
    alphas=(0.0, 1.05),
    lookups=(256, 20_000, 120_000),
    largest_table_bytes=2**29,
    copy_bytes=(4096, 2**26, 3 * 2**25, 2**27, 2**28),
    stream_bytes=(4096, 2**26, 3 * 2**25, 2**27, 2**28),
    products=((64, 64, 64), (256, 256, 256), (512, 512, 512), (2048, 64, 512), (2048, 512, 512), (1024, 1024, 1024)),
    dtypes=("fp32", "bf16"),
)
_CUDA = BenchmarkPlan(
    dims=(4, 16, 64, 128, 256, 512),
    rows=(10_000, 300_000, 10_000_000),
    poolings=(1, 10, 40),
    alphas=(0.0, 1.05),
    lookups=(1024, 2**20),
    largest_table_bytes=2**33,
    copy_bytes=(4096, 2**20, 2**24, 2**26, 2**28),
    stream_bytes=(4096, 2**24, 2**27, 2**30),
    products=((256, 256, 256), (2048, 512, 512), (8192, 1024, 1024), (8192, 3456, 512), (4096, 4096, 4096)),
    dtypes=("fp32", "tf32", "fp16", "bf16"),
)
_QUICK = BenchmarkPlan(
    dims=(16, 64, 128),
    rows=(20_000, 100_000, 400_000),
    poolings=(10,),
    alphas=(0.0,),
    lookups=(256, 30_000),
    largest_table_bytes=2**28,
    copy_bytes=(4096, 2**26, 3 * 2**25, 2**27),
    stream_bytes=(4096, 2**26, 3 * 2**25, 2**27),
    products=((32, 32, 32), (128, 256, 256), (256, 512, 512), (512, 512, 512)),
    dtypes=("fp32",),
)


def plan_for(device: Device, *, quick: bool) -> BenchmarkPlan:
    """What is measured on a device; `quick` takes a few seconds and tells less."""
    if quick:
        return _QUICK
    return _CUDA if device == "cuda" else _CPU


def measure(device: Device, plan: BenchmarkPlan, progress: Callable[[str], None] | None = None) -> pd.DataFrame:
    """Times with the columns of `kernels.COLUMNS`.

    Raises MissingPackageError without PyTorch, UnavailableError without the device.
    """
    passes = [_measured(device, plan, progress if number == 0 else None) for number in range(PASSES)]
    fastest = pd.concat([rows.seconds for rows in passes], axis=1).min(axis=1)
    return passes[0].assign(seconds=fastest)


def _measured(device: Device, plan: BenchmarkPlan, progress: Callable[[str], None] | None) -> pd.DataFrame:
    """One pass through all cases."""
    bench = _Bench(device)
    rows: list[dict[str, object]] = []
    for name, measured in (
        ("lookups and updates", bench.lookups(plan)),
        ("copies", bench.copies(plan)),
        ("streams", bench.streams(plan)),
        ("dense updates", bench.dense_updates(plan)),
        ("regrouped vectors", bench.regroups()),
        ("ids by holder", bench.id_cuts(plan)),
        ("matrix products", bench.products(plan)),
    ):
        if progress:
            progress(name)
        rows += measured
    return pd.DataFrame(rows, columns=list(COLUMNS))


def device_name(device: Device) -> str:
    """What the machine calls it, as a name for a coefficient file."""
    if device == "cuda":
        return str(_torch("cuda").cuda.get_device_name()).replace(" ", "-")
    return (platform.processor() or platform.machine() or "cpu").replace(" ", "-")


def software(device: Device) -> str:
    """What was measured with, for the source of the coefficients."""
    torch = _torch(device)
    threads = f", {torch.get_num_threads()} threads" if device == "cpu" else f", CUDA {torch.version.cuda}"
    return f"PyTorch {torch.__version__}{version()}{threads} on {platform.platform()}"


def _without_run(kernel: Callable[[], object]) -> Callable[[int], object]:
    """A kernel that is the same in every run."""
    return lambda _run: kernel()


def _same(run: int) -> int:
    return run


def _torch(device: Device) -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingPackageError("--device needs PyTorch", "calibrate-device") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise UnavailableError("PyTorch sees no CUDA device here; --device cpu measures the processor")
    return torch


class _Bench:
    """Kernels on one device."""

    def __init__(self, device: Device) -> None:
        self.torch = _torch(device)
        self.device = device
        self.evicts = device == "cpu" or fbgemm() is not None
        """Whether other data pass through the caches before a lookup or an update."""
        self.generator = np.random.default_rng(SEED)

    def lookups(self, plan: BenchmarkPlan) -> Iterator[dict[str, object]]:
        """Pooled lookups, and the addition of their gradients."""
        torch, smallest = self.torch, (plan.rows[0], plan.poolings[0], plan.alphas[0])
        for dim, rows in itertools.product(plan.dims, plan.rows):
            if dim * rows * ELEMENT_BYTES > plan.largest_table_bytes:
                continue
            table = torch.rand((rows, dim), device=self.device)
            evicted = {"evicted": self.evicted_bytes} if self.evicts else {}
            kernels = batched(self.device, rows, dim)
            for lookups, alpha, pooling in itertools.product(plan.lookups, plan.alphas, plan.poolings):
                if lookups == min(plan.lookups) and (rows, pooling, alpha) != smallest:
                    continue  # the fewest tell the launch, which is the same for all tables
                ids = [self._ids(rows, lookups, alpha) for _ in range(ID_SETS)]
                case = {"lookups": lookups, "dim": dim, "rows": rows, "pooling": pooling, "alpha": alpha}
                case |= evicted
                if kernels is None:
                    times = self._lookup(table, ids, pooling), self._update(table, ids, pooling)
                else:
                    times = self._both(kernels, ids, pooling)
                for operation, seconds in zip(("lookup", "update"), times, strict=True):
                    yield {"operation": operation, "dtype": "fp32", **case, "seconds": seconds}

    def _ids(self, rows: int, lookups: int, alpha: float) -> Any:
        """Ranks of a power law at random places of the table, so that hot rows are no neighbours."""
        if alpha:
            weight = np.cumsum(np.arange(1.0, rows + 1) ** -alpha)
            rank = np.searchsorted(weight, self.generator.random(lookups) * weight[-1])
            place = self.generator.permutation(rows)[rank]
        else:
            place = self.generator.integers(0, rows, lookups)
        return self.torch.as_tensor(place, device=self.device)

    def _both(self, kernels: Any, ids: list[Any], pooling: int) -> tuple[float, float]:
        """Seconds of a pooled lookup, and of the backward pass that adds its gradients to the rows."""
        torch = self.torch
        offsets = torch.arange(0, len(ids[0]) + pooling, pooling, device=self.device).clamp(max=len(ids[0]))
        gradient = torch.rand_like(kernels(ids[0], offsets))

        def forward(run: int) -> Any:
            return kernels(ids[run % ID_SETS], offsets)

        return self.evicted_seconds(forward), self.evicted_seconds(lambda out: out.backward(gradient), forward)

    def _lookup(self, table: Any, ids: list[Any], pooling: int) -> float:
        bags = self.torch.nn.functional.embedding_bag
        offsets = self.torch.arange(0, len(ids[0]), pooling, device=self.device)
        return self.evicted_seconds(lambda run: bags(ids[run % ID_SETS], table, offsets, mode="sum"))

    def _update(self, table: Any, ids: list[Any], pooling: int) -> float:
        torch, dim = self.torch, table.shape[1]
        gradient = torch.rand((-(-len(ids[0]) // pooling), dim), device=self.device)
        sample = torch.arange(len(ids[0]), device=self.device) // pooling

        def add(run: int) -> None:
            of_ids = gradient.index_select(0, sample)
            table.scatter_add_(0, ids[run % ID_SETS].unsqueeze(1).expand(-1, dim), of_ids)

        return self.evicted_seconds(add)

    def copies(self, plan: BenchmarkPlan) -> Iterator[dict[str, object]]:
        """From pinned host memory to the device; on a CPU within its memory."""
        torch = self.torch
        for size in plan.copy_bytes:
            host = torch.empty(size, dtype=torch.uint8, pin_memory=self.device == "cuda").fill_(1)
            target = torch.empty(size, dtype=torch.uint8, device=self.device)
            seconds = self.seconds(_without_run(partial(target.copy_, host, non_blocking=True)))
            yield {"operation": "copy", "dtype": "int8", "bytes": size, "seconds": seconds}

    def streams(self, plan: BenchmarkPlan) -> Iterator[dict[str, object]]:
        """A vector read and another one written; `bytes` counts both."""
        torch = self.torch
        for size in plan.stream_bytes:
            vector = torch.rand(size // (2 * ELEMENT_BYTES), device=self.device)
            target = torch.empty_like(vector)
            seconds = self.seconds(_without_run(partial(torch.mul, vector, 2.0, out=target)))
            yield {"operation": "stream", "dtype": "fp32", "bytes": size, "seconds": seconds}

    def dense_updates(self, plan: BenchmarkPlan) -> Iterator[dict[str, object]]:
        """The gradient of a whole table: made of zeros, a few rows of it filled, averaged and applied (SGD)."""
        torch = self.torch
        for size in plan.stream_bytes:
            rows = size // (UPDATE_DIM * ELEMENT_BYTES) or 1
            table = torch.zeros((rows, UPDATE_DIM), device=self.device)
            few = torch.rand((1, UPDATE_DIM), device=self.device)

            def update(table: Any = table, few: Any = few) -> None:
                gradient = torch.zeros_like(table)
                gradient[:1] += few
                gradient.div_(2)
                table.add_(gradient, alpha=-0.1)

            seconds = self.seconds(_without_run(update))
            yield {"operation": "dense_update", "dtype": "fp32", "bytes": size, "seconds": seconds}

    def regroups(self) -> Iterator[dict[str, object]]:
        """Parts of vectors put in order, sample by sample, and the gradients of these put back."""
        torch = self.torch
        for samples, parts, width in itertools.product(REGROUPED_SAMPLES, REGROUPED_PARTS, REGROUPED_WIDTHS):
            vectors = torch.rand((samples, parts * width), device=self.device, requires_grad=True)
            gradient = torch.rand_like(vectors)

            def put_in_order(_: int, vectors: Any = vectors, width: int = width) -> Any:
                vectors.grad, own = None, vectors.split(width, dim=1)
                return torch.cat(own[::2] + own[1::2], dim=1)

            def put_back(in_order: Any, gradient: Any = gradient) -> None:
                in_order.backward(gradient)

            seconds = self.evicted_seconds(put_in_order) + self.evicted_seconds(put_back, put_in_order)
            size = samples * parts * width * ELEMENT_BYTES
            case = {"operation": "regroup", "dtype": "fp32", "bytes": size, "pieces": samples * parts}
            yield {**case, "seconds": seconds}

    def id_cuts(self, plan: BenchmarkPlan) -> Iterator[dict[str, object]]:
        """Ids sorted by the rank that holds their row, for tables cut by rows; where TorchRec's kernel is to be had."""
        if self.device != "cpu" or fbgemm() is None:
            return
        torch, rows = self.torch, plan.rows[0]
        for lookups in CUT_LOOKUPS:
            ids = [self._ids(rows, lookups, 0.0) for _ in range(ID_SETS)]
            lengths = torch.full((lookups // CUT_POOLING,), CUT_POOLING)
            block = torch.tensor([-(-rows // CUT_RANKS)])

            def cut(run: int, ids: Any = ids, lengths: Any = lengths, block: Any = block) -> None:
                torch.ops.fbgemm.block_bucketize_sparse_features(
                    lengths, ids[run % ID_SETS], False, False, block, CUT_RANKS
                )

            yield {"operation": "id_cut", "dtype": "fp32", "lookups": lookups, "seconds": self.seconds(cut)}

    def products(self, plan: BenchmarkPlan) -> Iterator[dict[str, object]]:
        """[m, k] x [k, n]; tf32 is fp32 with the matrix units allowed."""
        torch = self.torch
        stored = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        for dtype, (m, n, k) in itertools.product(plan.dtypes, plan.products):
            if self.device == "cuda":
                torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
            left = torch.rand((m, k), device=self.device).to(stored[dtype])
            right = torch.rand((k, n), device=self.device).to(stored[dtype])
            target = torch.empty((m, n), device=self.device, dtype=stored[dtype])
            seconds = self.seconds(_without_run(partial(torch.mm, left, right, out=target)))
            yield {"operation": "matmul", "dtype": dtype, "m": m, "n": n, "k": k, "seconds": seconds}

    def seconds(self, kernel: Callable[[int], object]) -> float:
        """The fastest of RUNS, each of as many repetitions as a clock can tell."""
        kernel(0)
        once = self._timed(kernel, 0, 1)
        repetitions = max(1, min(200, int(1e-3 / max(once, 1e-7))))
        return min(self._timed(kernel, run, repetitions) for run in range(RUNS)) / repetitions

    def evicted_seconds(self, kernel: Callable[[Any], object], before: Callable[[int], Any] = _same) -> float:
        """The fastest of RUNS of a kernel, after one that is not counted; it may find other data in the caches.

        It is given what `before` gives for the number of the run; that is not timed.
        """
        if not self.evicts and before is _same:
            return self.seconds(kernel)
        seconds = []
        for run in range(RUNS + 1):
            given = before(run)
            passes = 0 if not self.evicts else 1 if self.device == "cpu" else -(-AHEAD_BYTES // self.evicted_bytes)
            seconds.append(self._timed(_without_run(partial(kernel, given)), run, 1, passes))
        return min(seconds[1:])

    @cached_property
    def _other_data(self) -> Any:
        return self.torch.ones(self.evicted_bytes // ELEMENT_BYTES, device=self.device)

    @cached_property
    def evicted_bytes(self) -> int:
        """Twice the largest cache of the processor or the device, as far as the system tells."""
        if self.device == "cuda":
            return max(LEAST_EVICTED_BYTES, 2 * int(self.torch.cuda.get_device_properties().L2_cache_size))
        sizes = [path.read_text().strip() for path in CACHES.glob("index*/size")]
        return max([LEAST_EVICTED_BYTES, *(2 * 1024 * int(size[:-1]) for size in sizes if size.endswith("K"))])

    def _timed(self, kernel: Callable[[int], object], first: int, repetitions: int, evictions: int = 0) -> float:
        torch = self.torch
        if self.device == "cuda":
            torch.cuda.synchronize()
        for _ in range(evictions):
            self._other_data.mul_(1.0001)
        if self.device == "cpu":
            clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
            began = clock()
            for run in range(first, first + repetitions):
                kernel(run)
            return clock() - began
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for run in range(first, first + repetitions):
            kernel(run)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3
