"""Our formulas against the real package, shard by shard: seconds to 1e-9, bytes exactly."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from cost_models.shards import SHARDINGS, Blocks
from cost_models.torchrec.estimator import PerfEstimator
from cost_models.torchrec.storage import StorageEstimator
from cost_models.torchrec.tables import TorchRecTables
from cost_models.torchrec.topology import TorchRecTopology

from oracle import OPTIMIZERS, Run, Table, Way, ask, default_topology, shard_sizes, topology_of  # isort: skip

logging.disable(logging.WARNING)

TOLERANCE = 1e-9
TERMS = {
    "fwd_compute": "forward_compute",
    "fwd_comms": "forward_comms",
    "bwd_compute": "backward_compute",
    "bwd_comms": "backward_comms",
    "prefetch_compute": "prefetch_compute",
    "input_dist_comms": "input_dist_comms",
    "total": "total",
}
TIERS = {"fused": 0, "dense": 0, "fused_uvm_caching": 1, "fused_uvm": 2}
CUT = ("table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise", "grid_shard")
CASE = {
    "hbm_cap_gib": 40,
    "ddr_cap_gib": 187,
    "hbm_mem_bw_gibps": 1448,
    "ddr_mem_bw_gibps": 51,
    "hbm_to_ddr_mem_bw_gibps": 32,
    "ssd_mem_bw_gibps": 0.1,
    "intra_host_bw_gibps": 300,
    "inter_host_bw_gibps": 25,
    "bwd_compute_multiplier": 2.0,
    "storage_reservation": {"percentage": 0.15},
}
TABLES = 6
"""Random ones, each held in all ways, of every comparison: over 300 in all."""
WORLDS = ((8, 8), (16, 8), (64, 8), (128, 8), (8, 4), (16, 4), (64, 4), (128, 4))


@dataclass
class Compared:
    """What was compared, and how far apart it was at most."""

    shards: int = 0
    seconds: float = 0.0


def random_table(rng: np.random.Generator) -> Table:
    """Any table that TorchRec can hold."""
    features = int(rng.choice([1, 1, 1, 2, 5]))
    misses = (float(rng.random()), int(rng.integers(1, 10**6))) if rng.random() < 0.5 else None
    return Table(
        rows=int(np.exp(rng.uniform(0, np.log(1e8)))),
        dim=4 * int(np.exp(rng.uniform(0, np.log(256)))),
        element_bytes=int(rng.choice([4, 4, 2])),
        pooling=tuple(float(np.exp(rng.uniform(np.log(0.3), np.log(100)))) for _ in range(features)),
        poolings=tuple(float(rng.choice([1.0, 1.0, 2.0, 0.5])) for _ in range(features)),
        pooled=bool(rng.random() < 0.7),
        weighted=bool(rng.random() < 0.3),
        optimizer=list(OPTIMIZERS)[rng.integers(len(OPTIMIZERS))],
        misses=misses,
    )


def random_widths(rng: np.random.Generator, dim: int) -> tuple[int, ...]:
    """Column blocks in multiples of 4, of any and different widths."""
    units = dim // 4
    blocks = int(rng.integers(1, min(units, 8) + 1))
    cuts = np.sort(rng.choice(np.arange(1, units), blocks - 1, replace=False)) if blocks > 1 else []
    return tuple(int(width) * 4 for width in np.diff([0, *cuts, units]))


def ways(rng: np.random.Generator, table: Table) -> Iterator[Way]:
    """All seven shardings, the cut ones with three kernels each."""
    yield Way("data_parallel", "dense", (table.dim,), 0.0)
    for sharding in CUT:
        split = sharding in ("column_wise", "table_column_wise", "grid_shard")
        widths = random_widths(rng, table.dim) if split else (table.dim,)
        yield Way(sharding, "fused", widths, 0.0)
        yield Way(sharding, "fused_uvm", widths, 0.0)
        yield Way(sharding, "fused_uvm_caching", widths, float(rng.choice([0.2, rng.uniform(0.01, 0.99)])))


class _Cache:
    """The statistics that the package is given."""

    def __init__(self, tables: list[Table]) -> None:
        self._misses = np.array([np.prod(table.misses or (0.0, 0)) for table in tables])

    def expected_misses(self, table: np.ndarray, cache_fraction: np.ndarray) -> np.ndarray:  # noqa: ARG002
        return self._misses[table]


def our_tables(tables: list[Table], run: Run) -> TorchRecTables:
    element = np.array([[table.element_bytes] * 2 for table in tables], dtype=float)
    codecs = np.broadcast_to(run.codecs, element.shape) if run.codecs else element
    pooled = np.array([table.pooled for table in tables])
    inputs, outputs = [], []
    for table in tables:
        pairs = list(zip(table.pooling, table.poolings, strict=True))
        inputs.append(sum([x * y * run.batch for x, y in pairs]))
        outputs.append(sum([min(1.0, x) * y * run.batch for x, y in pairs]) if table.pooled else inputs[-1])
    states = {None: 0.0, "sgd": 0.0, "adam": 2.0, "adagrad": 1.0}
    return TorchRecTables(
        rows=np.array([table.rows for table in tables]),
        dim=np.array([table.dim for table in tables]),
        element_bytes=element[:, 0].astype(np.int64),
        batch_inputs=np.array(inputs),
        batch_outputs=np.array(outputs),
        pooled=pooled,
        weighted=np.array([table.weighted for table in tables]),
        all_to_all_bytes=codecs,
        reduce_scatter_bytes=np.where(pooled[:, None], codecs, element),
        state_per_weight=np.array([states.get(table.optimizer, 1 / table.dim) for table in tables]),
        pipeline=run.pipeline,
        training=not run.inference,
        cache=_Cache(tables),
    )


def compare(own: TorchRecTopology, theirs: object, run: Run, count: int, seed: int) -> Compared:
    rng = np.random.default_rng(seed)
    tables = [random_table(rng) for _ in range(count)]
    rows, perfs, storages = [], [], []
    for index, table in enumerate(tables):
        for way in ways(rng, table):
            sizes = shard_sizes(way, table, own)
            found = ask(theirs, table, way, run, sizes)
            for size, perf, storage in zip(sizes, *found, strict=True):
                code = (index, SHARDINGS.index(way.sharding), TIERS[way.kernel], size[1], way.cache_fraction, size[0])
                rows.append(code)
                perfs.append([getattr(perf, term) for term in TERMS])
                storages.append([storage.hbm, storage.ddr, storage.ssd])
    columns = list(zip(*rows, strict=True))
    integers = [np.array(columns[i], dtype=np.int64) for i in (0, 1, 2, 3, 5)]
    blocks, held = Blocks(*integers[:4], np.array(columns[4])), integers[4]
    ours = our_tables(tables, run)
    seconds = PerfEstimator(own, ours).estimate(blocks)
    worst = 0.0
    for column, name in enumerate(TERMS.values()):
        expected = np.array(perfs)[:, column] / 1000
        got = getattr(seconds, name)
        far = np.abs(got - expected) / np.where(expected > 0, expected, 1.0)
        assert far.max() <= TOLERANCE, (name, rows[int(far.argmax())], got[far.argmax()], expected[far.argmax()])
        worst = max(worst, float(far.max()))
    size = StorageEstimator(own, ours).estimate(blocks, held)
    wrong = np.flatnonzero((size != np.array(storages)).any(axis=1))
    assert len(wrong) == 0, (len(wrong), rows[wrong[0]], tables[rows[wrong[0]][0]], size[wrong[0]], storages[wrong[0]])
    return Compared(len(rows), worst)


@pytest.mark.parametrize(("world", "local"), WORLDS)
def test_equals_the_package_on_its_default_topology(world: int, local: int) -> None:
    """With TorchRec's own bandwidths, two batch sizes, in worlds of 8 to 128 with nodes of 8 and 4."""
    own = TorchRecTopology.default(world, local)
    for batch in (512, 2048):
        found = compare(own, default_topology(world, local), Run(batch), TABLES, seed=world + local + batch)
        print(f"{found.shards} shards, largest relative difference {found.seconds:.1e}")


