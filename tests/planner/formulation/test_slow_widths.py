"""Plans in 16 bits name the layers whose widths fast kernels do not take, and those alone."""

import csv
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import benchmarks
from cost_models.arithmetic import product_rates
from cost_models.coefficients import device_coefficients
from planner import plan, verify
from planner.formulation.slow_widths import slow_widths
from tests.oracles.instances import node_group, topology, workload
from topologies.loading import load_topology

MEASURED = Path(benchmarks.__file__).parent / "data" / "measured_h100" / "even_products.csv"
TABLES: list[dict[str, object]] = [{"rows": 1000, "dim": 16} for _ in range(4)]
DENSE = {"numerical_features": 13, "bottom_mlp": [512, 16], "top_mlp": [1022, 512, 1], "dtype": "bf16"}


def words(dense: dict[str, Any] | None = None, **fields: object) -> list[str]:
    return list(slow_widths(workload(TABLES, dense=DENSE | (dense or {}), software="torchrec", **fields)))


def test_a_width_of_no_fast_kernel_is_a_warning_with_a_remedy() -> None:
    """Of both layers that have it; numerical features and the last number of a model are left alone."""
    (found,) = words()
    assert "top_mlp.0 (1022), top_mlp.1 (1022); pad 1022 to 1024" in found
    assert "2.9 times as long in bf16" in found


def test_in_tf32_multiples_of_four_are_fast_and_others_are_not() -> None:
    (found,) = words({"dtype": "tf32"})
    assert "no multiples of 4 take up to 2.2 times as long in tf32 as is counted, odd ones up to 2.5" in found
    assert "top_mlp.0 (1022), top_mlp.1 (1022); pad 1022 to 1024" in found


@pytest.mark.parametrize(("dtype", "unit", "even"), [("bf16", 8, 2.9), ("fp16", 8, 2.9), ("tf32", 4, 2.2)])
def test_what_is_said_of_even_widths_is_what_was_measured(dtype: str, unit: int, even: float) -> None:
    """Measured over counted seconds at the median; where widths are multiples they are below 1.3."""
    (group,) = load_topology("dgx-h100").nodes
    (law,) = product_rates(group, dtype, device_coefficients(group.accelerators.device))
    ratios: dict[bool, list[float]] = {False: [], True: []}
    with MEASURED.open() as file:
        for row in csv.DictReader(file):
            batch, outputs, inputs = (int(row[each]) for each in ("batch", "outputs", "inputs"))
            if row["dtype"] == dtype and outputs % 2 == inputs % 2 == 0:
                rows, columns, inner = {
                    "forward": (batch, outputs, inputs),
                    "gradient of inputs": (batch, inputs, outputs),
                    "gradient of weights": (outputs, inputs, batch),
                }[row["product"]]
                operations = 2 * (rows + law.edge) * (columns + law.edge) * (inner + law.inner_edge)
                ratio = float(row["seconds"]) * law.flops_per_s / operations
                ratios[bool(outputs % unit or inputs % unit)].append(ratio)
    assert median(ratios[True]) == pytest.approx(even, rel=0.05)
    assert median(ratios[False]) < 1.3


@pytest.mark.parametrize(
    ("dense", "fields"),
    [
        ({"top_mlp": [1024, 512, 1]}, {}),
        ({"dtype": "tf32", "top_mlp": [1020, 512, 1]}, {}),
        ({"dtype": "fp32"}, {}),
        ({}, {"software": "hugectr"}),
        ({}, {"software_mode": "compiled"}),
        ({"top_mlp": [512, 1], "interaction": "dot"}, {}),
    ],
)
def test_nothing_is_said_where_nothing_is_slower(dense: dict[str, Any], fields: dict[str, object]) -> None:
    """Widths that are padded, other formats, software whose steps were fitted, compilers that pad; pairs of dots count
    as what no fast kernel takes."""
    assert not list(slow_widths(workload(TABLES, **{"dense": DENSE | dense, "software": "torchrec", **fields})))


def test_the_plan_has_it_and_verifies() -> None:
    cluster = topology(node_group("a"))
    found = plan(cluster, workload(TABLES, dense=DENSE, software="torchrec"), effort=0)
    assert list(found.provenance.warnings) == words()
    assert not verify(found)
