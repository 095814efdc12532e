"""`python -m benchmarks.one_gpu.torchrec_report`: what TorchRec and its kernels took on an H100, beside predictions.

These are those of the coefficients at hand: the shipped ones, or those of PLANNER_COEFFICIENTS. `--table FILE`
writes what `planner calibrate` reads of the kernels instead; `--elsewhere` prints how far off predictions are without
coefficients of these kernels, which is what is known of a device on which they were not measured.
"""

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from benchmarks.one_gpu import torchrec_models
from benchmarks.one_gpu.laws import FOLDER, off
from cost_models.calibration.kernels import COLUMNS
from cost_models.coefficients import USER_DIRECTORY, forget, software_coefficients

OTHER_TABLES_BYTES = 2**32
"""What passes through the caches between two lookups of a table, as the ids of every repeat are others."""
LONGEST = 320
"""Ids to a bag beyond which the length of a bag counts, not the number of all ids."""


def kernels(run: int = 1) -> pd.DataFrame:
    """Passes of FBGEMM's kernels in a full queue, and the launch as predicted in both: `forward_s`, `backward_s`."""
    rows = pd.read_csv(FOLDER / "tbe.csv")
    rows = rows[(rows.run == run) | (rows.what == "drawn")].reset_index(drop=True)
    rows["number"] = rows.groupby("what").cumcount()
    found = pd.DataFrame(torchrec_models.kernels(case) for case in rows.to_dict("records"))
    rows["predicted_forward_s"], rows["predicted_backward_s"] = found.elapsed_forward_s, found.elapsed_backward_s
    rows["predicted_sort_s"] = found.sort_s
    rows["both_s"] = rows.forward_s + rows.backward_s
    rows["predicted_both_s"] = rows.predicted_forward_s + rows.predicted_backward_s
    return rows


def steps() -> pd.DataFrame:
    """Steps of TorchRec on one GPU: `step_s`, and what its kernels and copies take, `device_s`.

    The shorter of two runs counts, as other work makes the host slower only.
    """
    rows = pd.read_csv(FOLDER / "torchrec_steps.csv")
    case = [name for name in rows.columns if name not in ("run", "launches") and not name.endswith("_s")]
    rows = rows.groupby(case, sort=False, as_index=False).min()
    found = pd.DataFrame(torchrec_models.step(case) for case in rows.to_dict("records"))
    return rows.assign(predicted_step_s=found.step_s, predicted_host_s=found.host_s, predicted_device_s=found.device_s)


def stacks() -> pd.DataFrame:
    """Stacks of layers on the device."""
    rows = pd.read_csv(FOLDER / "stacks.csv")
    rows["predicted_seconds"] = [torchrec_models.stack(case)["seconds"] for case in rows.to_dict("records")]
    return rows


def cuts(rows: pd.DataFrame) -> pd.DataFrame:
    """Times longer that both passes take in so many blocks than in one, measured and predicted."""
    rows = rows[rows.what == "blocks"]
    same = ["tables", "dim", "pooling", "alpha"]
    one = rows[rows.blocks == 1].set_index(same)[["both_s", "predicted_both_s"]].add_prefix("one_")
    cut = rows[rows.blocks > 1].join(one, on=same)
    cut["times"] = cut.both_s / cut.one_both_s
    cut["predicted_times"] = cut.predicted_both_s / cut.one_predicted_both_s
    return cut[[*same, "blocks", "times", "predicted_times"]]


def calibration_table() -> pd.DataFrame:
    """Uniform ids and row-wise Adagrad of both kinds of cases, and every other of those drawn; judged by the others."""
    rows = pd.read_csv(FOLDER / "tbe.csv")
    rows = rows[(rows.run == 1) | (rows.what == "drawn")]
    number = rows.groupby("what").cumcount()
    taken = rows.what.isin(["tbe", "blocks"]) | ((rows.what == "drawn") & (number % 2 == 0))
    plain = (rows.alpha == 0) & (rows.optimizer == "rowwise_adagrad") & (rows.pooling <= LONGEST)
    rows = rows[taken & plain]
    like = pd.DataFrame(
        {
            "dtype": rows.dtype,
            "lookups": rows.ids,
            "dim": rows.dim // rows.blocks,
            "rows": rows.rows * rows.tables * rows.blocks,
            "pooling": rows.pooling,
            "alpha": 0,
            "evicted": OTHER_TABLES_BYTES,
        }
    )
    passes = {"lookup": rows.forward_s, "update": rows.backward_s}
    table = pd.concat([like.assign(operation=name, seconds=seconds) for name, seconds in passes.items()])
    return table.reindex(columns=list(COLUMNS))


