"""The cost models by the names that users know."""

from cost_models.amounts import NO_RESERVE, Reserve
from cost_models.hugectr import HugeCTRModel
from cost_models.model import CostModel
from cost_models.replicas import Replicas
from cost_models.step import StepModel
from cost_models.torchrec.model import TorchRecModel
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.messages import did_you_mean

COST_MODELS: dict[str, type[CostModel]] = {
    StepModel.name: StepModel,
    TorchRecModel.name: TorchRecModel,
    HugeCTRModel.name: HugeCTRModel,
}


def cost_model(
    name: str,
    topology: Topology,
    workload: Workload,
    reserve: Reserve = NO_RESERVE,
    replicas: Replicas | None = None,
) -> CostModel:
    """The costs of a workload on a topology under the model called `name`, with a reserve of memory kept free; of one
    group of ranks, where these are in groups that have `replicas` of the tables.

    Raises InputError for an unknown name, for a model that knows one world of ranks only, and for groups that cannot
    be.
    """
    if name not in COST_MODELS:
        raise InputError.at(name, f"is not a cost model{did_you_mean(name, COST_MODELS)}")
    if replicas is None:
        return COST_MODELS[name](topology, workload, reserve)
    if name != StepModel.name:
        raise InputError.at("replicas", f"the cost model {name} knows one world of ranks; use {StepModel.name}")
    return StepModel(topology, workload, reserve, replicas)
