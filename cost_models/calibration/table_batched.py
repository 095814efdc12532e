"""TorchRec's kernels, where FBGEMM is installed: one table of its table-batched embeddings."""

from typing import Any, Literal


def fbgemm() -> Any:
    """The package of TorchRec's kernels, or None."""
    try:
        import fbgemm_gpu
    except ModuleNotFoundError as error:
        if error.name != "fbgemm_gpu":
            raise
        return None
    return fbgemm_gpu


def version() -> str:
    """As a part of a sentence that lists packages; empty without one."""
    package = fbgemm()
    return f", fbgemm_gpu {package.__version__}" if package is not None else ""


def batched(device: Literal["cpu", "cuda"], rows: int, dim: int) -> Any:
    """A table on the device as TorchRec's kernel holds it, updated by SGD, or None where that is not to be had."""
    if fbgemm() is None:
        return None
    import torch
    from fbgemm_gpu import split_table_batched_embeddings_ops_common as common
    from fbgemm_gpu import split_table_batched_embeddings_ops_training as training

    on_cpu = common.EmbeddingLocation.HOST, training.ComputeDevice.CPU
    where = on_cpu if device == "cpu" else (common.EmbeddingLocation.DEVICE, training.ComputeDevice.CUDA)
    return training.SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, *where)], optimizer=training.OptimType.EXACT_SGD, device=torch.device(device)
    )
