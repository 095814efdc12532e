"""Planning in one call: names, paths and models alike; wrong words are refused."""

import functools
import io
import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cost_models.workload.models import Workload
from planner import load_topology, load_workload, plan, verify
from planner.document.plan import Plan
from planner.reports import plan_summary
from planner.reports.words import crowded
from planner.solvers.limits import SearchLimits
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError

TOPOLOGY = """
name: two
nodes:
  - name: a
    accelerators:
      count: 2
      device: test
      hbm: {capacity: 1GB, bandwidth: 1TB/s}
      flops: {fp32: 10TFLOP/s}
    links:
      pcie: {bandwidth: 16GB/s}
"""
TABLES = "name,rows,dim,pooling_factor\nusers,10000,16,1\nitems,20000,32,5\n"
WORKLOAD = "name: small\nglobal_batch: 1024\ntables: tables.csv\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    (tmp_path / "tables.csv").write_text(TABLES)
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    return tmp_path


def scarce() -> tuple[Topology, Workload]:
    """Tables for which four ranks have too little HBM, and caches of any size in host memory."""
    tables: list[dict[str, object]] = [
        {"rows": 100_000 * (n + 1), "dim": 64, "zipf_alpha": 1.0 + 0.1 * n, "pooling_factor": 20} for n in range(4)
    ]
    return topology(node_group("n", ranks=4, hbm_bytes=0.05e9, ddr_bytes=4e9)), workload(tables)


def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which twenty seconds pass between two looks at the clock."""
    now = itertools.count(step=20)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    monkeypatch.setattr(SearchLimits, "__init__", functools.partialmethod(SearchLimits.__init__, clock=time.monotonic))


def test_with_an_effort_no_clock_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine writes the same bytes, and says of nothing that time ended it."""
    inputs = scarce()
    here = plan(*inputs, effort=1, gap=0.0, simulate=False)
    slow_clock(monkeypatch)
    there = plan(*inputs, effort=1, gap=0.0, simulate=False)
    assert here.provenance.cache_fractions
    assert here.to_json() == there.to_json()
    assert here.provenance.ended_by_time == ()
    assert "ended_by_time" not in here.to_json()


@pytest.mark.parametrize("limits", [{}, {"effort": 1, "time_limit_s": 60.0}, {"time_limit_s": 60.0}])
def test_what_a_clock_ended_is_said(monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]) -> None:
    """In the document and in the summary, whether the limit was given or is the usual one."""
    inputs = scarce()
    slow_clock(monkeypatch)
    found = plan(*inputs, gap=0.0, simulate=False, **limits)
    assert found.provenance.ended_by_time == ("cache sizes", "search")
    console = Console(file=io.StringIO(), width=80)
    plan_summary.render(found, console)
    assert "a time limit ended the cache sizes and the search; repeats may differ" in console.file.getvalue()  # type: ignore[attr-defined]
    assert verify(found) == []


def test_a_crowded_rank_is_named() -> None:
    """Caches that fill the HBM leave no room for what the estimate leaves out."""
    found = plan(*scarce(), simulate=False)
    fullest = max(found.ranks, key=lambda rank: rank.bytes.hbm / rank.capacity.hbm)
    console = Console(file=io.StringIO(), width=200)
    plan_summary.render(found, console)
    assert fullest.bytes.hbm > 0.9 * fullest.capacity.hbm
    assert f"Warning: rank {fullest.rank} takes " in console.file.getvalue()  # type: ignore[attr-defined]


def test_an_ample_plan_warns_of_nothing() -> None:
    """Ranks below nine tenths are none to speak of."""
    found = plan("zionex", "criteo-kaggle", effort=0, simulate=False)
    assert crowded(found) is None


def test_names_paths_and_models_give_the_same_plan(files: Path) -> None:
    """Whatever way the inputs are given."""
    topology, workload = files / "topology.yaml", files / "workload.yaml"
    by_path = plan(topology, workload, effort=0)
    assert by_path == plan(str(topology), str(workload), effort=0)
    assert by_path == plan(load_topology(topology), load_workload(workload), effort=0)
    assert by_path.status in {"feasible", "optimal"}
    assert [table.name for table in by_path.tables] == ["users", "items"]


