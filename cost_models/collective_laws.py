"""How long a collective takes inside a scale-up domain: the fastest of a few protocols, each a latency and a rate.

NCCL sends small buffers by low-latency protocols and large ones by fast ones. The time of `x` wire bytes is
min over protocols of (a + x / B), with x = bytes (n-1)/n on each port of n ranks, twice that for an all-reduce.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from cost_models.coefficients import (
    CollectiveCoefficients,
    CollectiveOperation,
    collective_files,
)
from cost_models.error_bars import HELD_OUT, MEAN_TO_90
from cost_models.shards import Floats

Origin = Literal["own", "sibling", "generation"]
"""Whose measurements a law rests on: the device's, another device's on the same kind of link, or of another kind."""
SPREAD: dict[Origin, float] = {"own": 0.06, "sibling": 0.08, "generation": 0.43}
"""Largest mean error of a law on a system: its own; on the same kind of NVLink and on another generation of it, scaled
by the data sheet's bandwidth (docs/reference/accuracy.md)."""


def wire_bytes(operation: CollectiveOperation, buffer_bytes: ArrayLike, ranks: int) -> Floats:
    """Bytes that cross each rank's port: (n-1)/n of the buffer, twice that for an all-reduce."""
    passes = 2 if operation == "all_reduce" else 1
    return np.asarray(buffer_bytes, dtype=np.float64) * passes * (ranks - 1) / ranks


@dataclass(frozen=True)
class Protocol:
    """One way to move the bytes of a collective: a straight line."""

    latency_s: float | None
    """None where nothing was measured: that of the path between the ranks."""
    bytes_per_s: float


@dataclass(frozen=True)
class CollectiveLaw:
    """The protocols of one operation among one number of ranks."""

    latency_s: tuple[float, ...]
    bytes_per_s: tuple[float, ...]
    origin: Origin
    system: str
    """Name of the coefficient file."""
    residual_90: float = 0.0
    """Relative error that nine in ten measurements stay within, sizes among them that the fit has not seen."""
    ranks: int = 0
    """How many ranks the measurements had; 0: not said."""
    buffer_bytes: tuple[float, float] = (0.0, np.inf)
    """Smallest and largest buffer of the measurements."""
    sums_apart: bool = False
    """Whether partial sums travel by laws of their own."""
    takes_turns: bool = False
    """Whether what a rank sends and what it gets take turns."""

    def error_90(self) -> float:
        """Relative error inside the validity range: the measurements', and of laws of another system their spread."""
        borrowed = 0.0 if self.origin == "own" else SPREAD[self.origin] * MEAN_TO_90
        return float(np.hypot(self.residual_90, borrowed))

    def seconds(self, wire: ArrayLike) -> Floats:
        """Time of a collective with this many bytes on the busiest port; shape of the argument."""
        return np.asarray(self._all(wire).min(axis=-1))

    def line_at(self, wire: float) -> tuple[float, float]:
        """(latency in s, bytes/s) of the protocol that is fastest for this many bytes."""
        fastest = int(self._all(wire).argmin())
        return self.latency_s[fastest], self.bytes_per_s[fastest]

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        """Those that are the fastest for any number of bytes: each waits longer than the one before, and is faster."""
        kept: list[Protocol] = []
        for latency, rate in sorted(
            zip(self.latency_s, self.bytes_per_s, strict=True), key=lambda line: (line[0], -line[1])
        ):
            if not kept or rate > kept[-1].bytes_per_s:
                kept.append(Protocol(latency, rate))
        return tuple(kept)

    def _all(self, wire: ArrayLike) -> Floats:
        x = np.asarray(wire, dtype=np.float64)[..., None]
        return np.asarray(np.array(self.latency_s) + x / np.array(self.bytes_per_s))


def collective_law(
    operation: CollectiveOperation, device: str, link: str, bytes_per_s: float, ranks: int
) -> CollectiveLaw | None:
    """The law for `ranks` ranks of a device on a kind of link whose data sheet says `bytes_per_s`, or None.

    Without measurements of the device, those of a sibling on the same kind of link, or of a kind that stands in for
    it, are scaled by bandwidth; without either there is no law. Numbers of ranks that were not measured take the
    nearest measured one, the larger of two.
    """
    files = collective_files()
    own = [file for file in files if device in file.devices and file.link == link]
    siblings = [file for file in files if file.link == link and file.represents_link]
    others = [file for file in files if link in file.stands_in_for]
    candidates: list[tuple[Origin, list[CollectiveCoefficients]]] = [
        ("own", own),
        ("sibling", siblings),
        ("generation", others),
    ]
    for origin, found in candidates:
        for file in found:
            laws = [law for law in file.laws if law.operation == operation]
            if not laws:
                continue
            law = min(laws, key=lambda law: (abs(math.log2(law.ranks / ranks)), -law.ranks))
            scale = bytes_per_s / file.bytes_per_s
            latencies, rates = zip(*law.protocols, strict=True)
            return CollectiveLaw(
                latencies,
                tuple(rate * scale for rate in rates),
                origin,
                file.name,
                residual_90=HELD_OUT * law.band_90,
                ranks=law.ranks,
                buffer_bytes=law.buffer_bytes,
                sums_apart=file.sums_apart,
                takes_turns=file.takes_turns,
            )
    return None
