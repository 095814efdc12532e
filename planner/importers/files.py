"""JSON files of other tools."""

import json
from pathlib import Path
from typing import Any

from topologies.errors import InputError


def read_json(path: str | Path) -> dict[str, Any]:
    """The mapping that a file holds. Raises InputError for anything else."""
    source = str(path)
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError.at(source, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError.at(source, "is not UTF-8 text") from None
    except RecursionError:
        raise InputError.at(source, "is nested too deep") from None
    except json.JSONDecodeError as error:
        raise InputError.at(source, f"is not JSON: {error.msg}", line=error.lineno, column=error.colno) from None
    if not isinstance(data, dict):
        raise InputError.at(source, "must be a mapping of keys")
    return data
