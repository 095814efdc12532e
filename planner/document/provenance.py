"""What a plan was computed for, with and by."""

import hashlib
from collections import Counter
from collections.abc import Iterator

import numpy as np

from cost_models.coefficients import Evidence
from cost_models.coefficients_used import CoefficientsUsed
from cost_models.model import CostModel
from cost_models.shards import PARTLY_IN_HBM, Floats, PlacementTier
from planner._version import VERSION
from planner.document.origin import CoefficientSources, Provenance, Source
from planner.formulation.allowed_choices import AllowedChoices
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.formulation import Formulation
from planner.formulation.options import CacheFractions, Options, coarse_fractions, enumerate_options
from planner.formulation.policy import Policy
from planner.formulation.software import plan_warnings
from topologies.cluster import Topology, fingerprint
from topologies.documents import Record

SOLVER = "fluid relaxation, longest-first placement, local search"


def provenance(formulation: Formulation, policy: Policy, seed: int, seeds: int = 1) -> Provenance:
    """What the plan was computed for, with and by, and chosen from."""
    model, options = formulation.model, formulation.options
    return Provenance(
        planner_version=VERSION,
        topology=_source(model.cluster),
        workload=_source(model.stated_workload),
        coefficients=coefficient_sources(model.coefficients),
        cost_model=model.name,
        solver=SOLVER,
        seed=seed,
        seeds=seeds,
        policy=policy,
        policy_fingerprint=fingerprint(policy),
        exchange=model.exchange,
        cuts=options.cuts,
        warnings=plan_warnings(model, policy),
        cache_fractions={} if options.fractions is None else _written(options.costed(model), options.fractions),
    )


def planned_options(origin: Provenance, model: CostModel, choices: Policy | AllowedChoices) -> Options:
    """The options that the plan was chosen from, in its planner's order."""
    choices = choices if isinstance(choices, AllowedChoices) else allowed_choices(model, choices)
    return enumerate_options(model, choices, planned_fractions(origin, choices.costed(model)), origin.cuts)


def tried_fractions(origin: Provenance, model: CostModel) -> CacheFractions:
    """The cache sizes that were options of the tables of a model, or of the variants that it has for tables."""
    return planned_fractions(origin, model) or coarse_fractions(model)


def planned_fractions(origin: Provenance, model: CostModel) -> CacheFractions | None:
    """The cache sizes that were options; None where every table has the same few, as have those that are not listed.
    Where variants are chosen, the model has these for tables (`AllowedChoices.costed`)."""
    if not origin.cache_fractions:
        return None
    fractions = dict(coarse_fractions(model))
    for tier, of_table in origin.cache_fractions.items():
        usual = fractions[tier][0].tolist()
        rows = [of_table.get(table.name, usual) for table in model.workload.tables]
        shares: Floats = np.full((len(rows), max(map(len, rows))), np.nan)
        for row, listed in zip(shares, rows, strict=True):
            row[: len(listed)] = listed
        fractions[tier] = shares
    return fractions


def faults_of_cuts(origin: Provenance, model: CostModel, choices: AllowedChoices) -> Iterator[str]:
    """Column cuts that are fewer than those that would be searched; a document from before there were any to state
    covers few."""
    own, widest = origin.cuts, enumerate_options(model, choices).cuts
    pairs = ((own.hbm, widest.hbm), (own.below_hbm, widest.below_hbm))
    if "cuts" in origin.model_fields_set and ("few", "every") in pairs:
        yield f"cuts: {origin.cuts.words}, where it is {widest.words} that are searched"


def faults_of_fractions(origin: Provenance, model: CostModel) -> Iterator[str]:
    """Cache sizes of tables that do not exist, not in ascending order, or without those that are tried of every table:
    a bound on plans of fewer sizes would say less than it seems to."""
    known, usual = {table.name for table in model.workload.tables}, coarse_fractions(model)
    for tier, of_table in origin.cache_fractions.items():
        if tier not in PARTLY_IN_HBM:
            yield f"cache_fractions: {tier}: has no caches"
            continue
        always: list[float] = usual[tier][0].tolist()
        for name, shares in of_table.items():
            if name not in known:
                yield f"cache_fractions: {name} in {tier}: there is no such table"
            if not shares or list(shares) != sorted(set(shares)):
                yield f"cache_fractions: {name} in {tier}: none, or not in ascending order"
            elif missing := [share for share in always if share not in shares]:
                yield f"cache_fractions: {name} in {tier}: without {missing[0]!r}, which is tried of every table"


def _written(model: CostModel, fractions: CacheFractions) -> dict[PlacementTier, dict[str, tuple[float, ...]]]:
    """The shares of tables in tiers of which they have shares of their own."""
    usual, names = coarse_fractions(model), [table.name for table in model.workload.tables]
    return {
        tier: {name: tuple(row[~np.isnan(row)].tolist()) for name, row in zip(names, of_tier, strict=True)}
        for tier, of_tier in fractions.items()
        if not np.array_equal(of_tier, usual[tier])
    }


def _source(record: Topology | Record) -> Source:
    name = str(getattr(record, "name", ""))
    return Source(
        name=name, fingerprint=fingerprint(record), content=record.model_dump(mode="json", exclude_defaults=True)
    )


def coefficient_sources(used: CoefficientsUsed) -> CoefficientSources:
    """The coefficient files behind some costs, with a hash over all their fields."""
    records: list[Record] = [used.software, *used.devices, *used.links, *used.collectives, *used.optimizers]
    kinds: Counter[str] = Counter()
    for record in records:
        for name in type(record).model_fields:
            value = getattr(record, name)
            if isinstance(value, Evidence):
                kinds[value.kind] += 1
    for system in used.collectives:
        kinds[system.kind] += len(system.laws)
    digest = hashlib.sha256("".join(map(fingerprint, records)).encode()).hexdigest()
    return CoefficientSources(
        fingerprint=f"sha256:{digest}",
        software=used.software.name,
        devices=tuple(device.label for device in used.devices),
        links=tuple(link.name for link in used.links),
        kinds=dict(sorted(kinds.items())),
    )
