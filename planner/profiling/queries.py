"""The query that a user runs where the data is; its small result holds all that a profile needs but whole batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FEATURE, STATISTIC, VALUE, COUNT = COLUMNS = ("feature", "statistic", "value", "count")
READS, LENGTH, LEAST, LARGEST = STATISTICS = ("reads", "length", "least", "largest")
"""How many ids were read `value` times; how many samples have `value` ids; the smallest and largest id (`value`)."""


@dataclass(frozen=True)
class Dialect:
    """How an engine writes what differs between them."""

    quoted: Callable[[str], str]
    lengths: str
    """The number of ids in a list, without NULLs."""
    from_ids: str
    """What stands behind SELECT to read all ids of a column as `id`."""


DIALECTS = {
    "duckdb": Dialect(
        lambda name: '"' + name.replace('"', '""') + '"',
        "COALESCE(LIST_COUNT({column}), 0)",
        "UNNEST({column}) AS id FROM {data}",
    ),
    "spark": Dialect(
        lambda name: "`" + name.replace("`", "``") + "`",
        "GREATEST(COALESCE(SIZE(FILTER({column}, x -> x IS NOT NULL)), 0), 0)",
        "EXPLODE({column}) AS id FROM {data}",
    ),
    "bigquery": Dialect(
        lambda name: "`" + name.replace("`", "\\`") + "`",
        "(SELECT COUNT(x) FROM UNNEST({column}) AS x)",
        "id FROM {data}, UNNEST({column}) AS id",
    ),
}


def query(dialect: str, data: str, columns: Sequence[str]) -> str:
    """The query over columns of lists of whole numbers in `data`, a table or what else can stand behind FROM."""
    words = DIALECTS[dialect]
    parts = []
    for column in columns:
        quoted = words.quoted(column)
        ids = f"SELECT {words.from_ids.format(column=quoted, data=data)}"
        length = words.lengths.format(column=quoted)
        name = "'" + column.replace("'", "''" if dialect != "bigquery" else "\\'") + "'"
        head = f"SELECT {name} AS {FEATURE}"
        parts += [
            f"{head}, '{READS}' AS {STATISTIC}, reads AS {VALUE}, COUNT(*) AS {COUNT}\n"
            f"  FROM (SELECT id, COUNT(*) AS reads FROM ({ids}) AS ids WHERE id IS NOT NULL GROUP BY id) AS counted"
            " GROUP BY reads",
            f"{head}, '{LENGTH}', ids, COUNT(*)\n  FROM (SELECT {length} AS ids FROM {data}) AS samples GROUP BY ids",
            f"{head}, '{LEAST}', MIN(id), 1\n  FROM ({ids}) AS ids",
            f"{head}, '{LARGEST}', MAX(id), 1\n  FROM ({ids}) AS ids",
        ]
    return "\nUNION ALL\n".join(parts) + ";"
