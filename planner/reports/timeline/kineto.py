"""The timeline of a rank as the PyTorch profiler (Kineto) writes it, in the Chrome trace event format.

Perfetto and chrome://tracing show it; HolisticTraceAnalysis takes it apart. The latter knows kernels by their names:
`nccl…` communicates, `Memcpy…` moves memory, the rest computes. Times are whole microseconds: it would round starts up
and ends down, and open gaps between kernels that follow each other without one.

The host is not simulated beyond its overhead, for which the device waits and which has a thread of its own: the
launches of a step stand at its beginning, as of a host that runs ahead, and `data loading` is its only other work.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, pairwise
from typing import Any

import numpy as np

from cost_models.simulator.program import COMPUTE, DATA, HOST, TaskKind
from cost_models.simulator.simulation import Simulation
from planner.reports.timeline.slices import Load, Slice, streams

DEFAULT_STREAM, FIRST_OTHER_STREAM = 7, 20
"""Kineto's numbers of the default stream of CUDA, and of those from PyTorch's pool."""
COLLECTIVES: dict[TaskKind, tuple[str, str]] = {
    "all-to-all": ("all_to_allv", "ncclDevKernel_SendRecv"),
    "all-reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    "reduce-scatter": ("reduce_scatter", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"),
    "all-gather": ("all_gather", "ncclDevKernel_AllGather_RING_LL"),
}
"""The names of the collective and of its kernel, by the kind of an exchange."""

FIRST_CORRELATION = 100_000
"""HolisticTraceAnalysis keeps places in the file in the smallest integers that hold the correlations: not too small."""

Event = dict[str, Any]


def documents(
    simulation: Simulation, slices_of: Mapping[int, Sequence[Slice]], loads_of: Mapping[int, Sequence[Load]]
) -> dict[int, str]:
    """Return the whole file of every rank. The same simulation gives the same text."""
    flows = _flows(simulation, slices_of)
    return {
        rank: _document(simulation, rank, [*_Rank(simulation, rank).events(of_rank, loads_of[rank]), *flows[rank]])
        for rank, of_rank in slices_of.items()
    }


def _document(simulation: Simulation, rank: int, events: Sequence[Event]) -> str:
    network = simulation.network
    accelerators = network.topology.nodes[network.kind_of_rank[rank]].accelerators
    device = {
        "id": _device(simulation, rank),
        "name": accelerators.device,
        "totalGlobalMem": int(accelerators.hbm.capacity),
    }
    head = {
        "schemaVersion": 1,
        # HolisticTraceAnalysis reads lines until one has the rank, with a space after the colon.
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": network.world},
        "deviceProperties": [device],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceName": f"rank_{rank}.json",
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    rows = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    return "{\n" + ",\n".join(lines) + f',\n"traceEvents": [\n{rows}\n]\n}}\n'


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _device(simulation: Simulation, rank: int) -> int:
    """The number of the rank's device within its node."""
    return rank - int(np.argmax(simulation.network.node_of_rank == simulation.network.node_of_rank[rank]))


