"""The dual feasible functions of a proof, as the document carries them."""

from collections.abc import Iterator

from cost_models.model import CostModel
from planner.certificates.dual_feasible import PricedFunction, are_packed, is_function
from planner.document.certificates import BusyResource, FunctionMultiplier, MemoryFunctionMultiplier, ProofPacking
from planner.formulation.variants import memory_names
from planner.problem.arrays import Problem


def written_functions(
    model: CostModel, problem: Problem, functions: tuple[PricedFunction, ...]
) -> tuple[tuple[FunctionMultiplier, ...], tuple[MemoryFunctionMultiplier, ...]]:
    """A solver's functions in the document's words: those of resources, and those of memory."""
    groups = [group.name for group in model.topology.nodes]
    tiers = memory_names(model, len(problem.pool_capacity))
    of_resources, of_memory = list[FunctionMultiplier](), list[MemoryFunctionMultiplier]()
    for kind, (first, *others), family, parameter, price_s in functions:
        what = {"group": groups[kind], "family": family, "parameter": parameter, "seconds": price_s}
        if first >= len(model.columns):
            of_memory.append(MemoryFunctionMultiplier(tier=tiers[first - len(model.columns)], **what))
            continue
        stage, resource = _name(model, first)
        beside = tuple(BusyResource(stage=also, resource=of) for also, of in (_name(model, each) for each in others))
        of_resources.append(FunctionMultiplier(stage=stage, resource=resource, beside=beside, **what))
    return tuple(of_resources), tuple(of_memory)


def read_functions(packing: ProofPacking, model: CostModel, problem: Problem) -> tuple[PricedFunction, ...]:
    """The functions of a packing without faults."""
    kind_of = {group.name: k for k, group in enumerate(model.topology.nodes)}
    row_of = {name: len(model.columns) + m for m, name in enumerate(memory_names(model, len(problem.pool_capacity)))}
    of_resources = (
        PricedFunction(kind_of[each.group], _columns(each, model), each.family, each.parameter, each.seconds)
        for each in packing.functions
    )
    of_memory = (
        PricedFunction(kind_of[held.group], (row_of[held.tier],), held.family, held.parameter, held.seconds)
        for held in packing.memory_functions
    )
    return (*of_resources, *of_memory)


def faults_of_functions(packing: ProofPacking, model: CostModel, problem: Problem) -> Iterator[str]:
    """What keeps functions from being of the resources and memories that there are."""
    groups, memories = {group.name for group in model.topology.nodes}, memory_names(model, len(problem.pool_capacity))
    for entry in packing.functions:
        columns = _columns(entry, model)
        there = -1 not in columns and entry.group in groups
        if not there or entry.seconds < 0 or not is_function(entry.family, entry.parameter):
            yield f"function {entry.family} of {entry.resource} of {entry.stage}: negative, or of what does not exist"
        elif not are_packed(problem, columns):
            beside = "of one stage, or of resources that ranks share"
            yield f"function {entry.family} of {entry.resource} of {entry.stage} and of others: {beside}"
    for held in packing.memory_functions:
        there = held.tier in memories and held.group in groups
        if not there or held.seconds < 0 or not is_function(held.family, held.parameter):
            yield f"function {held.family} of {held.tier} on {held.group}: negative, or of what does not exist"


def _name(model: CostModel, column: int) -> tuple[str, str]:
    """The stage and the resource of a column."""
    return model.stages[model.columns[column].stage], str(model.columns[column].resource)


def _columns(entry: FunctionMultiplier, model: CostModel) -> tuple[int, ...]:
    """The columns that a function is of; -1 for one that does not exist."""
    number = {_name(model, column): column for column in range(len(model.columns))}
    names = [(entry.stage, entry.resource), *((each.stage, each.resource) for each in entry.beside)]
    return tuple(number.get(name, -1) for name in names)
