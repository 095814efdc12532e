"""YAML with positions: every fault with its line and column; overrides raise nothing but InputError."""

import contextlib
import pickle
import time
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from topologies.cluster import Topology
from topologies.documents import Document, Record, override, parse_yaml, read_yaml, validate, with_fields
from topologies.errors import InputError

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
"""Twelve lines that stand for 6 x 10^10 words."""


class _Row(Record):
    name: str
    rows: int
    kind: Literal["a", "b"] = "a"
    features: int | tuple[str, ...] = 1


class _Rows(Record):
    rows: tuple[_Row, ...]
    extra: _Row | None = None
    notes: dict[str, int] | None = None


class _Described(Record):
    size: int
    """Of all rows
    together."""
    said: Annotated[int, Field(description="As told.")] = 0
    """Not this."""
    bare: int = 0
    again: int = 0
    """The one below has other words."""


class _More(_Described):
    again: int = 1
    last: _Row | None = None
    """At the end."""


def test_what_stands_below_a_field_describes_it() -> None:
    """In the JSON Schema, of inherited fields too; a description of the field's own goes first."""
    properties = _More.model_json_schema()["properties"]
    said = {name: of.get("description") for name, of in properties.items()}
    whole = "Of all rows\ntogether."
    assert said == {"size": whole, "said": "As told.", "bare": None, "again": None, "last": "At the end."}


@with_fields({"left": int, "right": Annotated[int, Field(default=0, exclude_if=lambda size: size == 0)]})
class _Sides(Record):
    """Of a table."""

    name: str = "sides"
    """What it is called."""

    def total(self) -> int:
        return self.left + self.right


def test_fields_of_a_table_are_fields_like_others() -> None:
    """They are required or not, left out or not, checked, described by the schema and pickled, as if written out."""
    found = _Sides.model_validate({"left": 2})
    assert (found.total(), found.model_dump()) == (2, {"name": "sides", "left": 2})
    assert pickle.loads(pickle.dumps(found)) == found
    schema = _Sides.model_json_schema()
    assert (schema["title"], schema["description"]) == ("_Sides", "Of a table.")
    assert schema["required"] == ["left"]
    assert list(schema["properties"]) == ["name", "left", "right"]
    assert schema["properties"]["name"]["description"] == "What it is called."
    with pytest.raises(InputError, match="left"):
        validate(parse_yaml("right: 1\n", "t.yaml"), _Sides)
    with pytest.raises(InputError, match="unknown key"):
        validate(parse_yaml("left: 1\nmiddle: 1\n", "t.yaml"), _Sides)


