"""What a number is worth: its unit, its source, its error, and where that is known."""

from typing import Annotated, Literal

from pydantic import Field

from cost_models.workload.optimizers import Optimizer
from topologies.documents import Record
from topologies.flops import Flops

NEWER = Field(exclude_if=lambda value: not value)
"""A coefficient that plans already written do not know: files without it keep their fingerprint."""

Kind = Literal["spec", "measured", "fitted", "assumed"]


Quantity = Literal[
    "row_bytes",
    "scale_up_domains",
    "buffer_bytes",
    "ranks",
    "samples_per_rank",
    "lookups_per_sample",
    "macs_per_sample",
]
"""What a validity range may be stated of."""


class ValidRange(Record):
    """From the smallest to the largest value of a quantity among the measurements."""

    quantity: Quantity
    low: float
    high: float


class Evidence(Record):
    """What a number is worth: its unit, where it comes from, how far off it is and where that is known."""

    unit: str
    kind: Kind
    source: str
    residual_90: float | None = None
    """Relative error of the time it governs that nine in ten measurements stay within, those of hardware or sizes that
    the fit has not seen; unset: not known, and taken by the kind (see `error_bars`)."""
    fitted_on: tuple[str, ...] = ()
    """Devices that the data are of; unset: the file's own."""
    elsewhere_90: float | None = None
    """The same error on devices that are not in `fitted_on`."""
    valid: tuple[ValidRange, ...] = ()


class Coefficient(Evidence):
    """One number."""

    value: float


class CoefficientCurve(Evidence):
    """A number that depends on one count, by points (count, value); linear between them in log2(count)."""

    points: tuple[tuple[float, float], ...]


class OptimizerCoefficient(Evidence):
    """A number for each optimizer."""

    by_optimizer: dict[Optimizer, float]


class DtypeCoefficient(Evidence):
    """A number for each data type."""

    by_dtype: dict[str, float]


class MeasuredSystem(Record):
    """A combination of hardware and scale on which whole steps were measured."""

    device: str
    link: str
    """Kind of link inside a node."""
    network: str | None
    """Kind of link between nodes; None where one scale-up domain holds all."""
    nodes: int
    ranks: int


class MeasuredRates(Record):
    """Rates of an accelerator on which whole steps were measured, and of its links; one direction."""

    device: str
    hbm_bytes_per_s: float
    flops: Flops
    link: str
    """Kind of link inside a node."""
    link_bytes_per_s: float
    network: str | None = None
    """Kind of link between nodes; None where one scale-up domain held all."""
    network_bytes_per_s: float | None = None
    """For each accelerator, of all cards that serve it, or its share of the one that does."""


class LeftOut(Record):
    """How far steps were off on systems that the fit had not seen, each left out in turn."""

    part: Literal["combination", "device", "link", "network", "ranks"]
    """What the systems of a group share, and no other one has."""
    groups: int
    error_90: float
    """Relative error that nine in ten stay within on a new one (`benchmarks.accuracy.new_systems`)."""


class StepEvidence(Record):
    """Whole training steps that a software profile was held against."""

    residual_90: float
    """Relative error that nine in ten stay within when they are left out of the fit."""
    kind: Kind
    source: str
    rows: int
    devices: tuple[str, ...]
    links: tuple[str, ...]
    """Kinds of link inside a node."""
    networks: tuple[str, ...]
    """Kinds of link between nodes."""
    valid: tuple[ValidRange, ...]
    systems: Annotated[tuple[MeasuredSystem, ...], NEWER] = ()
    """The combinations that were measured; unset: any of these parts."""
    left_out: Annotated[tuple[LeftOut, ...], NEWER] = ()
    rates: Annotated[tuple[MeasuredRates, ...], NEWER] = ()
    """How fast the devices, links and networks were that were measured; unset: any of their kinds."""
