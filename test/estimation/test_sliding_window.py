"""The sliding window: a soft ball dropped on a plane, seen in frames of 300 noisy points."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from soft_estimator.camera.observing import surface_frame
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.window.arrival import Knowledge, begin_anew
from soft_estimator.estimation.window.episode import FoundPose
from soft_estimator.estimation.window.live_estimate import NOT_SETTLED
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

NOISE_M = 0.0005
NAMES = ["youngs_modulus_pa", "plane_offset_m"]
TRUTH = Parameters(
    np.array([6000.0]), 0.4, 1000.0, 0.0, 0.003, translation_m=np.array([0.0, 0.115, 0.0]), velocity_m_s=[0.05, -0.7, 0]
)
# E off by two, the plane by 3 mm, nothing known of the motion.
GUESS = replace(TRUTH, youngs_modulus_pa=np.array([12000.0]), plane_offset_m=0.003, velocity_m_s=np.zeros(3))
SMALL = WindowConfig(frames=5, grow_to_frames=9, points_per_frame=300, start="scene")


def model_of(cell_m: float) -> Model:
    body = build_body(sample(Sphere(radius_m=0.05), cell_m))
    return build_model(body, theta_scheme(0.01), contact=ContactLaw(2e6, 1500.0))


def frames_of(model: Model, field: CarriedField) -> list[ObservedFrame]:
    rng = np.random.default_rng(3)
    simulation = Simulation(model, TRUTH)
    state, out = simulation.initial_state(), []
    for k in range(43):
        if k % 3 == 0:
            out.append(surface_frame(state.time_s, model.body, field, state.u, 300, NOISE_M, rng))
        state, _ = simulation.step(state)
    return out


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of(0.02)


@pytest.fixture(scope="module")
def field(model: Model) -> CarriedField:
    return carry_field(model.body)


@pytest.fixture(scope="module")
def frames(model: Model, field: CarriedField) -> list[ObservedFrame]:
    return frames_of(model, field)


@dataclass(frozen=True)
class Followed:
    """A ball of smaller cells, of which it is told how well it is known: its frames, a window and what that said."""

    model: Model
    field: CarriedField
    frames: list[ObservedFrame]
    window: SlidingWindow
    said: list


def window(model: Model, field: CarriedField, config: WindowConfig = SMALL, **more) -> SlidingWindow:
    return SlidingWindow(model, GUESS, NAMES, config, field=field, **more)


def run(target: SlidingWindow, frames: list[ObservedFrame], since_s: float = 100.0) -> list:
    return [target.add_frame(since_s + f.time_s, f.points_m, f.std_m) for f in frames]


@pytest.fixture(scope="module")
def followed() -> Followed:
    model = model_of(0.0155)
    field = carry_field(model.body)
    target, frames = window(model, field), frames_of(model, field)
    return Followed(model, field, frames, target, run(target, frames))


def test_stiffness_and_plane_are_found(followed: Followed) -> None:
    """After one bounce E is known to better than 3 % and the plane to 0.3 mm, and the intervals say so."""
    target, said = followed.window, followed.said
    stiffness, offset = said[-1].parameters
    assert target.status == "tracking"
    assert stiffness.observable and offset.observable
    assert abs(stiffness.value / 6000 - 1) < 0.03
    assert abs(offset.value) < 3e-4
    # Three standard deviations: this is one draw of the noise, not fifty.
    assert abs(stiffness.value - 6000) < 3 * stiffness.std
    assert abs(offset.value) < 3 * offset.std


def test_nothing_is_claimed_before_the_body_touches(followed: Followed) -> None:
    """In the air the motion depends on neither, and it says so."""
    said = followed.said
    assert said[0] is None and said[1] is None
    first = said[2]
    assert first.status == "tracking"
    assert [p.observable for p in first.parameters] == [False, False]
    assert first.parameters[1].reason == "the body never touched the plane"


def test_mesh_follows_the_truth(followed: Followed) -> None:
    """The newest state puts the ball's centre where it is: 300 points with 0.5 mm noise average to far below 0.3 mm."""
    model, said = followed.model, followed.said
    simulation = Simulation(model, TRUTH)
    state = simulation.initial_state()
    for _ in range(42):
        state, _ = simulation.step(state)
    weight = model.body.node_volume_m3 / model.body.volume_m3
    assert np.abs(weight @ (said[-1].u_m - state.u)).max() < 3e-4


def test_it_slides(followed: Followed) -> None:
    target, said = followed.window, followed.said
    sizes = [e.frames_in_window for e in said if e is not None]
    assert max(sizes) == SMALL.grow_to_frames
    assert sizes[-1] == SMALL.frames
    assert target.counters.frames_used == len(said) and target.counters.frames_cut == 0


