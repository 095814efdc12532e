"""A model that a function of the user builds, as a workload: tables, and the size of the rest. torch is needed."""

import contextlib
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from planner.integrations.torch_dense import Model, read_dense
from planner.integrations.torchrec_collections import Collection, collections_of
from planner.integrations.torchrec_dense import DensePart
from planner.integrations.torchrec_inputs import profiles_of
from planner.integrations.torchrec_optimizers import table_optimizer
from topologies.errors import InputError
from topologies.messages import did_you_mean

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ReadModel:
    """What a model says of a workload."""

    tables: tuple[Mapping[str, Any], ...]
    """Profiles of its tables, as in a workload file; one id for each feature and sample."""
    dense: Mapping[str, Any]
    """The rest of it, as in a workload file; empty where there is none."""
    notes: tuple[str, ...]
    """What is to be said of the rest."""

    def workload(self, name: str, batch_per_rank: int) -> dict[str, Any]:
        """The plain data of a workload file."""
        document: dict[str, Any] = {"name": name, "batch_per_rank": batch_per_rank}
        if self.dense:
            document["dense"] = dict(self.dense)
        return document | {"tables": [dict(table) for table in self.tables]}


def read_model(target: str, batch_per_rank: int) -> ReadModel:
    """What `target` builds (see `built_model`), seen with so many samples. Raises InputError for a model without
    tables, and for what no plan has: data types, optimizers, layers without a size."""
    model, arguments = built_model(target)
    collections = _collections(model)
    if not collections:
        raise InputError.at(target, f"builds a {type(model).__name__} without tables: no collection of TorchRec's")
    parameters = [each.parameters[config.name] for each in collections for config in each.configs]
    tables = [
        table | _optimizer(table["name"], parameter)
        for table, parameter in zip(profiles_of(model), parameters, strict=True)
    ]
    part = DensePart.of(model, collections, None)
    if any(weight.device.type != "meta" for weight in model.parameters()):
        collections = _collections(model.to("meta"))
    with contextlib.redirect_stdout(sys.stderr), _quiet():
        read = read_dense(Model(model, collections, tables, arguments), part, batch_per_rank)
    return ReadModel(tuple(tables), read.dense, read.notes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warning that TorchRec asks in a deprecated way whether a model is being exported."""
    log = logging.getLogger("torch.fx._symbolic_trace")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _collections(model: "nn.Module") -> list[Collection]:
    return [replace(each, parameters=_weights(each)) for each in collections_of(model)]


def _weights(collection: Collection) -> "dict[str, nn.Parameter]":
    """The parameters of a collection's tables, by name."""
    from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

    weights: dict[str, Any] = {}
    for part in collection.module.modules():
        if isinstance(part, EmbeddingBagCollection):
            weights |= {name: table.weight for name, table in part.embedding_bags.items()}
        elif isinstance(part, EmbeddingCollection):
            weights |= {name: table.weight for name, table in part.embeddings.items()}
    return weights


def _optimizer(name: str, parameter: "nn.Parameter") -> dict[str, Any]:
    """The optimizer of a table, where the model applies one in the backward pass."""
    stated = hasattr(parameter, "_optimizer_classes")
    return {"optimizer": table_optimizer(name, parameter, {}, None)} if stated else {}


def built_model(target: str) -> "tuple[nn.Module, Any]":
    """What `FILE:CALLABLE` or `package.module:CALLABLE` returns, built on the meta device, where nothing takes memory:
    a model, or a model and the arguments of its forward pass (a tuple, or a dictionary by name), None where it gives
    none.

    What it prints goes to stderr. Raises InputError, with what the user's code raised, where there is no model.
    """
    import torch

    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InputError.at(target, "is not FILE:CALLABLE or package.module:CALLABLE, as in model.py:build")
    with contextlib.redirect_stdout(sys.stderr):
        build = _found(_imported(place, target), name, target)
        if isinstance(build, torch.nn.Module):
            return build, None
        _expect_no_arguments(build, target)
        try:
            with torch.device("meta"):
                model, arguments = build(), None
        except Exception as error:
            raise InputError.at(target, f"cannot build the model: {_words(error)}") from error
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[1], tuple | list | dict):
        model, arguments = model
    if not isinstance(model, torch.nn.Module):
        raise InputError.at(target, f"returns {type(model).__name__}, which is no torch.nn.Module")
    return model, arguments


def _imported(place: str, target: str) -> ModuleType:
    file = Path(place)
    is_file = file.suffix == ".py" or file.exists()
    if is_file and not file.is_file():
        raise InputError.at(target, f"there is no file {place}")
    try:
        with _importable(file.parent.resolve() if is_file else Path.cwd()):
            if not is_file:
                return importlib.import_module(place)
            spec = importlib.util.spec_from_file_location(file.stem, file)
            if spec is None or spec.loader is None:
                raise InputError.at(target, f"{place} is no Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(file.stem, module)
            spec.loader.exec_module(module)
            return module
    except InputError:
        raise
    except ModuleNotFoundError as error:
        raise InputError.at(target, f"cannot be imported: there is no module {error.name!r}") from error
    except Exception as error:
        raise InputError.at(target, f"cannot be imported: {_words(error)}") from error


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """What lies beside a file can be imported by it, as where Python runs it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _found(module: ModuleType, name: str, target: str) -> Any:
    here: Any = module
    for part in name.split("."):
        if not hasattr(here, part):
            known = [each for each, value in vars(here).items() if callable(value) and not each.startswith("_")]
            raise InputError.at(target, f"there is no {part!r} in it{did_you_mean(part, known)}")
        here = getattr(here, part)
    return here


def _expect_no_arguments(build: Any, target: str) -> None:
    """Raise InputError for what cannot be called, or not without arguments."""
    if not callable(build):
        raise InputError.at(target, f"is a {type(build).__name__}, which cannot be called")
    try:
        parameters = inspect.signature(build).parameters.values()
    except ValueError:  # of built-in callables
        return
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each.name for each in parameters if each.default is each.empty and each.kind not in free]
    if needed:
        raise InputError.at(target, f"needs the arguments {', '.join(needed)}; name a function that needs none")


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
