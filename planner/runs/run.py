"""What a run is: a cluster and a model, and stages of batches and nodes that are trained one after the other."""

from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from cost_models.workload import spellings
from planner.studies.study import Name, Source, Values
from topologies.document_kinds import expect_kind
from topologies.documents import Document, Record, read_yaml, validate
from topologies.errors import ConflictError, shown
from topologies.shelf import Shelf
from topologies.units import Seconds, Share

RUNS = Shelf("run", Path(__file__).parent / "catalog")
"""The runs that are shipped."""
Figure = Literal["seconds", "usd", "kwh", "kg_co2e"]
FIGURES: tuple[Figure, ...] = get_args(Figure)
Grown = Literal["global_batch", "samples", "nodes"]
GROWN: tuple[Grown, ...] = get_args(Grown)
MOST_STAGES = 1_000
"""Stages of a run at most, those of growth among them."""
Count = Annotated[int, Field(ge=1, le=10**15), BeforeValidator(spellings.whole_number)]
Factor = Annotated[float, Field(gt=1)]


class Growth(Record):
    """How a stage is followed by others like it, each so many times the one before."""

    global_batch: Factor | None = None
    """What the batch is multiplied by each time."""
    samples: Factor | None = None
    """What the samples of a stage are multiplied by."""
    nodes: Factor | None = None
    """What the number of nodes is multiplied by."""
    stages: Annotated[int, Field(ge=2, le=MOST_STAGES, strict=True)] | None = None
    """How many stages there are, the first one included; instead of `until`."""
    until: Annotated[dict[Grown, Count], Field(min_length=1, max_length=1)] | None = None
    """The last stage is the first that reaches this, and has exactly this: `{global_batch: 262144}`."""
    rereads: bool = False
    """Whether a stage reads the samples of those before it again, as where samples are accumulated (DANCE,
    arXiv:1810.11507)."""

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if not self.factors:
            raise ValueError("nothing grows; give a factor for global_batch, samples or nodes, as in {global_batch: 2}")
        if (self.stages is None) == (self.until is None):
            raise ConflictError("say where it ends: give one of stages and until", "stages", "until")
        for name in self.until or ():
            if name not in self.factors:
                message = f"until names {name}, which does not grow; name one of {', '.join(self.factors)}"
                raise ConflictError(message, "until")
        if self.rereads and self.samples is None:
            raise ConflictError("stages read samples again where samples grow; give a factor for samples", "rereads")
        return self

    @property
    def factors(self) -> dict[Grown, float]:
        """Those that are given."""
        return {name: factor for name in GROWN if (factor := getattr(self, name)) is not None}


class LineSearch(Record):
    """Passes that try the length of a step (stochastic line search, arXiv:1905.09997)."""

    forward_passes: Annotated[float, Field(gt=0, le=1_000)]
    """Forward passes beyond the step's own, of each step in the mean."""


class Lbfgs(Record):
    """L-BFGS over the parameters of the dense part; tables keep their own optimizer."""

    pairs: Annotated[int, Field(ge=1, le=1_000, strict=True)]
    """Pairs of differences that are kept, in fp32 on every rank."""
    overlap: Annotated[Share, Field(lt=1)] = 0.0
    """Share of a batch that the next one has, too, so that gradients of the same samples are compared (multi-batch
    L-BFGS, arXiv:1605.06049). A step then reads as many new samples fewer."""


class Stage(Record):
    """A part of the run with one batch and one cluster."""

    name: Name | None = None
    """Unset: stage 1, stage 2, …"""
    global_batch: Count | None = None
    """Samples of a step. Unset: the workload's."""
    samples: Count | None = None
    """Samples that the stage trains on; the last step of a batch may be short of some and counts as one. Or `steps`."""
    steps: Count | None = None
    """Steps, instead of `samples`."""
    nodes: Count | Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    """Nodes that it runs on. A list: whichever of these is best for the run. Unset: the topology's."""
    line_search: LineSearch | None = None
    """How the length of each step is searched for; unset: it is not."""
    lbfgs: Lbfgs | None = None
    """L-BFGS as the optimizer of the dense part; unset: as the workload says."""
    hessian_products: Annotated[float, Field(ge=0, le=10_000)] = 0.0
    """Products of the dense part's Hessian and a vector in each step in the mean, over the samples of its batch."""
    grow: Growth | None = None
    """Stages that follow this one, each a factor larger."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.samples is None) == (self.steps is None):
            raise ConflictError("give exactly one of samples and steps", "samples", "steps")
        for name in () if self.grow is None else self.grow.factors:
            if name == "samples" and self.samples is None:
                raise ConflictError("samples grow from those of the first stage; give samples, not steps", "grow")
            if name != "samples" and not isinstance(getattr(self, name), int):
                raise ConflictError(f"{name} grows from that of the first stage; give it here as a number", "grow")
        for name, last in (self.grow.until or {} if self.grow is not None else {}).items():
            if last <= (first := getattr(self, name)):
                raise ConflictError(f"ends at {name} {last:,}, which is not above the first stage's {first:,}", "grow")
        if isinstance(self.nodes, tuple) and len(set(self.nodes)) < len(self.nodes):
            raise ConflictError("a number of nodes stands twice; name each once", "nodes")
        return self

    @property
    def node_choices(self) -> tuple[int, ...] | None:
        """The numbers of nodes that it may run on; None: the topology's own."""
        return (self.nodes,) if isinstance(self.nodes, int) else self.nodes