def test_sliding_does_not_forget(followed: Followed) -> None:
    """What left the window is remembered: the interval does not widen again by more than half."""
    said = followed.said
    narrowest = min(e.parameters[0].std for e in said[-6:])
    assert said[-1].parameters[0].std < 1.5 * narrowest
    assert said[-1].parameters[0].std < 0.1 * 6000


def test_same_frames_same_bits(followed: Followed) -> None:
    """To the frames after it began to slide."""
    again = run(window(followed.model, followed.field), followed.frames[: SMALL.grow_to_frames + 2])
    for a, b in zip(followed.said, again):
        assert (a is None) == (b is None)
        if a is not None:
            assert [p.value for p in a.parameters] == [p.value for p in b.parameters]
            assert [p.std for p in a.parameters] == [p.std for p in b.parameters]
            assert (a.u_m == b.u_m).all()


def test_lost_and_found(model: Model, field: CarriedField, frames: list[ObservedFrame]) -> None:
    """A hidden object is lost after half a second; its last estimate is held, and known when it comes back."""
    target = window(model, field)
    before = run(target, frames[:8], 0.0)[-1]
    assert target.add_nothing(frames[7].time_s + 0.2, "hidden") is None
    held = target.add_nothing(frames[7].time_s + 0.7, "hidden")
    assert held.status == target.status == "lost"
    assert held.parameters == before.parameters
    assert held.notes == ("hidden",)
    back = run(target, frames[:3], frames[7].time_s + 1.0)
    assert back[-1].status == "tracking"
    # The bounce before is remembered: E is still known, though this stretch has not touched yet.
    assert back[-1].parameters[0].observable
    assert abs(back[-1].parameters[0].value / before.parameters[0].value - 1) < 0.05


@pytest.mark.parametrize(("jump_s", "way"), [(-5.0, "back"), (7.0, "forward")])
def test_time_jump_starts_anew(
    model: Model, field: CarriedField, frames: list[ObservedFrame], jump_s: float, way: str
) -> None:
    target = window(model, field, replace(SMALL, least_frames=1))
    run(target, frames[:3])
    said = target.add_frame(100.0 + frames[2].time_s + jump_s, frames[0].points_m, frames[0].std_m)
    assert target.counters.resets == 1
    assert f"jumped {way}" in said.notes[0]
    assert said.frames_in_window == 1


def test_bad_frames_are_counted_not_fatal(model: Model, field: CarriedField, frames: list[ObservedFrame]) -> None:
    target = window(model, field)
    f = frames[0]
    assert target.add_frame(float("nan"), f.points_m, f.std_m) is None
    assert target.add_frame(1.0, np.full((50, 3), np.nan), 0.001) is None
    assert target.add_frame(1.1, np.zeros((0, 3)), 0.001) is None
    target.add_frame(1.2, f.points_m, f.std_m)
    target.add_frame(1.15, f.points_m, f.std_m)  # a straggler
    target.add_frame(1.2, f.points_m, f.std_m)  # a repeated stamp
    far = frames[1].points_m + 10.0
    target.add_frame(1.23, np.concatenate([frames[1].points_m, far]), NOISE_M)
    c = target.counters
    assert (c.frames_in, c.frames_used, c.frames_refused, c.frames_empty, c.frames_late) == (7, 2, 1, 2, 2)
    assert c.points_set_aside == 50 + 300
    # Every frame is used or has its reason: 2 + 5 = 7.
    assert target.refusals.total == 5
    assert {r.example: r.count for r in target.refusals.most_first()} == {
        "0 usable points; 20 are needed": 2,
        "its stamp is not later than the frame's before it": 2,
        "its stamp is not a number": 1,
    }


def test_close_frames_are_thinned(model: Model, field: CarriedField, frames: list[ObservedFrame]) -> None:
    target = window(model, field, replace(SMALL, least_interval_s=0.05))
    run(target, frames[:5])  # 30 ms apart
    assert target.counters.frames_used == 3
    assert target.counters.frames_thinned == 2


def test_no_time_means_no_second_simulation(model: Model, field: CarriedField, frames: list[ObservedFrame]) -> None:
    """With a clock that jumps by a second at each look and a budget of half of that, a frame only continues the run."""
    ticks = iter(range(100000))
    config = replace(SMALL, time_budget_s=0.5)
    target = SlidingWindow(model, TRUTH, NAMES, config, field=field, clock=lambda: float(next(ticks)))
    said = run(target, frames[:6])
    assert target._fit.motion.simulations == 2  # the empty one it began with, and the first frame with a velocity
    assert said[-1].status == "tracking"
    # Continuing the run is enough to learn from the touch: the answer is the linearisation's. It is on its way to a
    # minimum further off than that holds, and not vouched for.
    stiffness = said[-1].parameters[0]
    assert stiffness.std < 0.5 * stiffness.value
    assert not said[-1].settled and not stiffness.observable and stiffness.reason == NOT_SETTLED


