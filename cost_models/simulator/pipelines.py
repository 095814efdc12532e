"""How far ahead of its use a batch is brought, by the pipeline of the training loop."""

from dataclasses import dataclass

from cost_models.workload.models import Workload


@dataclass(frozen=True)
class Ahead:
    """How many steps before its use a batch is copied, its ids are exchanged, its cache misses are fetched."""

    copy: int
    ids: int
    fetch: int

    @property
    def fill_steps(self) -> int:
        """Steps until every step is like the one before."""
        return self.ids + 1


AHEAD = {"none": Ahead(0, 0, 0), "sparse-dist": Ahead(2, 1, 0), "prefetch": Ahead(3, 2, 1)}
"""The pipelines of TorchRec's train_pipeline: none, TrainPipelineSparseDist, PrefetchTrainPipelineSparseDist."""
INFERENCE = Ahead(1, 0, 0)


def ahead_of(workload: Workload) -> Ahead:
    """What the workload's pipeline does ahead; inference copies the next batch and nothing else."""
    return AHEAD[workload.pipeline] if workload.mode == "training" else INFERENCE
