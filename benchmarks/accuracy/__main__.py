"""`python -m benchmarks.accuracy [DIR] [--refit] [--json] [--docs]`, from the root of a checkout, with the
extra `test`.

Without --refit nothing is fitted but what is held out: every row's measured and predicted value with its 90 % band,
a summary by data set, how often the faster of two plans or systems is picked, and MLPerf's steps with each device,
link, network, size and system left out in turn. DIR has the form of benchmarks/data/facts: `published.json` and
`measured/*.csv`, any of them, with any rows. What cannot be predicted is
left out and listed on standard error with its reason: a file or column that is missing, hardware that is unknown.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import torchrec_runs
from benchmarks.accuracy import (
    bus_bandwidth,
    deepep,
    dim_sweep,
    distributed_embeddings,
    hkv,
    host_work,
    mad_max,
    mlperf,
    nccl,
    new_systems,
    ranking,
    tbe_b200,
    tbe_h100,
    tbe_mi350,
    ugache,
)
from benchmarks.accuracy.new_systems import PartError
from benchmarks.accuracy.ranking import DataSetOrder
from benchmarks.accuracy.report import page, table
from benchmarks.accuracy.rows import DataSet, Summary, summarise
from cost_models.calibration.robust import UndeterminedError

FACTS = Path(__file__).parents[1] / "data" / "facts"
DATA_SETS: tuple[DataSet, ...] = (
    nccl.DATA_SET,
    bus_bandwidth.DATA_SET,
    dim_sweep.DATA_SET,
    tbe_h100.DATA_SET,
    tbe_mi350.DATA_SET,
    tbe_b200.DATA_SET,
    ugache.DATA_SET,
    hkv.DATA_SET,
    deepep.DATA_SET,
    mlperf.DATA_SET,
    distributed_embeddings.DATA_SET,
    mad_max.DATA_SET,
    host_work.DATA_SET,
)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "accuracy.md"


@dataclass(frozen=True)
class Result:
    """A data set of a folder: its rows, their summary, and how their order is predicted."""

    dataset: DataSet
    rows: pd.DataFrame
    summary: Summary
    order: DataSetOrder | None


def results(folder: Path, *, hold_out: bool = True) -> list[Result]:
    """Each data set that the folder has."""
    found = []
    for dataset in DATA_SETS:
        try:
            rows = dataset.predict(folder)
        except FileNotFoundError as missing:
            print(f"{dataset.name}: no {missing.filename}; left out", file=sys.stderr)
            continue
        except KeyError as missing:
            print(f"{dataset.name}: no column or key {missing}; left out", file=sys.stderr)
            continue
        except AttributeError as missing:
            if not isinstance(missing.obj, pd.DataFrame):
                raise
            print(f"{dataset.name}: no column {missing.name!r}; left out", file=sys.stderr)
            continue
        if (lost := ~(np.isfinite(rows.predicted_s.astype(float)) & (rows.measured_s.astype(float) > 0))).any():
            for label in rows.label[lost]:
                print(f"{dataset.name}: {label} left out: its figures give no time", file=sys.stderr)
            rows = rows[~lost]
        if rows.empty:
            print(f"{dataset.name}: no rows; left out", file=sys.stderr)
            continue
        held_out = _held_out(dataset, folder, rows) if hold_out else None
        summary, order = summarise(dataset, rows, held_out), ranking.order_of(dataset, rows, held_out)
        found.append(Result(dataset, rows, summary, order))
    return found


def _new_systems(folder: Path, found: list[Result], *, hold_out: bool) -> tuple[PartError, ...]:
    """Errors of MLPerf's steps on systems that are left out of the fit; none without its rows, or without fits."""
    if not hold_out or not any(each.dataset is mlperf.DATA_SET and each.rows.gated.any() for each in found):
        return ()
    return new_systems.errors(folder)


def _held_out(dataset: DataSet, folder: Path, rows: pd.DataFrame) -> pd.Series | None:
    if dataset.held_out is None:
        return None
    try:
        return dataset.held_out(folder).reindex(rows.index)
    except UndeterminedError as error:
        print(f"{dataset.name}: nothing held out: {error}", file=sys.stderr)
        return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description="Predicted against measured.")
    parser.add_argument("folder", nargs="?", type=Path, default=FACTS, metavar="DIR", help="published.json, measured/")
    parser.add_argument("--refit", action="store_true", help="fit the shipped coefficients again and write their files")
    parser.add_argument("--json", action="store_true", help="every row and the summaries, as JSON")
    parser.add_argument("--docs", action="store_true", help="write docs/reference/accuracy.md")
    parser.add_argument("--no-hold-out", action="store_true", help="leave out what needs fits (and SciPy)")
    wanted = parser.parse_args()
    if wanted.refit:
        from benchmarks.accuracy import refit

        for path in refit.write(wanted.folder):
            print(path, file=sys.stderr)
    found = results(wanted.folder, hold_out=not wanted.no_hold_out)
    parts = _new_systems(wanted.folder, found, hold_out=not wanted.no_hold_out)
    if wanted.json:
        rows = {each.dataset.name: json.loads(each.rows.to_json(orient="records")) for each in found}
        orders = [asdict(each.order) for each in found if each.order]
        told = {
            "rows": rows,
            "summary": [asdict(each.summary) for each in found],
            "order": orders,
            "new_systems": [asdict(each) for each in parts],
        }
        print(json.dumps(told, indent=1))
    else:
        print(table([each.summary for each in found]))
        print()
        print(ranking.table([each.order for each in found if each.order]))
        if parts:
            print()
            print(new_systems.table(parts))
    if wanted.docs:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(
            page(
                [(each.dataset, each.summary) for each in found],
                nccl.transfer(wanted.folder),
                [each.order for each in found if each.order],
                parts,
                torchrec_runs.errors(),
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
