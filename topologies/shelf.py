"""A shelf of shipped YAML files, found by name wherever a path is accepted."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.documents import did_you_mean
from topologies.errors import InputError


@dataclass(frozen=True)
class Shelf:
    """The YAML files of one directory; a file's stem is its catalog name. `kind` is the word for messages."""

    kind: str
    directory: Path

    def names(self) -> list[str]:
        """The catalog names in alphabetical order."""
        return sorted(path.stem for path in self.directory.glob("*.yaml"))

    def find(self, name_or_path: str | Path) -> Path:
        """The file that a catalog name or a path means; a path wins over a name.

        Raises InputError, with the nearest name, when there is neither.
        """
        path = Path(name_or_path)
        if path.is_file() or path.is_fifo():  # `-t <(sed … topology.yaml)` is a pipe
            return path
        shipped = self.directory / f"{name_or_path}.yaml"
        if str(name_or_path) in self.names():
            return shipped
        where = f"a {self.kind} of the catalog"
        raise InputError.at(str(name_or_path), what_is_missing(str(name_or_path), where, self.names()))


def what_is_missing(name_or_path: str, where: str, names: Sequence[str]) -> str:
    """What to say of text that is neither a file nor one of the `names` that stand `where`."""
    path = Path(name_or_path)
    if path.is_dir():
        return "is a directory; name a file in it"
    if (path.suffix or len(path.parts) > 1) and not difflib.get_close_matches(name_or_path, names):
        return "there is no such file"
    return f"is neither a file nor {where}{did_you_mean(name_or_path, names)}"
