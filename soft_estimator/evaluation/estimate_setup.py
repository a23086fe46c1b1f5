"""What an estimate starts from, out of a scene's `observe` and `estimate` sections: cameras, frames, noise, guesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.config import SceneConfig
from soft_estimator.config_estimation import PARAMETERS, EstimateConfig, NoiseConfig, ObserveConfig
from soft_estimator.estimation.field import CarriedField
from soft_estimator.estimation.observation import RAY_CURVATURE_SHARE
from soft_estimator.estimation.variables import KINDS, Variables, make_variables
from soft_estimator.evaluation.camera import DepthNoise, PinholeCamera, ring_of_cameras
from soft_estimator.evaluation.frames import FrameSet, NoiseOf, SetAside
from soft_estimator.evaluation.observing import camera_frame
from soft_estimator.evaluation.scene import Scene
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.schema import ConfigError

Progress = Callable[[str, int, int, str], None]  # stage, done, total, a note for people

_DEFAULT_RATE_HZ = 30.0


def cameras_of(observe: ObserveConfig) -> list[PinholeCamera]:
    """The cameras of a scene."""
    cameras = [
        PinholeCamera.looking_at(c.eye_m, c.target_m, c.up, c.width_px, c.height_px, c.horizontal_fov_rad)
        for c in observe.cameras
    ]
    r = observe.ring
    if r is not None:
        image = (r.width_px, r.height_px, r.horizontal_fov_rad, r.first_angle_rad)
        cameras += ring_of_cameras(r.count, r.target_m, r.radius_m, r.height_m, r.up, *image)
    return cameras


def depth_noise(noise: NoiseConfig) -> DepthNoise | None:
    """The noise of depth images, None where they are exact."""
    if noise.kind != "depth_camera":
        return None
    return DepthNoise(**{name: getattr(noise, name) for name in DepthNoise.__dataclass_fields__})


def watched_s(config: SceneConfig) -> float:
    """How long the cameras watch [s]."""
    whole = config.time.steps * config.time.step_s
    given = None if config.observe is None else config.observe.duration_s
    return whole if given is None else min(given, whole)


def frame_times_s(config: SceneConfig, steps: int | None = None) -> list[float]:
    """When the cameras look [s]; over the first `steps` time steps only, if given."""
    observe = config.observe or ObserveConfig()
    step = config.time.step_s
    end = watched_s(config) if steps is None else min(watched_s(config), steps * step)
    every = observe.every_steps * step if observe.every_steps else 1.0 / (observe.frame_rate_hz or _DEFAULT_RATE_HZ)
    count = int(np.floor(end / every * (1 + 1e-9)))
    if count == 0:
        raise ConfigError(
            f"gives a frame every {every:g} s, but only {end:g} s are watched; look more often or longer",
            "observe.every_steps" if observe.every_steps else "observe.frame_rate_hz",
        )
    return [k * every for k in range(1, count + 1)]


def displacements(simulation: Simulation, times_s: Sequence[float]) -> Iterator[np.ndarray]:
    """u (N, 3) [m] at rising times, on a straight line between the states of the simulation, as the residuals take
    it."""
    step, host = simulation.model.integrator.step_s, simulation.backend.to_host
    before = after = simulation.initial_state()
    done = 0
    for time_s in times_s:
        while done * step < time_s - 1e-6 * step:
            before, after = after, simulation.step(after)[0]
            done += 1
        share = 1.0 if done == 0 else min(max(time_s / step - (done - 1), 0.0), 1.0)
        share = 1.0 if share > 1 - 1e-6 else share
        yield ((1 - share) * host(before.u) + share * host(after.u)).astype(np.float64)


def observe_truth(
    scene: Scene,
    field: CarriedField,
    backend: Backend,
    progress: Progress | None = None,
    steps: int | None = None,
    budget: int | None = None,
) -> FrameSet:
    """What the scene's cameras see while the scene moves with its own parameters."""
    observe = scene.config.observe
    cameras = [] if observe is None else cameras_of(observe)
    if observe is None or not cameras:
        raise ConfigError("has no camera; add observe.cameras or observe.ring, or give recorded frames", "scene")
    times = frame_times_s(scene.config, steps)
    noise, isotropic_m = depth_noise(observe.noise), observe.noise.isotropic_m(field.spacing_m)
    rng = np.random.default_rng(observe.seed)
    frames, names, aside = [], [], []
    for k, u in enumerate(displacements(Simulation(scene.model, scene.parameters, backend), times)):
        name = f"frame {k}"
        points = min(observe.points_per_frame, budget or observe.points_per_frame)
        try:
            frames.append(camera_frame(times[k], scene.body, field, u, cameras, noise, rng, points, isotropic_m))
            names.append(name)
        except ValueError as error:
            if "no camera sees" not in str(error):
                raise
            aside.append(SetAside(name, times[k], "not seen by any camera"))
        if progress:
            progress("observing", k + 1, len(times), "")
    if not frames:
        raise ConfigError("see nothing of the body at any time; turn a camera towards it", "observe.cameras")
    return FrameSet(tuple(frames), tuple(names), tuple(aside))


