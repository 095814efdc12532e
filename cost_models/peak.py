"""When a training step takes the most HBM, and what is there then beside the tables.

Two moments compete. When the dense part's forward pass ends, what it keeps for its backward pass is there, beside the
embeddings that it received. When the gradients of the embeddings are exchanged, the activations are gone: gradients are
there as the dense part left them, as they are sent, as the holders of the rows receive them and as the update reads
them. Ids of several batches are there at both. Found in TorchRec's train pipelines (docs/reference/memory-peaks.md).
"""

from dataclasses import dataclass
from functools import cached_property

from cost_models.activations import kept_elements
from cost_models.dense import parameter_bytes
from cost_models.dense_sharding import ShardedBytes
from cost_models.dense_size import tower_sizes
from cost_models.memory import Batching
from cost_models.tables import NUMBER_BYTES, Tables
from cost_models.workload.formats import written_bytes
from cost_models.workload.models import Pipeline, Workload

GRADIENT_COPIES = 2
"""Copies of received embeddings: as the backward pass of the dense part leaves them, and as they are sent. Of a shard's
vectors: as they arrive, and as the update reads them."""


@dataclass(frozen=True)
class Residency:
    """Batches whose ids are in HBM at once: of a rank's samples as they were loaded, and of its shards as they were
    received, or are being exchanged."""

    loaded: int
    received: int


RESIDENT: dict[Pipeline, Residency] = {
    "none": Residency(1, 1),
    "sparse-dist": Residency(3, 2),  # one is used, one is exchanged, one is loaded
    "prefetch": Residency(3, 3),
}
"""torchrec.distributed.train_pipeline: a batch is let go when its step ends."""


@dataclass(frozen=True)
class Peak:
    """What a step of a workload keeps on each rank, of whichever of the moments takes more."""

    workload: Workload
    world_size: int
    loads_ids: bool
    """Whether a rank loads the ids of its samples; False where it reads those of its shards."""
    static_buffers: bool
    """Whether what is needed at one moment is there at the other, too."""
    hbm_bytes: float
    """Usable on the rank that has the most."""
    sharded: ShardedBytes | None = None
    """What each rank has of a dense part that ranks shard."""

    @cached_property
    def residency(self) -> Residency:
        """Batches in HBM."""
        training = self.workload.mode == "training"
        residency = RESIDENT[self.workload.pipeline] if training else RESIDENT["none"]
        if not self.loads_ids:
            return Residency(0, residency.received)
        return Residency(1, residency.received) if self.workload.free_inputs_early else residency

    @cached_property
    def samples_per_rank(self) -> float:
        """The samples of a rank in a step."""
        return self.workload.batch(self.world_size) / self.world_size

    @cached_property
    def batching(self) -> Batching:
        """Samples, and what of them takes memory shard by shard."""
        workload = self.workload
        return Batching(
            global_samples=workload.batch(self.world_size),
            samples_per_rank=self.samples_per_rank,
            batches_in_flight=self.residency.received,
            output_copies=self._output_copies,
            is_prefetched=workload.mode == "training" and workload.pipeline == "prefetch",
        )

    @cached_property
    def loaded_bytes(self) -> float:
        """Bytes of the ids of one batch of a rank with their numbers, as they were loaded."""
        tables = Tables.of(self.workload, self.world_size)
        per_sample = float(tables.loaded_bytes_per_sample.sum())
        return self.samples_per_rank * (per_sample + NUMBER_BYTES * self.workload.dense.numerical_features)

    @cached_property
    def rank_bytes(self) -> dict[str, float]:
        """Bytes on every rank, whatever is placed, by what they are for."""
        workload = self.workload
        always = self._parameters | {"loaded": self.residency.loaded * self.loaded_bytes}
        if self.static_buffers and workload.mode == "training":
            return always | self._after_forward | self._in_exchange
        if workload.mode == "inference" or self._hidden_bytes >= 0:
            return always | self._after_forward
        return always | {"activations": 0.0} | self._in_exchange

    @property
    def returned_bytes(self) -> float:
        """Bytes on every rank, whatever is placed, when gradients of the embeddings are exchanged."""
        loaded = self.residency.loaded * self.loaded_bytes
        return loaded + sum(self._parameters.values()) + sum(self._in_exchange.values())

    @property
    def _parameters(self) -> dict[str, float]:
        if self.sharded is None:
            return {"parameters": parameter_bytes(self.workload)}
        return {"parameters": self.sharded.held, "gathered": self.sharded.gathered}

    @property
    def _hidden_bytes(self) -> float:
        """Bytes that a rank without shards takes more after the forward pass than in the exchange."""
        return sum(self._after_forward.values()) - sum(self._in_exchange.values())

    @cached_property
    def received_bytes(self) -> float:
        """Bytes of the embeddings of a rank's samples, as they are received."""
        tables, modules = self.workload.tables, self.workload.tower_modules
        per_sample = sum(
            (each.feature_count * each.poolings if each.pooled else each.pooling_factor) * each.dim for each in tables
        )
        per_sample = sum(tower.outputs for tower in modules) if modules else per_sample
        return float(per_sample * written_bytes(self.workload.communication.forward) * self.samples_per_rank)

    @cached_property
    def tower_elements(self) -> float:
        """Numbers that modules of towers keep of each sample of a rank: of its samples in each tower."""
        towers = [size.activation_elements for size in tower_sizes(self.workload)]
        return float(max(towers, default=0) * len(towers))

    @cached_property
    def _after_forward(self) -> dict[str, float]:
        dense = self.workload.dense
        kept = kept_elements(self.workload)
        kept += self.sharded.more_activations if self.sharded is not None else 0.0
        kept += self.tower_elements
        activations = float(kept * dense.activation_bytes * self.samples_per_rank)
        return {"activations": activations, "embeddings": self.received_bytes}

    @cached_property
    def _in_exchange(self) -> dict[str, float]:
        return {"embeddings": GRADIENT_COPIES * self.received_bytes}

    @property
    def _output_copies(self) -> float:
        """Copies of a shard's vectors to be counted, so that the sum over a rank's shards is never below the peak.

        The peak of a rank with vectors of v bytes is max(forward, exchange + 2 v), which is convex in v. It is at most
        its chord over [0, V], where V is what fits at all: copies of all tables' vectors, or the whole HBM.
        """
        if self.workload.mode == "inference":
            return 1.0
        if self.static_buffers or self._hidden_bytes <= 0:
            return GRADIENT_COPIES
        tables = Tables.of(self.workload, self.world_size)
        vectors = float((tables.outputs_per_sample * tables.dim).sum() * tables.written_bytes)
        most = min(GRADIENT_COPIES * vectors * self.samples_per_rank * self.world_size, self.hbm_bytes)
        return GRADIENT_COPIES * max(1.0 - self._hidden_bytes / most, 0.0) if most else 0.0
