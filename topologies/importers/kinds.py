"""The formats: which one a file is of, by its content, and its reader."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from topologies.errors import InputError
from topologies.importers import (
    astra_sim,
    hwloc,
    ibnetdiscover,
    infragraph,
    nccl,
    nvidia_smi,
    rocm_smi,
    slurm,
    topograph,
)
from topologies.importers.facts import Facts, Text, read_text
from topologies.yaml_trees import MALFORMED


@dataclass(frozen=True)
class Format:
    """A format: its name, and what reads it."""

    name: str
    read: Callable[[Text], Facts]


_TEXTS: tuple[tuple[Format, Callable[[str], bool]], ...] = (
    (Format(nccl.KIND, nccl.read), nccl.recognises),
    (Format(hwloc.KIND, hwloc.read), hwloc.recognises),
    (Format(ibnetdiscover.KIND, ibnetdiscover.read), ibnetdiscover.recognises),
    (Format(rocm_smi.KIND, rocm_smi.read), rocm_smi.recognises),
    (Format(slurm.KIND, slurm.read), slurm.recognises),
    (Format(nvidia_smi.KIND, nvidia_smi.read), nvidia_smi.recognises),
)
_DOCUMENTS: tuple[tuple[Format, Callable[[Any], bool]], ...] = (
    (Format(slurm.YAML_KIND, slurm.read_yaml), slurm.recognises_yaml),
    (Format(topograph.KIND, topograph.read), topograph.recognises_yaml),
    (Format(astra_sim.KIND, astra_sim.read), astra_sim.recognises_yaml),
    (Format(infragraph.KIND, infragraph.read), infragraph.recognises_yaml),
)
FORMATS = {form.name: form for form, _ in (*_TEXTS, *_DOCUMENTS)}


def read(path: Path, kind: str | None = None) -> Facts:
    """What a file says. `kind` names its format; unset: by its content. Raises InputError."""
    text = read_text(path)
    form = FORMATS[kind] if kind is not None else recognised(text.text)
    if form is None:
        names = ", ".join(sorted(FORMATS))
        raise InputError.at(
            text.source,
            "is of no format that is known here; planner doctor --cluster prints the commands whose output is read;"
            f" --kind names a format: {names}",
            line=1,
            column=1,
        )
    try:
        return form.read(text)
    except InputError as error:  # a file as a whole is at fault from its first line on
        raise InputError(fault if fault.line else replace(fault, line=1, column=1) for fault in error.faults) from None


def recognised(text: str) -> Format | None:
    """The format of a text; None for none that is known."""
    for form, recognises in _TEXTS:
        if recognises(text):
            return form
    try:
        data = yaml.load(text, Loader=yaml.CSafeLoader)
    except MALFORMED:
        data = None
    for form, fits in _DOCUMENTS:
        if fits(data):
            return form
    return None
