"""What a step takes before any table is placed: constants of its stages, and loads of every rank's resources."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cost_models import collectives, towers
from cost_models.activations import are_any_checkpointed
from cost_models.beside_dense import BesideDense, DensePasses, EvenTables, Seconds, least
from cost_models.beside_products import BesideRates
from cost_models.coefficients import SoftwareCoefficients
from cost_models.cost_arrays import Column
from cost_models.dense import DensePass, dense_seconds
from cost_models.dense_sharding import ShardedDense, sharding_of
from cost_models.dense_size import dense_size
from cost_models.exchange_lines import ExchangeLine
from cost_models.first_answers import first_answer_s
from cost_models.kinds import RankKind
from cost_models.memory import Batching
from cost_models.replication import Replication
from cost_models.resources import CARDS, DEVICE, FETCHES, LINKS, STASH_OUT, SUMS, Resource
from cost_models.schedule import Schedule
from cost_models.shards import Floats, Ints
from cost_models.stages import CUT_TERMS, UPDATE
from cost_models.stashing import beside_stash
from cost_models.step_exchanges import reduction_line
from cost_models.tables import Tables
from cost_models.workload.models import Workload
from topologies.cluster import Topology


@dataclass
class StepBase:
    """Launches, first answers and the dense part of one workload on K kinds of rank, and what runs beside that."""

    topology: Topology
    workload: Workload
    tables: Tables
    kinds: tuple[RankKind, ...]
    batching: Batching
    schedule: Schedule
    software: SoftwareCoefficients
    replication: Replication | None
    answers_apart: bool = False
    """Whether waits for first answers of memories are a law of their own (see `first_answers`), and no load."""
    sharded: ShardedDense | None = field(init=False)
    """None where ranks replicate the dense part."""
    constants: Floats = field(init=False)
    """[stages] seconds without the latencies of exchanges."""
    loads: Floats = field(init=False)
    """[K, C] seconds on each rank's resources."""
    unshared: Floats = field(init=False)
    """[K, C] what comes on top of them, of what is prefetched, whatever share of that shows in which stage."""
    answers: Floats = field(init=False)
    """[K, C] what placements wait for first answers beside the step before, where that is a law of its own."""
    begins: Floats = field(init=False)
    """[K, C] the part of them in which nothing is done yet."""
    dense: tuple[DensePass, ...] = field(init=False)
    """[K] the dense part on each kind of rank."""
    passes: tuple[DensePass | DensePasses, ...] = field(init=False)
    """The same, or that of many models."""
    sums_latency_s: Seconds = field(init=False)
    """The wait of each sum of its gradients for the first byte, where ranks replicate it."""
    overhead_s: Seconds = field(init=False)
    """The fixed overhead."""
    after_dense_s: tuple[Seconds, ...] = field(init=False, default=())
    """[K] from the dense part to the end of the update of embeddings, beside which sums of gradients go on."""
    cut_shares: dict[str, float] = field(init=False, default_factory=dict)
    """What each stage takes of cutting copies over their replicas, and of gathering them."""

    def __post_init__(self) -> None:
        is_sharded = sharding_of(self.workload).is_sharded
        self.sharded = ShardedDense(self.topology, self.workload) if is_sharded else None
        passes = self.software.activation_passes.value
        self.dense = tuple(self._dense_seconds(kind, passes) for kind in self.kinds)
        self.passes = self.dense
        self.sums_latency_s = self._sums_latency_s()
        self.overhead_s = float(self.schedule.overheads.sum())
        self.constants = self.schedule.overheads.copy()
        self.loads = self.own_loads()
        self.unshared, self.begins = np.zeros_like(self.loads), np.zeros_like(self.loads)
        self.answers = np.zeros_like(self.loads)
        if self.answers_apart and self.schedule.is_prefetched:
            for k, kind in enumerate(self.kinds):
                self.put(self.answers[k], "cache_fetch", _in_step(FETCHES, first_answer_s([kind]), kind), k)

    def own_loads(self) -> Floats:
        """[K, C] launches, first answers, the dense part."""
        loads = np.zeros((len(self.kinds), len(self.schedule.columns)))
        software, workload = self.software, self.workload
        parameters = dense_size(workload).parameters
        gradient = parameters * self.tables.gradient_wire_bytes
        coded = software.codec_passes.value * parameters * self.tables.gradient_codec_bytes
        for k, kind in enumerate(self.kinds):
            self.put(loads[k], "lookup_forward", _in_step(DEVICE, kind.lookup_launch_s, kind), k)
            answers_s = 0.0 if self.answers_apart else first_answer_s([kind])
            self.put(loads[k], "cache_fetch", _in_step(FETCHES, answers_s, kind), k)
            dense = self.dense[k]
            self.put(loads[k], "dense", {DEVICE: dense.rest_s}, k)
            self.put(loads[k], "bottom_mlp_forward", {DEVICE: dense.bottom_forward_s}, k)
            if workload.mode == "training":
                self.put(loads[k], "lookup_backward", _in_step(DEVICE, kind.update_launch_s, kind), k)
                self.put(loads[k], "bottom_mlp_backward", {DEVICE: dense.bottom_backward_s}, k)
                self.put(loads[k], "dense", {DEVICE: coded / kind.hbm_bytes_per_s}, k)
                self.put(loads[k], "all_reduce", self._summed_over(gradient, k), k)
                late, coded_s = are_any_checkpointed(workload), coded / kind.hbm_bytes_per_s
                self.put(loads[k], "stash", beside_stash(dense, coded_s, kind, returns_late=late), k)
                if self.sharded is not None:
                    for term, first in (("bottom_mlp_forward", True), ("dense_units", False)):
                        self.put(loads[k], term, _over_links(self.sharded.gathered_over(first=first), k), k)
            if self.schedule.has_towers and workload.tower_modules:
                for term, seconds in towers.module_loads(workload, kind, self.batching, software).items():
                    self.put(loads[k], term, seconds, k)
        return loads

    def _summed_over(self, gradient_bytes: float, kind: int) -> dict[Resource, float]:
        """What sums of the dense gradients keep busy on a kind of rank, and gathers beside them where it is sharded."""
        if self.sharded is not None:
            return _over_links(self.sharded.summed_over(), kind)
        port = self._reduction_port(gradient_bytes, kind)
        reduce = collectives.all_reduce_seconds(gradient_bytes, self.summing_kinds[kind], port)
        return {resource: float(value) for resource, value in reduce.items()}

    @property
    def summing_kinds(self) -> tuple[RankKind, ...]:
        """What ranks achieve in sums over all ranks."""
        return self.kinds if self.replication is None else self.replication.gradients.kinds

    def _dense_seconds(self, kind: RankKind, passes: float) -> DensePass:
        """Those of the dense part on a kind of rank, with activations `passes` times through device memory."""
        samples = self.batching.samples_per_rank
        dense = dense_seconds(self.workload, samples, kind, passes)
        return dense if self.sharded is None else self.sharded.stalled(dense, samples, kind, passes)

    def activation_seconds(self) -> float:
        """Seconds of the stage `dense` in which activations cross device memory, on the slowest kind of rank; where
        kernels beside products are counted, all that these take."""
        passes = self.software.activation_passes.value
        slowest = max(self.kinds, key=lambda kind: self._dense_seconds(kind, passes).rest_s)
        without = slowest if slowest.beside.counted is None else replace(slowest, beside=BesideRates())
        return self._dense_seconds(slowest, passes).rest_s - self._dense_seconds(without, 0.0).rest_s

    def _sums_latency_s(self) -> float:
        """The wait of a sum of gradients of mean size, by the line of the law on which it ends first."""
        whole = dense_size(self.workload).parameters * self.tables.gradient_wire_bytes
        size = whole / max(self.dense[0].bucket_count, 1.0)

        def ends_s(line: ExchangeLine) -> float:
            busy_s = [line.latency_s]
            for kind, port in zip(self.summing_kinds, line.port_bytes_per_s, strict=True):
                for resource, own_s in collectives.all_reduce_seconds(size, kind, port).items():
                    ranks = np.bincount(self.schedule.resource_of_rank(resource)).max()
                    busy_s.append(line.latency_s + float(own_s) * ranks)
            return max(busy_s)

        return min(self.schedule.reduction_lines, key=ends_s).latency_s if self.schedule.reduction_lines else 0.0

    def _reduction_port(self, gradient_bytes: float, kind: int) -> float | None:
        """Rate of a port in the all-reduce of the dense gradients, whose latency becomes the stage's; None for that of
        many bytes, where the backward pass hides it. Gradients of tables come on top at the rate of many bytes, which
        is no slower than what more bytes take by the law."""
        if "all_reduce" not in self.schedule.collectives:
            return None
        line = reduction_line(self.schedule.lines["all_reduce"], self.summing_kinds, gradient_bytes)
        self.constants[self.schedule.stages.index("all_reduce")] = line.latency_s
        return line.port_bytes_per_s[kind]

    def let_others_run_beside_the_dense_part(
        self, updates_s: tuple[Seconds, ...], parts: tuple[EvenTables, ...]
    ) -> None:
        """Ids and prefetched misses begin as long before the stages in which they show as others hide them; sums of
        gradients begin when there are some.

        Where others hide something of the stage of the dense part, everything else in it is given the hidden seconds on
        top, and its constant takes them off again: no load is below zero but those of ids and prefetched misses.
        `parts` are tables that are spread evenly, `updates_s` [K] the seconds on each device of their update. Where
        they are those of many models with one dense part (`of_models`), so is everything that follows from them.
        """
        schedule, beside = self.schedule, self.beside_dense(updates_s, parts)
        self.after_dense_s = tuple(map(beside.after_s, range(len(self.kinds))))
        has_cut = CUT_TERMS["dense"] in schedule.stage_of_term
        summing = self._summing
        taken_s = self._busy_s(summing).max(axis=1, initial=0.0)
        if schedule.stage_of_term.get("all_reduce") == "dense":
            begin_s = beside.sums_begin_s(taken_s)
            if has_cut:  # copies use the links before sums begin: the stage ends no earlier than these
                self._end_no_earlier(np.maximum(np.array(begin_s, dtype=float), 0.0) + taken_s)
            else:
                self._delay(summing, begin_s)
                if schedule.stage_of_term.get("stash") == "dense":
                    self._delay_by_stash(summing)
                # Sums may begin before the part: the stage begins with them, so that no load is below zero.
                self._hide(np.maximum(-least(begin_s), 0.0), lambda _: False)
        if schedule.update_hides_sums:
            left = schedule.columns.index(Column(schedule.stages.index(UPDATE), SUMS))
            for k, left_s in enumerate(beside.left_s(taken_s, self._dense_s())):
                self.loads[k, left] = np.maximum(left_s, 0.0)
        if ahead := schedule.columns_ahead:
            # Below zero until they outlast what hides them: a stage's own loads are what it is compared by.
            hidden_s = beside.hidden_s() + self._dense_s()
            if schedule.is_prefetched:
                self._leave_unshared(ahead, hidden_s - beside.waits_s())
                hidden_s = beside.waits_s()
            self._delay(ahead, [-hidden_s] * len(self.kinds))
        if has_cut:
            self._divide_cut(beside, taken_s)

    def _leave_unshared(self, ahead: Sequence[int], hidden_s: Seconds) -> None:
        """Take out of these columns what is no share of what is prefetched, but shows in the stage of the update alone:
        gradients that share links with ids, less `hidden_s` in which the dense part hides both. Sums that outlast it
        show there in full, too (`left_s`): where lookups were shortened by a share of what it hides, a longer dense
        part would make the step shorter."""
        sharing = self._ranks_sharing(ahead)
        for n, c in enumerate(ahead):
            if self.schedule.stages[self.schedule.columns[c].stage] == UPDATE:
                for k, whole_s in enumerate(self.loads[:, c]):
                    self.unshared[k, c] = whole_s - hidden_s / sharing[k, n]
            self.loads[:, c] = 0.0

    def _delay_by_stash(self, summing: Sequence[int]) -> None:
        """What has not left when the forward pass ends delays the backward pass, and with it the sums of its gradients
        on these columns, which may end after it."""
        if not summing:
            return
        column = self.schedule.columns.index(Column(self.schedule.stages.index("dense"), STASH_OUT))
        sharing = self._ranks_sharing(summing)
        for k, kind in enumerate(self.kinds):
            end_s: Seconds = np.max(
                [self.loads[k, c] * ranks for c, ranks in zip(summing, sharing[k], strict=True)], axis=0
            )
            after_s = np.maximum(end_s - self.passes[k].rest_forward_s, 0.0) / kind.pcie_ranks
            self.loads[k, column] = np.maximum(self.loads[k, column], after_s)

    def _divide_cut(self, beside: BesideDense, sums_s: Floats) -> None:
        """Give each stage its part of cutting and gathering copies, and of the wait for their first bytes, where sums
        of gradients keep links busy for `sums_s` [K]."""
        schedule, over = self.schedule, beside.copied_over
        shares = beside.cut_shares(sums_s.tolist())
        self.cut_shares = shares.of_stage
        self._hide(shares.hidden_s, lambda resource: resource in over)
        for stage, late_s in shares.waiting_s.items():
            carriers = {schedule.carrier(stage, resource) for resource in over}
            columns = [
                c
                for c, column in enumerate(schedule.columns)
                if schedule.stages[column.stage] == stage and column.resource in carriers
            ]
            self._delay(columns, [late_s] * len(self.kinds))

    def _end_no_earlier(self, end_s: Floats) -> None:
        """Let devices be busy with the dense part for so long, [K]."""
        device = self.schedule.columns.index(Column(self.schedule.stages.index("dense"), DEVICE))
        later_s = np.maximum(end_s - self.loads[:, device], 0.0)
        self.loads[:, device] += later_s
        self.begins[:, device] += later_s

    @property
    def _summing(self) -> list[int]:
        """The columns of the dense part's stage that have the sums of its gradients, and nothing that comes before."""
        return [c for c, column in enumerate(self.schedule.columns) if self.schedule.sums(column)]

    def most_hidden_sums(self) -> Floats:
        """[K, C] of what sums of gradients load in the stage of the dense part, the most that goes on after it."""
        hidden = np.zeros_like(self.loads)
        if self.schedule.stage_of_term.get("all_reduce") == "dense":
            after_s = np.array(self.after_dense_s, dtype=float)[:, None]
            hidden[:, self._summing] = after_s / self._ranks_sharing(self._summing)
        return hidden

    def _dense_s(self) -> Seconds:
        """How long the stage of the dense part lasts whatever is placed."""
        stage = self.schedule.stages.index("dense")
        of_stage = [c for c, column in enumerate(self.schedule.columns) if column.stage == stage]
        longest_s: Seconds = self._busy_s(of_stage).max(axis=(0, 1)) + self.constants[stage]
        return longest_s

    def _busy_s(self, columns: Sequence[int]) -> Floats:
        """[K, columns] seconds, or those of n models each, for which what a rank of each kind uses is busy."""
        sharing = self._ranks_sharing(columns)
        return np.asarray(self.loads[:, columns] * (sharing if self.loads.ndim == 2 else sharing[:, :, None]))

    def _hide(self, hidden: Seconds, hides: Callable[[Resource], bool]) -> None:
        """Let work on the resources that `hides` names begin so many seconds before the dense part; where they are
        below zero, that long after its begin."""
        stage = self.schedule.stages.index("dense")
        of_stage = [c for c, column in enumerate(self.schedule.columns) if column.stage == stage]
        hiding = [c for c in of_stage if hides(self.schedule.columns[c].resource)]
        self.constants[stage] -= np.maximum(hidden, 0.0)
        self._delay(hiding, [np.maximum(-hidden, 0.0)] * len(self.kinds))
        others = [c for c in of_stage if c not in hiding]
        self._delay(others, [np.maximum(hidden, 0.0)] * len(self.kinds))

    def _ranks_sharing(self, columns: Sequence[int]) -> Floats:
        """[K, columns] ranks that share what a rank of each kind uses."""
        schedule = self.schedule
        instances = [schedule.resource_of_rank(schedule.columns[c].resource) for c in columns]
        sharing = [np.bincount(instance)[instance] for instance in instances]
        kinds = range(len(self.kinds))
        return np.array([[of[schedule.kind_of_rank == k].max() for of in sharing] for k in kinds], dtype=float)

    def _delay(self, columns: Sequence[int], seconds: Sequence[Seconds]) -> None:
        """Let work on the resources of these columns begin so many `seconds` [K] later."""
        for c in columns:
            sharing = self._ranks_sharing([c])[:, 0]
            for k, late_s in enumerate(seconds):
                later_s = late_s / sharing[k]
                self.loads[k, c] += later_s
                self.begins[k, c] += later_s

    @classmethod
    def of_models(cls, bases: Sequence["StepBase"], which: Ints) -> "StepBase":
        """Those of n models, each with the dense part of one of `bases`, before anything runs beside it: loads
        [K, C, n], constants [stages, n]."""
        many = copy.copy(bases[0])
        many.loads, many.constants = (
            np.moveaxis(np.stack(part)[which], 0, -1)
            for part in ([base.loads for base in bases], [base.constants for base in bases])
        )
        many.unshared, many.begins = np.zeros_like(many.loads), np.zeros_like(many.loads)
        many.sums_latency_s, many.overhead_s = (
            np.array(part)[which] for part in ([b.sums_latency_s for b in bases], [b.overhead_s for b in bases])
        )
        many.passes = tuple(DensePasses.of(each, which) for each in zip(*(base.dense for base in bases), strict=True))
        return many

    def put(self, target: Floats, term: str, seconds: dict[Resource, float], kind: int) -> None:
        """Add to `target` [C] what seconds of a term on resources of a kind of rank load."""
        for resource, value in seconds.items():
            for column, factor in self.schedule.targets(term, resource, kind):
                target[column] += value * factor

    def beside_dense(self, updates_s: tuple[Seconds, ...], parts: tuple[EvenTables, ...]) -> BesideDense:
        """The windows in which others run beside the dense part."""
        backward = self.schedule.column("tower_backward", DEVICE)
        modules_s = (0.0,) * len(self.kinds) if backward is None else tuple(self.loads[:, backward].tolist())
        gradients_s = self._module_gradients_s() if self.workload.tower_modules else None
        return BesideDense(
            self.workload, parts, self.passes, self.sums_latency_s, self.overhead_s, updates_s, modules_s, gradients_s
        )

    def _module_gradients_s(self) -> tuple[float, ...]:
        """[K] seconds of the exchange of gradients of what modules give, whatever is placed."""
        busy_s = np.zeros(len(self.kinds))
        for c, column in enumerate(self.schedule.columns):
            if self.schedule.stages[column.stage] == "gradient_dist":
                sharing = np.bincount(self.schedule.resource_of_rank(column.resource))
                busy_s = np.maximum(busy_s, self.loads[:, c] * sharing.max())
        return tuple(busy_s.tolist())


def _over_links(busy_s: tuple[Floats, Floats], kind: int) -> dict[Resource, float]:
    """Seconds of the ports and cards [K] of a kind of rank, both ways."""
    port_s, card_s = (float(seconds[kind]) for seconds in busy_s)
    return dict.fromkeys(LINKS, port_s) | dict.fromkeys(CARDS, card_s)


def _in_step(own: Resource, seconds: float, kind: RankKind) -> dict[Resource, float]:
    """What a wait of every rank takes of the rank, and keeps what ranks share waiting (see `Lookup`)."""
    return {own: seconds} | {name: seconds / ranks for name, ranks in kind.ranks_sharing.items()}
