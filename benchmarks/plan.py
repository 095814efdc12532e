"""The figures of the main job: `python -m benchmarks.plan [--smoke] [--json]`, from the root of a checkout.

Every planning command runs in a process of its own and is timed from its start to its end. The exit code is 1 when
an answer is wrong; a figure of time or memory that is missed only says NO, because it depends on the machine.
"""

import argparse
import sys
from collections.abc import Iterator

from benchmarks import figures, reporting, running


def outcomes(*, smoke: bool) -> Iterator[running.Outcome]:
    """Each figure as soon as it is known. `smoke` leaves out what takes long."""
    for quantity in figures.QUANTITIES:
        yield running.compute(quantity)
    for run in figures.RUNS:
        if not (smoke and run.is_big):
            yield from running.run_command(run)
    for tiny in figures.TINY:
        if not (smoke and tiny.is_big):
            yield running.compare(tiny)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description="The figures of the main job.")
    parser.add_argument("--smoke", action="store_true", help="only what takes seconds")
    parser.add_argument("--json", action="store_true", help="a list of records instead of a table")
    wanted = parser.parse_args()
    found = []
    if not wanted.json:
        print(reporting.line(reporting.HEADER))
    for outcome in outcomes(smoke=wanted.smoke):
        found.append(outcome)
        if not wanted.json:
            print(reporting.line(reporting.row(outcome)), flush=True)
    if wanted.json:
        print(reporting.as_json(found))
    return int(any(outcome.is_exact and not outcome.ok for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
