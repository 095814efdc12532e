"""A shelf of shipped YAML files, found by name wherever a path is accepted."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.documents import STDIN, Document, did_you_mean, read_yaml
from topologies.errors import InputError
from topologies.instances import Instances
from topologies.sources import is_file, is_pipe


@dataclass(frozen=True)
class Shelf:
    """The YAML files of one directory; a file's stem is its catalog name. `kind` is the word for messages. Where there
    are `instances`, their names are found, too."""

    kind: str
    directory: Path
    instances: Instances | None = None

    def names(self) -> list[str]:
        """The catalog names in alphabetical order."""
        return sorted(path.stem for path in self.directory.glob("*.yaml"))

    def find(self, name_or_path: str | Path) -> Path:
        """The file that a catalog name or a path means; a path wins over a name, and `-` is standard input.

        Raises InputError, with the nearest name, when there is neither.
        """
        if str(name_or_path) == str(STDIN):
            return STDIN
        path = Path(name_or_path)
        if is_file(path) or is_pipe(path):  # `-t <(sed … topology.yaml)` is a pipe
            return path
        shipped = self.directory / f"{name_or_path}.yaml"
        names = self.names()
        if str(name_or_path) in names:
            return shipped
        if self.instances is not None:
            if str(name_or_path) in self.instances.names():
                return self.instances.path / str(name_or_path)
            names += self.instances.names()
        where = f"a {self.kind} of the catalog"
        raise InputError.at(str(name_or_path), what_is_missing(str(name_or_path), where, names))

    def read(self, found: Path) -> Document:
        """The file that `find` found; of an instance its own part of the file of all of them."""
        if self.instances is not None and found.parent == self.instances.path:
            self.instances.expect_apart(self.names())
            return self.instances.document(found.name)
        return read_yaml(found)


def what_is_missing(name_or_path: str, where: str, names: Sequence[str]) -> str:
    """What to say of text that is neither a file nor one of the `names` that stand `where`."""
    path = Path(name_or_path)
    if path.is_dir():
        return "is a directory; name a file in it"
    if (path.suffix or len(path.parts) > 1) and not difflib.get_close_matches(name_or_path, names):
        return "there is no such file"
    return f"is neither a file nor {where}{did_you_mean(name_or_path, names)}"
