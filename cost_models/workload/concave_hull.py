"""The concave hull of an access curve's points."""

from collections.abc import Sequence

Point = tuple[float, float]


def concave_hull(points: Sequence[Point]) -> list[Point]:
    """The upper concave hull of rising points, seen from (0, 0), which is left out: rounding, or a law that does not
    fall, may have bent them the wrong way."""
    hull: list[Point] = [(0.0, 0.0)]
    for x, y in points:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    return hull[1:]


def _slope(a: Point, b: Point) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])
