"""Workloads from wherever they are described: the catalog, a YAML file, a file of profiles, the generator."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cost_models.workload.affinities import enter_affinities
from cost_models.workload.dialects import is_table_set, translate
from cost_models.workload.models import Workload
from cost_models.workload.profiles import YAML, collect_profiles, duplicate_names, profiles_of
from cost_models.workload.synthetic import PREFIX, synthetic_workload
from topologies.derivation import base_name, base_path, is_derived, with_changes, with_keys
from topologies.document_kinds import expect_kind
from topologies.documents import STDIN, Document, Origin, assign_everywhere, override, read_value, read_yaml, validate
from topologies.errors import Fault, InputError
from topologies.messages import did_you_mean
from topologies.shelf import Shelf
from topologies.sources import is_file

WORKLOADS = Shelf("workload", Path(__file__).with_name("catalog"))
"""The workloads that are shipped."""
BATCHES = ("global_batch", "batch_per_rank")


def load_workload(source: str | Path, *, global_batch: int | None = None, overrides: Sequence[str] = ()) -> Workload:
    """The workload that `source` means.

    `source` is a name of the catalog, a workload file (YAML or JSON; its `tables` inline or the name of a
    file of profiles beside it), a file of profiles alone (CSV, Parquet, YAML or JSON; then `global_batch`
    is needed), or `synthetic:1000@seed=7` (see `synthetic_workload`). A workload file may be built on any of these:
    `base` names it, other keys replace its keys, and `set` changes single fields (`tables.cat_0.rows: 1000`).
    `global_batch` takes the place of
    either batch. `overrides` are texts `path=value`, applied in order; a table is entered by its name or
    its index: `tables.cat_0.rows=1000`.

    Raises InputError with everything that is wrong, each fault with its position.
    """
    draft = _open(str(source))
    if isinstance(draft.document.data, dict):
        if global_batch is not None:
            _set_batch(draft.document, "global_batch", str(global_batch), f"--global-batch {global_batch}")
        for text in overrides:
            _override(draft, text)
        if overrides:
            draft.document.directory = None  # files that a command line names are looked for where it is typed
            _enter_files(draft, [text.partition("=")[0].strip() for text in overrides])
    return _finish(draft)


def changed_workload(source: str | Path, changes: Sequence[tuple[str, Any, Origin]]) -> Workload:
    """The workload that `source` means (see `load_workload`) with the values of some paths replaced, in order.

    In a path, `*` stands for all elements of a list. Each change comes with where the user said so, for messages.
    Raises InputError.
    """
    draft = _open(str(source))
    spelled = [each for change in changes for each in _single_changes(*change)]
    for path, value, origin in spelled if isinstance(draft.document.data, dict) else ():
        try:
            assign_everywhere(draft.document, path, value, Workload, origin)
        except InputError as error:
            draft.faults.extend(error.faults)
        draft.chooses_software |= path == "software"
        if path in BATCHES:
            _drop_other_batch(draft.document, path)
        draft.document.directory = origin[0].directory
        _enter_files(draft, [path])
    return _finish(draft)


@dataclass
class _Draft:
    """A workload before validation."""

    document: Document
    faults: list[Fault] = field(default_factory=list)
    batch_expected: bool = False
    """Whether nothing in the source could have said the batch."""
    tables_settled: bool = False
    """Whether the faults say already what is wrong with the list of tables as a whole."""
    chooses_software: bool = True
    """Whether the software profile, where there is one, is the user's choice, not the catalog's."""


SOFTWARE_KEYS = {"name": "software", "mode": "software_mode", "overhead": "overhead"}
"""What `software` may hold as a mapping, and the keys that the model has for it."""


def _flat(path: str) -> str:
    """A path into `software` as one of the keys that the model has; any other as it is."""
    first, _, rest = path.partition(".")
    return SOFTWARE_KEYS.get(rest, path) if first == "software" else path


def _flatten_software(document: Document) -> list[Fault]:
    """Turn a mapping under `software`, and paths into it under `set`, into the keys that the model has."""
    data, faults = document.data, []
    if not isinstance(data, dict):
        return []
    if isinstance(data.get("set"), dict):
        faults += _flatten_changes(document)
    if isinstance(stated := data.get("software"), dict):
        del data["software"]
        for key, value in stated.items():
            at = ("software", key)
            if (name := SOFTWARE_KEYS.get(str(key))) is None:
                faults.append(document.fault(at, f"is not a known key{did_you_mean(str(key), list(SOFTWARE_KEYS))}"))
            elif name in data:
                faults.append(document.fault(at, f"is stated as {name}, too; give one of the two"))
            else:
                data[name] = value
                document.overridden[name,] = (replace(document, overridden={}), at)
    return faults


def _flatten_changes(document: Document) -> list[Fault]:
    """`_flatten_software` for the paths under `set`."""
    flat: dict[str, Any] = {}
    faults = []
    for path, value in document.data["set"].items():
        inside = value.items() if path == "software" and isinstance(value, dict) else None
        for key, inner in [(None, value)] if inside is None else inside:
            name = _flat(str(path)) if key is None else SOFTWARE_KEYS.get(str(key))
            at = ("set", path) if key is None else ("set", path, key)
            if name is None:
                faults.append(document.fault(at, f"is not a known key{did_you_mean(str(key), list(SOFTWARE_KEYS))}"))
            elif name in flat:
                faults.append(document.fault(at, "is stated twice; give it once"))
            else:
                flat[name] = inner
    document.data["set"] = flat
    return faults


def _single_changes(path: str, value: Any, origin: Origin) -> list[tuple[str, Any, Origin]]:
    """A change by the keys that the model has: of a mapping for `software`, one for each of its keys."""
    if path == "software" and isinstance(value, dict):
        source, at = origin
        return [(_flat(f"software.{key}"), inner, (source, (*at, key))) for key, inner in value.items()]
    return [(_flat(path), value, origin)]


def _enter_files(draft: _Draft, paths: Iterable[str]) -> None:
    """Read in what changes at `paths` state as a file does: tables or affinities, or the names of files of these."""
    if "tables" in paths:
        described = _described(draft.document)
        draft.faults.extend(described.faults)
        draft.tables_settled = described.tables_settled
    if any(path.partition(".")[0] == "towers" for path in paths):
        draft.faults.extend(enter_affinities(draft.document))


def _open(source: str) -> _Draft:
    if source.partition(":")[0] == PREFIX:
        return _Draft(Document(synthetic_workload(source), source))
    path = WORKLOADS.find(source)
    return _open_file(path, (path.resolve(),))


def _is_of_catalog(path: Path) -> bool:
    return path.resolve().parent == WORKLOADS.directory.resolve()


def _open_file(path: Path, chain: tuple[Path, ...]) -> _Draft:
    """What a file says; `chain` holds it and the files that are based on it."""
    if path != STDIN and path.suffix.lower() not in YAML:
        return _bare(path.stem, *collect_profiles(path))
    document = read_yaml(path)
    expect_kind(document, "workload")
    faults = [*_flatten_software(document), *enter_affinities(document)]
    if faults:
        raise InputError(faults)
    data = document.data
    if isinstance(data, list) or is_table_set(data) or (isinstance(data, dict) and set(data) == {"tables"}):
        return _bare(path.stem, *profiles_of(document))
    if is_derived(document):
        return _derived(document, chain)
    return replace(_described(document), chooses_software=not _is_of_catalog(path))


def _derived(document: Document, chain: tuple[Path, ...]) -> _Draft:
    """A workload that is built on another: on a catalog name, a file of any kind, or the generator's."""
    name = base_name(document, "workload")
    if name.partition(":")[0] == PREFIX:
        base = _open(name)
    else:
        path = base_path(document, name, WORKLOADS.find, chain)
        base = _open_file(path, (*chain, path.resolve()))
    if not isinstance(base.document.data, dict):
        raise InputError([document.fault(("base",), f"{name!r} is not a workload: it holds no mapping of keys")])
    own = document.data.keys() | (document.data.get("set") or {}).keys()
    if any(key in own for key in BATCHES):
        for key in BATCHES:
            base.document.data.pop(key, None)
    merged = with_keys(base.document, document)
    draft = base
    if "tables" in document.data:
        draft = _described(merged)
    chooses_software = base.chooses_software or "software" in own
    draft = replace(draft, document=merged, batch_expected=base.batch_expected, chooses_software=chooses_software)
    draft.faults.extend(with_changes(merged, document, Workload))
    _enter_files(draft, [str(path) for path in document.data.get("set") or {}])
    return draft


