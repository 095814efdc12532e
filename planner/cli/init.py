"""`planner init`: starters to edit, or a workload read from a model."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from planner.cli import completions, flags, streams, templates, values
from planner.cli.outputs import Outputs
from planner.cli.workload_files import workload_text

STARTERS = ("topology.yaml", "workload.yaml", "tables.csv", "policy.yaml")
WORKLOAD = "workload.yaml"
CLUSTERS = ("topology.yaml", "cluster.yaml")
"""What a cluster's file is mostly called."""
SHOWN = 5
"""Tables in a warning."""
UNSAID = (
    "pooling_factor: mean ids of a sample, summed over a table's features (here one each)",
    "batch_per_rank, pipeline, communication; dense.optimizer, where it applies none in the backward pass",
)
BATCH_PER_RANK = 512
"""Samples per rank where none are given, as TorchRec's planner assumes."""


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Created if it does not exist.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NAME",
            help="Start from this cluster of the catalog, as in dgx-h100.",
            autocompletion=flags.completion("topology"),
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option(metavar="N", min=1, help="With --from: so many nodes of it.")] = None,
    template: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Start from this model on Criteo's tables: dlrm, dcnv2 or wukong.",
            autocompletion=completions.of_words(lambda: templates.TEMPLATES),
        ),
    ] = None,
    from_model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:CALLABLE",
            help="Write workload.yaml for the model that this builds, as in model.py:build or package.model:build.",
        ),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write workload.yaml for these table profiles, as planner profile makes them."
        ),
    ] = None,
    batch_per_rank: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help=f"With --from-model or --tables: samples per rank. Unset: {BATCH_PER_RANK}."
        ),
    ] = None,
) -> None:
    """Write commented files to start from.

    Writes topology.yaml, workload.yaml, tables.csv and policy.yaml, which
    work as they are, and the schemas by which an editor completes and
    checks them. Existing files are kept. With --from-model only
    workload.yaml: the tables of a TorchRec model, built on the meta device,
    and the layers of its dense part (needs the extra torchrec). With
    --tables only workload.yaml, for tables that you have.

    \b
    Examples:
      planner init my-model
      planner plan --topology my-model/topology.yaml
      planner init my-model --from dgx-h100 --nodes 4 --template dcnv2
      planner init my-model --from-model train.py:build --batch-per-rank 4096
      planner init my-model --tables tables.csv
    """
    Outputs({}, {}, {"DIR": (directory, WORKLOAD)})
    if from_ is None:
        flags.expect_unused("without --from", nodes=nodes)
    if tables is not None or from_model is not None:
        flags.expect_unused("beside --tables and --from-model", from_=from_, template=template)
    if tables is not None:
        flags.expect_unused("beside --tables", from_model=from_model)
        _write(
            directory, {WORKLOAD: _text_for_tables(tables, directory, batch_per_rank or BATCH_PER_RANK)}, force=force
        )
        cluster = _cluster_of(directory, "dgx-h100")
        streams.say(f"Next: planner plan --topology {cluster} --workload {directory / WORKLOAD} -o plan.json")
    elif from_model is None:
        flags.expect_unused("without --from-model or --tables", batch_per_rank=batch_per_rank)
        _write(directory, _starters(from_, nodes, template), force=force)
        streams.say(f"Next: planner plan --topology {directory / 'topology.yaml'}")
    else:
        for package in ("torch", "torchrec"):
            flags.expect_extra(package, "torchrec", "--from-model")
        _expect_free(directory, (WORKLOAD,), force=force)
        _write(
            directory, {WORKLOAD: _workload_text(from_model, directory, batch_per_rank or BATCH_PER_RANK)}, force=force
        )
        cluster = _cluster_of(directory, "dgx-a100-80")
        streams.say(f"Next: planner plan --topology {cluster} --workload {directory / WORKLOAD} --runtime torchrec")


