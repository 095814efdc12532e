"""The strategy of a dense part as PyTorch takes it: the how-to's lines train as one process without them."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from benchmarks.gloo.processes import Processes
from cost_models.cut_layers import strategy_of
from cost_models.dense_strategies import DenseStrategy
from cost_models.workload.dense_part import Dense
from cost_models.workload.dense_sharding import DenseStrategyWord, Held
from planner.exporters.fsdp2 import HeldLayer, dense_strategy

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "dense-strategies.md"
LAYERS, STEPS, SAMPLES = ("bottom", "layers.*", "top"), 4, 6
SETTINGS = {"lr": 0.05, "momentum": 0.9}
"""Of SGD: Adam's steps would be the same with gradients of another scale."""


class Model(nn.Module):
    """Named layers, and a scale that no unit has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.bottom, self.top = nn.Linear(7, 10), nn.Linear(10, 1)
        self.layers = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10))
        self.scale = nn.Parameter(torch.ones(10))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.top(self.layers(torch.relu(self.bottom(numbers))) * self.scale)


class Attention(nn.Module):
    """Of what each token sees, in so many heads as its projections give."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, read: torch.Tensor) -> torch.Tensor:
        made = (each(read) for each in (self.q_proj, self.k_proj, self.v_proj))
        heads = (each.unflatten(-1, (-1, 2)).transpose(1, 2) for each in made)
        return self.out_proj(nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class Crosses(nn.Module):
    """Low-rank cross layers, or a full one."""

    def __init__(self, width: int, rank: int, count: int) -> None:
        super().__init__()
        self.V = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(count))
        self.U = nn.ModuleList(nn.Linear(rank, width) for _ in range(count))
        self.W = nn.ModuleList([nn.Linear(width, width)] if not count else [])

    def forward(self, first: torch.Tensor) -> torch.Tensor:
        value = first
        for inner, outer in zip(self.V, self.U, strict=True):
            value = first * outer(inner(value)) + value
        for each in self.W:
            value = first * each(value) + value
        return value


class Shared(nn.Module):
    """Attention over three tokens, and cross layers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.bottom, self.seen, self.top = nn.Linear(7, 24), Attention(8), nn.Linear(24, 1)
        self.low, self.full = Crosses(24, 6, 2), Crosses(24, 0, 0)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        tokens = self.bottom(numbers).unflatten(-1, (3, 8))
        return self.top(self.full(self.low(self.seen(tokens).flatten(1) / 4)))


MODELS: dict[str, type[nn.Module]] = {"plain": Model, "shared": Shared}


def snippet() -> dict[str, Any]:
    """What the how-to's lines define."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (text,) = (block for block in blocks if block.startswith("# dense_part.py"))
    names: dict[str, Any] = {}
    exec(text, names)
    return names


def samples(step: int, rank: int) -> torch.Tensor:
    return torch.randn(SAMPLES, 7, generator=torch.Generator().manual_seed(100 * step + rank))


def alone(world: int, name: str = "plain") -> list[torch.Tensor]:
    """Weights after steps of one process on the samples of all."""
    model = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), **SETTINGS)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.cat([samples(step, rank) for rank in range(world)])).square().mean().backward()
        optimizer.step()
    return [weight.detach() for weight in model.parameters()]


def train(document: dict[str, Any], name: str = "plain") -> list[torch.Tensor]:
    """The same of one rank, as a job of `Processes`; of weights that are sharded the whole ones."""
    model, optimizer = snippet()["hold"](MODELS[name](), document, torch.optim.SGD, device="cpu", **SETTINGS)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(samples(step, dist.get_rank())).square().mean().backward()
        optimizer.step()
    whole = [weight.full_tensor() if hasattr(weight, "full_tensor") else weight for weight in model.parameters()]
    return [weight.detach() for weight in whole]


def expect_equal(processes: Processes, layers: list[HeldLayer], name: str = "plain") -> None:
    """Each rank has the weights that one process has after the same steps."""
    world = processes.world
    document = dense_strategy(layers, Dense(optimizer="sgd", dtype="fp32"), world)
    for own in processes.run(train, document, name):
        for found, expected in zip(own, alone(world, name), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("word", ["replicate", "zero1", "zero2", "fsdp"])
def test_a_document_trains_as_one_process(two_ranks: Processes, word: DenseStrategyWord) -> None:
    """Over two ranks."""
    held = strategy_of(Held(word), world=2, per_node=2)
    expect_equal(two_ranks, [HeldLayer(name, held) for name in LAYERS])


@pytest.mark.parametrize("word", ["zero1", "fsdp"])
def test_nodes_have_copies(four_ranks: Processes, word: DenseStrategyWord) -> None:
    """Over the two ranks of a node, of two nodes."""
    held = strategy_of(Held(word, "node"), world=4, per_node=2)
    expect_equal(four_ranks, [HeldLayer(name, held) for name in LAYERS])


def test_layers_that_are_cut_train_as_one_process(four_ranks: Processes) -> None:
    """The two in the middle, by columns and by rows over two ranks, FSDP over the two copies; the others over all four.
    Each rank has samples of its own before and after them."""
    whole = DenseStrategy("samples", 1, 3, 4)
    layers = [
        HeldLayer("bottom", whole),
        HeldLayer("layers.0", DenseStrategy("columns", 2, 3, 2), ("bottom",)),
        HeldLayer("layers.2", DenseStrategy("rows", 2, 3, 2), ("layers.0",)),
        HeldLayer("top", whole, ("layers.2",)),
    ]
    expect_equal(four_ranks, layers)


def test_heads_and_cross_layers_that_are_cut_train_as_one_process(four_ranks: Processes) -> None:
    """Attention by heads, low-rank cross layers by inner columns, a full one by its width, over two ranks; FSDP."""
    whole = DenseStrategy("samples", 1, 3, 4)
    layers = [
        HeldLayer("bottom", whole),
        HeldLayer("seen", DenseStrategy("heads", 2, 3, 2), ("bottom",), "attention"),
        HeldLayer("low", DenseStrategy("inner", 2, 3, 2), ("seen",), "cross", 2),
        HeldLayer("full", DenseStrategy("width", 2, 3, 2), ("low",), "cross", 1),
        HeldLayer("top", whole, ("full",)),
    ]
    expect_equal(four_ranks, layers, "shared")
