"""TorchRec's plans: what a ShardingPlan serialises to, a pickled one, and TorchEasyRec's file `plan`."""

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from cost_models.shards import USUAL_SHARDINGS, Ints, PlacementTier, Sharding, block_rows
from cost_models.torchrec.constants import torchrec_coefficients
from cost_models.workload.kernels import KernelSettings
from cost_models.workload.table_profile import TableProfile
from planner.importers.adoption import AdoptedTable, AdoptionInputs
from planner.importers.torchrec_kernels import plain_settings, settings_of
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError, shown

TIER_OF_KERNEL: dict[str, PlacementTier] = {
    "dense": "hbm",
    "fused": "hbm",
    "fused_triton": "hbm",
    "fused_uvm_caching": "ddr_cached",
    "fused_uvm": "ddr",
    "key_value": "ssd_cached",
    "quant": "hbm",
    "quant_uvm_caching": "ddr_cached",
    "quant_uvm": "ddr",
}
Parameters = dict[tuple[str, str], Mapping[str, Any]]
"""What a plan says of each table, by module path and name."""
WHOLE = (int, np.integer)


def parameters_of(document: Mapping[str, Any], source: str) -> Parameters:
    """Every ParameterSharding of a serialised plan: of the whole, or of the modules alone as TorchEasyRec has it.

    Raises InputError for a document that is neither.
    """
    modules = document.get("plan", document)
    if not isinstance(modules, Mapping) or not modules:
        raise InputError.at(source, "holds no plan: neither a serialised ShardingPlan nor module paths", path="plan")
    if all(isinstance(value, Mapping) and "sharding_type" in value for value in modules.values()):
        modules = {"": modules}
    entries: Parameters = {}
    faults = []
    for path, parameters in modules.items():
        if not isinstance(parameters, Mapping):
            faults.append(Fault(source, 0, 0, str(path), "must be a mapping from tables to their sharding"))
            continue
        for name, entry in parameters.items():
            if isinstance(entry, Mapping) and "sharding_type" in entry and "compute_kernel" in entry:
                entries[str(path), str(name)] = entry
            else:
                message = "must be a mapping with sharding_type, compute_kernel and ranks"
                faults.append(Fault(source, 0, 0, f"{path}.{name}".lstrip("."), message))
    if faults:
        raise InputError(faults)
    return entries


def unpickled(path: str | Path) -> dict[str, Any]:
    """What a pickled ShardingPlan serialises to. Unpickling runs whatever code the file holds: trust it first.

    Raises InputError for a file that is no pickled ShardingPlan, or whose packages are not installed.
    """
    source = str(path)
    try:
        with Path(path).open("rb") as file:
            plan = pickle.load(file)
    except OSError as error:
        raise InputError.at(source, f"cannot be read: {error.strerror}") from None
    except ImportError as error:
        raise InputError.at(source, f"needs a package that is not installed here: {error.name or error}") from None
    except Exception as error:  # noqa: BLE001 - a pickle may raise anything
        raise InputError.at(source, f"cannot be unpickled: {error}") from None
    if not hasattr(plan, "plan") or not isinstance(plan.plan, Mapping):
        raise InputError.at(source, f"holds no ShardingPlan but one {type(plan).__name__}")
    return {
        "plan": {
            path: {name: _serialised(sharding, f"{path}.{name}".lstrip(".")) for name, sharding in parameters.items()}
            for path, parameters in plan.plan.items()
        }
    }


def _serialised(sharding: Any, where: str) -> dict[str, Any]:
    """A ParameterSharding as plain data. Raises InputError for what is none."""
    own = ("sharding_type", "compute_kernel", "ranks", "sharding_spec")
    if absent := [key for key in own if not hasattr(sharding, key)]:
        raise InputError.at(where, f"is no ParameterSharding: it has no {', '.join(absent)}")
    fields = {key: getattr(sharding, key) for key in own[:-1]}
    if (spec := sharding.sharding_spec) is not None:
        fields["shards"] = [
            {
                "shard_offsets": list(shard.shard_offsets),
                "shard_sizes": list(shard.shard_sizes),
                "placement": str(shard.placement),
            }
            for shard in spec.shards
        ]
    return fields | plain_settings(sharding, where)


