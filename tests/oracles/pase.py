"""PaSE's cost model, whose unit is a FLOP, and two of its networks, for the costs that its code finds.

Written from "PaSE: Parallelization Strategies for Efficient DNN Training" (Elango, IPDPS 2021) and what its code
(baidu-research/PaSE) counts: 8 bytes a word, 3 passes, pointwise work of the outputs, all-reduces of local blocks. A
network is a graph of layers whose strategies are cuts of their iteration spaces.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cost_models.shards import Floats, Ints
from planner.certificates.strategy_graph import StrategyGraph
from tests.oracles.iteration_space import IterationSpace, Tensor, cuts_of, missing_elements

FLOPS_PER_S = 10e12
WORDS_PER_S = 16e9 / 8
FLOPS_PER_WORD = FLOPS_PER_S / WORDS_PER_S
BATCH = 128


def product_costs(space: IterationSpace, cuts: Ints) -> Floats:
    """[S] FLOPs of a matrix product and what follows it, and of its all-reduces: 2 w (p-1)/p words of a block."""
    flops = 3 * space.local_flops(cuts)
    for name in space.tensors:
        ranks = space.addend_ranks(name, cuts)
        flops = flops + FLOPS_PER_WORD * 2 * space.local_elements(name, cuts) * (ranks - 1) / ranks
    return flops


@dataclass
class Network:
    """A graph of layers, built layer by layer."""

    ranks: int
    smallest_part: int
    cuts: dict[str, Ints] = field(default_factory=dict)
    costs: dict[str, Floats] = field(default_factory=dict)
    edges: dict[tuple[str, str], Floats] = field(default_factory=dict)
    written: dict[str, tuple[tuple[int, ...], Ints]] = field(default_factory=dict)
    """Sizes of a layer's output, and [S, dimensions] how its strategies cut it."""

    def add(
        self,
        name: str,
        cuts: Ints,
        costs: Floats,
        reads: str | None,
        read_cuts: Ints,
        sizes: tuple[int, ...],
        out: Ints,
    ) -> None:
        """Add a layer that reads another one's output, unless it reads a batch."""
        self.cuts[name], self.costs[name], self.written[name] = cuts, costs, (sizes, out)
        if reads is not None:
            shape, held = self.written[reads]
            self.edges[reads, name] = FLOPS_PER_WORD * 2 * missing_elements(shape, held, read_cuts)

    def add_product(
        self, name: str, space: IterationSpace, reads: str | None, read: tuple[str, ...], whole: tuple[str, ...] = ()
    ) -> None:
        """Add a matrix product, a convolution as one, or a batched one."""
        cuts = space.cuts(self.ranks, smallest_part=self.smallest_part, whole=whole)
        out = space.tensors[space.output].dimensions
        sizes = tuple(space.sizes[each] for each in out)
        self.add(name, cuts, product_costs(space, cuts), reads, space.of(read, cuts), sizes, space.of(out, cuts))

    def add_pointwise(self, name: str, reads: str, sizes: tuple[int, ...], costs: Callable[[Ints], Floats]) -> None:
        """Add a layer that reads and writes with the same cuts."""
        cuts = cuts_of(sizes, self.ranks, self.smallest_part)
        self.add(name, cuts, costs(cuts), reads, cuts, sizes, cuts)

    def graph(self) -> StrategyGraph:
        """Return it as arrays."""
        return StrategyGraph(self.costs, self.edges)


def full_product(samples: dict[str, int], outputs: int, inputs: int, pointwise: int = 0) -> IterationSpace:
    """A fully connected layer over one or more dimensions of samples."""
    rows = tuple(samples)
    tensors = {
        "x": Tensor("input", (*rows, "k")),
        "w": Tensor("weight", ("n", "k")),
        "y": Tensor("output", (*rows, "n")),
    }
    return IterationSpace({**samples, "n": outputs, "k": inputs}, tensors, 1.0, pointwise)


def convolution(channels: int, side: int, filter_side: int, filters: int) -> IterationSpace:
    """A convolution with an activation function, as the matrix product of patches and filters."""
    sizes = {"b": BATCH, "c": channels, "h": side, "w": side, "r": filter_side, "s": filter_side, "n": filters}
    tensors = {
        "x": Tensor("input", ("b", "c", "h", "w", "r", "s")),
        "f": Tensor("weight", ("c", "r", "s", "n")),
        "y": Tensor("output", ("b", "n", "h", "w")),
    }
    return IterationSpace(sizes, tensors, 1.0, 1.0)


def cross_entropy(sizes: tuple[int, ...]) -> Callable[[Ints], Floats]:
    """Softmax (4 FLOPs a number) and cross-entropy, 2 a sample, and 2 words a sample where classes are cut."""

    def costs(cuts: Ints) -> Floats:
        local = np.array(sizes) / cuts
        samples = local[:, :-1].prod(axis=1)
        return 4 * local.prod(axis=1) + 2 * samples + np.where(cuts[:, -1] > 1, FLOPS_PER_WORD * 2 * samples, 0.0)

    return costs


