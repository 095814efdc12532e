"""What a cluster costs and draws: from a price sheet, else from the topology itself; unknown is None, never 0."""

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from topologies.cluster import Name, NodeGroup, Topology
from topologies.documents import Record, did_you_mean, read_yaml, validate
from topologies.shelf import Shelf
from topologies.units import DollarsPerHour, Watts

PRICE_SHEETS = Shelf("price sheet", Path(__file__).with_name("price_sheets"))
"""The price sheets that are shipped: examples."""


class Rate(Record):
    """What one accelerator, or one node, costs and draws."""

    price: DollarsPerHour | None = None
    """Unset: unknown."""
    power: Watts | None = None
    """Unset: unknown."""
    source: str = ""
    """Where the figures are from, or what was assumed."""

    @model_validator(mode="after")
    def _something(self) -> "Rate":
        if self.price is None and self.power is None:
            raise ValueError("says neither price nor power; write for example {price: 2.5USD/h, power: 1.3kW}")
        return self


class PriceSheet(Record):
    """Prices and power of one day."""

    name: Name
    description: str = ""
    date: datetime.date
    """When these prices held."""
    currency: Literal["USD"] = "USD"
    source: str
    """Where the prices are from."""
    accelerators: dict[str, Rate] = Field(default_factory=dict)
    """Rates of one accelerator with its share of the node, by its device as topologies name it."""
    nodes: dict[str, Rate] = Field(default_factory=dict)
    """Rates of one whole node, by the name of its group. They come before those of accelerators."""

    @model_validator(mode="after")
    def _some(self) -> "PriceSheet":
        if not self.accelerators and not self.nodes:
            raise ValueError("holds no rates; write accelerators: {H100-SXM5-80GB: {price: 2.5USD/h}}")
        return self


@dataclass(frozen=True)
class Bill:
    """What a cluster costs and draws as a whole; None where a part of it is unknown."""

    usd_per_hour: float | None
    kilowatts: float | None

    def usd_per_billion_samples(self, samples_per_s: float | None) -> float | None:
        """Dollars for 10^9 samples at a throughput above 0."""
        if self.usd_per_hour is None or not samples_per_s:
            return None
        return self.usd_per_hour / 3600 / samples_per_s * 1e9

    def joules_per_sample(self, samples_per_s: float | None) -> float | None:
        """Energy at a throughput above 0, if the cluster draws this power all the time."""
        if self.kilowatts is None or not samples_per_s:
            return None
        return self.kilowatts * 1e3 / samples_per_s


def load_prices(source: str | Path) -> PriceSheet:
    """The price sheet of a file or a catalog name. Raises InputError with every fault of the file."""
    return validate(read_yaml(PRICE_SHEETS.find(source)), PriceSheet)


def bill(topology: Topology, sheet: PriceSheet | None = None) -> Bill:
    """What the cluster costs and draws.

    The sheet's nodes come first, then its accelerators, then the topology's own price and power; for price and power
    apart.
    """
    watts = _sum(topology, lambda group: _power(group, sheet))
    return Bill(_sum(topology, lambda group: _price(group, sheet)), None if watts is None else watts / 1e3)


def notes(topology: Topology, sheet: PriceSheet | None = None) -> list[str]:
    """A sentence for each node group whose price is unknown, with the nearest name of the sheet."""
    words = []
    for group in topology.nodes:
        if _price(group, sheet) is not None:
            continue
        device = group.accelerators.device
        if sheet is None:
            remedy = "give a price sheet"
        else:
            remedy = f"{sheet.name} does not name {device}{did_you_mean(device, list(sheet.accelerators))}"
        words.append(f"the price of {group.name!r} is unknown: {remedy}")
    return words


def _price(group: NodeGroup, sheet: PriceSheet | None) -> float | None:
    return next((rate.price * number for rate, number in _rates(group, sheet) if rate.price is not None), group.price)


def _power(group: NodeGroup, sheet: PriceSheet | None) -> float | None:
    return next((rate.power * number for rate, number in _rates(group, sheet) if rate.power is not None), group.power)


def _rates(group: NodeGroup, sheet: PriceSheet | None) -> Iterable[tuple[Rate, int]]:
    """The rates that the sheet has for a node of the group, and how many of each make a node."""
    if sheet is None:
        return
    if group.name in sheet.nodes:
        yield sheet.nodes[group.name], 1
    if group.accelerators.device in sheet.accelerators:
        yield sheet.accelerators[group.accelerators.device], group.accelerators.count


def _sum(topology: Topology, of_node: Callable[[NodeGroup], float | None]) -> float | None:
    total = 0.0
    for group in topology.nodes:
        value = of_node(group)
        if value is None:
            return None
        total += value * group.count
    return total
