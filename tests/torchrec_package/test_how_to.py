"""The trainer of the how-to runs as it stands there; feature processors are sharded with their collections."""

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
import torch
from torch import nn
from torchrec import EmbeddingBagCollection, KeyedJaggedTensor
from torchrec.distributed.fp_embeddingbag import FeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection

from benchmarks.gloo.processes import Processes
from planner.integrations.torchrec_planner import ShardPlanner
from tests.torchrec_package.trainers import assign

ROOT = Path(__file__).parents[2]
ROWS = (40, 100, 301)
LONGEST = 4
WORLD = 2

SNAPSHOT = """
def held():
    parts = {}
    for name, value in whole.state_dict().items():
        shards = value.local_shards() if hasattr(value, "local_shards") else None
        for part in [value] if shards is None else [shard.tensor for shard in shards]:
            parts[name] = part.detach().clone()
    return parts


before = held()
"""
COMPARISON = """
for name, value in held().items():
    print("CHANGED", name, bool((before[name] != value).any()))
"""
THREADS = """
for thread in os.listdir("/proc/self/task"):
    with open(f"/proc/self/task/{thread}/comm") as file:
        print("WHEN", file.read())
"""


def trainer() -> str:
    text = (ROOT / "docs" / "how-to" / "torchrec.md").read_text()
    (found,) = (
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if block.startswith("# train.py")
    )
    return found


