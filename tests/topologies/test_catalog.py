"""The catalog: every entry loads, is plausible and sourced, and agrees with what was published."""

import re
import subprocess
import sys

import pytest

from topologies.checks import warnings
from topologies.cluster import Topology
from topologies.loading import TOPOLOGIES, load_topology

NAMES = TOPOLOGIES.names()
SCALE_UP = {"nvlink2", "nvlink3", "nvlink4", "nvlink5", "infinity-fabric"}


def test_the_catalog_holds_what_is_promised() -> None:
    """The names that users and documents rely on."""
    promised = {
        *(
            "zionex",
            "zionex-16",
            "zionex-16-scm",
            "dgx-a100-40",
            "dgx-a100-80",
            "dgx-h100",
            "dgx-h200",
            "hgx-b200",
            "gb200-nvl72",
            "hgx-b300",
            "h200-nvl-8",
            "mi350x-8",
        ),
        *("h100-pcie-8", "l40s-8", "l40-8", "a40-8", "a30-8", "h100-sxm-4", "dgx1-v100", "cpu"),
        *("mi300x-8", "mi355x-8", "h20-8", "h800-8", "gb300-nvl72", "gb200-nvl72-36x2"),
        *("l4-8", "t4-8", "a10g-8", "a10-8", "a100-pcie-8", "dgx-2", "dgx1-v100-16"),
    }
    assert set(NAMES) == promised


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_loads_under_its_name_without_warnings(name: str) -> None:
    """A shipped topology is valid and plausible, and says what it is."""
    topology = load_topology(name)
    assert topology.name == name
    assert topology.description
    assert warnings(topology) == []
    assert topology.nodes[0].price is None


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_its_source_beside_it(name: str) -> None:
    """No line with a number goes without a comment."""
    for line in (TOPOLOGIES.directory / f"{name}.yaml").read_text().splitlines():
        key, _, value = line.partition(": ")
        if re.match(r"\d", value) and key != "description":
            assert re.search(r"  # \w", line), line


@pytest.mark.parametrize("name", NAMES)
def test_kinds_of_links_are_the_keys_of_the_coefficients(name: str) -> None:
    """Only the agreed words are used."""
    for group in load_topology(name).nodes:
        links = group.links
        assert links.scale_up is None or links.scale_up.kind in SCALE_UP
        assert links.scale_out is None or links.scale_out.kind in {"roce", "infiniband", "ethernet"}


def _totals(topology: Topology) -> dict[str, float]:
    (group,) = topology.nodes
    ranks, up, out, ddr = topology.world_size, group.links.scale_up, group.links.scale_out, group.host.ddr
    return {
        "hbm": ranks * group.accelerators.hbm.capacity,
        "hbm/s": ranks * group.accelerators.hbm.bandwidth,
        "tf32": ranks * (group.accelerators.flops.tf32 or 0),
        "up/s": ranks * (up.bandwidth if up else 0),
        "out b/s": 8 * group.count * out.count * out.bandwidth if out else 0,
        "ddr": group.count * (ddr.capacity if ddr else 0),
    }


def test_zionex_16_is_the_system_of_mad_max() -> None:
    """Table III of arXiv:2310.02784 , to the digits it gives; 24 TB of DDR from Neo."""
    topology = load_topology("zionex-16")
    assert (topology.node_count, topology.world_size) == (16, 128)
    totals = _totals(topology)
    assert totals["hbm"] == 5.12e12
    assert round(totals["hbm"] / 1e12) == 5
    assert round(totals["hbm/s"] / 1e12) == 199
    assert totals["up/s"] == pytest.approx(38.4e12)
    assert totals["out b/s"] == pytest.approx(25.6e12)
    assert totals["ddr"] == 24e12
    assert round(totals["tf32"] / 1e15) == 20


def test_zionex_node_is_that_of_neo() -> None:
    """320 GB at 12.4 TB/s, 4 x 100 Gb/s for the data, and an SSD tier."""
    (group,) = load_topology("zionex").nodes
    assert 8 * group.accelerators.hbm.capacity == 320e9
    assert round(8 * group.accelerators.hbm.bandwidth / 1e11) == 124
    assert group.links.front_end is not None
    assert group.links.front_end.count * group.links.front_end.bandwidth * 8 == 400e9
    assert group.host.ssd is not None


@pytest.mark.parametrize(
    ("name", "dtype", "tflops", "out_gbps", "up"),
    [
        ("dgx1-v100", "fp32", 15.7, None, 150),
        ("dgx-a100-40", "tf32", 156, 200, 300),
        ("dgx-a100-80", "tf32", 156, 200, 300),
        ("dgx-h100", "fp16", 989, 400, 450),
    ],
)
def test_generations_agree_with_dmt(name: str, dtype: str, tflops: float, out_gbps: float | None, up: float) -> None:
    """Table 1 of arXiv:2403.00877; DGX-1 has half the cards that it counts."""
    (group,) = load_topology(name).nodes
    links = group.links
    assert links.scale_up is not None
    assert links.scale_out is not None
    assert getattr(group.accelerators.flops, dtype) / 1e12 == pytest.approx(tflops, abs=1)
    assert links.scale_up.bandwidth == up * 1e9
    share = links.scale_out.bandwidth * 8e-9 * links.scale_out.count / group.accelerators.count
    assert share == (out_gbps or 50)


@pytest.mark.parametrize(
    ("name", "hbm_tb", "hbm_tb_per_s", "up_tb_per_s"),
    [("gb200-nvl72", 13.4, 576, 64.8), ("hgx-b200", 1.44, 64, 7.2), ("dgx-h200", 1.128, 38.4, 3.6)],
)
def test_totals_agree_with_the_data_sheets(name: str, hbm_tb: float, hbm_tb_per_s: float, up_tb_per_s: float) -> None:
    """Totals of a system as its data sheet gives them; scale-up is half of the sum both ways."""
    totals = _totals(load_topology(name))
    assert totals["hbm"] / 1e12 == pytest.approx(hbm_tb, rel=2e-3)
    assert totals["hbm/s"] / 1e12 == pytest.approx(hbm_tb_per_s)
    assert totals["up/s"] / 1e12 == pytest.approx(up_tb_per_s)


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import topologies` alone imports no third-party module; its names appear on use."""
    heavy = "{'networkx', 'pandas', 'pint', 'numpy', 'pydantic', 'yaml'}"
    code = f"import sys, topologies; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    import topologies

    assert {"Fabric", "InputError", "Topology", "load_topology", "warnings"} <= set(dir(topologies))
    assert topologies.load_topology is load_topology
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = topologies.nothing
