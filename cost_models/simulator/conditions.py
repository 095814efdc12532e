"""What differs from the mean: pooling that varies, devices that are slow, links that are slow or lost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from cost_models.elementary import exp
from cost_models.resources import WAYS, Resource
from cost_models.shards import Floats
from cost_models.simulator.network import Instance, SimulatedNetwork
from cost_models.workload.histories import History, histories
from cost_models.workload.models import Workload

Lengths = Mapping[str, tuple[Floats, Floats]]
"""By the layer that reads a history: sums of lengths, and of their squares, of each rank over their means, [W] each."""


@dataclass(frozen=True)
class Conditions:
    """Under which steps are simulated; the default is the mean step on healthy hardware."""

    pooling: bool = False
    """Whether the number of ids varies from step to step, and from rank to rank, by the tables' `pooling_std`; and with
    it the lengths of histories that layers of the dense part work on."""
    jitter: float = 0.0
    """Spread of each rank's device time from step to step: standard deviation of its logarithm."""
    slow_ranks: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """How many times as long its device takes, by rank."""
    slow_links: Mapping[Instance, float] = field(default_factory=lambda: MappingProxyType({}))
    """The share of its bandwidth that is left, by resource and number; one without a direction stands for both."""
    lost_cards: tuple[int, ...] = ()
    """Scale-out cards that are gone; their ranks use another one of their node."""
    data_loading: bool = False
    """Whether steps wait for their data on the front-end network; else it arrives in time, whatever it takes."""
    draws_rows: bool = False
    """Whether the rows that ids read are drawn and counted one by one (`SampledCounts`), the same of all steps, instead
    of expected by the access curves that the estimate uses, too."""
    with_roots: bool = False
    """Whether every step takes the inverse roots of Shampoo, instead of the mean step's share of them."""
    seed: int = 0

    def lengths(self, workload: Workload, world: int, steps: int) -> list[Lengths]:
        """For each step, of each history whose length varies, the sums of lengths and of their squares over the samples
        of each rank, over their means, [W] each; no steps where all are the mean. They are drawn sample by sample."""
        known = histories(workload) if self.pooling else ()
        samples = max(round(workload.batch(world) / world), 1)
        return [
            {
                history.layer: _sums(np.random.default_rng((self.seed, 2, step, number)), history, world, samples)
                for number, history in enumerate(known)
            }
            for step in range(steps if known else 0)
        ]

    def ids(
        self, workload: Workload, world: int, steps: int, lengths: Sequence[Lengths] = ()
    ) -> Iterator[Floats | None]:
        """The ids of each rank's own samples over their mean, [W, T] for each step; None where they are the mean. Ids
        of a history are as many as its `lengths` say, where these are given."""
        spread = np.array([table.pooling_std / table.pooling_factor for table in workload.tables])
        of_rank = spread / np.sqrt(workload.batch(world) / world)
        for step in range(steps):
            if not self.pooling or not spread.any():
                yield None
                continue
            drawn = np.random.default_rng((self.seed, 0, step)).standard_normal((world, len(spread)))
            ids = np.maximum(1 + drawn * of_rank, 0.0)
            for history in histories(workload) if lengths else ():
                ids[:, list(history.tables)] = lengths[step][history.layer][0][:, None]
            yield ids

    def slowness(self, world: int, steps: int) -> list[Floats]:
        """How many times as long as usual every device takes, [W] for each step.

        Raises ValueError for ranks that do not exist.
        """
        usual = np.ones(world)
        for rank, factor in self.slow_ranks.items():
            if not 0 <= rank < world:
                raise ValueError(f"there is no rank {rank}; ranks are numbered 0 to {world - 1}")
            usual[rank] = factor
        drawn = np.random.default_rng((self.seed, 1)).standard_normal((steps, world))
        return list(usual * exp(self.jitter * drawn))

    def capacity(self, network: SimulatedNetwork) -> Floats:
        """[R] capacities of all instances, 1 for what is healthy. Raises ValueError for links that do not exist."""
        capacity = np.ones(network.count)
        for (link, number), share in self.slow_links.items():
            ways = (None, *WAYS) if link.way is None else (link.way,)
            named = {(replace(link, way=way), number) for way in ways}
            ends = [i for i, instance in enumerate(network.instances) if instance in named]
            if not ends:
                kinds = sorted({str(Resource(resource.kind, level=resource.level)) for resource in network.first})
                raise ValueError(f"there is no {link} {number}; sorts of links are {', '.join(kinds)}")
            capacity[ends] = share
        return capacity


def _sums(random: np.random.Generator, history: History, world: int, samples: int) -> tuple[Floats, Floats]:
    """[W] sums of the lengths of so many samples and of their squares, over their means; rank by rank, as those of all
    would take much memory."""
    first, second = np.empty(world), np.empty(world)
    for rank in range(world):
        lengths = random.standard_gamma(history.shape, samples)
        first[rank], second[rank] = lengths.mean(), np.square(lengths).mean()
    return first / history.shape, second / (history.shape * (history.shape + 1))
