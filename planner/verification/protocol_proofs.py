"""The proof of a bound at all protocols of the cost model (`CostModel.all_protocols`).

A proof is one of what placements cost at the protocols that it names. At the others, its own weights and multipliers
prove what they prove there, or a proof that is written beside it does. No placement takes less than the least of these,
as each takes what it costs at its own.
"""

from collections.abc import Iterator

from cost_models.model import CostModel
from planner.document.certificates import Proof
from planner.formulation.formulation import Formulation
from planner.verification.proof import (
    faults_of,
    faults_of_branching,
    faults_of_cases,
    faults_of_exhaustive_search,
    faults_of_packing,
    multipliers_bound_s,
    recomputed_bound_s,
)
from planner.verification.proof_patterns import faults_of_patterns


def at_protocols_of(proof: Proof, formulation: Formulation) -> Formulation:
    """The formulation at the protocols of a proof without faults."""
    return formulation.at_protocols(_protocols(proof, formulation.model))


def faults_of_protocols(proof: Proof, model: CostModel) -> Iterator[str]:
    """Whether a proof and those beside it name protocols that there are, each another."""
    seen: set[tuple[int, ...]] = set()
    for each in (proof, *proof.at_other_protocols):
        protocols = _protocols(each, model)
        is_there = set(each.protocols) <= set(model.protocol_stages) and protocols in model.all_protocols
        if not is_there or protocols in seen:
            yield f"protocols {each.protocols}: there are none such, or they are those of another proof"
        if each.at_other_protocols and each is not proof:
            yield f"protocols {each.protocols}: a proof at other protocols has others beside it"
        seen.add(protocols)


def faults_of_proofs(proof: Proof, formulation: Formulation) -> Iterator[str]:
    """What makes a proof, or one beside it, none at all."""
    faults = list(faults_of_protocols(proof, formulation.model))
    yield from faults
    for each in () if faults else (proof, *proof.at_other_protocols):
        yield from _faults_of(each, at_protocols_of(each, formulation))


def _faults_of(proof: Proof, at: Formulation) -> Iterator[str]:
    faults = [*faults_of(proof, at.model, at.problem), *faults_of_packing(proof, at.model, at.problem)]
    if faults:
        yield from faults
        return
    yield from faults_of_cases(proof, at.model, at.problem)
    yield from faults_of_branching(proof, at.model, at.problem)
    yield from faults_of_patterns(proof.patterns, at.model, at.problem)
    yield from faults_of_exhaustive_search(proof, at.model, at.problem)


def proven_s(proof: Proof, formulation: Formulation) -> float:
    """What a proof without faults proves of every placement, at whatever protocols."""
    written = {_protocols(each, formulation.model): each for each in (proof, *proof.at_other_protocols)}
    bounds = []
    for protocols in formulation.model.all_protocols:
        at = formulation.at_protocols(protocols)
        bound_s = multipliers_bound_s(proof, at.model, at.problem)
        if protocols in written:
            bound_s = max(bound_s, recomputed_bound_s(written[protocols], at.model, at.problem))
        bounds.append(bound_s)
    return min(bounds)


def _protocols(proof: Proof, model: CostModel) -> tuple[int, ...]:
    """The protocols of a proof in the order of the stages of a model; where it names none, those of the model's
    first choice."""
    first = model.all_protocols[0]
    return tuple(proof.protocols.get(stage, own) for stage, own in zip(model.protocol_stages, first, strict=True))