def run(program: str, folder: Path) -> str:
    """What two processes print, one after the other. They are started as torchrun does, but meet by a file: what a
    launcher's store serves, waits for a third process to be scheduled, on a busy machine for minutes."""
    started = 'dist.init_process_group("gloo")'
    assert program.count(started) == 1
    meeting = f'"file://{folder}/met?world_size={WORLD}&rank=" + __import__("os").environ["RANK"]'
    (folder / "train.py").write_text(program.replace(started, f"{started[:-1]}, init_method={meeting})"))
    (folder / "met").unlink(missing_ok=True)
    sizes = {"WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD)}
    shared = {**os.environ, **sizes, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(folder / "train.py")]
    ranks = []
    try:
        for rank in map(str, range(WORLD)):
            logs = (folder / f"rank{rank}.out").open("w"), (folder / f"rank{rank}.err").open("w")
            environment = {**shared, "RANK": rank, "LOCAL_RANK": rank}
            ranks.append(subprocess.Popen(command, env=environment, stdout=logs[0], stderr=logs[1]))
            for log in logs:
                log.close()
        codes = [each.wait(timeout=300) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
            each.wait()
    printed, errors = ([(folder / f"rank{n}.{kind}").read_text() for n in range(WORLD)] for kind in ("out", "err"))
    assert codes == [0] * WORLD, "\n".join(errors)[-3000:]
    return "".join(printed)


def observed() -> str:
    """The trainer, which also prints its threads, and of each parameter whether it has changed."""
    program = trainer()
    start, end, barrier = "    for step in range(20):", "\n\ndist.init_process_group(", "dist.barrier()"
    before, after = (indent(part, "    ") for part in (SNAPSHOT, COMPARISON))
    during, ended = (THREADS.replace("WHEN", word) for word in ("DURING", "AFTER"))
    for place, added in ((start, before + start), (end, after + end), (barrier, during + barrier)):
        assert program.count(place) == 1
        program = program.replace(place, added)
    return program + ended


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """By the trainer, pasted into a file."""
    return run(observed(), tmp_path_factory.mktemp("trainer"))


def test_the_trainer_of_the_how_to_runs(printed: str) -> None:
    """The loss falls, and the constraint is kept."""
    first, last = (float(loss) for loss in re.findall(r"loss ([\d.]+)", printed))
    assert last < 0.9 * first
    assert re.search(r"'user': '(row|table)_wise'", printed)


def test_no_thread_of_the_process_group_outlives_the_trainer_of_the_how_to(printed: str) -> None:
    """Nothing holds the group when it is destroyed: a thread that is left may abort the process as Python ends."""
    assert re.search("DURING .*gloo", printed)
    assert "AFTER" in printed
    assert not re.search("AFTER .*gloo", printed)


def test_the_trainer_of_the_how_to_trains_every_table(printed: str) -> None:
    """Sharded ones by the backward pass, replicated ones and the dense part by the other optimizer: all change."""
    assert "'shop': 'data_parallel'" in printed
    changed = dict(re.findall(r"CHANGED (\S+) (\w+)", printed))
    tables = {f"ebc.embedding_bags.{name}.weight" for name in ("user", "item", "shop")}
    assert changed.keys() == tables | {"over.weight", "over.bias"}
    assert set(changed.values()) == {"True"}


def test_a_table_without_an_optimizer_would_be_seen(tmp_path: Path) -> None:
    """Left out of the other optimizer, a replicated table does not change."""
    untrained = observed().replace("own.values()", "[p for name, p in own.items() if 'ebc' not in name]")
    assert "ebc.embedding_bags.shop.weight False" in run(untrained, tmp_path)


class Model(nn.Module):
    """Bags whose ids are weighted by their position."""

    def __init__(self, device: str) -> None:
        super().__init__()
        tables = [
            EmbeddingBagConfig(num_embeddings=rows, embedding_dim=16, name=f"t{i}", feature_names=[f"f{i}"])
            for i, rows in enumerate(ROWS)
        ]
        self.sparse = FeatureProcessedEmbeddingBagCollection(
            EmbeddingBagCollection(device=torch.device(device), tables=tables, is_weighted=True),
            PositionWeightedModuleCollection({f"f{i}": LONGEST for i in range(len(ROWS))}, device=torch.device("cpu")),
        )

    def forward(self, ids: KeyedJaggedTensor) -> torch.Tensor:
        """[batch, columns], features by name."""
        found = self.sparse(ids).to_dict()
        return torch.cat([found[f"f{i}"] for i in range(len(ROWS))], dim=1)


def _batch(rank: int) -> KeyedJaggedTensor:
    draw = torch.Generator().manual_seed(rank)
    lengths = torch.randint(0, LONGEST + 1, (len(ROWS) * 8,), generator=draw)
    parts = lengths.split(8)
    ids = [torch.randint(0, rows, (int(n.sum()),), generator=draw) for rows, n in zip(ROWS, parts, strict=True)]
    return KeyedJaggedTensor.from_lengths_sync([f"f{i}" for i in range(len(ROWS))], torch.cat(ids), lengths)


def _weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    return {name: torch.rand_like(value) for name, value in Model("cpu").state_dict().items()}


def _outputs() -> torch.Tensor:
    """Of one rank, by a plan of ours."""
    rank, sharders = torch.distributed.get_rank(), [FeatureProcessedEmbeddingBagCollectionSharder()]
    model = Model("meta")
    planner = ShardPlanner(Topology(world_size=2, local_world_size=2, compute_device="cpu"), batch_size=8)
    plan = planner.collective_plan(model, sharders, torch.distributed.group.WORLD)
    assert set(plan.plan) == {"sparse"}
    whole = DistributedModelParallel(model, device=torch.device("cpu"), plan=plan, sharders=sharders)
    with torch.no_grad():
        for name, held in whole.state_dict().items():
            assign(held, _weights()[name])
    return whole(_batch(rank)).detach()


def test_a_feature_processor_is_sharded_with_its_collection(two_ranks: Processes) -> None:
    """The collection is found behind it, planned as a weighted one, and gives what the unsharded one gives."""
    found = two_ranks.run(_outputs)
    model = Model("cpu")
    model.load_state_dict(_weights())
    for rank, ours in enumerate(found):
        torch.testing.assert_close(ours, model(_batch(rank)).detach(), rtol=1e-5, atol=1e-5)
