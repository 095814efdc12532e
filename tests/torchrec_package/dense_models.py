"""Models with dense parts of many forms, and a batch of each, for what reads their layers."""

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torchrec import EmbeddingBagCollection, EmbeddingCollection, KeyedJaggedTensor
from torchrec.models.deepfm import SimpleDeepFMNN
from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRM_Projection
from torchrec.modules.deepfm import DeepFM
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection

DIM, COUNT, NUMERICAL = 16, 3, 13


def bags(dims: tuple[int, ...] = (DIM,) * COUNT) -> EmbeddingBagCollection:
    return EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(num_embeddings=50, embedding_dim=dim, name=f"t{i}", feature_names=[f"f{i}"])
            for i, dim in enumerate(dims)
        ]
    )


def histories() -> EmbeddingCollection:
    return EmbeddingCollection(
        tables=[EmbeddingConfig(num_embeddings=50, embedding_dim=DIM, name="clicked", feature_names=["seen"])]
    )


def ids(features: tuple[str, ...], samples: int) -> KeyedJaggedTensor:
    """One id of each feature."""
    count = len(features) * samples
    return KeyedJaggedTensor.from_lengths_sync(
        list(features), torch.arange(count) % 50, torch.ones(count, dtype=torch.int32)
    )


def mlp(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(*(part for i, o in itertools.pairwise(widths) for part in (nn.Linear(i, o), act())))


class Over(nn.Module):
    """Tables, and whatever reads a [B, F, D] tensor of their vectors."""

    def __init__(self, over: nn.Module, dims: tuple[int, ...] = (DIM,) * COUNT) -> None:
        super().__init__()
        self.bags, self.over, self.dims = bags(dims), over, dims

    def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
        values = self.bags(sparse).values()
        same = len(set(self.dims)) == 1
        return self.over(values.view(-1, len(self.dims), self.dims[0]) if same else values)


class Of(nn.Module):
    """A module whose forward pass is a function of it and its input."""

    def __init__(self, forward: Any, **parts: Any) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.function(self, vectors)


def dlrm() -> nn.Module:
    return DLRM(bags(), NUMERICAL, [64, DIM], [32, 8, 1])


def dlrm_dcn() -> nn.Module:
    return DLRM_DCN(bags(), NUMERICAL, [64, DIM], [32, 8, 1], 3, 8)


def dlrm_projection() -> nn.Module:
    return DLRM_Projection(
        embedding_bag_collection=bags(),
        dense_in_features=NUMERICAL,
        dense_arch_layer_sizes=[64, DIM],
        interaction_branch1_layer_sizes=[32, 2 * DIM],
        interaction_branch2_layer_sizes=[24, 3 * DIM],
        over_arch_layer_sizes=[32, 1],
    )


def simple_deep_fm() -> nn.Module:
    return SimpleDeepFMNN(NUMERICAL, bags(), 20, 5)


def deep_fm() -> nn.Module:
    return Over(Of(lambda own, x: own.fm([x, x[:, 0]]), fm=DeepFM(mlp(4 * DIM, 20, 1))))


def batch_norm_and_dropout() -> nn.Module:
    parts = (nn.Flatten(), nn.Linear(3 * DIM, 24, bias=False), nn.BatchNorm1d(24), nn.GELU(), nn.Dropout(0.3))
    return Over(nn.Sequential(*parts, nn.Linear(24, 1)))


def layer_norms() -> nn.Module:
    return Over(nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 8), nn.Flatten(), nn.LayerNorm(24), nn.Linear(24, 1)))


def rms_norm_and_prelu() -> nn.Module:
    return Over(nn.Sequential(nn.RMSNorm(DIM), nn.Flatten(), nn.Linear(48, 7), nn.PReLU(), nn.Linear(7, 1)))


def branches_that_rejoin() -> nn.Module:
    def forward(own: Any, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)
        left, right = own.left(flat), own.right(flat)
        return own.top(torch.cat([left + right, left * right, x[:, 1]], dim=1))

    return Over(Of(forward, left=mlp(48, 10), right=mlp(48, 20, 10), top=nn.Linear(20 + DIM, 1)))


