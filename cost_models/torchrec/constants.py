"""The numbers of TorchRec's planner, read from a coefficients file with their units and sources."""

from functools import cache
from pathlib import Path

from cost_models import coefficients
from cost_models.coefficients import Coefficient, NamedCoefficients
from topologies.documents import read_yaml, validate

_FILE = Path(coefficients.__file__).parent / "planners" / "torchrec.yaml"


class TorchRecCoefficients(NamedCoefficients):
    """What TorchRec's estimators multiply by; see the file for what each means."""

    hbm_capacity_bytes: Coefficient
    ddr_capacity_bytes: Coefficient
    hbm_bytes_per_s: Coefficient
    ddr_bytes_per_s: Coefficient
    hbm_to_ddr_bytes_per_s: Coefficient
    ssd_bytes_per_s: Coefficient
    intra_host_bytes_per_s: Coefficient
    inter_host_bytes_per_s: Coefficient
    id_bytes: Coefficient
    dense_bandwidth_share: Coefficient
    uvm_slowdown: Coefficient
    cache_fraction: Coefficient
    least_columns: Coefficient
    full_block_columns: Coefficient
    half_block_columns: Coefficient
    half_block_penalty: Coefficient
    quarter_block_penalty: Coefficient
    backward_ratio: Coefficient
    weighted_backward_ratio: Coefficient
    weighted_kernel_ratio: Coefficient
    batched_copy_passes: Coefficient
    elementwise_passes: Coefficient
    cache_index_bytes_per_row: Coefficient
    cache_index_bytes_per_slot: Coefficient
    sparse_dist_inputs: Coefficient
    prefetch_inputs: Coefficient
    prefetch_burst_inputs: Coefficient


@cache
def torchrec_coefficients() -> TorchRecCoefficients:
    """Those of TorchRec 1.8.0."""
    return validate(read_yaml(_FILE), TorchRecCoefficients)
