"""Answers that were computed before, in the user's cache directory, under the content hash of their job."""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.document.files import write_file
from planner.studies.point import Answer, Start
from topologies.errors import InputError

FOLDER = "points"


def cache_directory() -> Path:
    """Where this user's caches are: `$XDG_CACHE_HOME/shardplan`, or the system's own place."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("shardplan", appauthor=False))


@dataclass(frozen=True)
class Usage:
    """What a store holds."""

    directory: Path
    answers: int
    bytes: int


class Store:
    """One file per answer, written whole or not at all, with a checksum; a plan beside it where one was asked for.

    What is damaged counts as absent, and `warn` is called; a place that cannot be written is reported once.
    """

    def __init__(self, directory: Path | None = None, warn: Callable[[str], None] = lambda _words: None) -> None:
        self.directory = (directory or cache_directory()) / FOLDER
        self._warn = warn

    def get(self, key: str, *, with_plan: bool, with_start: bool) -> Answer | None:
        """The answer to a job, if it is here with everything that is asked for."""
        path = self._path(key)
        try:
            data = json.loads(path.read_bytes())
            stored = data["answer"]
            _expect_checksum(data["checksum"], key, _packed(stored))
            start = stored.get("start")
            if with_start and start is None and "step_s" in stored["record"]:
                return None
            plan = None
            if with_plan and start is not None:
                if stored["plan"] is None:
                    return None
                text = path.with_suffix(".plan").read_bytes()
                _expect_checksum(stored["plan"], key, text)
                plan = text.decode()
            return Answer(stored["record"], None if start is None else Start.from_document(start), plan)
        except OSError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._warn(f"warning: {path}: is damaged; what it held is computed again")
            return None

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer. Raises InputError where the directory cannot be written."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError.at(str(path.parent), f"cannot be made: {error.strerror}; or use --no-cache") from None
        if answer.plan is not None:
            write_file(path.with_suffix(".plan"), answer.plan.encode())
        document: dict[str, Any] = {
            "record": answer.record,
            "start": None if answer.start is None else answer.start.as_document(),
            "plan": None if answer.plan is None else _checksum(key, answer.plan.encode()),
        }
        write_file(path, _packed({"checksum": _checksum(key, _packed(document)), "answer": document}))

    def usage(self) -> Usage:
        """How much there is."""
        files = list(self._files())
        return Usage(self.directory, sum(path.suffix == ".json" for path, _ in files), sum(size for _, size in files))

    def clear(self) -> Usage:
        """Remove everything; what there was."""
        before = self.usage()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.directory)
        return before

    def _files(self) -> Iterator[tuple[Path, int]]:
        for path in self.directory.glob("*/*"):
            with contextlib.suppress(OSError):
                yield path, path.stat().st_size

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.json"


def _packed(data: object) -> bytes:
    """Plain data as JSON without blanks; NaN is not data."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


def _checksum(key: str, content: bytes) -> str:
    """The digest of content that belongs to a job; another job's differs."""
    return hashlib.sha256(key.encode() + b"\0" + content).hexdigest()


def _expect_checksum(checksum: str, key: str, content: bytes) -> None:
    if checksum != _checksum(key, content):
        raise ValueError("the checksum is that of something else")