def noise_of_points(scene: Scene, noise_m: float | None = None) -> NoiseOf:
    """The noise of recorded points: noise_m [m] along the view if given, else what the scene says of its sensor."""
    observe = scene.config.observe
    if noise_m is not None:
        return lambda points: (np.full(len(points), noise_m), np.full(len(points), RAY_CURVATURE_SHARE))
    isotropic_m = 0.0 if observe is None else observe.noise.isotropic_m(scene.body.grid.spacing_m)
    if isotropic_m > 0:
        return lambda points: (np.full(len(points), isotropic_m), np.ones(len(points)))
    cameras = [] if observe is None else cameras_of(observe)
    sensor = None if observe is None else depth_noise(observe.noise)

    def by_depth(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if sensor is None or not cameras:
            raise ValueError(
                "the frames do not say how noisy their points are; give --noise-mm, a fourth column, or observe.noise "
                "with cameras"
            )
        # Which camera saw a point is not known; the one it lies nearest to is the best bet.
        depth = np.stack([c.to_camera_frame(points)[:, 2] for c in cameras])
        nearest = np.where(depth > 0, depth, np.inf).min(axis=0)
        std = sensor.std_m(np.where(np.isfinite(nearest), nearest, 1.0), cameras[0])
        return np.maximum(std, 1e-5), np.full(len(points), RAY_CURVATURE_SHARE)

    return by_depth


def check_names(config: SceneConfig, names: Sequence[str]) -> None:
    """Refuse parameters that the scene does not have."""
    regions = 1 + len(config.material.regions)
    for i, name in enumerate(names):
        base, _, component = name.partition("[")
        key = f"estimate.parameters[{i}]"
        if base.startswith("plane_") and config.contact is None:
            raise ConfigError(f"= '{name}' needs a contact section, and the scene has none; add one", key)
        if base == "youngs_modulus_pa" and component and int(component.rstrip("]")) >= regions:
            raise ConfigError(f"= '{name}' does not exist; the last one is {base}[{regions - 1}]", key)


def guess_of(scene: Scene) -> Parameters:
    """The scene's parameters with the first guesses put in."""
    estimate = scene.config.estimate
    changed: dict[str, np.ndarray | float] = {}
    for name in PARAMETERS if estimate is not None else ():
        value = getattr(estimate.guess, name)  # type: ignore[union-attr]
        if value is None:
            continue
        if name == "youngs_modulus_pa":
            changed[name] = np.full(len(scene.parameters.youngs_modulus_pa), value)
        elif name == "plane_normal":
            changed[name] = np.array(value) / np.linalg.norm(value)
        else:
            changed[name] = np.array(value) if isinstance(value, tuple) else float(value)
    return replace(scene.parameters, **changed)  # type: ignore[arg-type]


def variables_of(scene: Scene, estimate: EstimateConfig) -> Variables:
    """The variables of an estimate around the scene's guesses."""
    check_names(scene.config, estimate.names)
    prior = {name: getattr(estimate.prior_std, name) for name in PARAMETERS}
    guess = guess_of(scene)
    # What is guessed but not estimated would silently be held at the guess.
    bases = {name.partition("[")[0] for name in estimate.names}
    kept = {n: getattr(scene.parameters, n) for n in PARAMETERS if n not in bases}
    return make_variables(
        replace(guess, **kept), list(estimate.names), {n: std for n, std in prior.items() if std is not None}
    )


def shown_labels(variables: Variables) -> list[str]:
    """The variables' labels; the stiffness of a body of one material carries no number."""
    alone = len(variables.reference.youngs_modulus_pa) == 1
    return [v.name if alone and v.name == "youngs_modulus_pa" else v.label for v in variables.variables]


def natural_of(variables: Variables, parameters: Parameters) -> np.ndarray:
    """The natural values that `parameters` have in these variables, (P,); a plane's tilts by its tangent steps."""
    out = []
    for v in variables.variables:
        if v.transform == "tangent":
            normal = parameters.plane_normal
            out.append(float(normal @ variables.tangents[v.index or 0]) / float(normal @ variables.normal))
        else:
            value = np.asarray(getattr(parameters, v.name), dtype=np.float64)
            out.append(float(value if v.index is None else value[v.index]))
    return np.array(out)


def applicable_names(scene: Scene) -> list[str]:
    """Every parameter that the scene has and whose value its transform can take."""
    out = []
    for name, (transform, _, _) in KINDS.items():
        value = np.asarray(getattr(scene.parameters, name))
        if name.startswith("plane_") and scene.config.contact is None:
            continue
        if transform in ("log", "logit") and not (value > 0).all():
            continue
        out.append(name)
    return out
