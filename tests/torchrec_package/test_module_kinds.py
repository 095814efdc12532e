"""Every kind of module that TorchRec shards: planned as its planner plans them, and trained over gloo."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_inference import rounded_row_size_in_bytes
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection, KeyedJaggedTensor
from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerCollectionSharder, EmbeddingTowerSharder
from torchrec.distributed.embeddingbag import EmbeddingBagSharder
from torchrec.distributed.fused_embedding import FusedEmbeddingCollectionSharder
from torchrec.distributed.itep_embeddingbag import ITEPEmbeddingBagCollectionSharder, ITEPEmbeddingCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.pec_embedding import PECEmbeddingCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.quant_embeddingbag import QuantFeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.modules.embedding_configs import (
    DataType,
    EmbeddingBagConfig,
    EmbeddingConfig,
    data_type_to_sparse_type,
)
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection, FusedEmbeddingCollection
from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
from torchrec.modules.itep_embedding_modules import ITEPEmbeddingBagCollection, ITEPEmbeddingCollection
from torchrec.modules.itep_modules import GenericITEPModule
from torchrec.modules.mc_embedding_modules import (
    ManagedCollisionEmbeddingBagCollection,
    ManagedCollisionEmbeddingCollection,
)
from torchrec.modules.mc_modules import LFU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule
from torchrec.modules.pec_embedding_modules import PECEmbeddingCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.quant import embedding_modules as quant

from benchmarks.gloo.processes import Processes
from planner.integrations.torchrec import to_sharding_plan
from planner.integrations.torchrec_planner import ShardPlanner
from planner.verification.verify import verify
from topologies.errors import InputError

ROWS, DIM, BATCH, STEPS = 96, 16, 8, 8
META, CPU = torch.device("meta"), torch.device("cpu")
GPUS = Topology(world_size=4, local_world_size=2, compute_device="cuda")
CPUS = Topology(world_size=2, local_world_size=2, compute_device="cpu")


def sharders() -> list[Any]:
    """Those of TorchRec's, with those that are none of its default ones."""
    more = [EmbeddingTowerSharder(), EmbeddingTowerCollectionSharder(), EmbeddingBagSharder()]
    more += [PECEmbeddingCollectionSharder(), QuantFeatureProcessedEmbeddingBagCollectionSharder()]
    more += [ITEPEmbeddingBagCollectionSharder(), ITEPEmbeddingCollectionSharder(), FusedEmbeddingCollectionSharder()]
    return get_default_sharders() + more


def all_alike(weights: torch.Tensor) -> torch.Tensor:
    return nn.init.constant_(weights, 0.1)


def tables(kind: type, names: str, **more: Any) -> list[Any]:
    return [
        kind(
            num_embeddings=ROWS,
            embedding_dim=DIM,
            name=name,
            feature_names=[f"f_{name}"],
            init_fn=all_alike,
            **more,
        )
        for name in names
    ]


def bags(names: str = "ab", **more: Any) -> EmbeddingBagCollection:
    return EmbeddingBagCollection(tables=tables(EmbeddingBagConfig, names), device=META, **more)


def sequences(names: str = "ab") -> EmbeddingCollection:
    return EmbeddingCollection(tables=tables(EmbeddingConfig, names), device=META)


def processed() -> FeatureProcessedEmbeddingBagCollection:
    positions = PositionWeightedModuleCollection({"f_a": 3, "f_b": 3}, device=CPU)
    return FeatureProcessedEmbeddingBagCollection(bags(is_weighted=True), positions)


class Interaction(nn.Module):
    """What a tower makes of its vectors."""

    def __init__(self, names: str) -> None:
        super().__init__()
        self.layer = nn.Linear(DIM * len(names), 4, device=CPU)
        for parameter in self.layer.parameters():
            nn.init.constant_(parameter, 0.05)

    def forward(self, vectors: Any) -> torch.Tensor:
        return self.layer(vectors.values())


def tower(names: str = "ab") -> EmbeddingTower:
    return EmbeddingTower(bags(names), Interaction(names))


