"""A memory, a tier and a compressor are rows of tables: copies of the packages that have one more plan with it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner import plan

ROOT = Path(__file__).parents[2]
TOPOLOGY = """
name: one
nodes:
- name: g
  count: 2
  accelerators:
    count: 2
    device: A100-SXM4-40GB
    hbm: {capacity: 1GB, bandwidth: 1555GB/s}
    flops: {fp32: 19.5TFLOP/s, tf32: 156TFLOP/s}
  host: {MEMORY: {capacity: 64GB, read_bandwidth: 40GB/s, write_bandwidth: 20GB/s, latency: 350ns}}
  links:
    pcie: {bandwidth: 31.5GB/s, accelerators_per_switch: 2}
    scale_up: {kind: nvlink3, bandwidth: 300GB/s}
    scale_out: {kind: roce, count: 2, bandwidth: 25GB/s}
"""
WORKLOAD = """
name: two
global_batch: 1024
tables:
- {name: users, rows: 20000000, dim: 64, pooling_factor: 3, zipf_alpha: 1.05, dtype: DTYPE}
- {name: items, rows: 2000000, dim: 64, pooling_factor: 10, zipf_alpha: 1.1, dtype: DTYPE}
"""
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from planner.cli.app import app

found = [CliRunner().invoke(app, command) for command in json.loads(sys.argv[1])]
print(json.dumps([(each.exit_code, each.output) for each in found]))
"""
Insertions = Mapping[str, Mapping[str, str]]
"""Of each file, what is put behind the one place where a text stands."""

NEW_MEMORY: Insertions = {
    "topologies/hardware.py": {
        'MemoryTier = Literal["hbm", "ddr", "ssd", "scm", "remote"': ', "pool"',
        "    scm: Annotated[StorageClass | None, LATER] = None\n": (
            "    pool: Annotated[StorageClass | None, LATER] = None\n"
        ),
        "    scm: Annotated[Share, Field(exclude_if=lambda share: share == 0.05)] = 0.05\n": (
            "    pool: Annotated[Share, Field(exclude_if=lambda share: share == 0.05)] = 0.05\n"
        ),
    },
    "cost_models/tiers.py": {
        "MEMORY_SCM, MEMORY_REMOTE": ", MEMORY_POOL",
        "    for row in (\n": '        MemoryRow("pool", "CXL pool", "node", "host", is_addressable=True),\n',
        '    "remote_cached",\n': '    "pool_cached",\n    "pool",\n',
        '    "remote_cached": TierRow("remote", "cached", (0.05, 0.2)),\n': (
            '    "pool_cached": TierRow("pool", "cached", (0.02, 0.1)),\n    "pool": TierRow("pool", "in_place"),\n'
        ),
        "SCM, REMOTE_CACHED": ", POOL_CACHED, POOL",
    },
}
NEW_TIER: Insertions = {
    "cost_models/tiers.py": {
        '    "remote_cached",\n': '    "scm_split",\n',
        '    "remote_cached": TierRow("remote", "cached", (0.05, 0.2)),\n': (
            '    "scm_split": TierRow("scm", "split", (0.1, 0.3)),\n'
        ),
        "SCM, REMOTE_CACHED": ", SCM_SPLIT",
    }
}
NEW_COMPRESSOR: Insertions = {
    "cost_models/workload/words.py": {'    "fp32",\n': '    "hashed",\n'},
    "cost_models/workload/formats.py": {
        '    "int2_nbit": NumberFormat(2, row_bytes=4, row_multiple=16, updates_in_place=False),\n': (
            '    "hashed": NumberFormat(32, ids_per_row=8),\n'
        )
    },
}


