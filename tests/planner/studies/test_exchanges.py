"""Studies over the exchange of vectors and over towers: `auto` takes the shorter step of each point and says which."""

import json
from pathlib import Path

import pytest
import yaml

from planner.studies.execution import Execution
from planner.studies.grid import Grid
from planner.studies.results import StudyResults
from planner.studies.runners import Serial
from planner.studies.study import read_study
from planner.studies.table import results
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 100_000 * (i + 1), "dim": 64, "pooling_factor": 5.0} for i in range(4)]
RULES = {"shardings": ["table_wise", "column_wise", "table_row_wise"]}
CLUSTER = topology(node_group("a", nodes=16, ranks=2, nic_bytes_per_s=5e9))
TRAINED = workload(TABLES, global_batch=2**18, overhead="100us", pipeline="none")
SEARCH = {"effort": 0, "gap": 0.05, "simulate": False}


def studied(folder: Path, **keys: object) -> StudyResults:
    """On 16 nodes of 2 ranks with slow cards, unless it says otherwise."""
    for name, model in (("cluster", CLUSTER), ("trained", TRAINED)):
        text = yaml.safe_dump(json.loads(model.model_dump_json(exclude_unset=True)), sort_keys=False)
        (folder / f"{name}.yaml").write_text(text)
    (folder / "rules.yaml").write_text(yaml.safe_dump(RULES))
    inputs = {"topology": "cluster.yaml", "workload": "trained.yaml", "policy": "rules.yaml"}
    study = {"name": "test", **inputs, "search": SEARCH, **keys}
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    points = Grid(*read_study(folder / "study.yaml"))
    return results(points, Execution(points, points).run(Serial(), None))


@pytest.mark.slow
def test_auto_takes_the_shorter_step_of_each_point(tmp_path: Path) -> None:
    """As long as the shorter of both, or shorter, with a bound over both; the column says which one it is."""
    axes = {"topology.nodes.0.count": [16], "workload.global_batch": [1024, 2**18]}
    frame = studied(tmp_path, axes={**axes, "policy.exchange": ["flat", "sptt", "auto"]}).frame
    for _, points in frame.groupby(list(axes)):
        flat, sptt, auto = (points[points["policy.exchange"] == name].iloc[0] for name in ("flat", "sptt", "auto"))
        assert auto["step_s"] <= min(flat["step_s"], sptt["step_s"]) * (1 + 1e-9)
        assert auto["lower_bound_s"] == pytest.approx(min(flat["lower_bound_s"], sptt["lower_bound_s"]), rel=1e-3)
        assert auto["exchange"] == ("sptt" if sptt["step_s"] < flat["step_s"] else "flat")
        assert (flat["exchange"], sptt["exchange"]) == ("flat", "sptt")


def test_a_point_says_which_exchange_it_takes(tmp_path: Path) -> None:
    """With `auto` a column has it, and the step is no longer than that of the flat exchange."""
    frame = studied(tmp_path, axes={"policy.exchange": ["flat", "auto"]}).frame
    flat, auto = frame.iloc[0], frame.iloc[1]
    assert (flat["exchange"], auto["exchange"]) == ("flat", "sptt")
    assert auto["step_s"] < flat["step_s"]


def test_the_exchange_is_told_only_where_it_is_open(tmp_path: Path) -> None:
    """Tables of other studies have the columns that they had."""
    assert "exchange" not in studied(tmp_path, axes={"policy.exchange": ["flat", "sptt"]}).frame


@pytest.mark.slow
def test_towers_and_their_modules_are_axes(tmp_path: Path) -> None:
    """Their number beside that of the nodes, their module and compression; more compression is never slower, and a
    number that the cluster does not have is a row with its reason."""
    towers = [None, *({"count": 4, "module": "linear", "compression": c} for c in (2, 8)), {"count": 3}]
    at = {"policy.exchange": ["auto"], "topology.nodes.0.count": [4]}
    frame = studied(tmp_path, axes={**at, "workload.towers": towers}).frame
    whole, wide, narrow, unfit = (frame.iloc[i] for i in range(4))
    assert narrow["step_s"] < wide["step_s"]
    assert narrow["exchange"] == wide["exchange"] == "sptt"
    assert whole["status"] != "error"
    assert unfit["status"] == "error"
    assert "no multiple of 3" in unfit["reason"]
    zips = [{"topology.nodes.0.count": [2, 4], "workload.towers.count": [2, 4]}]
    axes = {"policy.exchange": ["auto"], "workload.towers.module": ["linear", "dcn"], "workload.towers.width": [64]}
    assert (studied(tmp_path, axes=axes, zips=zips).frame["exchange"] == "sptt").all()
