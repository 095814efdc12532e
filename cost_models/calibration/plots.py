"""A picture of a fit: predicted against measured seconds, one mark per measurement."""

from pathlib import Path

import pandas as pd

FORMATS = (".png", ".svg")


def predicted_against_measured(rows: pd.DataFrame, path: Path, title: str) -> None:
    """Write a PNG or SVG of rows with operation, measured_s, predicted_s; on the diagonal lies what is predicted right.

    Raises ModuleNotFoundError without matplotlib.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.add_subplot()
    for operation, part in rows.groupby("operation"):
        error = (part.predicted_s / part.measured_s - 1).abs().mean()
        axes.loglog(part.measured_s, part.predicted_s, ".", label=f"{operation}: {len(part)}, mean error {error:.1%}")
    ends = [rows[["measured_s", "predicted_s"]].min().min(), rows[["measured_s", "predicted_s"]].max().max()]
    axes.loglog(ends, ends, color="grey", linewidth=0.8)
    axes.set(xlabel="measured, s", ylabel="predicted, s", title=title)
    axes.legend()
    # The same rows give the same bytes.
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "shardplan"}):
        figure.savefig(path, metadata=metadata)
