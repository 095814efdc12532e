"""A step of embedding tables that a plan has sharded, with vectors that go through towers, on one rank of a group."""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

Floats = NDArray[np.float64]
IDS = 3
"""Ids of each bag."""


@dataclass(frozen=True)
class Shard:
    """A rectangle of a table on one rank."""

    table: int
    sharding: str
    rank: int
    row_start: int
    rows: int
    column_start: int
    columns: int


@dataclass(frozen=True)
class Job:
    """Tables, where they are, and who is on which host."""

    shapes: tuple[tuple[int, int], ...]
    shards: tuple[Shard, ...]
    samples: int
    """Of each rank."""
    local: int
    """Ranks of a tower, which is called a host here."""

    def weights(self) -> list[Floats]:
        """Of all tables, the same on every rank."""
        random = np.random.default_rng(5)
        return [random.normal(size=shape) for shape in self.shapes]

    def ids(self, world: int) -> list[NDArray[np.int64]]:
        """[tables] of [samples of all ranks, IDS] rows."""
        random = np.random.default_rng(7)
        return [random.integers(0, rows, (world * self.samples, IDS)) for rows, _ in self.shapes]

    def gradients(self, world: int) -> list[Floats]:
        """[tables] of those of every sample's vector."""
        random = np.random.default_rng(9)
        return [random.normal(size=(world * self.samples, columns)) for _, columns in self.shapes]


@dataclass
class Sent:
    """Numbers that a rank has sent to others, by hop."""

    numbers: dict[str, int] = field(default_factory=dict)

    def exchange(self, hop: str, group: dist.ProcessGroup, parts: list[Floats]) -> list[Floats]:
        """Send a part to each rank of the group, and get theirs, which are as large as the own part."""
        own = dist.get_rank(group)
        shapes = _shapes(group, parts)
        out = torch.from_numpy(np.concatenate([part.ravel() for part in parts]))
        got = [np.prod(shape, dtype=int) for shape in shapes]
        into = torch.empty(int(sum(got)), dtype=torch.float64)
        dist.all_to_all_single(into, out, [int(g) for g in got], [part.size for part in parts], group=group)
        self.numbers[hop] = self.numbers.get(hop, 0) + sum(p.size for i, p in enumerate(parts) if i != own)
        ends = np.cumsum(got)
        return [into.numpy()[end - size : end].reshape(s) for end, size, s in zip(ends, got, shapes, strict=True)]


def _shapes(group: dist.ProcessGroup, parts: list[Floats]) -> list[tuple[int, ...]]:
    """Those of what each rank of the group sends to this one."""
    told: list[list[tuple[int, ...]]] = [[] for _ in parts]
    dist.all_gather_object(told, [part.shape for part in parts], group=group)
    return [shapes[dist.get_rank(group)] for shapes in told]


