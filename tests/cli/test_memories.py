"""A table in storage-class memory and one on remote hosts, from the topology file to the answer of every command."""

import json

import pytest

from cost_models.shards import MEMORY_TIERS
from planner.cli.exits import ExitCode
from planner.reports.pages.palette import MEMORY_COLOURS

TOPOLOGY = """
name: memories
nodes:
- name: node
  count: 2
  accelerators:
    count: 2
    device: A100-SXM4-40GB
    hbm: {capacity: 40GB, bandwidth: 1555GB/s}
    flops: {fp32: 19.5TFLOP/s}
  host:
    scm: {capacity: 400GB, read_bandwidth: 78GB/s, write_bandwidth: 27GB/s, latency: 305ns, access_size: 256B}
  remote: {count: 2, capacity: 500GB, bandwidth: 200GB/s, kind: ethernet, network_bandwidth: 200Gb/s}
  links:
    pcie: {bandwidth: 31.5GB/s}
    scale_up: {kind: nvlink3, bandwidth: 300GB/s}
    scale_out: {kind: roce, count: 2, bandwidth: 200Gb/s}
    front_end: {kind: ethernet, count: 2, bandwidth: 100Gb/s}
"""
WORKLOAD = """
name: large
global_batch: 8192
embedding: {dtype: fp32, optimizer: rowwise_adagrad}
pipeline: none
tables:
- {name: hot, rows: 1_000_000, dim: 64, pooling_factor: 20, zipf_alpha: 1.05}
- {name: near, rows: 500_000_000, dim: 128, pooling_factor: 10, zipf_alpha: 1.05}
- {name: far, rows: 800_000_000, dim: 128, pooling_factor: 2, zipf_alpha: 1.05}
"""
POLICY = """
tables:
- {match: near, tiers: [scm]}
- {match: far, tiers: remote_cached}
"""


@pytest.fixture
def files(tmp_path):
    paths = {}
    for name, text in (("topology", TOPOLOGY), ("workload", WORKLOAD), ("policy", POLICY)):
        paths[name] = tmp_path / f"{name}.yaml"
        paths[name].write_text(text)
    return paths | {"plan": tmp_path / "plan.json"}


@pytest.fixture
def planned(run, files):
    """The plan document, written by `planner plan`."""
    inputs = ("-t", files["topology"], "-w", files["workload"], "--policy", files["policy"])
    result = run("plan", *inputs, "--effort", 0, "--gap", "50%", "-o", files["plan"])
    assert result.exit_code == 0, result.stderr
    return result, json.loads(files["plan"].read_text())


def test_files_are_checked(run, files):
    """Without a warning; a slow memory is none of this kind, and remote hosts need cards to reach them."""
    result = run("check", files["topology"])
    assert result.exit_code == 0
    assert "warning" not in result.stdout
    slow = run(
        "plan", "-t", files["topology"], "-w", files["workload"], "--set", "topology.nodes.0.host.scm.latency=1ms"
    )
    assert slow.exit_code == 0
    files["topology"].write_text(TOPOLOGY.replace("latency: 305ns", "latency: 1ms"))
    assert "drives belong into host.ssd" in " ".join(run("check", files["topology"]).stdout.split())
    files["topology"].write_text("\n".join(line for line in TOPOLOGY.splitlines() if "front_end" not in line))
    result = run("check", files["topology"])
    assert result.exit_code == ExitCode.INVALID_INPUT
    assert "remote hosts are reached by the cards of links.front_end" in " ".join(result.stdout.split())


def test_the_plan_says_which_bytes_are_where(planned):
    """Exact bytes of weights and state; what is not there is not named."""
    result, plan = planned
    assert "cache_fetch" in result.stdout
    hot, near, far = plan["tables"]
    assert (hot["tier"], near["tier"], far["tier"]) == ("hbm", "scm", "remote_cached")
    for table, memory, rows in ((near, "scm", 500_000_000), (far, "remote", 800_000_000)):
        sizes = [shard["bytes"] for shard in table["shards"]]
        columns = sum(shard["columns"] * shard["rows"] for shard in table["shards"])
        blocks = sum(shard["rows"] for shard in table["shards"])
        assert columns == rows * 128
        assert sum(size[memory] for size in sizes) == pytest.approx(4 * (columns + blocks), abs=len(sizes))
    assert all(set(shard["bytes"]) == {"hbm", "ddr", "ssd"} for shard in hot["shards"])
    capacity = plan["ranks"][0]["capacity"]
    assert capacity["scm"] == 380e9
    assert capacity["remote"] == 900e9


def test_every_command_knows_them(run, files, planned):
    """Verified, played, explained; the simulated step is the estimate's within 3 %."""
    _, plan = planned
    assert plan["simulated"]["step_s"] == pytest.approx(plan["objective"]["step_s"], rel=0.03)
    verified = run("verify", files["plan"])
    assert verified.exit_code == 0, verified.stdout
    played = run("simulate", files["plan"], "--slow-link", "remote:0=50%")
    assert played.exit_code == 0, played.stderr
    assert "cache fetch (REMOTE)" in " ".join(played.stdout.split())
    explained = run("explain", files["plan"], "--table", "near")
    assert explained.exit_code == 0
    assert "of scm" in explained.stdout
    assert run("memory", files["plan"]).exit_code == 0
    page = files["plan"].with_suffix(".html")
    assert run("report", files["plan"], "-o", page, "-q").exit_code == 0
    for words in ("SCM of each node", "REMOTE of each group"):
        assert words in page.read_text(encoding="utf-8")


def test_every_memory_has_a_colour_of_its_own():
    """Whatever the one list of memories holds."""
    assert set(MEMORY_COLOURS) == set(MEMORY_TIERS)
    assert len(set(MEMORY_COLOURS.values())) == len(MEMORY_TIERS)


@pytest.mark.slow
def test_what_each_memory_saves(run, files):
    """`size` leaves each of them out: without both, HBM alone holds the tables, on more nodes."""
    flags = (
        "-t",
        files["topology"],
        "-w",
        files["workload"],
        "--fits",
        "--effort",
        0,
        "--gap",
        "10%",
        "--format",
        "json",
        "-q",
    )
    sizes = {each["allowed"]: each for each in json.loads(run("size", *flags).stdout)["sizes"]}
    assert set(sizes) == {"all tiers", "without remote", "without scm", "without scm and remote"}
    nodes = {name: each["answer"]["nodes"] for name, each in sizes.items()}
    assert nodes["all tiers"] < nodes["without scm and remote"]
    assert sizes["all tiers"]["tiers"] == ["hbm", "scm_cached", "scm", "remote_cached"]


def test_a_tier_without_its_memory_is_named_with_the_table(run, files):
    """Not a silent zero, nor a table that fits nowhere."""
    files["policy"].write_text("tables:\n- {match: far, tiers: [ssd_cached]}\n")
    result = run("plan", "-t", files["topology"], "-w", files["workload"], "--policy", files["policy"])
    assert result.exit_code == ExitCode.INVALID_INPUT
    said = " ".join(result.stderr.split())
    assert "policy.yaml:2" in said
    assert "'far' may only be in ssd_cached, and memories has no ssd" in said
