"""Predicted against measured steps of groups of ranks: TorchRec's DMPCollection on CPU processes over gloo.

    python -m benchmarks.gloo.groups [--rounds N] [--seed N] [--coefficients DIR] [--save FILE] [--runs FILE] [--check]

One world of four processes, and copies over two groups of them that are averaged every so many steps: six plans of one
model. A step is the work of the processes (`gloo.clock`) without averaging, and its share of one averaging. Needs torch
and torchrec; calibrates this machine first, unless a folder has the coefficients already. `--runs` judges measured
steps of a file that `--save` wrote by the costs of today.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed.model_parallel import DistributedModelParallel, DMPCollection
from torchrec.distributed.types import ShardingStrategy
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from benchmarks.gloo.__main__ import KEEP_PAGES, TAU, Race, calibrate, predicted_s, saved, topology, workloads
from benchmarks.gloo.clock import Clock, Event, step_seconds
from benchmarks.gloo.copies import OnCpus
from benchmarks.gloo.model import Draw, Tables, batch_of
from benchmarks.gloo.processes import Processes
from benchmarks.gloo.training import RATE, SHARDERS, WIDTH, dense_optimizer
from cost_models.coefficients import USER_DIRECTORY
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.exporters.torchrec import torchrec_plan
from planner.formulation.policy import Policy
from planner.integrations.torchrec import to_sharding_plan
from planner.planning.planning import plan

RANKS = 4
WHOLE, COLUMNS = "table_wise", "column_wise"
CHOICES = {
    "one world": (1, 1, [WHOLE, COLUMNS]),
    "one world, column-wise": (1, 1, [COLUMNS]),
    "2 groups, every step": (2, 1, [WHOLE, COLUMNS]),
    "2 groups, every 4 steps": (2, 4, [WHOLE, COLUMNS]),
    "2 groups, every 32 steps": (2, 32, [WHOLE, COLUMNS]),
    "2 groups, every 32 steps, column-wise": (2, 32, [COLUMNS]),
}
"""Copies, steps from one averaging to the next, and what is allowed."""
Timed = tuple[list[Event], list[Event]]
"""Events of a step without averaging, and of an averaging."""


def sharded(workload: Workload, exported: Mapping[str, Any]) -> DistributedModelParallel:
    """The model as an exported plan holds it, in its groups of ranks where it has any."""
    model = Tables(workload, "meta", WIDTH)
    for module in model.names:
        apply_optimizer_in_backward(torch.optim.SGD, getattr(model, module).parameters(), {"lr": RATE})
    placed = to_sharding_plan(exported, model, compute_device="cpu")
    sharders, groups = [sharder() for sharder in SHARDERS], dict(exported.get("dmp_collection", {}))
    if not groups:
        return DistributedModelParallel(model, device=torch.device("cpu"), plan=placed, sharders=sharders)
    for key in ("sync_every", "state_every"):
        groups.pop(key, None)
    groups["sharding_strategy"] = ShardingStrategy[groups["sharding_strategy"]]
    world = dist.group.WORLD

    whole = OnCpus(
        model,
        torch.device("cpu"),
        placed,
        global_pg=world,
        sharders=sharders,
        custom_all_reduce=lambda tensors: whole.average(tensors),
        **groups,
    )
    return whole


def timed(text: str, plans: Sequence[Mapping[str, Any]], batch: int, rounds: int) -> list[list[Timed]]:
    """[rounds][plans] of one rank, as a job of `Processes`; plans take turns, in another order in every round."""
    workload, clock = Workload.model_validate_json(text), Clock()
    held: list[tuple[nn.Module, torch.optim.Optimizer]] = []
    for exported in plans:
        whole = sharded(workload, exported)
        for module in whole.modules():
            for each in (module, *getattr(module, "_lookups", ())):
                if isinstance(each, nn.parallel.DistributedDataParallel):
                    each.register_comm_hook(dist.group.WORLD, clock.reduced)
        held.append((whole, dense_optimizer(whole)))
    batches = [batch_of(workload, Draw(batch, step, dist.get_rank(), variable=False)) for step in range(3)]
    found: list[list[Timed]] = []
    with clock.noting():
        for number in range(-2, rounds):
            of_round: list[Timed] = [([], [])] * len(plans)
            for turn in range(len(plans)):
                one = (turn + number) % len(plans)
                whole, optimizer = held[one]
                clock.start()
                dist.barrier()
                clock.start()
                optimizer.zero_grad()
                outputs, _ = whole(batches[number % len(batches)])
                (outputs**2).mean().backward()
                optimizer.step()
                step = clock.stop()
                dist.barrier()
                clock.start()
                if isinstance(whole, DMPCollection):
                    whole.sync()
                of_round[one] = step, clock.stop()
            if number >= 0:
                found.append(of_round)
    return found


def planned(workload: Workload) -> dict[str, Plan]:
    """The plan of each choice of copies."""
    plans: dict[str, Plan] = {}
    for name, (factor, every, shardings) in CHOICES.items():
        replicas = {"factor": 1} if factor == 1 else {"factor": factor, "layout": "intra", "sync_every": every}
        policy = Policy.model_validate({"runtime": "torchrec", "shardings": shardings, "replicas": replicas})
        plans[name] = plan(topology(RANKS), workload, policy=policy, effort=1, simulate=False)
    return plans


def predicted(workload: Workload) -> dict[str, float]:
    """Seconds of a step of each choice."""
    return {name: predicted_s(found) for name, found in planned(workload).items()}


def judged(file: Path) -> list[Race]:
    """Measured steps that were saved, beside what the costs of today predict."""
    document = json.loads(file.read_text())
    models = {workload.name: workload for workload in workloads(document["seed"])}
    races = [Race(**each) for each in document["races"]]
    return [replace(each, predicted=predicted(models[each.workload])) for each in races]


def race(workload: Workload, processes: Processes, rounds: int) -> Race:
    """All choices of copies of one workload, which take turns."""
    plans = planned(workload)
    files = [torchrec_plan(found, modules=["tables"], compute_device="cpu") for found in plans.values()]
    batch = round(workload.batch(RANKS) / RANKS)
    of_ranks = processes.run(timed, workload.model_dump_json(), files, batch, rounds)
    measured: dict[str, list[float]] = {name: [] for name in plans}
    for number in range(rounds):
        for which, (name, (factor, every, _)) in enumerate(CHOICES.items()):
            step, sync = (step_seconds([own[number][which][part] for own in of_ranks]) for part in (0, 1))
            measured[name].append(step + (sync / every if factor > 1 else 0.0))
    return Race(workload.name, RANKS, {name: predicted_s(found) for name, found in plans.items()}, measured, {}, {})


def main() -> int:
    """Run, print a table for each model, and say whether the order is right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--coefficients", type=Path)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--check", action="store_true", help="end with 1 where a tau is below the target")
    asked = parser.parse_args()
    # DMPCollection asserts that devices are GPUs: processes run without asserts.
    os.environ.update(KEEP_PAGES, OMP_NUM_THREADS="1", PYTHONOPTIMIZE="1")
    with tempfile.TemporaryDirectory() as made:
        folder = asked.coefficients or Path(made)
        if not any(folder.glob("*.yaml")):
            calibrate(folder, [2, RANKS])
        os.environ[USER_DIRECTORY] = str(folder)
        if asked.runs is not None:
            races = judged(asked.runs)
        else:
            with Processes(RANKS, RANKS) as processes:
                races = [race(workload, processes, asked.rounds) for workload in workloads(asked.seed)]
    for each in races:
        one = each.measured["one world"]
        print(f"\n{each.workload}: tau {each.tau:.2f} over {len(each.pairs)} pairs, {each.tau_of_all:.2f} over all")
        for name, seconds in each.measured.items():
            ratio = sorted(own / base for own, base in zip(seconds, one, strict=True))[len(one) // 2]
            told = each.predicted[name] / each.predicted["one world"]
            print(f"  {name:38} measured {ratio:6.3f}  predicted {told:6.3f}  of one world's step")
    if asked.save is not None:
        asked.save.write_text(json.dumps(saved(races, asked.seed)) + "\n")
    return int(asked.check and any(each.tau < TAU for each in races))


if __name__ == "__main__":
    sys.exit(main())