def shared_weights() -> nn.Module:
    """One tower for each of two features, and one layer used three times."""

    def forward(own: Any, x: torch.Tensor) -> torch.Tensor:
        left, right = own.tower(x[:, 0]), own.tower(x[:, 1])
        again = own.again(own.again(own.again(x[:, 2])))
        return (left * right).sum(1) + own.top(again)[:, 0]

    return Over(Of(forward, tower=mlp(DIM, 12, 6), again=nn.Linear(DIM, DIM), top=nn.Linear(DIM, 1)))


def einsum_and_matmul() -> nn.Module:
    def forward(own: Any, x: torch.Tensor) -> torch.Tensor:
        fewer = torch.einsum("bnd,nm->bmd", x, own.compress)
        pairs = torch.einsum("bnd,bmd->bnm", x, fewer)
        each = torch.einsum("bnd,ndk->bnk", x, own.of_features)
        return own.top(torch.cat([pairs.flatten(1), each.flatten(1), (x @ own.plain).flatten(1)], dim=1))

    parts = {"compress": nn.Parameter(torch.ones(3, 2)), "of_features": nn.Parameter(torch.ones(3, DIM, 5))}
    plain = nn.Parameter(torch.ones(DIM, 4))
    return Over(Of(forward, **parts, plain=plain, top=nn.Linear(6 + 15 + 12, 1)))


def convolution() -> nn.Module:
    return Over(nn.Sequential(nn.Conv1d(3, 5, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(5 * DIM, 1)))


def recurrent() -> nn.Module:
    return Over(
        Of(lambda own, x: own.top(own.gru(x)[0][:, -1]), gru=nn.GRU(DIM, 9, batch_first=True), top=nn.Linear(9, 1))
    )


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(DIM, 4, 32, batch_first=True)
    return Over(
        Of(lambda own, x: own.top(own.layers(x).mean(1)), layers=nn.TransformerEncoder(layer, 2), top=mlp(DIM, 1))
    )


class Attention(nn.Module):
    """Grouped queries by torch's kernel, or by hand."""

    def __init__(self, kv_heads: int, by_hand: bool, fused: bool = False) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.by_hand, self.fused = 4, kv_heads, by_hand, fused
        self.queries, self.output = nn.Linear(DIM, 4 * 6), nn.Linear(4 * 6, DIM)
        self.keys, self.values = nn.Linear(DIM, kv_heads * 6), nn.Linear(DIM, kv_heads * 6)
        if fused:
            self.queries = nn.Linear(DIM, 3 * 24)
            del self.keys, self.values

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def split(numbers: torch.Tensor) -> torch.Tensor:
            apart = numbers.unflatten(-1, (-1, 6)).transpose(1, 2)
            return apart.repeat_interleave(4 // apart.shape[1], dim=1)

        three = self.queries(x).chunk(3, -1) if self.fused else (self.queries(x), self.keys(x), self.values(x))
        q, k, v = map(split, three)
        if self.by_hand:
            mixed = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / 6**0.5, dim=-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        return x + self.output(mixed.transpose(1, 2).flatten(2))


def grouped_attention() -> nn.Module:
    return Over(
        nn.Sequential(
            Attention(2, False), Attention(4, True), Attention(4, False, True), nn.Flatten(), nn.Linear(48, 1)
        )
    )


class History(nn.Module):
    """A target looks at a history that is padded."""

    def __init__(self) -> None:
        super().__init__()
        self.bags, self.items = bags((DIM,)), histories()
        self.mix, self.numerical = nn.MultiheadAttention(DIM, 2, batch_first=True), mlp(2 * DIM + 5, 8, 1)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor, seen: KeyedJaggedTensor) -> torch.Tensor:
        target = self.bags(sparse).to_dict()["f0"]
        places = self.items(seen)["seen"].to_padded_dense(20)
        mixed, _ = self.mix(target.unsqueeze(1), places, places)
        return self.numerical(torch.cat([target, mixed[:, 0], dense], dim=1))


def history() -> nn.Module:
    return History()


class Processed(nn.Module):
    """Features that are processed before the lookup, by weights that are trained."""

    def __init__(self) -> None:
        super().__init__()
        config = EmbeddingBagConfig(num_embeddings=50, embedding_dim=DIM, name="t0", feature_names=["f0"])
        weights = PositionWeightedModuleCollection({"f0": 10})
        tables = EmbeddingBagCollection(tables=[config], is_weighted=True)
        self.bags, self.top = FeatureProcessedEmbeddingBagCollection(tables, weights), nn.Linear(DIM, 1)

    def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
        return self.top(self.bags(sparse).values())


def processed() -> nn.Module:
    return Processed()


class TwoInputs(nn.Module):
    """Two tensors of numbers, whose widths nobody can tell; features of several widths; modules that nothing calls."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = bags((8, 16, 16))
        self.first, self.second, self.top = mlp(3, 8), mlp(5, 8), nn.Linear(8, 1)
        self.never, self.frozen = nn.Linear(4, 4), nn.Linear(8, 8).requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, a: torch.Tensor, b: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        vectors = self.bags(sparse)
        gate = torch.sigmoid(self.frozen(vectors["f0"])) * self.scale
        return self.top(gate * self.first(a) + self.second(b) * vectors["f1"][:, :8])


def two_inputs() -> tuple[nn.Module, dict[str, Any]]:
    return TwoInputs(), {"a": torch.zeros(4, 3), "b": torch.zeros(4, 5), "sparse": ids(("f0", "f1", "f2"), 4)}


class Cross(nn.Module):
    """DCNv2 from linear layers, and a factorization machine of Wukong."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(48, 6, bias=False) for _ in range(3))
        self.outer = nn.ModuleList(nn.Linear(6, 48) for _ in range(3))
        self.project = nn.Parameter(torch.ones(3, 2))
        self.norm, self.mlp, self.top = nn.LayerNorm(6), mlp(6, 20, 32), nn.Linear(48 + 32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = last = x.flatten(1)
        for inner, outer in zip(self.inner, self.outer, strict=True):
            last = first * outer(inner(last)) + last
        products = x @ (x.transpose(1, 2) @ self.project)
        return self.top(torch.cat([last, self.mlp(self.norm(products.flatten(1)))], dim=1))


def cross_and_machine() -> nn.Module:
    return Over(Cross())


def half_precision() -> nn.Module:
    over = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 1)).to(torch.bfloat16)
    return Over(Of(lambda own, x: own.over(x.bfloat16()), over=over))


