"""Help and version appear at once: they load none of the heavy libraries."""

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
    [["--version"], ["--help"], ["plan", "--help"], ["catalog", "--help"], ["catalog", "show", "--help"]],
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


def test_completion_reads_no_catalog_file():
    """Completing a catalog name, done at every press of the tab key, loads nothing heavy either."""
    program = (
        "import sys; from planner.cli.flags import catalog_names; catalog_names('topology', 'workload');"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not set(done.stdout.split()) & HEAVY
