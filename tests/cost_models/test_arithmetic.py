"""Rates of matrix products by format."""

import pytest

from cost_models.kinds import rank_kinds
from cost_models.workload import load_workload
from topologies import load_topology


@pytest.mark.parametrize(
    ("topology", "dtype", "as_fast_as", "times"),
    [
        ("hgx-b200", "mxfp8", "fp8", 1),
        ("hgx-b200", "mxfp6", "bf16", 2),
        ("hgx-b200", "mxfp4", "bf16", 4),
        ("hgx-b200", "mxint8", "bf16", 1),
        ("dgx-h100", "mxfp4", "bf16", 1),
        ("dgx-h100", "mx9", "bf16", 1),
        ("dgx1-v100", "bf16", "fp16", 1),
    ],
)
def test_a_format_has_its_own_rate_or_that_of_the_nearest_wider_one(
    topology: str, dtype: str, as_fast_as: str, times: float
) -> None:
    """Blackwell multiplies OCP formats, at the rates of its data sheet; elsewhere they are decoded into 16 bits."""
    cluster = load_topology(topology)
    (kind,), (other,) = (
        rank_kinds(cluster, load_workload("model-i", overrides=[f"dense.dtype={each}"])) for each in (dtype, as_fast_as)
    )
    assert kind.flops_per_s == pytest.approx(times * other.flops_per_s, rel=1e-9)
