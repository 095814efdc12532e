"""Neo's models on 128 A100, each beside what was published: `python -m benchmarks.neo [--json] [--docs]`.

Throughput: Neo (Mudigere et al., arXiv:2104.05158). Composition: MAD-Max (Hsia et al., arXiv:2310.02784), its measured
figures for Model-A and those that its published program gives for both. What is ours is a plan of the default effort,
estimated and simulated; the composition is the simulated one, of the busiest kind of work on a mean rank. Neo's own
plans were not published, so `by_shardings` has those of what it may have had beside ours.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.accuracy import mad_max
from cost_models.simulator.simulation import Simulation, covered, simulate
from cost_models.step import StepModel
from cost_models.workload.loading import load_workload
from planner import plan
from planner.formulation.policy import Policy
from planner.verification.simulation import simulate_plan
from topologies.loading import load_topology

CLUSTER = "zionex-16"
DOCS = Path(__file__).parents[1] / "docs" / "reference" / "published-figures.md"
BEGIN, END = "<!-- benchmarks.neo -->\n", "<!-- end -->\n"
DEALT = "whole tables, dealt in turn"
SHARDINGS: dict[str, Policy] = {
    "whole tables, planned": Policy(shardings=("table_wise",)),
    "Neo's four, planned": Policy(shardings=("table_wise", "row_wise", "column_wise", "data_parallel")),
    "all, planned": Policy(),
}
"""Shardings that plans are made of. Those that the abstract of Neo's paper names cut no rows within a node."""


@dataclass(frozen=True)
class Published:
    """What a paper gives of a model; milliseconds by what they go to, share of communication in percent."""

    samples_per_s: float
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    exposed_of_comm: float | None = None


PARTS: dict[str, tuple[str, ...]] = {
    "matrix products": ("dense forward", "dense backward"),
    "embeddings": ("lookup", "update"),
    "all-to-all": ("all-to-all", "reduce-scatter", "all-gather"),
    "all-reduce": ("all-reduce",),
}
"""Kinds of task of the simulator by the names that papers use."""
MODEL_A = Published(
    1.2e6,
    {"matrix products": 8.91, "embeddings": 9.1, "all-to-all": 26.4, "all-reduce": 21.27},
    82.37,
)
PUBLISHED = {
    "model-a": MODEL_A,
    "model-a-fitted": MODEL_A,
    "model-i": Published(3.4e6, {"matrix products": 3.35, "embeddings": 20.78, "all-to-all": 60.29, "all-reduce": 2.0}),
    "model-f": Published(1.7e6),
}


@dataclass(frozen=True)
class Row:
    """One model, planned."""

    model: str
    published_samples_per_s: float
    estimated_samples_per_s: float
    simulated_samples_per_s: float
    published_ms: dict[str, float]
    simulated_ms: dict[str, float]
    """Time in which a mean rank does so, whatever it does beside."""
    published_exposed_of_comm: float | None
    exposed_of_comm: float
    """Percent of the time of exchanges in which the rank does not compute."""
    exposed_of_step: float


@dataclass(frozen=True)
class ShardingRow:
    """One model with tables that are held in one way."""

    model: str
    held: str
    published_samples_per_s: float
    estimated_samples_per_s: float
    simulated_samples_per_s: float
    exposed_of_comm: float
    """Percent, as in `Row`."""


def composition(simulation: Simulation) -> dict[str, float]:
    """Milliseconds of a step by part, the mean over ranks."""
    steps = simulation.last - simulation.fill
    low, high = simulation.window

    def milliseconds(kinds: tuple[str, ...]) -> float:
        spans = np.clip(simulation.intervals([t for t in simulation.program.tasks if t.kind in kinds]), low, high)
        return float(covered(spans).mean() / steps * 1e3)

    return {part: milliseconds(kinds) for part, kinds in PARTS.items()}