class Checkout:
    """A copy of the packages, changed."""

    def __init__(self, folder: Path, inserted: Insertions) -> None:
        """The copy in an empty folder."""
        self.folder = folder
        for package in ("planner", "cost_models", "topologies"):
            shutil.copytree(ROOT / package, folder / package)  # what is compiled holds for sources as old as it
        for name, texts in inserted.items():
            source = (folder / name).read_text()
            for anchor, text in texts.items():
                assert source.count(anchor) == 1, f"{anchor!r} stands {source.count(anchor)} times in {name}"
                source = source.replace(anchor, anchor + text)
            (folder / name).write_text(source)

    def call(self, *commands: Sequence[str]) -> list[str]:
        """What commands of the copy print, one after the other in one process."""
        command = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: list[tuple[int, str]] = json.loads(done.stdout)
        assert all(code == 0 for code, _ in found), found
        return [text for _, text in found]

    def plan(self, memory: str, dtype: str, *arguments: str) -> dict[str, Any]:
        """The plan of two tables, verified and simulated."""
        (self.folder / "t.yaml").write_text(TOPOLOGY.replace("MEMORY", memory))
        (self.folder / "w.yaml").write_text(WORKLOAD.replace("DTYPE", dtype))
        question = ("plan", "-t", "t.yaml", "-w", "w.yaml", "-o", "plan.json", "--effort", "0", *arguments)
        _, verified, simulated = self.call(question, ("verify", "plan.json"), ("simulate", "plan.json"))
        assert "everything holds" in verified
        assert "simulated step" in simulated
        document: dict[str, Any] = json.loads((self.folder / "plan.json").read_text())
        return document


def test_a_memory_is_two_files(tmp_path: Path) -> None:
    """Described in topologies and a row of the memories: policies, plans, verification and reports know it, and plans
    for clusters without it stay what they are, but for the tiers that their policy allows."""
    copy = Checkout(tmp_path, NEW_MEMORY)
    found = copy.plan("pool", "fp32", "--reserve", "pool=10%")
    assert {table["tier"] for table in found["tables"]} & {"pool_cached", "pool"}
    assert sum(rank["bytes"]["pool"] for rank in found["ranks"]) > 0
    assert all(abs(rank["capacity"]["pool"] - 64e9 * 0.95 * 0.9) <= 1 for rank in found["ranks"])
    assert found["provenance"]["policy"]["reserve"] == {"pool": "0.1"}
    there = tmp_path / "there.json"
    question = ("plan", "-t", "zionex", "-w", "nv-tiny", "--effort", "0", "--quiet", "-o", str(there))
    explained, counted, schema, _ = copy.call(
        ("explain", "plan.json"), ("memory", "plan.json"), ("schema", "plan"), question
    )
    assert "CXL pool" in explained
    assert "pool" in counted
    assert '"pool"' in schema
    theirs, ours = json.loads(there.read_text()), json.loads(plan("zionex", "nv-tiny", effort=0).to_json())
    assert {*theirs["provenance"]["policy"].pop("tiers")} == {
        *ours["provenance"]["policy"].pop("tiers"),
        "pool",
        "pool_cached",
    }
    assert ours["provenance"].pop("policy_fingerprint") != theirs["provenance"].pop("policy_fingerprint")
    assert ours == theirs


def test_a_tier_is_one_file(tmp_path: Path) -> None:
    """Another way to use a memory that kernels read as they read others: hot rows in HBM, the rest in its place."""
    found = Checkout(tmp_path, NEW_TIER).plan("scm", "fp32", "--tiers", "hbm,scm_split")
    split = [table for table in found["tables"] if table["tier"] == "scm_split"]
    assert split
    assert all(table["remap"]["hot_rows"] for table in split)


def test_a_compressor_is_two_files(tmp_path: Path) -> None:
    """Its word, and its row: of tables that join eight ids in a row, an eighth of the rows is planned and simulated."""
    found = Checkout(tmp_path, NEW_COMPRESSOR).plan("scm", "hashed", "--tiers", "hbm")
    assert {table["dtype"] for table in found["tables"]} == {"hashed"}
    ends = [max(shard["row_start"] + shard["rows"] for shard in table["shards"]) for table in found["tables"]]
    assert ends == [20_000_000 // 8, 2_000_000 // 8]
