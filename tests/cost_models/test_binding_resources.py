"""Which resource binds a stage where several take as long."""

import numpy as np
import pytest

from cost_models.step import StepModel
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 1000, "dim": 16, "pooling_factor": 2.0}]


@pytest.mark.parametrize(("more", "bound_by"), [(0.0, "device"), (1e-13, "device"), (-1e-13, "device"), (1e-6, "ddr")])
def test_of_loads_that_differ_by_rounding_the_first_binds(more: float, bound_by: str) -> None:
    """Rows of HBM load the accelerator and, as others may wait for DDR after them, the line of DDR as long."""
    model = StepModel(topology(node_group("a", nodes=2, ranks=3)), workload(TABLES))
    stage = model.stages.index("lookup_forward")
    lines = {column.resource.kind: c for c, column in enumerate(model.columns) if column.stage == stage}
    load = np.zeros((len(model.kind_of_rank), len(model.columns)))
    load[:, lines["device"]] = 1e-6
    load[:, lines["ddr"]] = 1e-6 / 3 * (1 + more)
    resource = model.evaluate_loads(load, np.zeros((len(model.kind_of_rank), len(model.memories)))).binding[stage]
    assert resource is not None
    assert resource.kind == bound_by
