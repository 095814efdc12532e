"""Price sheets: what they say wins over the topology, and what nobody says is unknown."""

from pathlib import Path

import pytest

from planner.capacity.prices import PRICE_SHEETS, Bill, PriceSheet, bill, load_prices, notes
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import TOPOLOGIES, load_topology


def sheet(**rates: object) -> PriceSheet:
    return PriceSheet.model_validate({"name": "mine", "date": "2026-03-01", "source": "a contract", **rates})


def h100(*overrides: str) -> Topology:
    return load_topology("dgx-h100", nodes=2, overrides=overrides)


def test_unknown_is_none_and_not_zero() -> None:
    """The catalog knows the power of a DGX H100 and no price."""
    known = bill(h100())
    assert known.usd_per_hour is None
    assert known.kilowatts == pytest.approx(2 * 10.2)
    assert known.usd_per_billion_samples(1e6) is None
    assert bill(load_topology("zionex-16")).kilowatts is None


def test_accelerators_of_a_sheet_are_counted() -> None:
    prices = sheet(accelerators={"H100-SXM5-80GB": {"price": "2USD/h", "power": "1kW"}})
    assert bill(h100(), prices) == Bill(pytest.approx(2 * 8 * 2), pytest.approx(2 * 8 * 1))


def test_the_sheet_wins_over_the_topology() -> None:
    own = h100("nodes.0.price=5USD/h")
    assert bill(own).usd_per_hour == pytest.approx(10)
    assert bill(own, sheet(accelerators={"H100-SXM5-80GB": {"price": "2USD/h"}})).usd_per_hour == pytest.approx(32)


def test_nodes_win_over_accelerators_and_what_a_row_lacks_comes_from_the_next() -> None:
    group = h100().nodes[0].name
    prices = sheet(
        nodes={group: {"price": "12USD/h"}}, accelerators={"H100-SXM5-80GB": {"price": "2USD/h", "power": "1kW"}}
    )
    assert bill(h100(), prices) == Bill(pytest.approx(24), pytest.approx(16))
    only_price = sheet(accelerators={"H100-SXM5-80GB": {"price": "2USD/h"}})
    assert bill(h100(), only_price).kilowatts == pytest.approx(20.4)


def test_one_unknown_part_makes_the_whole_unknown() -> None:
    mixed = h100()
    groups = (mixed.nodes[0].model_copy(update={"price": 10.0}), mixed.nodes[0].model_copy(update={"name": "others"}))
    both = mixed.model_copy(update={"nodes": groups})
    assert bill(both).usd_per_hour is None
    assert notes(both) == ["the price of 'others' is unknown: give a price sheet"]
    assert bill(both, sheet(nodes={"others": {"price": "1USD/h"}})).usd_per_hour == pytest.approx(22)


def test_costs_of_samples() -> None:
    """36 USD/h are 0.01 USD/s: at 10^6 samples/s, 10^9 samples take 1,000 s."""
    assert Bill(36.0, 20.0).usd_per_billion_samples(1e6) == pytest.approx(10.0)
    assert Bill(36.0, 20.0).joules_per_sample(1e6) == pytest.approx(0.02)
    assert Bill(36.0, 20.0).usd_per_billion_samples(None) is None
    assert Bill(0.0, None).usd_per_billion_samples(1e6) == 0.0
    assert Bill(0.0, None).joules_per_sample(1e6) is None


def test_every_fault_of_a_sheet_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(
        "name: mine\ndate: soon\ncurrency: EUR\naccelerators:\n"
        "  A: {price: 3}\n  B: {prize: 3USD/h}\n  C: {source: nowhere}\n  D: {power: -1kW}\n"
    )
    with pytest.raises(InputError) as error:
        load_prices(file)
    lines = str(error.value).splitlines()
    assert [line.removeprefix(f"{file}:").partition(":")[0] for line in lines] == ["1", "2", "3", "5", "6", "7", "8"]
    for words in (
        "source: is missing",
        "must be 'USD'",
        "3 has no unit",
        "did you mean 'price'?",
        "neither",
        "above 0",
    ):
        assert words in str(error.value)
    file.write_text("name: mine\ndate: 2026-01-01\nsource: none\n")
    with pytest.raises(InputError, match="holds no rates"):
        load_prices(file)


def test_a_shipped_sheet_is_found_by_its_name_and_a_misspelt_one_is_not() -> None:
    with pytest.raises(InputError, match=r"neither a file nor a price sheet.*did you mean 'example-2025-01'"):
        load_prices("example-2025-1")
    with pytest.raises(InputError, match="there is no such file"):
        load_prices("prices/mine.yaml")


@pytest.mark.parametrize("name", PRICE_SHEETS.names())
def test_shipped_sheets_are_examples_with_a_source_for_each_row(name: str) -> None:
    example = load_prices(name)
    assert example.name == name
    assert "Example" in example.description
    devices = {group.accelerators.device for each in TOPOLOGIES.names() for group in load_topology(each).nodes}
    assert set(example.accelerators) <= devices
    assert all(rate.source for rate in example.accelerators.values())


def test_a_device_that_the_sheet_does_not_name_is_said() -> None:
    prices = sheet(accelerators={"H100-SXM5-80G": {"price": "2USD/h"}})
    words = "is unknown: mine does not name H100-SXM5-80GB; did you mean 'H100-SXM5-80G'?"
    assert notes(h100(), prices) == [f"the price of {h100().nodes[0].name!r} {words}"]
    assert notes(h100(), load_prices("example-2025-01")) == []


H100 = "H100-SXM5-80GB"


