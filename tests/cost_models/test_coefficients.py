"""Every number of the cost model has a unit, a kind and a source."""

from pathlib import Path

import pytest
from pydantic import ValidationError

import cost_models.coefficients as package
from cost_models.arithmetic import product_rates
from cost_models.coefficients import (
    USER_DIRECTORY,
    Coefficient,
    CoefficientCurve,
    DeviceCoefficients,
    OptimizerCoefficient,
    device_coefficients,
    forget,
    link_coefficients,
    software_coefficients,
)
from topologies.documents import Record
from topologies.errors import InputError
from topologies.loading import load_topology

DIRECTORY = Path(package.__file__).parent
READERS = {
    "devices": device_coefficients,
    "links": lambda name: link_coefficients(name, "default-scale-up"),
    "software": software_coefficients,
}
FILES = [(folder, path.stem) for folder in READERS for path in sorted((DIRECTORY / folder).glob("*.yaml"))]


def numbers(record: Record) -> dict[str, Coefficient | CoefficientCurve | OptimizerCoefficient]:
    """The coefficients of a record by name."""
    kinds = Coefficient | CoefficientCurve | OptimizerCoefficient
    return {name: value for name in type(record).model_fields if isinstance(value := getattr(record, name), kinds)}


@pytest.mark.parametrize(("folder", "name"), FILES)
def test_every_file_says_what_its_numbers_are(folder: str, name: str) -> None:
    """It loads under its own name, and each number in it has a unit, a kind and a source."""
    record = READERS[folder](name)
    assert record.name == name
    found = numbers(record)
    assert found
    for label, value in found.items():
        assert value.unit.strip(), label
        assert len(value.source.strip()) > 3, label
        assert value.kind in {"spec", "measured", "fitted", "assumed"}, label


@pytest.mark.parametrize(("folder", "name"), FILES)
def test_shares_are_shares_and_nothing_is_negative(folder: str, name: str) -> None:
    """Efficiencies and utilizations are above 0 and at most 1."""
    for label, value in numbers(READERS[folder](name)).items():
        values = {
            Coefficient: lambda v: [v.value],
            CoefficientCurve: lambda v: [y for _, y in v.points],
            OptimizerCoefficient: lambda v: list(v.by_optimizer.values()),
        }[type(value)](value)
        assert min(values) >= 0, label
        if "efficiency" in label or "utilization" in label:
            assert 0 < min(values) <= max(values) <= 1, label


def test_there_is_a_file_for_each_folder() -> None:
    """The parametrised tests above test something."""
    assert {folder for folder, _ in FILES} == set(READERS)


def test_an_unknown_device_takes_the_default_and_says_so() -> None:
    """Its coefficients carry the name `default`."""
    assert device_coefficients("TPU-v9") == device_coefficients("default")
    assert device_coefficients("TPU-v9").name == "default"


@pytest.mark.parametrize("default", ["default-scale-up", "default-scale-out"])
def test_an_unknown_link_takes_the_default_of_its_place(default: str) -> None:
    """Inside a domain another than between nodes."""
    assert link_coefficients("carrier-pigeon", default).name == default


def test_an_unknown_software_is_an_input_error() -> None:
    """There is no default for software."""
    with pytest.raises(InputError, match="known: distributed-embeddings, hugectr, torchrec"):
        software_coefficients("pen-and-paper")


def test_backward_costs_differ_by_optimizer() -> None:
    """From 1.7 (SGD) to 2.9 (row-wise Adagrad) forward passes with 0.3 distinct rows per lookup, not 2 for all."""
    software = software_coefficients("torchrec")
    passes = software.backward_passes.by_optimizer
    updates = 0.3 * software.row_update_passes.value
    assert software.id_sort_bytes is not None
    sgd, rowwise = (software.id_sort_bytes.value / row_bytes + updates for row_bytes in (512, 256))
    assert (passes["sgd"] + sgd, passes["rowwise_adagrad"] + rowwise) == pytest.approx((1.7, 2.9), rel=0.02)


_SHARE = "{value: 0.3, unit: share, kind: measured, source: mine}"


@pytest.mark.parametrize(
    ("stated", "flops_per_s", "edge"),
    [("", 0.92 * 989.5e12, 148), (f"flop_utilization: {_SHARE}\n", 0.3 * 989.5e12, 86.4)],
)
def test_a_share_of_the_peak_that_a_user_states_stands_before_shipped_kernels(
    stated: str, flops_per_s: float, edge: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a device whose products were timed by themselves."""
    (tmp_path / "own.yaml").write_text(f"name: H100-SXM5-80GB\n{stated}")
    monkeypatch.setenv(USER_DIRECTORY, str(tmp_path))
    forget()
    try:
        (rate,) = product_rates(load_topology("dgx-h100").nodes[0], "bf16", device_coefficients("H100-SXM5-80GB"))
    finally:
        monkeypatch.undo()
        forget()
    assert (rate.flops_per_s, rate.edge) == pytest.approx((flops_per_s, edge))


def test_kernels_without_an_edge_are_refused() -> None:
    """A share of the peak by itself says nothing of small products."""
    device = device_coefficients("H100-SXM5-80GB").model_dump(exclude_none=True)
    del device["kernel_edge"]["by_dtype"]["bf16"]
    with pytest.raises(ValidationError, match="kernel_utilization, kernel_edge, kernel_inner_edge go together"):
        DeviceCoefficients.model_validate(device)
