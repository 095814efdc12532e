"""Instances of clouds: every one is an entry of the catalog with sourced changes, found by its name like an entry."""

import re
from pathlib import Path

import pytest

from cost_models.coefficient_checks import warnings as unknown_coefficients
from planner import plan
from tests.oracles.instances import workload
from topologies.checks import warnings
from topologies.errors import InputError
from topologies.instances import Instances
from topologies.loading import INSTANCES, TOPOLOGIES, load_topology, read_topology

NAMES = INSTANCES.names()


def test_the_instances_that_are_promised_are_there() -> None:
    """By the names that they are rented under."""
    aws = {"p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"}
    aws |= {"u-p6e-gb200x72", "g4dn.12xlarge", "g4dn.metal", "g5.48xlarge"}
    aws |= {"p3.16xlarge", "p3dn.24xlarge"}
    google = {"a2-highgpu-8g", "a2-ultragpu-8g", "a3-highgpu-8g", "a3-megagpu-8g", "a3-ultragpu-8g"}
    google |= {"a4-highgpu-8g", "a4x-highgpu-4g", "g2-standard-96"}
    sizes = ("96asr_v4", "96amsr_A100_v4", "96isr_H100_v5", "96isr_H200_v5", "96isr_MI300X_v5", "128isr_NDR_GB200_v6")
    assert set(NAMES) == aws | google | {f"Standard_ND{size}" for size in sizes} | {"Standard_NC96ads_A100_v4"}


@pytest.mark.parametrize("name", NAMES)
def test_every_instance_is_a_plausible_topology_of_known_parts(name: str) -> None:
    """Under its name, without warnings, on an entry of the catalog; without the power of the entry."""
    topology, document = load_topology(name), read_topology(name)
    assert topology.name == name
    assert topology.description
    assert warnings(topology) == []
    assert unknown_coefficients(topology, document) == []
    assert topology.nodes[0].power is None
    assert INSTANCES.document(name).data["base"] in TOPOLOGIES.names()


def test_every_number_has_its_source_beside_it() -> None:
    """No line that sets a number goes without a comment."""
    for line in INSTANCES.path.read_text().splitlines():
        value, _, source = line.partition("  # ")
        key, _, value = value.partition(": ")
        if line.startswith("    ") and re.search(r"\d", value):
            assert re.match(r"\w", source), line
        assert len(line) <= 140, key


@pytest.mark.parametrize(
    ("name", "device", "ranks", "gigabits"),
    [
        ("p4d.24xlarge", "A100-SXM4-40GB", 8, 400),
        ("p5.48xlarge", "H100-SXM5-80GB", 8, 3200),
        ("p5e.48xlarge", "H200-SXM-141GB", 8, 3200),
        ("p5en.48xlarge", "H200-SXM-141GB", 8, 3200),
        ("p6-b200.48xlarge", "B200-SXM-180GB", 8, 3200),
        ("u-p6e-gb200x72", "GB200", 72, 28_800),
        ("a2-ultragpu-8g", "A100-SXM4-80GB", 8, 100),
        ("a3-highgpu-8g", "H100-SXM5-80GB", 8, 800),
        ("a3-megagpu-8g", "H100-SXM5-80GB", 8, 1600),
        ("a3-ultragpu-8g", "H200-SXM-141GB", 8, 3200),
        ("a4x-highgpu-4g", "GB200", 72, 28_800),
        ("g4dn.12xlarge", "T4", 4, 50),
        ("Standard_ND96asr_v4", "A100-SXM4-40GB", 8, 1600),
        ("Standard_ND96isr_H100_v5", "H100-SXM5-80GB", 8, 3200),
        ("Standard_ND96isr_MI300X_v5", "MI300X-192GB", 8, 3200),
        ("Standard_ND128isr_NDR_GB200_v6", "GB200", 72, 28_800),
    ],
)
def test_totals_are_those_that_providers_give(name: str, device: str, ranks: int, gigabits: float) -> None:
    """Accelerators, and the network between them."""
    topology = load_topology(name)
    (group,) = topology.nodes
    cards = group.links.scale_out
    assert (group.accelerators.device, topology.world_size) == (device, ranks)
    assert cards is not None
    assert group.count * cards.count * cards.bandwidth * 8e-9 == pytest.approx(gigabits)


QUICK = ("p5.48xlarge", "a2-highgpu-8g", "Standard_ND96isr_MI300X_v5")
NEW_ENTRIES = ("mi355x-8", "h20-8", "h800-8", "gb300-nvl72", "gb200-nvl72-36x2", "a10-8")


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] * (each not in QUICK)) for each in (*NAMES, *NEW_ENTRIES)],
)
def test_a_small_plan_is_made_on_every_one(name: str) -> None:
    """Placed within its memories, with a bound."""
    tables = [{"rows": 100_000, "dim": 64, "pooling_factor": 4}, {"rows": 2_000_000, "dim": 32}]
    found = plan(load_topology(name), workload(tables, global_batch=73_728), effort=0, gap=1.0, simulate=False)
    assert found.objective is not None
    assert found.objective.lower_bound_s <= found.objective.step_s


def test_an_instance_is_a_base_like_an_entry(tmp_path: Path) -> None:
    """And a file of its name goes first."""
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nbase: p5.48xlarge\nset: {nodes.0.count: 4}\n")
    assert load_topology(file).world_size == 32
    assert load_topology("p5.48xlarge", nodes=4).nodes == load_topology(file).nodes


def test_a_name_may_stand_once_and_not_name_an_entry(tmp_path: Path) -> None:
    """Each is refused at its line."""
    file = tmp_path / "instances.yaml"
    file.write_text("# words\na.1:\n  base: dgx-h100\n\na.1:\n  base: dgx-h200\n")
    with pytest.raises(InputError, match=r"instances\.yaml:5:1: a\.1: is there twice; the other is in line 2"):
        Instances(file).names()
    file.write_text("dgx-h100:\n  base: dgx-h200\n")
    with pytest.raises(InputError, match=r"instances\.yaml:1:1: dgx-h100: is also an entry of the catalog"):
        Instances(file).expect_apart(TOPOLOGIES.names())
    INSTANCES.expect_apart(TOPOLOGIES.names())


def test_faults_stand_where_they_are_in_the_whole_file(tmp_path: Path) -> None:
    """Line and column of the file that holds all instances."""
    file = tmp_path / "instances.yaml"
    file.write_text("first:\n  base: dgx-h100\n\nsecond:\n  base: dgx-h200\n  set:\n    nodes.0.count: 2\n")
    document = Instances(file).document("second")
    assert document.data == {"name": "second", "base": "dgx-h200", "set": {"nodes.0.count": 2}}
    assert str(document.fault(("set", "nodes.0.count"), "wrong")).startswith(f"{file}:7:5: ")
    assert str(document.fault(("name",), "wrong")).startswith(f"{file}:4:1: ")


def test_a_near_miss_is_told() -> None:
    """Of instances as of entries."""
    with pytest.raises(InputError, match=r"did you mean 'p5\.48xlarge'"):
        load_topology("p5.48xlarg")
