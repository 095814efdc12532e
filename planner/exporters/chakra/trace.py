"""The counted steps of a simulation as one Chakra trace per rank.

A rank's tasks are nodes in the order of their start, the same on all ranks. Its communication is one chain in that
order: ASTRA-sim has one in flight per rank anyway, and so no two ranks can wait for each other's next one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.simulator.program import COMPUTE, DATA, HOST, Task
from cost_models.simulator.simulation import Simulation
from planner.exporters.chakra import wire
from planner.exporters.chakra.communication import AllToAll, Collective, Messages, Piece, pieces
from planner.exporters.chakra.network import ReplayNetwork
from planner.exporters.chakra.wire import Attribute, Node, NodeType


class CommunicatorGroups:
    """The groups of ranks that are no whole dimension of the network, numbered from 1 as they are met."""

    def __init__(self) -> None:
        self._number: dict[tuple[int, ...], int] = {}

    def number(self, ranks: Sequence[int]) -> int:
        """The number of a group, new or known."""
        return self._number.setdefault(tuple(ranks), len(self._number) + 1)

    def members(self) -> dict[str, list[int]]:
        """The ranks of every group by its number."""
        return {str(number): list(ranks) for ranks, number in self._number.items()}


@dataclass(frozen=True)
class _Step:
    """A task of all ranks, with its pieces if they exchange in it."""

    number: int
    """In the program."""
    task: Task
    pieces: tuple[Piece, ...]
    first_tag: int


class Traces:
    """Writes the traces of a simulation's counted steps, rank by rank."""

    def __init__(self, simulation: Simulation, network: ReplayNetwork, all_to_all: AllToAll) -> None:
        """Raises InputError for exchanges that ASTRA-sim does not know."""
        self._simulation, self._network = simulation, network
        self._waits = _Waits(simulation)
        self._groups = CommunicatorGroups()
        self._steps = list(self._listed(all_to_all))

    def _listed(self, all_to_all: AllToAll) -> Iterator[_Step]:
        run, tag = self._simulation.run, 0
        tasks = _counted(self._simulation)
        for number, task in sorted(tasks, key=lambda each: (float(run.start[each[1].first].min()), each[0])):
            if task.stream == DATA and not self._is_waited_for(number, tasks):
                continue
            forth = [call for call in task.calls if call.way == "out"]
            back = [call for call in reversed(task.calls) if call.way == "in"]  # sums are gathered after all else
            made = [each for call in (*forth, *back) for each in pieces(call, self._network, all_to_all)]
            yield _Step(number, task, tuple(made), tag)
            tag += len(made)

    def _is_waited_for(self, number: int, tasks: Sequence[tuple[int, Task]]) -> bool:
        """Whether the step would be longer without the task; training data comes whenever there is room for it."""
        return any(task.stream != DATA and number in self._waits.before(int(task.first[0])) for _, task in tasks)

    def of_rank(self, rank: int) -> bytes:
        """The file of a rank."""
        own = Attribute("rank", wire.INT64, rank)
        return wire.trace(
            [own], _Rank(self._simulation, self._network, self._groups, self._waits, rank).nodes(self._steps)
        )

    def communicator_groups(self) -> dict[str, list[int]]:
        """ASTRA-sim's numbers of the ranks in each group that the traces name, known once all are written."""
        return self._groups.members()


def _counted(simulation: Simulation) -> list[tuple[int, Task]]:
    """The tasks that were laid out for the counted steps, with their numbers. The pipeline brings later batches in
    them, as many as it brought for them before."""
    ends = [int(done.max()) for done in simulation.program.done]
    low, high = ends[simulation.fill - 1], ends[simulation.last - 1]
    return [(n, task) for n, task in enumerate(simulation.program.tasks) if low < int(task.last.max()) <= high]


class _Waits:
    """Which tasks of its own a rank waits for before it starts something."""

    def __init__(self, simulation: Simulation) -> None:
        arrays, count = simulation.program.graph.arrays(), len(simulation.program.graph)
        order = np.argsort(arrays.after, kind="stable")
        self._before: list[int] = arrays.before[order].tolist()
        self._first: list[int] = np.searchsorted(arrays.after[order], np.arange(count + 1)).tolist()
        ended = np.full(count, -1)
        for number, task in enumerate(simulation.program.tasks):
            ended[task.last] = number
        self._ended: list[int] = ended.tolist()

    def before(self, activity: int) -> list[int]:
        """The tasks, by number, whose ends it follows with nothing but waiting in between."""
        found: set[int] = set()
        seen, left = {activity}, [activity]
        while left:
            at = left.pop()
            for before in self._before[self._first[at] : self._first[at + 1]]:
                if self._ended[before] >= 0:
                    found.add(self._ended[before])
                elif before not in seen:
                    seen.add(before)
                    left.append(before)
        return sorted(found)


