"""Corruptions of plan documents: any leaf, list or mapping of the JSON text, and whole blocks.

`slip` says whether a corrupted document passes as right although it says something else. What it may say otherwise
without being wrong is decided here, from the two documents alone: a field that is published as unchecked, the
evidence of a claim (whatever proves it is a proof), a rank that is as busy as the one named, and what rounding does.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from cost_models.workload.models import Workload
from planner.cli.verify import other_input
from planner.document.plan import Plan, read_plan
from planner.document.planned import planned_inputs
from planner.formulation.policy import Policy
from planner.verification.unchecked import INPUTS, unchecked
from planner.verification.verify import verify
from tests.oracles.right_documents import Base
from topologies.cluster import Topology, fingerprint
from topologies.errors import InputError

Json = Any
Keys = tuple[str | int, ...]

EVIDENCE = ("proof", "infeasibility.memory_multipliers")
"""What proves a claim: anything that does is right, and verification shows that it does."""
ROUNDING = 2e-6
"""Relative: below what any edit here changes, above what summing in another order does."""
SPARE_BYTES = 3
"""By which a sum of rounded counts may be off."""
ON_ONE_RANK = ("table_wise", "column_wise", "table_column_wise")
"""Words for the same shards, at the same cost, where a table is one block on one rank: importers keep the word."""


@dataclass(frozen=True)
class Corrupted:
    """An edited document, as text: a key may stand twice in it."""

    base: Base
    what: str
    text: str
    is_question: bool = False
    """Whether the document is to be held against the inputs of its base: it may be right for others."""


# -- edits -------------------------------------------------------------------------------------------------------------


def corruptions(bases: list[Base], count: int, seed: int = 0) -> Iterator[Corrupted]:
    """So many corruptions, of all bases in turn; edits of single places, of blocks, and of several places that fit."""
    random = Random(seed)
    made = 0
    while made < count:
        base = bases[made % len(bases)]
        edit = random.choices((_edit_place, _graft, _edit_together, _repeat_key), (12, 2, 2, 1))[0]
        found = edit(base, bases, random)
        if found is not None:
            yield found
            made += 1


def corruptions_of_proof(base: Base, count: int, seed: int = 0) -> Iterator[Corrupted]:
    """So many edits of single places of its proof, each text once."""
    random, made = Random(seed), {base.text}
    of_kind = {kind: places for kind, places in _of_kind(base.text).items() if kind.startswith("proof.")}
    while len(made) <= count:
        edited = _edited(base, [base], of_kind, random)
        if edited.text not in made:
            made.add(edited.text)
            yield edited


def _places(data: Json, at: Keys = ()) -> Iterator[Keys]:
    """The way to every value of a document."""
    if at:
        yield at
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inside:
        yield from _places(value, (*at, key))


def _kind(at: Keys) -> str:
    return ".".join("*" if isinstance(key, int) else key for key in at)


@cache
def _of_kind(text: str) -> dict[str, list[Keys]]:
    """The ways to all values of a document, by their kind."""
    found: dict[str, list[Keys]] = {}
    for at in _places(json.loads(text)):
        found.setdefault(_kind(at), []).append(at)
    return found


def _at(data: Json, at: Keys) -> Json:
    for key in at:
        data = data[key]
    return data


def _put(data: Json, at: Keys, value: Json) -> None:
    _at(data, at[:-1])[at[-1]] = value


def _edit_place(base: Base, bases: list[Base], random: Random) -> Corrupted | None:
    """One value changed, dropped, doubled or moved; every kind of place is as likely as any other."""
    return _edited(base, bases, _of_kind(base.text), random)


def _edited(base: Base, bases: list[Base], of_kind: dict[str, list[Keys]], random: Random) -> Corrupted:
    """The same at one of the places of these kinds."""
    data = copy.deepcopy(base.data)
    at = random.choice(of_kind[random.choice(sorted(of_kind))])
    value = _at(data, at)
    if isinstance(value, dict):
        words = _edit_mapping(value, random)
    elif isinstance(value, list):
        words = _edit_list(value, random)
    else:
        new = _other_value(value, _alike(bases, _kind(at)), random)
        words = f"{value!r} -> {new!r}"
        _put(data, at, new)
    if random.random() < 0.05:
        del _at(data, at[:-1])[at[-1]]
        words = "dropped"
    return Corrupted(base, f"{_dotted(at)}: {words}", json.dumps(data))


def _alike(bases: list[Base], kind: str) -> list[Json]:
    """Values at places of a kind in all documents."""
    return [_at(base.data, at) for base in bases for at in _of_kind(base.text).get(kind, ())]


def _other_value(value: Json, alike: list[Json], random: Random) -> Json:
    others = [other for other in alike if other != value and not isinstance(other, dict | list)]
    if others and random.random() < 0.4:
        return random.choice(others)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice([value + 1, value - 1, value + 5, value * 2 + 7, 0 if value else 9, -value - 1, None])
    if isinstance(value, float):
        return random.choice([value * 1.001, value * 0.999, value * 2, value / 2, -value - 1e-3, value + 1, 0.5, None])
    if isinstance(value, str):
        return random.choice([f"{value}x", "ghost", "", value[:-1], value.upper() + "1", None])
    return random.choice([0, 1, 0.25, "ghost", True])


def _edit_mapping(value: dict[str, Json], random: Random) -> str:
    keys = list(value)
    if not keys or random.random() < 0.2:
        value["ghost"] = random.choice([0, 1.5, "x", {}, []])
        return "with a key 'ghost'"
    one = random.choice(keys)
    action = random.choice(["drop", "rename", "swap"])
    if action == "drop":
        del value[one]
        return f"without {one!r}"
    if action == "rename":
        value[f"{one}_"] = value.pop(one)
        return f"{one!r} renamed"
    other = random.choice(keys)
    value[one], value[other] = value[other], value[one]
    return f"{one!r} and {other!r} swapped"


def _edit_list(value: list[Json], random: Random) -> str:
    if not value:
        value.append(random.choice([0, "ghost", {}]))
        return "with one more"
    number = random.randrange(len(value))
    action = random.choice(["drop", "double", "swap", "reverse", "clear"])
    if action == "drop":
        del value[number]
    elif action == "double":
        value.insert(random.choice([number, len(value)]), copy.deepcopy(value[number]))
    elif action == "swap":
        other = random.randrange(len(value))
        value[number], value[other] = value[other], value[number]
    elif action == "reverse":
        value.reverse()
    else:
        value.clear()
    return f"{action} {number}"


def _graft(base: Base, bases: list[Base], random: Random) -> Corrupted | None:
    """A block of another document in the place of this one's, or beside it."""
    other = random.choice(bases)
    blocks = [key for key in other.data if key not in ("kind", "schema_version")]
    block = random.choice([*blocks, "provenance.cache_fractions", "provenance.policy", "provenance.workload"])
    at = tuple(block.split("."))
    data = copy.deepcopy(base.data)
    try:
        _put(data, at, copy.deepcopy(_at(other.data, at)))
    except KeyError:
        return None
    return Corrupted(base, f"{block} of {other.name}", json.dumps(data), block.startswith("provenance"))


