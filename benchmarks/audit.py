"""Random small questions, and whether any placement of an independent judge breaks what the planner promises.

    python -m benchmarks.audit --instances 2000 --seed 1 [--jobs 2] [--first N]

No plan is below its bound, none is faster than one that is called optimal, nothing fits where nothing is said to, and
nothing crashes. Every violation is printed with its question as YAML; `--ask FILE` asks one again. Exits with 1 where a
promise is broken. Placements that `verify` says the bound does not cover break none; they are counted, with the forms
that they have.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.oracles.judge import Verdict, judged
from tests.oracles.questions import Question, from_yaml, question

SEEDS_APART = 10_000_019
"""Between the first questions of two seeds."""


def verdict_of(number: int) -> tuple[int, Verdict, float]:
    """A question by its number, its verdict and the processor time that it took."""
    began = time.process_time()
    verdict = judged(question(number), number)
    return number, verdict, time.process_time() - began


def verdicts(numbers: Sequence[int], jobs: int) -> Iterator[tuple[int, Verdict, float]]:
    if jobs == 1:
        yield from map(verdict_of, numbers)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(verdict_of, numbers, chunksize=4)


def report(asked: Question, number: int | str, verdict: Verdict) -> str:
    lines = [f"--- {verdict.kind}: question {number}", verdict.words.rstrip()]
    if verdict.traits:
        lines.append(f"traits: {'; '.join(verdict.traits)}")
    lines += [f"verify says of the placement: {fault}" for fault in verdict.refused_by_verify]
    for table in verdict.witness or ():
        cache = f" {table.cache_fraction:g}" if table.cache_fraction is not None else ""
        lines.append(f"  {table.name}: {table.sharding} in {table.tier}{cache}, {table.dtype}, {table.optimizer_state}")
        matrix = table.shards.as_matrix()[:, :5].tolist()
        lines += [f"    rank {r}: rows {a} + {n}, columns {c} + {w}" for r, a, n, c, w in matrix]
    return "\n".join([*lines, asked.to_yaml()])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="skip so many questions of the seed")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--ask", type=Path, metavar="FILE", help="one question from its YAML instead")
    given = parser.parse_args()
    if given.ask is not None:
        asked = from_yaml(given.ask.read_text())
        verdict = judged(asked)
        print(report(asked, str(given.ask), verdict) if verdict.kind else f"{verdict.status}: every promise holds")
        return int(verdict.kind is not None)
    first = given.seed * SEEDS_APART + given.first
    began, cpu_s = time.monotonic(), 0.0
    statuses: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    outside: list[str] = []
    exact = missed = 0
    for done, (number, verdict, took_s) in enumerate(
        verdicts(range(first, first + given.instances), given.jobs), start=1
    ):
        cpu_s += took_s
        statuses[verdict.status] += 1
        exact += verdict.is_exact
        missed += verdict.is_missed
        if verdict.is_outside:
            outside.append(f"question {number}: {verdict.words} ({'; '.join(verdict.refused_by_verify)})")
        if verdict.kind is not None:
            kinds[verdict.kind] += 1
            print(report(question(number), number, verdict), flush=True)
        if done % 50 == 0:
            elapsed = time.monotonic() - began
            print(
                f"{done} of {given.instances}, {elapsed:.0f} s, {sum(kinds.values())} violations",
                file=sys.stderr,
                flush=True,
            )
    for words in outside:
        print(f"outside of the options, {words}")
    broken = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
    told = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    print(
        f"{given.instances} instances ({told}); {exact} tried in full; violations: {broken}; crashes: {kinds['crash']};"
        f" outside of the options: {len(outside)}; not found though there: {missed};"
        f" {cpu_s / max(given.instances, 1):.2f} s of CPU each"
    )
    return int(bool(kinds))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