def rows() -> Iterator[Row]:
    """All models."""
    cluster = load_topology(CLUSTER)
    for name, published in PUBLISHED.items():
        found = plan(cluster, load_workload(name))
        assert found.objective is not None
        played = simulate_plan(found)
        samples = load_workload(name).batch(cluster.world_size)
        yield Row(
            name,
            published.samples_per_s,
            samples / found.objective.step_s,
            played.samples_per_s,
            dict(published.milliseconds),
            composition(played),
            published.exposed_of_comm,
            100 * played.exposed_share_of_comm,
            100 * float(played.exposed_comm.mean()),
        )


def by_shardings(names: Sequence[str] = ("model-a-fitted", "model-i")) -> Iterator[ShardingRow]:
    """Models by how their tables are held: dealt in turn, as `model-a-fitted` was fitted, and in plans."""
    cluster = load_topology(CLUSTER)
    for name in names:
        workload, published = load_workload(name), PUBLISHED[name].samples_per_s
        samples, model = workload.batch(cluster.world_size), StepModel(cluster, workload)
        placed = mad_max.dealt(model)
        steps = {DEALT: (model.evaluate(placed).step_s, simulate(cluster, workload, placed))}
        for held, policy in SHARDINGS.items():
            found = plan(cluster, workload, policy=policy)
            assert found.objective is not None
            steps[held] = found.objective.step_s, simulate_plan(found)
        for held, (step_s, played) in steps.items():
            rates = published, samples / step_s, played.samples_per_s
            yield ShardingRow(name, held, *rates, 100 * played.exposed_share_of_comm)


def sharding_table(found: list[ShardingRow]) -> str:
    """Throughputs by how tables are held, with their differences from what was published."""
    lines = [
        "| model | tables | published | estimate | simulated | exposed, of communication |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        published = row.published_samples_per_s
        rates = (row.estimated_samples_per_s, row.simulated_samples_per_s)
        shown = " | ".join(f"{rate / 1e6:.2f} M/s ({rate / published - 1:+.1%})" for rate in rates)
        lines.append(
            f"| `{row.model}` | {row.held} | {published / 1e6:.2f} M/s | {shown} | {row.exposed_of_comm:.0f} % |"
        )
    return "\n".join(lines) + "\n"


def markdown(found: list[Row]) -> str:
    """Two tables: throughputs, and what steps are made of."""
    lines = [
        "| model | published | estimate | simulated | exposed, of communication (published) | exposed, of the step |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        rates = (row.published_samples_per_s, row.estimated_samples_per_s, row.simulated_samples_per_s)
        told = "–" if row.published_exposed_of_comm is None else f"{row.published_exposed_of_comm:.0f} %"
        shown = " | ".join(f"{rate / 1e6:.2f} M/s" for rate in rates)
        lines.append(
            f"| `{row.model}` | {shown} | {row.exposed_of_comm:.0f} % ({told}) | {row.exposed_of_step:.0f} % |"
        )
    lines += ["", f"| ms, ours (published) | {' | '.join(PARTS)} |", "|---|" + "---|" * len(PARTS)]
    for row in found:
        cells = (
            f"{row.simulated_ms[part]:.1f}" + (f" ({row.published_ms[part]:.1f})" if part in row.published_ms else "")
            for part in PARTS
        )
        lines.append(f"| `{row.model}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the tables, or write them into the docs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neo", description="Neo's models beside Neo's figures.")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--docs", action="store_true", help=f"write them into {DOCS.name}")
    wanted = parser.parse_args()
    found, held = list(rows()), list(by_shardings())
    text = markdown(found) + "\n" + sharding_table(held)
    if wanted.docs:
        before, _, rest = DOCS.read_text().partition(BEGIN)
        DOCS.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    plain = {"models": [asdict(each) for each in found], "by_shardings": [asdict(each) for each in held]}
    print(json.dumps(plain, indent=1) if wanted.json else text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
