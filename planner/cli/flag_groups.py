"""Flags that travel together: a frozen dataclass whose fields are flags is one parameter of a command."""

import functools
from collections.abc import Callable
from dataclasses import is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it: in place of each parameter whose type is a dataclass, the flags that are its
    fields, in their order and with their defaults. They are read into one value again before the command runs."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    flags: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        group = groups.get(name)
        types = hints if group is None else get_type_hints(group, include_extras=True)
        members = [parameter] if group is None else signature(group).parameters.values()
        flags += [each.replace(annotation=types[each.name], kind=Parameter.KEYWORD_ONLY) for each in members]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each: given.pop(each) for each in signature(group).parameters})
        command(**given)

    run.__signature__ = Signature(flags)  # type: ignore[attr-defined]
    run.__annotations__ = {flag.name: flag.annotation for flag in flags}
    return run
