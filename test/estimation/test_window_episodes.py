"""What a window keeps and gives up between episodes of frames: planes told, frames skipped, bent starts, forgetting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from estimation_experiments import Experiment
from window_experiments import CONFIG, NOISE_M, PLANES, feed, seen, swinging_fit, window_of

from soft_estimator.camera.observing import surface_frame
from soft_estimator.estimation.fitting.widening import Before, widening
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.whole_cloud import WholeCloud
from soft_estimator.estimation.window.arrival import Knowledge
from soft_estimator.estimation.window.point_places import PointPlaces
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.estimation.window.still import middle_of
from soft_estimator.physics.frame_times import displacements_from
from soft_estimator.physics.step import Simulation


@pytest.fixture(scope="module")
def falling(ball: Experiment) -> Experiment:
    """The ball with the plane 40 mm lower: within 0.05 s it never touches it."""
    return replace(ball, truth=replace(ball.truth, plane_offset_m=0.085))


@pytest.fixture(scope="module")
def fall(falling: Experiment) -> list[ObservedFrame]:
    return seen(falling, 5, 0.008)


def tilted(normal: np.ndarray, angle: float) -> np.ndarray:
    side = np.cross(normal, [1.0, 0.0, 0.0])
    return np.cos(angle) * normal + np.sin(angle) * side / np.linalg.norm(side)


def test_a_plane_told_while_tracking_waits_for_the_next_episode(falling: Experiment, fall: list[ObservedFrame]) -> None:
    """The normal's variables are steps from the plane they were made for: an episode keeps its plane to its end, and
    the next one starts from the new plane with the deviations that were told, not with those of the old variables."""
    window = window_of(falling, PLANES)
    feed(window, fall)
    assert window.status == "tracking"
    normal = tilted(falling.truth.plane_normal, 0.1)
    window.know_plane(normal, 0.07, 0.004, 0.0006)
    normals = [v.tangents["plane_normal"].normal for v in (window.lasting.variables, window._fit.motion.variables)]
    np.testing.assert_array_equal(*normals)
    said = window.add_frame(10.04, *_points(falling, 0.04))
    # A plane 13 mm below the ball is hardly felt, far less than the tenth of a radian by which the new one leans.
    np.testing.assert_allclose(said.values.plane_normal, falling.truth.plane_normal, atol=1e-3)
    window.reset(keep_parameters=True)
    feed(window, fall[:1], 20.0)
    known = window._fit.knowledge
    std = np.sqrt(np.diag(known.covariance))[:4]
    np.testing.assert_allclose(std[1:], [0.004, 0.004, 0.0006], rtol=1e-6)
    values = window._fit.motion.parameters(known.mean)
    np.testing.assert_allclose(values.plane_normal, normal, atol=1e-12)
    assert values.plane_offset_m == pytest.approx(0.07, abs=1e-12)


def _points(experiment: Experiment, time_s: float) -> tuple[np.ndarray, np.ndarray]:
    simulation = Simulation(experiment.model, experiment.truth)
    (u,) = displacements_from(simulation, simulation.initial_state(), [time_s])
    rng = np.random.default_rng(1)
    frame = surface_frame(time_s, experiment.model.body, experiment.field, u, 200, NOISE_M, rng)
    return frame.points_m, frame.std_m


def test_a_first_plane_while_starting_starts_anew(falling: Experiment, fall: list[ObservedFrame]) -> None:
    """Two frames of three were in: the third begins with the plane; the same plane again (within its deviations) does
    not, nor does another one: that waits."""
    window = window_of(falling, PLANES)
    feed(window, fall[:2])
    window.know_plane(falling.truth.plane_normal, 0.07, 0.004, 0.0006)
    feed(window, fall[2:3])
    assert len(window._fit.frames) == 1
    assert window._fit.motion.variables.reference.plane_offset_m == 0.07
    window.know_plane(tilted(falling.truth.plane_normal, 0.003), 0.0704, 0.004, 0.0006)
    window.know_plane(falling.truth.plane_normal, 0.2, 0.004, 0.0006)
    assert len(window._fit.frames) == 1
    assert window._fit.motion.variables.reference.plane_offset_m == 0.07


def test_what_is_known_of_the_material_survives_a_new_plane(falling: Experiment) -> None:
    """Marginal of E before = marginal of E after, mean and deviation; of the plane nothing is left but what is told."""
    window = window_of(falling, PLANES)
    lasting, rng = window.lasting, np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    lasting.learnt = replace(lasting.learnt, knowledge=Knowledge(rng.normal(size=5), root @ root.T + np.eye(5)))
    before = lasting.learnt.knowledge
    window.know_plane(tilted(falling.truth.plane_normal, 0.2), 0.1, 0.004, 0.0006)
    lasting.begin_episode()
    after = lasting.learnt.knowledge
    assert after.mean[0] == before.mean[0]
    assert after.covariance[0, 0] == pytest.approx(before.covariance[0, 0], rel=1e-9)
    np.testing.assert_allclose(after.covariance[0, 1:4], 0.0, atol=1e-15)


def test_few_looks_that_need_another_ground_tell_nothing(falling: Experiment) -> None:
    """Five frames may take the plane 1.5 of its deviations off, or half a one further than it was known to be before;
    six may take it four. What is not kept is not vouched for either, and says why."""
    window = window_of(falling, PLANES)
    window.know_plane(falling.truth.plane_normal, falling.truth.plane_offset_m, 0.004, 0.0006)
    episode, frames = window._episode, seen(falling, 6, 0.008)

    def off(deviations: float) -> np.ndarray:
        z = window._fit.at.z.copy()
        place = [v.name for v in window.lasting.variables.variables].index("plane_offset_m")
        variable = window.lasting.variables.variables[place]
        z[place] = variable.prior_mean + deviations * variable.prior_std
        return z

    feed(window, frames[:5])
    assert episode.stands_by_plane(window._fit, off(-1.4)) and not episode.stands_by_plane(window._fit, off(-1.6))
    fit, said = window._fit, replace(window.last, settled=True)
    assert window._put_off.vouched(said) is said
    fit.at = replace(fit.at, z=off(2.0))
    told = window._put_off.vouched(said).parameters[0]
    assert not told.observable and told.reason
    before, count = window.lasting.learnt, len(window.lasting.variables)
    known = replace(before.knowledge, mean=np.append(off(1.8)[:count], 0.0))
    window.lasting.learnt = replace(before, knowledge=known)
    assert episode.stands_by_plane(fit, off(2.2)) and not episode.stands_by_plane(fit, off(2.4))
    window.lasting.learnt, fit.at = before, replace(fit.at, z=off(0.0))
    feed(window, frames[5:])
    assert episode.stands_by_plane(window._fit, off(3.9)) and not episode.stands_by_plane(window._fit, off(4.1))


def test_skipping_ahead_keeps_what_is_known(ball: Experiment) -> None:
    """Frames that were dropped count as skipped; the episode ends, and the next one starts with the last answer."""
    window = window_of(ball, ["youngs_modulus_pa"])
    frames = seen(ball, 6, 0.02)
    feed(window, frames)
    last = window._fit.answer().z[0]
    window.skip_ahead(7, 20.0)
    c = window.counters
    assert (c.frames_in, c.frames_used, c.frames_skipped, c.resets) == (13, 6, 7, 0)
    assert window.status == "starting"
    known = window.lasting.learnt.knowledge
    assert known.mean[0] == pytest.approx(last, rel=1e-9)
    feed(window, frames[:1], 30.0)
    assert window._fit.at.z[0] == pytest.approx(last, abs=0.05)
    assert window._fit.touched == window.lasting.touched


def test_a_bent_start_is_waited_out(ball: Experiment) -> None:
    """A ball squeezed by 5 %, 2 mm at its poles and four widths of the noise: no start for bent_patience_s, then one
    with wider intervals; with no patience at once."""
    x = onto_a_squeezed_ball(ball)
    config = replace(CONFIG, bent_patience_s=0.1)
    window = window_of(ball, ["youngs_modulus_pa"], config)
    for k in range(4):  # it is moved about by 1.2 mm: what stays where it is waits for another reason
        assert window.add_frame(5.0 + 0.03 * k, x + 0.0006 * (-1) ** k, NOISE_M) is None
        assert "waiting for it to be still" in window.waiting_for
    assert (window.counters.frames_refused, window.counters.frames_used) == (4, 0)
    window.add_frame(5.12, x, NOISE_M)
    assert (window.counters.frames_refused, window.counters.frames_used) == (4, 1)
    assert window._bent.model_std > 0.1 and "intervals are wider" in window._bent.notes[0]
    assert window.episodes.model_variance(window._bent.model_std)[0] == pytest.approx(
        config.model_std**2 + window._bent.model_std**2
    )
    hasty = window_of(ball, ["youngs_modulus_pa"], replace(config, bent_patience_s=0.0))
    hasty.add_frame(5.0, x, NOISE_M)
    assert hasty.counters.frames_used == 1


def test_a_body_that_is_bent_on_the_ground_is_known_to_half_of_itself(ball: Experiment, falling: Experiment) -> None:
    """The same squeezed ball 5 mm, 0.38 cells, above the plane, and 45 mm: what bent it in the air is small and known
    by how uneven the points are, what bends it on the ground is not."""
    x, stds = onto_a_squeezed_ball(ball), []
    for experiment in (ball, falling):
        window = window_of(experiment, ["youngs_modulus_pa"], replace(CONFIG, bent_patience_s=0.0))
        window.add_frame(5.0, x, NOISE_M)
        stds.append(window._bent.model_std)
    assert stds[0] == 0.5 and 0.1 < stds[1] < 0.45


def onto_a_squeezed_ball(ball: Experiment) -> np.ndarray:
    rng, body = np.random.default_rng(3), ball.model.body
    still = np.zeros((body.node_count, 3))
    points = surface_frame(0.0, body, ball.field, still, 200, 0.0, rng).points_m
    return points * [1.05, 0.975, 0.975] + NOISE_M * rng.normal(size=points.shape)


def test_forgetting_takes_a_part_of_the_information(torus: Experiment) -> None:
    """Λ after n frames have left = (1 - f)ⁿ (Λ before + theirs): what stays of a material that may change."""
    frames = seen(torus, 4, 0.02)
    kept, faded = swinging_fit(torus, frames), swinging_fit(torus, frames)
    kept.slide(1, np.zeros(12), 0.0)
    faded.slide(1, np.zeros(12), 0.1)
    np.testing.assert_allclose(faded.knowledge.information, 0.9**3 * kept.knowledge.information, rtol=1e-12)
    np.testing.assert_array_equal(faded.knowledge.mean, kept.knowledge.mean)
    np.testing.assert_array_equal(faded.information, kept.information)


def test_a_slide_that_fails_changes_nothing(ball: Experiment) -> None:
    """Drifts of the wrong number cannot be added: the window must be as it was, or what left would count twice when the
    slide is tried again."""
    window = window_of(ball, ["youngs_modulus_pa"])
    feed(window, seen(ball, 4, 0.02))
    fit = window._fit
    knowledge, information, at, start = fit.knowledge, fit.information.copy(), fit.at, fit.motion.start
    with pytest.raises(ValueError):
        fit.slide(2, np.zeros(5), 0.0)
    assert fit.knowledge is knowledge and fit.at is at and fit.motion.start is start
    np.testing.assert_array_equal(fit.information, information)
    fit.slide(2, np.full(12, 1e-4), 0.0)
    assert len(fit.frames) == 2 and fit.slid


def test_whole_clouds_in_the_window(torus: Experiment) -> None:
    """Noise of nearly a cell, 12 mm, on a ring 40 mm thick: by whole clouds, frame by frame, E within 3 deviations."""
    rng, clouds = np.random.default_rng(5), []
    for frame in seen(torus, 7, 0.02, 0.0):
        noisy = frame.points_m + 0.012 * rng.normal(size=frame.points_m.shape)
        clouds.append(ObservedFrame.of(frame.time_s, noisy, 0.012))
    guess = replace(torus.truth, youngs_modulus_pa=np.array([2600.0]))
    kind = WholeCloud(torus.model.body, torus.field, 0.012)
    config = replace(CONFIG, frames=6, grow_to_frames=7, points_per_frame=200)
    window = SlidingWindow(torus.model, guess, ["youngs_modulus_pa"], config, field=torus.field, residual=kind)
    said = [window.add_measurement(replace(cloud, time_s=40.0 + cloud.time_s)) for cloud in clouds][-1]
    assert said is not None and said.status == "tracking" and said.noise_scale == 1.0
    e = said.parameters[0]
    assert e.observable and abs(e.value - 2000) < 3 * e.std


def test_a_window_is_as_wide_as_its_patches_disagree(torus: Experiment) -> None:
    """C = (Λ + JᵀWJ / w wᵀ)⁻¹ with w from `fitting.widening`, as an estimate of a recording has it: one for clean
    points, and more where those of one side of the body lie 1.5 mm, three deviations, off."""
    clean = seen(torus, 6, 0.02)
    right = [replace(f, points_m=f.points_m + [[0, 0, 1.5e-3]] * (f.points_m[:, :1] > 0)) for f in clean]
    wide = []
    for frames in (clean, right):
        fit = swinging_fit(torus, frames)
        fit.refine(6, lambda seconds: True)
        assert fit.holds
        step = fit._free_step().by
        rows = fit.linear.stepped(step).at
        before = Before(fit.knowledge.information, fit.knowledge.gradient(fit.at.z + step))
        patch = PointPlaces(torus.model.body, 200, fit.motion.backend).patch(fit.frames)
        assert len(np.unique(patch)) >= 6 and (patch >= 0).all()
        information = rows.known_jacobian.T @ (rows.known_jacobian * rows.weight[:, None])
        w = widening(rows, np.linalg.inv(fit.knowledge.information + information), 1.0, patch, before)
        expected = np.linalg.inv(fit.knowledge.information + information / np.outer(w, w))
        # Two ways to invert the same three by three, of variables ten thousand times apart.
        np.testing.assert_allclose(fit.answer().covariance, expected, rtol=1e-6, atol=1e-9 * expected.max())
        wide.append(w)
    assert (wide[0] <= wide[1]).all() and wide[1].max() > 1.5 * wide[0].max()


def test_a_window_that_has_not_settled_is_as_wide_as_the_way_that_is_left(torus: Experiment) -> None:
    """C (1 + λ²) with λ² = sᵀ C⁻¹ s of the lasting variables' step s, as in an estimate of a recording: the deviation
    of none of them is below its own step."""
    frames = seen(torus, 6, 0.02)
    softer = replace(torus, truth=torus.truth.replace(youngs_modulus_pa=0.7 * torus.truth.youngs_modulus_pa))
    fit = swinging_fit(softer, frames)
    answer = fit.answer()
    step = answer.z - fit.at.z
    assert not answer.settled and abs(step[0]) > 0.1
    std = np.sqrt(np.diag(answer.covariance))
    assert (std[:2] >= np.abs(step[:2])).all()
    own = np.linalg.inv(fit.knowledge.information + fit.linear.stepped(step).data()[0])
    factor = 1.0 + float(step[:2] @ np.linalg.solve(own[:2, :2], step[:2]))
    np.testing.assert_allclose(answer.covariance, factor * own, rtol=1e-6, atol=1e-9 * answer.covariance.max())


def test_a_body_that_lies_still_is_waited_for(falling: Experiment, fall: list[ObservedFrame]) -> None:
    """Between two frames 1/30 s apart a free body falls by g t² / 2 = 5.4 mm, ten times the noise. One that stays is
    held or lies: three frames of it tell nothing, and the window begins with the first frame that is elsewhere."""
    window, still = window_of(falling, ["youngs_modulus_pa"]), fall[0]
    feed(window, [replace(still, time_s=k / 30) for k in range(4)])
    assert window.status == "starting" and window.last is None and not window.begun
    assert window.counters.frames_refused == 3 and "lies still" in window.waiting_for
    feed(window, fall[2:], 10.15)  # 1.3, 2.8, 5.0 mm below: it falls
    assert window.status == "tracking" and window.counters.frames_refused == 3 and window.waiting_for == ""
    # Frames so close that a fall cannot be seen between them do not say whether it lies.
    close = window_of(falling, ["youngs_modulus_pa"])
    feed(close, [replace(still, time_s=k / 300) for k in range(4)])
    assert close.counters.frames_refused == 0


def test_a_body_that_has_come_to_rest_is_not_simulated_on(ball: Experiment) -> None:
    """A ball that falls 5 mm into honey: its motion is over after 0.5 s. The frames after that show what those before
    showed; the estimate stays, with their stamps, until the ball is somewhere else."""
    still = {"velocity_m_s": np.zeros(3), "angular_velocity_rad_s": np.zeros(3)}
    truth = replace(ball.truth, mass_damping_per_s=20.0, plane_normal=np.array([0.0, 1.0, 0.0]), **still)
    honey, body = replace(ball, truth=truth), ball.model.body
    times, simulation = np.arange(24) / 30, Simulation(ball.model, truth)
    states = zip(times, displacements_from(simulation, simulation.initial_state(), times))
    # The same points of the body in all frames, as pixels of a camera that stands still see them.
    frames = [surface_frame(t, body, ball.field, u, 200, NOISE_M, np.random.default_rng(7)) for t, u in states]
    window = window_of(honey, ["youngs_modulus_pa"])
    feed(window, frames[:18])
    assert window.last is not None and window._fit is not None and "come to rest" in window.waiting_for
    at_rest, fit, used = window.last, window._fit, window.counters.frames_used
    assert at_rest.settled and 12 <= used <= 17  # the model is quiet within a fifth of the noise from 0.4 s on
    feed(window, frames[18:])
    assert window._fit is fit and len(fit.frames) == CONFIG.frames and window.counters.frames_used == used
    assert window.last.stamp_s == 10.0 + times[-1] and window.last.parameters == at_rest.parameters
    assert window.status == "tracking" and window.counters.frames_refused == 24 - used
    # Thrown up again: another episode, which knows what the first one learnt.
    tossed = replace(frames[-1], points_m=frames[-1].points_m + 0.01)
    feed(window, [tossed], 10.0 + 1 / 30)
    assert window._fit is not fit and window.lasting.begun


def test_the_middle_of_a_cloud_does_not_jump_between_pixels() -> None:
    """Columns of pixels 1.7 mm apart: one more point on a side moves the median by a column, the middle by a part of
    it that is six over the number of points."""
    columns = 0.0017 * np.repeat(np.arange(4), 100)
    before, after = (np.stack([x, 0 * x, 0 * x], axis=1) for x in (columns, np.append(columns, [0.0051] * 2)))
    assert np.median(after[:, 0]) - np.median(before[:, 0]) > 0.0008
    assert abs(middle_of(after)[0] - middle_of(before)[0]) < 0.0017 / 50
    strayed = np.vstack([before, [[9.0, 9.0, 9.0]] * 3])
    assert np.abs(middle_of(strayed) - middle_of(before)).max() < 0.0017 / 40
