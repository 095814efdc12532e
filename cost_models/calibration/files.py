"""Coefficient files: values replaced in place, and files of collectives written whole."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from cost_models.coefficients import CollectiveCoefficients, DeviceCoefficients, ProtocolLaw, device_coefficients

DIGITS = 4


def set_values(path: Path, values: Mapping[str, float]) -> None:
    """Write new values of top-level coefficients into a file of one key per coefficient.

    Raises KeyError for a name that the file does not have.
    """
    text = path.read_text()
    for name, value in values.items():
        pattern = re.compile(rf"(^{re.escape(name)}:\s*\{{?\s*value:\s*)([^\s,}}]+)", re.MULTILINE)
        text, found = pattern.subn(rf"\g<1>{value:.{DIGITS}g}", text)
        if not found:  # one number for all optimizers
            line = re.compile(rf"(^{re.escape(name)}:.*by_optimizer: )\{{([^}}]*)\}}", re.MULTILINE)
            if where := line.search(text):
                optimizers = [part.split(":")[0].strip() for part in where[2].split(",")]
                same = ", ".join(f"{optimizer}: {value:.{DIGITS}g}" for optimizer in optimizers)
                text, found = line.subn(rf"\g<1>{{{same}}}", text)
        if not found:
            raise KeyError(f"{path.name} has no coefficient {name}")
    path.write_text(text)


def collective_file(collectives: CollectiveCoefficients) -> str:
    """The text of a file of collectives, one law per line."""
    head = collectives.model_dump(mode="json", exclude_defaults=True, exclude={"laws"})
    text = yaml.safe_dump(head, sort_keys=False, width=120, default_flow_style=None)
    return text + "laws:\n" + "".join(f"- {_flow(law)}\n" for law in collectives.laws)


def _flow(law: ProtocolLaw) -> str:
    protocols = ", ".join(f"[{latency:.{DIGITS}g}, {rate:.{DIGITS}g}]" for latency, rate in law.protocols)
    low, high = law.buffer_bytes
    return (
        f"{{operation: {law.operation}, ranks: {law.ranks}, protocols: [{protocols}], "
        f"buffer_bytes: [{low:.0f}, {high:.0f}], rows: {law.rows}, mean_error: {law.mean_error}, "
        f"band_90: {law.band_90}}}"
    )


def device_file(device: DeviceCoefficients) -> str:
    """The text of a file of a device: what differs from the default, one coefficient per line."""
    default = device_coefficients("default").model_dump(mode="json", exclude_none=True)
    own = device.model_dump(mode="json", exclude_none=True)
    lines = [f"name: {json.dumps(device.name)}\n"]
    for name, coefficient in own.items():
        if name == "name" or coefficient == default.get(name):
            continue
        stated = {key: value for key, value in coefficient.items() if value not in ([], ())}
        lines.append(f"{name}: {json.dumps(stated, ensure_ascii=False)}\n")
    return "".join(lines)
