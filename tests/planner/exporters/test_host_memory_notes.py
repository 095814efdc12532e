"""Tables that a host cannot hold as often as it has processes: told before they are sharded, where it is so."""

import pytest

from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.exporters.formats import FORMATS, ExportRequest
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from topologies.loading import load_topology


def planned(rows: int, ddr: int | None) -> Plan:
    """Two tables of 192 columns in fp32 on four nodes of 8, whose hosts have so much memory."""
    cluster = load_topology("dgx-a100-80", nodes=4)
    (group,) = cluster.nodes
    assert group.host.ddr is not None
    memory = None if ddr is None else group.host.ddr.model_copy(update={"capacity": ddr})
    group = group.model_copy(update={"host": group.host.model_copy(update={"ddr": memory})})
    cluster = cluster.model_copy(update={"nodes": (group,)})
    tables = [{"name": name, "rows": count, "dim": 192, "pooling_factor": 1} for name, count in (("a", rows), ("b", 8))]
    workload = Workload.model_validate({"name": "w", "global_batch": 1024, "tables": tables})
    policy = Policy.model_validate({"runtime": "torchrec", "tiers": ["hbm"]})
    return plan(cluster, workload, policy=policy, effort=0, simulate=False)


def warnings(found: Plan, name: str) -> list[str]:
    return [note for note in FORMATS[name].export(ExportRequest(found, "plan")).notes if "meta device" in note]


@pytest.mark.parametrize("name", ["torchrec", "torchrec-constraints"])
def test_a_table_that_every_process_makes_whole(name: str) -> None:
    """274,352,000 rows of 192 columns, eight times on a host: 1.53 TiB, one byte more than it has, or as much."""
    rows = 274_352_000
    needed = 8 * (rows + 8) * 192 * 4
    (said,) = warnings(planned(rows, needed - 1), name)
    assert "the 8 of a host need 1.53 TiB of its memory (a alone 1.53 TiB), and it has 1.53 TiB" in said
    assert warnings(planned(rows, needed), name) == []


def test_a_host_of_unknown_memory_is_not_judged() -> None:
    """Where the cluster does not say how much there is."""
    assert warnings(planned(2_000_000, None), "torchrec") == []
