"""Plans by rules in TorchRec's DMPCollection: each type of module in groups of its own."""

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from test_replica_groups import _shards
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection, KeyedJaggedTensor
from torchrec.distributed import model_parallel
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DMPCollection
from torchrec.distributed.planner import Topology
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.types import ShardingPlan, ShardingStrategy
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from benchmarks.gloo.copies import OnCpus
from benchmarks.gloo.processes import Processes
from planner.document.plan import Plan
from planner.exporters.torchrec import torchrec_plan
from planner.formulation.policy import Policy
from planner.formulation.replica_choices import ReplicaChoices
from planner.integrations.torchrec import to_sharding_plan, to_submodule_configs
from planner.integrations.torchrec_planner import ShardPlanner
from planner.planning.planning import plan
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError
from topologies.replica_groups import ranks_of_groups

ROWS, COLUMNS = (400, 960, 640, 320), 16
FEW, MORE = 2, 4
"""Copies of tables of bags, and of sequences."""


class Model(nn.Module):
    """Bags and sequences, in a module each."""

    def __init__(self) -> None:
        super().__init__()
        meta = torch.device("meta")
        self.bags = EmbeddingBagCollection(device=meta, tables=[_config(EmbeddingBagConfig, i) for i in (0, 1)])
        self.sequences = EmbeddingCollection(device=meta, tables=[_config(EmbeddingConfig, i) for i in (2, 3)])


def _config(kind: Any, number: int) -> Any:
    name = f"t{number}"
    return kind(num_embeddings=ROWS[number], embedding_dim=COLUMNS, name=name, feature_names=[f"f_{name}"])


def planned(ranks: int = 8, strategy: str = "default", layout: str = "intra", nodes: int = 2, **more: Any) -> Plan:
    """A plan for nodes of so many ranks."""
    profiles = [
        {"name": f"t{i}", "rows": rows, "dim": COLUMNS, "pooled": i < 2, "optimizer": "adagrad"}
        for i, rows in enumerate(ROWS)
    ]
    rules = [{"tables": ["t2", "t3"], "factor": MORE}]
    copies = {"factor": FEW, "sync_every": 5 if strategy == "default" else 1, "strategy": strategy, "rules": rules}
    copies["layout"] = layout
    policy = {"runtime": "torchrec", "replicas": copies} | more
    cluster = topology(node_group("n", nodes=nodes, ranks=ranks))
    trained = workload(profiles, software="torchrec")
    return plan(cluster, trained, policy=Policy.model_validate(policy), effort=0, simulate=False)