class Evaluation(Record):
    """Passes over samples that nothing is learned from, now and then."""

    every: Count
    """Training samples from one to the next."""
    seconds: Seconds | None = None
    """What one takes; or `samples`."""
    samples: Count | None = None
    """Samples of one: forward passes in the stage's batches."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.seconds is None) == (self.samples is None):
            raise ConflictError("give exactly one of seconds and samples", "seconds", "samples")
        return self


class Limits(Record):
    """What the whole run may take at most."""

    seconds: Seconds | None = None
    """Time, as in 12h."""
    usd: Annotated[float, Field(gt=0)] | None = None
    """Price in USD."""
    kwh: Annotated[float, Field(gt=0)] | None = None
    """Energy in kWh."""
    kg_co2e: Annotated[float, Field(gt=0)] | None = None
    """Greenhouse gases in kg of CO2 equivalent."""

    @property
    def stated(self) -> dict[Figure, float]:
        """Those that are given."""
        return {name: limit for name in FIGURES if (limit := getattr(self, name)) is not None}


class RunSearch(Record):
    """How long each plan is searched for; never by the clock, so that results repeat."""

    effort: Annotated[int, Field(ge=0, strict=True)] = 1
    """Passes of local search, as of `planner plan`."""
    gap: Share = 0.01
    """Stop this close to the bound."""
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    """Same inputs and seed, same plans."""


class Run(Record):
    """A training run."""

    kind: Literal["run"] = "run"
    """Says what the file is."""
    schema_version: Literal[1] = 1
    """The version of this format."""
    name: Name
    """What results call the run."""
    description: str = ""
    """What it is and where its numbers come from."""
    topology: Source
    """The cluster; stages may take more or fewer of its nodes."""
    workload: Source
    """The model; stages may take other batches."""
    policy: Source | None = None
    """A policy file."""
    prices: Source | None = None
    """A price sheet. Unset: what the topology says."""
    group: str | None = None
    """The node group whose nodes the stages number, where there are several."""
    plan: Source | None = None
    """A plan document that all stages run under; unset: plans are made."""
    plans: Literal["best", "one", "each"] = "best"
    """Which plans stages run under: one for all stages on as many nodes, one for each batch, or whichever of all those
    is best at each stage, with what migrations take."""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1, max_length=MOST_STAGES)]
    """One after the other."""
    evaluation: Evaluation | None = None
    """Passes over samples that nothing is learned from; unset: none."""
    restart: Seconds = 0.0
    """What passes at each change of plan or nodes beside the time of the moved bytes."""
    objective: Figure = "seconds"
    """What is least, where there is a choice of nodes or plans."""
    limits: Limits = Limits()
    """What the whole run may take at most."""
    search: RunSearch = RunSearch()
    """How long each plan is searched for."""
    axes: dict[str, Values] = Field(default_factory=dict)
    """What varies from run to run, by dotted path, as in a study: `stages.0.nodes`, `stages.*.global_batch`,
    `topology.nodes.0.links.scale_out.bandwidth`, `prices`, … Each is combined with all others."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [stage.name for stage in self.stages if stage.name is not None]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConflictError(f"stage names must differ; these stand twice: {', '.join(map(shown, twice))}", "stages")
        if self.plan is not None and self.plans != "best":
            raise ConflictError("all stages run under the plan that is given; leave one of both out", "plans", "plan")
        if self.plan is not None and "search" in self.model_fields_set:
            raise ConflictError("no plan is searched for where one is given; leave one of both out", "search", "plan")
        return self


def read_run(source: str | Path) -> tuple[Run, Document]:
    """A run by path or catalog name, and where each of its keys stood. Raises InputError with every fault."""
    document = read_yaml(RUNS.find(source))
    expect_kind(document, "run")
    return validate(document, Run), document
