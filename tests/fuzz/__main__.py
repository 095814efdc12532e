"""`python -m tests.fuzz READER [SECONDS] [SEED]`: random damage to files that a reader takes, and what it raises.

Prints the executions, the lines of code reached, and every new place that raises anything but InputError, with the
file that did it (which belongs in `tests/fuzz/corpus/READER`). Files that reach new lines are damaged further.
"""

import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import CodeType
from typing import Any

from tests.fuzz.readers import CORPUS, READERS, ROOT
from topologies.errors import InputError

WORDS = [
    *(
        b"\0",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xed\xa0\xbd",
        b"1e308",
        b"-1",
        b"nan",
        b".nan",
        b"NaN",
        b"Infinity",
        b"0",
    ),
    *(b"9" * 5000, b"x" * 10000, b"[" * 3000, b'{"a":' * 3000, b"&a", b"*a", b"<<: ", b"!!bool ", b"!!int ", b"null"),
    *(b"[]", b"{}", b'""', b"true", b"\n", b"\r", b": ", b"- ", b",", b'"', b"'", b"\t", b"%", b"GB/s", b"1e999"),
]
"""What is put into a file, beside single bytes."""
MOST_BYTES = 1 << 16
MOST_S = 10
"""Processor seconds after which a file counts as a hang."""
MOST_MEMORY = 8 << 30
"""Bytes of address space: what a file asks for beyond that is refused as lack of memory."""


def damaged(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """A file with one to four changes: bytes or lines lost, doubled, changed, or brought in from another file."""
    for _ in range(chance.randint(1, 4)):
        a, b = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        b = min(b, a + chance.choice((1, 4, 64, 4096)))
        match chance.randrange(6):
            case 0:
                data = data[:a] + data[b:]
            case 1:
                data = data[:b] + data[a:b] + data[b:]
            case 2:
                data = data[:a] + bytes([chance.randrange(256)]) + data[a + 1 :]
            case 3:
                data = data[:a] + chance.choice(WORDS) + data[a:]
            case 4:
                data = data[:a] + chance.choice(WORDS) + data[b:]
            case _:
                c = chance.randrange(len(other) + 1)
                data = data[:a] + other[c : c + b - a + 1] + data[b:]
    return data[:MOST_BYTES]


class Lines:
    """The lines of our own code that were reached: each is told once, so that counting costs little."""

    def __init__(self) -> None:
        self.count = 0
        self._own: dict[CodeType, bool] = {}
        self._seen: set[tuple[CodeType, int]] = set()

    def trace(self, frame: Any, event: str, _argument: object) -> Any:
        """For `sys.settrace`."""
        code = frame.f_code
        if code not in self._own:
            self._own[code] = code.co_filename.startswith(str(ROOT))
        if not self._own[code]:
            return None
        if event == "line" and (at := (code, frame.f_lineno)) not in self._seen:
            self._seen.add(at)
            self.count += 1
        return self.trace


def _hang(_number: int, _frame: object) -> None:
    raise TimeoutError("takes too long")


def fuzz(name: str, seconds: float, seed: int) -> None:
    """Fuzz one reader, with line coverage for one file in eight."""
    reader, chance, lines = READERS[name], random.Random(f"{name} {seed}"), Lines()
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    file = folder / f"file{reader.suffix}"
    pool = reader.seeds() + [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    found: set[str] = set()
    signal.signal(signal.SIGVTALRM, _hang)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    count, taken, last_new, begin = 0, 0, 0, time.process_time()
    while time.process_time() - begin < seconds:
        is_seed = count < len(pool)
        data = pool[count] if is_seed else damaged(chance.choice(pool), chance.choice(pool), chance)
        file.write_bytes(data)
        count, before = count + 1, lines.count
        if is_traced := is_seed or count % 8 == 0:
            sys.settrace(lines.trace)
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
        try:
            reader.read(file)
            taken += 1
        except InputError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever a reader raises is what is looked for
            own = [at for at in traceback.extract_tb(error.__traceback__) if at.filename.startswith(str(ROOT))][-1]
            place = f"{type(error).__name__} {Path(own.filename).name}:{own.lineno}"
            if place not in found:
                found.add(place)
                kept = Path(tempfile.gettempdir()) / f"fuzz-{name}-{len(found)}{reader.suffix}"
                kept.write_bytes(data)
                print(f"{name}: {place}: {error!s:.100}: {kept}", flush=True)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            sys.settrace(None)
        if is_traced and lines.count > before:
            last_new = count
            if not is_seed:
                pool.append(data)
    shutil.rmtree(folder)
    print(
        f"{name}: {count} executions, {taken} taken, {lines.count} lines, the last new one in execution {last_new},"
        f" {len(found)} faults",
        flush=True,
    )


if __name__ == "__main__":
    names = sys.argv[1]
    wanted, number = (*map(float, sys.argv[2:4]), *(60.0, 0.0)[len(sys.argv) - 2 :])
    for one in READERS if names == "all" else [names]:
        fuzz(one, wanted, int(number))
