"""Details of a shape that are the same in all frames are no stiffness of a body that hardly deforms."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from dropped_ball import SMALL, TRUE_PA, TRUTH, field, frames, model, said, window

from soft_estimator.camera.observing import surface_frame
from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fitting.allowance import shape_std_m
from soft_estimator.estimation.fitting.consider import details_effect
from soft_estimator.estimation.inspection import Inspection
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.physics.frame_times import displacements_from
from soft_estimator.physics.step import Simulation

KNOWN = KnownToConfig()
SPIN_RAD_S = 6.0
SPUN = TRUTH.replace(angular_velocity_rad_s=np.array([0.0, SPIN_RAD_S, 0.0]), plane_offset_m=2.0)


@cache
def spinning() -> tuple[ObservedFrame, ...]:
    """A ball that spins as it falls, far above the ground, and is 0.6 % wider than its model about the axis: 0.3 mm,
    the deviation to which its shape is known."""
    body, rng = model().body, np.random.default_rng(5)
    simulation, times = Simulation(model(), SPUN), 0.03 * np.arange(4)
    out = []
    for t, u in zip(times, displacements_from(simulation, simulation.initial_state(), times)):
        seen = surface_frame(t, body, field(), u, 300, 0.0002, rng)
        centre = (body.node_position_m + u).mean(axis=0)
        out.append(replace(seen, points_m=centre + (seen.points_m - centre) * np.array([1.006, 1.0, 1.006])))
    return tuple(out)


def test_a_spin_in_the_air_shows_no_more_than_the_shape_is_known_to() -> None:
    """ρω²R²/E of strain widens a spinning ball by less than its shape is known to: most of the interval is the shape's.
    With a shape that counts as exact the same frames give a stiffness that is more than four deviations off."""
    known = said(window(SPUN, known=KNOWN), spinning())[-1]
    exact = said(window(SPUN, known=replace(KNOWN, shape_offset_m=0.0, shape_scale=0.0)), spinning())[-1]
    assert known.verdict.fits and exact.verdict.fits
    e, sure = known.parameters[0], exact.parameters[0]
    assert "details of the shape" in e.mostly and abs(e.value - TRUE_PA) < 4 * e.std
    assert sure.observable and abs(sure.value - TRUE_PA) > 4 * sure.std


def test_a_window_has_the_same_effect_as_a_whole_recording() -> None:
    """The formula for a recording, S S^T with S = -(J^T W J + prior)^-1 J^T W C, on the rows of a window that has not
    slid."""
    target = window(known=KNOWN)
    said(target, frames()[:4])
    fit = target._fit
    assert fit is not None and not fit.slid
    answer, details = fit.answer(), target.episodes.details
    rows = fit.linear.stepped(answer.z - fit.at.z).at
    jacobian, weight = rows.known_jacobian, rows.weight
    inverse = np.linalg.inv(jacobian.T @ (jacobian * weight[:, None]) + fit.knowledge.information)
    kinds = fit.motion.kinds
    by_offset = np.concatenate([kinds.of(e.frame).by_offset(e.frame) for e in fit.frames]) / fit.scale
    nothing = np.zeros(len(by_offset))
    look = Inspection((), (), details.places.patch(fit.frames), nothing, nothing, by_offset, nothing)
    whole = details_effect(look, jacobian, weight, inverse, shape_std_m(KNOWN, model().body))
    mine = answer.by_fixed[:, -details.count :]
    np.testing.assert_allclose(mine @ mine.T, whole.covariance, rtol=1e-6, atol=1e-9 * whole.covariance.max())


def test_details_that_left_the_window_stay_details() -> None:
    """A window that slides carries them on: the columns are those of the body's patches, not of any frame."""
    target = window(known=KNOWN, config=replace(SMALL, frames=3, grow_to_frames=3))
    said(target, frames()[:4])
    fit = target._fit
    assert fit is not None and fit.slid
    assert fit.knowledge.by_fixed.shape[1] == len(fit.motion.offsets_m) + target.episodes.details.count
    assert np.abs(fit.knowledge.by_fixed[:, -target.episodes.details.count :]).max() > 0
