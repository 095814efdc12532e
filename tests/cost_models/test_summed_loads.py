"""Costs of many blocks do not depend on how many are worked out together."""

from dataclasses import fields

import numpy as np
import pytest

from cost_models.registry import cost_model
from cost_models.workload import load_workload
from planner.formulation.options import enumerate_options
from planner.formulation.policy import Policy
from topologies.loading import load_topology


@pytest.mark.parametrize("workload", ["fbgemm-001", "dlrm-dcnv2"])
def test_pieces_cost_what_all_do_together(workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, and in the same order in memory, with loads by rows or by columns."""
    model = cost_model("physical", load_topology("dgx-a100-80", nodes=2), load_workload(workload))
    blocks = enumerate_options(model, Policy(tiers=("hbm", "ddr_cached"))).blocks
    for by_columns in (0, 10**9):
        monkeypatch.setattr("cost_models.summed_loads.BY_COLUMNS", by_columns)
        found = []
        for at_once in (97, 10**9):
            monkeypatch.setattr("cost_models.summed_loads.COSTED_AT_ONCE", at_once)
            found.append(model.block_costs(blocks, 0))
        for field in fields(found[0]):
            pieces, together = (getattr(costs, field.name) for costs in found)
            np.testing.assert_array_equal(pieces, together)
            assert pieces.strides == together.strides
