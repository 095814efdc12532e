"""Microbenchmarks of this machine run for real, where PyTorch is at hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from cost_models.calibration import microbenchmarks as bench
from cost_models.calibration.kernels import COLUMNS, calibrate

ROOT = Path(__file__).parents[2]
TINY = bench.BenchmarkPlan(
    dims=(8, 64),
    rows=(1000, 20_000),
    poolings=(1, 4),
    alphas=(0.0, 1.05),
    lookups=(64, 4000),
    largest_table_bytes=2**22,
    copy_bytes=(4096, 2**24, 2**25, 2**26),
    stream_bytes=(4096, 2**24, 2**25, 2**26),
    products=((32, 32, 32), (128, 128, 128), (256, 256, 256), (384, 384, 384)),
    dtypes=("fp32",),
)


def test_every_kind_of_kernel_is_measured() -> None:
    """Each with its columns, all times above 0; tables over the limit are left out."""
    rows = bench.measure("cpu", TINY)
    assert list(rows) == list(COLUMNS)
    assert (rows.seconds > 0).all()
    assert set(rows.operation) == {"lookup", "update", "copy", "stream", "dense_update", "regroup", "id_cut", "matmul"}
    assert not ((rows.dim == 64) & (rows.rows == 20_000)).any()
    of_rows = rows.operation.isin(["lookup", "update"])
    assert (rows.evicted[of_rows] >= 2**26).all()
    assert rows.evicted[~of_rows].isna().all()


def test_the_command_measures_fits_and_writes(tmp_path: Path) -> None:
    """A table of measurements that calibration reads again, coefficients that name the device, a picture."""
    pytest.importorskip("matplotlib")
    files = [tmp_path / name for name in ("m.csv", "mine.yaml", "fit.png")]
    flags = ["--measurements", files[0], "-o", files[1], "--plot", files[2], "--name", "MINE", "--format", "json"]
    command = [sys.executable, "cli.py", "calibrate", "--device", "cpu", "--quick", *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    terms = {record["coefficient"] for record in json.loads(done.stdout)}
    assert {"copy_bytes_per_s", "matmul_flops_per_s fp32"} & terms
    assert f"PyTorch {torch.__version__}" in files[1].read_text()
    assert files[2].read_bytes().startswith(b"\x89PNG")
    again = calibrate(pd.read_csv(files[0]), "again", 64.0)
    assert {f"{term.name} {term.dtype}".strip() for term in again.terms} == terms


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_machine_without_a_gpu_says_so() -> None:
    """And what to do instead."""
    with pytest.raises(bench.UnavailableError, match="--device cpu"):
        bench.measure("cuda", TINY)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_kernel_is_given_what_was_made_for_its_run(device: bench.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients of joined vectors need the vectors of the same run, on a GPU as well; nothing else is timed."""
    one = bench._Bench("cpu")
    one.device, one.evicts = device, device == "cpu"
    timed: list[int] = []
    monkeypatch.setattr(bench._Bench, "_timed", lambda _self, kernel, run, *_times: kernel(run) or float(run))
    assert one.evicted_seconds(timed.append, lambda run: 10 * run) == 1.0
    assert timed == [0, 10, 20, 30]
