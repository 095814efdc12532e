"""The integer programme of the question that a plan answers, as a file for a solver of one's own."""

from pathlib import Path

from planner.document.files import replacing
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_model
from planner.document.provenance import planned_options
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.formulation import Formulation
from planner.planning.integer_solution import programme_size
from planner.planning.programme_names import labels_of
from planner.solvers.integer.constraints import power_of_two
from planner.solvers.integer.mps import mps_lines
from planner.solvers.integer.programme import Programme
from topologies.errors import InputError

MOST_WRITTEN = 200_000
"""Variables of a programme that is written: more take gigabytes to build."""


def write_programme(plan: Plan, path: str | Path) -> int:
    """Write the programme over all options that the plan was chosen from, at the protocols that it takes, and return
    how many variables it counts with. Raises InputError where it is too large, of groups of ranks, or the file cannot
    be written.

    Solutions of it are imported by `planner.importers.mps_solution`, from the names of their variables alone.
    """
    if plan.provenance.policy.replicas is not None:
        raise InputError.at(str(path), "is not written: solutions are imported as one world; leave out replicas")
    model = planned_model(plan)
    if plan.objective is not None:
        model = model.linearised_at(placed_shards(plan))
    options = planned_options(plan.provenance, model, allowed_choices(model, plan.provenance.policy))
    formulation = Formulation.of_options(model, options)
    size = programme_size(formulation)
    if size > MOST_WRITTEN:
        message = f"a programme of {size:,} variables is not written, {MOST_WRITTEN:,} at most; narrow the shardings"
        raise InputError.at(str(path), message)
    scale_s = plan.objective.step_s if plan.objective is not None else 1e-3
    programme = Programme.of(formulation.problem, power_of_two(scale_s), labels=labels_of(formulation))
    with replacing(path) as file:
        for line in mps_lines(programme):
            file.write(f"{line}\n".encode())
    return size
