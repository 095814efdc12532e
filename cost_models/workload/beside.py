"""What kernels beside the products of layers read and write, counted as PyTorch runs them.

Eager, each operation is a kernel: an activation reads and writes its numbers, its gradient reads two and writes one, a
bias's gradient is a sum over all samples, and numbers that are read by several layers have their gradients added, two
read and one written. Compiled, kernels that follow each other number by number are one. Products join biases forward.
`benchmarks.one_gpu.counts` counts the same in PyTorch's own operations.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Beside:
    """Numbers of a sample that are read or written, each time that they are."""

    forward: float = 0.0
    backward: float = 0.0
    fused_forward: float = 0.0
    """Compiled."""
    fused_backward: float = 0.0
    """Compiled."""
    summed: float = 0.0
    """Numbers whose sums over all samples are gradients of biases; each is read once. Compiled, they are summed where
    they are made."""
    summed_rows: float = 0.0
    """Rows of these, one for each bias and token."""
    turned_forward: float = 0.0
    """Across layouts: transposed copies, and sums of what is laid out unlike."""
    turned_backward: float = 0.0

    def __add__(self, other: "Beside") -> "Beside":
        return Beside(
            self.forward + other.forward,
            self.backward + other.backward,
            self.fused_forward + other.fused_forward,
            self.fused_backward + other.fused_backward,
            self.summed + other.summed,
            self.summed_rows + other.summed_rows,
            self.turned_forward + other.turned_forward,
            self.turned_backward + other.turned_backward,
        )

    def __mul__(self, count: float) -> "Beside":
        return Beside(*(getattr(self, each.name) * count for each in fields(self)))


NO_KERNELS = Beside()
ACTIVATION_FORWARD, ACTIVATION_BACKWARD, SUM = 2, 3, 3
"""Reads and writes of a number: an activation, its gradient, a sum or a product of two."""


def joined(numbers: float) -> Beside:
    """Several inputs written as one; their gradients are parts of its own."""
    return Beside(forward=2 * numbers, fused_forward=2 * numbers)


def copied(numbers: float) -> Beside:
    """The gradients of tables' vectors, which are parts of what they are joined in, written as one."""
    return Beside(backward=2 * numbers, fused_backward=2 * numbers)


def added(numbers: float) -> Beside:
    """A gradient added to another one of the same numbers: compiled, one more that the next kernel reads."""
    return Beside(backward=SUM * numbers, fused_backward=numbers)


def activated(numbers: float, *, bias: bool = True, tokens: float = 1.0) -> Beside:
    """What a linear layer gives for some tokens, with its activation."""
    there, back = ACTIVATION_FORWARD * numbers, ACTIVATION_BACKWARD * numbers
    return Beside(there, back, there, back, numbers * bias, tokens * bias)


def biased(numbers: float, tokens: float = 1.0) -> Beside:
    """What a linear layer without an activation gives."""
    return Beside(fused_backward=numbers, summed=numbers, summed_rows=tokens)


def crossed(width: float, count: float, inner_bias: float) -> Beside:
    """Cross layers: x0 * y + x. Backward two products, and gradients of x0 and of x added to what they have."""
    forward, backward, summed = 2 * SUM * width, 4 * SUM * width, width + inner_bias
    one = Beside(forward, backward, 4 * width, 7 * width + inner_bias, summed, 1 + (inner_bias > 0))
    return one * count


def normed(numbers: float) -> Beside:
    """A layer norm: backward two kernels, of inputs and of scales. Compiled, it follows on what made its input."""
    return Beside(2 * numbers, 5 * numbers, numbers, 3 * numbers)