def test_catalog_names_are_accepted() -> None:
    """As on the command line."""
    found = plan("zionex", "criteo-kaggle")
    assert isinstance(found, Plan)
    assert found.provenance.topology.name == "zionex"
    assert found.provenance.workload.name == "criteo-kaggle"
    assert verify(found) == []


def test_the_policy_is_kept_and_written_down(files: Path) -> None:
    """Only the tiers and shardings named, in the order of the documentation."""
    found = plan(files / "topology.yaml", files / "workload.yaml", tiers=["hbm"], shardings=["row_wise", "table_wise"])
    assert found.provenance.policy.tiers == ("hbm",)
    assert found.provenance.policy.shardings == ("table_wise", "row_wise")
    assert {table.tier for table in found.tables} == {"hbm"}
    assert {table.sharding for table in found.tables} <= {"table_wise", "row_wise"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tiers": ["hbm", "dram"]}, "dram"),
        ({"shardings": ["row-wise"]}, "did you mean 'row_wise'"),
        ({"tiers": ["hmb"], "shardings": ["rowwise"]}, "rowwise"),
    ],
)
def test_unknown_words_are_refused(files: Path, wrong: dict[str, list[str]], said: str) -> None:
    """An InputError names every one of them, with a suggestion."""
    with pytest.raises(InputError) as error:
        plan(files / "topology.yaml", files / "workload.yaml", **wrong)
    assert said in str(error.value)
    assert len(error.value.faults) == len(wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"gap": float("nan"), "time_limit_s": float("nan"), "effort": -1, "seed": -2}, "gap: nan must be at least 0"),
        ({"seeds": 0, "workers": 0}, "seeds: 0 must be at least 1"),
        ({"gap": -0.1, "time_limit_s": -1.0}, "time_limit_s: -1.0 must be at least 0"),
        ({"effort": 1.5, "seed": "7", "gap": "1%", "time_limit_s": True}, "seed: '7' is not a whole number"),
        ({"gap": None, "seed": None}, "gap: None is not a number"),
    ],
)
def test_wrong_limits_are_refused(files: Path, wrong: dict[str, Any], said: str) -> None:
    """All of them at once, before anything is planned."""
    with pytest.raises(InputError) as error:
        plan(files / "topology.yaml", files / "workload.yaml", **wrong)
    assert said in str(error.value)
    assert len(error.value.faults) == len(wrong)


@pytest.mark.parametrize(
    ("workload", "topology", "overrides"),
    [
        ("nv-small", "dgx-h100", []),
        ("dlrm-dcnv2", "zionex", ["pipeline=prefetch"]),
        ("fbgemm-050", "zionex-16", ["mode=inference"]),
    ],
)
def test_tables_stay_in_hbm_where_there_is_plenty(workload: str, topology: str, overrides: list[str]) -> None:
    """Memory costs nothing there, and what costs the same elsewhere stays in the fastest tier."""
    found = plan(topology, load_workload(workload, overrides=overrides), effort=0)
    assert found.proof is not None
    assert found.proof.memory_multipliers == ()
    assert {table.tier for table in found.tables} == {"hbm"}


def test_missing_inputs_are_refused(files: Path) -> None:
    """A name that is neither in the catalog nor a file."""
    with pytest.raises(InputError):
        plan("no-such-cluster", files / "workload.yaml")
    with pytest.raises(InputError):
        plan(files / "topology.yaml", "no-such-model")


def test_the_seed_is_written_down(files: Path) -> None:
    """Two seeds, two documents that differ in nothing else that matters."""
    first, second = (plan(files / "topology.yaml", files / "workload.yaml", seed=seed) for seed in (1, 2))
    assert (first.provenance.seed, second.provenance.seed) == (1, 2)
    assert first.tables == second.tables
