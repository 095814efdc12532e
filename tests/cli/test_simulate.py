"""`planner simulate`: conditions that are named, and those that cannot be."""

import json
from pathlib import Path

import pytest

from planner import plan, write_plan
from tests.cli.conftest import Run
from tests.oracles.instances import node_group, topology, workload
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--slow-rank", "3=1.5", "--slow-rank", "3=2"], "--slow-rank: rank 3 is given twice"),
        (["--slow-link", "nic:4=50%", "--slow-link", "nic:4=10%"], "--slow-link: nic:4 is given twice"),
    ],
)
def test_one_of_two_factors_is_not_passed_over(run: Run, plan_file: Path, words: list[str], said: str) -> None:
    """Which one is meant, only the user knows."""
    result = run("simulate", plan_file, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.split())


def test_training_data_that_comes_over_no_card_is_not_waited_for(run: Run, tmp_path: Path) -> None:
    """The flag has no effect then, and is refused with the nodes that say no front-end cards."""
    tables = [{"rows": 1000, "dim": 16, "pooling_factor": 2.0}]
    write_plan(plan(topology(node_group("bare")), workload(tables), effort=0, simulate=False), tmp_path / "plan.json")
    result = run("simulate", tmp_path / "plan.json", "--data-loading")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the nodes bare have no links.front_end" in " ".join(result.stderr.split())


def test_a_slow_link_is_named_with_its_cost(run: Run, plan_file: Path) -> None:
    """Both directions of a card cost at least as much as one of them."""
    costs = {}
    for link in ("nic:0", "nic_out:0"):
        result = run("simulate", plan_file, "--slow-link", f"{link}=25%", "--format", "json")
        (effect,) = (each for each in json.loads(result.stdout)["effects"] if each["condition"] != "mean step")
        assert effect["condition"] == f"{link.replace(':', ' ')} at 25%"
        costs[link] = effect["cost"]
    assert costs["nic:0"] >= costs["nic_out:0"] >= 0


def test_chakra_traces_are_written_to_a_new_folder(run: Run, plan_file: Path, tmp_path: Path) -> None:
    """One per rank, with what ASTRA-sim asks for beside them; a second time the folder is refused, before any work."""
    folder = tmp_path / "deep" / "chakra"
    result = run("simulate", plan_file, "--chakra", folder, "--all-to-all", "collectives")
    assert result.exit_code == 0
    assert f"wrote 16 Chakra traces to {folder}" in result.stderr
    beside = {"network.yml", "system.json", "memory.json", "comm_groups.json", "ranks.csv"}
    assert {path.name for path in folder.iterdir()} == {f"step.{npu}.et" for npu in range(16)} | beside
    again = run("simulate", plan_file, "--chakra", folder)
    assert (again.exit_code, again.stdout) == (3, "")
    assert "is not empty; choose a new or an empty directory" in again.stderr


def test_what_chakra_traces_cannot_say_is_refused(run: Run, plan_file: Path, tmp_path: Path) -> None:
    """Flags without them, folders for two things, a file for a folder, and a card that their network cannot lose."""
    (tmp_path / "file").touch()
    for words, code, message in (
        (["--all-to-all", "pairs"], 2, "has no effect without --chakra"),
        (["--chakra", tmp_path / "new", "--trace", tmp_path / "new"], 2, "is also the folder of --trace"),
        (["--chakra", tmp_path / "file"], 2, "is not a folder"),
        (["--chakra", tmp_path / "new", "--lost-card", "0"], 3, "leave out --lost-card"),
    ):
        result = run("simulate", plan_file, *words)
        assert result.exit_code == code, message
        assert message in " ".join(result.stderr.replace("│", " ").split())
    assert {path.name for path in tmp_path.iterdir()} == {"file"}
