"""The stages of a step and the terms that run in them, one row each.

A stage ends with a collective, so everybody waits for the slowest. The misses of caches end with none, but ranks that
get them from one memory get them at the same time; those of all memories are one stage. Work that overlaps shares a
stage: under the sparse-dist pipeline the next batch's ids travel beside the dense part, the update and the overhead;
what these do not hide (see `StepCosts`) shows in the stage of the update, as do sums of gradients that outlast the
dense part. Under the prefetch pipeline misses travel there, too, and both also beside the lookup: what is not hidden
shows in the stages of lookup and update, a share in each (see `prefetch_lines`). The bottom MLP works beside the
exchanges of embeddings. Through towers (see `towers`) vectors go twice: inside their tower, in a stage of its own, then
among peers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

LOOKUP, UPDATE = "lookup_forward", "lookup_backward"
"""The stages of the lookup and of the update of tables: of kernels that read bags."""
VectorExchange = Literal["flat", "sptt"]
"""How vectors come to the ranks of their samples: at once, or through towers (see `towers`)."""


@dataclass(frozen=True)
class StepSetting:
    """What decides which stages a step has and what overlaps."""

    is_training: bool
    has_pipeline: bool
    """Whether the next batch's ids travel during a training step."""
    has_prefetch: bool
    """Whether the next batch's cache misses come during a training step."""
    has_memories: bool
    """Whether a node has a memory below HBM."""
    all_reduce_overlaps: bool
    """Whether the runtime reduces the dense gradients during the backward pass."""
    averages_replicas: bool = False
    """Whether copies of the tables are averaged after the step."""
    shards_replicas: bool = False
    """Whether copies of the tables are cut over their replicas, and gathered again, beside the exchanges of vectors and
    the dense part."""
    has_towers: bool = False
    """Whether vectors travel through towers."""
    has_modules: bool = False
    """Whether each tower has a module."""
    gathers_dense: bool = False
    """Whether whole weights of the dense part are gathered after their update."""
    gathers_units: bool = False
    """Whether those of its units are gathered before each pass."""
    copy_meets_rows: bool = False
    """Whether rows from below HBM may wait for the copy of a batch."""
    stashes: bool = False
    """Whether tables may leave HBM between the passes."""
    shards_dense: bool = False
    """Whether ranks hold parts of the dense part."""

    @property
    def update_hides_ids(self) -> bool:
        """Whether the next batch's ids show in the stage of the update, which hides them last."""
        return self.has_pipeline

    @property
    def update_hides_sums(self) -> bool:
        """Whether sums of gradients that outlast the dense part show in that stage."""
        overlap = self.is_training and self.all_reduce_overlaps
        return overlap and not self.shards_replicas


Condition = Callable[[StepSetting], bool]
Over = Literal[
    "device", "bottom", "tables", "exchange", "inside", "ids", "reduction", "fetch", "copy", "stash", "nothing"
]
"""What work loads: the device; the device, if there is a bottom MLP; the device and the memories that rows are read in
place from; the links and cards of an exchange, its links alone, those of the exchange of the next ids, of a reduction
that may meet these; the way of cache misses; its link to the host, beside the copy of a batch; its way to the host,
beside the passes of the dense part; no resource."""


def _always(_: StepSetting) -> bool:
    return True


def _never(_: StepSetting) -> bool:
    return False


def _training(setting: StepSetting) -> bool:
    return setting.is_training


def _through_towers(setting: StepSetting) -> bool:
    return setting.has_towers


def _trained_through_towers(setting: StepSetting) -> bool:
    return setting.is_training and setting.has_towers


def _cut(setting: StepSetting) -> bool:
    return setting.shards_replicas


def _cut_in_towers(setting: StepSetting) -> bool:
    return setting.shards_replicas and setting.has_towers


@dataclass(frozen=True)
class StageSpec:
    """One stage of a step; a step runs its stages in the order of STAGES."""

    name: str
    is_collective: bool = False
    """Whether it ends with one, whose latency it takes whatever is placed."""
    is_lookup: bool = False
    """Whether devices read rows in it."""


@dataclass(frozen=True)
class TermSpec:
    """One kind of work, and the stage that it runs in."""

    name: str
    stage: str
    over: Over
    when: Condition = _always
    """In which steps there is such work."""
    overlaps: Condition = _never
    """In which steps it runs beside the work of another stage, and shows there."""
    beside: str = "dense"
    """That other stage."""


