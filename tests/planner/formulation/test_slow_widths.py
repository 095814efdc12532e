"""Plans in 16 bits name the layers whose widths fast kernels do not take, and those alone."""

from typing import Any

import pytest

from planner import plan, verify
from planner.formulation.slow_widths import slow_widths
from tests.oracles.instances import node_group, topology, workload

TABLES: list[dict[str, object]] = [{"rows": 1000, "dim": 16} for _ in range(4)]
DENSE = {"numerical_features": 13, "bottom_mlp": [512, 16], "top_mlp": [1022, 512, 1], "dtype": "bf16"}


def words(dense: dict[str, Any] | None = None, **fields: object) -> list[str]:
    return list(slow_widths(workload(TABLES, dense=DENSE | (dense or {}), software="torchrec", **fields)))


def test_a_width_of_no_fast_kernel_is_a_warning_with_a_remedy() -> None:
    """Of both layers that have it; numerical features and the last number of a model are left alone."""
    (found,) = words()
    assert "top_mlp.0 (1022), top_mlp.1 (1022); pad 1022 to 1024" in found
    assert "2.9 times as long in bf16" in found


@pytest.mark.parametrize(
    ("dense", "fields"),
    [
        ({"top_mlp": [1024, 512, 1]}, {}),
        ({"dtype": "tf32"}, {}),
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
