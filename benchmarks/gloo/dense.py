"""Predicted against measured steps of dense models on CPU processes over gloo: DDP, ZeRO-1 and FSDP2.

    python -m benchmarks.gloo.dense [--processes 2,4] [--rounds N] [--collectives FILE] [--runs FILE] [--save FILE]
                                    [--check]

An MLP, a DCNv2 and attention over histories, each in three sizes. This machine's collectives are calibrated first,
unless a file has them already. Of the smallest and the largest size products, updates and what a framework does
beside collectives (copies, hooks) are calibrated; the size between is predicted. Needs torch. A step is the work of the
processes (`gloo.clock`); strategies take turns in every round.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import nnls
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gloo.__main__ import DEVICE, KEEP_PAGES, TAU, Race, saved, topology
from benchmarks.gloo.clock import Clock, Event, step_seconds
from benchmarks.gloo.dense_models import KINDS, SAMPLES, SIZES, Model
from benchmarks.gloo.processes import Processes
from benchmarks.running import COMMAND
from cost_models.coefficients import USER_DIRECTORY
from cost_models.dense_strategies import DenseStrategy, NumberBytes, TrainedLayer
from cost_models.group_laws import GroupLaws
from cost_models.strategy_costs import StrategyCosts
from cost_models.workload.dense_part import Dense
from cost_models.workload.models import Workload

KERNELS = Path(__file__).parents[1] / "data" / "gloo" / "kernels.yaml"
"""Of lookups, which a device must have and these models do not."""
ALONE, DDP, ZERO, KEPT, FSDP = "no exchange", "DDP", "DDP, ZeRO-1", "FSDP2, weights kept", "FSDP2"
STRATEGIES = (ALONE, DDP, ZERO, KEPT, FSDP)
HELD_OUT, WITHIN = "middle", 0.2
"""The size that is predicted, and how near."""
TURNS = 3


def models() -> list[tuple[str, str]]:
    """Kinds and sizes."""
    return [(kind, size) for kind in KINDS for size in SIZES]


def prepared(
    kind: str, size: str, strategy: str, clock: Clock
) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    """A model as a strategy holds it, its optimizer and its samples."""
    torch.manual_seed(0)
    model = Model(kind, size)
    batch, whole = model.batch(), model
    if strategy in (DDP, ZERO):
        whole = DistributedDataParallel(model)
        whole.register_comm_hook(dist.group.WORLD, clock.reduced)
    elif strategy in (KEPT, FSDP):
        for unit in model.units:
            fully_shard(unit, reshard_after_forward=strategy == FSDP)
        fully_shard(model, reshard_after_forward=strategy == FSDP)
    if strategy == ZERO:
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.Adam, parameters_as_bucket_view=True, lr=1e-3
        )
    else:
        optimizer = torch.optim.Adam(whole.parameters(), lr=1e-3)
    return whole, optimizer, batch


Step = tuple[list[Event], float]
"""A rank's events, and the seconds that it worked until the update."""


def step_times(kind: str, size: str, rounds: int) -> list[list[Step]]:
    """[rounds][strategies] of one rank, as a job of `Processes`; strategies take turns, in another order each round."""
    clock = Clock()
    held = [prepared(kind, size, strategy, clock) for strategy in STRATEGIES]
    found = []
    with clock.noting():
        for number in range(-2, rounds):
            of_round: list[Step] = [([], 0.0)] * len(held)
            for turn in range(len(held)):
                one = (turn + number) % len(held)
                whole, optimizer, batch = held[one]
                clock.start()
                dist.barrier()
                clock.start()
                optimizer.zero_grad()
                (whole(batch) ** 2).mean().backward()
                worked = clock.stop()[-1][-1]
                optimizer.step()
                of_round[one] = clock.stop(), worked
            if number >= 0:
                found.append(of_round)
    return found


@dataclass(frozen=True)
class Measured:
    """The steps of one model on some processes."""

    kind: str
    size: str
    ranks: int
    flops: float
    """Of the forward and backward pass of a rank's samples."""
    tensors: int
    """Parameters as tensors, each of which a framework copies by itself."""
    unit_parameters: tuple[int, ...]
    seconds: Mapping[str, list[float]]
    """Of each round, by strategy."""
    passes: list[float]
    """Of the forward and backward pass of each round, where nothing is exchanged."""

    @property
    def passes_s(self) -> float:
        """The median of these."""
        return median(self.passes)

    @property
    def update_s(self) -> float:
        """Seconds of the update of all parameters."""
        return median(self.seconds[ALONE]) - self.passes_s


def shape_of(kind: str, size: str) -> tuple[float, int, tuple[int, ...]]:
    """FLOPs of the passes of a rank's samples, tensors, and parameters by unit, as a job of `Processes`."""
    model = Model(kind, size)
    with FlopCounterMode(display=False) as counter:
        model(model.batch()).sum().backward()
    units = tuple(sum(weight.numel() for weight in unit.parameters()) for unit in model.units)
    return float(counter.get_total_flops()), sum(1 for _ in model.parameters()), units


