"""`planner simulate`: conditions that are named, and those that cannot be."""

import json
from pathlib import Path

import pytest

from planner import plan, write_plan
from tests.cli.conftest import Run
from topologies.loading import load_topology


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan for two nodes of eight accelerators."""
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    write_plan(plan(load_topology("dgx-a100-80", nodes=2), "dlrm-v1", effort=0, simulate=False), path)
    return path


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("nvlink:0=50%", "there is no resource 'nvlink'"),
        ("device:0=50%", "there is no device 0; sorts of links are ddr,"),
        ("nic:4096=50%", "there is no nic 4096"),
        ("nic:x=50%", "is not SORT:N=SHARE"),
        ("nic:0=0%", "leaves nothing"),
    ],
)
def test_what_is_no_link_is_refused_by_name(run: Run, plan_file: Path, link: str, words: str) -> None:
    """A wrong command line, before anything is printed."""
    result = run("simulate", plan_file, "--slow-link", link)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_a_slow_link_is_named_with_its_cost(run: Run, plan_file: Path) -> None:
    """Both directions of a card cost at least as much as one of them."""
    costs = {}
    for link in ("nic:0", "nic_out:0"):
        result = run("simulate", plan_file, "--slow-link", f"{link}=25%", "--format", "json")
        (effect,) = (each for each in json.loads(result.stdout)["effects"] if each["condition"] != "mean step")
        assert effect["condition"] == f"{link.replace(':', ' ')} at 25%"
        costs[link] = effect["cost"]
    assert costs["nic:0"] >= costs["nic_out:0"] >= 0
