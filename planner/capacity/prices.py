"""What a cluster costs, draws and emits: from a price sheet, else from the topology; unknown is None, never 0."""

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from topologies.cluster import NodeGroup, Topology
from topologies.document_kinds import expect_kind
from topologies.documents import Record, did_you_mean, read_yaml, validate
from topologies.errors import InputError
from topologies.hardware import Name
from topologies.shelf import Shelf
from topologies.sources import is_file
from topologies.units import DollarsPerHour, DollarsPerJoule, GramsPerJoule, Watts

PRICE_SHEETS = Shelf("price sheet", Path(__file__).with_name("price_sheets"))
"""The price sheets that are shipped: examples."""
ON_DEMAND = "on_demand"
"""The tariff of a price that is given alone."""
CHOICES = ("tariff", "region")
"""What the name of a sheet may be followed by: `SHEET@tariff=spot,region=eu-north`."""


def _by_tariff(price: Any) -> Any:
    return {ON_DEMAND: price} if isinstance(price, str | int | float) and not isinstance(price, bool) else price


Prices = Annotated[
    dict[Name, DollarsPerHour],
    BeforeValidator(_by_tariff, json_schema_input_type=DollarsPerHour | dict[Name, DollarsPerHour]),
]


class Rate(Record):
    """What one accelerator, or one node, costs and draws."""

    price: Prices = Field(default_factory=dict)
    """By tariff: `{on_demand: 4.9USD/h, reserved_1y: 3.1USD/h, spot: 2USD/h}`; one alone is that on demand. A
    tariff that is not there is unknown."""
    power: Watts | None = None
    """Unset: unknown."""
    source: str = ""
    """Where the figures are from, or what was assumed."""

    @model_validator(mode="after")
    def _something(self) -> "Rate":
        if not self.price and self.power is None:
            raise ValueError("says neither price nor power; write for example {price: 2.5USD/h, power: 1.3kW}")
        return self


class Site(Record):
    """What a place adds to what nodes cost and draw."""

    pue: Annotated[float, Field(ge=1)] | None = None
    """Energy of the whole site over that of its nodes (power usage effectiveness); unset: electricity and carbon are
    those of the nodes alone."""
    electricity: DollarsPerJoule | None = None
    """What energy costs on top of the price of nodes; unset: that is in their price."""
    carbon: GramsPerJoule | None = None
    """Greenhouse gases of the energy, as carbon dioxide; unset: unknown."""


class Region(Site):
    """Rates and energy of one region. They come before those of the sheet."""

    accelerators: dict[str, Rate] = Field(default_factory=dict)
    """As the sheet's."""
    nodes: dict[str, Rate] = Field(default_factory=dict)
    """As the sheet's."""


class PriceSheet(Site):
    """Prices and power of one day."""

    name: Name
    """What reports call the sheet."""
    description: str = ""
    """Whose prices these are."""
    date: datetime.date
    """When these prices held."""
    currency: Literal["USD"] = "USD"
    """Of all prices."""
    source: str
    """Where the prices are from."""
    tariff: Name = ON_DEMAND
    """Whose prices count, unless the command names another."""
    region: Name | None = None
    """Whose rates come first, unless the command names another; unset: those of no region."""
    accelerators: dict[str, Rate] = Field(default_factory=dict)
    """Rates of one accelerator with its share of the node, by its device as topologies name it."""
    nodes: dict[str, Rate] = Field(default_factory=dict)
    """Rates of one whole node, by the name of its group. They come before those of accelerators."""
    regions: dict[Name, Region] = Field(default_factory=dict)
    """What differs from place to place."""

    @model_validator(mode="after")
    def _some(self) -> "PriceSheet":
        if not self.rates:
            raise ValueError("holds no rates; write accelerators: {H100-SXM5-80GB: {price: 2.5USD/h}}")
        if self.region is not None and self.region not in self.regions:
            raise ValueError(f"region: {_not_among(self.region, self.regions)}")
        if self.tariff not in (named := self.tariffs) and (named or self.tariff != ON_DEMAND):
            raise ValueError(f"tariff: {_not_among(self.tariff, named)}")
        return self

    @property
    def rates(self) -> list[Rate]:
        """All of them, those of its regions included."""
        places: tuple[PriceSheet | Region, ...] = (self, *self.regions.values())
        return [rate for place in places for rate in (*place.accelerators.values(), *place.nodes.values())]

    @property
    def tariffs(self) -> list[str]:
        """The tariffs of its prices, in their order."""
        return list(dict.fromkeys(tariff for rate in self.rates for tariff in rate.price))

    @property
    def places(self) -> tuple["PriceSheet | Region", ...]:
        """Where rates and energy are looked for: the region, then the sheet."""
        return (self,) if self.region is None else (self.regions[self.region], self)

    @property
    def site(self) -> Site:
        """The energy of the region; what it leaves open is the sheet's."""
        stated = [place.model_dump(include=set(Site.model_fields), exclude_none=True) for place in self.places]
        return Site.model_validate({key: value for place in reversed(stated) for key, value in place.items()})

    @property
    def stated(self) -> dict[str, str | None]:
        """What an answer says about its prices."""
        return {"name": self.name, "date": self.date.isoformat(), "tariff": self.tariff, "region": self.region}


