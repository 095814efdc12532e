"""Which sizes a cluster may have: nodes that fill scale-up domains, and those that make smaller equal ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cost_models.towers import divides
from cost_models.workload.models import Workload
from topologies.cluster import Topology


def count_of_nodes(count: int) -> str:
    """So many nodes in words."""
    return f"{count:,} node{'s' * (count != 1)}"


@dataclass(frozen=True)
class Sizes:
    """Numbers of nodes of a group, those that are judged first and those between them."""

    topology: Topology
    index: int
    workload: Workload
    whole: tuple[int, ...]
    """Within one scale-up domain, then whole domains, those that towers divide; ascending."""
    most: int

    def between(self, least: int | None) -> list[int]:
        """Those that make equal smaller domains, above all whole ones below `least` (None: there is none)."""
        return [nodes for nodes in self._others(least) if self._domain(nodes) and self._is_divided(nodes)]

    def _others(self, least: int | None) -> range:
        """What is between `least` and the next whole one below it; all that is above these where it is None."""
        end = self.most + 1 if least is None else least
        return range(max((nodes for nodes in self.whole if nodes < end), default=0) + 1, end)

    @property
    def is_alone(self) -> bool:
        """Whether the cluster has no other group; domains of one of several stay as they are."""
        return len(self.topology.nodes) == 1

    def _domain(self, nodes: int) -> int | None:
        return self.topology.nodes[self.index].equal_domain(nodes) if self.is_alone else None

    def _is_divided(self, nodes: int) -> bool:
        return divides(self.workload, self.topology.resized(self.index, nodes))

    def words_of(self, least: int) -> Iterator[str]:
        """What a reader must know of a size; mostly nothing."""
        if (ranks := self._domain(least)) is not None:
            domains = least * self.topology.nodes[self.index].accelerators.count // ranks
            what = f"{domains} scale-up domains of {ranks} ranks each"
            yield f"{count_of_nodes(least)}: {what}, fewer than the topology's domains have"

    def words_of_skipped(self, least: int | None) -> Iterator[str]:
        """Which sizes next below the smallest that does were not tried, and why; mostly nothing."""
        fills = self.topology.nodes[self.index].node_counts(self.most, is_alone=self.is_alone)
        if skipped := [nodes for nodes in self._others(least) if nodes not in fills and not self._domain(nodes)]:
            why = (
                "make no equal scale-up domains of at least half of the topology's"
                if self.is_alone
                else "do not fill whole scale-up domains, which stay as they are where there are several node groups"
            )
            yield f"{_runs(skipped)} nodes were not tried: they {why}"


def _runs(numbers: Sequence[int]) -> str:
    """Ascending numbers in words: 19, 21 and 23 to 25."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
