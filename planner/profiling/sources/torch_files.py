"""Batches that PyTorch saved: FBGEMM's (indices, offsets, lengths), and keyed jagged tensors. Each file is a chunk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from planner.profiling.lists import Lists
from planner.profiling.sources.files import fingerprint_of
from planner.profiling.sources.source import Task
from topologies.errors import InputError

LAYOUT = "holds neither FBGEMM's (indices, offsets[, lengths]) nor a mapping with keys, values and lengths or offsets"


@dataclass(frozen=True)
class TorchSource:
    """Samples of files that torch.save wrote."""

    files: tuple[Path, ...]
    columns: tuple[str, ...] | None = None
    """The features. Unset: all."""

    @cached_property
    def _first(self) -> Mapping[str, Lists]:
        return _batch_of(self.files[0])

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The features: the keys of jagged tensors, else t_0, t_1 and so on, as FBGEMM numbers tables."""
        return self.columns or tuple(self._first)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Features that are not profiled."""
        return tuple(name for name in self._first if name not in self.features)

    @property
    def batch(self) -> int | None:
        """Samples of the first file, which is a batch."""
        return next(iter(self._first.values())).samples

    @cached_property
    def fingerprint(self) -> str:
        """What tells whether the data is still the same."""
        return fingerprint_of(self.files, "torch", self.features)

    def tasks(self) -> Sequence[Task]:
        """Each file, with all features."""
        return [Task(chunk, self.features, float(file.stat().st_size)) for chunk, file in enumerate(self.files)]

    def read(self, task: Task) -> Iterator[tuple[str, Lists]]:
        """The ids of a file. Raises InputError."""
        batch = _batch_of(self.files[task.chunk])
        for name in task.features:
            if name not in batch:
                raise InputError.at(str(self.files[task.chunk]), "has no such feature", path=name)
            yield name, batch[name]

    def scalars(self, column: str, chunk: int) -> Iterator[Lists]:
        """Raises InputError: batches name no sessions."""
        message = "batches of tensors name no sessions; leave --session out"
        raise InputError.at(str(self.files[chunk]), message, path=column)


def _batch_of(file: Path) -> dict[str, Lists]:
    import torch

    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - whatever unpickling garbage raises
        cause = " ".join(str(error).split())[:200]
        message = f"torch.load cannot read it as tensors alone: {cause}; save keys, values and lengths as a dict"
        raise InputError.at(str(file), message) from None
    if isinstance(loaded, Mapping):
        return _keyed(file, loaded)
    if not isinstance(loaded, tuple | list) or len(loaded) not in (2, 3) or not all(map(torch.is_tensor, loaded)):
        raise InputError.at(str(file), LAYOUT)
    indices, offsets = _whole(file, loaded[0]), _whole(file, loaded[1])
    lengths = _whole(file, loaded[2]) if len(loaded) == 3 else None
    if lengths is None:
        raise InputError.at(str(file), "has no lengths [tables, samples], without which tables are unknown")
    ends = np.append(0, np.cumsum(lengths))
    if lengths.ndim != 2 or ends[-1] != len(indices) or not np.array_equal(offsets, ends):
        message = f"lengths {lengths.shape} do not fit {len(indices):,} indices and {len(offsets):,} offsets"
        raise InputError.at(str(file), message)
    return _split(file, [f"t_{k}" for k in range(len(lengths))], indices, lengths)


def _keyed(file: Path, loaded: Mapping[str, Any]) -> dict[str, Lists]:
    if not {"keys", "values"} <= set(loaded) or not {"lengths", "offsets"} & set(loaded):
        raise InputError.at(str(file), LAYOUT)
    keys, values = list(loaded["keys"]), _whole(file, loaded["values"])
    lengths = _whole(file, loaded["lengths"]) if "lengths" in loaded else np.diff(_whole(file, loaded["offsets"]))
    if not keys or lengths.size % len(keys) or int(lengths.sum()) != len(values):
        message = f"{len(keys)} keys do not fit {lengths.size:,} lengths and {len(values):,} values"
        raise InputError.at(str(file), message)
    return _split(file, keys, values, lengths.reshape(len(keys), -1))


def _split(file: Path, names: Sequence[str], ids: Any, lengths: Any) -> dict[str, Lists]:
    if (lengths < 0).any():
        raise InputError.at(str(file), "has lengths below 0")
    ends = np.cumsum(lengths.sum(axis=1))
    parts = np.split(ids, ends[:-1])
    return {str(name): Lists(part, row) for name, part, row in zip(names, parts, lengths, strict=True)}


def _whole(file: Path, tensor: Any) -> Any:
    import torch

    if not torch.is_tensor(tensor) or tensor.is_floating_point() or tensor.is_complex():
        raise InputError.at(str(file), "holds something other than whole numbers where ids or lengths are to be")
    return tensor.numpy().astype(np.int64, copy=False)