def managed(configs: list[Any]) -> ManagedCollisionCollection:
    """Maps of ids to rows, in as many buckets as there are ranks: hashed (MPZCH), and of the ids seen most."""
    hashed = HashZchManagedCollisionModule(ROWS, CPU, total_num_buckets=4, input_hash_size=4000)
    counted = MCHManagedCollisionModule(ROWS, CPU, LFU_EvictionPolicy(), 1, input_hash_size=4000, buckets=4)
    return ManagedCollisionCollection({"a": hashed, "b": counted}, configs)


def pruning() -> GenericITEPModule:
    return GenericITEPModule({"a": ROWS, "b": ROWS}, enable_pruning=False)


def fused(kind: type, config: type) -> nn.Module:
    return kind(tables(config, "ab"), torch.optim.SGD, {"lr": 0.1}, device=META)


def quantized(kind: type, config: type, data_type: DataType = DataType.INT8, **more: Any) -> nn.Module:
    return kind(tables(config, "ab", data_type=data_type), device=CPU, **more)


KINDS: Mapping[str, Callable[[], nn.Module]] = {
    "bags": bags,
    "weighted": lambda: bags(is_weighted=True),
    "sequences": sequences,
    "processed": processed,
    "tower": tower,
    "towers": lambda: EmbeddingTowerCollection([tower("ab"), tower("c")]),
    "fused_bags": lambda: fused(FusedEmbeddingBagCollection, EmbeddingBagConfig),
    "fused_sequences": lambda: fused(FusedEmbeddingCollection, EmbeddingConfig),
    "pruned_bags": lambda: ITEPEmbeddingBagCollection(bags(), pruning()),
    "pruned_sequences": lambda: ITEPEmbeddingCollection(sequences(), pruning()),
    "managed_bags": lambda: ManagedCollisionEmbeddingBagCollection(bags(), managed(tables(EmbeddingBagConfig, "ab"))),
    "managed_sequences": lambda: ManagedCollisionEmbeddingCollection(
        sequences(), managed(tables(EmbeddingConfig, "ab"))
    ),
    "prioritized": lambda: PECEmbeddingCollection(sequences()),
    "one_bag": lambda: nn.EmbeddingBag(ROWS, DIM, device=META),
    "quantized_bags": lambda: quantized(quant.EmbeddingBagCollection, EmbeddingBagConfig, is_weighted=False),
    "quantized_bags_of_4_bits": lambda: quantized(
        quant.EmbeddingBagCollection, EmbeddingBagConfig, DataType.INT4, is_weighted=False
    ),
    "quantized_bags_of_2_bits": lambda: quantized(
        quant.EmbeddingBagCollection, EmbeddingBagConfig, DataType.INT2, is_weighted=True
    ),
    "quantized_sequences_of_4_bits": lambda: quantized(quant.EmbeddingCollection, EmbeddingConfig, DataType.INT4),
    "quantized_sequences": lambda: quantized(quant.EmbeddingCollection, EmbeddingConfig),
    "quantized_processed": lambda: quantized(
        quant.FeatureProcessedEmbeddingBagCollection,
        EmbeddingBagConfig,
        is_weighted=True,
        feature_processor=PositionWeightedModuleCollection({"f_a": 3, "f_b": 3}, device=CPU),
    ),
    "quantized_managed": lambda: quantized(
        quant.QuantManagedCollisionEmbeddingCollection,
        EmbeddingConfig,
        managed_collision_collection=managed(tables(EmbeddingConfig, "ab", data_type=DataType.INT8)),
    ),
}


