"""TorchRec's own planner against ours under its own objective, on any folder of cases.

    python -m benchmarks.torchrec_cases [DIR] [--time-limit 10s] [--gap 0.02%] [--seed N,…] [--plans OUT] [--json]
                                        [--check]

A folder holds `cases.json` and the table sets and topologies that it names; the shipped one is
`benchmarks/data/torchrec_cases` (ten instances on which TorchRec 1.8.0's planner was run; its ratings are in the file).
Several seeds (`--seed 0,1,2,3,4`) give a result each, and the worst of them by case.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean

from benchmarks.contest import Attempt, Search, attempt
from benchmarks.instances import SHIPPED_CASES, torchrec_cases
from planner.document.plan import write_plan
from topologies.units import format_seconds, parse_fraction, parse_quantity

HEADER = ("case", "seed", "rating", "bound", "gap", "shards/rank", "time", "TorchRec", "its time", "ratio")
ROW = "{:<24}{:>5}{:>12}{:>12}{:>9}{:>12}{:>9}{:>12}{:>10}{:>7}"
SHARE_OF_ALLOWED, MANY_SHARDS, GAP, GAP_OF_FEW, SECONDS = 0.99, 6.0, 0.003, 0.03, 10.0
"""Targets: geometric mean of TorchRec's rating over ours, of that over the bounds; gap with that many shards per rank
or more, and with fewer; time of a case."""


@dataclass(frozen=True)
class Result:
    """What one case gave; ratings in milliseconds, as TorchRec has them."""

    case: str
    seed: int
    tables: int
    ranks: int
    status: str
    rating_ms: float | None
    bound_ms: float | None
    gap: float | None
    shards_per_rank: float
    """Shards of our plan that were placed one by one, by rank; parts of tables cut by rows and replicas not counted."""
    seconds: float
    cpu_seconds: float
    torchrec_rating_ms: float
    torchrec_seconds: float
    ratio: float | None
    """TorchRec's rating over ours."""


def run(folder: Path, search: Search, seeds: Sequence[int], plans: Path | None) -> Iterator[Result]:
    """Plan every case of a folder with every seed, one after the other."""
    cases = json.loads((folder / "cases.json").read_text())["cases"]
    for case, instance in zip(cases, torchrec_cases(folder), strict=True):
        for seed in seeds:
            found = attempt(instance, "ours", search, seed)
            if plans is not None and found.plan is not None:
                plans.mkdir(parents=True, exist_ok=True)
                suffix = f"_seed{seed}" if len(seeds) > 1 else ""
                write_plan(found.plan, plans / f"{case['id']}{suffix}.json")
            sizes = len(instance.workload().tables), instance.topology().world_size
            theirs = case["torchrec_1.8.0"]
            yield _result(case["id"], sizes, found, theirs["rating_ms"], theirs["plan_s"])


def _result(case: str, sizes: tuple[int, int], found: Attempt, their_rating_ms: float, their_seconds: float) -> Result:
    tables, ranks = sizes
    return Result(
        case=case,
        seed=found.seed,
        tables=tables,
        ranks=ranks,
        status=found.status,
        rating_ms=None if found.objective is None else found.objective * 1e3,
        bound_ms=None if found.bound is None else found.bound * 1e3,
        gap=found.gap,
        shards_per_rank=found.shards_per_rank,
        seconds=found.wall_s,
        cpu_seconds=found.cpu_s,
        torchrec_rating_ms=their_rating_ms,
        torchrec_seconds=their_seconds,
        ratio=None if found.objective is None else their_rating_ms / (found.objective * 1e3),
    )


def mean_ratio(results: Sequence[Result]) -> float | None:
    """Geometric mean of the ratios; None where a case has no plan."""
    ratios = [result.ratio for result in results if result.ratio is not None]
    return geometric_mean(ratios) if ratios and len(ratios) == len(results) else None


def allowed_ratio(results: Sequence[Result]) -> float | None:
    """The same over the bounds, which no plan exceeds; None where a case has none."""
    allowed = [result.torchrec_rating_ms / result.bound_ms for result in results if result.bound_ms is not None]
    return geometric_mean(allowed) if allowed and len(allowed) == len(results) else None