def _edit_together(base: Base, bases: list[Base], random: Random) -> Corrupted | None:
    """Several places changed so that they fit each other."""
    data = copy.deepcopy(base.data)
    edit = random.choice(TOGETHER)
    words = edit(data, random)
    return None if words is None else Corrupted(base, words, json.dumps(data), edit is _other_question)


def _faster(data: Json, random: Random) -> str | None:
    """All seconds of the document shorter by the same factor."""
    factor = random.choice([0.5, 0.9, 0.999, 1.01])
    seconds = [at for at in _places(data) if at[0] in ("objective", "simulated", "stages", "ranks")]
    for at in seconds:
        is_share = at[-1] in ("gap", "coverage", "exposed_comm_fraction", "samples_per_s")
        if isinstance(_at(data, at), float) and not is_share:
            _put(data, at, _at(data, at) * factor)
    return None if data["objective"] is None else f"all seconds x {factor}"


def _tighter_bound(data: Json, random: Random) -> str | None:
    """A bound nearer to the step, with the gap that belongs to it."""
    objective = data["objective"]
    if objective is None or objective["gap"] < 1e-4:
        return None
    share = random.choice([0.3, 0.9, 1.0])
    objective["lower_bound_s"] += share * (objective["step_s"] - objective["lower_bound_s"])
    objective["gap"] = objective["step_s"] / objective["lower_bound_s"] - 1
    data["status"] = "optimal" if share == 1 else data["status"]
    return f"a bound nearer by {share}"


def _relabelled(data: Json, random: Random) -> str | None:
    """Another status, with or without its block."""
    was = data["status"]
    data["status"] = random.choice([one for one in ("optimal", "feasible", "infeasible", "timeout") if one != was])
    if random.random() < 0.5:
        for key in ("infeasibility", "unplaced", "proof"):
            data.pop(key, None)
    return f"{was} -> {data['status']}"


def _other_question(data: Json, random: Random) -> str | None:
    """The content of an input changed, with its fingerprint as it should be."""
    origin = data["provenance"]
    which = random.choice(["topology", "workload", "policy"])
    content = origin["policy"] if which == "policy" else origin[which]["content"]
    numbers = [at for at in _places(content) if isinstance(_at(content, at), int | float)]
    if not numbers:
        return None
    at = random.choice(numbers)
    _put(content, at, type(_at(content, at))(_at(content, at) * 2 + 4))
    try:
        record = {"topology": Topology, "workload": Workload, "policy": Policy}[which].model_validate(content)
    except ValueError:
        return None
    if which == "policy":
        origin["policy_fingerprint"] = fingerprint(record)
    else:
        origin[which]["fingerprint"] = fingerprint(record)
    return f"another {which}: {_dotted(at)}, with its fingerprint"


