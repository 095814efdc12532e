"""The cost models by the names that users know."""

from cost_models.amounts import NO_RESERVE, Reserve
from cost_models.hugectr import HugeCTRModel
from cost_models.model import CostModel
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


def cost_model(name: str, topology: Topology, workload: Workload, reserve: Reserve = NO_RESERVE) -> CostModel:
    """The costs of a workload on a topology under the model called `name`, with a reserve of memory kept free.

    Raises InputError for an unknown name.
    """
    if name not in COST_MODELS:
        raise InputError.at(name, f"is not a cost model{did_you_mean(name, COST_MODELS)}")
    return COST_MODELS[name](topology, workload, reserve)
