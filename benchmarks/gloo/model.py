"""A model of a workload's tables in TorchRec, its batches and its first weights."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection, KeyedJaggedTensor
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig

from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile

Vectors = dict[str, torch.Tensor]


def _place(table: TableProfile) -> tuple[str, str]:
    """(module, name) of a table: `a.t` is `t` of `a`."""
    module, _, name = table.name.rpartition(".")
    return module or "tables", name


def feature_names(table: TableProfile) -> list[str]:
    """Those of a table's inputs."""
    if not isinstance(table.features, int):
        return list(table.features)
    name = table.name.replace(".", "_")
    return [f"{name}_f{i}" for i in range(table.features)]


class Tables(nn.Module):
    """Collections of a workload's tables, and a network on their vectors.

    Tables of one collection are all pooled or none, all weighted or none.
    """

    def __init__(self, workload: Workload, device: str, width: int = 0) -> None:
        super().__init__()
        self.names = {
            name: [table for table in workload.tables if _place(table)[0] == name] for name in _modules(workload)
        }
        for module, tables in self.names.items():
            self.add_module(module, _collection(tables, torch.device(device)))
        total = sum(table.dim * len(feature_names(table)) for table in workload.tables)
        layers = [nn.Linear(total, width), nn.ReLU(), nn.Linear(width, 1)] if width else [nn.Linear(total, 1)]
        self.over = nn.Sequential(*layers)

    def forward(self, ids: Mapping[str, KeyedJaggedTensor]) -> tuple[torch.Tensor, Vectors]:
        """One number per sample, and the vectors of each feature: a sharded module orders its columns by sharding."""
        vectors: Vectors = {}
        summed = []
        for module, tables in self.names.items():
            found = getattr(self, module)(ids[module])
            pooled = found.to_dict() if tables[0].pooled else found
            for feature in (feature for table in tables for feature in feature_names(table)):
                if tables[0].pooled:
                    vectors[feature] = pooled[feature]
                    summed.append(pooled[feature])
                else:
                    jagged = pooled[feature]
                    vectors[feature] = jagged.values()
                    samples = torch.repeat_interleave(torch.arange(len(jagged.lengths())), jagged.lengths())
                    zeros = jagged.values().new_zeros(len(jagged.lengths()), jagged.values().shape[1])
                    summed.append(zeros.index_add(0, samples, jagged.values()))
        return self.over(torch.cat(summed, dim=1)), vectors


def _modules(workload: Workload) -> list[str]:
    return list(dict.fromkeys(_place(table)[0] for table in workload.tables))


def _collection(tables: list[TableProfile], device: torch.device) -> nn.Module:
    def config(kind: type, table: TableProfile) -> EmbeddingBagConfig | EmbeddingConfig:
        return kind(
            num_embeddings=table.rows,
            embedding_dim=table.dim,
            name=_place(table)[1],
            feature_names=feature_names(table),
        )

    if tables[0].pooled:
        configs = [config(EmbeddingBagConfig, table) for table in tables]
        return EmbeddingBagCollection(device=device, tables=configs, is_weighted=tables[0].weighted)
    return EmbeddingCollection(device=device, tables=[config(EmbeddingConfig, table) for table in tables])


@dataclass(frozen=True)
class Draw:
    """Which ids are drawn: those of a rank's samples in a step."""

    batch: int
    step: int
    rank: int
    variable: bool = True
    """Whether bags differ in length, empty ones among them; their mean is the table's pooling factor."""


def batch_of(workload: Workload, draw: Draw) -> dict[str, KeyedJaggedTensor]:
    """Ids by module."""
    generator = torch.Generator().manual_seed(1000 * draw.step + draw.rank)
    found = {}
    for module in _modules(workload):
        keys, lengths, values, weights = [], [], [], []
        for table in (table for table in workload.tables if _place(table)[0] == module):
            for feature in feature_names(table):
                mean = table.pooling_factor / len(feature_names(table))
                count = torch.full((draw.batch,), round(mean))
                if draw.variable:
                    count = torch.randint(0, 2 * max(1, round(mean)) + 1, (draw.batch,), generator=generator)
                keys.append(feature)
                lengths.append(count)
                values.append(torch.randint(0, table.rows, (int(count.sum()),), generator=generator))
                weights.append(torch.rand(int(count.sum()), generator=generator))
        weighted = any(table.weighted for table in workload.tables if _place(table)[0] == module)
        found[module] = KeyedJaggedTensor.from_lengths_sync(
            keys, torch.cat(values), torch.cat(lengths), weights=torch.cat(weights) if weighted else None
        )
    return found


def first_weights(workload: Workload, width: int = 0) -> dict[str, torch.Tensor]:
    """Weights to begin with, by their names in an unsharded model."""
    torch.manual_seed(7)
    state = Tables(workload, "cpu", width).state_dict()
    return {name: 0.1 * torch.randn_like(value) for name, value in state.items()}
