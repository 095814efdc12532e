"""Whether the variants of a plan's tables are some of its policy's, and lose no more than its budget."""

import math
from collections.abc import Iterator

from planner.document.plan import Plan
from planner.formulation.allowed_choices import AllowedChoices

TOLERANCE = 1e-12


def held_choices(plan: Plan, choices: AllowedChoices) -> AllowedChoices:
    """What the tables of a plan without faults may use, each as the variant that it is."""
    if choices.variants is None:
        return choices
    return choices.of_variants(choices.variants.of_tables([table.variant for table in plan.tables]))


def faults_of_variants(plan: Plan, choices: AllowedChoices) -> Iterator[str]:
    """What does not hold of variants and their losses, in words."""
    variants, quality = choices.variants, plan.quality
    if variants is None or not plan.tables:
        yield from (
            f"table {table.name}: is {table.variant}, and the policy names no variants"
            for table in plan.tables
            if table.variant is not None
        )
        if quality is not None:
            yield "quality: the policy names no variants, or nothing is placed"
        return
    if len(plan.tables) != len(variants.first):
        return  # said elsewhere
    for number, table in enumerate(plan.tables):
        if variants.number_of(number, table.variant) is None:
            yield f"table {table.name}: {table.variant!r} is none of its variants"
            return
    loss = variants.loss_of([table.variant for table in plan.tables])
    if loss > variants.budget + variants.slack:
        yield f"quality: the variants lose {loss!r} together, and the budget is {variants.budget!r}"
    if quality is None or not math.isclose(quality.loss, loss, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        yield f"quality: the variants lose {loss!r} together, the document says {quality and quality.loss!r}"
    elif quality.budget != variants.budget:
        yield f"quality: the budget is {variants.budget!r}, the document says {quality.budget!r}"