def _faults(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        validate(parse_yaml(text, "t.yaml"), _Rows)
    return [str(fault) for fault in caught.value.faults]


def test_all_faults_at_once_with_line_and_column() -> None:
    """Faults of different kinds are reported together, in the order of the file."""
    text = (
        "rows:\n"
        "  - name: 5\n    rows: 2.5\n"
        "  - {name: b, rwos: 3}\n"
        "  - name: c\n    rows: 1\n    kind: c\n    features: {x: 1}\n"
        "  - 7\n"
        "Extra: 1\n"
    )
    assert _faults(text) == [
        "t.yaml:2:5: rows.0.name: must be text (put it in quotes), not 5",
        "t.yaml:3:5: rows.0.rows: must be a whole number, not 2.5",
        "t.yaml:4:5: rows.1.rows: is missing",
        "t.yaml:4:15: rows.1.rwos: unknown key; did you mean 'rows'?",
        "t.yaml:7:5: rows.2.kind: must be 'a' or 'b', not 'c'",
        "t.yaml:8:5: rows.2.features: must be a whole number, not a mapping; or must be a list, not a mapping",
        "t.yaml:9:5: rows.3: must be a mapping of name, rows, kind, features, not 7",
        "t.yaml:10:1: Extra: unknown key; did you mean 'extra'?",
    ]


def test_a_missing_key_stands_at_the_mapping_that_lacks_it() -> None:
    """In a nested mapping the position is that of its key."""
    assert _faults("rows: []\nextra:\n  name: x\n") == ["t.yaml:2:1: extra.rows: is missing"]


def test_huge_values_are_cut() -> None:
    """A message never repeats a huge input."""
    (fault,) = _faults("rows: [{name: x, rows: " + "9x" * 1000 + "}]")
    assert len(fault) < 160


def test_merged_mappings_have_positions_too() -> None:
    """A key from a YAML merge is found where it was written, and an own key wins."""
    text = "extra: &base\n  name: x\n  rows: bad\nrows:\n  - <<: *base\n    rows: worse\n  - <<: *base\n"
    assert [fault.split(": must")[0] for fault in _faults(text)] == [
        "t.yaml:3:3: extra.rows",
        "t.yaml:3:3: rows.1.rows",
        "t.yaml:6:5: rows.0.rows",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "t.yaml: is empty"),
        ("# nothing\n", "t.yaml: is empty"),
        ("- 1\n", "t.yaml:1:1: must be a mapping of keys, not a list"),
        ("word", "t.yaml:1:1: must be a mapping of keys, not a single value"),
        ("rows: []\nextra: 1\nrows: []\n", "t.yaml:3:1: the key 'rows' stands twice, first in line 1"),
        ("rows: [1\nextra: 2\n", "t.yaml:2:6: did not find expected ',' or ']'"),
        ("rows: a: b\n", "put text that holds ': ' in quotes"),
        ("\trows: []\n", "indent with spaces"),
        ("? [1, 2]\n: 3\n", "t.yaml:1:3: a key must be a plain word"),
        ("rows: 2024-13-45\n", "t.yaml:1:7: is not valid YAML: month must be in 1..12"),
        ("rows: " + "9" * 5000, "t.yaml:1:7: is not valid YAML: Exceeds the limit"),
        ("a: 1\nrows: !!bool z\n", "t.yaml:2:7: is not valid YAML: its tag does not fit: 'z'; put text in quotes"),
        ("rows: !!int ''\n", "t.yaml:1:7: is not valid YAML: its tag does not fit"),
        ("rows: !!timestamp x\n", "t.yaml:1:7: is not valid YAML: its tag does not fit"),
        (LAUGHS, "its aliases (*) stand for more than 1,000,000 values; write those that are needed"),
        ("rows: " + "[" * 5000 + "]" * 5000, "t.yaml"),
        ("rows: &a [*a]\n", "t.yaml:1:7"),
        ("rows: !!python/object:os.system {}\n", "could not determine a constructor"),
        ("rows: \x01\n", "is not valid YAML"),
        ("rows: []\n---\nrows: []\n", "t.yaml:2:1"),
        ("rows: []\n1: 2\n", "a key must be text; put 1 in quotes"),
    ],
)
def test_broken_texts_are_input_errors(text: str, words: str) -> None:
    """Whatever is wrong with a text, the error says where and what."""
    assert words in "\n".join(_faults(text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a directory and another encoding are input errors; a byte order mark is not."""
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("name: Köln".encode("latin-1"))
    marked = tmp_path / "marked.yaml"
    marked.write_bytes(b"\xef\xbb\xbfname: x\n")
    profile = tmp_path / "tables.parquet"
    profile.write_bytes(b"PAR1\xff")
    unreadable = "cannot be read"
    for path, words in (
        (latin, "is not UTF-8 text; save it as UTF-8"),
        (profile, "is a file of tables, which a workload may be"),
        (tmp_path, unreadable),
        (tmp_path / "no", unreadable),
    ):
        with pytest.raises(InputError, match=words):
            read_yaml(path)
    assert read_yaml(marked).data == {"name": "x"}


def test_one_bad_line_among_5000_is_found_quickly() -> None:
    """The right line of a long file, in less than the five seconds that are promised."""
    lines = [f"  - {{name: t{i}, rows: {i + 1}}}" for i in range(5000)]
    lines[3210] = "  - {name: t3210, rows: many}"
    start = time.perf_counter()
    assert _faults("rows:\n" + "\n".join(lines)) == [
        "t.yaml:3212:19: rows.3210.rows: must be a whole number, not 'many'"
    ]
    assert time.perf_counter() - start < 5


def _document() -> Document:
    return parse_yaml("rows:\n  - {name: first, rows: 1}\nextra:\n", "t.yaml")


@pytest.mark.parametrize("path", ["rows.0.rows", "rows.first.rows"])
def test_an_override_enters_a_list_by_index_or_name(path: str) -> None:
    """Both spellings change the same field."""
    document = _document()
    override(document, path, "9", _Rows, "--set")
    assert validate(document, _Rows).rows[0].rows == 9


def test_an_override_creates_optional_parents() -> None:
    """A scalar below an unset parent gives the ordinary faults of what is missing, laid to the override."""
    document = _document()
    override(document, "extra.rows", "9", _Rows, "--set extra.rows=9")
    with pytest.raises(InputError) as caught:
        validate(document, _Rows)
    assert [str(fault) for fault in caught.value.faults] == ["--set extra.rows=9: extra.name: is missing"]
    override(document, "extra.name", "x", _Rows, "--set extra.name=x")
    override(document, "notes.anything", "3", _Rows, "--set")
    assert validate(document, _Rows).notes == {"anything": 3}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("rowz", "1", "there is no 'rowz' at the top; did you mean 'rows'?"),
        ("rows.0.nam", "1", "there is no 'nam' at rows.0; did you mean 'name'?"),
        ("rows.1.name", "1", "rows has 1 element and none is '1'"),
        ("rows.frist.name", "1", "did you mean 'first'?"),
        ("rows.0.name.x", "1", "rows.0.name is a single value; nothing called 'x' is inside it"),
        ("rows.0.kind.x.y", "1", "rows.0.kind is a single value"),
        ("rows.0.rows", "[", "the value is not YAML"),
        ("rows.²", "1", "rows has 1 element"),
        ("", "1", "there is no '' at the top"),
    ],
)
def test_a_wrong_override_says_why_and_changes_nothing(path: str, value: str, words: str) -> None:
    """The message carries the user's words; the document stays as it was."""
    document = _document()
    with pytest.raises(InputError) as caught:
        override(document, path, value, _Rows, "--set it")
    assert words in str(caught.value)
    assert str(caught.value).startswith("--set it: ")
    assert document.data == _document().data
    assert not document.overridden


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["nodes", "network", "levels", "name", "0"]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    st.lists(st.sampled_from(["nodes", "0", "1", "network", "levels", "name", "x", ""]), min_size=1, max_size=5),
    st.text(max_size=6),
)
def test_override_and_validate_raise_nothing_but_input_errors(data: object, path: list[str], value: str) -> None:
    """Any data, any path, any value: an InputError or a result."""
    document = Document(data, "any")
    for step in (
        lambda: override(document, ".".join(path), value, Topology, "--set"),
        lambda: validate(document, Topology),
    ):
        with contextlib.suppress(InputError):
            step()


def test_a_control_character_has_its_place():
    """Line and column of what YAML does not allow, and what to do."""
    with pytest.raises(InputError) as caught:
        parse_yaml("name: x\ntables:\n- a\x1b[31m\n", "f.yaml")
    (fault,) = caught.value.faults
    assert (fault.line, fault.column) == (3, 4)
    assert "write its escape in double quotes" in fault.message


def test_two_escapes_of_one_character_have_a_remedy():
    """As JSON has them for characters that YAML escapes as one."""
    with pytest.raises(InputError, match="write the character itself"):
        parse_yaml(r'name: "\ud83d\ude00"', "f.yaml")
