"""Recordings with one thing wrong, drawn at random for the benchmark of verdicts; and clean ones.

Every draw follows from its seed. The scenes are those of the coverage benchmark; what happens has finer cells and
shorter steps than an estimate takes, in the clean ones, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from coverage_cases import CLAMPED, LOWEST, SHAPES, SIZE_M, SPACING_M, STEP_S, draw, scene_of, shape_of

from soft_estimator.backends.choose import choose_backend
from soft_estimator.camera.observing import UnseenBody, camera_frame
from soft_estimator.camera.scene_cameras import cameras_of, depth_noise, frame_times_s
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.physics.model import State
from soft_estimator.physics.step import Simulation
from soft_estimator.recordings.observed_frames import FrameSet
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene

# Where there is no telling from the frames, or the motion may have lost all trace of it, an interval that holds the
# truth is the honest answer; the others are to be called wrong.
# A stiff body that hangs does not move enough to show the clock.
CALLED = ("shifted", "slides", "wrong body", "pure noise")
HELD = ("half speed", "copied points", "hand midway", "bent start", "density", "plane", "scale")
CASES = (*CALLED, *HELD)
SHIFT_M, SLIDE_M_S, HIT_M_S, BEND_M = 0.03, 0.3, 0.5, 0.01
DENSITY_OFF, PLANE_OFF_M, COPIES = 0.05, 0.002, 20


@dataclass(frozen=True)
class Recording:
    """told: the scene that an estimate gets, and what it is given: frames. truth_pa: the stiffness."""

    told: Scene
    frames: FrameSet
    truth_pa: float
    words: str


def recording(seed: int, case: str) -> Recording:
    """A recording of the seed's scene with one of CASES wrong in it; "" for a clean one."""
    rng, drawn = np.random.default_rng(seed + 3), draw(seed, False)
    truth = {**drawn.truth, "estimate": None, "time": {**drawn.truth["time"], "step_s": 0.5 * STEP_S}}
    truth["body"] = {**truth["body"], "spacing_m": 0.8 * SPACING_M}
    told: dict[str, Any] = {**drawn.told, "estimate": dict(drawn.told["estimate"])}
    for key in ("known_to", "grid_error_nodes"):  # the usual ones
        del told["estimate"][key]
    told["estimate"]["parameters"] = ["youngs_modulus_pa", "stiffness_damping_s"]
    sign = float(rng.choice([-1.0, 1.0]))
    if case == "wrong body":
        truth["body"]["shape"] = shape_of(str(rng.choice(others(told))), 1.0)
    elif case == "scale":
        truth["body"]["shape"] = shape_of(told["name"].partition("_")[0], 1 + sign * float(rng.uniform(0.03, 0.15)))
    elif case == "density":
        told["material"] = {**told["material"], "density_kg_m3": 1000 * (1 + sign * DENSITY_OFF)}
    elif case == "plane":
        told["contact"] = {**told["contact"], "offset_m": told["contact"]["offset_m"] + sign * PLANE_OFF_M}
    scene = scene_of(truth)
    frames = changed(observed(scene, case, rng), case, rng)
    return Recording(scene_of(told), frames, float(truth["material"]["youngs_modulus_pa"]), drawn.words)


def others(told: dict[str, Any]) -> list[str]:
    """Other shapes than the one that is told; of a held body those that its clamp reaches."""
    kind = told["name"].partition("_")[0]
    least = 0.0 if "contact" in told else CLAMPED * LOWEST[kind]
    return [other for other in SHAPES if other != kind and LOWEST[other] > least]


def case_of(k: int, seed: int) -> str:
    """The k-th case in turn; a body that falls is needed for a plane."""
    case = CASES[k % len(CASES)]
    return "density" if case == "plane" and "contact" not in draw(seed, False).truth else case