def worst(results: Sequence[Result]) -> list[Result]:
    """The result with the widest gap of each case; one without a plan comes before all others."""
    by_case: dict[str, list[Result]] = {}
    for result in results:
        by_case.setdefault(result.case, []).append(result)
    return [max(own, key=lambda result: float("inf") if result.gap is None else result.gap) for own in by_case.values()]


def missed(results: Sequence[Result]) -> list[str]:
    """The targets that are not kept."""
    found = []
    for result in results:
        where = f"{result.case}, seed {result.seed}"
        if result.gap is None or result.ratio is None:
            found.append(f"{where}: {result.status}")
            continue
        most = GAP if result.shards_per_rank >= MANY_SHARDS else GAP_OF_FEW
        if result.gap > most:
            found.append(f"{where}: gap {result.gap:.2%}, not {most:.1%}")
        if result.ratio <= 1:
            found.append(f"{where}: not better than TorchRec")
        if result.seconds > SECONDS:
            found.append(f"{where}: {result.seconds:.1f} s, not {SECONDS:g} s")
    mean, allowed = mean_ratio(results), allowed_ratio(results)
    if mean is not None and allowed is not None and mean < SHARE_OF_ALLOWED * allowed:
        found.append(f"geometric mean of the ratios {mean:.3f}, not {SHARE_OF_ALLOWED:.0%} of {allowed:.3f}")
    return found


def main() -> int:
    """Run the cases and print what came out."""
    parser = argparse.ArgumentParser(description="TorchRec's planner against ours under TorchRec's own objective.")
    parser.add_argument("folder", nargs="?", type=Path, default=SHIPPED_CASES, metavar="DIR")
    parser.add_argument("--time-limit", default="10s", metavar="TIME", help="of each search (default 10s)")
    parser.add_argument("--gap", default="0.02%", metavar="SHARE", help="stop this close to the bound")
    parser.add_argument("--seed", type=_seeds, default=(0,), metavar="N,…", help="one or more (default 0)")
    parser.add_argument("--plans", type=Path, metavar="OUT", help="write the plan documents here")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    given = parser.parse_args()
    search = Search(parse_quantity(given.time_limit, "second", "10s"), gap=parse_fraction(given.gap))
    results = []
    if not given.json:
        print(ROW.format(*HEADER))
    for result in run(given.folder, search, given.seed, given.plans):
        results.append(result)
        if not given.json:
            print(_line(result), flush=True)
    misses = missed(results)
    if given.json:
        lists = {"cases": results, "worst": worst(results)}
        plain = {key: [asdict(result) for result in of_key] for key, of_key in lists.items()}
        print(json.dumps({**plain, "geometric_mean_ratio": mean_ratio(results), "missed": misses}, indent=1))
    else:
        _print_summary(results, misses)
    return int(given.check and bool(misses))


def _print_summary(results: Sequence[Result], misses: Sequence[str]) -> None:
    if len({result.seed for result in results}) > 1:
        print("worst seed of each case:")
        print("\n".join(map(_line, worst(results))))
    mean, allowed = mean_ratio(results), allowed_ratio(results)
    if mean is not None and allowed is not None:
        print(
            f"geometric mean of TorchRec's rating over ours: {mean:.3f}, of at most {allowed:.3f} that the bounds allow"
        )
    for miss in misses:
        print(f"missed: {miss}")


def _line(result: Result) -> str:
    theirs = (format_seconds(result.torchrec_rating_ms / 1e3), f"{result.torchrec_seconds:.1f} s")
    ours, ratio = (result.status, "", "", ""), ""
    if result.rating_ms is not None and result.bound_ms is not None:
        seconds = (format_seconds(value / 1e3) for value in (result.rating_ms, result.bound_ms))
        ours, ratio = (*seconds, f"{result.gap:.2%}", f"{result.shards_per_rank:.1f}"), f"{result.ratio:.2f}"
    return ROW.format(result.case, result.seed, *ours, f"{result.seconds:.1f} s", *theirs, ratio)


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
