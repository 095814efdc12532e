"""What a plan was made for, as the files that `planner plan` takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.document.files import make_folder, write_file
from planner.document.plan import Plan
from planner.exporters.formats import Exported, ExportRequest
from topologies.yaml_trees import written

TOPOLOGY, WORKLOAD, POLICY = "topology.yaml", "workload.yaml", "policy.yaml"


def export(request: ExportRequest) -> Exported:
    """Write the files into the folder, and say how to plan from them; see `write_inputs`."""
    assert request.output is not None
    write_inputs(request.plan, request.output)
    origin = request.plan.provenance
    command = f"planner plan -t {TOPOLOGY} -w {WORKLOAD} --policy {POLICY}"
    if origin.cost_model != "physical":
        command += f" --cost-model {origin.cost_model}"
    said = f"{request.output}: {TOPOLOGY}, {WORKLOAD} and {POLICY}; plan there with {command}"
    return Exported(None, len(request.plan.tables), report=(said,))


def write_inputs(plan: Plan, folder: str | Path) -> None:
    """Write the cluster, the workload and the policy of a plan; a plan from these files is for the same inputs.

    Raises InputError if the folder cannot be written.
    """
    make_folder(folder)
    origin = plan.provenance
    policy = origin.model_dump(mode="json", include={"policy"})["policy"]
    contents = {TOPOLOGY: origin.topology.content, WORKLOAD: origin.workload.content, POLICY: policy}
    for name, content in contents.items():
        write_file(Path(folder) / name, _yaml(content).encode())


def _yaml(content: Mapping[str, Any]) -> str:
    return written(dict(content), width=120, default_flow_style=None)
