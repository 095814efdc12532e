"""The tutorial, from an empty folder: its own commands on dumps and logs as a user has them."""

import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from planner.document.plan import read_plan

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "from-logs-to-a-plan.md"
TABLES, SAMPLES = 80, 30_000
NICS = "\n".join(f"  NIC{k}: mlx5_{k}" for k in range(8))


def topo() -> str:
    """What nvidia-smi says of a node with eight accelerators, pairs of which share a switch with two cards."""
    names = [f"GPU{k}" for k in range(8)] + [f"NIC{k}" for k in range(8)]
    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])]
    for row in range(16):
        cells = [
            "X" if row == column
            else "NV18" if row < 8 and column < 8
            else "PIX" if row % 8 == column % 8
            else "PXB" if row % 8 // 2 == column % 8 // 2
            else "SYS"
            for column in range(16)
        ]  # fmt: skip
        lines.append("\t".join([names[row], *cells, "0-55", "0"]))
    return "\n".join(lines) + f"\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n{NICS}\n"


@pytest.mark.slow
def test_five_commands_from_dumps_and_logs_to_a_verified_plan(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("topo.txt").write_text(topo())
    rows = "\n".join("NVIDIA H100 80GB HBM3, 81559 MiB" for _ in range(8))
    Path("gpus.csv").write_text(f"name, memory.total [MiB]\n{rows}\n")
    Path("topology.conf").write_text("SwitchName=leaf Level=0 LinkSpeed=1 Nodes=node[01-04]\n")
    rng = np.random.default_rng(4)
    columns, widths = {}, ["name,dim"]
    for number in range(TABLES):
        size = int(10 ** rng.uniform(2, 6.5))
        lengths = rng.poisson(rng.uniform(0.2, 3), SAMPLES)
        ids = (size * rng.random(lengths.sum()) ** rng.uniform(1, 6)).astype(np.int64)
        offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
        columns[f"feature_{number}"] = pa.ListArray.from_arrays(offsets, pa.array(ids))
        widths.append(f"feature_{number},{rng.choice([32, 64, 128])}")
    Path("logs").mkdir()
    parquet.write_table(pa.table(columns), "logs/day.parquet", row_group_size=10_000)
    Path("widths.csv").write_text("\n".join(widths) + "\n")

    commands = [shlex.split(line) for line in re.findall(r"```sh\n(.*?)\n```", PAGE.read_text())]
    assert len(commands) == 5
    for name, *words in commands:
        assert name == "planner"
        assert not any(re.search(r"(^|=)\d", word) for word in words)
        done = run(*words)
        assert done.exit_code == 0, (words, done.stderr)
    plan = read_plan(Path("plan.json"))
    assert (len(plan.ranks), len(plan.tables)) == (32, TABLES)
    assert plan.objective.gap < 0.03
