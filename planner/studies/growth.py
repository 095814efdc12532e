"""Models of the years to come: more rows in every table, more tables like those there are."""

import math

from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile
from topologies.documents import Document, validate
from topologies.errors import shown


def check_factor(value: object) -> float:
    """The value, if it is a factor. Raises ValueError, with the remedy, if not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{shown(value)} must be a factor above 0, as in 2 or 1.5")
    return value


def grown(workload: Workload, *, rows: float = 1.0, tables: float = 1.0) -> Workload:
    """The workload with this many times the rows of every table (rounded up) and this many times the tables.

    Tables are repeated in their order, under names of their own; the dense part grows with what it reads. At
    least one table is left. Raises InputError for a model that is none.
    """
    if rows == tables == 1:
        return workload
    count = max(1, round(len(workload.tables) * tables))
    profiles = [_copy(workload.tables, number, rows) for number in range(count)]
    data = workload.model_copy(update={"tables": tuple(profiles)}).model_dump(mode="json")
    larger = validate(Document(data, f"{workload.name}, grown"), Workload)
    return larger if workload.names_software else larger.with_unchosen_software()


def _copy(tables: tuple[TableProfile, ...], number: int, rows: float) -> TableProfile:
    repeat, index = divmod(number, len(tables))
    table = tables[index]
    changed: dict[str, object] = {"rows": math.ceil(table.rows * rows)}
    if repeat:
        changed["name"] = f"{table.name}+{repeat}"
        changed["features"] = table.feature_count
    return table.model_copy(update=changed)
