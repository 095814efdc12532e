"""What a plan was computed for, with and by."""

import hashlib
from collections import Counter

from cost_models.coefficients import Evidence
from cost_models.kinds import CoefficientsUsed
from cost_models.model import CostModel
from planner._version import VERSION
from planner.document import CoefficientSources, Provenance, Source
from planner.policy import Policy
from topologies.cluster import Topology, fingerprint
from topologies.documents import Record

SOLVER = "fluid prices, longest-first, local search"


def provenance(model: CostModel, policy: Policy, seed: int) -> Provenance:
    """What the plan was computed for, with and by."""
    return Provenance(
        planner_version=VERSION,
        topology=_source(model.topology),
        workload=_source(model.workload),
        coefficients=coefficient_sources(model.coefficients),
        cost_model=model.name,
        solver=SOLVER,
        seed=seed,
        policy=policy,
    )


def _source(record: Topology | Record) -> Source:
    name = str(getattr(record, "name", ""))
    return Source(
        name=name, fingerprint=fingerprint(record), content=record.model_dump(mode="json", exclude_defaults=True)
    )


def coefficient_sources(used: CoefficientsUsed) -> CoefficientSources:
    """The coefficient files behind some costs, with a hash over all their fields."""
    records: list[Record] = [used.software, *used.devices, *used.links, *used.collectives]
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
        devices=tuple(device.name for device in used.devices),
        links=tuple(link.name for link in used.links),
        kinds=dict(sorted(kinds.items())),
    )