class Model(nn.Module):
    """One module among others."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.emb = KINDS[kind]()

    def forward(self, ids: KeyedJaggedTensor) -> list[torch.Tensor]:
        """Its vectors, [samples or ids, DIM x features]."""
        found = self.emb(ids)
        if hasattr(found, "to_dict"):
            return list(found.to_dict().values())
        return [found] if isinstance(found, torch.Tensor) else [each.values() for each in found.values()]


@pytest.mark.parametrize("kind", KINDS)
def test_what_torchrecs_planner_plans_is_planned(kind: str) -> None:
    """The same tables of the same modules, in shardings and kernels that sharders offer; the document verifies."""
    model, known = Model(kind), sharders()
    theirs = EmbeddingShardingPlanner(topology=GPUS).plan(model, known).plan
    planner = ShardPlanner(GPUS)
    ours = planner.plan(model, known).plan
    assert {path: set(of) for path, of in ours.items()} == {path: set(of) for path, of in theirs.items()}
    assert verify(planner.document) == []
    for path, of_module in ours.items():
        sharder = next(
            each for each in known if type(each.module_type) and each.module_type is type(model.get_submodule(path))
        )
        for sharding in of_module.values():
            assert sharding.sharding_type in sharder.sharding_types("cuda")
            assert sharding.compute_kernel in sharder.compute_kernels(sharding.sharding_type, "cuda")
    if kind.startswith("quantized"):
        assert planner.document.provenance.workload.content["mode"] == "inference"


def test_the_tables_of_a_tower_share_a_host() -> None:
    """Each tower's on one, whichever: its interaction is computed there."""
    found = ShardPlanner(GPUS).plan(Model("towers"), sharders()).plan["emb"]
    hosts = {name: {rank // GPUS.local_world_size for rank in sharding.ranks} for name, sharding in found.items()}
    assert len(hosts["a"]) == 1
    assert hosts["a"] == hosts["b"]
    assert len(hosts["c"]) == 1


def test_a_sharder_shards_the_tables_that_it_lists() -> None:
    """One that leaves tables out has them left out; modules without a sharder stay as they are."""

    class OnlyA(type(get_default_sharders()[0])):  # type: ignore[misc]
        def shardable_parameters(self, module: nn.Module) -> dict[str, nn.Parameter]:
            return {"a": super().shardable_parameters(module)["a"]}

    model = nn.ModuleDict({"bags": bags(), "sequences": sequences()})
    found = ShardPlanner(GPUS).plan(model, [OnlyA()]).plan
    assert {path: list(of) for path, of in found.items()} == {"bags": ["a"]}


def test_what_it_cannot_plan_is_refused_by_name() -> None:
    """Towers that do not pool, virtual tables, dynamic ones, quantized ones beside others that train."""
    towers = nn.ModuleDict({"t": EmbeddingTower(sequences(), nn.Linear(2, 2))})
    with pytest.raises(InputError, match=r"t: is a .*EmbeddingTower: it has a collection that does not pool"):
        ShardPlanner(GPUS).plan(towers, sharders())
    endless = tables(EmbeddingConfig, "a", use_virtual_table=True, total_num_buckets=4)
    virtual = nn.ModuleDict({"v": EmbeddingCollection(tables=endless, device=META)})
    with pytest.raises(InputError, match=r"v: is a .*EmbeddingCollection: a use virtual tables, whose memory follows"):
        ShardPlanner(GPUS).plan(virtual, sharders())
    growing = type(
        "DynamicEmbeddingCollectionSharder", (type(get_default_sharders()[0]),), {"__module__": "dynamicemb.shard"}
    )
    with pytest.raises(InputError, match=r"emb: .*dynamicemb.*plan it with DynamicEmbeddingShardingPlanner"):
        ShardPlanner(GPUS).plan(Model("bags"), [growing()])
    mixed = nn.ModuleDict({"q": KINDS["quantized_bags"](), "b": bags("c")})
    with pytest.raises(
        InputError, match="q: is quantized and answers only, and other collections train; plan them apart"
    ):
        ShardPlanner(GPUS).plan(mixed, sharders())


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("key_value", "keeps rows on an SSD behind a cache"),
        ("dram_virtual_table", "keeps the ids that were seen in host memory"),
        ("ssd_virtual_table", "keeps the ids that were seen on an SSD"),
        ("dram_ssd_virtual_table", "keeps the ids that were seen in host memory and on an SSD"),
    ],
)
def test_kernels_that_no_plan_has_are_refused_with_the_reason(kernel: str, reason: str) -> None:
    """Where constraints name nothing else; beside others, those are planned."""
    constraints = {"a": ParameterConstraints(compute_kernels=[kernel])}
    with pytest.raises(InputError, match=f"a: has constraints that leave no kernel of {kernel} .*: {kernel} {reason}"):
        ShardPlanner(GPUS, constraints=constraints).plan(Model("bags"))
    either = {"a": ParameterConstraints(compute_kernels=[kernel, "fused_uvm"])}
    assert ShardPlanner(GPUS, constraints=either).plan(Model("bags")).plan["emb"]["a"].compute_kernel == "fused_uvm"