class _Rank:
    """The nodes of one rank."""

    def __init__(
        self,
        simulation: Simulation,
        network: ReplayNetwork,
        groups: CommunicatorGroups,
        waits: _Waits,
        rank: int,
    ) -> None:
        self._simulation, self._network, self._groups = simulation, network, groups
        self._waits, self._rank = waits, rank
        self._ends: dict[int, list[int]] = {}
        """The nodes after which each task is over."""
        self._count, self._computed_s, self._last_message = 0, 0.0, 0

    def nodes(self, steps: Sequence[_Step]) -> Iterator[Node]:
        """Those of all tasks. A task in which the rank does nothing is over when what it waits for is."""
        counted = {step.number for step in steps}
        for step in steps:
            before = counted.intersection(self._waits.before(int(step.task.first[self._rank])))
            after = sorted({node for task in before for node in self._ends[task]})
            self._ends[step.number] = after
            if step.task.is_exchange:
                yield from self._exchange(step, after)
            elif self._seconds(step.task) > 0:
                yield self._computation(step, after)

    def _seconds(self, task: Task) -> float:
        run = self._simulation.run
        return float(run.end[task.last[self._rank]] - run.start[task.first[self._rank]])

    def _start_us(self, task: Task) -> int:
        start = float(self._simulation.run.start[task.first[self._rank]]) - self._simulation.window[0]
        return max(0, round(start * 1e6))

    def _node(self, step: _Step, kind: NodeType, name: str, after: Sequence[int], us: int, *own: Attribute) -> Node:
        self._count += 1
        beside = step.task.stream not in (COMPUTE, HOST) and step.task.kind == "transfer"
        on_host = Attribute("is_cpu_op", wire.BOOL, int(beside))
        return Node(self._count, name, kind, after, self._start_us(step.task), us, (on_host, *own))

    def _computation(self, step: _Step, after: Sequence[int]) -> Node:
        """In whole microseconds, of which any run in a row is less than one off."""
        until = self._computed_s + self._seconds(step.task)
        us = round(until * 1e6) - round(self._computed_s * 1e6)
        self._computed_s = until
        node = self._node(step, NodeType.COMPUTE, step.task.name, after, us)
        self._ends[step.number] = [node.id]
        return node

    def _exchange(self, step: _Step, after: list[int]) -> Iterator[Node]:
        for place, piece in enumerate(step.pieces):
            if isinstance(piece, Messages):
                yield from self._messages(step, piece, step.first_tag + place, after)
            else:
                yield from self._collective(step, piece, after)
            after = self._ends[step.number]

    def _messages(self, step: _Step, messages: Messages, tag: int, after: list[int]) -> Iterator[Node]:
        """Every receipt is asked for at once; messages are sent one after the other."""
        ends = []
        for partner, size in messages.received(self._rank):
            name = f"{step.task.name} from rank {partner}"
            node = self._message(step, NodeType.RECEIVE, name, after, (partner, self._rank), size, tag)
            ends.append(node.id)
            yield node
        sent = messages.sent(self._rank)
        for place, (partner, size) in enumerate(sent):
            name, ready = f"{step.task.name} to rank {partner}", self._in_turn(() if place else after)
            node = self._message(step, NodeType.SEND, name, ready, (self._rank, partner), size, tag)
            self._last_message = node.id
            yield node
        if sent:
            ends.append(self._last_message)
        self._ends[step.number] = ends or after

    def _message(
        self, step: _Step, kind: NodeType, name: str, after: Sequence[int], ends: tuple[int, int], size: int, tag: int
    ) -> Node:
        source, target = (int(self._network.number_of_rank[rank]) for rank in ends)
        return self._node(
            step, kind, name, after, 0,
            Attribute("comm_src", wire.INT32, source),
            Attribute("comm_dst", wire.INT32, target),
            Attribute("comm_tag", wire.INT32, tag),
            Attribute("comm_size", wire.INT64, size),
        )  # fmt: skip

    def _collective(self, step: _Step, collective: Collective, after: list[int]) -> Iterator[Node]:
        if not (size := collective.bytes(self._rank)):
            return
        members = collective.members(self._rank)
        involved = collective.dimensions(self._rank, self._network)
        if involved is None:
            numbers = sorted(self._network.number_of_rank[members].tolist())
            among = Attribute("pg_name", wire.STRING, str(self._groups.number(numbers)))
        else:
            among = Attribute("involved_dim", wire.BOOLS, involved)
        node = self._node(
            step, NodeType.COLLECTIVE, step.task.name, self._in_turn(after), 0,
            Attribute("comm_type", wire.INT64, collective.type),
            Attribute("comm_size", wire.INT64, size),
            among,
        )  # fmt: skip
        self._last_message = node.id
        self._ends[step.number] = [node.id]
        yield node

    def _in_turn(self, after: Sequence[int]) -> list[int]:
        """What a message waits for: `after`, and the message before it."""
        return sorted({*after, self._last_message} - {0})
