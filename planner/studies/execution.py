"""A study from its grid to all answers: what was computed before is not computed again, the rest goes to a runner."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from cost_models.workload.models import Workload
from planner.studies.grid import Grid, Point
from planner.studies.inputs import StudyInputs, resolved
from planner.studies.point import Answer, Job, answer, failed, job_key, shape
from planner.studies.runners import Runner
from planner.studies.store import Store
from topologies.cluster import Topology
from topologies.errors import InputError


@dataclass(frozen=True)
class Done:
    """A point with its answer."""

    point: Point
    inputs: StudyInputs | None
    """None where the study has none for it."""
    answer: Answer
    from_store: bool = False


@dataclass
class _Task:
    """Points whose figures are the same job's."""

    key: str
    job: Job
    points: list[int]
    leader: str | None = None
    """Key of the job whose plan this one begins with."""
    leads: bool = False


def _before(at: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The neighbours of a point in the grid that come before it, one step along one axis: the last axis first."""
    for axis in reversed(range(len(at))):
        if at[axis]:
            yield (*at[:axis], at[axis] - 1, *at[axis + 1 :])


class Execution:
    """The jobs of a study's points: equal ones once, and each that differs from another one in rates only after it."""

    def __init__(self, grid: Grid, points: Iterable[Point], *, keeps_plans: bool = False) -> None:
        """Raises InputError for what never works (see `inputs.resolved`)."""
        self._search = grid.study.search
        self._keeps_plans = keeps_plans
        self._prints: dict[int, str] = {}
        self.points, self._inputs = resolved(grid, points)
        self._tasks: dict[str, _Task] = {}
        self._known: dict[str, str] = {}
        """Key of the task for each content of a job."""
        placed: dict[tuple[object, ...], str] = {}
        for at, inputs in enumerate(self._inputs):
            if isinstance(inputs, StudyInputs):
                self._add(at, inputs, placed)

    def __len__(self) -> int:
        return len(self.points)

    def _add(self, at: int, inputs: StudyInputs, placed: dict[tuple[object, ...], str]) -> None:
        point, workload = self.points[at], self._print(inputs.workload)
        group = (workload, inputs.policy.model_dump_json(), shape(inputs.topology))
        content = (self._print(inputs.topology), workload, inputs.policy, self._search)
        alone = job_key(*content, None)
        if alone not in self._known:
            leader = next((placed[(*group, near)] for near in _before(point.at) if (*group, near) in placed), None)
            key = alone if leader is None else job_key(*content, leader)
            if leader is not None:
                self._tasks[leader].leads = True
            job = Job(inputs.topology, inputs.workload, inputs.policy, self._search, self._keeps_plans)
            self._known[alone] = key
            self._tasks[key] = _Task(key, job, [], leader)
        placed[(*group, point.at)] = self._known[alone]
        self._tasks[self._known[alone]].points.append(at)

    def _print(self, record: Topology | Workload) -> str:
        """The fingerprint; of what many points share, computed once."""
        if id(record) not in self._prints:
            self._prints[id(record)] = record.fingerprint()
        return self._prints[id(record)]

    def run(self, runner: Runner, store: Store | None, stop: Callable[[], bool] | None = None) -> Iterator[Done]:
        """Each point once, as its answer comes; ends early when `stop` says so."""
        is_over = stop or (lambda: False)
        for at, inputs in enumerate(self._inputs):
            if isinstance(inputs, InputError):
                reason = "; ".join(fault.message for fault in inputs.faults)
                yield Done(self.points[at], None, Answer(failed(None, reason)))
        followers: dict[str, list[_Task]] = {}
        for task in self._tasks.values():
            if task.leader is not None:
                followers.setdefault(task.leader, []).append(task)
        ready = [task for task in self._tasks.values() if task.leader is None]
        at_work: dict[int, _Task] = {}
        count = 0
        while ready or at_work:
            waiting, ready = ready, []
            for task in waiting:
                known = (
                    None if store is None else store.get(task.key, with_plan=self._keeps_plans, with_start=task.leads)
                )
                if known is not None:
                    ready += self._follow(task, known, followers)
                    yield from self._done(task, known, from_store=True)
                else:
                    runner.submit(count, task.job)
                    at_work[count] = task
                    count += 1
            if is_over():
                return
            for number, came in (runner.completed() if at_work else {}).items():
                task = at_work.pop(number)
                if store is not None and not came.is_bug:
                    store.put(task.key, came)
                ready += self._follow(task, came, followers)
                yield from self._done(task, came, from_store=False)

    def _follow(self, task: _Task, answer: Answer, followers: dict[str, list[_Task]]) -> list[_Task]:
        """The jobs that waited for this one's plan."""
        waited = followers.pop(task.key, [])
        for each in waited:
            each.job = replace(each.job, start=answer.start)
        return waited

    def _done(self, task: _Task, answer: Answer, *, from_store: bool) -> Iterator[Done]:
        for at in task.points:
            inputs = self._inputs[at]
            assert isinstance(inputs, StudyInputs)
            yield Done(self.points[at], inputs, answer, from_store)

    def timed(self) -> Iterator[Answer]:
        """Some jobs spread over the grid, computed here and now."""
        tasks = list(self._tasks.values())
        for task in dict.fromkeys((tasks[0].key, tasks[len(tasks) // 2].key, tasks[-1].key)) if tasks else ():
            yield answer(self._tasks[task].job)
