"""What a ParameterSharding tells a table's kernel, from a file or an object of TorchRec."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from cost_models.workload.kernels import KernelSettings
from topologies.documents import Document, validate
from topologies.errors import Fault, InputError

KEYS = tuple(key for key in KernelSettings.model_fields if key != "hbm_kernel")
"""Those that ParameterSharding and KernelSettings share."""


def settings_of(entry: Mapping[str, Any], source: str, where: str) -> KernelSettings:
    """The settings in an entry of a file. Raises InputError with everything in them that is unknown."""
    told = {key: entry[key] for key in KEYS if entry.get(key) is not None}
    kernel = entry.get("compute_kernel")
    if kernel in ("dense", "fused_triton") and entry.get("sharding_type") != "data_parallel":
        told["hbm_kernel"] = kernel
    try:
        return validate(Document(told, source), KernelSettings)
    except InputError as error:
        raise InputError(
            [dataclasses.replace(fault, path=f"{where}.{fault.path}".rstrip(".")) for fault in error.faults]
        ) from None


def plain_settings(sharding: Any, where: str) -> dict[str, Any]:
    """The settings of a ParameterSharding as plain data; what is None is left out.

    Raises InputError for objects in them that are no data, as statistics of a cache.
    """
    plain = {}
    for key in KEYS:
        value = getattr(sharding, key, None)
        if value is not None:
            plain[key] = _plain(value, where, key)
    return plain


def _plain(value: Any, where: str, path: str) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {key: _plain(part, where, f"{path}.{key}") for key, part in parts.items() if part is not None}
    if hasattr(value, "_asdict"):
        return {key: _plain(part, where, f"{path}.{key}") for key, part in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [_plain(part, where, path) for part in value]
    if isinstance(value, bool | int | float | str):
        return value
    message = f"{path}: is {type(value).__name__}, which no plan document holds; leave it out"
    raise InputError([Fault(where, 0, 0, "", message)])
