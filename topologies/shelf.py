"""A shelf of shipped YAML files, found by name wherever a path is accepted."""

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
        if path.is_file():
            return path
        shipped = self.directory / f"{name_or_path}.yaml"
        if str(name_or_path) in self.names():
            return shipped
        hint = did_you_mean(str(name_or_path), self.names())
        raise InputError.at(str(name_or_path), f"is neither a file nor a {self.kind} of the catalog{hint}")
