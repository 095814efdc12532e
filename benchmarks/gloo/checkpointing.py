"""`python -m benchmarks.gloo.checkpointing`: what computing blocks again costs the host, in processor time.

Stacks of linear layers of 16 columns, which have next to nothing to compute, forward and backward on one thread: plain,
and with `torch.utils.checkpoint` around each block. The least of five medians counts. Written as CSV.
"""

import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

SHAPES = ((2, 1), (4, 1), (8, 1), (16, 1), (4, 2), (8, 2), (2, 4), (4, 4), (8, 4), (2, 8), (4, 8))
"""Blocks, and layers of each."""
COLUMNS, SAMPLES, RUNS, STEPS = 16, 4, 5, 40


def least_ms(step: Callable[[], None]) -> float:
    """Of the medians of RUNS times STEPS steps."""
    medians = []
    for _ in range(RUNS):
        taken = []
        for _ in range(STEPS):
            began = time.process_time()
            step()
            taken.append(time.process_time() - began)
        medians.append(sorted(taken)[STEPS // 2])
    return 1e3 * min(medians)


def measured(blocks: int, layers: int) -> tuple[float, float]:
    """Milliseconds of processor time of a step, plain and checkpointed."""
    stack = nn.ModuleList(
        nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(COLUMNS, COLUMNS), nn.ReLU())))
        for _ in range(blocks)
    )
    numbers = torch.randn(SAMPLES, COLUMNS, requires_grad=True)

    def step(*, again: bool) -> None:
        found = numbers
        for block in stack:
            found = checkpoint(block, found, use_reentrant=False) if again else block(found)
        found.mean().backward()

    return least_ms(lambda: step(again=False)), least_ms(lambda: step(again=True))


def main() -> None:
    torch.set_num_threads(1)
    print("blocks,layers_of_block,plain_ms,checkpointed_ms")
    for blocks, layers in SHAPES:
        plain, again = measured(blocks, layers)
        print(f"{blocks},{layers},{plain:.4f},{again:.4f}", flush=True)


if __name__ == "__main__":
    main()
