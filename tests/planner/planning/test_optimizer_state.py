"""Optimizer state in another memory than the rows: bytes, seconds, policy, runtimes."""

import numpy as np
import pytest

from cost_models.lookup import Lookup
from cost_models.resources import DEVICE, PCIE, Resource
from cost_models.shards import HBM, MEMORY_DDR, MEMORY_HBM, STATE_PLACES, TABLE_WISE, Blocks
from cost_models.step import StepModel
from planner import plan
from planner.document.plan import Plan
from planner.exporters.refusals import Placed, refuse
from planner.formulation.policy import Policy, TableRule
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError

ROWS, DIM, IDS, BATCH = 1_000_000, 64, 20, 4096
DDR = Resource("ddr")
STATE_IN_DDR = STATE_PLACES.index("ddr")


def cluster(hbm_bytes: float = 40e9, **given: float) -> Topology:
    return topology(node_group("a", hbm_bytes=hbm_bytes, ddr_bytes=100e9, **given))


def model_of(optimizer: str, on: Topology | None = None) -> StepModel:
    table = {"rows": ROWS, "dim": DIM, "pooling_factor": IDS}
    return StepModel(on or cluster(), workload([table], global_batch=BATCH, embedding={"optimizer": optimizer}))


def lookup_of(model: StepModel, state: int) -> Lookup:
    one = np.zeros(1, dtype=np.int64)
    blocks = Blocks(one, one + TABLE_WISE, one + HBM, model.tables.dim, np.zeros(1), state=one + state)
    return Lookup(model.tables, blocks, model.kinds[0], model.batching, model.coefficients.software)


def backward_s(optimizer: str, state: int) -> float:
    return float(lookup_of(model_of(optimizer), state).backward()[DEVICE].by_rows[0])


def test_state_of_distinct_rows_crosses_pcie() -> None:
    """Of adam two arrays of fp32, read and written where they are; the rows stay on the device."""
    model = model_of("adam")
    kind, software = model.kinds[0], model.coefficients.software
    unique = float(model.tables.access.unique_rows(np.zeros(1, dtype=np.int64), np.array([float(BATCH * IDS)]))[0])
    moved = software.uvm_backward_passes_per_row.value * unique * 2 * DIM * 4
    loads, bare = (lookup_of(each, STATE_IN_DDR).backward() for each in (model, model_of("sgd")))
    crossed = (loads[name].by_rows[0] - bare[name].by_rows[0] for name in (DEVICE, PCIE, DDR))
    in_hbm, _, _ = (float(seconds) for seconds in crossed)
    assert in_hbm == pytest.approx(moved / kind.pcie_bytes_per_s)
    rate = kind.memories["ddr"].read_bytes_per_s
    ddr = loads[DDR].by_rows[0] - bare[DDR].by_rows[0]
    assert float(ddr) == pytest.approx(moved / rate)


def test_state_below_costs_many_times_the_update() -> None:
    """Measured kernels: Adam with its state in host memory takes 14 times SGD's backward pass."""
    assert backward_s("adam", 0) < 4 * backward_s("sgd", 0)
    assert backward_s("adam", STATE_IN_DDR) > 14 * backward_s("sgd", 0)


def planned(policy: Policy, optimizer: str = "adam", on: Topology | None = None) -> Plan:
    """Two tables of 256 MB, whose state takes twice as much."""
    tables = [{"rows": ROWS, "dim": DIM, "pooling_factor": IDS}] * 2
    model = workload(tables, global_batch=BATCH, embedding={"optimizer": optimizer})
    return plan(on or cluster(), model, policy=policy, effort=0)


