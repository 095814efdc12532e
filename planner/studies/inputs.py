"""What each point of a study is planned for: the cluster, the workload, the policy and the prices after its changes."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from cost_models.workload.loading import changed_workload
from cost_models.workload.models import Workload
from planner.capacity.prices import PriceSheet, load_prices
from planner.formulation.dense_choices import expect_one_strategy
from planner.formulation.policy import Policy, policy_document
from planner.formulation.software import priced_as_run
from planner.studies.grid import AxisChange, Grid, Point
from planner.studies.growth import check_factor, grown
from topologies.cluster import Topology
from topologies.documents import Document, Key, Origin, assign_everywhere, validate
from topologies.errors import Fault, InputError
from topologies.loading import changed_topology
from topologies.sources import is_file

Input = TypeVar("Input")


@dataclass(frozen=True)
class StudyInputs:
    """The inputs of one point."""

    topology: Topology
    workload: Workload
    policy: Policy
    prices: PriceSheet | None


class Resolver:
    """Makes inputs; what points share is made once."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._made: dict[str, object] = {}

    def inputs(self, point: Point) -> StudyInputs:
        """What a point is planned for. Raises InputError, at what the study or one of its files says."""
        combined = _together(
            lambda: self._topology(point),
            lambda: self._workload(point),
            lambda: self._policy(point),
            lambda: self._prices(point),
        )
        return replace(combined, workload=self._priced_as_run(combined))

    def _priced_as_run(self, inputs: StudyInputs) -> Workload:
        """One object for all points that share it."""
        policy, dense = inputs.policy, inputs.policy.dense
        held = f"{None if dense is None else dense.settled} {policy.checkpointing}"
        key = f"{id(inputs.workload)} {policy.runtime} {held}"
        if key not in self._made:
            self._made[key] = priced_as_run(inputs.workload, inputs.policy)
        return self._made[key]  # type: ignore[return-value]

    def _topology(self, point: Point) -> Topology:
        return self._whole("topology", point, changed_topology)

    def _workload(self, point: Point) -> Workload:
        rows, tables = (self._factor(point, name) for name in ("growth.rows", "growth.tables"))

        def make(source: str, changes: list[tuple[str, Any, Origin]]) -> Workload:
            return grown(changed_workload(source, changes), rows=rows, tables=tables)

        return self._whole("workload", point, make, rows, tables)

    def _policy(self, point: Point) -> Policy:
        def make(source: str | None, changes: list[tuple[str, Any, Origin]]) -> Policy:
            document = policy_document(source)
            for path, value, origin in changes:
                assign_everywhere(document, path, value, Policy, origin)
            policy = validate(document, Policy)
            policy.expect_nominal("points of a study are")
            expect_one_strategy(policy.dense, "points of a study are")
            policy.expect_no_moves()
            return policy

        return self._whole("policy", point, make)

    def _prices(self, point: Point) -> PriceSheet | None:
        def make(source: str | None, _changes: object) -> PriceSheet | None:
            return None if source is None else load_prices(source)

        return self._whole("prices", point, make)

    def _factor(self, point: Point, path: str) -> float:
        factor = 1.0
        for change in point.changes:
            if change.field.path == path:
                try:
                    factor = check_factor(change.value)
                except ValueError as error:
                    raise InputError([self._grid.document.fault(change.where, str(error))]) from None
        return factor

    def _whole(self, root: str, point: Point, make: Callable[[Any, Any], Input], *more: object) -> Input:
        """The input of a kind: its source, last named by the point, with the changes of its fields in their order."""
        changes = [change for change in point.changes if change.field.root == root]
        source: object = getattr(self._grid.study, root)
        where: tuple[Key, ...] = (root,)
        for change in changes:
            if not change.field.inside:
                source, where = change.value, change.where
        inner = [(change.field.inside, change.value, self._origin(change)) for change in changes if change.field.inside]
        key = json.dumps([root, source, [change[:2] for change in inner], *more], default=str)
        if key not in self._made:
            self._made[key] = self._attempt(root, source, where, inner, make)
        whole = self._made[key]
        if isinstance(whole, InputError):
            raise whole
        return whole  # type: ignore[return-value]

    def _attempt(
        self,
        root: str,
        source: object,
        where: tuple[Key, ...],
        inner: list[tuple[str, Any, Origin]],
        make: Callable[[Any, Any], Input],
    ) -> Input | InputError:
        document = self._grid.document
        if source is None and root in ("topology", "workload"):
            message = f"is missing; name a {root} here, or in every scenario, or as an axis"
            return InputError([document.fault((root,), message)])
        if source is not None and not isinstance(source, str):
            return InputError([document.fault(where, "must be a catalog name or the path of a file")])
        try:
            if source is None:
                return make(None, inner)
            return named_in(document, where, source, lambda found: make(found, inner))
        except InputError as error:
            return error

    def _origin(self, change: AxisChange) -> Origin:
        return self._grid.document, change.where


def named_in(document: Document, where: tuple[Key, ...], source: str, make: Callable[[str], Input]) -> Input:
    """What is made of the file or catalog name that a document names at `where`.

    A file beside the document wins over one from here, and both over a catalog name; `@…` may follow its name. Raises
    InputError: where there is no such file or name, at the document.
    """
    directory = document.directory or Path()
    file = source if is_file(directory / source) else source.partition("@")[0]
    beside = directory / file
    try:
        return make(f"{beside}{source.removeprefix(file)}" if is_file(beside) else source)
    except InputError as error:
        if {fault.source for fault in error.faults} == {source}:
            raise InputError(document.fault(where, f"{source!r}: {fault.message}") for fault in error.faults) from None
        raise


def _together(
    topology: Callable[[], Topology],
    workload: Callable[[], Workload],
    policy: Callable[[], Policy],
    prices: Callable[[], PriceSheet | None],
) -> StudyInputs:
    """All four, or the faults of all."""
    made: list[object] = []
    faults: list[Fault] = []
    for make in (topology, workload, policy, prices):
        try:
            made.append(make())
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(dict.fromkeys(faults))
    return StudyInputs(*made)  # type: ignore[arg-type]


def resolved(grid: Grid, points: Iterable[Point]) -> tuple[list[Point], list[StudyInputs | InputError]]:
    """Points with their inputs, or what is wrong with them.

    Raises InputError where something the study says never works: all points with one of its values fail, or all points.
    """
    resolver, points = Resolver(grid), list(points)
    made: list[StudyInputs | InputError] = []
    for point in points:
        try:
            made.append(resolver.inputs(point))
        except InputError as error:
            made.append(error)
    _refuse_what_never_works(points, made)
    return points, made


def _refuse_what_never_works(points: list[Point], made: list[StudyInputs | InputError]) -> None:
    works: set[tuple[Key, ...]] = set()
    for point, inputs in zip(points, made, strict=True):
        if isinstance(inputs, StudyInputs):
            works.update(_values(point))
    faults: dict[Fault, None] = {}
    for point, inputs in zip(points, made, strict=True):
        if isinstance(inputs, InputError) and (not works or not _values(point) <= works):
            faults.update(dict.fromkeys(inputs.faults))
    if faults:
        raise InputError(faults)


def _values(point: Point) -> set[tuple[Key, ...]]:
    """Which values of the study a point has: where each stands, with the value itself for those of a range."""
    return {(*change.where, json.dumps(change.value, default=str)) for change in point.changes}
