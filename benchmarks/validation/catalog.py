"""Estimate and simulation of a quick plan for every workload of the catalog on every topology that it fits."""

import functools
import hashlib
import itertools
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.resources import PCIE
from cost_models.shards import DATA_PARALLEL, PlacedShards
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.simulation import simulate
from cost_models.workload.loading import WORKLOADS, load_workload
from planner.diagnosis.drift import DRIFTED, stage_drift
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_inputs
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.planning import planning as api
from planner.planning.pipeline import Pipeline, Searched
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from planner.verification.simulation import simulate_plan, with_simulation
from topologies.loading import TOPOLOGIES, load_topology

LIMITS = SearchLimits(gap=0.2, effort=0)
"""Of a quick plan: the first one that is less than a fifth above its bound."""
ROOT = Path(__file__).parents[2]
"""Of the checkout."""
HOT, DRAWN = 0.01, 8
"""Share of the estimate above which what hot rows take is compared with the mean of so many drawn batches, not one."""
PROGRESS = 50
"""Pairs between two lines on stderr."""


@dataclass(frozen=True)
class Cause:
    """Why a played step differs much from the estimate."""

    stage: str
    """What the played step waits for, beside the estimate's stages."""
    alike: float
    """The difference that is left where what each PCIe switch is asked for is dealt evenly to its ranks."""
    planned: float
    """The difference of the plan that `planner plan --effort 0` makes, which is searched to its end."""


@dataclass(frozen=True)
class Comparison:
    """One plan, estimated and played."""

    topology: str
    workload: str
    estimate_s: float
    simulated_s: float
    drawn_s: float
    """Simulated with rows that the simulator draws and counts itself; the mean of several batches where hot rows take
    much."""
    hot_rows_s: float
    """What the plan says that hot rows take beyond the estimate."""
    cause: Cause | None
    """Where estimate and simulation differ by more than 10 %, why."""

    @property
    def difference(self) -> float:
        """The difference of the simulation from the estimate, relative to the estimate."""
        return self.simulated_s / self.estimate_s - 1

    @property
    def drawn_difference(self) -> float:
        """The same of the simulation with rows of its own, from the estimate and what hot rows take beyond it."""
        return self.drawn_s / (self.estimate_s + self.hot_rows_s) - 1


@dataclass(frozen=True)
class KeptPairs:
    """A file that has a line for each pair that was compared, so that what ended early goes on where it was."""

    path: Path

    def read(self) -> dict[tuple[str, str], Comparison | None]:
        """Those that it has; none where there is no such file. None stands for a pair that does not fit.

        Raises ValueError where some are of other sources than today's.
        """
        found = dict[tuple[str, str], Comparison | None]()
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            each = json.loads(line)
            if each["sources"] != sources_digest():
                raise ValueError(f"{self.path} has pairs of other sources or coefficients; name another file")
            found[each["topology"], each["workload"]] = _comparison(each["comparison"])
        return found

    def add(self, pair: tuple[str, str], found: Comparison | None) -> None:
        """One more."""
        comparison = None if found is None else asdict(found)
        line = {"sources": sources_digest(), "topology": pair[0], "workload": pair[1], "comparison": comparison}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _comparison(fields: dict[str, Any] | None) -> Comparison | None:
    """What `asdict` made of one."""
    if fields is None:
        return None
    cause = fields.pop("cause")
    return Comparison(**fields, cause=None if cause is None else Cause(**cause))


