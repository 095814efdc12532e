"""Less to do it with never makes a step shorter at the same placement: neither estimated nor played."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from benchmarks.validation.ranking import random_shards
from cost_models.registry import cost_model
from cost_models.shards import SHARDINGS
from cost_models.workload.formats import DTYPES
from cost_models.workload.words import Dtype
from tests.oracles.instances import workload
from tests.properties.placed_cases import (
    Case,
    cases,
    expect_no_shorter,
    expect_no_shorter_estimate,
    factors,
    wide_cases,
)
from topologies.documents import Record
from topologies.loading import load_topology

RATES = {
    "scale-up": ("links", "scale_up", "bandwidth"),
    "scale-out": ("links", "scale_out", "bandwidth"),
    "PCIe": ("links", "pcie", "bandwidth"),
    "HBM": ("accelerators", "hbm", "bandwidth"),
    "FLOP/s": ("accelerators", "flops"),
    "DDR": ("host", "ddr", "bandwidth"),
    "SSD": ("host", "ssd", "read_bandwidth"),
    "SSD writes": ("host", "ssd", "write_bandwidth"),
    "IOPS": ("host", "ssd", "iops"),
}
BELOW = {
    "SCM": ("host", "scm", "read_bandwidth"),
    "SCM writes": ("host", "scm", "write_bandwidth"),
    "remote hosts": ("remote", "bandwidth"),
    "network of remote hosts": ("remote", "network_bandwidth"),
    "front-end cards": ("links", "front_end", "bandwidth"),
}
"""Rates beside RATES of clusters with every memory."""


def slower(record: Record, path: tuple[str, ...], factor: float) -> Record:
    """A copy in which the rate at `path`, or each of those there, is `factor` times less."""
    value = getattr(record, path[0])
    if value is None:
        return record
    if len(path) > 1:
        less: Any = slower(value, path[1:], factor)
    elif isinstance(value, Record):
        less = value.model_copy(update={name: rate / factor for name, rate in value if rate is not None})
    else:
        less = value / factor
    return record.model_copy(update={path[0]: less})


def with_less(case: Case, path: tuple[str, ...], factor: float) -> Case:
    """The same on nodes with `factor` times less of one rate; the same case where they have none of it."""
    nodes = tuple(slower(group, path, factor) for group in case.cluster.nodes)
    if nodes == case.cluster.nodes:
        return case
    return replace(case, cluster=case.cluster.model_copy(update={"nodes": nodes}))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(case=wide_cases(), factor=factors, word=st.sampled_from(DTYPES))
def test_slower_hardware_for_any_format_on_the_wire(case: Case, factor: float, word: Dtype) -> None:
    """With vectors and gradients in any format it is not estimated shorter either."""
    more: dict[str, dict[str, object]] = {"communication": {"forward": word, "backward": word}}
    if case.fields["mode"] == "training":
        more["dense"] = {"gradients": word}
    asked = case.with_more(more)
    for what, path in (RATES | BELOW).items():
        note(what)
        expect_no_shorter_estimate(with_less(asked, path, factor), asked)


@settings(max_examples=16, deadline=None, derandomize=True)
@given(case=cases(), factor=factors)
def test_slower_hardware(case: Case, factor: float) -> None:
    """With less of any rate it is not shorter."""
    for rate, path in RATES.items():
        if path[0] == "host" and not all(getattr(group.host, path[1]) for group in case.cluster.nodes):
            continue
        note(rate)
        expect_no_shorter(with_less(case, path, factor), case)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(case=wide_cases(), factor=factors)
def test_slower_memories_of_tables_anywhere(case: Case, factor: float) -> None:
    """With less of any rate it is not estimated shorter."""
    for rate, path in (RATES | BELOW).items():
        note(rate)
        expect_no_shorter_estimate(with_less(case, path, factor), case)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(case=wide_cases(), factor=factors)
def test_later_first_answers(case: Case, factor: float) -> None:
    """With remote hosts that take longer to answer it is not estimated shorter."""
    (group,) = case.cluster.nodes
    assert group.remote is not None
    later = group.remote.model_copy(update={"latency": group.remote.latency * factor})
    nodes = (group.model_copy(update={"remote": later}),)
    expect_no_shorter_estimate(replace(case, cluster=case.cluster.model_copy(update={"nodes": nodes})), case)


@pytest.mark.parametrize("factor", [1.01, 1.1, 1.5])
def test_sums_over_a_card_that_ranks_share(factor: float) -> None:
    """Eight A10G of a node share its card, over which sums of gradients last longest. While only what one rank has of
    them was taken to end with the dense part, 1 % less of PCIe shortened a step by 0.1 us."""
    cluster = load_topology("a10g-8", nodes=2)
    tables = tuple({"rows": 10_000, "dim": dim, "pooling_factor": 30.0} for dim in (32, 8, 64, 8))
    dense = {"macs_per_sample": 496_725, "parameters": 17_570}
    fields = {"software": "torchrec", "pipeline": "none", "global_batch": 192, "dense": dense}
    model = cost_model("physical", cluster, workload(tables, **fields))
    placed = random_shards(model, np.random.default_rng(0), (SHARDINGS.index("table_wise"),))
    case = Case(cluster, tables, fields, placed)
    expect_no_shorter(with_less(case, RATES["PCIe"], factor), case)
