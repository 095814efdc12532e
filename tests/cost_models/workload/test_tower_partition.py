"""Tables in towers: even, what belongs together in one, by brute force where towers are small; files of affinities."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from cost_models.workload.loading import load_workload
from cost_models.workload.tower_partition import Tower, partition
from cost_models.workload.towers import Towers
from topologies.errors import ConflictError, InputError

NAMES = [f"t{i}" for i in range(8)]


def pairs(seed: int) -> tuple[list[int], list[list[object]]]:
    """Widths of eight tables, and random affinities."""
    random = np.random.default_rng(seed)
    columns = (8 * random.integers(1, 9, 8)).tolist()
    chosen = [pair for pair in itertools.combinations(NAMES, 2) if random.random() < 0.5]
    return columns, [[*pair, float(random.integers(1, 10))] for pair in chosen]


def towers(count: int, imbalance: float, affinity: list[list[object]]) -> Towers:
    return Towers.model_validate({"count": count, "imbalance": imbalance, "affinity": affinity})


def worth(of_table: tuple[int, ...], affinity: list[list[object]]) -> float:
    inside = [each for each in affinity if of_table[NAMES.index(str(each[0]))] == of_table[NAMES.index(str(each[1]))]]
    return sum(float(str(each[2])) for each in inside)


def best(columns: list[int], count: int, imbalance: float, affinity: list[list[object]]) -> float | None:
    """The most that any division keeps together; None where none is even enough."""
    found = None
    for of_table in itertools.product(range(count), repeat=len(columns)):
        load = [sum(c for c, own in zip(columns, of_table, strict=True) if own == tower) for tower in range(count)]
        if min(load) > 0 and max(load) <= imbalance * min(load):
            found = max(found or 0.0, worth(of_table, affinity))
    return found


def of_tables(found: tuple[Tower, ...]) -> tuple[int, ...]:
    own = {table: number for number, tower in enumerate(found) for table in tower.tables}
    return tuple(own[table] for table in range(len(own)))


def test_what_belongs_together_is_together_and_towers_are_even() -> None:
    """Never less even than told; of what the best division keeps together, 90 % on average and half at least."""
    shares = []
    for seed, count, imbalance in itertools.product(range(12), (2, 3), (1.2, 1.5)):
        columns, affinity = pairs(seed)
        optimum = best(columns, count, imbalance, affinity)
        if optimum is None:
            with pytest.raises(ConflictError, match="no division was found"):
                partition(towers(count, imbalance, affinity), NAMES, columns)
            continue
        try:
            found = partition(towers(count, imbalance, affinity), NAMES, columns)
        except ConflictError:  # found none, and says no more than that
            shares.append(0.0)
            continue
        assert sorted(table for tower in found for table in tower.tables) == list(range(8))
        load = [tower.columns for tower in found]
        assert max(load) <= imbalance * min(load)
        shares.append(worth(of_tables(found), affinity) / optimum)
    assert len(shares) > 30
    assert np.mean(shares) > 0.9
    assert np.median(shares) > 0.95


def test_without_limits_nothing_moves_and_told_tables_stay() -> None:
    """Longest first as before; a table of a group is where it is told to be, whatever it belongs to."""
    columns, affinity = pairs(1)
    plain = partition(Towers.model_validate({"count": 2}), NAMES, columns)
    assert of_tables(partition(towers(2, 100.0, []), NAMES, columns)) == of_tables(plain)
    told = Towers.model_validate({"count": 2, "imbalance": 50, "affinity": affinity, "group": {"t0": 1, "t1": 0}})
    assert of_tables(partition(told, NAMES, columns))[:2] == (1, 0)


def test_a_file_of_affinities(tmp_path: Path) -> None:
    """Beside the workload, also of one built on another; as the same pairs in the file itself."""
    (tmp_path / "pairs.csv").write_text("table,other,affinity\ncat_0,cat_1,3\n\ncat_2,cat_3,0.5\n")
    text = "base: dlrm-dcnv2\nname: towers\ntowers: {count: 2, imbalance: 1.3, affinity: %s}\n"
    (tmp_path / "file.yaml").write_text(text % "pairs.csv")
    (tmp_path / "inline.yaml").write_text(text % "[[cat_0, cat_1, 3], [cat_2, cat_3, 0.5]]")
    of_file, inline = (load_workload(tmp_path / name) for name in ("file.yaml", "inline.yaml"))
    assert of_file == inline
    assert of_file.towers is not None
    assert of_file.towers.affinity == (("cat_0", "cat_1", 3.0), ("cat_2", "cat_3", 0.5))
    (one,) = [tower for tower in of_file.tower_parts if 0 in tower.tables]
    assert 1 in one.tables


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("a,b\n", "pairs.csv:1:1: the header must be table,other,affinity"),
        ("table,other,affinity\ncat_0,cat_1\n", "pairs.csv:2:1: has 2 cells"),
        ("table,other,affinity\ncat_0,cat_1,x\n", "pairs.csv:2:1: affinity: 'x' is not a number"),
        ("table,other,affinity\ncat_0,nosuch,1\n", "no table is called 'nosuch'"),
        ("table,other,affinity\ncat_0,cat_0,1\n", "is with itself in any case"),
        (None, "there is no file"),
    ],
)
def test_a_bad_file_is_said_with_its_place(tmp_path: Path, file: str | None, words: str) -> None:
    """And what to write."""
    if file is not None:
        (tmp_path / "pairs.csv").write_text(file)
    path = tmp_path / "w.yaml"
    path.write_text("base: dlrm-dcnv2\nname: towers\ntowers: {count: 2, imbalance: 1.3, affinity: pairs.csv}\n")
    with pytest.raises(InputError) as error:
        load_workload(path)
    assert words in str(error.value)


def test_affinities_need_a_limit() -> None:
    """Or all tables would be in one tower."""
    with pytest.raises(ValueError, match="needs imbalance"):
        Towers.model_validate({"count": 2, "affinity": [["a", "b", 1]]})
