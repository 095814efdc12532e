"""The plans of HugeCTR's own planner, found as it finds them: what MLPerf's submissions ran where no log prints a plan.

Its greedy search (NVIDIA-Merlin/HugeCTR, samples/dlrm/sharding/planner.py) in our words: tables go into buckets (GPUs,
or nodes), the hottest parts first, each into the bucket of the least cost that does not hold its table yet and has
room. Then the hottest table that can be is cut into twice as many parts and all is placed anew, twenty times; the plan
whose fullest bucket costs least wins. The printed plans of MLPerf's logs are its oracle.
"""

from dataclasses import dataclass

import numpy as np

ROUNDS = 20
"""How often all parts are placed."""
BYTES_PER_ELEMENT = 8
"""Weights and Adagrad state."""


@dataclass(frozen=True)
class Settings:
    """What a submission sets: `train.py --mem_comm_bw_ratio`, `--mem_comm_work_ratio`, `--memory_cap_for_embedding` and
    `--dp_sharding_threshold`."""

    memory_communication_ratio: float
    """Bandwidth of memory over that of the links."""
    work_ratio: float = 4.0
    memory_gb: float = 60.0
    """Of a GPU, for tables."""
    replicated_below_gb: float = 0.0


@dataclass(frozen=True)
class BucketPlan:
    """Which tables each bucket holds a part of, in the order of placement, and which every GPU holds."""

    buckets: tuple[tuple[int, ...], ...]
    replicated: tuple[int, ...]


def bucket_plan(hotness: np.ndarray, rows: np.ndarray, dim: int, buckets: int, settings: Settings) -> BucketPlan:
    """The plan for tables of `hotness` [T] lookups a sample and `rows` [T]; `memory_gb` is a bucket's.

    Raises ValueError where the memory is too small even for tables that are cut over all buckets.
    """
    size_gb = rows * dim * BYTES_PER_ELEMENT * 1e-9
    part_cost = settings.memory_communication_ratio / settings.work_ratio
    even = hotness.sum() / buckets + part_cost * len(hotness)
    if size_gb.sum() / buckets > settings.memory_gb:
        raise ValueError(f"{size_gb.sum():.1f} GB do not fit into {buckets} buckets of {settings.memory_gb} GB")
    every = tuple(range(len(hotness)))
    is_replicated = size_gb < settings.replicated_below_gb
    free_gb = settings.memory_gb - size_gb[is_replicated].sum()
    best_cost, best = even, (every,) * buckets
    cuts = np.where(is_replicated, 0, 1)
    order = np.flatnonzero(~is_replicated)
    parts = order[_hottest_first(hotness[order])]
    for _ in range(ROUNDS):
        placed, cost, stuck = _placed(parts, hotness, size_gb, cuts, (buckets, part_cost, free_gb))
        if stuck is None:
            if cost < best_cost:
                best_cost, best = cost, placed
            table = next((int(t) for t in parts if cuts[t] * 2 <= buckets), None)
        else:
            table = stuck if cuts[stuck] * 2 <= buckets else None
            if table is None:
                break
        if table is not None:
            cuts[table] *= 2
            parts = np.concatenate([parts[parts != table], np.full(cuts[table], table)])
        parts = parts[_hottest_first(hotness[parts] / cuts[parts])]
    return BucketPlan(best, tuple(np.flatnonzero(is_replicated).tolist()))


def _hottest_first(hotness: np.ndarray) -> np.ndarray:
    """The order of the parts: equal ones as numpy's introsort leaves them, which it still is for long doubles."""
    return np.argsort(hotness.astype(np.longdouble))[::-1]


def _placed(
    parts: np.ndarray, hotness: np.ndarray, size_gb: np.ndarray, cuts: np.ndarray, limits: tuple[int, float, float]
) -> tuple[tuple[tuple[int, ...], ...], float, int | None]:
    """The parts in their buckets, the cost of the fullest, and the table of a part that fits into none."""
    buckets, part_cost, free_gb = limits
    held: list[list[int]] = [[] for _ in range(buckets)]
    cost, taken_gb = np.zeros(buckets), np.zeros(buckets)
    for table in parts.tolist():
        more_gb = size_gb[table] / cuts[table]
        for bucket in np.argsort(cost, kind="stable").tolist():
            if table not in held[bucket] and taken_gb[bucket] + more_gb <= free_gb:
                held[bucket].append(table)
                cost[bucket] += hotness[table] / cuts[table] + part_cost
                taken_gb[bucket] += more_gb
                break
        else:
            return tuple(map(tuple, held)), float(cost.max()), int(table)
    return tuple(map(tuple, held)), float(cost.max()), None
