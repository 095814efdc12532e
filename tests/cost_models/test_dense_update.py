"""The dense optimizer in a step: what elementwise ones move, Shampoo's blocks beside the simulator, what is refused."""

import random
from typing import Any

import numpy as np
import pytest

from cost_models.dense import dense_seconds, optimizer_seconds, parameter_bytes
from cost_models.dense_size import dense_size
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from cost_models.workload import load_workload
from cost_models.workload.models import Workload
from topologies import load_topology
from topologies.errors import InputError

DIM = 64


def workload(dense: dict[str, Any], tables: int = 4, **more: Any) -> Workload:
    """Tables of 64 columns beside a dense part."""
    rows = [{"name": f"t{number}", "rows": 100_000, "dim": DIM, "pooling_factor": 10} for number in range(tables)]
    stated = {"name": "w", "batch_per_rank": 512, "tables": rows, "dense": dense} | more
    return Workload.model_validate(stated)


def mlp(*widths: int, **dense: Any) -> dict[str, Any]:
    """Layers of these widths, the first over vectors and 13 numerical features."""
    return {"numerical_features": 13, "bottom_mlp": [DIM], "interaction": "dot", "top_mlp": [*widths], **dense}


def whole(asked: Workload, world: int) -> PlacedShards:
    """Every table on a rank of its own, in turn."""
    table = np.arange(len(asked.tables))
    columns = np.full(len(table), DIM)
    blocks = Blocks(table, np.full_like(table, TABLE_WISE), np.full_like(table, HBM), columns, np.zeros(len(table)))
    return PlacedShards(blocks, table % world, np.full(len(table), 100_000), np.ones(len(table), dtype=bool))


def test_state_of_layers_by_hand() -> None:
    """Matrices 13 x 64, 74 x 100 and 100 x 1 in blocks of 64, biases as vectors, on the busiest of two ranks."""
    setup = {"block": 64, "grafting": "adam", "momentum": True, "group": 2, "exchange": "bf16"}
    asked = workload(mlp(100, 1, optimizer="shampoo", shampoo=setup, dtype="fp32"))
    blocks = [(13, 64), (64,), (64, 64), (64, 36), (10, 64), (10, 36), (64,), (36,), (64, 1), (36, 1), (1,)]
    loads, weights = [0, 0], [0, 0]
    for block in sorted(
        blocks, key=lambda each: -int(np.prod(each))
    ):  # equals have equal weights, and go in their order
        rank = int(weights[1] < weights[0])
        weights[rank] += int(np.prod(block))
        loads[rank] += 4 * (2 * sum(side**2 for side in block) + 2 * int(np.prod(block)))
    parameters = dense_size(asked).parameters
    assert parameters == sum(weights) == 13 * 64 + 64 + 74 * 100 + 100 + 100 + 1
    gathered = 2 * max(weights) * 2
    assert parameter_bytes(asked) == 8 * parameters + max(loads) + gathered


def test_adamw_is_adam_and_lamb_reads_for_norms() -> None:
    """Weights once more, updates written and read twice: 16 bytes of each weight."""
    adam, adamw, lamb = (workload(mlp(512, 1, optimizer=name)) for name in ("adam", "adamw", "lamb"))
    assert optimizer_seconds(adamw, 1.0) == optimizer_seconds(adam, 1.0)
    assert parameter_bytes(adamw) == parameter_bytes(lamb) == parameter_bytes(adam)
    assert optimizer_seconds(lamb, 1.0) - optimizer_seconds(adam, 1.0) == 16 * dense_size(adam).parameters
    with pytest.raises(ValueError, match=r"embedding\.optimizer"):
        workload(mlp(512, 1), embedding={"optimizer": "adamw"})


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_what_elementwise_optimizers_move_is_as_simulated(optimizer: str) -> None:
    """Beyond a fixed overhead of next to nothing, and beyond SGD."""
    cluster, layers = load_topology("dgx-a100-80"), mlp(4096, 4096, 4096, 1)
    steps_s, simulated_s = [], []
    for each in ("sgd", optimizer):
        asked = workload(layers | {"optimizer": each}, 8, overhead="1us", batch_per_rank=16)
        placed = whole(asked, 8)
        steps_s.append(float(StepModel(cluster, asked).evaluate(placed).stage_seconds.sum()))
        simulated_s.append(simulate(cluster, asked, placed).step_s)
    assert steps_s[1] - steps_s[0] == pytest.approx(simulated_s[1] - simulated_s[0], rel=1e-6)
    assert steps_s[1] > steps_s[0]