def torchrec_tables(parameters: Parameters, inputs: AdoptionInputs, source: str) -> list[AdoptedTable]:
    """How the parameters hold the tables of the workload, in its order.

    A table is found as `path.name`, or by its name where that is in one module only. Where a file has no shards
    (TorchEasyRec's has none) they follow from the ranks, as TorchRec cuts: rows in ceil-blocks, columns evenly. Raises
    InputError with every table that is missing, unknown or cannot be read.
    """
    reader = _TorchRecReader(parameters, inputs, source)
    adopted_tables = reader.read()
    if reader.faults:
        raise InputError(reader.faults)
    return adopted_tables


def with_settings(parameters: Parameters, inputs: AdoptionInputs, source: str) -> AdoptionInputs:
    """The inputs whose tables have the settings of kernels that the parameters state.

    Raises InputError for settings that are unknown, or other than those that the workload states.
    """
    reader = _TorchRecReader(parameters, inputs, source)
    profiles = {profile.name: profile for profile in inputs.workload.tables}
    for profile, place in reader.places():
        entry = parameters[place]
        try:
            told = settings_of(_without_plans_share(entry), source, profile.name)
        except InputError as error:
            reader.faults += error.faults
            continue
        if told == KernelSettings():
            continue
        if profile.kernel not in (told, KernelSettings()):
            reader.faults.append(Fault(source, 0, 0, profile.name, "its kernel has other settings in the workload"))
        profiles[profile.name] = profile.model_copy(update={"kernel": told})
    if reader.faults:
        raise InputError(reader.faults)
    tables = tuple(profiles.values())
    if tables == inputs.workload.tables:
        return inputs
    return replace(inputs, given_workload=inputs.workload.model_copy(update={"tables": tables}))


