"""What kernels beside products read and write, against PyTorch's own operations: those of the models that
`benchmarks.one_gpu` measures, both ways, each tensor that an operation reads or writes counted once."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.one_gpu.models import workload
from benchmarks.one_gpu.torch_models import MODELS, VECTORS, WIDTH
from cost_models.dense_size import dense_size
from cost_models.workload.beside import ACTIVATION_BACKWARD, ACTIVATION_FORWARD, Beside

BATCH = 8
PRODUCTS = ("mm", "addmm", "bmm")
FUSED = ("_scaled_dot_product",)
"""Kernels of attention, whose time is their own."""
MADE_ONLY = ("empty_like", "new_empty", "new_empty_strided", "empty", "detach", "ones_like", "_unsafe_view")
SUM_OF_GRADIENT = 2
"""Kernels of a norm's gradient: of inputs, and of scales, which read what comes back and the input again."""
IN_ORDER = 2
"""What a norm reads and writes to have a gradient in order, before it begins."""


class Counted(TorchDispatchMode):
    """Numbers of a sample that operations beside products read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = {"forward": 0.0, "backward": 0.0}
        self.way = "forward"

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, name = operation(*args, **(kwargs or {})), operation.overloadpacket.__name__
        read = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        made = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
        storages = {each.untyped_storage().data_ptr() for each in read}
        is_view = all(each.untyped_storage().data_ptr() in storages for each in made) and not name.endswith("_")
        if is_view or name in (*PRODUCTS, *MADE_ONLY) or name.startswith(FUSED):
            return out
        if name in ("index_put", "index_add", "index_add_"):  # the gradient of picked pairs has a time of its own
            return out
        moved = sum(each.numel() for each in (*made, *read) if each.numel() >= BATCH)
        if name in ("index", "index_select"):  # of all dots those that are picked
            moved = 2 * made[0].numel()
        if name == "native_layer_norm_backward":
            moved += SUM_OF_GRADIENT * made[0].numel()
            moved += 0 if args[0].is_contiguous() else IN_ORDER * made[0].numel()
        if name.endswith("_"):  # what is read is what is written
            moved -= made[0].numel()
        self.numbers[self.way] += moved / BATCH
        return out


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mlp"])
def test_counts_are_those_of_torch(name: str) -> None:
    """Within 3 % each way: scales of norms, means and losses are not counted. The stack of layers has no tables, which
    its description must have."""
    torch.manual_seed(0)
    model = MODELS[name]()
    numbers, vectors = torch.randn(BATCH, model.inputs), torch.randn(BATCH, VECTORS, WIDTH, requires_grad=True)
    with Counted() as counted:
        loss = model(numbers, vectors)
        counted.way = "backward"
        loss.backward()
    beside = dense_size(workload(name, "fp32", BATCH, "sgd", "eager")).beside
    if name == "attention":  # whose MLPs have no activation behind the last layer, as each layer of a file has
        beside += Beside(-2 * ACTIVATION_FORWARD * VECTORS * WIDTH, -2 * ACTIVATION_BACKWARD * VECTORS * WIDTH)
    assert beside.forward + beside.turned_forward == pytest.approx(counted.numbers["forward"], rel=0.03)
    backward = beside.backward + beside.summed + beside.turned_backward
    assert backward == pytest.approx(counted.numbers["backward"], rel=0.03)
