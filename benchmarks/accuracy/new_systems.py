"""How far the model is off on systems that it was not fitted to: each part of a system left out in turn.

Rows of one system err alike, so that systems are counted, not rows. With nine groups or more the band is that of split
conformal prediction by groups: a new group is as likely as any to be the one that errs most, whatever the distribution.
With fewer that bounds nothing nine times in ten, and the band is that of a random effect: errors between groups and
within them are taken as normal. A row that is left out may be off by as much as its own coefficients besides, which
nothing but their priors tells where its hardware is new: the error bar of a step on unseen hardware has those of its
terms for it (`step_error_bars`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.accuracy import mlperf
from benchmarks.accuracy.mlperf import Configuration
from cost_models.coefficients import LeftOut, MeasuredRates, MeasuredSystem
from cost_models.error_bars import COVERAGE, ONE_SIDED_90
from cost_models.measured_rates import rates_of
from cost_models.step_evidence import GUARANTEED_BY


def system_of(case: Configuration) -> MeasuredSystem:
    """The system of a configuration."""
    rates = _rates_of(case)
    ranks = case.system.world_size
    return MeasuredSystem(device=rates.device, link=rates.link, network=rates.network, nodes=case.nodes, ranks=ranks)


def _rates_of(case: Configuration) -> MeasuredRates:
    group = case.system.nodes[0]
    return rates_of(group, crosses=group.domain_ranks < case.system.world_size)


PARTS: dict[str, Callable[[MeasuredSystem], object]] = {
    "combination": lambda system: system,
    "device": lambda system: system.device,
    "link": lambda system: system.link,
    "network": lambda system: system.network,
    "ranks": lambda system: system.ranks,
}


@dataclass(frozen=True)
class PartError:
    """Errors where one part of a system is new."""

    part: str
    groups: int
    median: float
    worst: float
    error_90: float
    """Relative error that nine in ten rows of a new group are to stay within."""
    inside: float
    """Share of the rows that are within what the other groups say of theirs, and what their own coefficients are
    unsure of without them."""
    missed: Mapping[str, tuple[int, int]]
    """Groups that have rows outside: how many are inside, of how many."""

    @property
    def is_guaranteed(self) -> bool:
        """Whether there are groups enough for a share that no assumption is needed for."""
        return self.groups >= GUARANTEED_BY

    @property
    def left_out(self) -> LeftOut:
        """As the coefficient file has it."""
        return LeftOut(part=self.part, groups=self.groups, error_90=round(self.error_90, 3))  # type: ignore[arg-type]


def error_90(errors: Iterable[np.ndarray]) -> float:
    """Relative error that nine in ten rows of a new group stay within, from the logarithmic errors of some groups."""
    groups = [np.abs(each) for each in errors]
    count = len(groups)
    if count >= GUARANTEED_BY:
        ends = sorted(float(np.quantile(each, COVERAGE)) for each in groups)
        return float(np.expm1(ends[int(np.ceil(COVERAGE * (count + 1))) - 1]))
    signed = [np.asarray(each) for each in errors]
    between = float(np.mean([each.mean() ** 2 for each in signed]))
    rows = sum(len(each) for each in signed)
    within = sum(float(((each - each.mean()) ** 2).sum()) for each in signed) / max(rows - count, 1)
    return float(np.expm1(stats.t.ppf((1 + COVERAGE) / 2, count) * np.sqrt(between + within)))


def _is_inside(name: str, by_group: Mapping[str, np.ndarray], own_90: np.ndarray) -> np.ndarray:
    """Which rows of a group are within the band that the others give; where that is not conformal, each with what its
    own coefficients may be off by."""
    others = [each for other, each in by_group.items() if other != name]
    band = np.log1p(error_90(others))
    if len(others) < GUARANTEED_BY:
        band = np.hypot(band, own_90)
    return np.asarray(np.abs(by_group[name]) <= band)


def errors(folder: Path) -> tuple[PartError, ...]:
    """Those of MLPerf's steps, with each device, link, network, number of ranks and combination left out.

    A row that nothing explains counts among the errors, and not in the bands.
    """
    rows, believed = mlperf.cases(folder), mlperf.believed(folder)
    gated = rows[rows.gated]
    found = []
    for part, of in PARTS.items():
        systems = {case: of(system_of(case)) for case in dict.fromkeys(rows.configuration)}
        held = mlperf.held_out(folder, systems.__getitem__)[gated.index]
        log = np.log(believed.measured_s / held[believed.index])
        group = believed.configuration.map(lambda case, systems=systems: str(systems[case]))
        by_group = {name: each.to_numpy() for name, each in log.groupby(group)}
        if len(by_group) < 2:
            continue
        unsure = ONE_SIDED_90 * mlperf.coefficient_spread(folder, systems.__getitem__)
        own_90 = {name: each.to_numpy() for name, each in unsure.groupby(group)}
        inside = {name: _is_inside(name, by_group, own_90[name]) for name in by_group}
        absolute = (held / gated.measured_s - 1).abs()
        found.append(
            PartError(
                part,
                len(by_group),
                float(absolute.median()),
                float(absolute.max()),
                error_90(list(by_group.values())),
                float(np.concatenate(list(inside.values())).mean()),
                {name: (int(each.sum()), len(each)) for name, each in inside.items() if not each.all()},
            )
        )
    return tuple(found)


def measured_systems(folder: Path) -> tuple[MeasuredSystem, ...]:
    """The systems of the rows that a target holds for, in their order."""
    return tuple(dict.fromkeys(system_of(case) for case in mlperf.believed(folder).configuration))


def measured_rates(folder: Path) -> tuple[MeasuredRates, ...]:
    """How fast their devices, links and networks were, in the same order."""
    return tuple(dict.fromkeys(_rates_of(case) for case in mlperf.believed(folder).configuration))


def residual_90(folder: Path) -> float:
    """Relative error that nine in ten rows stay within on a system that was measured, their configuration left out."""
    rows = mlperf.believed(folder)
    held = mlperf.held_out(folder)[rows.index]
    return float((held / rows.measured_s - 1).abs().quantile(COVERAGE))


def _shares(error: PartError) -> Iterator[str]:
    """How many rows of groups that have some outside are inside, where groups are too few for a guarantee."""
    if not error.is_guaranteed:
        yield from (f"{count} of {rows} of {name}" for name, (count, rows) in error.missed.items())


def table(found: Iterable[PartError]) -> str:
    """A Markdown table."""
    header = ("what is new", "groups", "median", "worst", "90 % band", "by", "inside, by the other groups")
    lines = [header, ("---",) * len(header)]
    lines += [
        (
            each.part,
            str(each.groups),
            *(f"{100 * share:.1f} %" for share in (each.median, each.worst, each.error_90)),
            "conformal" if each.is_guaranteed else "random effect",
            "; ".join([f"{100 * each.inside:.0f} %", *_shares(each)]),
        )
        for each in found
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
