"""A window whose body may begin bent and swinging: the rigid motion first, modes beside it; all is carried on."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tiny_ball import scene_of

from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.window.arrival import POSE
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.estimation.window.window_fit import WindowFit
from soft_estimator.live.setup import build_window
from soft_estimator.physics.modes import BEND, SWING
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.scene import Scene

COUNT, BENT_M, SWINGS_M_S, NOISE_M = 3, 0.003, 0.3, 3e-4


@cache
def scene() -> Scene:
    return scene_of(start={"modes": {"count": COUNT}}, contact=None, estimate={"parameters": ["youngs_modulus_pa"]})


def bent(time_s: np.ndarray) -> list[np.ndarray]:
    """Points on a ball that flies and swings along its second mode, of which nobody tells, in an eighth of the steps:
    what the window's own step does to its answer, 9 %, is taken off."""
    amounts = {BEND: np.eye(40)[1] * BENT_M, SWING: np.eye(40)[1] * SWINGS_M_S}
    simulation = Simulation(scene().model.in_parts(8), scene().model.complete(scene().parameters).replace(**amounts))
    state, out, rng = simulation.initial_state(), [], np.random.default_rng(0)
    for until_s in time_s:
        while state.time_s < until_s - 1e-9:
            state, _ = simulation.step(state)
        points = scene().body.surface_positions_m(state.u)
        out.append(points + NOISE_M * rng.normal(size=points.shape))
    return out


def followed(frames: int, config: WindowConfig) -> tuple[SlidingWindow, WindowFit, list]:
    times = 0.01 * np.arange(frames)
    window = build_window(scene(), config)
    said = [window.add_frame(1.0 + t, points, NOISE_M) for t, points in zip(times, bent(times))]
    fit = window._fit
    assert fit is not None
    return window, fit, said


def test_what_is_held_stays_until_it_is_let_go() -> None:
    """Information of a million times the known keeps a variable to a thousandth of its deviation; taken off again, what
    is known is what it was, to rounding: 1e-16 of a million."""
    _, fit, said = followed(2, WindowConfig(start="scene", least_frames=3))
    assert fit.held and said == [None, None]
    names = [v.name for v in fit.motion.variables.variables]
    others = [j for j, name in enumerate(names) if name not in POSE]
    assert len(others) == 1 + 2 * COUNT and names[:1] == ["youngs_modulus_pa"]
    std = fit.motion.variables.prior_std
    assert (np.abs(fit.at.z - fit.knowledge.mean)[others] < 1e-2 * std[others]).all()
    fit.let_go()
    assert not fit.held
    np.testing.assert_allclose(np.diag(fit.knowledge.information)[:-1], std**-2.0, rtol=1e-9)


def test_a_first_frame_that_may_give_an_estimate_holds_nothing() -> None:
    _, fit, _ = followed(1, WindowConfig(start="scene", least_frames=1))
    assert not fit.held


def test_columns_of_modes_are_those_of_central_differences() -> None:
    """(r(z + h) - r(z - h)) / 2h of the residuals, but for the points that cross a cell's face within the step, with
    the 0.1 % of a tangent's solves."""
    _, fit, _ = followed(2, WindowConfig(start="scene", least_frames=1))
    motion, z, frames = fit.motion, fit.at.z, [e.frame for e in fit.frames]
    seen = motion.run(z, frames)
    for j in motion.of_start[12:]:
        h = np.eye(len(z))[j] * (1e-5 if motion.variables.variables[j].name == BEND else 1e-4)
        ahead, behind = (motion.look(z + step, frames)[-1].residual for step in (h, -h))
        column, differences = seen.frames[-1].jacobian[:, j], (ahead - behind) / (2 * h[j])
        off = np.abs(column - differences) / np.abs(column).max()
        assert np.abs(column).max() > 5 and np.mean(off > 0.005) < 0.05


@pytest.mark.slow
def test_a_swing_tells_the_stiffness_and_is_carried_when_the_window_slides() -> None:
    """In the air, from the first frame on, bent by 3 mm; no plane is there. Whether the window slides or not E lies in
    its interval, the amplitudes stay those of the first start, and what the marginalised frames said of them stays:
    deviations less than twice as large, where the amplitude's would be that of its prior, 5 mm, if it were lost."""
    ends = []
    for config in (WindowConfig(start="scene"), WindowConfig(start="scene", frames=4, grow_to_frames=5)):
        window, fit, _ = followed(10, config)
        assert window.counters.frames_used == 10 and fit.slid == (config.frames == 4)
        settled = window.settle(12)
        assert settled is not None and settled.verdict.fits
        (e,) = settled.parameters
        assert e.observable and e.low < 30e3 < e.high
        found, deviation = fit.answer(), fit.motion.variables.labels.index(f"{BEND}[1]")
        assert found.z[deviation] == pytest.approx(BENT_M, abs=5e-4)
        ends.append((e.std, np.sqrt(found.covariance[deviation, deviation])))
    (std, bend_std), (slid_std, slid_bend_std) = ends
    assert slid_std < 2 * std and slid_bend_std < 2 * bend_std
