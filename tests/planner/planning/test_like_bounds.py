"""Bounds that are proven as those of another problem are: at other protocols, by the same cases."""

import numpy as np
import pytest

from cost_models.workload.loading import load_workload
from planner import plan, verify
from planner.certificates.multipliers import Bound, Cases
from planner.formulation.formulation import Formulation
from planner.planning.like_bounds import fluid_of, multipliers_at, proven_like
from planner.planning.protocols import ProtocolSearches
from planner.problem.arrays import Problem
from planner.problem.case_divisions import Division, MemoryDivision, ReachDivision
from planner.problem.placement import Placement
from planner.solvers.bound.infeasible import shortage
from planner.solvers.incumbent import Outcome
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from planner.studies.growth import grown
from tests.oracles.brute_force import optimum
from tests.oracles.instances import tiny_instance
from topologies.loading import load_topology

TABLES = 8
SEEDS = range(0, 60, 4)


def _of(problem: Problem) -> Bound:
    """The fluid bound; infinite where nothing fits."""
    fluid = fluid_of(problem)
    if shortage(fluid) is not None:
        return Bound(np.inf, fluid.no_multipliers(), None)
    return bound_of(relaxed_optimum(fluid))


def _by_cases(problem: Problem, division: Division) -> Bound:
    first, second = (_of(part) for part in division.parts(problem))
    whole = _of(problem)
    least_s = min(first.seconds, second.seconds)
    return Bound(max(least_s, whole.seconds), whole.multipliers, None, cases=Cases(division, first, second))


def test_cases_at_other_protocols_never_prove_more_than_the_optimum_there() -> None:
    """They often prove more there than the multipliers alone."""
    raised = 0
    for seed in SEEDS:
        instance = tiny_instance(seed)
        formulation = Formulation(instance.model, instance.options, instance.problem)
        others = [each for each in instance.model.all_protocols if each != instance.model.protocols]
        if shortage(fluid_of(instance.problem)) is not None:
            continue
        for division in (ReachDivision(0, "rank"), MemoryDivision(0, 0)):
            bound = _by_cases(instance.problem, division)
            for protocols in others[:3]:
                problem = formulation.at_protocols(protocols).problem
                best = optimum(problem)
                proven = proven_like(fluid_of(problem), bound)
                assert best is None or proven.seconds <= best.step_s * (1 + 1e-9), instance.description
                raised += proven.seconds > multipliers_at(fluid_of(problem), bound).seconds * (1 + 1e-6)
    assert raised > 0


def test_what_cases_of_one_search_prove_needs_no_search_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest tables of a model in several tiers, where cases of memory prove a fifth more than multipliers, and
    plans are far above either: the protocols differ by less than a per cent, and one search is enough. What it proves
    still holds once caches are divided anew."""
    searches: list[float] = []
    real = ProtocolSearches.at

    def counted(self: ProtocolSearches, formulation: Formulation, start: Placement | None = None) -> Outcome:
        outcome = real(self, formulation, start)
        searches.append(outcome.bound_s or 0.0)
        return outcome

    monkeypatch.setattr(ProtocolSearches, "at", counted)
    whole = grown(load_workload("dlrm-dcnv2"), rows=16)
    tables = sorted(whole.tables, key=lambda each: -each.rows)[:TABLES]
    asked = whole.model_copy(update={"tables": tuple(tables)})
    found = plan(load_topology("dgx-h100", nodes=1), asked, effort=0, simulate=False)
    assert found.objective is not None
    assert found.proof is not None
    assert found.proof.memory_cases is not None
    assert len(searches) == 1
    assert found.objective.lower_bound_s >= searches[0] * (1 - 1e-9)
    assert verify(found) == []
