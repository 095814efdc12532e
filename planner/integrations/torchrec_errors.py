"""What goes wrong, as an error of TorchRec's and of ours at once: torchrec is needed to import this."""

from collections.abc import Iterable

from torchrec.distributed.planner.types import PlannerError, PlannerErrorType

from topologies.errors import Fault, InputError


class ShardPlannerError(InputError, PlannerError):  # type: ignore[misc]
    """No plan: `error_type` is TorchRec's word for the reason, and `faults` are ours."""

    def __init__(
        self, faults: Iterable[Fault], error_type: PlannerErrorType = PlannerErrorType.INPUT_VALIDATION
    ) -> None:
        self.error_type = error_type
        super().__init__(faults)

    def __reduce__(self) -> "tuple[type[ShardPlannerError], tuple[tuple[Fault, ...], PlannerErrorType]]":  # type: ignore[override]
        return type(self), (self.faults, self.error_type)

    @classmethod
    def of(cls, source: str, message: str, error_type: PlannerErrorType) -> "ShardPlannerError":
        """One fault as an error."""
        return cls([Fault(source, 0, 0, "", message)], error_type)
