"""What switches that sum (SHARP) save of a placement: the same one beside all-reduces without them."""

from dataclasses import dataclass

from cost_models.between_domains import sums_in_switches
from cost_models.coefficients import Coefficient, link_coefficients
from cost_models.model import CostModel
from cost_models.shards import PlacedShards
from cost_models.step_costs import StepCosts
from topologies.cluster import Topology

LEAST = 1e-9
"""Share of a step that is nothing but rounding."""


@dataclass(frozen=True)
class SummedStage:
    """A stage that is shorter where switches sum."""

    stage: str
    seconds: float
    without_s: float
    """The same stage without."""


@dataclass(frozen=True)
class NetworkSums:
    """What a placement takes with switches that sum, and without them."""

    how: str
    step_s: float
    without_s: float
    """The step of the same placement without."""
    stages: tuple[SummedStage, ...]
    """Those that differ; none between two domains, where a share crosses each card as often."""
    coefficients: dict[str, Coefficient]
    """What the sums are costed with, by name; all of it known of all-reduces without switches that sum."""


def network_sums(model: CostModel, placed: PlacedShards) -> NetworkSums | None:
    """None where no switches sum what a step sends, and of ratings."""
    if not isinstance(model, StepCosts):
        return None
    cluster = model.cluster
    if model.workload.mode != "training" or not sums_in_switches(cluster):
        return None
    network = cluster.network.model_copy(update={"in_network_reduction": "none"})
    without = model.on(cluster.model_copy(update={"network": network}), model.stated_workload)
    own, other = model.evaluate(placed), without.evaluate(placed)
    least_s, stages = LEAST * own.step_s, []
    for name, seconds in zip(model.stages, own.stage_seconds.tolist(), strict=True):
        if name in without.stages:
            without_s = float(other.stage_seconds[without.stages.index(name)])
            stages += [SummedStage(name, seconds, without_s)] if abs(without_s - seconds) > least_s else []
    return NetworkSums(
        cluster.network.in_network_reduction,
        model.whole_step_s(own.step_s),
        without.whole_step_s(other.step_s),
        tuple(stages),
        _coefficients(cluster),
    )


def _coefficients(cluster: Topology) -> dict[str, Coefficient]:
    """Of the cluster's kinds of cards, what all-reduces achieve of their rate, and the hop of a tree."""
    cards = {group.links.scale_out.kind for group in cluster.nodes if group.links.scale_out}
    found = {}
    for link in [link_coefficients(kind, "default-scale-out") for kind in sorted(cards)]:
        for name in ("all_reduce_efficiency", "tree_hop_s"):
            if (coefficient := getattr(link, name)) is not None:
                found[f"{name} of {link.name}"] = coefficient
    return found
