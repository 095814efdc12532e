"""The parts of TorchRec's planner that a caller may hand over: torchrec is needed to import this.

ShardPlanner has a search and a cost model of its own. Parts that say nothing (the defaults) are accepted, others are
refused with what to do instead.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.proposers import GreedyProposer, GridSearchProposer, UniformProposer
from torchrec.distributed.planner.types import ShardingOption, Topology
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
from torchrec.distributed.types import ModuleSharder

from planner.integrations.torchrec_errors import ShardPlannerError
from topologies.errors import Fault

_SITUATION = ("topology", "constraints", "batch_size", "estimator")
"""Arguments of parts that say where they are used: not settings."""
_INSTEAD = {
    "enumerator": "say what may be used by constraints and sharders",
    "proposer": "ShardPlanner searches by itself, sizes of caches included",
    "partitioner": "ShardPlanner places shards by itself; policies keep tables together or apart",
    "performance_model": 'rate plans as TorchRec does by cost_model="torchrec"',
}


class DeferredEnumerator(EmbeddingEnumerator):  # type: ignore[misc]
    """TorchRec's list of options, made when somebody looks at it: for hundreds of tables it takes minutes."""

    def __init__(self, like: EmbeddingEnumerator) -> None:
        self.__dict__.update(vars(like))
        self._asked: tuple[nn.Module, list[ModuleSharder[Any]]] | None = None

    def ask(self, module: nn.Module, sharders: Sequence[ModuleSharder[Any]]) -> None:
        """Tell what to list."""
        self._asked = module, list(sharders)
        self._sharder_map = {sharder_name(sharder.module_type): sharder for sharder in sharders}
        self._sharder_data_map = build_sharder_data_map(self._sharder_map)

    @property
    def last_stored_search_space(self) -> list[ShardingOption] | None:
        """The options of what was asked last."""
        if self._asked is not None:
            self.enumerate(*self._asked)
            self._asked = None
        return self._last_stored_search_space  # type: ignore[no-any-return]


def expect_defaults(topology: Topology, **parts: Any) -> None:
    """Raise ShardPlannerError with every part (by the name of its argument) that would have to be followed."""
    faults = []
    for argument, part in parts.items():
        for each in part if isinstance(part, list) else [part] if part else []:
            reason = _reason(argument, each, topology)
            if reason:
                message = f"is {_a(type(each))}{reason}; leave it out: {_INSTEAD[argument]}"
                faults.append(Fault("ShardPlanner", 0, 0, argument, message))
    if faults:
        raise ShardPlannerError(faults)


def expect_same(enumerator: EmbeddingEnumerator, topology: Topology, batch_size: int, constraints: Any) -> None:
    """Raise ShardPlannerError where an enumerator was told otherwise than the planner that it is given to."""
    differences = {
        "topology": _rank_count(enumerator) != _counts(topology),
        "batch_size": enumerator._batch_size != batch_size,
        "constraints": bool(enumerator._constraints) and enumerator._constraints != constraints,
    }
    words = "has another {} than the planner; tell both the same, or leave the enumerator out"
    faults = [
        Fault("ShardPlanner", 0, 0, "enumerator", words.format(argument))
        for argument, differs in differences.items()
        if differs
    ]
    if faults:
        raise ShardPlannerError(faults)


def _rank_count(enumerator: EmbeddingEnumerator) -> tuple[str, int, int]:
    return enumerator._compute_device, enumerator._world_size, enumerator._local_world_size


def _counts(topology: Topology) -> tuple[str, int, int]:
    return topology.compute_device, topology.world_size, topology.intra_group_size


def _reason(argument: str, part: Any, topology: Topology) -> str | None:
    """Why a part is not a default one, as the end of `is a <class>`; None where it is."""
    if isinstance(part, DeferredEnumerator):
        return None
    fresh: dict[str, list[Any]] = {
        "enumerator": [EmbeddingEnumerator],
        "proposer": [GridSearchProposer, GreedyProposer, UniformProposer],
        "partitioner": [GreedyPerfPartitioner],
        "performance_model": [NoopPerfModel],
    }
    kind = next((kind for kind in fresh[argument] if type(part) is kind), None)
    if kind is None:
        names = " or ".join(kind.__name__ for kind in fresh[argument])
        return f", and not TorchRec's default ({names})"
    settings = list(_settings(part))
    if argument == "enumerator":
        default = EmbeddingEnumerator(topology=topology, batch_size=1)
        ours, theirs = ([(type(each), *_settings(each)) for each in of._estimators] for of in (part, default))
        settings += [] if ours == theirs else [" estimators"]
    told = [each for each in settings if each]
    return f" with{' and'.join(told)} of its own" if told else None


def _settings(part: Any) -> Iterator[str]:
    """Arguments that a part was given otherwise than by default."""
    for name, parameter in inspect.signature(type(part).__init__).parameters.items():
        default = parameter.default
        if name in _SITUATION or default is inspect.Parameter.empty or not hasattr(part, f"_{name}"):
            continue
        if getattr(part, f"_{name}") != default and not _is_one_of_theirs(part, name):
            yield f" {name}"


def _is_one_of_theirs(part: Any, name: str) -> bool:
    """TorchRec's planner asks one greedy proposer with depth, and one without."""
    return type(part) is GreedyProposer and name == "use_depth"


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
