"""A table of a module as a profile: what its configuration and its constraints say."""

from typing import TYPE_CHECKING, Any

from cost_models.workload.kernels import DTYPE_OF, SERVED_OF
from planner.integrations.torchrec_collections import Collection
from planner.integrations.torchrec_constraints import reads
from topologies.errors import InputError

if TYPE_CHECKING:
    from torchrec.distributed.planner.types import ParameterConstraints


def table_profile(
    name: str,
    config: Any,
    collection: Collection,
    told: "ParameterConstraints | None" = None,
    batch_size: int = 1,
    compute_device: str = "cuda",
) -> dict[str, Any]:
    """The keys of a table's profile; `batch_size` is the samples of a rank. Raises InputError for a data type that no
    table of a plan has."""
    formats = DTYPE_OF
    if collection.is_quantized:
        formats = DTYPE_OF | SERVED_OF["cpu" if compute_device == "cpu" else "cuda"]
    if config.data_type.name not in formats:
        raise InputError.at(name, f"has the data type {config.data_type.name}, which is none of {', '.join(formats)}")
    features = list(config.feature_names)
    ids, vectors = reads(told, len(features), batch_size)
    return {
        "name": name,
        "rows": config.num_embeddings,
        "dim": config.embedding_dim,
        "features": features,
        "pooling_factor": ids,
        "dtype": formats[config.data_type.name],
        "weighted": collection.is_weighted or (told is not None and told.is_weighted),
        "pooled": collection.is_pooled,
    } | ({"poolings": vectors} if vectors != 1 else {})
