"""Whether two checkouts write the same files: plans of the catalog, studies, sizes and re-plans, byte by byte.

    python -m benchmarks.same_plans OTHER [--only WORDS] [--effort N] [--renamed FILE] [--jobs N]

OTHER is the other checkout, which runs with this interpreter. Every shipped workload is planned on two clusters, then
come the studies, sizes, changed clusters, and what is said of a plan. A line for each command tells `same` or the first
place that differs; exits with 1 where there is one. Fields that were renamed on purpose stand in a JSON file
{"old": "new"} or {"old": null} for those that are gone: they are taken for equal.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost_models.workload.loading import WORKLOADS
from planner.studies.study import STUDIES

ROOT = Path(__file__).resolve().parents[1]
CLUSTERS = {"zionex-16": ("-t", "zionex-16"), "dgx-h100-x4": ("-t", "dgx-h100", "--nodes", "4")}
"""On which every workload is planned."""
EXAMPLE = ("-t", "dgx-a100-80", "--nodes", "2", "-w", "dlrm-dcnv2")
"""Of the plan that the other commands are given."""


@dataclass(frozen=True)
class Command:
    """A command line of `planner` that writes its answer to `{out}`, or prints it."""

    name: str
    words: tuple[str, ...]
    before: tuple[str, ...] = ()
    """A command that comes first and writes `{before}`."""


def commands(effort: str) -> Iterator[Command]:
    """Everything that is compared."""
    for workload in WORKLOADS.names():
        for name, cluster in CLUSTERS.items():
            words = ("plan", *cluster, "-w", workload, "--effort", effort, "--quiet", "-o", "{out}")
            yield Command(f"plan {name} {workload}", words)
    for study in STUDIES.names():
        yield Command(f"study {study}", ("study", study, "--no-cache", "--quiet", "--format", "csv", "-o", "{out}.csv"))
    size = ("size", "-t", "dgx-a100-80", "-w", "dlrm-dcnv2", "--effort", effort, "--quiet", "--format", "json")
    yield Command("size --fits", (*size, "--fits"))
    yield Command("size --max-step", (*size, "--max-step", "9ms"))
    example = ("plan", *EXAMPLE, "--effort", effort, "--quiet", "-o", "{before}")
    for more in (("--nodes", "3"), ("--nodes", "1"), ("--nodes", "3", "--max-move", "20GB")):
        words = ("plan", "--from", "{before}", *EXAMPLE, *more, "--effort", effort, "--quiet", "-o", "{out}")
        yield Command(f"plan --from {' '.join(more)}", words, example)
    for said in ("verify", "explain", "memory", "simulate"):
        yield Command(said, (said, "{before}", "--format", "json"), example)
    for runtime in ("torchrec", "hugectr"):
        limited = (*example, "--runtime", runtime)
        yield Command(f"export --to {runtime}", ("export", "{before}", "--to", runtime, "-o", "{out}"), limited)
    for model in ("torchrec", "hugectr"):
        words = ("plan", *EXAMPLE, "--cost-model", model, "--effort", effort, "--quiet", "-o", "{out}")
        yield Command(f"plan --cost-model {model}", words)


def answer(command: Command, checkout: Path) -> bytes:
    """What a checkout answers: what it prints, and the file that it writes. The exit code leads."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"out": f"{folder}/out.json", "before": f"{folder}/before.json"}
        environment = {**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "100"}
        printed = b""
        for words in (command.before, command.words):
            if words:
                done = subprocess.run(
                    [sys.executable, "-m", "planner", *(word.format(**places) for word in words)],
                    capture_output=True,
                    cwd=folder,
                    env=environment,
                    check=False,
                )
                printed = b"exit %d\n" % done.returncode + done.stdout
        written = [file.read_bytes() for file in sorted(Path(folder).glob("out*")) if file.is_file()]
        return b"\n".join([printed.replace(folder.encode(), b"."), *written])


def difference(ours: bytes, theirs: bytes, renamed: Mapping[str, str | None]) -> str:
    """The first place that differs, but for renamed fields; "" where there is none."""
    ended = ours.splitlines()[0].decode()
    if ended != "exit 0":
        return f"{ended} here, which compares nothing"
    if ours == theirs:
        return ""
    for number, (one, other) in enumerate(zip(_plain(ours, renamed), _plain(theirs, renamed), strict=False)):
        if one != other:
            return f"line {number + 1}: {one[:60]!r} here, {other[:60]!r} there"
    return "" if len(_plain(ours, renamed)) == len(_plain(theirs, renamed)) else "one of them ends sooner"


def _plain(text: bytes, renamed: Mapping[str, str | None]) -> list[str]:
    """Lines, with JSON laid out and its renamed fields under their new names."""
    found = []
    for line in text.decode(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            found.append(line)
            continue
        found += json.dumps(_newly_named(value, renamed), indent=1, sort_keys=True).splitlines()
    return found


def _newly_named(value: Any, renamed: Mapping[str, str | None]) -> Any:
    if isinstance(value, dict):
        named = {renamed.get(key, key): _newly_named(each, renamed) for key, each in value.items()}
        return {key: each for key, each in named.items() if key is not None}
    return [_newly_named(each, renamed) for each in value] if isinstance(value, list) else value


def main() -> int:
    """Compare, print, and tell by the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--only", default="", help="commands whose line has these words")
    parser.add_argument("--effort", default="0")
    parser.add_argument("--renamed", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    renamed = json.loads(asked.renamed.read_text()) if asked.renamed else {}
    chosen = [command for command in commands(asked.effort) if asked.only in command.name]
    differ = 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        places = (ROOT, asked.other.resolve())
        answers = [[pool.submit(answer, command, place) for place in places] for command in chosen]
        for command, (ours, theirs) in zip(chosen, answers, strict=True):
            found = difference(ours.result(), theirs.result(), renamed)
            differ += bool(found)
            print(f"{command.name}: {found or 'same'}", flush=True)
    print(f"{len(chosen) - differ} the same, {differ} not")
    return 1 if differ or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
