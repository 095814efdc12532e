"""Reports of FBGEMM's table-batched embeddings (`TBEDataConfig`) as a workload."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, ConfigDict, Field, NonNegativeFloat, PositiveFloat, model_validator

from cost_models.workload import spellings
from planner.document.files import faults_located, read_json
from planner.importers.eeg_distribution import IdLaw, access_profile
from planner.importers.stated_workload import StatedTable, StatedWorkload, listed
from topologies.documents import Document, Record, validate
from topologies.errors import ConflictError, InputError
from topologies.sentences import counted

NAME = re.compile(r"tbe-(?P<op>.*)-config-estimation-(?P<iteration>\d+)\.json", re.DOTALL)
"""TBEBenchmarkParamsReporter.report_stats."""
TOLERANCE = 1e-3
"""By which probabilities in fp32 may pass 1 together."""
LARGEST = 10**13
Whole = BeforeValidator(spellings.whole_number)
Count = Annotated[int, Field(ge=1, le=LARGEST), Whole]
Size = Annotated[int, Field(ge=0, le=LARGEST), Whole]
Dim = Annotated[int, Field(ge=1, le=65536), Whole]


class Part(Record):
    """A part of a report; what later versions of FBGEMM add to it is left aside."""

    model_config = ConfigDict(extra="ignore")


class IndicesParams(Part):
    """FBGEMM's IndicesParams."""

    heavy_hitters: tuple[Annotated[float, Field(ge=0, le=1 + TOLERANCE)], ...]
    zipf_q: PositiveFloat
    zipf_s: Annotated[float, Field(gt=0, le=100)]

    @model_validator(mode="after")
    def _probabilities(self) -> Self:
        if (total := sum(self.heavy_hitters)) > 1 + TOLERANCE:
            raise ConflictError(f"probabilities whose sum is {total:g}, more than 1", "heavy_hitters")
        return self

    @property
    def law(self) -> IdLaw:
        """The same, hottest first."""
        return IdLaw(tuple(sorted((p for p in self.heavy_hitters if p > 0), reverse=True)), self.zipf_q, self.zipf_s)


class BatchParams(Part):
    """FBGEMM's BatchParams: vectors that are asked for, of all features on the mean and of each."""

    B: Count
    Bs: tuple[Size, ...] | None = None


class PoolingParams(Part):
    """FBGEMM's PoolingParams: ids of a vector, of all features on the mean and of each."""

    L: NonNegativeFloat
    Ls: tuple[NonNegativeFloat, ...] | None = None


class Report(Part):
    """FBGEMM's TBEDataConfig: lists have an entry for each of T features."""

    T: Annotated[int, Field(ge=1, le=100_000), Whole]
    E: Count
    D: Dim
    weighted: bool
    batch_params: BatchParams
    indices_params: IndicesParams
    pooling_params: PoolingParams
    Es: tuple[Count, ...] | None = None
    Ds: tuple[Dim, ...] | None = None
    feature_table_map: tuple[Size, ...] | None = None
    indices_params_list: tuple[IndicesParams, ...] | None = None

    @model_validator(mode="after")
    def _one_entry_a_feature(self) -> Self:
        lists = {
            "Es": self.Es,
            "Ds": self.Ds,
            "feature_table_map": self.feature_table_map,
            "indices_params_list": self.indices_params_list,
            "batch_params.Bs": self.batch_params.Bs,
            "pooling_params.Ls": self.pooling_params.Ls,
        }
        for key, entries in lists.items():
            if entries is not None and len(entries) != self.T:
                entry = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
                raise ConflictError(f"has {entry} for T = {counted(self.T, 'feature')}", key)
        for features in self.tables:
            if len({self.shape(feature) for feature in features}) > 1:
                message = f"features {listed([*map(str, features)])} share a table, but not its rows and columns"
                raise ConflictError(message, "feature_table_map")
        for feature in range(self.T):
            hot, rows = len(self.law(feature).hitters), self.shape(feature)[0]
            if self.indices_params_list is not None and hot > rows:
                message = f"has {hot} heavy_hitters, and the table {counted(rows, 'row')}"
                raise ConflictError(message, f"indices_params_list.{feature}")
        return self

    @property
    def tables(self) -> list[list[int]]:
        """The features of each table."""
        of_table: dict[int, list[int]] = {}
        for feature, table in enumerate(self.feature_table_map or range(self.T)):
            of_table.setdefault(table, []).append(feature)
        return [of_table[table] for table in sorted(of_table)]

    def shape(self, feature: int) -> tuple[int, int]:
        """Rows and columns of a feature's table."""
        return self.Es[feature] if self.Es else self.E, self.Ds[feature] if self.Ds else self.D

    def law(self, feature: int) -> IdLaw:
        """Of the feature's ids; of all ids, which may be more than its table has, where the report has no more."""
        if self.indices_params_list:
            return self.indices_params_list[feature].law
        law = self.indices_params.law
        return replace(law, hitters=law.hitters[: self.shape(feature)[0]])

    def batch(self, feature: int) -> int:
        """Vectors of a feature."""
        return self.batch_params.Bs[feature] if self.batch_params.Bs else self.batch_params.B

    def ids(self, feature: int) -> float:
        """Ids of a feature in the batch."""
        length = self.pooling_params.Ls[feature] if self.pooling_params.Ls else self.pooling_params.L
        return length * self.batch(feature)


