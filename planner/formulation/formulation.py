"""A question as it is searched: what everything costs, what each table may be, and the problem made of both."""

from dataclasses import dataclass, field, replace

from cost_models.model import CostModel
from cost_models.shards import HBM, HBM_MIXED
from planner.formulation.allowed_choices import AllowedChoices
from planner.formulation.option_space import EVERY_CUT, Cuts
from planner.formulation.options import CacheFractions, Options, build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.formulation.seconds_at_lines import SecondsAtLines
from planner.problem.arrays import Problem
from planner.problem.numbers import Ints


@dataclass(frozen=True)
class Formulation:
    """The three belong together: options are those of the model, the problem is that of the options."""

    model: CostModel
    options: Options
    problem: Problem
    seconds_at: SecondsAtLines = field(default_factory=SecondsAtLines, repr=False, compare=False)
    """What blocks exchange, of this and of the same at other protocols."""

    @classmethod
    def of(
        cls,
        model: CostModel,
        policy: Policy | AllowedChoices,
        fractions: CacheFractions | None = None,
        cuts: Cuts | None = None,
    ) -> "Formulation":
        """All that the policy allows; see `enumerate_options`."""
        return cls.of_options(model, enumerate_options(model, policy, fractions, cuts))

    @classmethod
    def of_options(cls, model: CostModel, options: Options) -> "Formulation":
        """With these options alone."""
        return cls(model, options, build_problem(model, options))

    @property
    def has_every_cut(self) -> bool:
        """Whether every column cut is among the options."""
        return self.options.cuts == EVERY_CUT

    def with_every_cut(self) -> "Formulation":
        """The same with every column cut."""
        return self.with_cuts(EVERY_CUT)

    def with_cuts(self, cuts: Cuts) -> "Formulation":
        """The same with these column cuts; itself where it has them."""
        if cuts == self.options.cuts:
            return self
        return Formulation.of(self.model, self.options.choices, self.options.fractions, cuts)

    def with_fractions(self, fractions: CacheFractions) -> "Formulation":
        """The same with other sizes of caches."""
        return Formulation.of(self.model, self.options.choices, fractions, self.options.cuts)

    def under(self, model: CostModel) -> "Formulation":
        """The same options at the costs of another model that supports them, too."""
        return Formulation.of(model, self.options.choices, self.options.fractions, self.options.cuts)

    def with_sharding(self, sharding: int) -> "Formulation":
        """The same with one sharding alone."""
        choices = self.options.choices
        only = choices.shardings & False
        only[:, sharding] = True
        return Formulation.of(self.model, replace(choices, shardings=only), self.options.fractions, self.options.cuts)

    def without_precision_caches(self) -> "Formulation | None":
        """The same without caches of full precision of tables that HBM may hold without one, with as many column cuts
        as can be searched then; None where there are no such tables, or tables have variants to choose from."""
        choices = self.options.choices
        bare = choices.tiers[:, HBM_MIXED] & choices.tiers[:, HBM]
        if choices.variants is not None or not bare.any():
            return None
        tiers = choices.tiers.copy()
        tiers[bare, HBM_MIXED] = False
        return Formulation.of(self.model, replace(choices, tiers=tiers), self.options.fractions)

    def at_protocols(self, protocols: tuple[int, ...]) -> "Formulation":
        """The same at other protocols of the cost model; itself where it is at them."""
        if protocols == self.model.protocols:
            return self
        model = self.model.at_protocols(protocols)
        return replace(self, model=model, problem=self._at_lines(model))

    def _at_lines(self, model: CostModel) -> Problem:
        """The problem at the lines of a model."""
        return self.seconds_at.problem(self.problem, model, self.options, self.model.protocols)

    def tiers_of(self, blocks: Ints) -> Ints:
        """[n] the tier of each block type, as an index into PLACEMENT_TIERS."""
        return self.options.tier[self.problem.block_option[blocks]]
