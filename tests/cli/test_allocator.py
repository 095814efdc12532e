"""Memory that commands free: kept, so that the kernel need not hand out the same pages again and again; small pages."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from planner.cli.allocator import tune_memory
if sys.argv[1] == "kept":
    tune_memory()
kept = [np.ones(40_000)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    np.ones(40_000) + np.ones(40_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_arrays_that_come_and_go_touch_the_same_pages() -> None:
    """Two arrays of 320 kB and their sum, 200 times: far fewer pages are touched for the first time, and the program
    does the same."""
    faults = [
        int(subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True).stdout)
        for how in ("as it is", "kept")
    ]
    assert faults[1] < 1_000, faults
    assert faults[1] < faults[0] / 2, faults


HUGE = """
from pathlib import Path
from planner.cli.allocator import tune_memory
tune_memory()
status = Path("/proc/self/status")
print(status.read_text() if status.exists() else "")
"""


def test_no_huge_pages_are_taken() -> None:
    """Where the kernel says whether a process may have them, it may not any more."""
    said = subprocess.run([sys.executable, "-c", HUGE], check=True, capture_output=True, text=True).stdout
    of_huge_pages = [line.split()[1] for line in said.splitlines() if line.startswith("THP_enabled")]
    if not of_huge_pages:
        pytest.skip("this kernel does not say")
    assert of_huge_pages == ["0"]
