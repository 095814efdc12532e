"""Every instance by every solver, side by side.

    python -m benchmarks list
    python -m benchmarks run [NAME…] [--solvers ours-10s,size,…] [--seed N] [--json] [--check]
    python -m benchmarks smoke

A NAME is an instance or a pattern (`torchrec/*`); without any, all are run by all solvers, which takes an hour. Each
attempt has a process of its own. `smoke` takes seconds and exits with 1 where an answer is wrong. Other tables come
from `benchmarks.plan`, `benchmarks.torchrec_cases`, `benchmarks.hugectr_case` and `benchmarks.neuroshard`.
"""

import argparse
import fnmatch
import json
import sys
from collections.abc import Sequence

from benchmarks import reporting, running
from benchmarks.contest import Attempt, Instance
from benchmarks.figures import Limit
from benchmarks.instances import SOLVERS, instances

SMOKE = ("torchrec/n26_w8_*", "hugectr/*", "zionex-16/*", "neuroshard/4x16/*", "neuroshard/8x128/*")
SMOKE_SOLVERS = [name for name in SOLVERS if not name.startswith("ours-")]


def missed(instance: Instance, attempts: Sequence[Attempt]) -> list[str]:
    """The targets that the attempts on an instance do not keep to."""
    by_solver = {each.solver: each for each in attempts}
    limits = [(by_solver[solver], limit) for solver, limit in instance.limits if solver in by_solver]
    return [
        f"{instance.name} by {each.solver}: {limit.measure} {getattr(each, limit.measure)}, not {limit.target:g}"
        for each, limit in limits
        if not _is_met(each, limit)
    ]


def _is_met(each: Attempt, limit: Limit) -> bool:
    value = getattr(each, limit.measure)
    return value is not None and value <= limit.target


def wrong(attempts: Sequence[Attempt]) -> list[str]:
    """Answers that cannot be right: no plan from our planner, or a plan of anybody's below a bound."""
    found = [f"{each.instance}: no plan by {each.solver}" for each in attempts if each.is_ours and not each.objective]
    bound = max((each.bound for each in attempts if each.bound is not None), default=0.0)
    found += [
        f"{each.instance}: {each.solver} reaches {each.objective!r}, below the bound {bound!r}"
        for each in attempts
        if each.objective is not None and each.objective < bound * (1 - 1e-9)
    ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Every instance by every solver.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the names of instances and solvers")
    commands.add_parser("smoke", help="what takes seconds; exits with 1 where an answer is wrong")
    running = commands.add_parser("run", help="instances x solvers")
    running.add_argument("names", nargs="*", metavar="NAME", help="instances or patterns (default: all)")
    running.add_argument("--solvers", default=",".join(SOLVERS), metavar="A,B", help="default: all")
    running.add_argument("--seed", type=int, default=0, metavar="N")
    running.add_argument("--json", action="store_true", help="a list of records instead of tables")
    running.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    given = parser.parse_args()
    if given.command == "list":
        print(
            "\n".join(["instances:", *(f"  {name}" for name in instances()), "solvers:", *(f"  {n}" for n in SOLVERS)])
        )
        return 0
    if given.command == "smoke":
        _, faults = _show(_matching(parser, SMOKE), SMOKE_SOLVERS, 0, as_json=False, apart=False)
        return int(bool(faults))
    solvers = given.solvers.split(",")
    if unknown := [name for name in solvers if name not in SOLVERS]:
        parser.error(f"{unknown[0]} is no solver; known are {', '.join(SOLVERS)}")
    misses, faults = _show(_matching(parser, given.names or ["*"]), solvers, given.seed, as_json=given.json, apart=True)
    return int(bool(faults) or (given.check and bool(misses)))


def _matching(parser: argparse.ArgumentParser, patterns: Sequence[str]) -> list[str]:
    known, found = list(instances()), []
    for pattern in patterns:
        names = fnmatch.filter(known, pattern)
        if not names:
            parser.error(f"{pattern} is no instance; `python -m benchmarks list` names them")
        found += names
    return list(dict.fromkeys(found))


def _show(
    names: Sequence[str], solvers: Sequence[str], seed: int, *, as_json: bool, apart: bool
) -> tuple[list[str], list[str]]:
    """Run, print, and give back the targets missed and the answers that are wrong."""
    known, misses, faults, records = instances(), [], [], []
    for attempts in running.contests(names, solvers, seed, apart=apart):
        instance = known[attempts[0].instance]
        misses += missed(instance, attempts)
        faults += wrong(attempts)
        records += [each.record() for each in attempts]
        if not as_json:
            print(reporting.contest(instance, attempts), flush=True)
    if as_json:
        print(json.dumps({"attempts": records, "missed": misses, "wrong": faults}, indent=1))
    else:
        for fault in [*(f"missed: {miss}" for miss in misses), *(f"WRONG: {fault}" for fault in faults)]:
            print(fault)
    return misses, faults


if __name__ == "__main__":
    sys.exit(main())