def _bare(name: str, profiles: Document, faults: list[Fault]) -> _Draft:
    """A file of profiles as a workload; everything else has its default."""
    document = Document({"name": name, "tables": profiles.data}, profiles.source)
    document.include(("tables",), profiles)
    return _Draft(document, faults, batch_expected=True, tables_settled=bool(faults) and not profiles.data)


def _described(document: Document) -> _Draft:
    """A workload file, with its tables read in."""
    data: Any = document.data
    tables = data.get("tables") if isinstance(data, dict) else None
    if not isinstance(tables, str):
        return _Draft(document, translate(document, ("tables",)) if tables is not None else [])
    path = (document.directory or Path()) / tables
    if not is_file(path):
        missing = f"there is no file {path}; write a list of tables or the name of a file that holds one"
        return _Draft(document, [document.fault(("tables",), missing)], tables_settled=True)
    try:
        profiles, faults = collect_profiles(path)
    except InputError as error:
        return _Draft(document, list(error.faults), tables_settled=True)
    data["tables"] = profiles.data
    document.include(("tables",), profiles)
    return _Draft(document, faults, tables_settled=bool(faults) and not profiles.data)


def _set_batch(document: Document, key: str, value: str, words: str) -> None:
    """Set one of the two batches from outside; the other one, if the source gave it, gives way."""
    override(document, key, value, Workload, words)
    _drop_other_batch(document, key)


