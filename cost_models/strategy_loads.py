"""Loads of a sharded dense part by what its strategies keep busy, which a bound over all of them prices one by one."""

import numpy as np

from cost_models.layer_loads import Channel
from cost_models.resources import CARDS, DEVICE, LINKS, STASHES, Resource
from cost_models.shards import Floats
from cost_models.step_base import StepBase

CHANNEL_TERMS: dict[Channel, tuple[str, tuple[Resource, ...]]] = {
    "first_work": ("bottom_mlp_forward", (DEVICE,)),
    "sums_port": ("all_reduce", LINKS),
    "sums_card": ("all_reduce", CARDS),
    "gathers_port": ("dense_units", LINKS),
    "gathers_card": ("dense_units", CARDS),
    "first_port": ("bottom_mlp_forward", LINKS),
    "first_card": ("bottom_mlp_forward", CARDS),
}
"""The terms of what a sharded dense part keeps busy, and the resources; its work is on devices."""


def channel_loads(base: StepBase, channel: Channel) -> Floats:
    """[K, C] loads of one second of what a sharded dense part keeps busy."""
    loads = np.zeros_like(base.loads)
    for k in range(len(base.kinds)):
        if channel in CHANNEL_TERMS:
            term, resources = CHANNEL_TERMS[channel]
            base.put(loads[k], term, dict.fromkeys(resources, 1.0), k)
        else:
            base.put(loads[k], "dense", {DEVICE: 1.0}, k)
    return loads


def loads_without_strategies(base: StepBase) -> Floats:
    """[K, C] loads, begins aside, of what is the same however ranks shard the dense part, which they do here; the
    passes beside which tables are stashed are not."""
    assert base.sharded is not None
    sums, gathers, firsts = (
        base.sharded.summed_over(),
        base.sharded.gathered_over(first=False),
        base.sharded.gathered_over(first=True),
    )
    busy_s: dict[Channel, Floats] = {
        "work": np.array([each.rest_s for each in base.dense]),
        "first_work": np.array([each.bottom_forward_s for each in base.dense]),
        "sums_port": sums[0],
        "sums_card": sums[1],
        "gathers_port": gathers[0],
        "gathers_card": gathers[1],
        "first_port": firsts[0],
        "first_card": firsts[1],
    }
    of_strategies = sum(channel_loads(base, channel) * seconds[:, None] for channel, seconds in busy_s.items())
    of_passes = [column.resource in STASHES for column in base.schedule.columns]
    return np.where(of_passes, 0.0, np.maximum(base.own_loads() - of_strategies, 0.0))