def observed(scene: Scene, case: str, rng: np.random.Generator) -> FrameSet:
    """What the camera sees; a body may be let go from a bend, or be hit by a hand halfway."""
    observe = scene.config.observe
    assert observe is not None
    simulation = Simulation(scene.model, scene.parameters, choose_backend("cpu"))
    field, times = carry_field(scene.body), frame_times_s(scene.config)
    state, middle = simulation.initial_state(), 0.5 * times[-1]
    if case == "bent start":
        state = bent(scene, state, rng)
    moved = list(displacements(simulation, times, state))
    if case == "hand midway":
        while state.time_s < middle:
            state, _ = simulation.step(state)
        later = [t - state.time_s for t in times if t > state.time_s]
        moved[len(times) - len(later) :] = displacements(simulation, later, hit(scene, state, rng))
    noise, isotropic_m = depth_noise(observe.noise), observe.noise.isotropic_m(field.spacing_m)
    cameras, noisy = cameras_of(observe), np.random.default_rng(observe.seed)
    frames = []
    for t, u in zip(times, moved):
        try:
            frames.append(
                camera_frame(t, scene.body, field, u, cameras, noise, noisy, observe.points_per_frame, isotropic_m)
            )
        except UnseenBody:  # a body that was hit may leave the view
            continue
    return FrameSet(tuple(frames), tuple(f"frame {k}" for k in range(len(frames))), ())


def bent(scene: Scene, state: State, rng: np.random.Generator) -> State:
    """The state of a body let go by a hand: a held one from a bend, the more the lower; one that falls from a pinch."""
    way, arm = sideways(rng), scene.body.node_position_m - scene.body.centroid_m
    if scene.model.contact is None:
        u = (BEND_M * below(scene) ** 2)[:, None] * way
    else:  # flatter on either side, the volume kept to first order
        u = BEND_M / SIZE_M * (arm - 3 * np.outer(arm @ way, way))
    return replace(state, u=state.u + u)


def hit(scene: Scene, state: State, rng: np.random.Generator) -> State:
    """The state after a hand has hit the body from a side, the more the lower."""
    return replace(state, v=state.v + HIT_M_S * below(scene)[:, None] * sideways(rng))


def below(scene: Scene) -> np.ndarray:
    """How far the nodes lie below the top, or below where the body is held: 0 to 1, (N,)."""
    height = scene.body.node_position_m[:, 1]
    top = min([height.max(), *(box.low_m[1] for box in scene.config.fixed if box.low_m is not None)])
    return np.clip((top - height) / (top - height.min()), 0, 1)


def sideways(rng: np.random.Generator) -> np.ndarray:
    """Any horizontal direction."""
    angle = rng.uniform(0, 2 * np.pi)
    return np.array([np.cos(angle), 0.0, np.sin(angle)])


def changed(frames: FrameSet, case: str, rng: np.random.Generator) -> FrameSet:
    """Frames whose points or stamps are wrong."""
    way = rng.normal(size=3)
    way /= np.linalg.norm(way)
    change = {
        "shifted": lambda f: replace(f, points_m=f.points_m + SHIFT_M * way),
        "slides": lambda f: replace(f, points_m=f.points_m + SLIDE_M_S * f.time_s * way),
        "pure noise": lambda f: replace(f, points_m=scattered(f, rng)),
        "half speed": lambda f: replace(f, time_s=0.5 * f.time_s),
        "copied points": copied,
    }.get(case, lambda f: f)
    return replace(frames, frames=tuple(change(f) for f in frames.frames))


def scattered(frame: ObservedFrame, rng: np.random.Generator) -> np.ndarray:
    """Points anywhere in the body's box."""
    return rng.uniform(frame.points_m.min(axis=0), frame.points_m.max(axis=0), frame.points_m.shape)


def copied(frame: ObservedFrame) -> ObservedFrame:
    rows = np.tile(np.arange(len(frame.points_m)), COPIES)
    along = None if frame.along is None else frame.along[rows]
    return ObservedFrame(frame.time_s, frame.points_m[rows], frame.std_m[rows], frame.curvature_share[rows], along)
