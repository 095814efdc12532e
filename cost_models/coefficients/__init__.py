"""The numbers that the cost model multiplies by: one file per device, link kind and software profile.

Each value carries its unit, its source and its kind: `spec` (a data sheet), `measured`, `fitted` (to data) or
`assumed` (nothing better is known). A device or link without a file of its own takes `default*`, and says so.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cost_models.coefficients.evidence import (
    NEWER,
    Coefficient,
    CoefficientCurve,
    DtypeCoefficient,
    Evidence,
    Kind,
    LeftOut,
    MeasuredRates,
    MeasuredSystem,
    OptimizerCoefficient,
    Quantity,
    StepEvidence,
    ValidRange,
)
from cost_models.coefficients.records import (
    CoefficientSet,
    CollectiveCoefficients,
    CollectiveOperation,
    DeviceCoefficients,
    HarnessCoefficients,
    HostCoefficients,
    LinkCoefficients,
    NamedCoefficients,
    OptimizerCoefficients,
    ProtocolLaw,
    SoftwareCoefficients,
)
from topologies.documents import Document, read_yaml, validate
from topologies.errors import InputError

__all__ = (
    "NEWER",
    "USER_DIRECTORY",
    "Coefficient",
    "CoefficientCurve",
    "CoefficientSet",
    "CollectiveCoefficients",
    "CollectiveOperation",
    "DeviceCoefficients",
    "DtypeCoefficient",
    "Evidence",
    "HarnessCoefficients",
    "HostCoefficients",
    "Kind",
    "LeftOut",
    "LinkCoefficients",
    "MeasuredRates",
    "MeasuredSystem",
    "NamedCoefficients",
    "OptimizerCoefficient",
    "OptimizerCoefficients",
    "Place",
    "ProtocolLaw",
    "Quantity",
    "SoftwareCoefficients",
    "StepEvidence",
    "ValidRange",
    "collective_files",
    "device_coefficients",
    "forget",
    "harness_coefficients",
    "kernel_files",
    "link_coefficients",
    "names_of_files",
    "optimizer_coefficients",
    "replaced",
    "software_coefficients",
)

_DIRECTORY = Path(__file__).parent
USER_DIRECTORY = "PLANNER_COEFFICIENTS"
"""The environment variable that names a directory of files made by `planner calibrate`."""

_OF_STEPS = {"flop_utilization", "product_edge", "product_inner_edge"}
_OF_KERNELS = {"kernel_utilization", "kernel_edge", "kernel_inner_edge"}
"""What takes the place of those for some software (`DeviceCoefficients`); a file that states the former means them."""
_OF_LOOKUPS = ("lookup_", "update_", "l2_")
"""How the names begin of what a file of kernels says: one fit, of which a part holds only beside the rest."""
Place = tuple[str, str, str]
"""Where a value stands: folder, file, name."""
_replaced: dict[Place, float] = {}


@contextmanager
def replaced(values: Mapping[Place, float]) -> Iterator[None]:
    """Other values of some coefficients inside the `with` block; how calibration tries them. Not for threads."""
    _replaced.update(values)
    _validate_anew()
    try:
        yield
    finally:
        _replaced.clear()
        _validate_anew()


def forget() -> None:
    """Read the files anew when they are next asked for."""
    _document.cache_clear()
    _validate_anew()


def _validate_anew() -> None:
    for reader in (
        collective_files,
        device_coefficients,
        link_coefficients,
        software_coefficients,
        harness_coefficients,
        host_coefficients,
        optimizer_coefficients,
    ):
        reader.cache_clear()


def _read(
    path: Path,
    model: type[CoefficientSet],
    under: tuple[Path, ...] = (),
    over: Path | None = None,
    name: str | None = None,
) -> CoefficientSet:
    """What a file says, over those `under` it in their order, and `over` it what replaces parts of it. A `name` that is
    given is the record's own."""
    data: dict[str, Any] = {}
    for each in (*under, path, *((over,) if over else ())):
        own = _values(each)
        if _OF_STEPS & own.keys():  # no older figures of products by themselves stand before those
            data = {name: value for name, value in data.items() if name not in _OF_KERNELS}
        data |= own
    data |= {} if name is None else {"name": name}
    return validate(replace(_document(path), data=data), model)


@cache
def _document(path: Path) -> Document:
    """A file, read once; its data are not to be changed. Raises InputError for one that is no mapping of keys."""
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        raise InputError.at(document.source, "must be a mapping of keys", line=1, column=1)
    return document


def _values(path: Path) -> dict[str, Any]:
    """What a file says, with the values that replace some of its own."""
    data = dict(_document(path).data)
    for (folder, stem, name), value in _replaced.items():
        if (folder, stem) == (path.parent.name, path.stem):
            old = data[name]
            by_optimizer = {"by_optimizer": dict.fromkeys(old.get("by_optimizer", ()), value)}
            data[name] = {**old, **(by_optimizer if "by_optimizer" in old else {"value": value})}
    return data


def _own_files() -> list[Path]:
    """Files of the directory that USER_DIRECTORY names, by name."""
    own = os.environ.get(USER_DIRECTORY)
    return sorted(Path(own).glob("*.yaml")) if own else []