def measured(processes: Processes, rounds: int) -> list[Measured]:
    """All strategies of all models, a few rounds of each in turn, so that no burst of other work hits one alone."""
    found: dict[tuple[str, str], Measured] = {}
    for _ in range(TURNS):
        for kind, size in models():
            of_ranks = processes.run(step_times, kind, size, -(-rounds // TURNS))
            if (kind, size) not in found:
                shape = processes.run(shape_of, kind, size)[0]
                found[kind, size] = Measured(kind, size, processes.world, *shape, {each: [] for each in STRATEGIES}, [])
            run = found[kind, size]
            for number in range(len(of_ranks[0])):
                for which, strategy in enumerate(STRATEGIES):
                    run.seconds[strategy].append(step_seconds([own[number][which][0] for own in of_ranks]))
                run.passes.append(max(own[number][0][1] for own in of_ranks))
    return list(found.values())


@dataclass(frozen=True)
class Costs:
    """What the cost model says of strategies."""

    costs: StrategyCosts

    @classmethod
    def of(cls, ranks: int, bytes_per_s: float) -> "Costs":
        """On so many processes, whose optimizer moves so many bytes a second."""
        table = {"name": "t", "rows": 9, "dim": 4, "pooling_factor": 1}
        dense = Dense(dtype="fp32", optimizer="adam")
        told = Workload.model_validate({"name": "dense", "batch_per_rank": SAMPLES, "tables": [table]})
        laws = GroupLaws(topology(ranks), told)
        return cls(StrategyCosts(laws, NumberBytes.of(dense), SAMPLES, ranks, bytes_per_s))

    def seconds(self, units: Sequence[int], strategy: str) -> float:
        """Collectives and update. DDP sums all units at once, and torch's ZeRO-1 sums whole gradients as DDP does."""
        if strategy == ALONE:
            return self._sum(units, DenseStrategy(), ("update_s",))
        whole, ranks = (sum(units),), self.costs.world_size
        if strategy == DDP:
            return self._sum(whole, DenseStrategy())
        if strategy == ZERO:
            own = self._sum(whole, DenseStrategy("samples", 1, 1, ranks), ("update_s",))
            return self._sum(whole, DenseStrategy(), ("backward_s",)) + own
        return self._sum(units, DenseStrategy("samples", 1, 2 if strategy == KEPT else 3, ranks))

    def _sum(self, units: Sequence[int], strategy: DenseStrategy, parts: Sequence[str] = ("seconds",)) -> float:
        found = [self.costs.layer(TrainedLayer(each, 0, 0), (strategy,)) for each in units]
        return float(sum(getattr(each, part)[0] for each in found for part in parts))


@dataclass(frozen=True)
class Predictions:
    """Of one world of processes: passes, updates and frameworks calibrated on the other sizes."""

    costs: Costs
    passes: Mapping[str, Sequence[float]]
    """By kind: seconds of a pass, and of a FLOP."""
    beside: Mapping[str, Sequence[float]]
    """By strategy: seconds of a unit (hooks), a tensor and a number (copies), that are no collective and no update."""

    @classmethod
    def of(cls, runs: Sequence[Measured]) -> "Predictions":
        """From the sizes that are not held out."""
        known = [run for run in runs if run.size != HELD_OUT]
        numbers = NumberBytes.of(Dense(dtype="fp32", optimizer="adam"))
        rate = (
            sum(sum(run.unit_parameters) for run in known) * numbers.update_bytes / sum(run.update_s for run in known)
        )
        costs = Costs.of(known[0].ranks, rate)
        passes = {}
        for kind in KINDS:
            own = [run for run in known if run.kind == kind]
            seconds = [run.passes_s for run in own]
            passes[kind] = _fitted([(1.0, run.flops) for run in own], seconds, seconds)
        without = cls(costs, passes, NOTHING_BESIDE)
        beside = {}
        for strategy in STRATEGIES[1:]:
            steps = [median(run.seconds[strategy]) for run in known]
            rest = [step - without.step_s(run, strategy) for run, step in zip(known, steps, strict=True)]
            beside[strategy] = _fitted([_sizes(run) for run in known], rest, steps)
        return cls(costs, passes, NOTHING_BESIDE | beside)

    def step_s(self, run: Measured, strategy: str) -> float:
        """The step of a model."""
        start, of_flop = self.passes[run.kind]
        beside = float(np.dot(_sizes(run), self.beside[strategy]))
        return start + run.flops * of_flop + self.costs.seconds(run.unit_parameters, strategy) + beside


def _sizes(run: Measured) -> tuple[float, ...]:
    """What a framework's work beside collectives grows with: units, tensors, numbers."""
    return float(len(run.unit_parameters)), float(run.tensors), float(sum(run.unit_parameters))


NOTHING_BESIDE: dict[str, Sequence[float]] = dict.fromkeys(STRATEGIES, (0.0, 0.0, 0.0))


def _fitted(rows: Sequence[Sequence[float]], seconds: Sequence[float], steps: Sequence[float]) -> tuple[float, ...]:
    """Factors that are not negative, with the least squares of errors in shares of the steps."""
    weighted = np.array(rows) / np.array(steps)[:, None]
    scale = weighted.max(axis=0)
    found, _ = nnls(weighted / scale, np.array(seconds) / steps)
    return tuple(float(each) for each in found / scale)


def races(runs: Sequence[Measured], *, calibrated: bool) -> Iterator[Race]:
    """Of the held-out size: strategies that exchange, by the cost model alone or with what is calibrated beside it."""
    for ranks in sorted({run.ranks for run in runs}):
        own = [run for run in runs if run.ranks == ranks]
        told = Predictions.of(own)
        if not calibrated:
            told = Predictions(told.costs, told.passes, NOTHING_BESIDE)
        for run in own:
            if run.size == HELD_OUT:
                steps = {strategy: told.step_s(run, strategy) for strategy in STRATEGIES[1:]}
                yield Race(run.kind, ranks, steps, {name: run.seconds[name] for name in steps}, {}, {})


def lines(runs: Sequence[Measured]) -> Iterator[str]:
    """A table by model and number of processes."""
    for raw, race in zip(races(runs, calibrated=False), races(runs, calibrated=True), strict=True):
        base = race.measured[DDP]
        taus = f"tau {race.tau:.2f} over {len(race.pairs)} pairs, {raw.tau:.2f} by collectives and updates alone"
        yield f"\n{race.workload}, {race.ranks} processes, {HELD_OUT} size: {taus}"
        for name, seconds in race.measured.items():
            ratios = np.quantile([a / b for a, b in zip(seconds, base, strict=True)], (0.25, 0.5, 0.75))
            told, step = race.predicted[name], median(seconds)
            errors = f"{told / step - 1:+5.0%}; without copies {raw.predicted[name] / step - 1:+5.0%}"
            spread = f"{ratios[1]:.3f} ({ratios[0]:.3f} to {ratios[2]:.3f})"
            yield f"  {name:20} {1e3 * step:7.2f} ms, predicted {1e3 * told:7.2f} ({errors}); of DDP's {spread}"


def missed(runs: Sequence[Measured]) -> list[str]:
    """The targets that are not kept."""
    found = []
    for race in races(runs, calibrated=True):
        where = f"{race.workload}, {race.ranks}"
        found += [f"{where}: tau {race.tau:.2f}"] * (race.tau < TAU)
        for name, seconds in race.measured.items():
            error = race.predicted[name] / median(seconds) - 1
            found += [f"{where}, {name}: {error:+.0%}"] * (abs(error) > WITHIN)
    return found


def calibrate(file: Path, ranks: Sequence[int]) -> None:
    """The collectives of this machine, as a user calibrates them."""
    command = [*COMMAND, "calibrate", "--device", "cpu", "--name", DEVICE, "--processes", ",".join(map(str, ranks))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "-o", str(file)], check=True, stdout=subprocess.DEVNULL, env=environment)


def run_all(ranks: Sequence[int], rounds: int) -> list[Measured]:
    """All models on so many processes."""
    runs: list[Measured] = []
    for count in ranks:
        with Processes(count, count) as processes:
            runs += measured(processes, rounds)
    return runs


def read_runs(file: Path) -> list[Measured]:
    """What `--save` has written."""
    rows = json.loads(file.read_text())["runs"]
    return [Measured(**row | {"unit_parameters": tuple(row["unit_parameters"])}) for row in rows]


def main() -> int:
    """Run, print a table for each model, and say whether orders and steps are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", default="2,4")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--collectives", type=Path, help="made by `planner calibrate`; left out: made first")
    parser.add_argument("--runs", type=Path, help="judge the rounds of this file, which --save wrote, and run nothing")
    parser.add_argument("--save", type=Path, help="write every round here, as JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    asked = parser.parse_args()
    os.environ |= KEEP_PAGES
    ranks = [int(count) for count in asked.processes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "collectives.yaml"
        shutil.copy(KERNELS, folder)
        if asked.collectives is None:
            calibrate(file, ranks)
        else:
            shutil.copy(asked.collectives, file)
        os.environ[USER_DIRECTORY] = folder
        runs = run_all(ranks, asked.rounds) if asked.runs is None else read_runs(asked.runs)
        print("\n".join(lines(runs)))
        failures = missed(runs)
    print(f"\nMissed: {'; '.join(failures) or 'nothing'}.")
    if asked.save is not None:
        document = saved((), 0) | {"runs": [asdict(run) for run in runs]}
        asked.save.write_text(json.dumps(document, indent=1) + "\n")
    return int(asked.check and bool(failures))


if __name__ == "__main__":
    sys.exit(main())
