"""The numbers behind the costs as records: value, unit, source, residual, and where each is known to hold."""

from collections.abc import Iterator

from cost_models.coefficients import (
    CoefficientCurve,
    CollectiveCoefficients,
    DeviceCoefficients,
    DtypeCoefficient,
    Evidence,
    NamedCoefficients,
    OptimizerCoefficient,
    SoftwareCoefficients,
    collective_files,
    device_coefficients,
    kernel_files,
    link_coefficients,
    names_of_files,
    optimizer_coefficients,
    software_coefficients,
)
from cost_models.error_bars import is_of
from cost_models.stage_causes import is_measured
from topologies.documents import Record

Cell = str | int | float | None


def records(name: str | None = None) -> list[dict[str, Cell]]:
    """Those of every file, or of the device, link, software or system called `name`.

    A device without a file has those of the default, each of kind `data sheet only` where no data are of it.
    """
    of_name = [record for of_file in _files() if name is None or of_file.name == name for record in _of_file(of_file)]
    if name is not None and all(record["file"] != name for record in of_name):
        of_name = [*_of_unknown_device(name), *of_name]
    if name is not None:
        of_name += [record for file in collective_files() if name in file.devices for record in _of_file(file)]
    return of_name


def _files() -> Iterator[NamedCoefficients]:
    yield from map(device_coefficients, names_of_files("devices"))
    yield from (device_coefficients(device, software) for device, software in kernel_files())
    yield from (link_coefficients(name, "default-scale-out") for name in names_of_files("links"))
    yield from map(software_coefficients, names_of_files("software"))
    yield optimizer_coefficients("shampoo")
    yield from collective_files()


def _of_unknown_device(device: str) -> Iterator[dict[str, Cell]]:
    for record in _of_file(device_coefficients("default"), device):
        measured = is_measured(str(record["coefficient"]), device)
        exact = record["kind"] == "spec"
        yield {**record, "file": device, "kind": record["kind"] if measured or exact else "data sheet only"}


def _of_file(file: NamedCoefficients, device: str | None = None) -> Iterator[dict[str, Cell]]:
    """The coefficients of a device's file, or the default's, with the residuals that hold on that device."""
    on = device or (file.name if isinstance(file, DeviceCoefficients) and file.name != "default" else None)
    if isinstance(file, CollectiveCoefficients):
        yield from _laws(file)
        return
    is_of_kernels = isinstance(file, DeviceCoefficients) and file.kernels_of is not None
    plain = device_coefficients(file.name) if is_of_kernels else None  # of which the rest is
    label = file.label if isinstance(file, DeviceCoefficients) else file.name
    for name in type(file).model_fields:
        value = getattr(file, name)
        if plain is not None and value == getattr(plain, name):
            continue
        if isinstance(value, Evidence):
            elsewhere = on is not None and not is_of(value, on) and value.elsewhere_90 is not None
            residual = value.elsewhere_90 if elsewhere else value.residual_90
            valid = [f"{each.quantity} {each.low:g} to {each.high:g}" for each in value.valid]
            if value.fitted_on:
                valid.append(f"on {', '.join(value.fitted_on)}; elsewhere {value.elsewhere_90 or 0:.0%}")
            yield _record(label, name, shown(value), value.unit, value.kind, residual, valid, value.source)
    if isinstance(file, SoftwareCoefficients) and file.steps is not None:
        steps = file.steps
        valid = [f"{each.quantity} {each.low:g} to {each.high:g}" for each in steps.valid]
        valid.append(f"on {', '.join(steps.devices)}")
        unit = f"{steps.rows} whole steps"
        yield _record(file.name, "steps", "", unit, steps.kind, steps.residual_90, valid, steps.source)


def _laws(file: CollectiveCoefficients) -> Iterator[dict[str, Cell]]:
    for law in file.laws:
        protocols = ", ".join(f"{latency:.3g} s + bytes / {rate:.3g}" for latency, rate in law.protocols)
        valid = [f"buffer_bytes {law.buffer_bytes[0]:g} to {law.buffer_bytes[1]:g}"]
        label = f"{law.operation}, {law.ranks} ranks"
        yield _record(file.name, label, protocols, "s, bytes/s", file.kind, law.band_90, valid, file.source)


def shown(value: Record) -> str:
    """The number, numbers or curve of a coefficient, without the unit."""
    if isinstance(value, OptimizerCoefficient):
        return ", ".join(f"{name} {number:g}" for name, number in value.by_optimizer.items())
    if isinstance(value, DtypeCoefficient):
        return ", ".join(f"{name} {number:.4g}" for name, number in value.by_dtype.items())
    if isinstance(value, CoefficientCurve):
        return ", ".join(f"{x:g}: {y:g}" for x, y in value.points)
    return f"{value.value:.4g}" if hasattr(value, "value") else ""


def _record(
    file: str, name: str, value: str, unit: str, kind: str, residual: float | None, valid: list[str], source: str
) -> dict[str, Cell]:
    return {
        "file": file,
        "coefficient": name,
        "value": value,
        "unit": unit,
        "kind": kind,
        "residual_90": residual,
        "valid": "; ".join(valid),
        "source": source,
    }
