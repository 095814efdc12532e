"""Flows over links, handed to SimGrid."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cost_models.shards import Floats

INTERPRETER = "/usr/bin/python3"
"""The one that Debian's packages are for."""


@dataclass(frozen=True)
class Flow:
    """Bytes from one place to another."""

    bytes: int
    links: Sequence[int]
    start_s: float = 0.0


def played(bytes_per_s: Sequence[float], flows: Sequence[Flow]) -> Floats:
    """[flows] seconds at which SimGrid has each flow end."""
    listed = [[flow.bytes, flow.start_s, [int(link) for link in flow.links]] for flow in flows]
    case = json.dumps({"bytes_per_s": [float(rate) for rate in bytes_per_s], "flows": listed})
    command = [INTERPRETER, str(Path(__file__).parent / "play.py")]
    told = subprocess.run(command, input=case, capture_output=True, text=True, check=True)
    return np.array(json.loads(told.stdout))
