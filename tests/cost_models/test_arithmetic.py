"""Rates of matrix products by format."""

import pytest

from cost_models.arithmetic import ProductRate, fp32_rates, product_rates, single_rates
from cost_models.coefficients import device_coefficients
from cost_models.dense import product_seconds
from cost_models.kinds import rank_kinds
from cost_models.workload import load_workload
from topologies import load_topology
from topologies.errors import InputError

FORMATS = ("fp16", "tf32", "fp32")


@pytest.mark.parametrize(
    ("topology", "dtype", "as_fast_as", "times"),
    [
        ("hgx-b200", "mxfp8", "fp8", 1),
        ("hgx-b200", "mxfp6", "bf16", 2),
        ("hgx-b200", "mxfp4", "bf16", 4),
        ("dgx1-v100", "bf16", "fp16", 1),
    ],
)
def test_a_format_has_its_own_rate_or_one_of_16_bits_that_of_a_wider_one(
    topology: str, dtype: str, as_fast_as: str, times: float
) -> None:
    """Blackwell multiplies OCP formats, at the rates of its data sheet."""
    cluster = load_topology(topology)
    (kind,), (other,) = (
        rank_kinds(cluster, load_workload("model-i", overrides=[f"dense.dtype={each}"])) for each in (dtype, as_fast_as)
    )
    (rate,), (of_other,) = kind.products, other.products
    assert rate.flops_per_s == pytest.approx(times * of_other.flops_per_s, rel=1e-9)


@pytest.mark.parametrize(("topology", "dtype"), [("dgx-a100-80", "fp8"), ("dgx-h100", "mxfp4"), ("hgx-b200", "mxint8")])
def test_a_format_of_fewer_bits_that_a_device_does_not_multiply_is_refused(topology: str, dtype: str) -> None:
    """By the device, the format, what it has instead, and where a rate would stand."""
    workload = load_workload("model-i", overrides=[f"dense.dtype={dtype}"])
    with pytest.raises(InputError, match=rf"has no FLOP/s in {dtype}; choose .*bf16.*accelerators\.flops\.{dtype}"):
        rank_kinds(load_topology(topology), workload)


@pytest.mark.parametrize("sizes", [(2048, 1, 512), (2048, 512, 1), (3, 3, 4096), (8192, 3456, 512)])
def test_a_narrower_format_is_never_slower(sizes: tuple[int, int, int]) -> None:
    """Whatever the sizes of a product; fp32, on units without edges, is no faster than tf32."""
    cluster = load_topology("dgx-a100-80")
    of = {each: rank_kinds(cluster, load_workload("model-i", overrides=[f"dense.dtype={each}"]))[0] for each in FORMATS}
    seconds = [product_seconds(of[each].products, *sizes) for each in FORMATS]
    assert seconds == sorted(seconds)


def test_products_of_a_trace_are_met() -> None:
    """Of HolisticTraceAnalysis's traces (A100, tf32), in which large products reach 83 TFLOP/s: the fitted edges."""
    edges = device_coefficients("A100-SXM4-40GB")
    rate = ProductRate(83.2e12, edges.product_edge.value, edges.product_inner_edge.value)
    square, narrow = (product_seconds((rate,), 4096, n, 1024) for n in (1024, 64))
    assert 2 * 4096 * 1024 * 1024 / square == pytest.approx(73e12, rel=0.01)
    assert narrow / square == pytest.approx(64 / 1024 * 2.17, rel=0.01)


@pytest.mark.parametrize(("dtype", "outside"), [("tf32", "tf32"), ("fp32", "fp32"), ("fp16", "fp32"), ("bf16", "fp32")])
def test_products_of_fp32_numbers_outside_of_layers(dtype: str, outside: str) -> None:
    """In tf32 where the layers' are, by the one switch of PyTorch, else in fp32, which is slower on an A100."""
    cluster = load_topology("dgx-a100-80")
    tf32 = single_rates(cluster, load_workload("model-i", overrides=["dense.dtype=tf32"]))
    fp32 = fp32_rates(cluster)
    assert min(rate.flops_per_s for rate in tf32[0]) > 4 * min(rate.flops_per_s for rate in fp32[0])
    found = single_rates(cluster, load_workload("model-i", overrides=[f"dense.dtype={dtype}"]))
    assert found == {"tf32": tf32, "fp32": fp32}[outside]


@pytest.mark.parametrize("topology", ["dgx-a100-80", "dgx-h100", "hgx-b200", "dgx1-v100", "mi300x-8"])
@pytest.mark.parametrize("alone", [True, False])
def test_no_product_is_faster_than_the_data_sheet(topology: str, alone: bool) -> None:
    """Whether kernels were timed by themselves or within steps, a device achieves a share of its peak."""
    (group,) = load_topology(topology).nodes
    device = device_coefficients(group.accelerators.device)
    for dtype in ("fp32", "tf32", "fp16", "bf16", "fp8"):
        peak = getattr(group.accelerators.flops, dtype)
        if peak is None or (device.matmul_flops_per_s is not None and dtype in device.matmul_flops_per_s.by_dtype):
            continue
        rates = product_rates(group, dtype, device, alone=alone)
        assert 0 < min(rate.flops_per_s for rate in rates) <= peak