def _narrow_question(data: Json, random: Random) -> str | None:
    """Cache sizes that leave out what every planner tries."""
    names = [table["name"] for table in data["provenance"]["workload"]["content"]["tables"]]
    size = random.choice([0.0005, 0.02, 0.9])
    tier = random.choice(["ddr_cached", "ddr_split"])
    data["provenance"]["cache_fractions"] = {tier: {name: [size] for name in names}}
    return f"{tier} of size {size} alone"


def _another_rank(data: Json, random: Random) -> str | None:
    """A shard on another rank, whose bytes move with it."""
    if not data["tables"]:
        return None
    shard = random.choice(random.choice(data["tables"])["shards"])
    was, shard["rank"] = shard["rank"], random.randrange(len(data["ranks"]))
    if was == shard["rank"]:
        return None
    for tier, size in shard["bytes"].items():
        data["ranks"][was]["bytes"][tier] -= size
        data["ranks"][shard["rank"]]["bytes"][tier] += size
    return f"a shard from {was} to {shard['rank']}, with its bytes"


def _another_name(data: Json, random: Random) -> str | None:
    """A table under another name wherever it is named, but in the workload."""
    tables = data["provenance"]["workload"]["content"]["tables"]
    name = random.choice(tables)["name"]
    changed = 0
    for at in list(_places(data)):
        if at[0] != "provenance" and _at(data, at) == name:
            _put(data, at, "ghost")
            changed += 1
    return f"{name} is called ghost" if changed else None


TOGETHER: tuple[Callable[[Json, Random], str | None], ...] = (
    _faster,
    _tighter_bound,
    _relabelled,
    _other_question,
    _narrow_question,
    _another_rank,
    _another_name,
)


def _repeat_key(base: Base, bases: list[Base], random: Random) -> Corrupted | None:
    """A key that stands twice, the second time with another value."""
    del bases
    places = [at for at in _places(base.data) if isinstance(at[-1], str)]
    at = random.choice(places)
    value = json.dumps(_at(base.data, at[:-1]))
    twice = f"{value[:-1]}, {json.dumps(at[-1])}: {json.dumps(random.choice([0, 'ghost', None, []]))}}}"
    data = copy.deepcopy(base.data)
    mark = "<here>"
    if len(at) == 1:
        return Corrupted(base, f"{_dotted(at)}: twice", twice)
    _put(data, at[:-1], mark)
    return Corrupted(base, f"{_dotted(at)}: twice", json.dumps(data).replace(json.dumps(mark), twice, 1))


def _dotted(at: Keys) -> str:
    return ".".join(map(str, at))


# -- judgement ---------------------------------------------------------------------------------------------------------


def slip(corrupted: Corrupted, folder: Path) -> list[str]:
    """Where a corrupted document that passes as right says something else than its base; empty where it is refused, or
    says the same."""
    path = folder / "plan.json"
    path.write_text(corrupted.text)
    try:
        found = read_plan(path)
        if verify(found, corrupted.base.former, folder) or (corrupted.is_question and _is_otherwise(found, corrupted)):
            return []
    except InputError:
        return []
    patterns = [
        one.field
        for one in unchecked(found, given=INPUTS, has_former=corrupted.base.former is not None, has_folder=True)
    ]
    before, after = (dict(_leaves(json.loads(text))) for text in (corrupted.base.text, found.to_json()))
    return [
        f"{_dotted(at)}: {before.get(at)!r} -> {after.get(at)!r}"
        for at in before | after
        if not _is_same(at, before.get(at), after.get(at), corrupted.base)
        and not any(_covers(pattern, at) for pattern in (*patterns, *EVIDENCE))
    ]


def _is_otherwise(found: Plan, corrupted: Corrupted) -> bool:
    """Whether the inputs are not those of the base, as `planner verify` sees that has them as files."""
    asked = corrupted.base.plan
    questions = [(*planned_inputs(each), each.provenance.policy) for each in (found, asked)]
    return any(other_input(*one) for one in zip(INPUTS, *questions, strict=True))


def _leaves(data: Json) -> Iterator[tuple[Keys, Json]]:
    for at in _places(data):
        value = _at(data, at)
        if not (isinstance(value, dict | list) and value):
            yield at, value


def _covers(pattern: str, at: Keys) -> bool:
    words = re.escape(pattern).replace(r"\*", r"[^.]+")
    return re.match(rf"{words}(\.|$)", _dotted(at)) is not None


def _is_same(at: Keys, before: Json, after: Json, base: Base) -> bool:
    if before == after:
        return True
    if at[0] == "stages" and at[-1] == "critical_rank" and isinstance(before, int) and isinstance(after, int):
        busy = [rank["seconds"][base.data["stages"][at[1]]["name"]] for rank in base.data["ranks"]]
        return abs(busy[before] - busy[after]) <= ROUNDING * busy[before]
    if at[0] == "tables" and at[-1] == "sharding" and len(base.data["tables"][at[1]]["shards"]) == 1:
        return before in ON_ONE_RANK and after in ON_ONE_RANK
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in (before, after)):
        return False
    spare = SPARE_BYTES if isinstance(before, int) and {"bytes", "capacity"} & {*at} else ROUNDING * abs(before)
    return abs(before - after) <= spare
