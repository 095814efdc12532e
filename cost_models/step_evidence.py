"""What whole steps that were measured tell of a step: on the same system, or on another one of the same parts.

Steps on one system err alike, so that the next system errs by more than the next row: the variance between systems is
a term of its own, found by leaving each device, link, network, number of ranks and combination of them out of the fit.
A share of nine in ten on new systems is guaranteed, whatever the distribution, by nine systems that were left out or
more (of which the worst counts); from fewer it follows only if they err as a normal distribution does.
"""

import itertools
from dataclasses import dataclass

from cost_models.between_domains import sums_in_switches
from cost_models.coefficients import MeasuredSystem, Quantity, StepEvidence
from cost_models.dense_size import macs_per_sample
from cost_models.error_bars import outside, width
from cost_models.measured_rates import Part, are_measured, link_inside, new_rates, parts_of, rates_of
from cost_models.shards import HBM, MEMORY_HBM, PlacedShards, state_memory
from cost_models.step_costs import StepCosts
from cost_models.uplinks import oversubscribed_levels
from topologies.cluster import Topology

GUARANTEED_BY = 9
"""Groups of which the worst bounds the next one with a chance of nine in ten (split conformal prediction)."""
_PLURAL = {"combination": "systems", "device": "devices", "link": "links", "network": "networks", "ranks": "sizes"}
_SEEN_APART = {"combination", "ranks"}
"""What may be new of a system whose hardware is not."""


@dataclass(frozen=True)
class Told:
    """The relative error of a step by what steps are known."""

    error_90: float
    words: str
    is_enough: bool
    """Whether they say more than the terms of the step do."""


def told_by_steps(model: StepCosts, placed: PlacedShards, evidence: StepEvidence, name: str) -> Told:
    """What the measured steps of a software say of a placement's step."""
    beyond = outside(evidence.valid, _case(model))
    range_words = ", beyond their range of sizes" if beyond > 0.5 else ""
    unseen = _unseen(model, evidence)
    left_out = [each for each in evidence.left_out if each.part in unseen]
    error = max([evidence.residual_90, *(each.error_90 for each in left_out)])
    few = next(
        (f"; {each.groups} {_PLURAL[each.part]} give no guarantee" for each in left_out if each.groups < GUARANTEED_BY),
        "",
    )
    unlike = unseen - _SEEN_APART
    steps = f"whole steps of {name}"
    rates = new_rates(_own_parts(model), _measured_parts(model, evidence))
    new = [*_unstated(model.cluster), *itertools.chain.from_iterable(rates.values())]
    range_words += f", none with {' or '.join(new)}" if new else ""
    if model.coefficients.optimizers:
        return Told(float(width(error, beyond)), f"{steps} with other optimizers only{few}", is_enough=False)
    if not _is_in_hbm(model, placed) or unlike:
        words = f"{steps} on other hardware or tiers only{range_words}{few}"
    elif unseen:
        words = f"{evidence.rows} {steps} on {len(evidence.systems)} other systems of such parts{range_words}{few}"
    else:
        words = f"{evidence.rows} {steps} on such hardware{range_words}"
    return Told(float(width(error, beyond)), words, _is_in_hbm(model, placed) and not unlike)


def _case(model: StepCosts) -> dict[Quantity, float]:
    return {
        "ranks": float(model.topology.world_size),
        "samples_per_rank": model.batching.samples_per_rank,
        "lookups_per_sample": float(model.tables.lookups_per_sample.sum()),
        "macs_per_sample": float(macs_per_sample(model.workload)),
    }


def _is_in_hbm(model: StepCosts, placed: PlacedShards) -> bool:
    """Whether it is as the measured steps were: training, with all tables and their state in HBM."""
    in_hbm = (placed.blocks.tier == HBM).all() and (state_memory(placed.blocks) == MEMORY_HBM).all()
    return model.tables.training and bool(in_hbm)


def _unstated(cluster: Topology) -> list[str]:
    """What a network has that no measured row states, in words."""
    found = {
        "sums in switches (SHARP)": sums_in_switches(cluster),
        "oversubscribed switches": bool(oversubscribed_levels(cluster)),
    }
    return [words for words, is_there in found.items() if is_there]


def _crosses(model: StepCosts) -> bool:
    """Whether ranks exchange over cards."""
    return any(kind.domain_ranks < kind.world_size for kind in model.kinds)


def _own_parts(model: StepCosts) -> list[dict[str, Part]]:
    """Those of each node group."""
    wanted, crosses = model.workload.dense.dtype, _crosses(model)
    return [parts_of(rates_of(group, crosses=crosses), wanted) for group in model.cluster.nodes]


def _measured_parts(model: StepCosts, evidence: StepEvidence) -> list[dict[str, Part]]:
    return [parts_of(rates, model.workload.dense.dtype) for rates in evidence.rates]


def _unseen(model: StepCosts, evidence: StepEvidence) -> set[str]:
    """The parts of the system on which no step was measured, or else `combination` where each was, but not together,
    and `ranks` where not as many were."""
    groups = model.topology.nodes
    cards = [group.links.scale_out for group in model.cluster.nodes]
    networks = {each.kind for each in cards if each} if _crosses(model) else set()
    if unstated := " or ".join(_unstated(model.cluster)):
        networks = {f"{each.kind} with {unstated}" for each in cards if each}
    devices, links = {group.accelerators.device for group in groups}, {link_inside(group)[0] for group in groups}
    seen = {"device": evidence.devices, "link": evidence.links, "network": evidence.networks}
    here = {"device": devices, "link": links, "network": networks}
    unseen = {part for part, kinds in here.items() if not kinds <= set(seen[part])}
    unseen |= new_rates(_own_parts(model), _measured_parts(model, evidence)).keys()
    if not evidence.systems or unseen:
        return unseen
    own = {
        MeasuredSystem(
            device=device,
            link=link,
            network=next(iter(networks), None),
            nodes=model.topology.node_count,
            ranks=model.topology.world_size,
        )
        for device in devices
        for link in links
    }
    are_known = not evidence.rates or are_measured(_own_parts(model), _measured_parts(model, evidence))
    if own <= set(evidence.systems) and len(networks) <= 1 and are_known:
        return set()
    ranks = {system.ranks for system in evidence.systems}
    return {"combination"} if model.topology.world_size in ranks else {"combination", "ranks"}