def test_twelve_random_steps_are_as_simulated() -> None:
    """Within 3 %, the mean step and one with inverse roots: other devices, links, groups, blocks, formats."""
    drawn = random.Random(2309)
    for _ in range(12):
        cluster = load_topology(drawn.choice(["dgx1-v100", "dgx-a100-80", "dgx-h100", "hgx-b200"]))
        setup = {
            "block": drawn.choice([128, 512, 2048]),
            "grafting": drawn.choice(["none", "adam"]),
            "frequency": drawn.choice([1, 10, 50]),
            "group": drawn.choice([1, 2, 4, 8]),
            "exchange": drawn.choice(["fp32", "bf16"]),
        }
        widths = [drawn.choice([256, 1000, 1500, 3000]) for _ in range(drawn.randint(2, 4))]
        dense = mlp(*widths, 1, dtype=drawn.choice(["fp32", "tf32", "fp16"]), optimizer="shampoo", shampoo=setup)
        asked = workload(dense, 16, pipeline=drawn.choice(["none", "sparse-dist"]))
        model, placed = StepModel(cluster, asked), whole(asked, 8)
        step_s = float(model.evaluate(placed).stage_seconds.sum())
        mean = simulate(cluster, asked, placed)
        late = simulate(cluster, asked, placed, conditions=Conditions(with_roots=True))
        assert step_s == pytest.approx(mean.step_s, rel=0.03)
        assert step_s + model.update.late_s == pytest.approx(late.step_s, rel=0.03)
        assert model.update.roots_s > 0


def test_groups_that_leave_a_node_are_as_simulated() -> None:
    """All 16 ranks of two nodes gather over cards: within 3 %."""
    cluster = load_topology("dgx-a100-80", overrides=["nodes.0.count=2"])
    setup = {"group": 16, "frequency": 10}
    asked = workload(mlp(3000, 3000, 1, optimizer="shampoo", shampoo=setup), 16)
    model, placed = StepModel(cluster, asked), whole(asked, 16)
    assert model.update.gathered_s > 0
    step_s = float(model.evaluate(placed).stage_seconds.sum())
    assert step_s == pytest.approx(simulate(cluster, asked, placed).step_s, rel=0.03)


def resnet_50(**dense: Any) -> Workload:
    """Its convolutions as linear layers, each over vectors as wide as what a filter reads (147 numbers: 148), and as
    many samples as have the multiply-accumulates of 128 images, 4.09 10^9 each."""
    shapes, width = [(64, 148)], 64
    for planes, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        shapes.append((planes * 4, width))
        for _ in range(count):
            shapes += [(planes, width), (planes, planes * 9), (planes * 4, planes)]
            width = planes * 4
    shapes.append((1000, 2048))
    inner = sorted({each for _, each in shapes})
    layers: list[dict[str, Any]] = [{"kind": "embeddings", "name": f"e{n}", "tables": [f"t{n}"]} for n in inner]
    layers += [{"kind": "linear", "inputs": [f"e{n}"], "out": out, "bias": False} for out, n in shapes]
    rows = [{"name": f"t{n}", "rows": 1, "dim": n, "pooling_factor": 1} for n in inner]
    samples = round(128 * 4.09e9 / sum(out * n for out, n in shapes))
    return Workload.model_validate(
        {"name": "resnet-50", "batch_per_rank": samples, "tables": rows, "dense": {"layers": layers, **dense}}
    )


