"""Losses of variants in a CSV file beside the policy that names it."""

from pathlib import Path

from cost_models.workload.profiles import read_csv
from planner.formulation.variant_words import VariantLoss
from topologies.documents import Document
from topologies.errors import InputError
from topologies.sources import is_file


def read_losses(document: Document) -> None:
    """Put the rows of a CSV file that `variants.losses` names in its place. Raises InputError with every fault."""
    stated = document.data.get("variants") if isinstance(document.data, dict) else None
    if not isinstance(stated, dict) or not isinstance(name := stated.get("losses"), str):
        return
    path, where = (document.directory or Path()) / name, ("variants", "losses")
    if not is_file(path):
        missing = f"there is no file {path}; write a list of losses or the name of a CSV file that holds them"
        raise InputError([document.fault(where, missing)])
    rows, faults = read_csv(path, tuple(VariantLoss.model_fields))
    if faults:
        raise InputError(faults)
    stated["losses"] = rows.data
    document.include(where, rows)
