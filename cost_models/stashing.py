"""Tables that leave HBM between the passes of a step: their bytes when they are back, and their seconds on PCIe.

After the lookup rows, optimizer state or both are copied to pinned memory of the host, and back before the update
(TorchRec's memory stashing, meta-pytorch/torchrec#3745). HBM is fullest at one of two moments: when the forward pass
of the dense part ends, without what is stashed, or when everything is back and gradients of vectors are exchanged.
Between these, tables leave as activations come and come back as they go, so that no moment takes more.

A rank that ends its forward pass waits for what has not left, and one that ends its backward pass for what has not come
back: max(forward, out) + max(backward, in), which is the longest of four sums, each linear in the bytes.
"""

from cost_models.dense import DensePass
from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad, Loads
from cost_models.resources import HOST_LINK_IN, HOST_LINK_OUT, PCIE, STASH, STASH_IN, STASH_OUT, Resource
from cost_models.shards import Floats


def stash_loads(stashed: Floats, kind: RankKind, groups_per_switch: float) -> Loads:
    """What blocks that stash so many bytes [n] ask of the switch that ranks share on a kind of rank, of how many groups
    each is: both ways, and each with the other pass. Rows that cross the switch or a rank's own link meanwhile, and
    what ranks exchange over it, meet them once."""
    one_way_s = stashed / kind.pcie_bytes_per_s
    own, one = BlockLoad(by_rows=one_way_s), BlockLoad(by_rows=groups_per_switch * one_way_s)
    both = BlockLoad(by_rows=2 * groups_per_switch * one_way_s)
    return {STASH: both, STASH_OUT: one, STASH_IN: one, PCIE: one, HOST_LINK_OUT: own, HOST_LINK_IN: own}


def beside_stash(dense: DensePass, coded_s: float, kind: RankKind, *, returns_late: bool) -> dict[Resource, float]:
    """What the passes of the dense part add to each of these sums on a kind of rank; `coded_s` of gradients that are
    encoded count as backward. Where tables `returns_late`, none comes back before the backward pass ends: with
    checkpointing activations come once more."""
    forward_s = dense.rest_forward_s
    backward_s = dense.rest_s - forward_s + coded_s
    late_s = backward_s if returns_late else 0.0
    seconds = {STASH: late_s, STASH_OUT: backward_s, STASH_IN: forward_s + late_s}
    return {resource: own_s / kind.pcie_ranks for resource, own_s in seconds.items()}
