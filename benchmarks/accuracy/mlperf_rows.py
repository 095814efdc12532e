"""MLPerf's rows as they are published: rounds whose logs print a plan, and later ones."""

import errno
import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

LATER_ROUNDS = "mlperf_dlrm_dcnv2_*.csv"
"""Rows of rounds whose logs print no plans, in `measured/`."""


class NoRunError(ValueError):
    """A row whose time or batch no run can have."""


def expect_a_run(run: Mapping[str, object]) -> None:
    """Raises NoRunError unless a row has nodes, accelerators, a global batch and milliseconds of a step."""
    whole = {"nodes": run["nodes"], "accelerators of a node": run["each"], "batch": run["batch"]}
    for name, value in {**whole, "iter_ms": run["iter_ms"]}.items():
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf or (name in whole and number != int(number)):
            raise NoRunError(f"{name} {value!r} is not a positive{' whole' * (name in whole)} number")


@cache
def _facts(folder: Path) -> dict[str, list[dict[str, Any]]]:
    file = folder / "published.json"
    if not file.is_file() and not _later_files(folder):
        raise FileNotFoundError(errno.ENOENT, "rows", f"{file.name} or measured/{LATER_ROUNDS}")
    facts = json.loads(file.read_text()) if file.is_file() else {}
    return {name: facts.get(name, []) for name in ("mlperf_dcnv2_runs", "mlperf_dcnv2_plans")}


def printed_rounds(folder: Path) -> Iterator[dict[str, Any]]:
    """Rounds v3.0 to v4.0."""
    for run in _facts(folder)["mlperf_dcnv2_runs"]:
        system = run["sys"]
        if int(system["accelerators_per_node"]):
            yield {
                **{name: run[name] for name in ("round", "org", "system", "batch", "iter_ms")},
                "accelerator": system["accelerator_model_name"],
                "nodes": system["number_of_nodes"],
                "each": system["accelerators_per_node"],
                "network": system.get("host_networking", ""),
            }


def _later_files(folder: Path) -> list[Path]:
    return sorted((folder / "measured").glob(LATER_ROUNDS))


def later_rounds(folder: Path) -> Iterator[dict[str, Any]]:
    """Rounds from v4.1 on."""
    for path in _later_files(folder):
        for run in pd.read_csv(path, keep_default_na=False).to_dict("records"):
            yield {
                **{name: run[name] for name in ("org", "system", "batch", "iter_ms", "nodes", "network")},
                "round": str(run["round"]).removeprefix("v"),
                "accelerator": run["accel"],
                "each": run["per_node"],
            }


def plan_index(plans: list[dict[str, object]], version: str, device: str, ranks: int) -> int | None:
    """Index of the printed plan of as many ranks, of a round that prints plans: of the same device and round, else
    round, else device."""
    if version not in {str(plan["round"]) for plan in plans}:
        return None
    scored = [
        ((plan["round"] == version) + 2 * (device.split("-")[0] in plan["devices"][0]), -i, i)
        for i, plan in enumerate(plans)
        if plan["n_dev"] == ranks
    ]
    return max(scored)[2] if scored else None


def printed_plans(folder: Path) -> list[dict[str, Any]]:
    """The plans that logs print."""
    return _facts(folder)["mlperf_dcnv2_plans"]
