"""Our planner in TorchRec's place: the same module, Topology and constraints, side by side.

    python -m benchmarks.drop_in [--case NAME] [--effort N] [--limit SECONDS] [--theirs SECONDS,RATING_MS] [--check]

A model of 400 tables on the meta device for 64 ranks, unless another case of `benchmarks/data/torchrec_cases` is named.
Both plans are rated shard by shard with TorchRec's own estimators, and their memory is summed up by them. Needs torch
and torchrec. Times are of the processor, with one thread. TorchRec's planner takes minutes: `--limit` is the
`timeout_seconds` (of the wall) that it is given, and `--theirs` states what an earlier run of it gave.
"""

import argparse
import json
import logging
import os
import platform
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torchrec import EmbeddingBagCollection
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import Shard, SharderData, ShardingOption, StorageUsageType
from torchrec.distributed.types import ParameterSharding, ShardingPlan
from torchrec.modules.embedding_configs import EmbeddingBagConfig

from benchmarks.instances import SHIPPED_CASES
from planner.integrations.torchrec_planner import ShardPlanner

CASE = "n400_w64_h40_b2048"
FASTER, BETTER = 20.0, 2.0
"""Targets. The latter where TorchRec's planner is stopped after minutes: to its end it may come near to the bound,
below which no plan is, and ours must not be worse."""
RESERVED = 0.15
"""HBM that both keep free."""
GIB = 1024**3


@dataclass(frozen=True)
class Case:
    """What both planners are told."""

    module: torch.nn.Module
    topology: Topology
    constraints: Mapping[str, ParameterConstraints]
    batch_per_rank: int


@dataclass(frozen=True)
class Attempt:
    """What a planner took and found."""

    seconds: float
    rating_ms: float
    """The largest sum of a rank's shards, in TorchRec's estimate."""
    hbm_share: float
    """Share of the HBM that is not reserved, on the fullest rank."""


def read_case(name: str) -> Case:
    """A case as a module and a Topology of TorchRec's."""
    cases = {case["id"]: case for case in json.loads((SHIPPED_CASES / "cases.json").read_text())["cases"]}
    case = cases[name]
    told = json.loads((SHIPPED_CASES / case["topology"]).read_text())
    tables = json.loads((SHIPPED_CASES / case["tables"]).read_text())["tables"]
    configs = [
        EmbeddingBagConfig(
            num_embeddings=table["rows"],
            embedding_dim=table["dim"],
            name=table["name"],
            feature_names=[table["feature"]],
        )
        for table in tables
    ]
    return Case(
        torch.nn.Sequential(EmbeddingBagCollection(device=torch.device("meta"), tables=configs)),
        topology_of(told),
        {table["name"]: ParameterConstraints(pooling_factors=[table["pooling_factor"]]) for table in tables},
        case["batch_per_rank"],
    )


def topology_of(told: Mapping[str, Any]) -> Topology:
    """A case's cluster; TorchRec takes bandwidths in bytes per millisecond."""
    rates = {
        theirs: told[f"{theirs}_gibps"] * GIB / 1000
        for theirs in ("hbm_mem_bw", "ddr_mem_bw", "hbm_to_ddr_mem_bw", "ssd_mem_bw", "intra_host_bw", "inter_host_bw")
    }
    return Topology(
        world_size=told["world_size"],
        local_world_size=told["local_world_size"],
        compute_device=told["compute_device"],
        hbm_cap=told["hbm_cap_gib"] * GIB,
        ddr_cap=told["ddr_cap_gib"] * GIB,
        **rates,
    )


def rated(case: Case, plan: ShardingPlan) -> tuple[float, float]:
    """Rating in ms and bytes of HBM on the fullest rank, by TorchRec's estimators."""
    options = [_option(case, name, held) for name, held in plan.plan["0"].items()]
    data = {option.module_type_key: SharderData({}, {}, StorageUsageType.BASE) for option in options}
    EmbeddingPerfEstimator(case.topology).estimate(options, data)
    EmbeddingStorageEstimator(case.topology).estimate(options, data)
    load = np.zeros((2, case.topology.world_size))
    for shard in (shard for option in options for shard in option.shards):
        load[:, shard.rank] += shard.perf.total, shard.storage.hbm
    return float(load[0].max()), float(load[1].max())


