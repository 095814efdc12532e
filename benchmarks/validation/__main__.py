"""`python -m benchmarks.validation [DIR] [--json] [--docs] [--quick | --topologies A,B] [--jobs N]`, from the root of
a checkout; `--pairs T/W,...` makes those rows of the page anew, `--kept FILE` goes on where an earlier run ended.

The simulator against the closed form on every workload x topology of the catalog that fits (half an hour); against
measured steps (DIR has the form of benchmarks/data/facts); its ranking of random plans and of the solver's neighbours;
and its speed. Exits with 1 where a figure misses its target. `--quick` takes a part of the catalog and fewer plans.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from benchmarks.accuracy.__main__ import FACTS
from benchmarks.validation import catalog, measured, ranking
from benchmarks.validation.section import against_the_estimate, table, with_pairs
from planner.document.planned import placed_shards, planned_inputs
from planner.planning import planning as api

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "validation.md"
TAU, STANDS = 0.9, 1.02
ERRORS = {"MLPerf DLRM-DCNv2": (0.05, 0.15), "MAD-Max Model-I": (0.05, 0.05)}
"""Targets of the median (held out where it can be) and of the worst relative error."""
QUICK = (("dgx-h100", "zionex"), ("dlrm-dcnv2", "criteo-kaggle", "fbgemm-013"))


@dataclass(frozen=True)
class Speed:
    """Of one step."""

    ranks: int
    tables: int
    cpu_s: float


@dataclass(frozen=True)
class Findings:
    """All of it."""

    comparisons: list[catalog.Comparison]
    rows: pd.DataFrame
    errors: list[measured.Summary]
    rankings: list[ranking.Ranking]
    stands: list[ranking.Stand]
    speeds: list[Speed]

    @property
    def tau(self) -> float:
        """Mean over the workloads: plans of different ones are never weighed against each other."""
        return sum(each.tau for each in self.rankings) / len(self.rankings)


def speed(topology: str, workload: str) -> Speed:
    """Process time of a step: of three more, less of one."""
    from cost_models.simulator.simulation import simulate

    plan = api.plan(topology, workload, effort=0, simulate=False)
    inputs, placed = planned_inputs(plan), placed_shards(plan)
    took = []
    for steps in (1, 4):
        began = time.process_time()
        simulate(*inputs, placed, steps=steps)
        took.append(time.process_time() - began)
    return Speed(inputs[0].world_size, len(inputs[1].tables), (took[1] - took[0]) / 3)


def findings(
    folder: Path,
    *,
    quick: bool,
    topologies: tuple[str, ...] = (),
    jobs: int | None = None,
    kept: catalog.KeptPairs | None = None,
) -> Findings:
    rows = measured.rows_of(folder)
    workloads = ranking.WORKLOADS[1:4] if quick else ranking.WORKLOADS
    return Findings(
        comparisons=catalog.comparisons(*(QUICK if quick else (topologies, ())), jobs, kept),
        rows=rows,
        errors=measured.summaries(rows),
        rankings=[ranking.ranking(*names, plans=12 if quick else ranking.PLANS) for names in workloads],
        stands=[ranking.stand(*names, neighbours=20 if quick else ranking.NEIGHBOURS) for names in workloads],
        speeds=[] if quick else [speed("zionex-16", "synthetic:1000")],
    )


def missed(found: Findings) -> Iterator[str]:
    """The targets that are not met."""
    for error in found.errors:
        median, worst = ERRORS.get(error.name, (1.0, 1.0))
        own = (error.median, error.worst) if error.held_out_median is None else None
        reached = own or (error.held_out_median, error.held_out_worst)
        if (reached[0] or 0.0) > median or (reached[1] or 0.0) > worst:
            yield f"{error.name}: median {reached[0]:.1%}, worst {reached[1]:.1%}"
    if found.tau < TAU:
        yield f"Kendall's tau {found.tau:.2f}, not {TAU}"
    for plan in found.stands:
        if plan.ratio > STANDS:
            yield f"{plan.workload} on {plan.topology}: {plan.ratio - 1:.1%} behind its best neighbour"


def page(found: Findings) -> str:
    """The page of the documentation."""
    return "\n".join(
        [
            INTRODUCTION,
            "## Against measured steps\n",
            table(
                ("data", "rows", "median", "worst", "held out: median", "worst"),
                [
                    (
                        each.name,
                        str(each.rows),
                        f"{each.median:.1%}",
                        f"{each.worst:.1%}",
                        "–" if each.held_out_median is None else f"{each.held_out_median:.1%}",
                        "–" if each.held_out_worst is None else f"{each.held_out_worst:.1%}",
                    )
                    for each in found.errors
                ],
            ),
            "## Ranking of plans\n",
            f"Kendall's tau between estimate and simulation of random plans that fit: {found.tau:.3f} on average. Where"
            " many nodes are loaded unevenly the step is shorter than estimated, by up to a third: ids of the next"
            " batch hide behind the longest update, and one sharding's exchange behind another's lookup. The last"
            " columns compare the solver's plan with random plans in which one or two shards are elsewhere.\n",
            table(
                ("topology", "workload", "random plans", "tau", "neighbours", "our step / the best neighbour's"),
                [
                    (a.topology, a.workload, str(a.plans), f"{a.tau:.3f}", str(b.neighbours), f"{b.ratio:.4f}")
                    for a, b in zip(found.rankings, found.stands, strict=True)
                ],
            ),
            against_the_estimate(found.comparisons),
        ]
    )


INTRODUCTION = """# Validation of the simulator

Written by `python -m benchmarks.validation --docs`. The simulator runs a step event by event; it shares data types and
coefficients with the estimate that plans rest on, and none of its formulas.
"""


def main() -> int:
    description = "The simulator against estimates and measurements."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validation", description=description)
    parser.add_argument("folder", nargs="?", type=Path, default=FACTS, metavar="DIR", help="published.json, measured/")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    parser.add_argument("--docs", action="store_true", help="write docs/reference/validation.md")
    parser.add_argument("--topologies", default="", metavar="A,B,...", help="these only, of the catalog")
    parser.add_argument(
        "--pairs", default="", metavar="T/W,...", help="make these rows of the page anew, and no others"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one for each core)")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="go on with the pairs that an earlier run left here")
    parser.add_argument("--quick", action="store_true", help="a part of the catalog, fewer plans")
    wanted = parser.parse_args()
    topologies = tuple(filter(None, wanted.topologies.split(",")))
    if wanted.pairs:
        PAGE.write_text(
            with_pairs(
                PAGE.read_text(), [(t, w) for t, _, w in (pair.partition("/") for pair in wanted.pairs.split(","))]
            )
        )
        return 0
    kept = None if wanted.kept is None else catalog.KeptPairs(wanted.kept)
    found = findings(wanted.folder, quick=wanted.quick, topologies=topologies, jobs=wanted.jobs, kept=kept)
    if wanted.docs:
        PAGE.write_text(page(found))
    if wanted.json:
        lists = ("comparisons", "errors", "rankings", "stands", "speeds")
        plain = {name: [asdict(each) for each in getattr(found, name)] for name in lists}
        rows = json.loads(found.rows.to_json(orient="records"))
        print(json.dumps({**plain, "rows": rows}, indent=2))
    else:
        print(page(found))
        for each in found.speeds:
            print(f"{each.tables:,} tables on {each.ranks:,} ranks: {each.cpu_s:.2f} s of one core a step")
    faults = list(missed(found))
    for fault in faults:
        print(f"missed: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