def test_refused_pose_is_said(model: Model, field: CarriedField, frames: list[ObservedFrame]) -> None:
    target = window(model, field, replace(SMALL, start="register"), locate=lambda p, s: FoundPose(None, None, "no fit"))
    run(target, frames[:2])
    assert target.status == "starting"
    assert target.counters.frames_refused == 2


def test_a_body_that_is_pushed_starts_anew(model: Model, field: CarriedField, frames: list[ObservedFrame]) -> None:
    """Something lifts the ball by 4 cm and more: no motion of the model does that. What was known stays known."""
    target = window(model, field)
    known = run(target, frames[:9], 0.0)[-1].parameters[0]
    for k in range(1, 5):
        lifted = frames[8].points_m + np.array([0.0, 0.03 * k, 0.0])
        target.add_frame(frames[8].time_s + 0.03 * k, lifted, NOISE_M)
    assert target.counters.resets >= 1
    assert abs(target.lasting.learnt.knowledge.mean[0] - np.log(known.value)) < 0.1


def test_new_start_keeps_what_is_known() -> None:
    """Exchanging the start's variables for a correction is a change of coordinates: without drift, the material's
    mean and covariance stay, and a state's mean and covariance are the same through either.
    """
    rng = np.random.default_rng(0)
    count, pose = 14, np.arange(2, 14)
    root = rng.normal(size=(count, count))
    knowledge = Knowledge(rng.normal(size=count), root @ root.T + np.eye(count))
    z = rng.normal(size=count)
    correction = rng.normal(size=(12, count))
    correction[:, 2:] += 3 * np.eye(12)
    after, mixing, unmade = begin_anew(knowledge, z, correction, pose, np.zeros(12))
    assert unmade is None
    np.testing.assert_allclose(after.mean[:2], knowledge.mean[:2], rtol=1e-9)
    np.testing.assert_allclose(after.covariance[:2, :2], knowledge.covariance[:2, :2], rtol=1e-7)
    state = rng.normal(size=(5, count))  # any quantity linear in the old variables
    centre = np.concatenate([z[:2], np.zeros(12)])
    before_mean = state @ (knowledge.mean - z)
    np.testing.assert_allclose(state @ mixing @ (after.mean - centre), before_mean, atol=1e-9)
    np.testing.assert_allclose(
        state @ mixing @ after.covariance @ (state @ mixing).T, state @ knowledge.covariance @ state.T, atol=1e-6
    )
    wider, _, _ = begin_anew(knowledge, z, correction, pose, np.full(12, 0.5))
    np.testing.assert_allclose(np.diag(wider.covariance)[2:], np.diag(after.covariance)[2:] + 0.25, rtol=1e-6)


@pytest.mark.parametrize("drift", [0.0, 1e-3])
def test_new_start_of_a_body_that_lay_in_balance(drift: float) -> None:
    """Its height, tilt and motion are the balance's, not its variables': five of twelve corrections were made by none.
    Those change nothing by the mixing, and are told; any quantity that did not hang on these variables keeps its mean
    and, without drift, its covariance."""
    rng = np.random.default_rng(0)
    count, pose = 14, np.arange(2, 14)
    root = rng.normal(size=(count, count))
    knowledge = Knowledge(rng.normal(size=count), root @ root.T + np.eye(count))
    z, correction, state = rng.normal(size=count), rng.normal(size=(12, count)), rng.normal(size=(5, count))
    idle = np.array([4, 5, 6, 8, 9])
    correction[:, idle] = state[:, idle] = 0.0
    after, mixing, unmade = begin_anew(knowledge, z, correction, pose, np.full(12, drift))
    assert unmade is not None and np.linalg.matrix_rank(unmade) == len(idle)
    np.testing.assert_allclose(unmade @ correction[:, pose], 0.0, atol=1e-12)  # only what no variable makes
    assert np.isfinite(after.information).all() and np.isfinite(mixing).all()
    centre = np.concatenate([z[:2], np.zeros(12)])
    np.testing.assert_allclose(state @ mixing @ (after.mean - centre), state @ (knowledge.mean - z), atol=1e-8)
    if drift == 0.0:
        through = state @ mixing
        np.testing.assert_allclose(
            through @ after.covariance @ through.T, state @ knowledge.covariance @ state.T, atol=1e-6
        )
    np.testing.assert_allclose(after.mean[:2], knowledge.mean[:2], rtol=1e-9)