def test_constraints_of_dynamic_tables_are_refused_by_name() -> None:
    """As NVIDIA recsys-examples says them; tables that it leaves static are planned."""

    @dataclass
    class Growing(ParameterConstraints):
        use_dynamicemb: bool = False

    with pytest.raises(InputError, match="a: use_dynamicemb: is a constraint that ShardPlanner does not know"):
        ShardPlanner(GPUS, constraints={"a": Growing(use_dynamicemb=True)}).plan(Model("bags"))
    found = ShardPlanner(GPUS, constraints={"a": Growing(sharding_types=["row_wise"])}).plan(Model("bags"))
    assert found.plan["emb"]["a"].sharding_type == "row_wise"


def test_shards_of_quantized_tables_are_in_numbers() -> None:
    """Widths are those of the vectors, which TorchRec turns into bytes when it shards; kernels are quantized ones."""
    kernels = {"a": "quant_uvm", "b": "quant"}
    constraints = {
        name: ParameterConstraints(sharding_types=["table_wise"], compute_kernels=[kernel])
        for name, kernel in kernels.items()
    }
    found = ShardPlanner(GPUS, constraints=constraints).plan(Model("quantized_bags"), sharders()).plan["emb"]
    assert {name: sharding.compute_kernel for name, sharding in found.items()} == kernels
    for sharding in found.values():
        assert [shard.shard_sizes for shard in sharding.sharding_spec.shards] == [[ROWS, DIM]]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.INT4, DataType.INT2])
@pytest.mark.parametrize("columns", [4, 20, 64, 100])
def test_rows_of_quantized_tables_take_what_fbgemm_allots(data_type: DataType, device: str, columns: int) -> None:
    """Numbers, scale and bias, padded to 16 bytes on GPUs alone; of INT8 on CPU, 4 bytes more."""
    rows = 1000
    topology = Topology(world_size=2, local_world_size=2, compute_device=device, hbm_cap=2**30)
    config = EmbeddingBagConfig(
        num_embeddings=rows, embedding_dim=columns, name="a", feature_names=["f"], data_type=data_type
    )
    model = nn.ModuleDict({"emb": quant.EmbeddingBagCollection([config], is_weighted=False, device=CPU)})
    told = ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["quant"])
    planner = ShardPlanner(topology, batch_size=1, constraints={"a": told})
    planner.plan(model, sharders())
    row = rounded_row_size_in_bytes(columns, data_type_to_sparse_type(data_type), 16 if device == "cuda" else 1)
    more = 4 if device == "cpu" and data_type is DataType.INT8 else 0
    held = [rank.bytes.hbm for rank in planner.document.ranks]
    in_flight = 4096
    assert 0 <= max(held) - min(held) - rows * (row + more) <= in_flight
    found = to_sharding_plan(planner.document, model, compute_device=device, sharders=sharders()).plan["emb"]
    assert [shard.shard_sizes for shard in found["a"].sharding_spec.shards] == [[rows, columns]]


