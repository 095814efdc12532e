"""What it takes to bring samples from storage through readers to the ranks, at a rate.

RecD (Zhao et al., arXiv:2211.05239) stores the samples of a session beside each other, so that readers decode, convert
and send ids that repeat once: up to 3.71 x fewer bytes in storage, 1.79 x faster readers, 2.48 x faster training.
"""

import math
from dataclasses import dataclass

from cost_models.tables import LENGTH_BYTES, NUMBER_BYTES, Tables
from cost_models.workload.models import Workload


@dataclass(frozen=True)
class IngestionNeeds:
    """Nodes and bandwidth; None where the workload does not say what it follows from."""

    samples_per_s: float
    ids_kept: float
    """Share of the ids that are stored and sent: what readers leave out of sessions is not."""
    sent_bytes_per_s: float
    """From all readers to all ranks."""
    stored_bytes_per_sample: float | None
    """As clustered: what goes with repeated ids is there once."""
    storage_bytes_per_s: float | None
    """Read from storage by all readers."""
    reader_samples_per_s: float | None
    """What a reader node gives."""
    readers: int | None
    """Reader nodes that this rate needs."""
    sustained_samples_per_s: float | None
    """What the reader nodes that there are give."""


def ingestion_needs(workload: Workload, samples_per_s: float) -> IngestionNeeds | None:
    """What so many samples per second need; None where the workload describes neither storage nor readers."""
    given = workload.ingestion
    if given is None:
        return None
    tables = Tables.of(workload, 1)
    kept = float(tables.ids_per_sample.sum()) / sum(table.pooling_factor for table in workload.tables)
    numbers = NUMBER_BYTES * (workload.dense.numerical_features + 1)  # and the label
    sent = float((tables.ids_per_sample * tables.id_bytes + LENGTH_BYTES * tables.features).sum()) + numbers
    stored, rate = given.stored_bytes_per_sample, given.reader_samples_per_s
    clustered = None if stored is None else stored * kept
    if rate is not None:
        rate /= 1 - given.work_by_ids * (1 - kept)
    return IngestionNeeds(
        samples_per_s=samples_per_s,
        ids_kept=kept,
        sent_bytes_per_s=samples_per_s * sent,
        stored_bytes_per_sample=clustered,
        storage_bytes_per_s=None if clustered is None else samples_per_s * clustered,
        reader_samples_per_s=rate,
        readers=None if rate is None else math.ceil(samples_per_s / rate * (1 - 1e-12)),
        sustained_samples_per_s=None if rate is None or given.readers is None else given.readers * rate,
    )