def _is_of_collectives(path: Path) -> bool:
    return "laws" in _document(path).data


def _shipped(folder: str, name: str) -> Path | None:
    """The shipped file of a name. The name may be that of somebody's topology: it is compared, and never a path."""
    return next((path for path in (_DIRECTORY / folder).glob("*.yaml") if path.stem == name), None)


@cache
def device_coefficients(device: str, software: str | None = None) -> DeviceCoefficients:
    """Those of a device; the default's, under the name `default`, where the device has no file.

    A file of the directory that USER_DIRECTORY names goes first; what it leaves out is the shipped file's of the
    device, that of a device with the same chip, or the default's. `software` is the one whose kernels look tables up
    that are pooled: where these were measured on the device, or on another one of its chip, they are as measured,
    unless a file of that directory says otherwise of lookups. Raises InputError for a file that is not valid.
    """
    default, shipped, kernels = _DIRECTORY / "devices" / "default.yaml", _shipped("devices", device), None
    own = next((each for each in _own_files() if _is_of_device(each, device)), None)
    if own is None or not _differs_in_lookups(own, shipped):
        kernels = _kernel_paths().get((device, software or ""))
    files = [path for path in (shipped, own) if path is not None]
    chip = next((_same_chip(path) for path in reversed(files) if "same_chip_as" in _document(path).data), None)
    layers = [path for path in (default, chip, *files) if path is not None]
    return _read(layers.pop(), DeviceCoefficients, tuple(layers), kernels, device if files or kernels else None)


def _is_of_device(path: Path, device: str) -> bool:
    return not _is_of_collectives(path) and _document(path).data.get("name") == device


def _same_chip(path: Path) -> Path:
    """The shipped file of the device that a file says is of the same chip. Raises InputError where there is none."""
    document = _document(path)
    name = document.data["same_chip_as"]
    if (found := _shipped("devices", str(name))) is None:
        raise InputError.at(document.source, f"{name!r} is no device with a shipped file", path="same_chip_as")
    return found


def _kernel_paths() -> dict[tuple[str, str], Path]:
    """The files of kernels by (device, software), each for its own device and the others of the chip."""
    found: dict[tuple[str, str], Path] = {}
    for path in sorted((_DIRECTORY / "kernels").glob("*.yaml")):
        data = _document(path).data
        found |= {(device, data["kernels_of"]): path for device in (data["name"], *data.get("same_chip", ()))}
    return found


def _differs_in_lookups(path: Path, shipped: Path | None) -> bool:
    """Whether a file says anything of lookups and updates that the shipped one of the device does not."""
    known = {} if shipped is None else _document(shipped).data
    return any(
        name.startswith(_OF_LOOKUPS) and value != known.get(name) for name, value in _document(path).data.items()
    )


def kernel_files() -> list[tuple[str, str]]:
    """(device, software) of the files of kernels, in their order, each followed by the other devices of its chip."""
    return list(_kernel_paths())


@cache
def link_coefficients(kind: str, default: Literal["default-scale-up", "default-scale-out"]) -> LinkCoefficients:
    """Those of a link kind (`nvlink3`, `roce`, `pcie` …), or the named default's."""
    return _read(_shipped("links", kind) or _DIRECTORY / "links" / f"{default}.yaml", LinkCoefficients)


@cache
def collective_files() -> tuple[CollectiveCoefficients, ...]:
    """All systems whose collectives were measured, by name; first those of the directory that USER_DIRECTORY names."""
    paths = sorted((_DIRECTORY / "collectives").glob("*.yaml"))
    own = [path for path in _own_files() if _is_of_collectives(path)]
    return tuple(_read(path, CollectiveCoefficients) for path in [*own, *paths])


def names_of_files(folder: Literal["devices", "links", "software"]) -> list[str]:
    """What the shipped files of a folder are called; of devices also those of the directory USER_DIRECTORY names."""
    names = {path.stem for path in (_DIRECTORY / folder).glob("*.yaml")}
    if folder == "devices":
        names |= {str(_document(path).data["name"]) for path in _own_files() if not _is_of_collectives(path)}
    return sorted(names)


@cache
def harness_coefficients(name: str) -> HarnessCoefficients:
    """Those of the harness behind a data set."""
    return _read(_DIRECTORY / "harnesses" / f"{name}.yaml", HarnessCoefficients)


@cache
def host_coefficients(name: str) -> HostCoefficients | None:
    """What is known of the host's work under a software profile; None where nothing is."""
    path = _shipped("host", name)
    return None if path is None else _read(path, HostCoefficients)


@cache
def optimizer_coefficients(name: str) -> OptimizerCoefficients:
    """Those of an optimizer of the dense part."""
    return _read(_DIRECTORY / "optimizers" / f"{name}.yaml", OptimizerCoefficients)


@cache
def software_coefficients(name: str) -> SoftwareCoefficients:
    """Those of a software profile. Raises InputError for an unknown one."""
    path = _shipped("software", name)
    if path is None:
        raise InputError.at(name, "is not a known software profile; known: distributed-embeddings, hugectr, torchrec")
    return _read(path, SoftwareCoefficients)