@pytest.mark.parametrize(("world", "local"), WORLDS)
def test_equals_the_package_on_the_topologies_of_the_cases(world: int, local: int) -> None:
    """With the bandwidths of the benchmark's cases."""
    own = TorchRecTopology.from_case({**CASE, "world_size": world, "local_world_size": local, "pod_size": None})
    for batch in (1, 1024):
        found = compare(own, topology_of(own), Run(batch), TABLES, seed=world * local + batch)
        print(f"{found.shards} shards, largest relative difference {found.seconds:.1e}")


@pytest.mark.parametrize(
    "run",
    [
        Run(2048, pipeline="sparse-dist"),
        Run(2048, pipeline="prefetch"),
        Run(777, inference=True),
        Run(2048, codecs=(2.0, 2.0)),
        Run(64, codecs=(1.0, 4.0), pipeline="prefetch"),
    ],
    ids=["sparse-dist", "prefetch", "inference", "fp16 codecs", "mixed codecs"],
)
@pytest.mark.parametrize(("world", "local"), [(8, 8), (64, 8), (16, 4)])
def test_equals_the_package_in_other_runs(run: Run, world: int, local: int) -> None:
    """Under the pipelines that overlap, in inference, and with quantized collectives."""
    own = TorchRecTopology.default(world, local)
    found = compare(own, default_topology(world, local), run, TABLES, seed=5)
    print(f"{found.shards} shards, largest relative difference {found.seconds:.1e}")


@pytest.mark.parametrize(("world", "local", "pod"), [(16, 4, 2), (32, 4, 8), (72, 4, 18), (144, 4, 18)])
def test_equals_the_package_in_pods(world: int, local: int, pod: int) -> None:
    """Where a scale-up domain spans hosts."""
    own = TorchRecTopology.default(world, local, pod)
    found = compare(own, topology_of(own), Run(512), TABLES, seed=pod)
    print(f"{found.shards} shards, largest relative difference {found.seconds:.1e}")
