"""The plan that candidates are costed beside: its models, its option space, and the multipliers of its proof."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cost_models.batch_copy import CopyLine
from cost_models.compressed_costs import CompressedCosts
from cost_models.dense_sharding import sharding_of
from cost_models.fixed_parts import FixedParts
from cost_models.shards import MEMORY_HBM, SIZED_BY_PLAN
from cost_models.step_exchanges import EXCHANGE_OF
from cost_models.towers import has_towers
from cost_models.workload.compressors import NO_COMPRESSOR, Compressor
from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile
from planner.certificates.lagrangian import region_capacity
from planner.certificates.shortage import Shortage
from planner.document.certificates import Proof
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_model
from planner.document.provenance import planned_options
from planner.errors import UnsoundPlanError
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.formulation import Formulation
from planner.formulation.option_space import EVERY_CUT, MOST_UNITS, Cuts, Space
from planner.formulation.options import (
    MOST_BLOCKS,
    CacheFractions,
    Options,
    build_problem,
    coarse_fractions,
    enumerate_options,
    uncapped_problem,
    within_capacity,
)
from planner.formulation.question import open_exchanges
from planner.formulation.seconds_at_lines import at_lines
from planner.oracle.pairs import Pair, pairs_of
from planner.planning.caches import LEAST_FRACTION
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.solvers.search import relaxed
from planner.verification.proof import faults_of, read_proof
from topologies.errors import Fault, InputError

PARTS = ("fixed", "by_rows", "everywhere", "bytes_fixed", "bytes_by_rows")
"""What blocks cost, as arrays of a problem."""


class Scale(NamedTuple):
    """Factors at which the relaxation of the base is solved, too, of fields of all tables and of the fixed loads."""

    pooling_factor: float = 1.0
    dim: float = 1.0
    fixed: float = 1.0


SCALES = (
    Scale(pooling_factor=0.25),
    Scale(pooling_factor=4.0),
    Scale(dim=0.5),
    Scale(dim=2.0),
    Scale(fixed=0.3),
    Scale(pooling_factor=4.0, fixed=0.3),
    Scale(dim=2.0, fixed=0.3),
)
"""They give a better bound for candidates that are smaller or larger than the base, or have another dense part."""
SHARES = 12
"""Ranges into which cache sizes are divided where HBM is scarce."""
WIDEST_BLOCKS = 40_000
"""Block types of every cut up to which these are the option space of candidates, whatever that of the plan is."""


class Base:
    """One solved plan."""

    def __init__(self, plan: Plan) -> None:
        """Raises InputError for a plan without a bound, and for what candidates are not costed of."""
        self.plan, self.policy, origin = plan, plan.provenance.policy, plan.provenance
        if plan.objective is None or plan.proof is None:
            raise InputError.at("plan", "places nothing, so that there is no bound to begin with; plan what fits")
        model = planned_model(plan)
        self._expect_simple(model)
        assert isinstance(model, CompressedCosts)
        self._has_rings = model.exchanged is not None and bool(model.exchanged.rings)
        self.model: CompressedCosts = _for_any_tables(model)
        model = self.model
        self.workload: Workload = model.stated_workload
        options = planned_options(origin, model, self.policy)
        self.formulation = Formulation.of_options(model, options)
        if self.formulation.problem.is_confined:
            message = "confines tables to ranks or groups, which candidates are not costed with; plan without"
            raise InputError.at("plan", f"its policy {message}")
        faults = [fault for each in (plan.proof, *plan.proof.at_other_protocols) for fault in self._faults(each)]
        if faults:
            raise UnsoundPlanError([Fault("plan", 0, 0, "proof", fault) for fault in faults])
        self.pairs = self._pairs()
        self.cuts = self._cuts(options.cuts)

    def _expect_simple(self, model: object) -> None:
        origin, policy = self.plan.provenance, self.policy
        if not isinstance(model, CompressedCosts) or origin.cost_model != "physical":
            message = f"is rated by {origin.cost_model}; candidates are costed by --cost-model physical"
            raise InputError.at("plan", message)
        if model.replicas is not None or policy.replicas is not None:
            raise InputError.at("plan", "is for groups of ranks; candidates are costed in one world")
        is_open_dense = policy.dense is not None and policy.dense.settled is None
        if is_open_dense or sharding_of(model.workload).is_sharded:
            raise InputError.at("plan", "may shard the dense part; candidates are costed with --dense replicate")
        policy.expect_nominal("candidates are costed by steps that are")
        policy.expect_stated_tables("candidates are costed")
        if model.workload.embedding.mixed_dimensions is not None:
            message = (
                "has mixed_dimensions, so that the width of each table follows from all tables; state those of the"
            )
            message += " plan as the compressor of each table (dim:D), or begin without, and give candidates columns"
            raise InputError.at("plan", f"{message}, as cat_0.compressor")
        if model.kind_count > 1:
            raise InputError.at("plan", "is for nodes of several kinds; candidates are costed on nodes of one kind")
        towers = model.workload.towers is not None or has_towers(model.topology, model.workload, origin.exchange)
        is_open = (
            policy.exchange == "auto"
            and len(open_exchanges(origin.cost_model, model.topology, model.workload, policy)) > 1
        )
        if towers or is_open:
            message = "exchanges in towers, or leaves it open; candidates are costed with --exchange flat"
            raise InputError.at("plan", message)

    def _faults(self, proof: Proof) -> Iterator[str]:
        """What makes the multipliers of a proof none."""
        return faults_of(proof, self.model, self.formulation.problem)

    def _pairs(self) -> tuple[Pair, ...]:
        """What the plan's proof proves something with: its multipliers at all protocols, and others at theirs."""
        proof, model, problem = self.plan.proof, self.model, self.formulation.problem
        assert proof is not None
        own, _ = read_proof(proof, model, problem)
        found = [(protocols, own) for protocols in model.all_protocols]
        found += [(self._protocols_of(each), read_proof(each, model, problem)[0]) for each in proof.at_other_protocols]
        pairs = []
        for protocols, multipliers in found:
            pairs += pairs_of(self.formulation.at_protocols(protocols).problem, multipliers, [protocols])
        is_scarce = any(pair.multipliers.byte.any() for pair in pairs)
        for scale in SCALES:
            pairs += self._scaled_pairs(scale, is_scarce=is_scarce)
        return tuple(pairs)

    def _protocols_of(self, proof: Proof) -> tuple[int, ...]:
        """The protocols of a proof by the numbers that they have here, where none are those of sums around all ranks:
        lines of these, which come first in a plan, are those of the others."""
        numbers = {stage: proof.protocols.get(stage, 0) for stage in self.model.protocol_stages}
        if self._has_rings and self.model.exchanged is not None:
            for stage, lines in self.model.exchanged.usual.items():
                usual = len(lines)
                numbers[stage] = numbers[stage] % usual if numbers[stage] < 2 * usual else usual
        return tuple(numbers.values())

    def _scaled_pairs(self, scale: Scale, *, is_scarce: bool) -> list[Pair]:
        """Multipliers of the relaxation at another size; none where that does not fit. They price no memory where those
        of the plan do not."""
        pairs = zip(self.workload.tables, self.workload.compressors, strict=True)
        tables = [_scaled(table, compressor, scale) for table, compressor in pairs]
        model = self.variant(tables)
        options = enumerate_options(model, self.policy, None, self.formulation.options.cuts)
        at_plan = model.at_protocols(self.plan_protocols)
        problem = at_lines(build_problem(model, options), at_plan, options, model.protocols)
        base_loads = self.formulation.at_protocols(self.plan_protocols).problem.base_loads
        sized = replace(problem, base_loads=base_loads * scale.fixed)
        bound = relaxed(sized)
        if isinstance(bound, Shortage):
            return []
        multipliers = bound.multipliers
        if not is_scarce:
            multipliers = replace(multipliers, byte=np.zeros_like(multipliers.byte))
        return pairs_of(sized, multipliers, self.model.all_protocols)[-len(self.model.all_protocols) :]

    @cached_property
    def plan_protocols(self) -> tuple[int, ...]:
        """The protocols with which the stages of the plan end first; those of usual exchanges where it makes none, as
        candidates may be too large for that."""
        own = self.model.linearised_at(placed_shards(self.plan)).protocols
        return self.model.protocols if self.are_of_nothing(own) else own

    def are_of_nothing(self, protocols: tuple[int, ...]) -> bool:
        """Whether protocols are those of plans that replicate all tables, and exchange nothing."""
        exchanged = self.model.exchanged
        numbers = zip(self.model.protocol_stages, protocols, strict=True)
        return exchanged is not None and any(
            stage in exchanged.usual and number >= len(exchanged.usual[stage]) for stage, number in numbers
        )

    def may_replicate(self, held: Ints) -> Bools:
        """[n] whether all tables of candidates, which with their state have so many bytes, may be on every rank."""
        return np.asarray(held <= max(kind.memory_bytes[MEMORY_HBM] for kind in self.model.kinds))

    def unwaited_s(self, held: Ints) -> Floats:
        """[n] what such candidates are not taken to wait for, as the plan replicates all tables."""
        stages = [stage for stage in self.model.protocol_stages if stage in EXCHANGE_OF]
        waited_s = sum(self.model.lines_of(stage)[0].latency_s for stage in stages) if self.replicates_all else 0.0
        return np.where(self.may_replicate(held), waited_s, 0.0)

    @cached_property
    def empty_capacity(self) -> Floats:
        """[D, M] bytes of the pools of each capacity region together, where nothing is on any rank."""
        problem = self.formulation.problem
        return region_capacity(replace(problem, base_bytes=np.zeros_like(problem.base_bytes)))

    @property
    def replicates_all(self) -> bool:
        """Whether the plan replicates all tables, and exchanges nothing."""
        return all(table.sharding == "data_parallel" for table in self.plan.tables)

    @property
    def step_s(self) -> float:
        """The step of the plan, without what of its floor shows."""
        floor = self.model.floor
        return sum(stage.seconds for stage in self.plan.stages if floor is None or stage.name != floor.stage)

    @cached_property
    def fractions(self) -> CacheFractions | None:
        """The cache sizes that the plan was chosen from."""
        return self.formulation.options.fractions

    def stage_seconds(self, load: Floats) -> Floats:
        """[...] of all stages whose resources are loaded so [..., C], constants aside."""
        columns, starts = self._stage_order
        return np.asarray(np.maximum.reduceat(load[..., columns], starts, axis=-1).sum(axis=-1))

    @cached_property
    def _stage_order(self) -> tuple[Ints, Ints]:
        """[C] the columns stage by stage, and where each stage begins among them."""
        of = self.formulation.problem.stage_of_column
        order = np.argsort(of, kind="stable")
        return order, np.unique(of[order], return_index=True)[1]

    def least_of_instances(self, load: Floats) -> Floats:
        """[n, C] the least that an instance of a resource has of what each rank brings to it [n, C]."""
        fewest, most = self._ranks_of_instances
        return np.where(load < 0, load * most, load * fewest)

    @cached_property
    def _ranks_of_instances(self) -> tuple[Ints, Ints]:
        """[C] ranks that use an instance of each column's resource at least, and at most."""
        ranks = [np.bincount(of) for of in self.formulation.problem.resource_of_rank]
        return np.array([of.min() for of in ranks]), np.array([of.max() for of in ranks])

    @cached_property
    def instances(self) -> Floats:
        """[C] instances of each column's resource."""
        return np.array([len(np.unique(of)) for of in self.formulation.problem.resource_of_rank], dtype=float)

    @cached_property
    def ranks_of_instance(self) -> Floats:
        """[C] ranks that use one of them, on the mean."""
        return self.formulation.problem.world / self.instances

    def loads(self, protocols: tuple[int, ...], fixed: FixedParts) -> Floats:
        """[n, C] what a rank brings to its resources before any table of candidates, at some protocols."""
        loads = fixed.loads[:, 0] + self.model.answer_loads(protocols)[0]
        return np.asarray(loads * self.model.shares_at(protocols) + fixed.unshared[:, 0])

    def latency_s(self, protocols: tuple[int, ...], fixed: FixedParts) -> Floats:
        """[n] latencies of the exchanges of candidates at some protocols; where rows wait for all that is left of the
        copy of a batch, what is left of theirs."""
        latency_s = np.zeros(len(fixed.copy_left_s))
        for stage, number in zip(self.model.protocol_stages, protocols, strict=True):
            line = self.model.lines_of(stage)[number]
            is_own = isinstance(line, CopyLine) and not line.rows_wait
            latency_s += fixed.copy_left_s if is_own else line.latency_s
        return latency_s

    @cached_property
    def is_scarce(self) -> bool:
        """Whether memory is worth something at some of the multipliers."""
        return any(pair.multipliers.byte.any() for pair in self.pairs)

    # -- the option space of candidates ----------------------------------------------------------------------------

    def _cuts(self, planned: Cuts) -> Cuts:
        """Every cut where these are not too many, as wider spaces are never above narrower ones; else the plan's."""
        if planned == EVERY_CUT or int(self.units(self.model).max()) > MOST_UNITS:
            return planned
        blocks = len(enumerate_options(self.model, self.policy, None, EVERY_CUT).block_option)
        return EVERY_CUT if blocks <= WIDEST_BLOCKS else planned

    @cached_property
    def wider(self) -> tuple[tuple[Cuts, int], ...]:
        """Spaces with more cuts than that of candidates, and the block types up to which they are searched."""
        spaces = [cuts for cuts, _ in MOST_BLOCKS]
        return MOST_BLOCKS[: spaces.index(self.cuts)] if self.cuts in spaces else MOST_BLOCKS

    def units(self, model: CompressedCosts) -> Ints:
        """[T] column units of each table of a model where every cut is searched."""
        return Space(model, allowed_choices(model, self.policy), EVERY_CUT).units

    def variant(self, tables: Sequence[TableProfile]) -> CompressedCosts:
        """The costs of the base with other profiles of its tables; what its dense part takes is without meaning."""
        workload = self.workload.model_copy(update={"tables": tuple(tables)})
        workload.__dict__["layers"] = self.workload.layers  # not those of other widths, which may not fit together
        own, reserve = self.model, self.policy.reserve.amounts()
        made = type(own)(
            own.topology,
            workload,
            reserve,
            own.exchange,
            copy_meets_rows=own.copy_meets_rows,
            long_tables=own.schedule.long_tables,
        )
        return _for_any_tables(made)

    def whole(self, model: CompressedCosts) -> CompressedCosts:
        """A variant with tables as large as their rows and columns say."""
        return self.variant(model.workload.uncompressed.tables) if model.workload.is_compressed else model

    def options(self, model: CompressedCosts) -> tuple[Options, Options]:
        """The ways to hold each table, with cache sizes at the lower ends of ranges that hold all that a plan may take,
        and at the upper ends."""
        ends = np.geomspace(LEAST_FRACTION, 1.0, 1 + (SHARES if self.is_scarce else 1))
        choices, coarse = allowed_choices(model, self.policy), coarse_fractions(model)
        found = []
        for part in (ends[:-1], ends[1:]):
            own = np.tile(part, (len(model.tables.rows), 1))
            found.append(enumerate_options(model, choices, coarse | dict.fromkeys(SIZED_BY_PLAN, own), self.cuts))
        low, high = found
        return low, high

    def relaxed_problem(self, model: CompressedCosts, options: tuple[Options, Options]) -> Problem:
        """A problem that costs no table more than any plan does: in each range of cache sizes the seconds of whichever
        end takes less, the bytes of the smaller one; beside nothing else, in time as in memory."""
        low, high = (uncapped_problem(model, each) for each in options)
        parts = {name: np.minimum(getattr(low, name), getattr(high, name)) for name in PARTS}
        nothing = {name: np.zeros_like(getattr(low, name)) for name in ("base_loads", "base_bytes")}
        return within_capacity(replace(low, **parts, **nothing, allowed=low.allowed | high.allowed))

    def relaxed_at(
        self, problem: Problem, model: CompressedCosts, options: tuple[Options, Options], before: tuple[int, ...]
    ) -> Problem:
        """The same, which is at the lines `before`, at those of a model; what rows wait for copies of batches depends
        on cache sizes."""
        low = at_lines(problem, model, options[0], before)
        if not model.copy_meets_rows:
            return low
        high = at_lines(problem, model, options[1], before)
        return replace(low, **{name: np.minimum(getattr(low, name), getattr(high, name)) for name in PARTS})


def _for_any_tables(model: CompressedCosts) -> CompressedCosts:
    """The same with lines, and costs of a table, that are those beside any others, as profiles are learned one by one:
    with the line of no exchange, and without what sums around all ranks wait for, as a profile may have none."""
    if model.exchanged is None:
        return model
    other = copy.copy(model)
    other.exchanged = replace(model.exchanged, may_be_nothing=True, rings=())
    return other


def _scaled(table: TableProfile, compressor: Compressor, scale: Scale) -> TableProfile:
    """A table of another size; its width stays a multiple of 4. It is uncompressed where that width has no such
    compressor."""
    dim = max(4, int(table.dim * scale.dim) // 4 * 4)
    kept = table.compressor if compressor.fault(table.rows, dim) is None else NO_COMPRESSOR
    read = table.pooling_factor * scale.pooling_factor
    return table.model_copy(update={"pooling_factor": read, "dim": dim, "compressor": kept})
