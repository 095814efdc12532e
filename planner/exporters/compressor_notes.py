"""What a trainer has to build around tables that are smaller than the model says."""

from planner.document.plan import Plan
from planner.document.planned import planned_model


def compressor_notes(plan: Plan) -> tuple[str, ...]:
    """A sentence for each table: which ids it is given, and what becomes of its vectors."""
    workload, notes = planned_model(plan).workload, []
    for table, compressor in zip(workload.tables, workload.compressors, strict=True):
        rows, columns = workload.stored_shape(table)
        if compressor.kind == "hash":
            notes.append(f"{table.name} ({compressor}): give it ids hashed into {rows:,} rows, for example id % {rows}")
        elif compressor.kind == "dim":
            numbers = compressor.number
            padded = "" if columns == numbers else f", the first {numbers} of its {columns} columns,"
            module = f"Linear({numbers}, {table.dim}, bias=False)"
            notes.append(f"{table.name} ({compressor}): its vectors{padded} go through a {module} of the dense part")
    return tuple(notes)
