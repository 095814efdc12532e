"""Where the tables sit in a model: a module path for each table, as the user says it on the command line."""

import fnmatch
from collections.abc import Sequence

from planner.document.plan import Plan
from topologies.errors import Fault, InputError


def module_paths(plan: Plan, modules: Sequence[str], source: str) -> list[tuple[str, str]]:
    """(module path, name of the parameter) of each table of a plan.

    Each of `modules` is `PATH` for all tables, or `GLOB=PATH` for those that match; the last that matches holds, and
    the root of the model ("") where none does. A table that is called `PATH.name` is the parameter `name`. Raises
    InputError for a pattern that matches no table, and for two tables that become one parameter.
    """
    rules = [tuple(text.rsplit("=", 1)) if "=" in text else ("*", text) for text in modules]
    names = [table.name for table in plan.tables]
    faults = [
        Fault(source, 0, 0, "--module", f"no table is called {glob!r}")
        for glob, _ in rules
        if not any(fnmatch.fnmatchcase(name, glob) for name in names)
    ]
    places, owner = [], dict[tuple[str, str], str]()
    for name in names:
        path = next((path for glob, path in reversed(rules) if fnmatch.fnmatchcase(name, glob)), "")
        place = (path, name.removeprefix(f"{path}.") if path else name)
        if place in owner:
            message = f"tables {owner[place]!r} and {name!r} are both parameter {place[1]!r} of module {path!r}"
            faults.append(Fault(source, 0, 0, "--module", message))
        owner[place] = name
        places.append(place)
    if faults:
        raise InputError(faults)
    return places