def _not_among(name: str, names: Iterable[str]) -> str:
    known = list(names)
    if not known:
        return f"{name!r} is not among those of the sheet, which names none"
    close = did_you_mean(name, known)
    return f"{name!r} is not among {', '.join(known)}{close if close.startswith('; did') else ''}"


@dataclass(frozen=True)
class Bill:
    """What a cluster costs and draws as a whole; None where a part of it is unknown."""

    usd_per_hour: float | None
    """Of nodes, and of the site's energy where the sheet prices it."""
    kilowatts: float | None
    """Of nodes."""
    kg_co2e_per_hour: float | None = None
    """Greenhouse gases of the energy that the site takes."""

    def figures(self, samples_per_s: float | None) -> dict[str, float | None]:
        """All of them by the names that tables have for them, at a throughput."""
        return {
            "usd_per_hour": self.usd_per_hour,
            "usd_per_billion_samples": self.usd_per_billion_samples(samples_per_s),
            "kilowatts": self.kilowatts,
            "joules_per_sample": self.joules_per_sample(samples_per_s),
            "kg_co2e_per_hour": self.kg_co2e_per_hour,
            "kg_co2e_per_billion_samples": self.kg_co2e_per_billion_samples(samples_per_s),
        }

    def usd_per_billion_samples(self, samples_per_s: float | None) -> float | None:
        """Dollars for 10^9 samples at a throughput above 0."""
        if self.usd_per_hour is None or not samples_per_s:
            return None
        return self.usd_per_hour / 3600 / samples_per_s * 1e9

    def kg_co2e_per_billion_samples(self, samples_per_s: float | None) -> float | None:
        """Kilograms of carbon dioxide, or as harmful gases, for 10^9 samples at a throughput above 0."""
        if self.kg_co2e_per_hour is None or not samples_per_s:
            return None
        return self.kg_co2e_per_hour / 3600 / samples_per_s * 1e9

    def joules_per_sample(self, samples_per_s: float | None) -> float | None:
        """Energy at a throughput above 0, if the cluster draws this power all the time."""
        if self.kilowatts is None or not samples_per_s:
            return None
        return self.kilowatts * 1e3 / samples_per_s


def load_prices(source: str | Path) -> PriceSheet:
    """The price sheet of a file or a catalog name, with the tariff and the region that may follow it.

    Raises InputError with every fault of the file, or of what follows its name.
    """
    name, choices = (source, {}) if is_file(source) else _with_choices(str(source))
    document = read_yaml(PRICE_SHEETS.find(name))
    expect_kind(document, "price sheet")
    if isinstance(document.data, dict):
        document = replace(document, data={**document.data, **choices})
    return validate(document, PriceSheet)