def _without_plans_share(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """An entry without the share of a cache that the plan itself holds: that of a table which is cached."""
    cache = entry.get("cache_params")
    if not isinstance(cache, Mapping) or not TIER_OF_KERNEL.get(entry["compute_kernel"], "").endswith("_cached"):
        return entry
    rest = {key: value for key, value in cache.items() if key != "load_factor"}
    return {**entry, "cache_params": rest or None}


@dataclass
class _TorchRecReader:
    parameters: Parameters
    inputs: AdoptionInputs
    source: str
    faults: list[Fault] = field(default_factory=list)

    def read(self) -> list[AdoptedTable]:
        tables = []
        used = set[tuple[str, str]]()
        for profile, place in self.places():
            used.add(place)
            table = self._held(profile, self.parameters[place])
            if table is not None:
                tables.append(table)
        for path, name in self.parameters.keys() - used:
            self._fault(f"{path}.{name}".lstrip("."), "the workload has no such table")
        return tables

    def places(self) -> Iterator[tuple[TableProfile, tuple[str, str]]]:
        """Each table of the workload that the plan has, and where."""
        by_name: dict[str, list[tuple[str, str]]] = {}
        for path, name in self.parameters:
            by_name.setdefault(f"{path}.{name}" if path else name, []).append((path, name))
        for path, name in self.parameters:
            if path:
                by_name.setdefault(name, []).append((path, name))
        for profile in self.inputs.workload.tables:
            places = by_name.get(profile.name, [])
            if len(places) != 1:
                where = " and ".join(repr(path) for path, _ in places)
                several = f"is in several modules, {where}; call it module.{profile.name} in the workload"
                self._fault(profile.name, several if places else "the plan lacks this table of the workload")
                continue
            yield profile, places[0]

    def _fault(self, path: str, message: str) -> None:
        self.faults.append(Fault(self.source, 0, 0, path, message))

    def _held(self, profile: TableProfile, entry: Mapping[str, Any]) -> AdoptedTable | None:
        name, kernel, word = profile.name, entry["compute_kernel"], entry["sharding_type"]
        before = len(self.faults)
        if word not in USUAL_SHARDINGS:
            self._fault(name, f"{shown(word)} is no sharding_type{did_you_mean(str(word), USUAL_SHARDINGS)}")
        if kernel not in TIER_OF_KERNEL:
            self._fault(name, f"{shown(kernel)} is no compute_kernel that can be costed{_near_kernel(kernel)}")
        for key, own in (("num_embeddings", self._rows(profile)), ("embedding_dim", self._columns(profile))):
            if entry.get(key, own) != own:
                self._fault(name, f"{key} is {entry[key]} in the plan and {own} in the workload")
        if len(self.faults) > before:
            return None
        try:
            rectangles = self._rectangles(profile, word, entry)
        except ValueError as error:
            self._fault(name, str(error))
            return None
        tier = TIER_OF_KERNEL[kernel]
        fraction: float | None = None
        if tier.endswith("_cached"):
            cache = entry.get("cache_params")
            told = cache.get("load_factor") if isinstance(cache, Mapping) else None
            fraction = torchrec_coefficients().cache_fraction.value if told is None else told
            if not isinstance(fraction, int | float) or not 0 < fraction <= 1:
                self._fault(name, f"cache_params.load_factor {shown(fraction)} is no share above 0 and at most 1")
                return None
        return AdoptedTable(cast("Sharding", word), tier, fraction, *rectangles.T)

    def _rectangles(self, profile: TableProfile, word: Sharding, entry: Mapping[str, Any]) -> Ints:
        """[n, 5] rank, first row, rows, first column, columns. Raises ValueError with what is wrong."""
        world = self.inputs.topology.world_size
        if word == "data_parallel":
            rows = [[rank, 0, self._rows(profile), 0, self._columns(profile)] for rank in range(world)]
        elif entry.get("shards"):
            rows = list(_told(entry["shards"]))
        else:
            ranks = entry.get("ranks")
            if not isinstance(ranks, Sequence) or not ranks or not all(isinstance(rank, WHOLE) for rank in ranks):
                raise ValueError("has neither shards nor ranks")
            rows = self._cut(profile, word, list(ranks))
        rectangles = np.array(rows, dtype=np.int64)
        if (rectangles < 0).any() or rectangles[:, 0].max() >= world:
            raise ValueError(f"has a shard on a rank that is none of 0 to {world - 1}, or a number below 0")
        return rectangles

    def _rows(self, profile: TableProfile) -> int:
        return self.inputs.workload.stored_rows(profile)

    def _columns(self, profile: TableProfile) -> int:
        return self.inputs.workload.stored_dim(profile)

    def _cut(self, profile: TableProfile, word: Sharding, ranks: list[int]) -> list[list[int]]:
        """Shards as TorchRec cuts them, from their ranks alone."""
        model = self.inputs.model
        in_group = int(np.bincount(model.node_of_rank)[0])
        each = {"row_wise": len(ranks), "table_row_wise": len(ranks), "grid_shard": in_group}.get(word, 1)
        blocks, rest = divmod(len(ranks), each)
        columns = self._columns(profile)
        width, left = divmod(columns, max(blocks, 1))
        if rest or left or width % 4:
            raise ValueError(
                f"{len(ranks)} ranks do not say how {columns} columns are cut; import a ShardingPlan with shards"
            )
        position = np.arange(each)
        rows_of_part = block_rows(np.array(self._rows(profile)), each, position)
        start = np.cumsum(rows_of_part) - rows_of_part
        return [
            [rank, int(start[i % each]), int(rows_of_part[i % each]), i // each * width, width]
            for i, rank in enumerate(ranks)
        ]


def _told(shards: Any) -> Iterator[list[int]]:
    for shard in shards:
        try:
            (row, column), (rows, columns) = shard["shard_offsets"], shard["shard_sizes"]
            rank = re.match(r"rank:(\d+)(/|$)", str(shard["placement"]))
        except (KeyError, TypeError, ValueError):
            rank = None
        if rank is None or not all(isinstance(number, WHOLE) for number in (row, column, rows, columns)):
            lacks = "shard_offsets, shard_sizes or placement (as rank:3/cuda:3)"
            raise ValueError(f"has a shard without {lacks}: {shown(shard)}")
        yield [int(rank[1]), int(row), int(rows), int(column), int(columns)]


def _near_kernel(kernel: object) -> str:
    return did_you_mean(str(kernel), list(TIER_OF_KERNEL))