def test_bytes_are_exact_and_the_plan_verifies() -> None:
    """Weights in HBM, both state arrays in DDR, whatever else is in flight; sums of ranks say the same."""
    found = planned(Policy(tiers=("hbm",), optimizer_state=("ddr",)))
    assert {table.optimizer_state for table in found.tables} == {"ddr"}
    for table in found.tables:
        size = table.shards.bytes.sum(axis=0)
        assert size[MEMORY_DDR] == ROWS * DIM * 4 * 2
        assert size[MEMORY_HBM] >= ROWS * DIM * 4
    assert sum(rank.bytes.ddr for rank in found.ranks) == 2 * ROWS * DIM * 4 * 2
    assert verify(found) == []
    again = Plan.model_validate_json(found.to_json())
    assert verify(again) == []


def test_a_plan_that_moves_its_state_is_no_longer_true() -> None:
    """Another place of state than the policy allows, and other bytes."""
    found = planned(Policy(tiers=("hbm",)))
    tables = (found.tables[0].model_copy(update={"optimizer_state": "ddr"}), *found.tables[1:])
    assert any(
        "its optimizer state is in ddr" in fault for fault in verify(found.model_copy(update={"tables": tables}))
    )


def test_both_places_are_weighed() -> None:
    """With room, state stays in HBM, where it is cheaper; without, it makes room for the rows."""
    policy = Policy(tiers=("hbm", "ddr"), optimizer_state=("with_table", "ddr"))
    roomy, tight = planned(policy), planned(policy, on=cluster(hbm_bytes=0.6e9))
    assert {table.optimizer_state for table in roomy.tables} == {"with_table"}
    assert ("hbm", "ddr") in {(table.tier, table.optimizer_state) for table in tight.tables}
    rigid = planned(Policy(tiers=("hbm", "ddr")), on=cluster(hbm_bytes=0.6e9))
    assert rigid.objective is not None
    assert tight.objective is not None
    assert tight.objective.step_s < rigid.objective.step_s
    assert verify(tight) == []


def test_the_default_says_nothing() -> None:
    """State with the rows is not written; a policy that names that place alone changes no plan."""
    text = planned(Policy()).to_json()
    assert '"optimizer_state"' not in text
    named = planned(Policy(optimizer_state=("with_table",)))
    assert [table.shards for table in named.tables] == [table.shards for table in planned(Policy()).tables]


def test_rules_name_tables() -> None:
    """A rule concerns its tables; where rows are at home in DDR, state in DDR is state with them."""
    rules = (TableRule(match=("t0",), optimizer_state=("ddr",)), TableRule(match=("t1",), tiers=("ddr",)))
    found = planned(Policy(tiers=("hbm", "ddr"), tables=rules))
    assert [table.optimizer_state for table in found.tables][1] == "with_table"
    first = found.tables[0]
    assert (first.tier, first.optimizer_state) in {("hbm", "ddr"), ("ddr", "with_table")}
    assert verify(found) == []


def test_state_less_optimizers_have_none_to_place() -> None:
    found = planned(Policy(tiers=("hbm",), optimizer_state=("ddr",)), "sgd")
    assert {table.optimizer_state for table in found.tables} == {"with_table"}


def test_runtimes_keep_state_with_the_rows() -> None:
    """Neither planning for one nor exporting to one accepts another place, and both say why."""
    with pytest.raises(InputError, match="no place for optimizer state is left for 't0' and 1 more: runtime torchrec"):
        planned(Policy(runtime="torchrec", optimizer_state=("ddr",)))
    apart = planned(Policy(tiers=("hbm",), optimizer_state=("ddr",)))
    with pytest.raises(InputError, match="optimizer state is in ddr, and torchrec keeps it where the rows are"):
        refuse(Placed.of(apart, "plan.json"), "torchrec")


def test_what_cannot_be_is_refused() -> None:
    """A place that the cluster lacks, named with the table; a cost model that knows one place only."""
    with pytest.raises(InputError, match="the optimizer state of 't0' may only be in scm, and tiny has none"):
        planned(Policy(optimizer_state=("scm",)))
    model = workload([{"rows": 1000, "dim": 64}])
    with pytest.raises(InputError, match="the cost model torchrec keeps state with the rows"):
        plan(cluster(), model, policy=Policy(optimizer_state=("ddr",)), cost_model="torchrec")
