"""`python -m benchmarks.accuracy [DIR] [--refit] [--json] [--docs]`, from the root of a checkout.

Without --refit nothing is fitted but what is held out: every row's measured and predicted value with its 90 % band,
and a summary by data set. DIR has the form of benchmarks/data/facts: `published.json` and `measured/*.csv`; a data set
whose file is missing is left out.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from benchmarks.accuracy import (
    bus_bandwidth,
    deepep,
    dim_sweep,
    distributed_embeddings,
    hkv,
    mad_max,
    mlperf,
    nccl,
    tbe_h100,
    ugache,
)
from benchmarks.accuracy.report import page, table
from benchmarks.accuracy.rows import DataSet, Summary, summarise
from cost_models.calibration.robust import UndeterminedError

FACTS = Path(__file__).parents[1] / "data" / "facts"
DATA_SETS: tuple[DataSet, ...] = (
    nccl.DATA_SET,
    bus_bandwidth.DATA_SET,
    dim_sweep.DATA_SET,
    tbe_h100.DATA_SET,
    ugache.DATA_SET,
    hkv.DATA_SET,
    deepep.DATA_SET,
    mlperf.DATA_SET,
    distributed_embeddings.DATA_SET,
    mad_max.DATA_SET,
)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "accuracy.md"


def results(folder: Path, *, hold_out: bool = True) -> list[tuple[DataSet, pd.DataFrame, Summary]]:
    """Rows and summary of each data set that the folder has."""
    found = []
    for dataset in DATA_SETS:
        try:
            rows = dataset.predict(folder)
        except FileNotFoundError as missing:
            print(f"{dataset.name}: no {missing.filename}; left out", file=sys.stderr)
            continue
        if rows.empty:
            print(f"{dataset.name}: no rows; left out", file=sys.stderr)
            continue
        found.append((dataset, rows, summarise(dataset, rows, _held_out(dataset, folder) if hold_out else None)))
    return found


def _held_out(dataset: DataSet, folder: Path) -> pd.Series | None:
    if dataset.held_out is None:
        return None
    try:
        return dataset.held_out(folder)
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
    if wanted.json:
        rows = {dataset.name: json.loads(frame.to_json(orient="records")) for dataset, frame, _ in found}
        print(json.dumps({"rows": rows, "summary": [asdict(summary) for _, _, summary in found]}, indent=1))
    else:
        print(table([summary for _, _, summary in found]))
    if wanted.docs:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page([(dataset, summary) for dataset, _, summary in found], nccl.transfer(wanted.folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