def _drop_other_batch(document: Document, key: str) -> None:
    for other in BATCHES:
        if other != key and (other,) not in document.overridden:
            document.data.pop(other, None)


def _override(draft: _Draft, text: str) -> None:
    words = f"--set workload.{text}"
    path, equals, value = (part.strip() for part in text.partition("="))
    path = _flat(path)
    try:
        if path == "software" and isinstance(stated := read_value(value, words), dict):
            for key, inner in stated.items():
                _override(draft, f"software.{key}={inner}")
            return
        if not equals or not path:
            raise InputError.at(words, "is not path=value; write for example workload.embedding.dtype=fp16")
        if path in BATCHES:
            _set_batch(draft.document, path, value, words)
        else:
            override(draft.document, path, value, Workload, words)
            draft.chooses_software |= path == "software"
    except InputError as error:
        draft.faults.extend(error.faults)


def _finish(draft: _Draft) -> Workload:
    """The valid workload. Raises InputError with every fault."""
    document, faults = draft.document, list(draft.faults)
    data = document.data
    if draft.batch_expected and not any(key in data for key in BATCHES):
        advice = "a file of profiles does not say the batch; add --global-batch N"
        faults.append(Fault(document.source, 0, 0, "global_batch", advice))
        data["global_batch"] = 1  # so that the rest is checked too
    tables = data.get("tables") if isinstance(data, dict) else None
    doubles = duplicate_names(document, ("tables",), tables) if isinstance(tables, list) else []
    faults += doubles
    settled = draft.tables_settled or bool(doubles)
    try:
        workload = validate(document, Workload)
    except InputError as error:
        # What is known with its position, the model says again about the list as a whole.
        faults += [fault for fault in error.faults if not (settled and fault.path == "tables")]
    if faults:
        raise InputError(faults)
    return workload if draft.chooses_software else workload.with_unchosen_software()
