"""The timeline of simulated steps: traces for Perfetto and HolisticTraceAnalysis, and a picture for documents."""

import gzip
import re
from collections.abc import Sequence
from pathlib import Path

from cost_models.simulator.simulation import Simulation
from planner.document.files import write_file
from planner.reports.timeline.kineto import documents
from planner.reports.timeline.picture import picture
from planner.reports.timeline.slices import loads, sample, slices
from topologies.errors import InputError
from topologies.sources import behind_links

MOST_RANKS = 8
"""The most ranks of which traces are written unless others are asked for."""
TRACE_NAME = re.compile(r"rank_(\d+)\.json\.gz")


def write_timeline(simulation: Simulation, directory: str | Path, ranks: Sequence[int] | None = None) -> list[Path]:
    """Write `rank_0.json.gz` and so on for the counted steps; the same simulation gives the same bytes.

    Without `ranks`: all of them up to MOST_RANKS, else the critical one and the first of some nodes. Raises InputError
    for ranks that do not exist, and if the directory cannot be written or holds traces of other ranks.
    """
    directory = behind_links(directory)
    chosen = sample(simulation, MOST_RANKS) if ranks is None else sorted(set(ranks))
    world = simulation.network.world
    if not chosen or chosen[0] < 0 or chosen[-1] >= world:
        unknown = [rank for rank in chosen if not 0 <= rank < world]
        what = f"there is no rank {unknown[0]}" if unknown else "name at least one"
        raise InputError.at("ranks", f"{what}; ranks are numbered 0 to {world - 1}")
    _prepare(directory, chosen)
    texts = documents(simulation, {rank: slices(simulation, rank) for rank in chosen}, loads(simulation, chosen))
    paths = [directory / f"rank_{rank}.json.gz" for rank in chosen]
    for path, rank in zip(paths, chosen, strict=True):
        write_file(path, gzip.compress(texts[rank].encode(), mtime=0))
    return paths


def _prepare(directory: Path, ranks: Sequence[int]) -> None:
    """Make the directory. Traces of other ranks in it would be analysed together with the new ones."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        names = [path.name for path in directory.iterdir()]
    except OSError as error:
        raise InputError.at(str(directory), f"cannot be written: {error.strerror}") from None
    others = [name for name in names if (match := TRACE_NAME.fullmatch(name)) and int(match[1]) not in ranks]
    if others:
        raise InputError.at(
            str(directory), f"holds {min(others)} of another timeline; choose an empty directory, or remove it"
        )


__all__ = ["MOST_RANKS", "picture", "write_timeline"]
