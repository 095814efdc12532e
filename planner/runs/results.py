"""The document of a run: what each stage takes, and the run as a whole. Stable JSON."""

import json
from pathlib import Path
from typing import Any, Literal

from planner.document.files import faults_located, read_json, write_file
from planner.document.versions import Upgrade, upgraded
from planner.runs.run import Figure
from topologies.documents import Document, Record, validate

UPGRADES: tuple[Upgrade, ...] = ()
"""What leads from each version of these documents to the next: there is one so far."""


class RunFigures(Record):
    """What something takes; null where a price, a power or a region's carbon is unknown."""

    seconds: float
    usd: float | None
    kwh: float | None
    """Of the nodes."""
    kg_co2e: float | None

    def named(self, name: Figure) -> float | None:
        """One of them."""
        value: float | None = getattr(self, name)
        return value


class Migration(Record):
    """What changes before a stage."""

    moved_bytes: int
    """Weights and optimizer state that come to ranks that did not hold them."""
    copied_bytes: int
    """Those that a rank takes from another memory of its host."""
    new_bytes: int
    """Those that no rank held."""
    seconds: float
    """Of the moved bytes, and of the restart that the run states."""


class StageCosts(Record):
    """One stage of the run."""

    name: str
    global_batch: int
    nodes: int
    ranks: int
    samples: int
    """Trained on, those that it reads again included."""
    steps: int
    plan: int
    """The number of its plan, from 1."""
    step_s: float
    """A training step under the plan."""
    low_s: float | None
    """Where a training step would be measured, from here to `high_s`; null where that is unknown."""
    high_s: float | None
    lower_bound_s: float | None
    """No plan has a shorter training step; null where none was proven."""
    passes_s: dict[str, float]
    """What each step takes beyond: line_search, lbfgs, hessian_products."""
    steps_s: float
    """All steps, with all passes."""
    evaluations: int
    evaluations_s: float
    migration: Migration | None
    """What changes before it; null where nothing does."""
    takes: RunFigures


class PlanOfRun(Record):
    """A plan that stages run under."""

    number: int
    nodes: int
    global_batch: int
    """The batch that it was made for."""
    step_s: float | None
    """Its step with that batch."""
    gap: float | None
    fingerprint: str
    """Hash over where it holds its tables."""


class Alternative(Record):
    """The same run in another way."""

    label: str
    nodes: tuple[int, ...]
    """Of each stage; empty where there is no such way."""
    plans: int
    """How many plans it uses."""
    takes: RunFigures | None
    """Null where there is no such way."""
    reason: str = ""
    """Why it is none, or why it is no choice."""


class NodeChoice(Record):
    """A stage on one of the numbers of nodes that it may run on, under its own plan."""

    stage: str
    global_batch: int
    nodes: int
    step_s: float | None
    """With all passes; null where there is no plan."""
    takes: RunFigures | None
    """Its steps and evaluations; without what changes before it."""
    reason: str = ""


class RunResult(Record):
    """What a run takes, or why there is no way to run it."""

    kind: Literal["run_result"] = "run_result"
    schema_version: Literal[1] = 1
    name: str
    description: str = ""
    status: Literal["planned", "infeasible"]
    reason: str = ""
    """Why there is no way to run it."""
    objective: Figure
    takes: RunFigures | None
    steps: int
    samples: int
    """Different ones that are trained on."""
    samples_read: int
    """Of all batches together."""
    steps_s: float | None
    evaluations_s: float | None
    migrations_s: float | None
    moved_bytes: int | None
    low_s: float | None
    """The seconds of the run where each step takes the low end of its band, and its passes as much less."""
    high_s: float | None
    lower_bound_s: float | None
    """No plans make this schedule of batches and nodes shorter; null where a stage has no bound."""
    stages: tuple[StageCosts, ...]
    plans: tuple[PlanOfRun, ...]
    alternatives: tuple[Alternative, ...]
    choices: tuple[NodeChoice, ...]
    """Empty where no stage has a choice of nodes."""
    prices: dict[str, str | None] | None
    findings: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """As it is written."""
        return _json(self)


class RunPoint(Record):
    """One of several runs that differ in some fields."""

    at: dict[str, str | int | float | None]
    """Values of the axes, by column."""
    result: RunResult | None
    """Null where there is no such run."""
    reason: str = ""


class RunGrid(Record):
    """Runs that differ in the fields that their file's axes name."""

    kind: Literal["run_grid"] = "run_grid"
    schema_version: Literal[1] = 1
    name: str
    description: str = ""
    objective: Figure
    points: tuple[RunPoint, ...]

    def to_json(self) -> str:
        """As it is written."""
        return _json(self)

    @property
    def best(self) -> "RunPoint | None":
        """The point with the least objective, the first of equal ones."""
        known = [point for point in self.points if point.result is not None and point.result.takes is not None]
        return min(known, key=self._objective, default=None)

    def _objective(self, point: RunPoint) -> float:
        assert point.result is not None
        assert point.result.takes is not None
        return point.result.takes.named(self.objective) or 0.0


def _json(record: Record) -> str:
    return json.dumps(record.model_dump(mode="json"), indent=1) + "\n"


def write_result(result: RunResult | RunGrid, path: str | Path) -> None:
    """Write the document. Raises InputError where the place cannot be written."""
    write_file(path, result.to_json().encode())


def is_result(data: dict[str, Any]) -> bool:
    """Whether a mapping says that it is the document of a run, or of several."""
    return data.get("kind") in ("run_result", "run_grid")


def read_result(path: str | Path) -> RunResult | RunGrid:
    """The document of a file. Raises InputError for anything else."""
    data: dict[str, Any] = read_json(path)
    with faults_located(path):
        data = upgraded(data, UPGRADES, str(path)) if data.get("kind") in ("run_grid", "run_result") else data
        document = Document(data, str(path))
        return validate(document, RunGrid) if data.get("kind") == "run_grid" else validate(document, RunResult)