def pooling(sizes: tuple[int, ...], read_side: int) -> Callable[[Ints], Floats]:
    """One FLOP a number of the output, and the rows and columns of 3 that cut images lack at their edges."""

    def costs(cuts: Ints) -> Floats:
        batch, channels, height, width = (np.array([*sizes[:2], read_side, read_side]) / cuts).T
        wider = np.where(cuts[:, 2:] > 1, 3, 0)
        edges = (height + wider[:, 0]) * (width + wider[:, 1]) - height * width
        return (np.array(sizes) / cuts).prod(axis=1) + FLOPS_PER_WORD * batch * channels * edges

    return costs


def flattened(network: Network, name: str, reads: str, sizes: tuple[int, ...], *, is_read: bool) -> None:
    """Add a layer of no cost that makes one dimension of several, or several of one; cuts are contiguous: after a
    dimension that is not cut point by point none is cut."""
    cuts = cuts_of(sizes, network.ranks, network.smallest_part)
    part_of = np.array([(row != sizes).argmax() if (row != sizes).any() else len(sizes) for row in cuts])
    cuts = cuts[[(row[place + 1 :] == 1).all() for row, place in zip(cuts, part_of, strict=True)]]
    line, along = (math.prod(sizes),), cuts.prod(axis=1, keepdims=True)
    free = np.zeros(len(cuts))
    if is_read:
        network.add(name, cuts, free, reads, cuts, line, along)
    else:
        network.add(name, cuts, free, reads, along, sizes, cuts)


def alexnet(ranks: int) -> Network:
    """AlexNet on images of 227 x 227."""
    network = Network(ranks, smallest_part=4)
    image = ("b", "c", "h", "w")
    reads = None
    for name, channels, side, filter_side, filters, pooled in (
        ("conv1", 3, 55, 11, 96, 27),
        ("conv2", 96, 27, 5, 256, 13),
        ("conv3", 256, 13, 3, 384, None),
        ("conv4", 384, 13, 3, 384, None),
        ("conv5", 384, 13, 3, 256, 6),
    ):
        network.add_product(name, convolution(channels, side, filter_side, filters), reads, image, whole=("h", "w"))
        reads = name
        if pooled is not None:
            sizes = (BATCH, filters, pooled, pooled)
            reads = "pool" + name[-1]
            network.add_pointwise(reads, name, sizes, pooling(sizes, side))
    flattened(network, "ravel", "pool5", (BATCH, 256, 6, 6), is_read=True)
    flattened(network, "unravel", "ravel", (BATCH, 9216), is_read=False)
    reads = "unravel"
    for name, outputs, inputs, pointwise in (("fc6", 4096, 9216, 1), ("fc7", 4096, 4096, 1), ("fc8", 1024, 4096, 0)):
        network.add_product(name, full_product({"b": BATCH}, outputs, inputs, pointwise), reads, ("b", "k"))
        reads = name
    network.add_pointwise("loss", "fc8", (BATCH, 1024), cross_entropy((BATCH, 1024)))
    return network


def rnnlm(ranks: int) -> Network:
    """Two layers of 2,048 LSTM cells over 256 words of 100,000."""
    units, words, vocabulary = 2048, 256, 100_000
    network = Network(ranks, smallest_part=1)
    samples = {"b": BATCH, "s": words}
    network.add_product("embedding", full_product(samples, units, vocabulary), None, ("b", "s", "k"))
    sizes = {"l": 2, "s": words, "b": BATCH, "n": 4 * units, "k": 2 * units}
    tensors = {
        "x": Tensor("input", ("l", "s", "b", "k")),
        "w": Tensor("weight", ("l", "n", "k")),
        "y": Tensor("output", ("l", "s", "b", "n")),
    }
    cells = IterationSpace(sizes, tensors, 1.0, 3.0)
    cuts = cells.cuts(ranks, whole=("s",))
    made, read = cells.of(("b", "n"), cuts), cells.of(("b", "k"), cuts)
    between = np.array(
        [missing_elements((BATCH, units), made[i : i + 1], read[i : i + 1])[0, 0] for i in range(len(cuts))]
    )
    costs = product_costs(cells, cuts) + sizes["l"] * words * FLOPS_PER_WORD * between
    shape = (BATCH, words, units)
    network.add(
        "lstm", cuts, costs, "embedding", cells.of(("b", "s", "k"), cuts), shape, cells.of(("b", "s", "n"), cuts)
    )
    network.add_product("projection", full_product(samples, vocabulary, units), "lstm", ("b", "s", "k"))
    sizes_of_loss = (BATCH, words, vocabulary)
    network.add_pointwise("loss", "projection", sizes_of_loss, cross_entropy(sizes_of_loss))
    return network
