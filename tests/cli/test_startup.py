"""Help and version appear at once: they load none of the heavy libraries."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    "networkx",
    "numpy",
    "ortools",
    "pandas",
    "pint",
    "pyarrow",
    "pydantic",
    "pydantic_core",
    "rich",
    "yaml",
}
PROGRAM = """
import sys
from planner.cli.app import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["plan", "--help"],
        ["check", "--help"],
        ["catalog", "--help"],
        ["catalog", "show", "--help"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_loaded(words):
    """`planner … --help` and `planner --version` load only what they print with."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stderr.split())
    assert "typer" in loaded
    assert not loaded & HEAVY


def test_an_import_loads_what_it_needs(tmp_path):
    """Tables of the catalog and a network without oversubscription ask for neither data frames nor graphs."""
    entry = {"sharding_type": "table_wise", "compute_kernel": "fused"}
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps({f"cat_{i}": entry | {"ranks": [i % 8]} for i in range(26)}))
    words = ["import", file, "--from", "torchrec", "-t", "dgx-a100-80", "-w", "dlrm-dcnv2", "-o", tmp_path / "o.json"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, words)], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stderr.split())
    assert "ortools" in loaded
    assert not loaded & {"networkx", "pandas", "plotly", "pyarrow", "torch"}


def test_completion_reads_no_catalog_file():
    """Completing a catalog name, done at every press of the tab key, loads nothing heavy either."""
    program = (
        "import sys; from planner.cli.flags import catalog_names; catalog_names('topology', 'workload');"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not set(done.stdout.split()) & HEAVY
