"""What a robust plan is asked for: a quantile of the step over scenarios, and how much these vary."""

import re
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from cost_models.scenarios import Variance
from topologies.documents import Record
from topologies.errors import shown
from topologies.flops import LATER
from topologies.units import Share

ASSUMED = Variance(pooling_drift=0.1, skew_drift=0.1, slow_rank=1.1)
"""What is taken where nothing is stated. Assumed: no source that we know says what drift and slow ranks usually are."""


def _percent(value: object) -> float:
    """`p95` as 95.0, which it may be already."""
    match = re.fullmatch(r"p(\d{2}(?:\.\d{1,3})?)", value) if isinstance(value, str) else None
    percent = float(match[1]) if match else value
    if not isinstance(percent, float) or not 50 <= percent < 100:
        raise ValueError(f"{shown(value)} is no quantile from p50 to below p100; write for example p95")
    return percent


Quantile = Annotated[
    float,
    BeforeValidator(_percent),
    PlainSerializer(lambda percent: f"p{percent:g}", return_type=str),
    WithJsonSchema({"type": "string", "examples": ["p95"]}),
]


class RobustAim(Record):
    """A quantile of the step over scenarios that is to be small, instead of the step at the profiles' means. Scenarios
    are drawn as `cost_models.scenarios` says, beside what profiles state themselves (pooling_std)."""

    quantile: Quantile
    """p95: the least time that 95 % of the scenarios do not exceed."""
    scenarios: Annotated[int, Field(ge=20, le=10_000)] = 100
    """Scenarios that plans are compared by."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the scenarios that plans are compared by; those that are held back have the next one."""
    simulated: Annotated[int | None, Field(ge=0, le=10_000), LATER] = None
    """Scenarios, of those held back, that the simulator plays. Unset: all; 0: none."""
    pooling_drift: Annotated[Share | None, LATER] = None
    """Standard deviation of a table's mean number of ids from one scenario to the next, over that mean. Unset: 10 % is
    assumed."""
    skew_drift: Annotated[Share | None, LATER] = None
    """The same of the exponent of its access curve. Unset: 10 % is assumed."""
    slow_rank: Annotated[float | None, Field(ge=1, le=100), LATER] = None
    """In every scenario the device of one rank, any of them, takes so many times as long. Unset: 1.1 is assumed."""

    @model_validator(mode="after")
    def _enough_scenarios(self) -> Self:
        if self.scenarios * (100 - self.quantile) < 100 - 1e-6:
            least = -(-100 // (100 - self.quantile))
            message = f"p{self.quantile:g} of {self.scenarios} scenarios is their maximum; take {least:g} or more"
            raise ValueError(message)
        return self

    @property
    def played(self) -> int:
        """Scenarios that the simulator plays."""
        return self.scenarios if self.simulated is None else min(self.simulated, self.scenarios)

    @property
    def variance(self) -> Variance:
        """How much scenarios vary, with what is assumed."""
        stated = {name: getattr(self, name) for name in ("pooling_drift", "skew_drift", "slow_rank")}
        return Variance(**{name: getattr(ASSUMED, name) if value is None else value for name, value in stated.items()})

    @property
    def assumed(self) -> tuple[str, ...]:
        """The keys of what is assumed."""
        return tuple(name for name in ("pooling_drift", "skew_drift", "slow_rank") if getattr(self, name) is None)


def as_aim(value: object) -> object:
    """A quantile alone stands for a record with it."""
    return {"quantile": value} if isinstance(value, str) else value
