"""The optimizer that a model states is that of its tables' memory."""

import pytest
import torch
from torchrec import EmbeddingBagCollection
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.types import PlannerError
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from cost_models.workload.models import Workload
from planner.document.planned import planned_inputs
from planner.integrations.torchrec_planner import ShardPlanner
from topologies.errors import InputError

GIB = 2**30
ROWS, DIM = 25_000_000, 128
"""A table of 11.9 GiB in fp32."""
IN_HBM = {f"t{i}": ParameterConstraints(compute_kernels=["fused"]) for i in range(8)}


def bags(tables: int = 8, rows: int = ROWS) -> EmbeddingBagCollection:
    configs = [
        EmbeddingBagConfig(num_embeddings=rows, embedding_dim=DIM, name=f"t{i}", feature_names=[f"f{i}"])
        for i in range(tables)
    ]
    return EmbeddingBagCollection(tables=configs, device=torch.device("meta"))


def four_gpus(gib: int = 40) -> Topology:
    return Topology(world_size=4, compute_device="cuda", hbm_cap=gib * GIB)


def optimizers(planner: ShardPlanner) -> dict[str, str]:
    return {each.name: each.optimizer for each in planned_inputs(planner.document)[1].tables}


def test_state_of_the_stated_optimizer_is_counted() -> None:
    """8 tables of 11.9 GiB: in the HBM of 4 x 40 GiB under SGD, and not under Adam, whose state is twice as large."""
    model = bags()
    apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    assert ShardPlanner(four_gpus(), constraints=IN_HBM).plan(model).plan
    model = bags()
    apply_optimizer_in_backward(torch.optim.Adam, model.parameters(), {"lr": 0.1})
    with pytest.raises(PlannerError, match="no plan: the tables need more memory"):
        ShardPlanner(four_gpus(), constraints=IN_HBM).plan(model)
    planner = ShardPlanner(four_gpus(120), constraints=IN_HBM)
    planner.plan(model)
    assert sum(rank.bytes.hbm for rank in planner.document.ranks) > 3 * 8 * ROWS * DIM * 4


@pytest.mark.parametrize(
    ("applied", "arguments", "name"),
    [
        (torch.optim.SGD, {"lr": 0.1}, "sgd"),
        (torch.optim.Adagrad, {"lr": 0.1}, "adagrad"),
        (RowWiseAdagrad, {"lr": 0.1}, "rowwise_adagrad"),
        (torch.optim.Adam, {"lr": 0.1, "betas": (0.9, 0.99)}, "adam"),
    ],
)
def test_each_optimizer_has_its_name(applied: type, arguments: dict[str, object], name: str) -> None:
    """By its class, table by table: here of every other one, and SGD of the others."""
    model = bags(4, 1000)
    parameters = dict(model.named_parameters())
    for path, parameter in parameters.items():
        chosen = applied if ".t0." in path or ".t2." in path else torch.optim.SGD
        apply_optimizer_in_backward(chosen, [parameter], dict(arguments) if chosen is applied else {"lr": 0.1})
    planner = ShardPlanner(four_gpus())
    planner.plan(model)
    assert optimizers(planner) == {"t0": name, "t1": "sgd", "t2": name, "t3": "sgd"}


def test_reading_leaves_the_model_as_it_was() -> None:
    """What is applied is not changed by a plan."""
    model = bags(2, 1000)
    apply_optimizer_in_backward(torch.optim.Adam, model.parameters(), {"lr": 0.1, "betas": (0.9, 0.99)})
    before = [(list(p._optimizer_classes), [dict(each) for each in p._optimizer_kwargs]) for p in model.parameters()]
    ShardPlanner(four_gpus()).plan(model)
    assert before == [(p._optimizer_classes, p._optimizer_kwargs) for p in model.parameters()]


def test_what_the_sharder_is_told_holds_where_the_model_says_nothing() -> None:
    """`fused_params` of a sharder; the model's own stand above them, as in TorchRec."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    model = bags(2, 1000)
    apply_optimizer_in_backward(torch.optim.Adagrad, [next(model.parameters())], {"lr": 0.1})
    planner = ShardPlanner(four_gpus())
    planner.plan(model, [EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.ADAM})])
    assert optimizers(planner) == {"t0": "adagrad", "t1": "adam"}


def test_optimizers_that_cannot_be_counted_are_named() -> None:
    """One that TorchRec's kernels lack, two at once, one against the workload's: each with the table."""
    model = bags(3, 1000)
    first, second, _ = model.parameters()
    apply_optimizer_in_backward(torch.optim.Rprop, [first], {"lr": 0.1})
    apply_optimizer_in_backward(torch.optim.SGD, [second], {"lr": 0.1})
    apply_optimizer_in_backward(torch.optim.Adam, [second], {"lr": 0.1})
    with pytest.raises(InputError) as error:
        ShardPlanner(four_gpus()).plan(model)
    said = str(error.value)
    assert "t0: its optimizer torch.optim.rprop.Rprop is none that TorchRec's kernels apply" in said
    assert "t1: has 2 optimizers, SGD, Adam, and TorchRec takes one" in said
    assert "t2" not in said
    table = {"name": "t", "rows": 10, "dim": 4, "pooling_factor": 1}
    told = {"name": "w", "global_batch": 8, "tables": [table], "embedding": {"optimizer": "sgd"}}
    other = torch.nn.ModuleDict({"a": bags(1, 1000)})
    apply_optimizer_in_backward(torch.optim.Adam, other.parameters(), {"lr": 0.1})
    with pytest.raises(InputError, match=r"t0: its optimizer is adam in the model and sgd in the workload"):
        ShardPlanner(four_gpus(), workload=Workload.model_validate(told)).plan(other)
