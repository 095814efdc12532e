"""What is in the HBM of each rank from moment to moment of a step.

The bytes are those that a plan counts (see `memory`, `peak`, `activations`), each at the moments at which it is there.
A plan counts one number for each rank: the larger of two moments, with the vectors of its shards by a straight line
that is never below it. So no moment takes more than the plan counts. Tables that are stashed leave and come back as
activations come and go; where these come twice, with checkpointing, they stay away until the backward pass has ended.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cost_models.activations import are_any_checkpointed, course_of, kept_blocks, kept_elements
from cost_models.memory import block_bytes
from cost_models.peak import GRADIENT_COPIES
from cost_models.shards import IS_STASHED, MEMORY_DDR, MEMORY_HBM, Floats, PlacedShards
from cost_models.step import StepModel

TABLES = ("weights", "optimizer", "gradients", "cache", "remap")
"""What tables take for good; ids and vectors come and go."""
STASHED = ("weights", "optimizer")
"""What of them may be in DDR between the passes."""
PARTS = (*TABLES, "copies", "parameters", "gathered", "ids", "next_ids", "vectors", "embeddings", "activations")
"""What HBM is taken for. `gradients` are of replicated tables, `copies` of such as are cut over replicas; `parameters`
the dense part's, with gradients and state; `ids` of the batch in work, as loaded and as received, `next_ids` of those
that come meanwhile; `vectors` of the rank's shards or their gradients, `embeddings` of the rank's samples or theirs."""
WHOLE = "dense part"
"""What a dense part without layers of its own is called."""


@dataclass(frozen=True)
class MemoryCourse:
    """Bytes of HBM of W ranks at T moments, for each of PARTS."""

    moments: tuple[str, ...]
    """T names, in the order of the step."""
    bytes: Floats
    """[W, T, parts]"""
    counted: Floats
    """[W] bytes of HBM that a plan counts of each rank."""

    @cached_property
    def totals(self) -> Floats:
        """[W, T]"""
        return np.asarray(self.bytes.sum(axis=2))

    @property
    def is_flat(self) -> bool:
        """Whether a runtime keeps all of it for the whole step."""
        return bool((self.bytes == self.bytes[:, :1]).all())

    @property
    def fullest(self) -> tuple[int, int]:
        """The rank that takes the most at any moment, and the first such moment."""
        rank, moment = np.unravel_index(int(self.totals.argmax()), self.totals.shape)
        return int(rank), int(moment)


@dataclass(frozen=True)
class _Moment:
    """How much is there: times what a rank has of vectors, of received embeddings; numbers of each sample."""

    name: str
    vectors: float = 0.0
    embeddings: float = 0.0
    numbers: float = 0.0
    gathered: bool = False
    """Whether units of a dense part whose weights are gathered are there."""
    away: float = 0.0
    """Share of what tables stash that is in DDR."""


def memory_course(model: StepModel, placed: PlacedShards) -> MemoryCourse:
    """That of a placement under the physical cost model."""
    world, parts = len(model.kind_of_rank), {name: index for index, name in enumerate(PARTS)}
    moments = _moments(model)
    course = np.zeros((world, len(moments), len(PARTS)))
    of_shards = _shard_parts(model, placed)
    back = 1 - np.array([moment.away for moment in moments])
    for name in STASHED:
        of_rank = np.bincount(placed.rank, weights=of_shards.pop(f"stashed_{name}"), minlength=world)
        course[:, :, parts[name]] += of_rank[:, None] * back
    for name, size in of_shards.items():
        of_rank = np.bincount(placed.rank, weights=size, minlength=world)
        times = np.array([moment.vectors for moment in moments]) if name == "vectors" else np.ones(len(moments))
        course[:, :, parts[name]] += of_rank[:, None] * times
    peak, samples = model.peak, model.peak.samples_per_rank
    fixed, loaded = peak.rank_bytes, peak.loaded_bytes
    course[:, :, parts["parameters"]] = fixed["parameters"] + model.projection_bytes
    course[:, :, parts["ids"]] += min(peak.residency.loaded, 1) * loaded
    course[:, :, parts["next_ids"]] += max(peak.residency.loaded - 1, 0) * loaded
    number_bytes = samples * model.workload.dense.activation_bytes
    for t, moment in enumerate(moments):
        course[:, t, parts["embeddings"]] = moment.embeddings * peak.received_bytes
        course[:, t, parts["activations"]] = moment.numbers * number_bytes
        course[:, t, parts["gathered"]] = fixed.get("gathered", 0.0) * moment.gathered
    counted = model.evaluate(placed).rank_bytes[:, MEMORY_HBM]
    return MemoryCourse(tuple(moment.name for moment in moments), course, counted)


def _shard_parts(model: StepModel, placed: PlacedShards) -> dict[str, Floats]:
    """[n] bytes of HBM of each shard, its vectors once."""
    blocks, which = placed.blocks.distinct
    named = (*TABLES, "ids", "vectors", "next_ids", *(f"stashed_{name}" for name in STASHED))
    fixed, by_rows = ({name: np.zeros(len(blocks)) for name in named} for _ in range(2))
    for copies, own in model.models_by_copies:
        here = np.flatnonzero(model.copies[blocks.table] == copies)
        alone = replace(own.batching, output_copies=1.0, batches_in_flight=1, is_prefetched=False)
        for tables, index, part in model.parts_of(blocks.take(here)):
            for (tier, component), load in block_bytes(tables, part, alone).items():
                if tier == MEMORY_HBM:
                    name = "vectors" if component == "outputs" else component
                    fixed[name][here[index]] += load.fixed
                    by_rows[name][here[index]] += load.by_rows
                elif tier == MEMORY_DDR and component in STASHED:
                    of_stash = np.where(IS_STASHED[part.tier], load.by_rows, 0.0)
                    by_rows[f"stashed_{component}"][here[index]] += of_stash
            ids = [block_bytes(tables, part, each)[MEMORY_HBM, "ids"].by_rows for each in (own.batching, alone)]
            by_rows["next_ids"][here[index]] += ids[0] - ids[1]
    share = placed.rows / model.tables.rows[placed.blocks.table]
    sizes = {name: fixed[name][which] + by_rows[name][which] * share for name in named}
    return sizes | {"copies": model.cut_copy_bytes(blocks)[which] * share}


def _moments(model: StepModel) -> list[_Moment]:
    """Those of a step of the model, in order."""
    forward, backward = _numbers(model)
    if model.workload.mode != "training":  # vectors stay, as plans count them
        passes = [_Moment(f"forward {name}", 1, 1, numbers, gathered=True) for name, numbers in forward]
        return [_Moment("lookup", 1), _Moment("vectors sent", 1, 1), *passes]
    moments = [_Moment("lookup", 1), _Moment("vectors sent", 1, 1)]
    highest, least = max(kept for _, kept in (*forward, *backward)), model.peak.tower_elements
    returns_late = are_any_checkpointed(model.workload)

    def pass_of(words: str, kept: float, *, is_away: bool) -> _Moment:
        away = 1.0 if is_away or highest <= least else (kept - least) / (highest - least)
        return _Moment(words, 0, 1, kept, gathered=True, away=away)

    moments += [pass_of(f"forward {name}", kept, is_away=False) for name, kept in forward]
    moments += [pass_of(f"backward {name}", kept, is_away=returns_late) for name, kept in backward]
    moments.append(_Moment("gradients sent", GRADIENT_COPIES, GRADIENT_COPIES, gathered=True))
    moments += [_Moment("tables updated", 1), _Moment("dense part updated")]
    if not model.peak.static_buffers:
        return moments
    vectors, embeddings, numbers = (
        max(getattr(moment, name) for moment in moments) for name in ("vectors", "embeddings", "numbers")
    )
    most = _Moment("", vectors, embeddings, numbers, gathered=True)
    return [replace(most, name=moment.name) for moment in moments]


def _numbers(model: StepModel) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Numbers of a sample that are kept while each block goes forward, then while each goes backward, last to first;
    those of modules of towers, and of cut layers beyond whole ones, as long as any are there."""
    workload, most = model.workload, kept_elements(model.workload)
    blocks = kept_blocks(workload) if workload.dense.activations_per_sample is None else ()
    names = [block.name for block in blocks]
    forward = [
        sum(each.kept for each in blocks[:number]) + max(block.kept, block.whole) for number, block in enumerate(blocks)
    ]
    backward = list(course_of(blocks)[1:])
    highest = max((*forward, *backward), default=0.0)
    if not blocks or highest <= 0:
        names, forward, backward, highest = [WHOLE], [most], [most], most
    more = 0.0 if model.peak.sharded is None else model.peak.sharded.more_activations
    factor = (most + more) / highest if highest else 0.0
    beside = model.peak.tower_elements
    return (
        [(name, numbers * factor + beside) for name, numbers in zip(names, forward, strict=True)],
        [(name, numbers * factor + beside) for name, numbers in zip(reversed(names), backward, strict=True)],
    )
