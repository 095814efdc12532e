"""What a block asks of a resource, in the three ways that a block can ask."""

from dataclasses import dataclass

from cost_models.shards import Floats

Resource = str
"""A word for something that a stage can be bound by; `step.py` says which rank shares which one:

device     the accelerator's compute stream and HBM        link_out, link_in  its port into the scale-up domain
host_link  its own PCIe link                               nic_out, nic_in    the scale-out card that serves it
pcie       the uplink of its PCIe switch to the host       uplinkN_out, _in   the switch of an oversubscribed level
fetches    its waiting for the misses of its caches, from one memory after the other
ddr, ssd, scm  host memory, storage, storage-class memory of its node
front_end  the cards of its node for training data and remote hosts
remote     the remote hosts of its node group
"""


@dataclass(frozen=True)
class BlockLoad:
    """Seconds (or bytes) that each of n column blocks costs. Every part is [n] or a number for all.

    A rank that holds a part of the block is charged `fixed + by_rows x (its rows / rows of the table)`; every rank
    of the world, holder or not, is charged `everywhere`, once per block.
    """

    fixed: Floats | float = 0.0
    by_rows: Floats | float = 0.0
    everywhere: Floats | float = 0.0

    def __truediv__(self, rate: float) -> "BlockLoad":
        return BlockLoad(self.fixed / rate, self.by_rows / rate, self.everywhere / rate)

    def __mul__(self, factor: float) -> "BlockLoad":
        return BlockLoad(self.fixed * factor, self.by_rows * factor, self.everywhere * factor)


Loads = dict[Resource, BlockLoad]