def _starters(base: str | None, nodes: int | None, model: str | None) -> dict[str, str]:
    """The text of each file, in the order in which they are read."""
    if base is not None:
        values.word("--from", base, flags.catalog_names("topology"))
    template = templates.EXAMPLE
    if model is not None:
        template = templates.TEMPLATES[values.word("--template", model, list(templates.TEMPLATES))]
    return {"topology.yaml": templates.topology_text(base, nodes), **template.texts()}


def _cluster_of(directory: Path, example: str) -> str:
    """A topology that is there already, by its usual names; else one of the catalog as an example."""
    return next((str(directory / name) for name in CLUSTERS if (directory / name).is_file()), example)


def _workload_text(target: str, directory: Path, batch_per_rank: int) -> str:
    """The workload file of a model, with what a model does not say as comments."""
    from planner.integrations.torchrec_model import read_model
    from topologies.documents import Document
    from topologies.sentences import counted

    model = read_model(target, batch_per_rank)
    data = model.workload(directory.resolve().name or "model", batch_per_rank)
    text = workload_text(Document(data, target), "A model", UNSAID, model.notes)
    streams.say(f"{counted(len(model.tables), 'table')}, {counted(len(model.dense.get('layers', ())), 'layer')}")
    for note in model.notes:
        streams.say(f"note: {note}")
    unsaid = [table["name"] for table in model.tables if "optimizer" not in table]
    if unsaid:
        more = f" and {len(unsaid) - SHOWN:,} more" if len(unsaid) > SHOWN else ""
        streams.say(
            f"warning: the model applies no optimizer to {', '.join(unsaid[:SHOWN])}{more} in its backward pass; say"
            " it with embedding.optimizer"
        )
    return text


def _text_for_tables(tables: Path, directory: Path, batch_per_rank: int) -> str:
    """The workload file of measured tables, with what tables do not say as comments."""
    from os.path import relpath

    import yaml

    from cost_models.workload.models import Workload
    from cost_models.workload.profiles import read_profiles
    from topologies.documents import Document, validate

    data = {"name": directory.resolve().name or "model", "batch_per_rank": batch_per_rank}
    document = read_profiles(tables)
    validate(Document({**data, "tables": document.data}, str(tables), lambda path: document.locate(path[1:])), Workload)
    head = str(yaml.safe_dump({"name": data["name"]}, width=1000))
    name = str(yaml.safe_dump({"tables": relpath(tables.resolve(), directory.resolve())}, width=1000))
    return (
        "# Tables do not say how they are trained, so edit these; all keys: planner schema workload\n"
        f"{head}"
        f"batch_per_rank: {batch_per_rank}  # samples of a rank in a step\n"
        f"{name}"
        "embedding: {dtype: fp32, optimizer: rowwise_adagrad}\n"
        "communication: {forward: fp32, backward: fp32}\n"
        "# The dense part, which a plan without it takes to cost nothing:\n"
        "# dense: {numerical_features: 13, bottom_mlp: [512, 256], interaction: concat, top_mlp: [1024, 512, 1]}\n"
    )


def _expect_free(directory: Path, names: Iterable[str], *, force: bool) -> None:
    """Raise InputError with every file that would be overwritten."""
    from topologies.errors import Fault, InputError

    in_the_way = [path for path in (directory / name for name in names) if path.exists()]
    if in_the_way and not force:
        message = "exists; choose another directory, or overwrite with --force"
        raise InputError(Fault(str(path), 0, 0, "", message) for path in in_the_way)


def _write(directory: Path, texts: Mapping[str, str], *, force: bool) -> None:
    """Write the files, each with the line by which an editor finds its schema, and the schemas that are not there."""
    from planner.document.files import make_folder, write_file

    _expect_free(directory, texts, force=force)
    files = {name: templates.with_modeline(name, text) for name, text in texts.items()}
    for name in texts:
        schema = f"{templates.SCHEMAS}/{templates.KINDS.get(name)}.schema.json"
        if name in templates.KINDS and (force or not (directory / schema).exists()):
            files[schema] = templates.schema_text(templates.KINDS[name])
    for name, text in files.items():
        path = directory / name
        make_folder(path.parent)
        write_file(path, text.encode())
        streams.write_text(str(path))