def causal() -> nn.Module:
    def forward(own: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = own.three(x).unflatten(-1, (3, 2, 8)).unbind(2)
        mixed = functional.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)), is_causal=True)
        return own.output(mixed.transpose(1, 2).flatten(2)).mean(1)

    return Over(Of(forward, three=nn.Linear(DIM, 48), output=nn.Linear(16, DIM)))


def no_forward() -> nn.Module:
    return nn.ModuleDict({"bags": bags(), "over": nn.Linear(3, 5)})


def numbers_decide() -> nn.Module:
    """A forward pass that depends on what is computed."""

    def forward(own: Any, x: torch.Tensor) -> torch.Tensor:
        return own.top(x.flatten(1)) if x.sum() > 0 else x.sum(1)

    return Over(Of(forward, top=nn.Linear(48, 1)))


def takes_a_number(count: int = 3) -> nn.Module:
    class Counts(Over):
        def forward(self, sparse: KeyedJaggedTensor, count: int) -> torch.Tensor:
            return super().forward(sparse) * count

    return Counts(nn.Linear(DIM, 1))


def of_two_types() -> nn.Module:
    return Over(
        nn.Sequential(nn.Flatten(), nn.Linear(48, 8), Of(lambda _, x: x.bfloat16()), nn.Linear(8, 1).bfloat16())
    )


def batch_of(name: str, samples: int) -> tuple[Any, ...]:
    """What the forward pass of a model takes."""
    numbers, sparse = torch.zeros(samples, NUMERICAL), ids(("f0", "f1", "f2"), samples)
    if name == "processed":
        return (ids(("f0",), samples),)
    if name == "history":
        return torch.zeros(samples, 5), ids(("f0",), samples), ids(("seen",), samples)
    return (numbers, sparse) if name.startswith(("dlrm", "simple")) else (sparse,)


MODELS = [
    *(
        dlrm,
        dlrm_dcn,
        dlrm_projection,
        simple_deep_fm,
        deep_fm,
        batch_norm_and_dropout,
        layer_norms,
        rms_norm_and_prelu,
    ),
    *(branches_that_rejoin, shared_weights, einsum_and_matmul, convolution, recurrent, transformer, grouped_attention),
    *(processed, history, two_inputs, cross_and_machine, half_precision),
]


ready = dlrm()
