"""Where a command writes: places that can be written and hold none of its inputs, refused before any work."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import typer

Given = str | Path | Iterable[str | Path] | None
"""What a flag was given: a file or a name of the catalog, several, or nothing."""


class Outputs:
    """The files and folders that a command writes, by the flags that name them."""

    def __init__(
        self,
        files: Mapping[str, Path | None],
        inputs: Mapping[str, Given],
        folders: Mapping[str, tuple[Path | None, str]] | None = None,
    ) -> None:
        """Refuse what cannot be written, one file for two outputs, and files that `inputs` name.

        `folders` holds for each flag a folder and the pattern of the names that are written into it.
        """
        from topologies.sources import behind_links

        self._files = {flag: path for flag, path in files.items() if path is not None}
        self._folders = {flag: (path, names) for flag, (path, names) in (folders or {}).items() if path is not None}
        for flag, given in inputs.items():
            each = [given] if isinstance(given, str | Path) or given is None else given
            self.expect_unread(flag, (Path(given_path) for given_path in each if given_path is not None))
        first: dict[Path, str] = {}
        for flag, path in self._files.items():
            _expect_place(flag, path)
            other = first.setdefault(behind_links(path), flag)
            if other != flag:
                raise typer.BadParameter(f"{path} is also the file of {other}; name two files", param_hint=flag)
        for flag, (path, _) in self._folders.items():
            _expect_folder(flag, path)

    @contextmanager
    def beside(self, flag: str) -> Iterator[None]:
        """Refuse to write over a file that is read meanwhile as part of the input of `flag`."""
        from topologies.sources import recorded

        with recorded() as read:
            yield
        self.expect_unread(flag, read)

    def expect_unread(self, flag: str, read: Iterable[Path]) -> None:
        """Refuse to write over a file of the input of `flag`, by whatever name or link it is reached."""
        for source in read:
            for output, path in self._written():
                if _is_same(source, path):
                    message = f"{path} is an input of {flag}, which would be overwritten; name another file"
                    raise typer.BadParameter(message, param_hint=output)

    def _written(self) -> Iterator[tuple[str, Path]]:
        """The files that a command writes over, by flag; a folder by those in it that have names of its files."""
        yield from self._files.items()
        for flag, (folder, names) in self._folders.items():
            yield flag, folder
            yield from ((flag, path) for path in folder.glob(names))


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # what is not there is no file
        return False


def _expect_place(flag: str, file: Path) -> None:
    """Refuse, before the work is done, a file that cannot be written after it."""
    from topologies.sources import behind_links

    if str(file) == "-":
        raise typer.BadParameter("- is no file; name one, or leave the flag out", param_hint=flag)
    if file.is_dir():
        raise typer.BadParameter(f"{file} is a directory; name a file in it", param_hint=flag)
    if file.exists() and not file.is_file():
        raise typer.BadParameter(f"{file} is not a regular file; write --format json > {file}", param_hint=flag)
    real = behind_links(file)
    folder = f"{real.parent}, to which the link {file} leads" if file.is_symlink() else file.parent
    if real.is_symlink():
        raise typer.BadParameter(f"{file} is a link that leads to itself; name a file", param_hint=flag)
    if not real.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {folder}", param_hint=flag)
    if file.exists() and not os.access(file, os.W_OK):
        raise typer.BadParameter(f"{file} is read-only; name another file, or allow writing to it", param_hint=flag)
    _expect_room(flag, real.parent, folder)


def _expect_folder(flag: str, folder: Path) -> None:
    """Refuse a folder that is none, or that cannot be made or written to: there may be none, nor those above it."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists() or path.is_symlink())
    if not there.is_dir():
        raise typer.BadParameter(f"{there} is not a folder; name one for the files", param_hint=flag)
    _expect_room(flag, there, there)


def _expect_room(flag: str, folder: Path, named: Path | str) -> None:
    """Refuse a folder in which no file can be made: only making one tells, which leaves nothing."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise typer.BadParameter(f"files cannot be written in {named}: {error.strerror}", param_hint=flag) from None
