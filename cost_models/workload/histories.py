"""Histories whose length differs from sample to sample, and what a distribution of their lengths says of a batch.

A workload states the mean and the spread of lengths (`pooling_factor`, `pooling_std` of tables that are not pooled).
The work of attention goes with squared lengths, whose own spread needs more than these: lengths are taken to be gamma
distributed, which has both numbers and is never below zero. That is assumed; histories that are cut at a most length
have a lighter tail.
"""

import fnmatch
from dataclasses import dataclass

from cost_models.workload.models import Workload


@dataclass(frozen=True)
class History:
    """The tables of one history, and what layers work for it."""

    layer: str
    """The layer that reads it."""
    tables: tuple[int, ...]
    mean: float
    std: float
    linear: frozenset[str]
    """Layers whose work goes with its length."""
    pairs: frozenset[str]
    """Those of them that look at it from itself: their products within a sample go with the square of its length."""

    @property
    def variation(self) -> float:
        """The standard deviation over the mean."""
        return self.std / self.mean

    @property
    def shape(self) -> float:
        """That of the gamma distribution."""
        return 1 / self.variation**2


def histories(workload: Workload) -> tuple[History, ...]:
    """Those whose lengths have a spread, in the order of the layers that read them; none of a dense part without
    layers over them."""
    found = []
    for stated in workload.dense.layers or ():
        if stated.kind != "embeddings":
            continue
        names = [table.name for table in workload.tables]
        own = tuple(
            n for n, name in enumerate(names) if any(fnmatch.fnmatchcase(name, pattern) for pattern in stated.tables)
        )
        table = workload.tables[own[0]]
        if table.pooled or not table.pooling_std:
            continue
        linear, pairs = _over(workload, str(stated.name))
        mean, std = table.pooling_factor / table.feature_count, table.pooling_std / table.feature_count
        found.append(History(str(stated.name), own, mean, std, frozenset(linear), frozenset(pairs)))
    return tuple(found)


def _over(workload: Workload, name: str) -> tuple[set[str], set[str]]:
    """The layers whose tokens are those of the layer `name`, or that read such tokens; and those that look at them
    from themselves."""
    tokens, linear, pairs = {name}, set[str](), set[str]()
    for layer in workload.layers:
        if not tokens.intersection(layer.inputs):
            continue
        linear.add(layer.name)
        if layer.output.squared_tokens is not None and layer.inputs[0] in tokens:
            tokens.add(layer.name)
        if layer.kind == "attention" and len(layer.inputs) == 1:
            pairs.add(layer.name)
    return linear, pairs
