"""Whether two checkouts plan the same: plans of the catalog, studies, sizes and re-plans, field by field.

    python -m benchmarks.same_plans OTHER [--only WORDS] [--effort N] [--renamed FILE] [--jobs N]

OTHER is the other checkout, which runs with this interpreter. Every shipped workload is planned on two clusters, then
come the studies, sizes, changed clusters, and what is said of a plan. Documents are compared, not what is printed:
names and numbers must be equal; of a sentence only its numbers, in any order, because a sentence may be reworded. A
line for each command says `same` or the first field that differs; the exit code is 1 where there is one. A plan of
version 1 is read as version 2. Other fields that were renamed on purpose are listed in a JSON file {"old": "new"}, or
{"old": null} for those that are gone: they are taken for equal. Plans of the other checkout must also verify here.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost_models.workload.loading import WORKLOADS
from planner.document.versions import in_present_version
from planner.studies.study import STUDIES

ROOT = Path(__file__).resolve().parents[1]
CLUSTERS = {"zionex-16": ("-t", "zionex-16"), "dgx-h100-x4": ("-t", "dgx-h100", "--nodes", "4")}
"""On which every workload is planned."""
EXAMPLE = ("-t", "dgx-a100-80", "--nodes", "2", "-w", "dlrm-dcnv2")
"""The question whose plan the other commands are given."""
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
SHOWN = 60
"""Characters of a value in the line of its difference."""


@dataclass(frozen=True)
class Command:
    """A command line of `planner` that writes a JSON document to `{out}`, or prints it."""

    name: str
    words: tuple[str, ...]
    before: tuple[str, ...] = ()
    """A command that comes first and writes `{before}`."""


def commands(effort: str) -> Iterator[Command]:
    """Everything that is compared. An effort is always stated: without one, a clock may end a search."""
    planned, quiet = ("plan", "--effort", effort, "--quiet", "-o"), ("--quiet", "-o", "{out}")
    for workload in WORKLOADS.names():
        for name, cluster in CLUSTERS.items():
            yield Command(f"plan {name} {workload}", (*planned, "{out}", *cluster, "-w", workload))
    for study in STUDIES.names():
        yield Command(f"study {study}", ("study", study, "--no-cache", "--workers", "1", *quiet))
    size = ("size", "-t", "dgx-a100-80", "-w", "dlrm-dcnv2", "--effort", effort, "--quiet", "--format", "json")
    yield Command("size --fits", (*size, "--fits"))
    yield Command("size --max-step", (*size, "--max-step", "9ms"))
    example = (*planned, "{before}", *EXAMPLE)
    for more in (("--nodes", "3"), ("--nodes", "1"), ("--nodes", "3", "--max-move", "20GB")):
        again = (*planned, "{out}", "--from", "{before}", *EXAMPLE, *more)
        yield Command(f"plan --from {' '.join(more)}", again, example)
    for said in ("verify", "explain", "memory", "simulate"):
        yield Command(said, (said, "{before}", "--format", "json"), example)
    for runtime in ("torchrec", "hugectr"):
        limited = (*example, "--runtime", runtime)
        yield Command(f"export --to {runtime}", ("export", "{before}", "--to", runtime, "-o", "{out}"), limited)
    for model in ("torchrec", "hugectr"):
        yield Command(f"plan --cost-model {model}", (*planned, "{out}", *EXAMPLE, "--cost-model", model))


@dataclass(frozen=True)
class Answer:
    """What a checkout answers to a command."""

    exit_code: int
    document: Any
    """The JSON that it writes, or else prints; None where it does neither."""


def answer(command: Command, checkout: Path) -> Answer:
    """Run a command, and what comes before it, in a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"out": f"{folder}/out.json", "before": f"{folder}/before.json"}
        exit_code, printed = 0, ""
        for words in (command.before, command.words):
            if words:
                exit_code, printed = _run([word.format(**places) for word in words], checkout, folder)
        written = Path(places["out"])
        text = written.read_text() if written.exists() else printed
        try:
            return Answer(exit_code, json.loads(text.replace(folder, ".")))
        except ValueError:
            return Answer(exit_code, None)


def _run(words: Sequence[str], checkout: Path, folder: str) -> tuple[int, str]:
    """Exit code and printed text of a command line."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "100"}
    command = [sys.executable, "-m", "planner", *words]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    return ended.returncode, ended.stdout


def violation(document: Any, checkout: Path = ROOT) -> str:
    """What `verify` of a checkout says first against a document; "" where that is no plan, or nothing is wrong."""
    if not _is_plan(document):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "plan.json").write_text(json.dumps(document))
        exit_code, printed = _run(["verify", "plan.json", "--format", "json"], checkout, folder)
    if exit_code == 0:
        return ""
    found = json.loads(printed)["violations"] if printed else [f"exit code {exit_code}"]
    return f"their plan does not verify here: {found[0]}"


def difference(ours: Answer, theirs: Answer, renamed: Mapping[str, str | None]) -> str:
    """The first field that differs, but for renamed ones; "" where there is none."""
    if ours.exit_code != theirs.exit_code:
        return f"exit code {ours.exit_code} here, {theirs.exit_code} there"
    if ours.document is None or theirs.document is None:
        return f"exit code {ours.exit_code} and no document, which compares nothing"
    one, other = (_newly_named(_present(answer.document), renamed) for answer in (ours, theirs))
    return next(_differences("", one, other), "")


def _present(document: Any) -> Any:
    """A document in the present version of plans, where it is a plan."""
    return in_present_version(document, "plan") if _is_plan(document) else document


def _is_plan(document: Any) -> bool:
    return isinstance(document, dict) and document.get("kind") == "plan"


def _newly_named(value: Any, renamed: Mapping[str, str | None]) -> Any:
    if isinstance(value, dict):
        named = {renamed.get(key, key): _newly_named(each, renamed) for key, each in value.items()}
        return {key: each for key, each in named.items() if key is not None}
    return [_newly_named(each, renamed) for each in value] if isinstance(value, list) else value


def _differences(path: str, ours: Any, theirs: Any) -> Iterator[str]:
    """Every field that differs, with its path."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            if key in ours and key in theirs:
                yield from _differences(f"{path}.{key}" if path else key, ours[key], theirs[key])
            else:
                yield f"{path}.{key} is only {'here' if key in ours else 'there'}".removeprefix(".")
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{path} has {len(ours)} elements here, {len(theirs)} there"
        for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from _differences(f"{path}.{index}", one, other)
    elif _compared(ours) != _compared(theirs):
        yield f"{path} is {str(ours)[:SHOWN]!r} here, {str(theirs)[:SHOWN]!r} there"


def _compared(value: Any) -> Any:
    """What of a value must be equal: its type and itself, or the numbers of a sentence."""
    if isinstance(value, str) and " " in value:
        return "sentence", sorted(NUMBER.findall(value))
    return type(value), value


def main() -> int:
    """Compare, print, and tell by the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--only", default="", help="commands whose line has these words")
    parser.add_argument("--effort", default="1", help="of every search; 0 is quick")
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
            found = difference(ours.result(), theirs.result(), renamed) or violation(theirs.result().document)
            differ += bool(found)
            print(f"{command.name}: {found or 'same'}", flush=True)
    print(f"{len(chosen) - differ} the same, {differ} not")
    return 1 if differ or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