@pytest.mark.parametrize(
    ("cluster_name", "dtype", "frequency", "share"),
    [
        ("dgx1-v100", "fp32", 50, 0.1),
        ("dgx-a100-80", "fp32", 50, 0.1),
        ("dgx-h100", "fp32", 50, 0.1),
        ("dgx-a100-80", "tf32", 50, 0.2),
        ("dgx-a100-80", "tf32", 100, 0.1),
    ],
)
def test_on_resnet_50_it_adds_less_than_a_tenth(cluster_name: str, dtype: str, frequency: int, share: float) -> None:
    """Published: at most 10 % a step, roots every 50 steps (arXiv:2309.06497): so in fp32. Here beside the products
    of layers and Adam alone: in tf32 these take a fifth of what a trainer of images needs on this device."""
    cluster = load_topology(cluster_name)
    setup = {"block": 2048, "grafting": "sgd", "frequency": frequency, "group": 8}
    adam = StepModel(cluster, resnet_50(optimizer="adam", dtype=dtype))
    shampoo = StepModel(cluster, resnet_50(optimizer="shampoo", shampoo=setup, dtype=dtype))
    assert dense_size(adam.workload).parameters == 25_502_912 + 64  # 25.557 million with norms and the last bias
    own = adam.workload.batch_per_rank or 0
    step_s = dense_seconds(adam.workload, own, adam.kinds[0], 0.0).total_s + adam.update.moved_s
    update = shampoo.update
    more_s = update.moved_s + update.beyond_overhead_s - adam.update.moved_s
    assert 0 < more_s <= share * step_s
    assert update.late_s > 10 * update.roots_s / update.frequency


def test_inputs_of_narrow_products_are_converted() -> None:
    """Numbers that go into products of 8 bits are read in 16 and written in 8, in the estimate and the simulator."""
    cluster = load_topology("dgx-h100")
    layers = mlp(1024, 1024, 1)
    alike, kept = (workload(layers | {"dtype": "fp8"} | more, 8) for more in ({"activations": "fp8"}, {}))
    plain, converting = (StepModel(cluster, each) for each in (alike, kept))
    kind, passes = plain.kinds[0], 1.0
    one, other = (dense_seconds(each, 512, kind, passes).total_s for each in (alike, kept))
    size = dense_size(kept)
    moved = size.activation_elements * 1 + (size.product_inputs + size.product_gradients) * 3
    assert other - one == pytest.approx(512 * moved / kind.hbm_bytes_per_s)
    for model in (plain, converting):
        placed = whole(model.workload, 8)
        simulated = simulate(cluster, model.workload, placed).step_s
        assert float(model.evaluate(placed).stage_seconds.sum()) == pytest.approx(simulated, rel=0.01)
    assert workload(layers | {"dtype": "bf16"}).dense.conversion_bytes == 0
    assert workload(layers | {"dtype": "bf16", "activations": "fp32"}).dense.conversion_bytes == 6


@pytest.mark.parametrize(
    ("dense", "more", "words"),
    [
        ({"optimizer": "shampoo", "macs_per_sample": 10, "parameters": 10}, {}, "give layers .* instead of totals"),
        (
            {"optimizer": "adam", "shampoo": {"block": 128}},
            {},
            "is of that optimizer, and this one is adam",
        ),
        (mlp(8, optimizer="shampoo", shampoo={"block": 0}), {}, r"dense\.shampoo\.block"),
        (mlp(8, optimizer="shampoo", shampoo={}), {"mode": "inference"}, "is of training"),
        (mlp(8, optimizer="shampoo"), {"towers": {"count": 2, "module": "linear", "width": 8}}, "modules differ"),
    ],
)
def test_what_cannot_be_is_refused(dense: dict[str, Any], more: dict[str, Any], words: str) -> None:
    """By the key, before anything is planned."""
    with pytest.raises(ValueError, match=words):
        workload(dense, **more)


def test_groups_divide_the_ranks() -> None:
    """Else they are refused by their key."""
    with pytest.raises(InputError, match=r"dense\.shampoo\.group: 8 ranks do not make groups of 3"):
        StepModel(load_topology("dgx-a100-80"), workload(mlp(8, 1, optimizer="shampoo", shampoo={"group": 3})))


def test_only_shampoo_has_steps_with_roots() -> None:
    """The simulator is not asked for those of others."""
    asked = load_workload("model-i")
    with pytest.raises(ValueError, match="no step takes inverse roots"):
        simulate(load_topology("dgx-a100-80"), asked, whole(asked, 8), conditions=Conditions(with_roots=True))