class Towers:
    """The groups of a rank: its host, its peers."""

    def __init__(self, local: int) -> None:
        world, self.rank = dist.get_world_size(), dist.get_rank()
        hosts = [list(range(first, first + local)) for first in range(0, world, local)]
        peers = [list(range(place, world, local)) for place in range(local)]
        groups = {tuple(ranks): dist.new_group(ranks) for ranks in hosts + peers}
        self.world, self.local, self.hosts = world, local, world // local
        self.host = groups[tuple(hosts[self.rank // local])]
        self.peers = groups[tuple(peers[self.rank % local])]
        self.everyone = dist.new_group(list(range(world)))


def step(job: Job) -> tuple[list[Floats], list[Floats], dict[str, int]]:
    """Vectors of the rank's own samples, the weights of its shards after a step of SGD at rate 1 in the order of the
    plan, and the numbers that it sent to others."""
    towers, sent = Towers(job.local), Sent()
    own = [shard for shard in job.shards if shard.rank == towers.rank]
    weights = [_part(job.weights()[shard.table], shard) for shard in own]
    vectors = _forward(job, towers, sent, own, weights)
    gradients = _backward(job, towers, sent, own)
    for shard, weight, gradient in zip(own, weights, gradients, strict=True):
        rows = job.ids(towers.world)[shard.table] - shard.row_start
        for bag in range(IDS):
            here = (rows[:, bag] >= 0) & (rows[:, bag] < shard.rows)
            np.add.at(weight, rows[here, bag], -gradient[here])
    return vectors, weights, sent.numbers


def _part(table: Floats, shard: Shard) -> Floats:
    rows = slice(shard.row_start, shard.row_start + shard.rows)
    return table[rows, shard.column_start : shard.column_start + shard.columns].copy()


def _in_towers(shards: list[Shard]) -> list[Shard]:
    return [shard for shard in shards if shard.sharding != "row_wise"]


def _by_place(samples: Floats, towers: Towers) -> list[Floats]:
    """Permute: [samples of all ranks, ...] as one part for each place, of the peers at it in order."""
    of_rank = samples.reshape(towers.hosts, towers.local, -1, *samples.shape[1:])
    return [np.ascontiguousarray(of_rank[:, place]).reshape(-1, *samples.shape[1:]) for place in range(towers.local)]


def _blocks_of_host(job: Job, towers: Towers) -> list[tuple[int, int, int, int]]:
    """(table, first column, columns, ranks) of every column block on this rank's host, in the order of the plan."""
    host = range(towers.rank // towers.local * towers.local, (towers.rank // towers.local + 1) * towers.local)
    held = [shard for shard in _in_towers(list(job.shards)) if shard.rank in host]
    keys = [(shard.table, shard.column_start, shard.columns) for shard in held]
    return [(*key, keys.count(key)) for key in dict.fromkeys(keys)]


def _forward(job: Job, towers: Towers, sent: Sent, own: list[Shard], weights: list[Floats]) -> list[Floats]:
    ids, samples = job.ids(towers.world), job.samples
    looked_up = [
        _pooled(weight, ids[shard.table] - shard.row_start) for shard, weight in zip(own, weights, strict=True)
    ]
    out = [np.zeros((samples, columns)) for _, columns in job.shapes]
    # Inside the host: each place gets the samples of its peers, and sums what several ranks hold of one block.
    mine = {(s.table, s.column_start): v for s, v in zip(own, looked_up, strict=True) if s.sharding != "row_wise"}
    of_tower: list[Floats] = []
    for table, first, columns, _ in _blocks_of_host(job, towers):
        parts = _by_place(mine.get((table, first), np.zeros((0, columns))).reshape(-1, columns), towers)
        got = sent.exchange("intra-host", towers.host, parts)
        of_tower.append(np.sum([each for each in got if len(each)], axis=0))
    # Transpose: all columns of the tower by host, then by sample; one long message for each peer.
    joined = np.concatenate([each.reshape(towers.hosts, samples, -1) for each in of_tower], axis=2)
    arrived = sent.exchange("peers", towers.peers, [np.ascontiguousarray(part) for part in joined])
    for host, vectors in enumerate(arrived):
        column = 0
        for table, first, columns, _ in _blocks_of_host(job, _at_host(towers, host)):
            out[table][:, first : first + columns] = vectors[:, column : column + columns]
            column += columns
    for shard, vectors in zip(own, looked_up, strict=True):
        if shard.sharding == "row_wise":
            parts = list(vectors.reshape(towers.world, samples, -1))
            out[shard.table] += np.sum(sent.exchange("world", towers.everyone, parts), axis=0)
    return out


def _at_host(towers: Towers, host: int) -> Towers:
    """The same, seen from the first rank of another host."""
    other = object.__new__(Towers)
    other.__dict__.update(towers.__dict__, rank=host * towers.local)
    return other


def _pooled(weight: Floats, rows: NDArray[np.int64]) -> Floats:
    """Sums of the rows of every bag that are there."""
    there = (rows >= 0) & (rows < len(weight))
    padded = np.concatenate([weight, np.zeros((1, weight.shape[1]))])
    return padded[np.where(there, rows, len(weight))].sum(axis=1)


def _backward(job: Job, towers: Towers, sent: Sent, own: list[Shard]) -> list[Floats]:
    """The gradients of all samples' vectors, of each own shard's columns."""
    samples, mine = job.samples, slice(towers.rank * job.samples, (towers.rank + 1) * job.samples)
    gradients = [gradient[mine] for gradient in job.gradients(towers.world)]
    parts = []
    for host in range(towers.hosts):
        blocks = _blocks_of_host(job, _at_host(towers, host))
        parts.append(np.concatenate([gradients[t][:, c : c + n] for t, c, n, _ in blocks], axis=1))
    of_tower = np.concatenate(sent.exchange("peers back", towers.peers, parts))
    found: dict[tuple[int, int], Floats] = {}
    column, first_rank = 0, towers.rank // towers.local * towers.local
    for table, first, columns, _ in _blocks_of_host(job, towers):
        part, column = of_tower[:, column : column + columns], column + columns
        holders = {s.rank - first_rank for s in job.shards if (s.table, s.column_start) == (table, first)}
        send = [part if place in holders else part[:0] for place in range(towers.local)]
        got = sent.exchange("intra-host back", towers.host, [np.ascontiguousarray(each) for each in send])
        if towers.rank - first_rank in holders:
            by_place = np.stack([each.reshape(towers.hosts, samples, columns) for each in got], axis=1)
            found[table, first] = by_place.reshape(-1, columns)
    for shard in own:
        if shard.sharding == "row_wise":
            got = sent.exchange("world back", towers.everyone, [gradients[shard.table]] * towers.world)
            found[shard.table, shard.column_start] = np.concatenate(got)
    return [found[shard.table, shard.column_start] for shard in own]
