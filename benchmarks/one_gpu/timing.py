"""Times of kernels and of whole steps on one device."""

import statistics
import time
from collections.abc import Callable

import torch

REPLAYED, REPLAYS, STEPS = 8, 5, 12


class Bench:
    """Timing on one device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_cuda = device == "cuda"

    def sync(self) -> None:
        """Wait for the device."""
        if self.is_cuda:
            torch.cuda.synchronize()

    def kernel_s(self, kernel: Callable[[], object]) -> float:
        """Seconds of a kernel without its launch."""
        for _ in range(2):
            kernel()
        self.sync()
        if not self.is_cuda:
            began = time.perf_counter()
            kernel()
            return time.perf_counter() - began
        return self._replayed_s(kernel)

    def captured_s(self, call: Callable[[], object]) -> float:
        """Seconds of what goes forward and back, captured; it is tried on another stream first, as PyTorch asks."""
        if not self.is_cuda:
            return self.kernel_s(call)
        self.try_aside(call)
        return self._replayed_s(call)

    @staticmethod
    def try_aside(call: Callable[[], object]) -> None:
        """Call on another stream a few times, as PyTorch asks before a capture."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)

    def _replayed_s(self, call: Callable[[], object]) -> float:
        """Seconds of a call among several that are captured in one graph."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(REPLAYED):
                call()
        graph.replay()
        return min(self.event_s(graph.replay) for _ in range(REPLAYS)) / REPLAYED

    def event_s(self, call: Callable[[], object]) -> float:
        """Seconds on the device from before a call to after it."""
        if not self.is_cuda:
            began = time.perf_counter()
            call()
            return time.perf_counter() - began
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.sync()
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def step_s(self, step: Callable[[], object], steps: int = STEPS) -> float:
        """Seconds a step, of steps in a row; the median of three such rows."""
        for _ in range(4):
            step()
        rows = []
        for _ in range(3):
            self.sync()
            began = time.perf_counter()
            for _ in range(steps):
                step()
            self.sync()
            rows.append((time.perf_counter() - began) / steps)
        return statistics.median(rows)

    def host_s(self, step: Callable[[], object]) -> float:
        """Seconds that the host takes to launch a step, of a queue that is empty at its begin."""
        times = []
        for _ in range(6):
            self.sync()
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
        return min(times)
