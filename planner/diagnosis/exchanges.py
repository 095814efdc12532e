"""Why vectors are exchanged as they are: what the placement takes under the other exchange, and where the time goes."""

from dataclasses import dataclass

import numpy as np

from cost_models import towers
from cost_models.kinds import RankKind
from cost_models.model import CostModel
from cost_models.registry import why_flat
from cost_models.shards import PlacedShards
from cost_models.stages import VectorExchange
from cost_models.step_costs import StepCosts
from planner.document.plan import OtherExchange, Plan
from planner.document.planned import model_under
from topologies.sentences import counted

_EXCHANGES = ("output_intra_host", "output_dist", "gradient_dist", "gradient_intra_host")
_REARRANGED = {
    "permute": "lookup_forward",
    "transpose": "output_dist",
    "transpose_backward": "gradient_dist",
    "permute_backward": "lookup_backward",
}


@dataclass(frozen=True)
class Exchanged:
    """A placement under one exchange of vectors."""

    exchange: VectorExchange
    step_s: float
    exchanges_s: float
    """In the exchanges of vectors and their gradients, forward and backward."""
    peers: int
    """Ranks beyond its domain, or its tower, with which a rank exchanges."""
    in_tower: int
    """Ranks of its tower in other domains, with which it exchanges before that."""
    card_bytes_per_s: float
    """What a card achieves then; of the slowest kind."""

    @property
    def peers_words(self) -> str:
        """`7 peers`, or of towers of several domains `12 ranks of its tower, then 7 peers`."""
        before = f"{counted(self.in_tower, 'rank')} of its tower, then " if self.in_tower else ""
        return f"{before}{counted(self.peers, 'peer')}"


@dataclass(frozen=True)
class Rearranging:
    """Vectors that are put in another order on the way through towers: the most that any rank takes."""

    term: str
    stage: str
    """The stage that this is a part of."""
    seconds: float


@dataclass(frozen=True)
class ExchangeReasons:
    """Why a plan has its exchange of vectors."""

    is_chosen: bool
    """Whether the policy leaves it open."""
    only: str | None
    """Why there is no other, as the end of a sentence; None where there is one."""
    own: Exchanged | None
    other: Exchanged | None
    """The same placement under the other exchange."""
    best_other: OtherExchange | None
    """The best plan under that one, where one was made."""
    rearranging: tuple[Rearranging, ...]


def exchange_reasons(plan: Plan, model: CostModel, placed: PlacedShards) -> ExchangeReasons | None:
    """None where the policy asks for the flat exchange."""
    policy, exchange = plan.provenance.policy, plan.provenance.exchange
    if policy.exchange == "flat":
        return None
    is_chosen = policy.exchange == "auto"
    is_alone = bool(model.workload.tower_modules) or not towers.has_towers(model.topology, model.workload, "sptt")
    only = _only(plan, model) if is_chosen or is_alone else None
    if only is not None:
        return ExchangeReasons(is_chosen, only, None, None, None, ())
    other = model_under(plan, "flat" if exchange == "sptt" else "sptt")
    sptt = model if exchange == "sptt" else other
    return ExchangeReasons(
        is_chosen,
        None,
        _exchanged(model, placed),
        _exchanged(other, placed),
        plan.other_exchange,
        tuple(_rearranging(sptt, placed)),
    )


def _only(plan: Plan, model: CostModel) -> str | None:
    if model.workload.tower_modules:
        return "modules of towers work between its two exchanges"
    if plan.provenance.policy.runtime != "any":
        return f"{plan.provenance.policy.runtime} has no other"
    if (reason := why_flat(model.name, model.topology, model.workload)) is not None:
        return reason
    if towers.has_towers(model.topology, model.workload, "sptt"):
        return None
    return "there is one scale-up domain, or each rank has its own"


def _exchanged(model: CostModel, placed: PlacedShards) -> Exchanged:
    assert isinstance(model, StepCosts)
    evaluation, has_towers = model.evaluate(placed), model.schedule.has_towers
    few_peers = has_towers or model.coefficients.software.exchange_in_phases
    seconds = dict(zip(model.stages, evaluation.stage_seconds.tolist(), strict=True))
    return Exchanged(
        model.exchange,
        evaluation.step_s,
        sum(seconds.get(stage, 0.0) for stage in _EXCHANGES),
        int(max(_peers(kind, few_peers, has_towers) for kind in model.kinds)),
        max(kind.tower.size - kind.domain_ranks for kind in model.kinds) if has_towers else 0,
        min(kind.nic_peers if has_towers else kind.nic_all_to_all for kind in model.kinds),
    )


def _peers(kind: RankKind, few_peers: bool, has_towers: bool) -> float:
    if has_towers:
        return kind.world_size / kind.tower.size - 1
    return kind.world.domains - 1 if few_peers else kind.world_size - kind.domain_ranks


def _rearranging(model: CostModel, placed: PlacedShards) -> list[Rearranging]:
    assert isinstance(model, StepCosts)
    found: dict[str, float] = {}
    for k, kind in enumerate(model.kinds):
        for term, loads in towers.rearranging(model.tables, placed.blocks, kind, model.batching).items():
            (load,) = loads.values()
            place = np.arange(model.topology.world_size) if term.startswith("permute") else model.schedule.tower_of_rank
            own = np.where(model.kind_of_rank[placed.rank] == k, load.fixed, 0.0)
            found[term] = max(found.get(term, 0.0), float(np.bincount(place[placed.rank], weights=own).max()))
    return [Rearranging(term, _REARRANGED[term], seconds) for term, seconds in found.items()]
