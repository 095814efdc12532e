"""Fits of steps withstand single rows that nothing explains."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy import mlperf
from benchmarks.accuracy.step_fit import (
    BOUNDED_BEYOND,
    DOUBTFUL_BEYOND,
    NOISE,
    Linear,
    Prior,
    deviations,
    predictive_spread,
    solve,
)
from cost_models.coefficients import Place

PLACES: tuple[Place, ...] = (("software", "a", "x"), ("devices", "b", "y"))
PRIOR = Prior.of(dict.fromkeys(PLACES, (1.0, 0.3)))


def steps(noise: float) -> tuple[Linear, np.ndarray]:
    """Twenty steps to which the coefficients contribute differently, both 1.2 in truth, and their measured seconds."""
    random = np.random.default_rng(5)
    slopes = random.uniform(0.1, 0.6, (20, 2))
    measured = 1e-3 * np.exp(slopes.sum(axis=1) * np.log(1.2) + random.normal(0, noise, 20))
    return Linear(dict.fromkeys(PLACES, 1.0), np.full(20, 1e-3), slopes), measured


def test_without_outliers_it_is_the_least_sum_of_squares() -> None:
    """Of errors over the noise and of coefficients over their spread, by its normal equations."""
    model, measured = steps(NOISE / 2)
    normal = model.slopes.T @ model.slopes / NOISE**2 + np.diag(1 / PRIOR.spread**2)
    expected = np.exp(np.linalg.solve(normal, model.slopes.T @ np.log(measured / 1e-3) / NOISE**2))
    found = solve(model, PRIOR, measured, np.ones(20, dtype=bool))
    assert list(found.values()) == pytest.approx(expected.tolist(), rel=1e-9)
    assert np.abs(deviations(model, PRIOR, measured)).max() < DOUBTFUL_BEYOND


@pytest.mark.parametrize("factor", [0.1, 1.5, 10.0, 1e6])
def test_one_row_moves_coefficients_by_no_more_than_a_bounded_pull(factor: float) -> None:
    """However absurd it is, and even where it is kept: as far as an error of three times the noise would."""
    model, measured = steps(NOISE / 2)
    every = np.ones(20, dtype=bool)
    spoilt = measured * np.where(np.arange(20) == 3, factor, 1.0)
    clean, found = (np.log(list(solve(model, PRIOR, rows, every).values())) for rows in (measured, spoilt))
    curvature = model.slopes.T @ model.slopes / NOISE**2
    bound = np.abs(np.linalg.solve(curvature, model.slopes[3])) * 2 * BOUNDED_BEYOND / NOISE
    assert (np.abs(found - clean) <= 1.5 * bound).all()
    assert np.abs(found - np.log(1.2)).max() < 0.1


def test_slips_do_not_hide_each_other() -> None:
    """Half of the rows with ten times their time: those are doubtful, and no other."""
    model, measured = steps(NOISE / 2)
    slips = np.arange(20) % 2 == 0
    far = np.abs(deviations(model, PRIOR, np.where(slips, 10 * measured, measured)))
    assert ((far > DOUBTFUL_BEYOND) == slips).all()


ROWS = """round,org,system,nodes,per_node,accel,batch,iter_ms,network
v9.0,A,fine,1,8,NVIDIA H100-SXM5-80GB,65536,3.6,
v9.0,B,ten times,1,8,NVIDIA H100-SXM5-80GB,65536,36,
v9.0,C,other batch,1,8,NVIDIA H100-SXM5-80GB,655360,3.6,
v9.0,D,no time,1,8,NVIDIA H100-SXM5-80GB,65536,0,
v9.0,E,no batch,1,8,NVIDIA H100-SXM5-80GB,0,3.6,
v9.0,F,no nodes,,8,NVIDIA H100-SXM5-80GB,65536,3.6,
v9.0,G,too small,1,2,NVIDIA H100-SXM5-80GB,65536,3.6,
"""


def test_rows_that_nothing_explains_are_named_and_in_no_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are predicted all the same; rows that are no run are left out."""
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "mlperf_dlrm_dcnv2_v90.csv").write_text(ROWS)
    assert list(mlperf.believed(tmp_path).label) == ["9.0 A fine"]
    assert list(mlperf.held_out(tmp_path).notna()) == [True] * 3
    told = capsys.readouterr().err
    assert "9.0 B ten times: 36.00 ms" in told
    assert "9.0 C other batch: 3.60 ms" in told
    assert "9.0 D no time left out: iter_ms 0.0 is not a positive number" in told
    assert "9.0 F no nodes left out: nodes '' is not a positive whole number" in told
    assert "9.0 G too small left out: tables and their optimizer state take 105 GB of each 80 GB" in told
    assert "9.0 E no batch left out: batch 0 is not a positive whole number" in told


def test_few_accelerators_with_much_memory_have_a_plan(tmp_path: Path) -> None:
    """Tables that need more than the 60 GB of a GPU that submissions give them have all of its memory."""
    (tmp_path / "measured").mkdir()
    row = "v9.0,A,two,1,2,NVIDIA B200-SXM-180GB,16384,3.6,"
    (tmp_path / "measured" / "mlperf_dlrm_dcnv2_v90.csv").write_text("\n".join([ROWS.splitlines()[0], row]))
    assert list(mlperf.predict(tmp_path).predicted_s > 1e-3) == [True]


def test_what_coefficients_are_unsure_of_is_what_draws_of_them_miss_by() -> None:
    """Coefficients drawn from the priors, steps measured with noise, some of them fitted and the others predicted: the
    errors of the others spread as is said beforehand, those of the step whose coefficient no kept step has the most."""
    random = np.random.default_rng(5)
    places: list[Place] = [("software", "a", name) for name in ("x", "y", "z")]
    prior = Prior(np.zeros(3), np.array([0.1, 0.2, 0.3]))
    slopes = np.array([[0.6, 0.3, 0.0], [0.4, 0.5, 0.0], [0.3, 0.1, 0.0], [0.5, 0.2, 0.0], [0.2, 0.2, 0.5]])
    model = Linear(dict.fromkeys(places, 1.0), np.ones(5), slopes)
    kept = np.array([True, True, True, False, False])
    missed = []
    for _ in range(3000):
        exact = slopes @ (random.standard_normal(3) * prior.spread)
        found = solve(model, prior, np.exp(exact + NOISE * random.standard_normal(5)), kept)
        missed.append(exact - slopes @ np.log(list(found.values())))
    said = predictive_spread(model, prior, kept)
    assert np.std(missed, axis=0) == pytest.approx(said, rel=0.06)
    assert said[4] > 0.95 * 0.5 * 0.3
    assert said[3] < 0.02
