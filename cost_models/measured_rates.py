"""Whether the devices, links and networks of a cluster are as fast as those on which whole steps were measured.

A part of a kind that was measured, but of another rate, counts as new. PCIe counts only as the link inside a node: of
other systems the measurements do not say how their accelerators share it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cost_models.arithmetic import peak_flops
from cost_models.coefficients import MeasuredRates
from topologies.cluster import NodeGroup

NEAR = 1.1
"""A rate counts as measured up to so many times above or below one that was (assumed)."""


@dataclass(frozen=True)
class Part:
    """A device, a link or a network."""

    kind: str
    rates: tuple[float, ...]
    words: tuple[str, ...]
    """Each rate, to be read after `none with`."""

    def is_near(self, other: "Part", rate: int) -> bool:
        """Whether one of its rates is that of another part."""
        return max(self.rates[rate], other.rates[rate]) <= NEAR * min(self.rates[rate], other.rates[rate])

    def is_like(self, other: "Part") -> bool:
        """Whether kind and rates are those of another part."""
        return self.kind == other.kind and all(self.is_near(other, rate) for rate in range(len(self.rates)))


def link_inside(group: NodeGroup) -> tuple[str, float]:
    """Kind and bandwidth of the link inside a node."""
    up = group.links.scale_up
    return (up.kind, up.bandwidth) if up else ("pcie", group.links.pcie.bandwidth)


def rates_of(group: NodeGroup, *, crosses: bool) -> MeasuredRates:
    """Those of a node group's accelerators; `crosses`: they exchange over cards, too."""
    (link, link_bytes_per_s), cards = link_inside(group), group.links.scale_out if crosses else None
    served = max(1, group.accelerators.count // cards.count) if cards else 1
    return MeasuredRates(
        device=group.accelerators.device,
        hbm_bytes_per_s=group.accelerators.hbm.bandwidth,
        flops=group.accelerators.flops,
        link=link,
        link_bytes_per_s=link_bytes_per_s,
        network=cards.kind if cards else None,
        network_bytes_per_s=group.scale_out_bytes_per_s / served if cards else None,
    )


def parts_of(rates: MeasuredRates, wanted: str) -> dict[str, Part]:
    """The parts of a system, with its arithmetic in the format that is wanted."""
    flops = peak_flops(rates.flops, wanted)
    words = f"HBM of {_in_words(rates.hbm_bytes_per_s)}", f"{flops / 1e12:.4g} TFLOP/s in {wanted}"
    link = f"{rates.link} of {_in_words(rates.link_bytes_per_s)}"
    found = {
        "device": Part(rates.device, (rates.hbm_bytes_per_s, flops), words),
        "link": Part(rates.link, (rates.link_bytes_per_s,), (link,)),
    }
    if rates.network is not None and rates.network_bytes_per_s is not None:
        network = f"{rates.network} of {_in_words(rates.network_bytes_per_s)} for each accelerator"
        found["network"] = Part(rates.network, (rates.network_bytes_per_s,), (network,))
    return found


def _in_words(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e12:.4g} TB/s" if bytes_per_s >= 1e12 else f"{bytes_per_s / 1e9:.4g} GB/s"


def new_rates(own: Iterable[Mapping[str, Part]], measured: Iterable[Mapping[str, Part]]) -> dict[str, list[str]]:
    """The parts whose kind was measured, but not at such rates, and which rates these are in words."""
    measured, found = tuple(measured), dict[str, list[str]]()
    for part, each in (item for parts in own for item in parts.items()):
        alike = [other for parts in measured if (other := parts.get(part)) and other.kind == each.kind]
        if alike and not any(each.is_like(other) for other in alike):
            new = [rate for rate in range(len(each.rates)) if not any(each.is_near(other, rate) for other in alike)]
            words = [each.words[rate] for rate in new] or [" and ".join(each.words)]
            found[part] = list(dict.fromkeys([*found.get(part, []), *words]))
    return found


def are_measured(own: Iterable[Mapping[str, Part]], measured: Iterable[Mapping[str, Part]]) -> bool:
    """Whether the parts of each system were measured together, at such rates."""
    measured = tuple(measured)
    return all(any(_are_alike(parts, others) for others in measured) for parts in own)


def _are_alike(parts: Mapping[str, Part], others: Mapping[str, Part]) -> bool:
    return parts.keys() == others.keys() and all(part.is_like(others[name]) for name, part in parts.items())
