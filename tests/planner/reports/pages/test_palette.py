"""Colours that people with any of the three dichromacies tell apart, and marks that stand out from both pages."""

from itertools import combinations

import numpy as np
import pytest

from planner.reports.pages.palette import DARK, INK, LIMITS, MEMORY_COLOURS, PAPER, SEQUENTIAL, SERIES, STAGE_COLOURS
from tests.oracles.studies import STAGES

VISIONS = {
    "trichromacy": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]
    ),
}
"""Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB."""
CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
OPPONENTS = np.array(
    [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ]
)
"""To OKLab (Ottosson, 2020); black and white are 1 apart, and 0.02 is hardly seen."""


def linear(colour: str) -> np.ndarray:
    """The light of each primary of a colour in sRGB."""
    share = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def seen(colour: str, vision: str) -> np.ndarray:
    light = np.clip(VISIONS[vision] @ linear(colour), 0, 1)
    return OPPONENTS @ np.cbrt(CONES @ light)


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def dark(colour: str) -> str:
    return DARK.get(colour, colour)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize(
    ("colours", "least"),
    [
        (SERIES, 0.07),
        ([dark(colour) for colour in SERIES], 0.07),
        ([STAGE_COLOURS[name] for name in STAGES], 0.06),
        (list(STAGE_COLOURS.values()), 0.035),
        (list(LIMITS.values()), 0.06),
        ([dark(colour) for colour in LIMITS.values()], 0.06),
        (list(dict.fromkeys(MEMORY_COLOURS.values())), 0.07),
    ],
)
def test_no_two_colours_look_alike(colours: list[str], least: float, vision: str) -> None:
    places = {colour: seen(colour, vision) for colour in colours}
    apart = {pair: float(np.linalg.norm(places[pair[0]] - places[pair[1]])) for pair in combinations(colours, 2)}
    assert min(apart.values()) >= least, min(apart, key=apart.__getitem__)


@pytest.mark.parametrize("vision", VISIONS)
def test_the_scale_gets_darker_all_the_way_and_lighter_on_a_dark_page(vision: str) -> None:
    """More stands out more from the page, whoever looks."""
    stops = [str(colour) for _, colour in SEQUENTIAL]
    assert (np.diff([seen(colour, vision)[0] for colour in stops]) < -0.05).all()
    assert (np.diff([seen(dark(colour), vision)[0] for colour in stops]) > 0.05).all()


def test_text_and_marks_stand_out_from_both_pages() -> None:
    assert contrast(INK, PAPER) > 7
    assert contrast(DARK[INK], DARK[PAPER]) > 7
    for colour in (*SERIES, *STAGE_COLOURS.values()):
        assert contrast(colour, PAPER) > 1.35, colour
        assert contrast(dark(colour), DARK[PAPER]) > 1.8, colour