@functools.cache
def sources_digest() -> str:
    """A digest of the code and the coefficients that plans and simulations rest on."""
    digest = hashlib.sha256()
    for package in ("cost_models", "planner", "topologies"):
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def compare(topology: str, workload: str) -> Comparison | None:
    """None where the workload does not fit."""
    model, policy = cost_model("physical", load_topology(topology), load_workload(workload)), Policy()
    formulation = Formulation.of(model, policy)
    outcome = solve(formulation.problem, LIMITS)
    if outcome.placement is None:
        return None
    plan = with_simulation(Pipeline(policy, LIMITS).assembled(Searched(formulation, outcome)))
    assert plan.objective is not None
    assert plan.simulated is not None
    estimate, played = plan.objective.step_s, plan.simulated.step_s
    hot_rows_s = plan.objective.hot_rows_s or 0.0
    seeds = range(DRAWN if hot_rows_s > HOT * estimate else 1)
    drawn_s = [simulate_plan(plan, conditions=Conditions(draws_rows=True, seed=seed)).step_s for seed in seeds]
    notable = abs(played / estimate - 1) > DRIFTED
    cause = _cause(model, plan) if notable else None
    return Comparison(topology, workload, estimate, played, sum(drawn_s) / len(drawn_s), hot_rows_s, cause)


def _cause(model: CostModel, plan: Plan) -> Cause:
    """What makes the difference: looked for stage by stage, within switches, and in a plan that is searched further."""
    alike = alike_within_switches(model, placed_shards(plan))
    estimate_s, played_s = model.evaluate(alike).step_s, simulate(*planned_inputs(plan), alike).step_s
    searched = api.plan(model.topology, model.workload, effort=0)
    assert searched.objective is not None
    assert searched.simulated is not None
    planned = searched.simulated.step_s / searched.objective.step_s - 1
    return Cause(_stage(plan), played_s / estimate_s - 1, planned)


def alike_within_switches(model: CostModel, placed: PlacedShards) -> PlacedShards:
    """Every shard cut by rows into as many equal parts as ranks share its rank's PCIe switch, one for each of these.

    Switches, memories and cards are asked for as much as before, but for ids and vectors, which every part has; ranks
    of a switch that were loaded unlike are alike. Copies that all ranks have stay.
    """
    switch = model.resource_of_rank(PCIE)
    members = [np.flatnonzero(switch == number) for number in range(int(switch.max()) + 1)]
    whole = placed.blocks.sharding == DATA_PARALLEL
    ranks = [np.array([r]) if stays else members[switch[r]] for r, stays in zip(placed.rank, whole, strict=True)]
    parts = np.array([len(each) for each in ranks])
    of = np.repeat(np.arange(len(parts)), parts)
    place = np.arange(len(of)) - np.repeat(np.cumsum(parts) - parts, parts)
    rows = (place + 1) * placed.rows[of] // parts[of] - place * placed.rows[of] // parts[of]
    return PlacedShards(placed.blocks.take(of), np.concatenate(ranks), rows, placed.opens_block[of] & (place == 0))


def _stage(plan: Plan) -> str:
    """The stage whose time differs most."""
    most = stage_drift(plan)
    was, now = most.estimated_s * 1e3, most.played_s * 1e3
    return f"{most.stage}: {was:.2f} ms estimated, {now:.2f} ms on the played critical path"


def comparisons(
    topologies: tuple[str, ...] = (),
    workloads: tuple[str, ...] = (),
    jobs: int | None = None,
    kept: KeptPairs | None = None,
) -> list[Comparison]:
    """Every pair that fits; of the catalog, unless some are named. In `jobs` processes, one for each core if None.

    Pairs that `kept` has are not compared again; the others are added to it, each as soon as it is compared.
    """
    pairs = list(itertools.product(topologies or TOPOLOGIES.names(), workloads or WORKLOADS.names()))
    found = {} if kept is None else kept.read()
    missing = [pair for pair in pairs if pair not in found]
    with ProcessPoolExecutor(jobs) as pool:
        compared = pool.map(compare, *zip(*missing, strict=True)) if missing else iter(())
        for number, (pair, each) in enumerate(zip(missing, compared, strict=True), start=1):
            found[pair] = each
            if kept is not None:
                kept.add(pair, each)
            if number % PROGRESS == 0:
                print(f"{number} of {len(missing)} pairs", file=sys.stderr)
    return [each for pair in pairs if (each := found[pair]) is not None]