class _Rank:
    """Writes the events of one rank. Processes are numbered so that files of several ranks can be joined."""

    def __init__(self, simulation: Simulation, rank: int) -> None:
        self._rank, self._device = rank, _device(simulation, rank)
        self._node = int(simulation.network.node_of_rank[rank])
        self._gpu, self._host = rank, simulation.network.world + rank
        self._loader, self._overhead = (threads * simulation.network.world + rank for threads in (2, 3))
        low, _ = simulation.window
        ends = simulation.ends[simulation.fill : simulation.last + 1] - low
        self._steps = [_us(end) for end in ends]
        self._first_step = simulation.fill
        self._streams = _stream_numbers(simulation)

    def events(self, slices: Sequence[Slice], loads: Sequence[Load]) -> Iterator[Event]:
        yield from self._names(slices)
        for number, (start, end) in enumerate(pairwise(self._steps)):
            name = f"ProfilerStep#{self._first_step + number}"
            yield self._span("user_annotation", name, self._host, self._host, start, end)
        correlation = FIRST_CORRELATION
        for work in slices:
            if work.task.stream in (DATA, HOST):
                thread = self._loader if work.task.stream == DATA else self._overhead
                yield self._span("cpu_op", work.task.name, self._host, thread, _us(work.start), _us(work.end))
                continue
            correlation += 1
            yield self._launch(work, correlation)
            yield self._kernel(work, correlation)
        for load in loads:
            yield from self._counter(load)

    def _names(self, slices: Sequence[Slice]) -> Iterator[Event]:
        used = {work.task.stream for work in slices}
        processes = ((self._gpu, "device", f"GPU {self._device} of node {self._node}"), (self._host, "host", "CPU"))
        for pid, what, label in processes:
            yield self._named(pid, 0, "process_name", name=f"rank {self._rank} {what}")
            yield self._named(pid, 0, "process_labels", labels=label)
            yield self._named(pid, 0, "process_sort_index", sort_index=pid)
        threads = [
            (self._gpu, number, f"stream {number} {name}") for name, number in self._streams.items() if name in used
        ]
        threads.append((self._host, self._host, "main thread"))
        if HOST in used:
            threads.append((self._host, self._overhead, "fixed overhead"))
        if DATA in used:
            threads.append((self._host, self._loader, "data loader"))
        for pid, tid, name in threads:
            yield self._named(pid, tid, "thread_name", name=name)
            yield self._named(pid, tid, "thread_sort_index", sort_index=tid)

    @staticmethod
    def _named(pid: int, tid: int, name: str, /, **args: str | int) -> Event:
        return {"ph": "M", "name": name, "ts": 0, "pid": pid, "tid": tid, "args": args}

    @staticmethod
    def _span(cat: str, name: str, pid: int, tid: int, start: int, end: int, /, **args: Any) -> Event:
        return {
            "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": end - start, "args": args
        }  # fmt: skip

    def _launch(self, work: Slice, correlation: int) -> Event:
        start = _us(work.start)
        began = self._steps[bisect_right(self._steps, start, hi=len(self._steps) - 1) - 1]
        name = "cudaMemcpyAsync" if _moves_memory(work) else "cudaLaunchKernel"
        ids = {"External id": correlation, "correlation": correlation}
        return self._span("cuda_runtime", name, self._host, self._host, began, began, **ids)

    def _kernel(self, work: Slice, correlation: int) -> Event:
        task, stream = work.task, self._streams[work.task.stream]
        cat, name, more = "kernel", task.name, {}
        if task.sent_bytes is not None:
            collective, kernel = COLLECTIVES[task.kind]
            name = f"{kernel}({task.name})"
            more = {
                "Collective name": collective,
                "In msg nelems": round(float(task.sent_bytes[work.place])),
                "dtype": "Byte",
                "Group size": len(task.ranks),
                "Process Group Name": "0",
            }
        elif _moves_memory(work):
            cat, name = "gpu_memcpy", f"Memcpy HtoD ({task.name})"
        args = {
            "External id": correlation,
            "device": self._device,
            "context": 1,
            "stream": stream,
            "correlation": correlation,
            "task": task.name,
            "batch": task.step,
            **more,
        }
        return self._span(cat, name, self._gpu, stream, _us(work.start), _us(work.end), **args)

    def _counter(self, load: Load) -> Iterator[Event]:
        """The counter's values by microsecond; of several within one, the last counts."""
        values = {_us(time): round(share, 4) for time, share in zip(load.time, load.share.tolist(), strict=True)}
        for ts, share in values.items():
            yield {
                "ph": "C", "cat": "link", "name": f"load of {load.name}", "pid": self._gpu, "tid": 0, "ts": ts,
                "args": {"share": share},
            }  # fmt: skip


def _moves_memory(work: Slice) -> bool:
    """Whether copy engines do it: what is brought beside the computation."""
    return work.task.stream != COMPUTE and not work.task.is_exchange


def _stream_numbers(simulation: Simulation) -> dict[str, int]:
    others = [name for name in streams(simulation) if name not in (COMPUTE, DATA, HOST)]
    return {COMPUTE: DEFAULT_STREAM, **{name: FIRST_OTHER_STREAM + number for number, name in enumerate(others)}}


def _flows(simulation: Simulation, slices_of: Mapping[int, Sequence[Slice]]) -> dict[int, list[Event]]:
    """The arrows of each rank: from the rank that enters an exchange first to the one that enters next, and so on."""
    entered: dict[int, list[tuple[int, int]]] = {}
    for rank, of_rank in slices_of.items():
        for work in of_rank:
            if work.task.is_exchange:
                entered.setdefault(work.number, []).append((_us(work.start), rank))
    stream_of = _stream_numbers(simulation)
    arrows: dict[int, list[Event]] = {rank: [] for rank in slices_of}
    ids = count(1)
    for number, unordered in sorted(entered.items()):
        task = simulation.program.tasks[number]
        for ends in pairwise(sorted(unordered)):
            flow = {"id": next(ids), "cat": "collective", "name": task.name, "tid": stream_of[task.stream]}
            for (ts, rank), way in zip(ends, ({"ph": "s"}, {"ph": "f", "bp": "e"}), strict=True):
                arrows[rank].append({**way, **flow, "pid": rank, "ts": ts})
    return arrows