@dataclass(frozen=True)
class Operator:
    """One TBE and its reports, in the order of its iterations."""

    name: str
    files: Sequence[Path]
    reports: Sequence[Report]

    @property
    def features(self) -> range:
        """Of each report."""
        return range(self.reports[0].T)

    def batch(self, feature: int) -> float:
        """Vectors of a feature, mean of the reports."""
        return sum(report.batch(feature) for report in self.reports) / len(self.reports)

    @property
    def samples(self) -> int:
        """Samples of a batch: those of the feature that has the most vectors."""
        return max(round(max(map(self.batch, self.features))), 1)

    def expect_one_shape(self) -> None:
        """Raise InputError for reports of one name that are not of the same tables."""
        first = self.reports[0]
        for file, report in zip(self.files[1:], self.reports[1:], strict=True):
            if (first.T, first.tables, first.weighted) != (report.T, report.tables, report.weighted) or any(
                first.shape(feature) != report.shape(feature) for feature in self.features
            ):
                message = f"has other tables than {self.files[0].name}, of the same operator; keep reports of one run"
                raise InputError.at(str(file), message, path="Es")


def read_tbe_reports(path: Path) -> StatedWorkload:
    """The tables of one report, or of a folder of them: several iterations of an operator are averaged, several
    operators give more tables. Raises InputError for what is no report, and reports that do not go together."""
    operators = list(_operators(path))
    samples = max(operator.samples for operator in operators)
    tables, idle = [], list[str]()
    for number, operator in enumerate(operators, 1):
        prefix = f"tbe{number}_" if len(operators) > 1 else ""
        for index, features in enumerate(operator.reports[0].tables):
            profile, is_read = _profile(f"{prefix}table_{index}", operator, features)
            tables.append(StatedTable(profile, str(operator.files[0])))
            idle += [] if is_read else [str(profile["name"])]
    warnings = [*_warnings(operators), *([f"no ids of {listed(idle)} in the reports: taken as one"] if idle else [])]
    return StatedWorkload(tables, {"global_batch": samples}, unsaid=[*_unsaid(operators)], warnings=warnings)


def _operators(path: Path) -> Iterator[Operator]:
    if not path.is_dir():
        yield Operator(path.name, [path], [_report(path)])
        return
    found: dict[str, list[tuple[int, Path]]] = {}
    for file in sorted(path.iterdir()):
        if (match := NAME.fullmatch(file.name)) and len(match["iteration"]) < 20:
            found.setdefault(match["op"], []).append((int(match["iteration"]), file))
    if not found:
        raise InputError.at(str(path), "holds no report: no file tbe-OPERATOR-config-estimation-ITERATION.json")
    for name in sorted(found):
        files = [file for _, file in sorted(found[name])]
        operator = Operator(name, files, [_report(file) for file in files])
        operator.expect_one_shape()
        yield operator


def _report(path: Path) -> Report:
    data = read_json(path, "is no TBEDataConfig: it must be a mapping of keys")
    with faults_located(path):
        return validate(Document(data, str(path)), Report)


def _profile(name: str, operator: Operator, features: Sequence[int]) -> tuple[dict[str, object], bool]:
    """A table's profile, and whether any id of it was read."""
    first = operator.reports[0]
    rows, dim = first.shape(features[0])
    laws = [(report.law(each), report.ids(each)) for report in operator.reports for each in features]
    ids = sum(read for _, read in laws) / len(operator.reports)
    vectors = sum(map(operator.batch, features)) / len(features)
    profile: dict[str, object] = {
        "name": name,
        "rows": rows,
        "dim": dim,
        "pooling_factor": round(ids / operator.samples, 9) or 1 / operator.samples,
        "features": len(features),
    }
    poolings = round(vectors / operator.samples, 9)
    if poolings not in (0.0, 1.0):
        profile["poolings"] = poolings
    if first.weighted:
        profile["weighted"] = True
    return profile | access_profile(laws, rows), ids > 0


def _warnings(operators: Sequence[Operator]) -> Iterator[str]:
    reports = [report for operator in operators for report in operator.reports]
    if any(report.Es is None or report.Ds is None for report in reports):
        yield "reports without Es or Ds have means alone: their tables are taken as equal"
    if any(report.indices_params_list is None for report in reports):
        yield "reports without indices_params_list have one distribution of ids, which is taken for every table"
    if any(report.pooling_params.Ls is None for report in reports):
        yield "reports without Ls have one length L of lists, which is taken for every feature"
    batches = sorted({operator.samples for operator in operators})
    if len(batches) > 1:
        sizes = listed([f"{size:,}" for size in batches])
        yield f"the operators have batches of {sizes}: the largest is global_batch, ids are those of a sample of each"


def _unsaid(operators: Sequence[Operator]) -> Iterator[str]:
    yield "what other ranks hold: an operator's report has the tables, rows and columns of its own rank's shards"
    yield (
        "global_batch: taken from the operator, which sees the whole batch of tables that are sharded by tables, rows"
        " or columns, but only its own rank's batch of tables that every rank holds"
    )
    yield (
        "access beyond one batch: FBGEMM fits its law to the ids of one, here continued over all rows; features of a"
        " table are taken to share their hot rows"
    )
    yield "names, dtype and optimizer of tables; pooled: false for sequences; dense; pipeline; communication"
    if any(len(operator.reports) > 1 for operator in operators):
        yield f"mean of the reports of {counted(max(len(o.reports) for o in operators), 'iteration')} of an operator"
    if len(operators) > 1:
        for number, operator in enumerate(operators, 1):
            yield f"tbe{number}_ is the operator {operator.name}"
