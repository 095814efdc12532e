"""Simulated steps as MLCommons Chakra execution traces (schema 0.0.4), for ASTRA-sim's analytical backend."""

import json
from pathlib import Path
from typing import get_args

from cost_models.simulator.simulation import Simulation
from planner.document.files import make_folder, write_file
from planner.exporters.chakra.communication import MOST_PAIRED_RANKS, AllToAll
from planner.exporters.chakra.network import ReplayNetwork
from planner.exporters.chakra.trace import Traces
from topologies.errors import InputError
from topologies.sources import behind_links

NAME = "step"
"""Traces are `step.<npu>.et`."""
ALL_TO_ALLS: tuple[AllToAll, ...] = get_args(AllToAll)


def write_chakra(simulation: Simulation, directory: str | Path, all_to_all: AllToAll | None = None) -> list[Path]:
    """Write the traces of the counted steps, and what ASTRA-sim asks for beside them; the same simulation gives the
    same bytes.

    All-to-alls are messages between `pairs` of ranks, of the sizes that they have, or `collectives` in which every rank
    has as much as the one with most; without either, pairs among up to MOST_PAIRED_RANKS ranks. Raises InputError for
    what ASTRA-sim cannot express, and if the directory cannot be written or holds anything.
    """
    directory = behind_links(directory)
    expect_empty(directory)
    chosen = all_to_all or ("pairs" if simulation.network.world <= MOST_PAIRED_RANKS else "collectives")
    network = ReplayNetwork(simulation)
    traces, texts = Traces(simulation, network, chosen), network.files()
    make_folder(directory)
    written = []
    for rank, number in enumerate(network.number_of_rank.tolist()):
        written.append(directory / f"{NAME}.{number}.et")
        write_file(written[-1], traces.of_rank(rank))
    texts["comm_groups.json"] = json.dumps(traces.communicator_groups(), indent=2) + "\n"
    for name, text in texts.items():
        write_file(directory / name, text.encode())
    return written


def expect_empty(directory: Path) -> None:
    """Raise InputError for a folder that holds anything: ASTRA-sim would replay traces of two plans as one."""
    if directory.is_dir() and any(directory.iterdir()):
        raise InputError.at(str(directory), "is not empty; choose a new or an empty directory")


__all__ = ["ALL_TO_ALLS", "MOST_PAIRED_RANKS", "expect_empty", "write_chakra"]
