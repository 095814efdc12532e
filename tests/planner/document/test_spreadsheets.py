"""CSV files hold names as text: no spreadsheet computes them, no terminal obeys them."""

import csv
import io

import pandas as pd
import pytest

from planner.document import spreadsheets

FORMULAS = ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\tx", "\rx"]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_name_is_a_formula(name):
    """What a spreadsheet would compute begins with an apostrophe, in records, frames and their headers."""
    records = spreadsheets.of_records([{name: name, "n": -1}])
    frame = spreadsheets.of_frame(pd.DataFrame({name: [name], "n": [-1]}))
    assert frame == records
    for row in csv.reader(io.StringIO(records)):
        assert row[0].startswith("'")


def test_numbers_and_other_names_stay_as_they_are():
    """Negative numbers are numbers, what is missing is empty, and a sign within a name is part of it."""
    rows = [{"name": "a=b", "n": -1.5, "is_on": True}, {"name": None, "n": None, "is_on": False}]
    assert spreadsheets.of_records(rows) == "name,n,is_on\na=b,-1.5,True\n,,False\n"
    assert spreadsheets.of_frame(pd.DataFrame(rows)) == "name,n,is_on\na=b,-1.5,True\n,,False\n"


def test_hidden_characters_are_escapes():
    """A cell holds neither terminal controls nor line ends."""
    assert spreadsheets.of_records([{"name": "\x1b[2J\nx"}]) == "name\n\\x1b[2J\\nx\n"
