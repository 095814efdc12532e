"""A study over the number of nodes and the sizing of the same cluster agree on which sizes do."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from cost_models.workload.loading import load_workload
from planner.capacity.sizing import size
from planner.studies.results import StudyResults
from topologies.loading import load_topology

BATCH = 1 << 19
SEARCH = {"effort": 0, "simulate": False}
APART = 1.1
"""Of throughputs whose searches are off by less."""


@pytest.mark.slow
def test_they_agree_on_which_sizes_do(computed: Callable[..., StudyResults], tmp_path: Path) -> None:
    """For targets halfway between neighbouring throughputs of the study, which short searches tell apart."""
    axes = {"topology.nodes.0.count": [1, 2, 4], "workload.global_batch": [BATCH]}
    frame = computed(axes=axes, search=SEARCH).frame
    speeds = dict(zip(frame["topology.nodes.0.count"], frame["samples_per_s"], strict=True))
    model, cluster = load_workload(tmp_path / "small.yaml", global_batch=BATCH), load_topology("dgx-a100-80")
    apart = [(low, high) for low, high in itertools.pairwise(sorted(speeds.values())) if high > APART * low]
    assert apart
    for low, high in apart:
        target = (low + high) / 2
        (found,) = size(cluster, model, target_samples_per_s=target, max_nodes=4, each_tier=False, gap=0.1)
        assert found.answer is not None
        judged = {one.nodes: one.suffices for one in found.candidates if one.nodes in speeds}
        assert len(judged) > 1
        assert judged == {nodes: speeds[nodes] >= target for nodes in judged}
