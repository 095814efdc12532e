"""One embedding table, and how a training step uses it."""

import itertools
import math
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PositiveFloat, field_validator, model_validator

from cost_models.workload import compressors, spellings
from cost_models.workload.dense_part import Dtype
from cost_models.workload.kernels import KernelSettings
from cost_models.workload.optimizers import Optimizer
from topologies.documents import Record
from topologies.errors import ConflictError
from topologies.flops import LATER
from topologies.units import Share

Whole = BeforeValidator(spellings.whole_number)
Name = Annotated[str, Field(min_length=1, max_length=200)]
Curve = tuple[tuple[Share, Share], ...]


class TableProfile(Record):
    """One embedding table and how a training step uses it."""

    name: Name
    """What plans, policies and exports call the table."""
    rows: Annotated[int, Field(ge=1, le=10**13), Whole]
    """Number of embeddings."""
    dim: Annotated[int, Field(ge=4, le=65536), Whole]
    """Elements per embedding; a multiple of 4, as the kernels need it."""
    pooling_factor: Annotated[PositiveFloat, BeforeValidator(spellings.pooling)]
    """Mean number of ids per sample, summed over the features that share the table (a list is summed)."""
    features: Annotated[int | tuple[str, ...], BeforeValidator(spellings.features)] = 1
    """How many inputs share the table, or their names. A pooled table gives a vector for each per sample."""
    pooling_std: Annotated[float, Field(ge=0)] = 0.0
    """Standard deviation of the number of ids per sample. The step is that of the mean; spread changes it only where a
    lookup waits for the longest bag (`long_bags`)."""
    zipf_alpha: Annotated[float, Field(ge=0, le=10)] | None = None
    """Exponent of a power-law access curve. Unset, with no curve and no unique_fraction: uniform access."""
    access_cdf: Annotated[Curve | None, BeforeValidator(spellings.curve)] = None
    """The access curve as points (share of the hottest rows, share of the accesses), rising to (1, 1)."""
    unique_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """Distinct ids over all ids of one global batch before deduplication, if measured. Without a curve, it implies
    one."""
    unique_fraction_batch: Annotated[int | None, Field(ge=1), LATER] = None
    """Samples of the batch in which unique_fraction was measured. Unset: the workload's global batch."""
    dedup_factor: Annotated[float, Field(ge=1)] = 1.0
    """Ids before over ids after deduplication across the samples of a batch. It leaves the distinct ids: it acts as
    1 / unique_fraction where it is more, and a plan says so."""
    samples_per_session: Annotated[float, Field(ge=1, exclude_if=lambda samples: samples == 1.0)] = 1.0
    """Samples of a session, on the mean, that come in one batch, clustered in storage (16.5 in RecD's logs). With
    duplicate_share, instead of dedup_factor."""
    duplicate_share: Annotated[Share, Field(exclude_if=lambda share: share == 0.0)] = 0.0
    """Share of a sample's ids that the sample before of its session has, too. Readers leave these out, so that they are
    neither stored, nor sent, nor copied to the device: of S samples 1 - (S-1)/S of them stay (RecD, arXiv:2211.05239).
    """
    dedup_group: Name | None = None
    """Name of the features that change together from sample to sample (those of a user in a session): lists that repeat
    are looked up and pooled once, and their vectors travel once (inverse jagged tensors; RecD, arXiv:2211.05239). All
    tables of a group have one dedup_factor. Unset: ids are deduplicated, vectors of pooled tables are not."""
    dtype: Dtype | None = None
    """The data type of the stored weights. Unset: the workload's."""
    precision_cache: Annotated[Share, Field(gt=0)] | None = None
    """Share of the rows, the hottest, that HBM holds in fp32 beside the table; they are updated there and written back
    in the table's own format when they cool down. Below HBM, the size of the cache is the plan's. Unset: none."""
    compressor: Annotated[compressors.Word | None, LATER] = None
    """How the table is made smaller than its rows and columns say: `hash:C`, `qr:C`, `qr:C:add`, `qr:C:concat`,
    `dim:D`, or `none`. Unset: as the workload's embedding says."""
    optimizer: Optimizer | None = None
    """Unset: the workload's."""
    weighted: bool = False
    """Whether every id carries a fp32 weight."""
    pooled: bool = True
    """Whether the vectors of a sample are summed (a bag); false for sequences."""
    poolings: Annotated[PositiveFloat, Field(exclude_if=lambda vectors: vectors == 1.0)] = 1.0
    """Vectors that each feature of a pooled table gives per sample, on the mean: below 1 where samples share lists of
    ids (variable batch), above 1 where one has several. The pooling factor counts the ids of all of them."""
    group: str | None = None
    """A label for your own use; tables of one feature group."""
    kernel: Annotated[KernelSettings, Field(exclude_if=lambda kernel: kernel == KernelSettings())] = KernelSettings()
    """How TorchRec is to set up the table's kernel, beyond sharding and tier."""

    @field_validator("dim")
    @classmethod
    def _multiple_of_four(cls, dim: int) -> int:
        if dim % 4:
            padded = 4 * math.ceil(dim / 4)
            raise ValueError(f"{dim} is not a multiple of 4; pad the table to {padded} columns")
        return dim

    @field_validator("access_cdf")
    @classmethod
    def _rising(cls, points: Curve | None) -> Curve | None:
        if points is None:
            return None
        pairs = list(itertools.pairwise(((0.0, 0.0), *points)))
        if not points or points[-1] != (1.0, 1.0) or any(b[0] <= a[0] or b[1] < a[1] for a, b in pairs):
            raise ValueError("must rise from (0, 0) to a last point (1, 1)")
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs]
        if any(after > before * (1 + 1e-9) for before, after in itertools.pairwise(slopes)):
            raise ValueError("must be concave: its first rows are the hottest")
        return points

    @model_validator(mode="after")
    def _one_curve(self) -> Self:
        if self.zipf_alpha is not None and self.access_cdf is not None:
            raise ConflictError("zipf_alpha and access_cdf exclude each other; give one", "access_cdf", "zipf_alpha")
        return self

    @model_validator(mode="after")
    def _batch_of_a_measured_fraction(self) -> Self:
        if self.unique_fraction_batch is not None and self.unique_fraction is None:
            message = "says where unique_fraction was measured, which is missing; give both"
            raise ConflictError(message, "unique_fraction_batch", "unique_fraction")
        return self

    @model_validator(mode="after")
    def _one_format_of_cached_rows(self) -> Self:
        cached = self.kernel.cache_dtype
        if self.precision_cache is not None and cached not in (None, "fp32"):
            message = f"holds rows in fp32, and cache_params.precision says {cached}; leave one of them out"
            raise ConflictError(message, "precision_cache", "cache_params")
        return self

    @model_validator(mode="after")
    def _one_account_of_duplicates(self) -> Self:
        if self.dedup_factor > 1 and self.duplicate_share > 0:
            message = "say what repeats once: dedup_factor, or duplicate_share with samples_per_session"
            raise ConflictError(message, "duplicate_share", "dedup_factor")
        if (self.samples_per_session > 1) != (self.duplicate_share > 0):
            fields = ("samples_per_session", "duplicate_share")
            given, missing = fields if self.samples_per_session > 1 else fields[::-1]
            raise ConflictError(f"goes with {missing}, which is missing; give both", given, missing)
        return self

    @property
    def stated_deduplication(self) -> float:
        """Ids before over ids after deduplication, as stated."""
        repeated = (self.samples_per_session - 1) / self.samples_per_session
        return self.dedup_factor / (1 - repeated * self.duplicate_share)

    @property
    def deduplication(self) -> float:
        """The same, but no fewer ids are left than are distinct."""
        return min(self.stated_deduplication, 1 / (self.unique_fraction or 1e-300))

    @property
    def ids_read(self) -> float:
        """Ids of a sample that readers send: without duplicates of sessions, which they leave out."""
        return self.pooling_factor / (self.deduplication if self.duplicate_share else 1.0)

    @property
    def vectors_per_sample(self) -> float:
        """Vectors that leave the lookup for a sample, after deduplication."""
        if not self.pooled:
            return self.pooling_factor / self.deduplication
        return self.feature_count * self.poolings / (self.deduplication if self.dedup_group is not None else 1.0)

    @property
    def feature_count(self) -> int:
        """How many inputs share the table."""
        return self.features if isinstance(self.features, int) else len(self.features)
