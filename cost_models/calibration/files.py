"""Values of coefficient files replaced in place, everything else kept as it stands."""

import re
from collections.abc import Mapping
from pathlib import Path

DIGITS = 4


def set_values(path: Path, values: Mapping[str, float]) -> None:
    """Write new values of top-level coefficients into a file of one key per coefficient.

    Raises KeyError for a name that the file does not have.
    """
    text = path.read_text()
    for name, value in values.items():
        pattern = re.compile(rf"(^{re.escape(name)}:\s*\{{?\s*value:\s*)([^\s,}}]+)", re.MULTILINE)
        text, found = pattern.subn(rf"\g<1>{value:.{DIGITS}g}", text)
        if not found:
            raise KeyError(f"{path.name} has no coefficient {name}")
    path.write_text(text)