def dealt(before: ShardingPlan, rank: int, world: int, group: int, *, inter: bool) -> ShardingPlan:
    after, itself = copy.deepcopy(before), SimpleNamespace(_device=torch.device("cuda"))
    remap = {"rank": rank, "step": world // group, "sharding_group_size": group}
    DMPCollection._remap_sharding_plan(itself, after, use_inter_host_allreduce=inter, **remap)
    return after


@pytest.mark.parametrize("strategy", ["default", "fully_sharded"])
@pytest.mark.parametrize("shardings", [["table_wise"], ["row_wise"], ["column_wise", "table_wise"]])
@pytest.mark.parametrize(("layout", "nodes", "on_node"), [("intra", 2, 8), ("inter", 4, 4)])
def test_each_type_of_module_is_dealt_out_to_groups_of_its_own(
    layout: str, nodes: int, on_node: int, shardings: list[str], strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every rank, `_remap_sharding_plan` with the arguments that are exported puts each shard where the plan has
    it, and the simulator."""
    made = planned(on_node, strategy, layout, nodes, shardings=shardings)
    assert verify(made) == []
    document = torchrec_plan(made, modules=["t[01]=bags", "t[23]=sequences"])
    groups = document["dmp_collection"]
    world, module = groups["world_size"], Model()
    of_node = on_node // FEW if layout == "intra" else on_node
    assert (world, groups["sharding_group_size"], groups["node_group_size"]) == (16, 16 // FEW, of_node)
    assert groups["use_inter_host_allreduce"] == (layout == "inter")
    whole = to_sharding_plan(document, module, compute_device="cuda")
    (config,) = to_submodule_configs(document, module, compute_device="cuda")
    assert config.module is EmbeddingCollection
    assert config.sharding_group_size == 16 // MORE
    assert config.use_inter_host_allreduce == (layout == "inter")
    assert config.sharding_strategy == ShardingStrategy(strategy)
    assert groups["sharding_strategy"] == config.sharding_strategy.name
    assert set(config.plan.plan) == {"sequences"}
    monkeypatch.setattr(model_parallel, "get_local_size", lambda: on_node)
    tables = {table.name: table.shards for table in made.tables}
    bases = ranks_of_groups(world, FEW, layout)
    for rank in range(world):
        of_bags = dealt(whole, rank, world, groups["sharding_group_size"], inter=groups["use_inter_host_allreduce"])
        own = dealt(config.plan, rank, world, config.sharding_group_size, inter=config.use_inter_host_allreduce)
        (base,) = (members for members in bases if rank in members)
        (of_copies,) = (members for members in ranks_of_groups(world, MORE, layout) if rank in members)
        for dealt_out, path, names, members in (
            (of_bags, "bags", ("t0", "t1"), base),
            (own, "sequences", ("t2", "t3"), of_copies),
        ):
            for name in names:
                after = dealt_out.plan[path][name]
                planned_ranks = base[tables[name].rank]
                kept = [each for each in planned_ranks.tolist() if each in members]
                assert after.ranks == kept
                assert [shard.placement.rank() for shard in after.sharding_spec.shards] == kept


def test_the_planner_of_one_module_refuses_rules() -> None:
    """It gives all tables as many copies."""
    choices = ReplicaChoices.model_validate({"factor": 1, "rules": [{"tables": "t0", "factor": 2}]})
    with pytest.raises(PlannerError, match="rules: the planner of one module"):
        ShardPlanner(Topology(world_size=4, compute_device="cpu"), replicas=choices)


def test_a_module_without_a_place_of_its_own_is_refused() -> None:
    """Where tables with different numbers of copies are not said to be in different modules."""
    with pytest.raises(InputError, match="say where each is"):
        torchrec_plan(planned())


def test_a_plan_that_torchrec_cannot_have_is_refused() -> None:
    """Tables of one type of module with different numbers of copies: when it is planned, and when it is exported."""
    rules = {"factor": FEW, "rules": [{"tables": "t0", "factor": MORE}]}
    with pytest.raises(InputError, match="tables of an EmbeddingBagCollection, and TorchRec's submodule_configs"):
        planned(replicas=rules)
    other = planned(replicas=rules, runtime="any", shardings=["table_wise"])
    with pytest.raises(InputError, match="EmbeddingBagCollection have more copies"):
        torchrec_plan(other, modules=["t[01]=bags", "t[23]=sequences"])


WORLD, BATCH, STEPS, RATE = 4, 6, 3, 0.1


def _batch(rank: int, step: int, tables: Sequence[int]) -> KeyedJaggedTensor:
    draw = torch.Generator().manual_seed(1000 * step + 10 * rank + tables[0])
    lengths = torch.randint(0, 4, (len(tables) * BATCH,), generator=draw)
    parts = zip(tables, lengths.split(BATCH), strict=True)
    ids = [torch.randint(0, ROWS[table], (int(n.sum()),), generator=draw) for table, n in parts]
    return KeyedJaggedTensor.from_lengths_sync([f"f_t{table}" for table in tables], torch.cat(ids), lengths)


def _losses(model: Any, rank: int, step: int) -> list[torch.Tensor]:
    bags = model.bags(_batch(rank, step, (0, 1))).to_dict()
    sequences = model.sequences(_batch(rank, step, (2, 3)))
    return [
        (torch.cat([bags["f_t0"], bags["f_t1"]], dim=1) ** 2).mean(),
        sum((sequences[f"f_t{table}"].values() ** 2).sum() for table in (2, 3)),
    ]


def _weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    paths = ("bags.embedding_bags",) * 2 + ("sequences.embeddings",) * 2
    return {f"{path}.t{table}.weight": torch.rand(ROWS[table], COLUMNS) for table, path in enumerate(paths)}


def trained(layout: str) -> dict[str, list[tuple[list[int], list[int], torch.Tensor]]]:
    """Shards of one rank after some steps, by table: offsets, sizes, weights."""
    rules = [{"tables": ["t2", "t3"], "factor": 2}]
    replicas = {"factor": 1, "layout": layout, "sync_every": 1, "rules": rules}
    made = planned(2, replicas=replicas, shardings=["table_wise", "column_wise"])
    document = torchrec_plan(made, modules=["t[01]=bags", "t[23]=sequences"], compute_device="cpu")
    model, groups = Model(), document["dmp_collection"]
    apply_optimizer_in_backward(torch.optim.Adagrad, model.parameters(), {"lr": RATE, "eps": 1e-8})

    def average(tensors: list[torch.Tensor]) -> None:
        context = whole._ctxs[0] if any(each is tensors for each in _tensors(whole._ctxs[0])) else whole._ctxs[1]
        for each in tensors:
            dist.all_reduce(each, group=context.replica_pg)
            each /= dist.get_world_size(context.replica_pg)

    names = ("world_size", "sharding_group_size", "node_group_size", "use_inter_host_allreduce")
    whole = OnCpus(
        model,
        torch.device("cpu"),
        to_sharding_plan(document, model),
        global_pg=dist.group.WORLD,
        sharders=[EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder()],
        custom_all_reduce=average,
        submodule_configs=to_submodule_configs(document, model),
        **{name: groups[name] for name in names},
    )
    with torch.no_grad():
        for name, held in whole.state_dict().items():
            for (row, column), (rows, columns), part in _shards(held):
                part.copy_(_weights()[name][row : row + rows, column : column + columns])
    for step in range(STEPS):
        sum(_losses(whole.module, dist.get_rank(), step)).backward()
        whole.sync()
    return {
        name: [(*shard[:2], shard[2].clone()) for shard in _shards(held)] for name, held in whole.state_dict().items()
    }


def _tensors(context: Any) -> list[list[torch.Tensor]]:
    return [*context.weights_by_dtype.values(), *context.optimizer_tensors_by_dtype.values()]


def reference(layout: str) -> dict[str, torch.Tensor]:
    """Weights of unsharded tables: of bags, of which there is one copy, and of sequences, of which there are two that
    are averaged after each step with Adagrad's sums."""
    weights = {name: value.clone() for name, value in _weights().items()}
    sums = {name: torch.zeros_like(value) for name, value in weights.items()}
    groups = {"bags": [[0, 1, 2, 3]], "sequences": ranks_of_groups(WORLD, 2, layout).tolist()}
    for step in range(STEPS):
        for place, (path, of_path) in enumerate(groups.items()):
            after = []
            for members in of_path:
                copied = {name: value.clone().requires_grad_() for name, value in weights.items()}
                losses = [_losses(_Unsharded(copied), rank, step)[place] for rank in members]
                torch.stack(losses).mean().backward()
                own = {name: each for name, each in copied.items() if name.startswith(path)}
                squares = {name: sums[name] + each.grad**2 for name, each in own.items()}
                after.append(
                    {
                        name: (each.detach() - RATE * each.grad / (squares[name].sqrt() + 1e-8), squares[name])
                        for name, each in own.items()
                    }
                )
            for name in after[0]:
                weights[name] = torch.stack([each[name][0] for each in after]).mean(0)
                sums[name] = torch.stack([each[name][1] for each in after]).mean(0)
    return weights


class _Unsharded:
    """Bags and sequences of given weights."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        meta = Model()
        bags = EmbeddingBagCollection(tables=meta.bags.embedding_bag_configs())
        sequences = EmbeddingCollection(tables=meta.sequences.embedding_configs())
        self.bags = self._with(bags, "bags.", weights)
        self.sequences = self._with(sequences, "sequences.", weights)

    def _with(self, module: nn.Module, path: str, weights: dict[str, torch.Tensor]) -> Any:
        own = {name.removeprefix(path): value for name, value in weights.items() if name.startswith(path)}
        return lambda ids: torch.func.functional_call(module, own, (ids,))


@pytest.mark.parametrize("layout", ["intra", "inter"])
def test_types_of_modules_train_as_copies_of_their_own(layout: str, four_unasserting_ranks: Processes) -> None:
    """One world for bags and two groups for sequences, in one DMPCollection over gloo: as the unsharded model, with the
    copies averaged."""
    found, expected = four_unasserting_ranks.run(trained, layout), reference(layout)
    for name, whole in expected.items():
        seen = torch.zeros_like(whole)
        for of_rank in found:
            for (row, column), (rows, columns), held in of_rank[name]:
                part = whole[row : row + rows, column : column + columns]
                torch.testing.assert_close(held, part, rtol=1e-5, atol=1e-6)
                seen[row : row + rows, column : column + columns] += 1
        assert (seen == (2 if name.startswith("sequences") else 1)).all()