def _option(case: Case, name: str, held: ParameterSharding) -> ShardingOption:
    """A table as TorchRec's estimators take it."""
    collection: Any = case.module[0]  # type: ignore[index]
    tensor = collection.embedding_bags[name].weight
    shards = [Shard(size=list(tensor.shape), offset=[0, 0], rank=rank) for rank in held.ranks]
    if held.sharding_spec is not None:
        shards = [
            Shard(size=list(part.shard_sizes), offset=list(part.shard_offsets), rank=part.placement.rank())
            for part in held.sharding_spec.shards
        ]
    return ShardingOption(
        name=name,
        tensor=tensor,
        module=("0", collection),
        input_lengths=list(case.constraints[name].pooling_factors),
        batch_size=case.batch_per_rank,
        sharding_type=held.sharding_type,
        partition_by="device",
        compute_kernel=held.compute_kernel,
        shards=shards,
        cache_params=held.cache_params,
    )


def attempt(case: Case, planner: Any) -> Attempt:
    """A planner's plan of the case."""
    began = time.process_time()
    found = planner.plan(case.module, [EmbeddingBagCollectionSharder()])
    seconds = time.process_time() - began
    rating_ms, hbm = rated(case, found)
    usable = case.topology.devices[0].storage.hbm * (1 - RESERVED)
    return Attempt(seconds, rating_ms, hbm / usable)


def setting(limit_s: int | None, *, is_stated: bool) -> str:
    """How TorchRec's planner was run, when and on what: a date, cores and versions."""
    how = "as stated" if is_stated else f"stopped after {limit_s} s" if limit_s else "to its end"
    versions = ", ".join(f"{name} {version(name)}" for name in ("torchrec", "torch"))
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {versions}"
    return f"TorchRec's planner {how}\n{date.today()}, {machine}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drop_in", description=__doc__.splitlines()[0])
    parser.add_argument("--case", default=CASE)
    parser.add_argument("--effort", type=int, default=0)
    parser.add_argument("--limit", type=int, metavar="SECONDS", help="timeout_seconds of theirs (default: none)")
    parser.add_argument("--theirs", metavar="SECONDS,RATING_MS", help="of an earlier run, instead of another one")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    case = read_case(arguments.case)
    told: dict[str, Any] = {"batch_size": case.batch_per_rank, "constraints": case.constraints}
    ours = attempt(case, ShardPlanner(case.topology, cost_model="torchrec", effort=arguments.effort, **told))
    if arguments.theirs:
        seconds, rating_ms = map(float, arguments.theirs.split(","))
        theirs = Attempt(seconds, rating_ms, float("nan"))
    else:
        reserve = FixedPercentageStorageReservation(RESERVED)
        told |= {"storage_reservation": reserve, "timeout_seconds": arguments.limit}
        theirs = attempt(case, EmbeddingShardingPlanner(topology=case.topology, **told))
    how = setting(arguments.limit, is_stated=bool(arguments.theirs))
    print(f"{arguments.case}: {len(case.constraints)} tables, {case.topology.world_size} ranks; {how}")
    print(f"{'planner':<12}{'plan()':>12}{'rating':>12}{'fullest HBM':>14}")
    for name, found in (("TorchRec", theirs), ("ours", ours)):
        print(f"{name:<12}{found.seconds:>10.2f} s{found.rating_ms:>9.2f} ms{found.hbm_share:>14.1%}")
    faster, better = theirs.seconds / ours.seconds, theirs.rating_ms / ours.rating_ms
    print(f"{'ratio':<12}{faster:>11.1f}x{better:>11.2f}x")
    target = BETTER if arguments.limit or arguments.theirs else 1.0
    return 1 if arguments.check and (faster < FASTER or better < target or ours.hbm_share > 1) else 0


if __name__ == "__main__":
    sys.exit(main())
