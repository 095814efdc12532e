"""What is trained: table profiles and workloads, from files, the catalog and the generator."""

from cost_models.workload.dense_part import COMPUTE_DTYPE_BYTES, ComputeDtype, Dense, Dtype
from cost_models.workload.embedding import Embedding
from cost_models.workload.loading import WORKLOADS, load_workload
from cost_models.workload.models import Communication, Workload
from cost_models.workload.optimizers import Optimizer
from cost_models.workload.profiles import read_profiles
from cost_models.workload.table_profile import TableProfile

__all__ = [
    "COMPUTE_DTYPE_BYTES",
    "WORKLOADS",
    "Communication",
    "ComputeDtype",
    "Dense",
    "Dtype",
    "Embedding",
    "Optimizer",
    "TableProfile",
    "Workload",
    "load_workload",
    "read_profiles",
]
