"""A group of commands that shows help without loading pydantic."""

from typing import Any

from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """Commands under one name."""

    def get_params(self, ctx: Any) -> Any:
        """The group's own flags, each one off unless given.

        Typer leaves the default of --help and the completion flags open, and loads pydantic to find that no
        value is no value; that doubles the time until the help of a command appears.
        """
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if parameter.default is None and getattr(parameter, "is_flag", False):
                parameter.default = False
        return parameters
