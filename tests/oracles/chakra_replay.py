"""Chakra traces played without time, by ASTRA-sim's rules: who waits for whom, and whether it ever ends."""

from collections import defaultdict
from collections.abc import Callable

from tests.oracles.chakra_reader import COLL, RECV, SEND, ReadNode

Members = Callable[[int, ReadNode], tuple[int, ...]]
"""The ranks of a collective that one rank has in its trace."""


class Replay:
    """Each rank has one communication in flight, the lowest number that is ready first; collectives wait for all
    members, receipts for their messages. Collectives are told apart by how many of their group a rank has had, and
    those of dimensions by how many of any dimension."""

    def __init__(self, nodes: dict[int, list[ReadNode]], members: Members) -> None:
        self._members = members
        self._node = {rank: {node.id: node for node in own} for rank, own in nodes.items()}
        self._waiting = {rank: {node.id: set(node.deps) for node in own} for rank, own in nodes.items()}
        self._arrived: set[tuple[int, int, int]] = set()
        self._calls: dict[int, dict[tuple[int, ...], int]] = defaultdict(lambda: defaultdict(int))
        self._held: dict[int, tuple[int, tuple[int, ...], int]] = {}

    def left(self) -> int:
        """Nodes that never happen."""
        while any(self._advance(rank) for rank in self._waiting):
            pass
        return sum(len(own) for own in self._waiting.values())

    def _advance(self, rank: int) -> bool:
        ready = sorted(number for number, left in self._waiting[rank].items() if not left)
        return any(self._try(rank, number) for number in ready if number in self._waiting[rank])

    def _try(self, rank: int, number: int) -> bool:
        node = self._node[rank][number]
        if node.type == COLL:
            return self._meet(rank, number, node)
        if node.type == RECV and (node["comm_src"], rank, node["comm_tag"]) not in self._arrived:
            return False
        if node.type == SEND:
            if rank in self._held:
                return False
            self._arrived.add((rank, node["comm_dst"], node["comm_tag"]))
        self._finish(rank, number)
        return True

    def _meet(self, rank: int, number: int, node: ReadNode) -> bool:
        if begins := rank not in self._held:
            group = self._members(rank, node)
            assert node.attributes is not None
            counted = group if "pg_name" in node.attributes else ()
            self._held[rank] = number, group, self._calls[rank][counted]
            self._calls[rank][counted] += 1
        own, *call = self._held[rank]
        if own != number or any(list(self._held.get(other, (0,))[1:]) != call for other in self._held[rank][1]):
            return begins
        for other in self._held[rank][1]:
            theirs = self._held.pop(other)[0]
            assert self._node[other][theirs].attributes == node.attributes
            self._finish(other, theirs)
        return True

    def _finish(self, rank: int, number: int) -> None:
        del self._waiting[rank][number]
        for left in self._waiting[rank].values():
            left.discard(number)
