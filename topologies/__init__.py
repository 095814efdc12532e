"""What the cluster is: units, cluster models, fabric, YAML with positions, catalog.

The names below are imported when they are first used: `import topologies` alone costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topologies.checks import warnings as warnings
    from topologies.cluster import Topology as Topology
    from topologies.errors import Fault as Fault
    from topologies.errors import InputError as InputError
    from topologies.fabric import Fabric as Fabric
    from topologies.loading import TOPOLOGIES as TOPOLOGIES
    from topologies.loading import load_topology as load_topology

_HOME = {
    "Fabric": "topologies.fabric",
    "Fault": "topologies.errors",
    "InputError": "topologies.errors",
    "TOPOLOGIES": "topologies.loading",
    "Topology": "topologies.cluster",
    "load_topology": "topologies.loading",
    "warnings": "topologies.checks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
