"""The picture of the HBM of a plan's fullest rank over the course of a step."""

from cost_models.step import StepModel
from planner.document.plan import Plan
from planner.document.planned import planned_model
from planner.reports.memory_course import course_of_plan, peak_words, shown_parts
from planner.reports.pages.charts import Bars, Chart, View, bars, hover
from planner.reports.pages.palette import SERIES
from planner.studies.scales import scale_of


def course_charts(plan: Plan) -> list[Chart]:
    """One chart; none where costs do not say what is in HBM when."""
    if not isinstance(planned_model(plan), StepModel):
        return []
    course = course_of_plan(plan)
    rank, _ = course.fullest
    parts, room = shown_parts(course, rank), float(plan.ranks[rank].capacity["hbm"])
    scale = scale_of([room], "B")
    series = [
        Bars(
            name,
            (size / scale.divisor).tolist(),
            SERIES[number],
            [
                hover(moment, {name: scale.text(own), "in all": f"{scale.text(whole)} of {scale.text(room)}"})
                for moment, own, whole in zip(course.moments, size.tolist(), course.totals[rank].tolist(), strict=True)
            ],
        )
        for number, (name, size) in enumerate(parts.items())
    ]
    data, drawn = bars(list(course.moments), series, f"HBM of rank {rank} ({scale.unit})")
    words = f"Bytes of the fullest rank at {len(course.moments)} moments of a step."
    return [Chart("course", "Memory over the step", (View("", data, drawn),), peak_words(course), words)]
