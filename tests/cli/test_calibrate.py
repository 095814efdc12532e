"""`planner calibrate`: from measurements to a coefficient file that plans use."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cost_models import coefficients
from cost_models.kinds import rank_kinds
from cost_models.workload.loading import load_workload
from topologies.loading import load_topology

ROOT = Path(__file__).parents[2]
FLAGS = ("--device", "A100-SXM4-40GB", "--link", "nvlink3", "--bandwidth", "300GB/s")


def measurements(path: Path, rows: int = 20) -> Path:
    """Times of two protocols: 10 us and 10 GB/s, 30 us and 50 GB/s."""
    lines = ["operation,ranks,buffer_bytes,seconds"]
    for exponent in range(10, 10 + rows):
        wire = 2**exponent * 7 / 8
        seconds = min(1e-5 + wire / 1e10, 3e-5 + wire / 5e10)
        lines += [f"{operation},8,{2**exponent},{seconds}" for operation in ("all_to_all", "all_gather")]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_laws_and_their_errors(run, tmp_path):
    """One record per operation and number of ranks."""
    page = run("calibrate", measurements(tmp_path / "m.csv"), *FLAGS, "--format", "json")
    assert page.exit_code == 0
    found = json.loads(page.stdout)
    assert [(law["operation"], law["ranks"], law["rows"]) for law in found] == [
        ("all_gather", 8, 20),
        ("all_to_all", 8, 20),
    ]
    assert all(law["mean_error"] < 0.01 for law in found)


def test_plans_use_the_file(run, tmp_path, monkeypatch):
    """From a directory that PLANNER_COEFFICIENTS names: these links are four times slower than the shipped ones."""
    own = tmp_path / "own"
    own.mkdir()
    page = run("calibrate", measurements(tmp_path / "m.csv"), *FLAGS, "-o", own / "mine.yaml")
    assert page.exit_code == 0
    assert "mine.yaml" in page.stderr
    script = (
        "from cost_models.collective_laws import collective_law\n"
        "law = collective_law('all_to_all', 'A100-SXM4-40GB', 'nvlink3', 300e9, 8)\n"
        "print(law.system, float(law.seconds(1e9)))"
    )
    monkeypatch.setenv("PLANNER_COEFFICIENTS", str(own))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    system, seconds = done.stdout.split()
    assert system == "mine"
    assert float(seconds) == pytest.approx(0.02, rel=0.05)


def test_too_few_sizes_are_refused_with_what_is_needed(run, tmp_path):
    """Every operation at once, and nothing is written."""
    page = run("calibrate", measurements(tmp_path / "m.csv", rows=4), *FLAGS, "-o", tmp_path / "mine.yaml")
    assert page.exit_code == 3
    assert "all_to_all among 8 ranks" in page.stderr
    assert "all_gather among 8 ranks" in page.stderr
    assert "6 different sizes are the least" in page.stderr
    assert not (tmp_path / "mine.yaml").exists()


def test_every_unreadable_file_is_named(run, tmp_path):
    """A missing log, a trace without sizes, a bandwidth without a unit."""
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    page = run("calibrate", tmp_path / "none.log", tmp_path / "trace.json", *FLAGS)
    assert page.exit_code == 3
    assert "none.log" in page.stderr
    assert "PyTorch 2.2" in page.stderr
    assert run("calibrate", tmp_path / "none.log", *FLAGS[:-1], "300").exit_code == 2


def kernels(path: Path) -> Path:
    """Copies at 20 GB/s after 5 us; lookups that all have one size, so that nothing but their rate is told."""
    lines = ["operation,bytes,lookups,dim,seconds"]
    lines += [f"copy,{size},,,{5e-6 + size / 20e9}" for size in (4096, 2**22, 2**24, 2**26)]
    lines += ["lookup,,100000,64,1e-4"] * 3
    lines = [f"{line},,," for line in lines]
    lines[0] = "operation,bytes,lookups,dim,seconds,m,n,k"
    lines += [f"matmul,,,,{2e-6 + 2 * n**3 / 5e13},{n},{n},{n}" for n in (128, 512, 2048)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_kernels_of_a_table(run, tmp_path):
    """Terms with value, unit and error; what stays open is said; the file names the device; a picture is drawn."""
    out, picture = tmp_path / "mine.yaml", tmp_path / "fit.svg"
    page = run(
        "calibrate", kernels(tmp_path / "k.csv"), "--device", "MINE", "-o", out, "--plot", picture, "--format", "json"
    )
    assert page.exit_code == 0, page.stderr
    found = {record["coefficient"]: record for record in json.loads(page.stdout)}
    assert found["copy_bytes_per_s"]["value"] == pytest.approx(20e9)
    assert found["lookup_bytes_per_s"]["valid"] == "row_bytes 256 to 256"
    assert "left out: lookup_row_s" in page.stderr
    assert 'name: "MINE"' in out.read_text()
    assert picture.read_text().lstrip().startswith("<?xml")
    assert run("calibrate", tmp_path / "k.csv", "--device", "MINE", "--plot", tmp_path / "fit.txt").exit_code == 2


def test_a_step_on_a_calibrated_device(run, tmp_path, monkeypatch):
    """A topology that names the device plans with what was measured: copies at a third of the data sheet."""
    own = tmp_path / "own"
    own.mkdir()
    assert run("calibrate", kernels(tmp_path / "k.csv"), "--device", "MINE", "-o", own / "m.yaml").exit_code == 0
    flags = "--topology dgx-h100 --workload dlrm-dcnv2 --set topology.nodes.0.accelerators.device=MINE --effort 0"
    precision = ["--set", "workload.dense.dtype=fp32"]
    command = [sys.executable, "cli.py", "plan", *flags.split(), *precision, "--format", "json"]
    environment = {**os.environ, "PLANNER_COEFFICIENTS": str(own)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    plan = json.loads(done.stdout)
    assert plan["provenance"]["coefficients"]["devices"] == ["MINE"]
    dense = next(stage for stage in plan["stages"] if stage["name"] == "dense")
    assert "matmul_flops_per_s of MINE" in dense["error_bar"]["basis"]
    monkeypatch.setenv("PLANNER_COEFFICIENTS", str(own))
    coefficients.forget()
    try:
        topology = load_topology("dgx-h100", overrides=["nodes.0.accelerators.device=MINE"])
        (kind,) = rank_kinds(topology, load_workload("dlrm-dcnv2", overrides=["dense.dtype=fp32"]))
        assert kind.pcie_bytes_per_s == pytest.approx(20e9)
        assert [rate.flops_per_s for rate in kind.products] == pytest.approx([5e13])
    finally:
        monkeypatch.undo()
        coefficients.forget()


def test_flags_that_change_nothing_are_refused(run, tmp_path):
    """Of files on this machine, of this machine on files, of collectives without a link."""
    table = kernels(tmp_path / "k.csv")
    assert run("calibrate", table, "--device", "MINE", "--quick").exit_code == 2
    assert run("calibrate", "--device", "cpu", "--where", "a=b").exit_code == 2
    assert run("calibrate", "--device", "tpu").exit_code == 2
    assert run("calibrate", table, "--device", "MINE", "--where", "a").exit_code == 2
    log = measurements(tmp_path / "m.csv")
    assert "--link" in run("calibrate", log, "--device", "MINE").stderr


def test_this_machine_needs_torch(run, monkeypatch):
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "torch", None)
    page = run("calibrate", "--device", "cpu", "--quick")
    assert page.exit_code == 2
    assert "shardplan[calibrate-device]" in page.stderr
