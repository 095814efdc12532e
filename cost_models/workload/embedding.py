"""What holds for every table that does not say otherwise."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from cost_models.workload import compressors
from cost_models.workload.dense_part import Dtype
from cost_models.workload.mixed_dimensions import MixedDimensions
from cost_models.workload.optimizers import Optimizer
from cost_models.workload.table_profile import Whole
from topologies.documents import Record
from topologies.errors import ConflictError
from topologies.flops import LATER


class Embedding(Record):
    """What holds for every table that does not say otherwise."""

    dtype: Dtype = "fp32"
    """The format in which rows are stored."""
    optimizer: Optimizer = "rowwise_adagrad"
    """What updates rows; its state follows the table."""
    compressor: Annotated[compressors.Word | None, LATER] = None
    """Of tables with more rows than `compress_above`."""
    mixed_dimensions: Annotated[MixedDimensions | None, LATER] = None
    """The rule that gives these tables their vectors' length, instead of a compressor."""
    compress_above: Annotated[int, Field(ge=0, exclude_if=lambda rows: rows == 0), Whole] = 0
    """Rows up to which a table stays as it is."""

    @model_validator(mode="after")
    def _one_compressor(self) -> Self:
        if self.compressor is not None and self.mixed_dimensions is not None:
            message = "is one way to make tables smaller, and compressor another; give one, or name tables one by one"
            raise ConflictError(message, "mixed_dimensions", "compressor")
        if self.compress_above and self.compressor is None and self.mixed_dimensions is None:
            message = "goes with compressor or mixed_dimensions, which are missing; give one"
            raise ConflictError(message, "compress_above", "compressor")
        return self