def elsewhere(directory: Path) -> pd.DataFrame:
    """Errors of nine in ten cases by bytes of a row, forward and backward, by what the device's coefficients say
    without those of TorchRec's kernels; `directory` is written to."""
    launch = software_coefficients("torchrec").forward_launch_s  # stated as the device's it sets those of kernels aside
    stated = f"{{value: {launch.value}, unit: seconds, kind: fitted, source: that of the software}}"
    (directory / "plain.yaml").write_text(f"name: H100-SXM5-80GB\nlookup_launch_s: {stated}\n")
    before = os.environ.get(USER_DIRECTORY)
    os.environ[USER_DIRECTORY] = str(directory)
    forget()
    try:
        rows = kernels()
    finally:
        os.environ.pop(USER_DIRECTORY) if before is None else os.environ.update({USER_DIRECTORY: before})
        forget()
    rows = rows[rows.pooling <= LONGEST]
    bits = rows.dtype.map({"fp32": 32, "fp16": 16})
    rows["row_bytes"] = 2 ** np.round(np.log2(rows.dim // rows.blocks * bits / 8)).clip(6, 11)
    for way in ("forward", "backward"):
        rows[way] = off(rows[f"predicted_{way}_s"].to_numpy(), rows[f"{way}_s"].to_numpy())
    nine = {"forward": ("forward", _nine_in_ten), "backward": ("backward", _nine_in_ten)}
    by_width = rows.groupby("row_bytes").agg(rows=("row_bytes", "size"), **nine)
    whole = pd.DataFrame([{"rows": len(rows)} | {way: _nine_in_ten(rows[way]) for way in nine}], index=["all"])
    return pd.concat([by_width, whole])


def _nine_in_ten(errors: pd.Series) -> float:
    return float(errors.quantile(0.9))


def _told(name: str, predicted: pd.Series, measured: pd.Series) -> None:
    found, took = predicted.to_numpy(), measured.to_numpy()
    errors = off(found, took)
    print(
        f"  {name:<38}{len(errors):4} rows  predicted/measured {np.median(found / took):5.2f}"
        f"  off {np.median(errors):6.1%}  nine in ten {np.quantile(errors, 0.9):6.0%}  worst {errors.max():6.0%}"
    )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--elsewhere", action="store_true")
    stated = parser.parse_args()
    if stated.elsewhere:
        with TemporaryDirectory() as directory:
            print(elsewhere(Path(directory)).round(2).to_string())
        return
    if stated.table is not None:
        calibration_table().to_csv(stated.table, index=False, lineterminator="\n")
        return
    rows = kernels()
    print("kernels: forward, backward, both")
    groups = {what: rows[rows.what == what] for what in ("tbe", "blocks", "long_bags")}
    drawn = rows[rows.what == "drawn"]
    groups |= {"drawn, none of them fitted to": drawn[drawn.number % 2 == 1]}
    groups |= {"ids skewed": rows[rows.alpha > 0], "16 bits": rows[rows.dtype == "fp16"]}
    for name, part in groups.items():
        for way in ("forward", "backward", "both"):
            _told(f"{name}: {way}", part[f"predicted_{way}_s"], part[f"{way}_s"])
    many = rows[(rows.ids >= 2**20) & (rows.predicted_sort_s > 0)]
    if len(many):  # calibrated coefficients have no sort of its own
        print("sorting ids, of a million and more, alone and with what goes before and after it")
        _told("sort", many.predicted_sort_s, many.sort_s)
        _told("sort, lines, runs", many.predicted_sort_s, many.sort_s + many.runs_s)
    print(f"blocks: times longer than in one\n{cuts(rows).round(2).to_string(index=False)}")
    seen = steps()
    print("steps")
    for name, part in seen.groupby(["what", "pipeline", "mode"]):
        small = part[part.batch == 64]
        _told(", ".join(name) + ", 64 samples", small.predicted_step_s, small.step_s)
        large = part[part.batch >= 4096]
        if len(large):
            _told(", ".join(name) + ", 4,096 and more", large.predicted_step_s, large.step_s)
            if "sparse-dist" not in name:  # which copies the next batch meanwhile
                _told(" " * 8 + "the device of these", large.predicted_device_s, large.device_s)
    print("stacks of eight layers; all but captured ones: the longer of the measured host and the predicted device")
    for (dtype, mode), part in stacks().groupby(["dtype", "mode"]):
        on_device = part.predicted_seconds
        _told(f"{dtype}, {mode}", on_device if mode == "graph" else on_device.clip(lower=part.host_s), part.seconds)


if __name__ == "__main__":
    main()