STAGES: dict[str, StageSpec] = {
    spec.name: spec
    for spec in (
        StageSpec("input_dist", is_collective=True),
        StageSpec("cache_fetch"),
        StageSpec("copy_contention"),
        StageSpec("lookup_forward", is_lookup=True),
        StageSpec("output_intra_host", is_collective=True),
        StageSpec("tower_forward"),
        StageSpec("output_dist", is_collective=True),
        StageSpec("dense"),
        StageSpec("gradient_dist", is_collective=True),
        StageSpec("tower_backward"),
        StageSpec("gradient_intra_host", is_collective=True),
        StageSpec("lookup_backward", is_lookup=True),
        StageSpec("all_reduce", is_collective=True),
        StageSpec("replica_sync", is_collective=True),
        StageSpec("overhead"),
        StageSpec("dense_gather"),
    )
}
TERMS: tuple[TermSpec, ...] = (
    TermSpec("input_dist", "input_dist", "ids", overlaps=lambda setting: setting.has_pipeline),
    TermSpec("lookup_forward", "lookup_forward", "tables"),
    TermSpec("permute", "lookup_forward", "device", when=_through_towers),
    TermSpec("output_intra_host", "output_intra_host", "inside", when=_through_towers),
    TermSpec("tower_forward", "tower_forward", "device", when=lambda setting: setting.has_modules),
    TermSpec("transpose", "output_dist", "exchange", when=_through_towers),
    TermSpec("peers", "output_dist", "exchange", when=_through_towers),
    TermSpec("output_dist", "output_dist", "exchange"),
    TermSpec("node_sums", "output_dist", "exchange"),
    TermSpec("bottom_mlp_forward", "output_dist", "bottom"),
    TermSpec("dense", "dense", "device"),
    TermSpec(
        "cache_fetch",
        "cache_fetch",
        "fetch",
        when=lambda setting: setting.has_memories,
        overlaps=lambda setting: setting.has_prefetch,
    ),
    TermSpec("copy_contention", "copy_contention", "copy", when=lambda setting: setting.copy_meets_rows),
    TermSpec("beside_misses", "dense", "fetch", when=lambda setting: setting.has_prefetch and setting.has_memories),
    TermSpec("gradient_dist", "gradient_dist", "exchange", when=_training),
    TermSpec("node_sums_backward", "gradient_dist", "exchange", when=_training),
    TermSpec("bottom_mlp_backward", "gradient_dist", "bottom", when=_training),
    TermSpec("peers_backward", "gradient_dist", "exchange", when=_trained_through_towers),
    TermSpec("transpose_backward", "gradient_dist", "exchange", when=_trained_through_towers),
    TermSpec(
        "tower_backward",
        "tower_backward",
        "device",
        when=lambda setting: setting.is_training and setting.has_modules,
    ),
    TermSpec("gradient_intra_host", "gradient_intra_host", "inside", when=_trained_through_towers),
    TermSpec("permute_backward", "lookup_backward", "device", when=_trained_through_towers),
    TermSpec("lookup_backward", "lookup_backward", "tables", when=_training),
    TermSpec(
        "all_reduce", "all_reduce", "reduction", when=_training, overlaps=lambda setting: setting.all_reduce_overlaps
    ),
    TermSpec(
        "tower_all_reduce",
        "all_reduce",
        "reduction",
        when=lambda setting: setting.is_training and setting.has_modules,
        overlaps=lambda setting: setting.all_reduce_overlaps,
    ),
    TermSpec(
        "replica_all_reduce",
        "all_reduce",
        "exchange",
        when=_training,
        overlaps=lambda setting: setting.all_reduce_overlaps,
        beside="gradient_dist",
    ),
    TermSpec("replica_sync", "replica_sync", "exchange", when=lambda setting: setting.averages_replicas),
    TermSpec("output_intra_host_shards", "output_intra_host", "exchange", when=_cut_in_towers),
    TermSpec("output_dist_shards", "output_dist", "exchange", when=_cut),
    TermSpec("replica_shards", "dense", "exchange", when=_cut),
    TermSpec("gradient_dist_shards", "gradient_dist", "exchange", when=_cut),
    TermSpec("gradient_intra_host_shards", "gradient_intra_host", "exchange", when=_cut_in_towers),
    TermSpec("stash", "dense", "stash", when=lambda setting: setting.is_training and setting.stashes),
    TermSpec("dense_units", "dense", "exchange", when=lambda setting: setting.gathers_units),
    TermSpec("overhead", "overhead", "nothing"),
    TermSpec("dense_gather", "dense_gather", "nothing", when=lambda setting: setting.gathers_dense),
)
CUT_TERMS = {term.stage: term.name for term in TERMS if term.when in (_cut, _cut_in_towers)}
"""Map each stage beside which copies are cut over their replicas, and gathered again, to the term of that."""


def stage_of_terms(setting: StepSetting) -> dict[str, str]:
    """The stage in which each term of such a step shows, in the order of the stages."""
    order = list(STAGES)
    shown = {term.name: term.beside if term.overlaps(setting) else term.stage for term in TERMS if term.when(setting)}
    return dict(sorted(shown.items(), key=lambda item: order.index(item[1])))


def hidden_stages(setting: StepSetting) -> dict[str, str]:
    """Map each stage whose own work runs beside another stage to that one."""
    own = (term for term in TERMS if term.name == term.stage)
    return {term.stage: term.beside for term in own if term.when(setting) and term.overlaps(setting)}