def test_replicas_of_fused_bags_are_refused_on_cpu() -> None:
    """There TorchRec's collection hands DistributedDataParallel a device that it does not take."""
    told = {name: ParameterConstraints(sharding_types=["data_parallel"]) for name in "ab"}
    model, known = Model("fused_bags"), sharders()
    with pytest.raises(InputError, match="data_parallel does not run on CPU in a FusedEmbeddingBagCollection"):
        ShardPlanner(CPUS, constraints=told).plan(model, known)
    planner = ShardPlanner(GPUS, constraints=told)
    planner.plan(model, known)
    assert to_sharding_plan(planner.document, model, compute_device="cuda", sharders=known).plan["emb"]
    with pytest.raises(InputError, match="a: is data_parallel; a FusedEmbeddingBagCollection has no replicas on CPU"):
        to_sharding_plan(planner.document, model, compute_device="cpu", sharders=known)


def samples_of(kind: str) -> list[int]:
    """Of each feature, on one rank."""
    return [BATCH, BATCH // 2] if kind == "variable" else [BATCH, BATCH]


def batch(kind: str, rank: int) -> KeyedJaggedTensor:
    """Two or three ids a sample, with weights where a model takes them; `variable`: fewer samples of one feature."""
    draw = torch.Generator().manual_seed(rank)
    samples = samples_of(kind)
    lengths = torch.randint(2, 4, (sum(samples),), generator=draw)
    count = int(lengths.sum())
    ids = torch.randint(0, ROWS, (count,), generator=draw)
    if kind == "variable":
        inverse = torch.stack([torch.arange(BATCH) % each for each in samples])
        strides = [[each] for each in samples]
        return KeyedJaggedTensor(
            ["f_a", "f_b"],
            ids,
            None,
            lengths,
            stride_per_key_per_rank=strides,
            inverse_indices=(["f_a", "f_b"], inverse),
        )
    weights = torch.rand(count, generator=draw) if kind == "weighted" else None
    return KeyedJaggedTensor(["f_a", "f_b"], ids, weights, lengths)


def losses(kind: str, ours: bool) -> list[float]:
    """Of each step on one rank, by the plan of ours or of TorchRec's planner."""
    model, known, rank = Model("bags" if kind == "variable" else kind), sharders(), torch.distributed.get_rank()
    if not kind.startswith("fused"):
        sparse = [parameter for name, parameter in model.named_parameters() if "embedding" in name]
        apply_optimizer_in_backward(torch.optim.SGD, sparse, {"lr": 0.5})
    samples = {name: [count] for name, count in zip("ab", samples_of(kind), strict=True)}
    own = {name: ParameterConstraints(batch_sizes=counts, num_poolings=[1.0]) for name, counts in samples.items()}
    constraints = own if kind == "variable" else None
    planner = (ShardPlanner if ours else EmbeddingShardingPlanner)(
        topology=CPUS, batch_size=BATCH, constraints=constraints
    )
    plan = planner.collective_plan(model, known, torch.distributed.GroupMember.WORLD)
    whole = DistributedModelParallel(model, device=CPU, plan=plan, sharders=known)
    rest = dict(in_backward_optimizer_filter(whole.named_parameters()))
    optimizer = KeyedOptimizerWrapper(rest, lambda own: torch.optim.SGD(own, lr=0.5)) if rest else None
    ids, found = batch(kind, rank), []
    for _ in range(STEPS):
        vectors = whole(ids)
        loss = sum(((each - torch.linspace(0, 1, each.shape[1])) ** 2).mean() for each in vectors)
        if optimizer:
            optimizer.zero_grad()
        loss.backward()
        if optimizer:
            optimizer.step()
        found.append(float(loss))
    return found


RUN = ("bags", "weighted", "variable", "sequences", "processed", "fused_bags")
"""Those that TorchRec executes on CPUs."""


@pytest.mark.parametrize("kind", RUN)
def test_training_by_our_plan_is_training_by_theirs(kind: str, two_ranks: Processes) -> None:
    """Losses of 8 steps on 2 processes are those of the plan of TorchRec's planner, and fall."""
    theirs, ours = (two_ranks.run(losses, kind, is_ours) for is_ours in (False, True))
    for expected, found in zip(theirs, ours, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        assert found[-1] < found[0]
