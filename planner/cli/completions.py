"""What the tab key offers for the values of flags.

A list of words is completed word by word. Libraries are loaded where the words need them, at the press of the key.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import typer

Complete = Callable[[str], list[str]]


def of_words(words: Callable[[], Iterable[str]]) -> Complete:
    """One of the words."""
    return lambda incomplete: [word for word in words() if word.startswith(incomplete)]


def of_lists(words: Callable[[], Iterable[str]]) -> Complete:
    """The last word of a list with commas, none of them twice; a word may be given with a value, as in `step=1%`."""

    def complete(incomplete: str) -> list[str]:
        *before, last = incomplete.split(",")
        said = [each.partition("=")[0] for each in before]
        return [",".join([*before, word]) for word in words() if word.startswith(last) and word not in said]

    return complete


def tables_of_plan(ctx: typer.Context, incomplete: str) -> list[str]:
    """The tables of the plan that the command line names; none where it cannot be read."""
    return _names_in_plan("tables", ctx, incomplete)


def stages_of_plan(ctx: typer.Context, incomplete: str) -> list[str]:
    """The stages of that plan."""
    return _names_in_plan("stages", ctx, incomplete)


def _names_in_plan(key: str, ctx: typer.Context, incomplete: str) -> list[str]:
    import json

    given = [ctx.params.get("plan"), *ctx.args]  # before a flag without its value words are not yet arguments
    with suppress(StopIteration, OSError, ValueError, KeyError, TypeError, RecursionError):
        file = next(Path(word) for word in given if word is not None and Path(word).is_file())
        records = json.loads(file.read_bytes())[key]
        return [name for record in records if (name := str(record["name"])).startswith(incomplete)]
    return []


def tiers() -> Iterable[str]:
    """Where a table may be placed."""
    from cost_models.shards import PLACEMENT_TIERS

    return PLACEMENT_TIERS


def shardings() -> Iterable[str]:
    """How a table may be cut."""
    from cost_models.shards import SHARDINGS

    return SHARDINGS


def state_places() -> Iterable[str]:
    """Where optimizer state may be."""
    from cost_models.shards import STATE_PLACES

    return STATE_PLACES


def stash_ways() -> Iterable[str]:
    """What may be stashed."""
    from planner.formulation.stash_words import AUTO, TIER_OF_WAY

    return (*TIER_OF_WAY, AUTO)


def runtimes() -> Iterable[str]:
    """What may execute a plan."""
    from planner.formulation.runtimes import RUNTIMES

    return RUNTIMES


def cost_models() -> Iterable[str]:
    """By what a plan is costed."""
    from cost_models.registry import COST_MODELS

    return COST_MODELS


def goals() -> Iterable[str]:
    """What plans are told apart by."""
    from typing import get_args

    from planner.problem.goals import GoalName

    return get_args(GoalName)


def dense_strategies() -> Iterable[str]:
    """How ranks may hold the dense part: sharded over all ranks, or over those of a node."""
    from cost_models.workload.dense_sharding import STRATEGY_WORDS

    words = (*STRATEGY_WORDS, "auto")
    return (*words, *(f"{word}=node" for word in words if word != "replicate"))


def solvers() -> Iterable[str]:
    """What may follow a search."""
    from typing import get_args

    from planner.planning.integer_solution import Solver

    return get_args(Solver)
