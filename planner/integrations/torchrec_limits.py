"""The options that a sharder and constraints leave of a table: shardings, and the tiers whose kernels each may use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cost_models.shards import PLACEMENT_TIERS, SHARDINGS
from planner.formulation.runtimes import RUNTIMES
from planner.importers.torchrec import TIER_OF_KERNEL
from topologies.documents import did_you_mean
from topologies.errors import InputError

if TYPE_CHECKING:
    from torchrec.distributed.planner.types import ParameterConstraints

USUAL = ("fused", "quant")
"""Kernels in HBM that nobody need ask for: of tables that train, and of quantized ones."""
UNPLANNED = {
    "key_value": "keeps rows on an SSD behind a cache, which ShardPlanner does not plan for TorchRec",
    "ssd_virtual_table": "keeps the ids that were seen on an SSD, and nothing says how many they are",
    "dram_virtual_table": "keeps the ids that were seen in host memory, and nothing says how many they are",
    "dram_ssd_virtual_table": "keeps the ids that were seen in host memory and on an SSD, and nothing says how many",
}
"""Kernels that TorchRec's planner uses where constraints name them, and why no plan of ours has them."""


@dataclass(frozen=True)
class Kernels:
    """The kernels that a table may use, by sharding."""

    of: Mapping[str, Sequence[str]]

    @classmethod
    def left(
        cls,
        name: str,
        shardings: Iterable[str],
        sharder: Any,
        told: "ParameterConstraints | None",
        fused_params: Mapping[str, Any],
        compute_device: str,
    ) -> "Kernels":
        """Those of the sharder that the constraints allow and a plan can have. Raises InputError where none is left."""
        shardings, offered = list(shardings), {w: sharder.compute_kernels(w, compute_device) for w in shardings}
        stated = _stated(name, told, {kernel for kernels in offered.values() for kernel in kernels})
        kernels_of = {
            way: [kernel for kernel in offered[way] if (stated is None or kernel in stated) and _is_known(way, kernel)]
            for way in shardings
        }
        stays = (
            told.enforce_hbm if told is not None and told.enforce_hbm is not None else fused_params.get("enforce_hbm")
        )
        if stays:
            kernels_of = {
                way: [k for k in kernels if TIER_OF_KERNEL[k] == "hbm"] for way, kernels in kernels_of.items()
            }
        kernels_of = {way: _preferred(kernels) for way, kernels in kernels_of.items() if kernels}
        if not kernels_of:
            asked = f" of {', '.join(stated)}" if stated is not None else ""
            why = [f"{kernel} {UNPLANNED[kernel]}" for kernel in stated or () if kernel in UNPLANNED]
            hbm = " in HBM (enforce_hbm)" if stays else ""
            there = sorted({k for way, kernels in offered.items() for k in kernels if _is_known(way, k)}) or ["none"]
            words = f"has constraints that leave no kernel{asked}{hbm} for {', '.join(shardings)}"
            has = f"its {type(sharder).__name__} has {', '.join(there)} for plans"
            raise InputError.at(name, f"{words}: {'; '.join([*why, has])}; allow more in one of them")
        return cls(kernels_of)

    @property
    def hbm_kernel(self) -> str | None:
        """The kernel of the table in HBM, where that is not the usual one."""
        special = {
            kernel
            for way, kernels in self.of.items()
            if way != "data_parallel"
            for kernel in kernels
            if TIER_OF_KERNEL[kernel] == "hbm" and kernel not in USUAL
        }
        return min(special) if special else None

    def rule(self) -> dict[str, Any]:
        """The keys of a policy's rule that say the same."""
        tiers = {way: _tiers(kernels) for way, kernels in self._alike().items()}
        every = [tier for tier in PLACEMENT_TIERS if any(tier in of for of in tiers.values())]
        apart = {way: of for way, of in tiers.items() if of != every and way != "data_parallel"}
        keys: dict[str, Any] = {"shardings": [way for way in SHARDINGS if way in tiers], "tiers": every}
        return keys | ({"tiers_of": apart} if apart else {})

    def _alike(self) -> dict[str, list[str]]:
        """Without `fused` shardings where another kernel in HBM is all that others have: one kernel is told of a
        table."""
        special = self.hbm_kernel
        if special is None:
            return {way: list(kernels) for way, kernels in self.of.items()}
        usual = any("fused" in kernels for way, kernels in self.of.items() if way != "data_parallel")
        keep = "fused" if usual else special
        kernels_of = {
            way: [k for k in kernels if way == "data_parallel" or k == keep or TIER_OF_KERNEL[k] != "hbm"]
            for way, kernels in self.of.items()
        }
        return {way: kernels for way, kernels in kernels_of.items() if kernels}


def _stated(name: str, told: "ParameterConstraints | None", offered: Iterable[str]) -> Sequence[str] | None:
    """The kernels that the constraints name; None where they name none. Raises InputError for words that are none."""
    from torchrec.distributed.embedding_types import EmbeddingComputeKernel

    if told is None or not told.compute_kernels:
        return None
    known = sorted({kernel.value for kernel in EmbeddingComputeKernel} | set(offered))
    for kernel in told.compute_kernels:
        if kernel not in known:
            raise InputError.at(name, f"compute_kernels: {kernel!r} is no kernel{did_you_mean(kernel, known)}")
    return list(told.compute_kernels)


def _is_known(way: str, kernel: str) -> bool:
    """Whether plans know the kernel; `dense` is that of replicated tables alone, as TorchRec's planner requires
    (validate_compute_kernels)."""
    if way == "data_parallel" or kernel == "dense":
        return way == "data_parallel" and kernel == "dense"
    return TIER_OF_KERNEL.get(kernel) in RUNTIMES["torchrec"].tiers


def _preferred(kernels: Sequence[str]) -> list[str]:
    """The fused one of several kernels in HBM, as TorchRec's enumerator has it, else the first."""
    in_hbm = [kernel for kernel in kernels if TIER_OF_KERNEL[kernel] == "hbm"]
    best = "fused" if "fused" in in_hbm else (in_hbm or [""])[0]
    return [kernel for kernel in kernels if kernel == best or kernel not in in_hbm]


def _tiers(kernels: Sequence[str]) -> list[str]:
    tiers = {TIER_OF_KERNEL[kernel] for kernel in kernels}
    return [tier for tier in PLACEMENT_TIERS if tier in tiers]