def _with_choices(source: str) -> tuple[str, dict[str, str]]:
    """Split `SHEET@tariff=spot,region=eu-north`."""
    name, at, text = source.partition("@")
    choices: dict[str, str] = {}
    for part in text.split(",") if at else ():
        key, equals, value = (word.strip() for word in part.partition("="))
        if key not in CHOICES or not equals or not value or key in choices:
            example = f"write for example {name}@tariff=spot,region=eu-north"
            raise InputError.at(source, f"{part!r} names neither a tariff nor a region, or one twice; {example}")
        choices[key] = value
    return name, choices


def bill(topology: Topology, sheet: PriceSheet | None = None) -> Bill:
    """What the cluster costs, draws and emits.

    The sheet's nodes come first, then its accelerators, then the topology's own price and power; for price and power
    apart. Those of the sheet's region come before its others. A topology's own price is taken for one on demand.
    """
    watts = _sum(topology, lambda group: _power(group, sheet))
    usd_per_hour = _sum(topology, lambda group: _price(group, sheet))
    if sheet is None:
        return Bill(usd_per_hour, None if watts is None else watts / 1e3)
    site = sheet.site
    site_watts = None if watts is None else watts * (site.pue or 1.0)
    if site.electricity is not None:
        usd_per_hour = _total(usd_per_hour, None if site_watts is None else site_watts * site.electricity * 3600)
    grams = None if site_watts is None or site.carbon is None else site_watts * site.carbon * 3600
    return Bill(usd_per_hour, None if watts is None else watts / 1e3, None if grams is None else grams / 1e3)


def notes(topology: Topology, sheet: PriceSheet | None = None) -> list[str]:
    """A sentence for each node group whose price is unknown, with the nearest name of the sheet."""
    words = []
    for group in topology.nodes:
        if _price(group, sheet) is None:
            remedy = _remedy(group.accelerators.device, group.name, sheet)
            words.append(f"the price of {group.name!r} is unknown: {remedy}")
        elif sheet is not None and sheet.site.electricity is not None and _power(group, sheet) is None:
            remedy = f"{sheet.name} prices electricity; say there what a node or an accelerator draws (power)"
            words.append(f"the price of {group.name!r} is unknown, as its power is: {remedy}")
    return words


def _remedy(device: str, group: str, sheet: PriceSheet | None) -> str:
    if sheet is None:
        return "give a price sheet"
    rates = [
        rate for place in sheet.places for rate in (place.nodes.get(group), place.accelerators.get(device)) if rate
    ]
    if tariffs := list(dict.fromkeys(tariff for rate in rates for tariff in rate.price)):
        return f"{sheet.name} has no price of {device} for {sheet.tariff}, only for {', '.join(tariffs)}"
    named = [name for place in sheet.places for name in place.accelerators]
    return f"{sheet.name} {'has no price of' if rates else 'does not name'} {device}" + (
        "" if rates else did_you_mean(device, named)
    )


def _price(group: NodeGroup, sheet: PriceSheet | None) -> float | None:
    tariff = ON_DEMAND if sheet is None else sheet.tariff
    known = (rate.price[tariff] * number for rate, number in _rates(group, sheet) if tariff in rate.price)
    return next(known, group.price if tariff == ON_DEMAND else None)


def _power(group: NodeGroup, sheet: PriceSheet | None) -> float | None:
    return next((rate.power * number for rate, number in _rates(group, sheet) if rate.power is not None), group.power)


def _rates(group: NodeGroup, sheet: PriceSheet | None) -> Iterable[tuple[Rate, int]]:
    """The rates that the sheet has for a node of the group, and how many of each make a node."""
    for place in () if sheet is None else sheet.places:
        if group.name in place.nodes:
            yield place.nodes[group.name], 1
        if group.accelerators.device in place.accelerators:
            yield place.accelerators[group.accelerators.device], group.accelerators.count


def _sum(topology: Topology, of_node: Callable[[NodeGroup], float | None]) -> float | None:
    total: float | None = 0.0
    for group in topology.nodes:
        value = of_node(group)
        total = _total(total, None if value is None else value * group.count)
    return total


def _total(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
