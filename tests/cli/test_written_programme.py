"""`planner plan --write-model` and `planner import --from mps-solution`: the way to a solver of one's own and back."""

import json

import pytest
from ortools.math_opt.io.python import mps_converter
from ortools.math_opt.python import mathopt

INPUTS = ("-t", "tiny.yaml", "-w", "two.yaml")
TOPOLOGY = """
name: tiny
nodes:
- name: a
  count: 2
  accelerators:
    {count: 2, device: A100-SXM4-40GB, hbm: {capacity: 40MB, bandwidth: 1.5TB/s}, flops: {fp32: 19.5TFLOP/s}}
  host: {ddr: {capacity: 10GB, bandwidth: 200GB/s}}
  links:
    pcie: {bandwidth: 31.5GB/s}
    scale_up: {kind: nvlink3, bandwidth: 300GB/s}
    scale_out: {kind: roce, count: 2, bandwidth: 25GB/s}
  reserve: {hbm: 0, ddr: 0}
"""
WORKLOAD = """
name: two
global_batch: 4096
tables:
- {name: "a b:c", rows: 40000, dim: 64, pooling_factor: 20}
- {name: häuser, rows: 200000, dim: 32, pooling_factor: 5}
- {name: c, rows: 900, dim: 16, pooling_factor: 3}
"""


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TOPOLOGY)
    (tmp_path / "two.yaml").write_text(WORKLOAD)
    return tmp_path


def solution_of(text: str) -> tuple[str, float]:
    """The solution of a file by HiGHS, which read it with ortools' own reader, as HiGHS writes it; and its step."""
    model = mathopt.Model.from_model_proto(mps_converter.mps_to_model_proto(text))
    result = mathopt.solve(model, mathopt.SolverType.HIGHS)
    values = [f"{variable.name} {value!r}" for variable, value in result.variable_values().items()]
    head = ["Model status", "Optimal", "", "# Primal solution values", "Feasible", f"# Columns {len(values)}"]
    return "\n".join([*head, *values, "# Dual solution values", "None"]), result.objective_value()


def test_there_and_back(run, inputs):
    """The step of the solver's solution is that of the imported plan, and no plan of ours is faster."""
    words = ("--exchange", "flat", "--effort", 1, "--gap", "0%", "-q", "-o", "plan.json", "--write-model", "plan.mps")
    result = run("plan", *INPUTS, *words, "--cost-model", "torchrec")
    assert result.exit_code == 0, result.stderr
    assert "plan.mps: " in result.stderr
    text = (inputs / "plan.mps").read_text()
    solution, value = solution_of(text)
    unit_s = float(text.split("units of ")[1].split()[0])
    (inputs / "best.sol").write_text(solution)
    words = ("--from", "mps-solution", "--cost-model", "torchrec", "--no-simulate", "-o", "back.json")
    back = run("import", "best.sol", *INPUTS, *words)
    assert back.exit_code == 0, back.stderr
    assert run("verify", "back.json").exit_code == 0
    planned, imported = (json.loads((inputs / name).read_text())["objective"] for name in ("plan.json", "back.json"))
    assert imported["step_s"] == pytest.approx(value * unit_s, rel=1e-6)
    assert imported["step_s"] == pytest.approx(planned.get("best_step_s", planned["step_s"]), rel=1e-6)


def test_every_fault_of_a_solution_is_told_with_its_line(run, inputs):
    """Values that are not whole, names that say nothing, tables that there are not or that are not held."""
    lines = [
        "# Objective value = 1",
        "count:c:hbm/fp32/with_table/cut:table_wise.16.900:0 0.5",
        "count:d:hbm/fp32/with_table/cut:table_wise.16.900:0 1",
        "count:c:hbm/cut:0 1",
    ]
    (inputs / "bad.sol").write_text("\n".join(lines))
    result = run("import", "bad.sol", *INPUTS, "--from", "mps-solution", "-o", "back.json")
    assert result.exit_code == 3, result.stderr
    for words in ("bad.sol:2", "not a whole number", "bad.sol:3", "no table 'd'", "bad.sol:4", "a b:c"):
        assert words in result.stderr
    (inputs / "empty.sol").write_text("solution status: infeasible\n")
    result = run("import", "empty.sol", *INPUTS, "--from", "mps-solution", "-o", "back.json")
    assert result.exit_code == 3, result.stderr
    assert "no line with a count" in result.stderr


def test_what_cannot_be_written_is_refused(run, inputs):
    """Before any work: another format, an input's file, moves; a policy beside another tool's plan."""
    assert ".mps" in run("plan", *INPUTS, "--write-model", "plan.lp").stderr
    (inputs / "two.mps").write_text(WORKLOAD)
    assert "overwritten" in run("plan", "-t", "tiny.yaml", "-w", "two.mps", "--write-model", "two.mps").stderr
    assert "no moves" in run("plan", *INPUTS, "--from", "plan.json", "--write-model", "plan.mps").stderr
    assert "--solver" in run("plan", *INPUTS, "--from", "plan.json", "--solver", "ilp").stderr
    words = ("--from", "torchrec", "--policy", "policy.yaml", "-o", "back.json")
    assert "--policy" in run("import", "plan.sol", *INPUTS, *words).stderr