def tariffs(**more: object) -> PriceSheet:
    """A sheet with three tariffs, and a region with a cheaper spot price, a dearer node and its own energy."""
    region = {"accelerators": {H100: {"price": {"spot": "1USD/h"}}}, "carbon": "30g/kWh", "pue": 1.25}
    price = {"on_demand": "4USD/h", "reserved_1y": "3USD/h", "spot": "2USD/h"}
    rates = {H100: {"price": price, "power": "1kW"}}
    return sheet(accelerators=rates, regions={"eu-north": region}, carbon="400g/kWh", **more)


@pytest.mark.parametrize(
    ("choice", "of_one"),
    [
        ({}, 4.0),
        ({"tariff": "reserved_1y"}, 3.0),
        ({"tariff": "spot"}, 2.0),
        ({"tariff": "spot", "region": "eu-north"}, 1.0),
        ({"region": "eu-north"}, 4.0),
    ],
)
def test_a_tariff_and_a_region_choose_the_price(choice: dict[str, str], of_one: float) -> None:
    """What the region does not name is the sheet's."""
    assert bill(h100(), tariffs(**choice)).usd_per_hour == pytest.approx(16 * of_one)


def test_energy_is_that_of_the_site() -> None:
    """16 kW of nodes: 400 g/kWh without a region; 30 g/kWh of 25 % more there. 0.1 USD/kWh come on top of the price."""
    assert bill(h100(), tariffs()).kg_co2e_per_hour == pytest.approx(16 * 0.4)
    north = bill(h100(), tariffs(region="eu-north", electricity="0.1USD/kWh"))
    assert north.kg_co2e_per_hour == pytest.approx(16 * 1.25 * 0.03)
    assert north.usd_per_hour == pytest.approx(16 * 4 + 16 * 1.25 * 0.1)
    assert north.kilowatts == pytest.approx(16)
    assert north.kg_co2e_per_billion_samples(1e6) == pytest.approx(16 * 1.25 * 0.03 / 3600 / 1e6 * 1e9)


def test_what_nobody_says_stays_unknown() -> None:
    """A price that is given alone, or by the topology, is no spot price; without power energy has no cost."""
    alone = sheet(accelerators={H100: {"price": "4USD/h"}, "A100": {"price": {"spot": "1USD/h"}}}, tariff="spot")
    assert bill(h100("nodes.0.price=5USD/h"), alone).usd_per_hour is None
    assert notes(h100(), alone)[0].endswith(f"mine has no price of {H100} for spot, only for on_demand")
    zionex = load_topology("zionex-16", overrides=["nodes.0.price=5USD/h"])
    energy = sheet(accelerators={"B200": {"price": "1USD/h"}}, electricity="0.1USD/kWh", carbon="1g/kWh")
    known = bill(zionex, energy)
    assert (known.usd_per_hour, known.kg_co2e_per_hour) == (None, None)
    assert "as its power is: mine prices electricity" in notes(zionex, energy)[0]
    assert bill(h100(), sheet(accelerators={H100: {"price": "4USD/h"}})).kg_co2e_per_hour is None


def test_the_name_of_a_sheet_may_choose(tmp_path: Path) -> None:
    """`FILE@tariff=…,region=…`, also where a file has such a sign; a wrong choice names those there are."""
    text = "name: mine\ndate: 2026-03-01\nsource: a contract\nregions: {eu-north: {carbon: 30g/kWh}}\n"
    text += "accelerators: {X: {price: {on_demand: 4USD/h, spot: 2USD/h}}}\n"
    for name in ("mine.yaml", "at@home.yaml"):
        (tmp_path / name).write_text(text)
        assert load_prices(tmp_path / name).tariff == "on_demand"
    chosen = load_prices(f"{tmp_path}/mine.yaml@tariff=spot, region=eu-north")
    assert chosen.stated == {"name": "mine", "date": "2026-03-01", "tariff": "spot", "region": "eu-north"}
    (tmp_path / "spot.yaml").write_text(text.replace("on_demand: 4USD/h, ", ""))
    assert load_prices(f"{tmp_path}/spot.yaml@tariff=spot").tariff == "spot"
    with pytest.raises(InputError, match="'on_demand' is not among spot"):
        load_prices(tmp_path / "spot.yaml")
    for wrong, words in [
        ("tariff=spotty", "'spotty' is not among on_demand, spot"),
        ("region=mars", "'mars' is not among eu-north"),
        ("rate=spot", "'rate=spot' names neither a tariff nor a region"),
        ("tariff=spot,tariff=spot", "or one twice"),
    ]:
        with pytest.raises(InputError, match=words):
            load_prices(f"{tmp_path}/mine.yaml@{wrong}")


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"accelerators": {"X": {"price": {"spot": "1USD/h"}}}, "tariff": "spt"}, "'spt' is not among spot"),
        ({"accelerators": {"X": {"price": "1USD/h"}}, "region": "eu"}, "'eu' is not among"),
        ({"accelerators": {"X": {"price": {"spot": 1}}}}, "has no unit"),
        ({"accelerators": {"X": {"price": "1USD/h"}}, "pue": 0.9}, "greater than or equal to 1"),
        ({"accelerators": {"X": {"price": "1USD/h"}}, "carbon": "30g"}, "write for example 350g/kWh"),
    ],
)
def test_sheets_that_contradict_themselves_are_refused(rates: dict[str, object], words: str) -> None:
    """A default tariff without prices would make every price unknown without a word."""
    with pytest.raises(ValueError, match=words):
        sheet(**rates)
