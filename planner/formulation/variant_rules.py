"""From a policy's losses to the variants of each table, and what contradicts."""

import numpy as np

from cost_models.workload.compressors import Compressor
from cost_models.workload.formats import DTYPES, FORMATS
from cost_models.workload.table_profile import TableProfile
from planner.formulation.narrowing import Narrowing, Path
from planner.formulation.runtimes import RUNTIMES
from planner.formulation.variant_words import Variant
from planner.formulation.variants import Variants

WHERE: Path = ("variants",)


def variants_of(narrowing: Narrowing) -> Variants | None:
    """The variants of a policy, or one of each table where its budget leaves no choice. None where it names none, or
    where something is wrong, which is noted."""
    stated, model = narrowing.policy.variants, narrowing.model
    if stated is None:
        return None
    if not model.chooses_dtypes:
        message = f"the cost model {model.name} takes the tables of the workload; use --cost-model physical"
        narrowing.fault(WHERE, message)
        return None
    before = len(narrowing.faults)
    _refuse_second_choice(narrowing)
    found = _collected(narrowing)
    if len(narrowing.faults) > before:
        return None
    variants = _arranged(narrowing, found)
    if variants.left < 0:
        least = variants.budget - variants.left
        message = f"is {variants.budget:g}, and the least losses of all tables are {least:g} together"
        narrowing.fault((*WHERE, "budget"), message)
        return None
    return variants if (affordable := variants.affordable).has_choice else affordable


def _refuse_second_choice(narrowing: Narrowing) -> None:
    """Formats and caches are chosen in one place: among the variants, or by keys of their own."""
    policy = narrowing.policy
    parts = [row.variant for row in policy.variants.losses] if policy.variants is not None else []
    for key, named in (
        ("dtypes", any(part.dtype is not None for part in parts)),
        ("precision_caches", any(part.cache is not None for part in parts)),
    ):
        places = [((key,), policy), *((("tables", n, key), rule) for n, rule in enumerate(policy.tables))]
        for path, limits in places:
            if named and getattr(limits, key) is not None:
                narrowing.fault(path, "variants name some, too, with what they lose; leave one of both out")


def _collected(narrowing: Narrowing) -> list[dict[str, tuple[Variant, Compressor, float]]]:
    """[T] the variants of each table by the word that plans have for it, with the loss."""
    workload, stated = narrowing.model.stated_workload, narrowing.policy.variants
    found: list[dict[str, tuple[Variant, Compressor, float]]] = [{} for _ in workload.tables]
    for row, each in enumerate(stated.losses if stated is not None else ()):
        path: Path = (*WHERE, "losses", row)
        for t in np.flatnonzero(narrowing.named((*path, "table"), (each.table,))).tolist():
            table, variant = workload.tables[t], each.variant
            compressor = workload.compressor_of(table) if variant.compressor is None else variant.compressor
            word = str(variant)
            if (fault := _fault(narrowing, table, variant, compressor)) is not None:
                narrowing.fault((*path, "variant"), f"{table.name!r}: {fault}")
                break
            if word in found[t]:
                narrowing.fault((*path, "variant"), f"{word} of {table.name!r} stands twice; keep one loss of it")
                break
            found[t][word] = variant, compressor, each.loss
    for table, mine in zip(workload.tables, found, strict=True):
        own = workload.compressor_of(table)
        as_stated = any(each.dtype is None and each.cache is None and known == own for each, known, _ in mine.values())
        fault = None if as_stated else _fault(narrowing, table, Variant(own), own)
        if fault is not None and not mine:
            narrowing.fault(WHERE, f"{table.name!r} has no variant, and as the workload has it {fault}")
        if not as_stated and fault is None:
            mine[str(own)] = Variant(own), own, 0.0
    return found


def _fault(narrowing: Narrowing, table: TableProfile, variant: Variant, compressor: Compressor) -> str | None:
    """Why a table cannot be so; None where it can."""
    workload, runtime = narrowing.model.stated_workload, narrowing.policy.runtime
    rules = RUNTIMES[runtime]
    if (fault := compressor.fault(table.rows, table.dim)) is not None:
        return fault
    if compressor.kind not in rules.compressors:
        return f"{runtime} has no tables of two parts, which {compressor} makes of it"
    if workload.tower_modules and compressor.kind == "dim":
        return f"modules of towers read whole vectors, and those of {compressor} are projected after"
    if variant.dtype is not None and variant.dtype not in rules.dtypes_in(workload.mode):
        return f"{runtime} has no tables in {variant.dtype}"
    if variant.cache is not None and "hbm_mixed" not in rules.tiers:
        return f"{runtime} has no caches of full precision beside tables"
    if variant.cache is not None and table.precision_cache is not None:
        return "the workload gives it a precision_cache; say it there or here"
    rigid = variant.dtype is not None and not FORMATS[variant.dtype].updates_in_place
    if rigid and workload.mode == "training" and variant.cache is None and table.precision_cache is None:
        return f"training cannot write {variant.dtype} in place; add a cache, for example {variant.dtype}+cache:1%"
    return None


def _arranged(narrowing: Narrowing, found: list[dict[str, tuple[Variant, Compressor, float]]]) -> Variants:
    """The variants as arrays, table by table."""
    workload, policy = narrowing.model.stated_workload, narrowing.policy
    flat = [(t, word, *each) for t, mine in enumerate(found) for word, each in mine.items()]
    table = np.array([t for t, *_ in flat])
    tables = tuple(
        workload.tables[t].model_copy(update={"name": f"{workload.tables[t].name}/{word}", "compressor": compressor})
        for t, word, _, compressor, _ in flat
    )
    return Variants(
        table=table,
        words=tuple(word for _, word, *_ in flat),
        compressors=tuple(compressor for *_, compressor, _ in flat),
        dtype=np.array([-1 if each.dtype is None else DTYPES.index(each.dtype) for _, _, each, *_ in flat]),
        cache=np.array([np.nan if each.cache is None else each.cache for _, _, each, *_ in flat]),
        loss=np.array([loss for *_, loss in flat]),
        budget=0.0 if policy.variants is None else policy.variants.budget,
        workload=workload.with_tables(tables),
    )
