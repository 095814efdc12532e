"""The table of export formats: every row is whole."""

from importlib import import_module

import pytest

from planner.exporters.formats import FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_names_an_exporter(name):
    """Each format's exporter exists, and a companion file says what it is for."""
    row = FORMATS[name]
    module, _, function = row.exporter.partition(":")
    assert callable(getattr(import_module(f"planner.exporters.{module}"), function))
    assert bool(row.companion) == bool(row.companion_use)
    assert set(row.needs) - {"output"} <= set(row.uses)
