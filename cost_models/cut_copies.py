"""How copies that are cut over their replicas, and gathered again, divide among the stages that they run beside.

Weights are reduce-scattered from the lookup on, and gathered from the backward pass on, until the update. They take the
links' idle time as it comes; with an exchange that needs the same links they share these alike, and what is left when
all others are done makes the step longer. Until their first bytes come, links are idle but for what others send. In a
sum over stages each stage takes the part of them that it has where tables are spread evenly. Where idle time is enough
there, it is divided in proportion to that, and what is left where it is not by the length of stages: those with longer
exchanges hide more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cost_models.loads import Loads
from cost_models.stages import CUT_TERMS


@dataclass(frozen=True)
class Span:
    """Part of the time between the lookup and the update."""

    stage: str
    seconds: float
    idle_s: float
    """For how much of it nothing else uses the links that copies are cut over."""
    beside_s: float = 0.0
    """How much of them copies have while an exchange uses them, if they share them by bytes; it lasts longer then."""
    is_constant: bool = False
    """Whether it is as long whatever is placed; such time counts as time of the stage `dense`."""

    @property
    def room_s(self) -> float:
        """What copies have of the links until it ends."""
        return max(self.idle_s, self.beside_s)

    def part(self, share: float) -> "Span":
        """So much of it."""
        return replace(self, seconds=self.seconds * share, idle_s=self.idle_s * share, beside_s=self.beside_s * share)


@dataclass(frozen=True)
class CutShares:
    """What each stage takes of cutting and gathering copies."""

    of_stage: dict[str, float]
    """Of what they load on links; they add up to 1."""
    hidden_s: float
    """Seconds of the stage `dense` by which both begin before it."""
    waiting_s: dict[str, float]
    """Idle seconds of each stage until their first bytes come."""


def cut_shares(forward: Sequence[Span], backward: Sequence[Span], wait_s: float, half_s: float) -> CutShares:
    """Of spans before the backward pass, and from its begin on, where the first bytes of each come after `wait_s`, and
    all of them keep the links busy for `half_s`."""
    spans = [*forward, *backward]
    seconds = dict.fromkeys(["dense", *(span.stage for span in spans if not span.is_constant)], 0.0)
    for span in spans:
        if not span.is_constant:
            seconds[span.stage] += span.seconds
    taken_s, waiting_s = dict.fromkeys(seconds, 0.0), dict.fromkeys(seconds, 0.0)

    of_forward, hidden_s, longer_s = _begun(forward, wait_s, waiting_s)
    _, left_s = _sent(of_forward, half_s, taken_s)
    of_backward, left_s = _sent(backward, left_s, taken_s)
    of_backward, hidden_again_s, longer_again_s = _begun(of_backward, wait_s, waiting_s)
    _, left_again_s = _sent(of_backward, half_s, taken_s)

    hidden_s = sum(span.idle_s for span in spans if span.is_constant) - hidden_s - hidden_again_s
    idle_s = {stage: -late_s for stage, late_s in waiting_s.items()}
    idle_s["dense"] += hidden_s
    for span in spans:
        if not span.is_constant:
            idle_s[span.stage] += span.idle_s
    if not left_s + left_again_s and all(taken_s[stage] <= each for stage, each in idle_s.items()):
        taken_s = idle_s  # nothing is delayed, and there is as much room for more of it everywhere
    whole_s = sum(seconds.values())
    for stage, each in seconds.items():
        share = each / whole_s if whole_s else float(stage == "dense")
        taken_s[stage] += (left_s + left_again_s) * share
        waiting_s[stage] += (longer_s + longer_again_s) * share
    total_s = sum(taken_s.values())
    shares = {stage: each / total_s for stage, each in taken_s.items()} if total_s else {"dense": 1.0}
    return CutShares(shares, hidden_s, waiting_s)


def cut_terms(loads: Loads, shares: Mapping[str, float], stages: Sequence[str]) -> dict[str, Loads]:
    """What cutting copies and gathering them loads, by term of the step, where each stage has its share. Tables whose
    towers are one rank each have no stage inside of them, and take that in `dense`."""
    own = {stage: share for stage, share in shares.items() if stage in stages}
    own["dense"] += sum(share for stage, share in shares.items() if stage not in stages)
    return {CUT_TERMS[stage]: {link: load * share for link, load in loads.items()} for stage, share in own.items()}


def _begun(spans: Sequence[Span], wait_s: float, waiting_s: dict[str, float]) -> tuple[list[Span], float, float]:
    """What is left of some spans when the first bytes come, the idle seconds until then in constant ones, and those
    after all spans; those of each stage are added to what it is `waiting_s`."""
    constant_s = 0.0
    for n, span in enumerate(spans):
        share = min(wait_s / span.seconds, 1.0) if span.seconds else 1.0
        if span.is_constant:
            constant_s += span.idle_s * share
        else:
            waiting_s[span.stage] += span.idle_s * share
        if share < 1:
            return [span.part(1 - share), *spans[n + 1 :]], constant_s, 0.0
        wait_s -= span.seconds
    return [], constant_s, wait_s


def _sent(spans: Sequence[Span], seconds: float, taken_s: dict[str, float]) -> tuple[list[Span], float]:
    """What is left of some spans when so many seconds of the links are used, and of these when spans end; the others
    are added to what each stage has taken."""
    for n, span in enumerate(spans):
        room_s, stage = span.room_s, "dense" if span.is_constant else span.stage
        if seconds < room_s:
            taken_s[stage] += seconds
            return [span.part(1 - seconds / room_s), *spans[n + 1 :]], 0.0
        taken_s[stage] += room_s
        seconds -= room_s
    return [], seconds
