"""Laws of a few terms for kinds of kernels: those terms are kept that the measurements determine."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cost_models.calibration.robust import Fit, UndeterminedError, fit
from cost_models.shards import Floats

BETTER = 0.97
"""A further term must bring the mean error below this share of what it is without."""


@dataclass(frozen=True)
class Law:
    """What a kind of kernel may take its time for."""

    measured: Floats
    predict: Callable[[Mapping[str, float]], Floats]
    main: Mapping[str, float]
    """Terms that must be determined, with where the search starts."""
    further: Sequence[Mapping[str, float]] = ()
    """Groups of terms that are tried one after the other."""
    absent: Mapping[str, float] = field(default_factory=dict)
    """What a term is where the data leave it out."""
    instead: Sequence[Mapping[str, float]] = ()
    """Terms that may stand in the main ones' place."""


@dataclass(frozen=True)
class FittedLaw:
    """The terms of a law that its measurements determine."""

    fit: Fit
    taken: Mapping[str, float]
    """What the others were taken to be."""
    left_open: tuple[str, ...]
    """The others, with the reason."""

    @property
    def values(self) -> dict[str, float]:
        """The values of all terms, taken or fitted."""
        return {**self.taken, **self.fit.values}


def fitted(law: Law) -> FittedLaw:
    """The main terms with the further ones that explain most, of all choices that the data determine.

    Raises UndeterminedError, that of the main terms alone, where they determine none.
    """
    fits: dict[frozenset[str], Fit] = {}
    cost: dict[frozenset[str], float] = {}
    refused: dict[frozenset[str], UndeterminedError] = {}
    groups = (law.main, *law.instead)
    for main, count in itertools.product(groups, range(len(law.further) + 1)):
        for chosen in itertools.combinations(law.further, count):
            start = {name: value for group in (main, *chosen) for name, value in group.items()}
            names = frozenset(start)
            if names in fits or names in refused:
                continue
            try:
                fits[names] = fit(lambda values: law.predict({**law.absent, **values}), start, law.measured)
                cost[names] = fits[names].mean_error / BETTER**count
            except UndeterminedError as error:
                refused[names] = error
    if not fits:
        raise refused[frozenset(law.main)]
    best = min(cost, key=cost.__getitem__)
    reasons = [
        f"{', '.join(group)}: {refused.get(best | set(group), 'no visible part of these times')}"
        for group in (law.main, *law.further)
        if not best >= set(group)
    ]
    taken = {name: value for name, value in law.absent.items() if name not in best}
    return FittedLaw(fits[best], taken, tuple(reasons))
