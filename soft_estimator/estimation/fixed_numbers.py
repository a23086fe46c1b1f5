"""What is fixed is not known (METHOD §15): the numbers that an estimate holds fixed, and how an error of each shows.

Every source of error is made of columns: the change of the residuals with one standard deviation of it. A registered
parameter's column is that of the tangent. Errors of the camera and of its clock move the points instead of the body: to
the residuals that is the body moved the other way. A body of another size moves as this one does with every number that
holds a length scaled, which makes its column one of the tangent, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.held_pose import POSE_OF_HELD
from soft_estimator.estimation.residuals.interface import Frame, FrameState, Prediction
from soft_estimator.estimation.residuals.tool_wrench import WrenchPrediction
from soft_estimator.estimation.variables import Variable, Variables, make_variables, natural_slope
from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.body import Body
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters

# Power of a length in each unit where density and time are kept: a mass is a density times a length cubed.
_LENGTHS = {
    "": 0, "rad": 0, "rad/s": 0, "s": 0, "1/s": 0, "kg/m^3": 0, "m": 1, "m/s": 1, "m/s^2": 1, "Pa/m": 1, "1/m": -1,
    "Pa": 2, "kg": 3, "N/m": 3, "N": 4,
}  # fmt: skip

# Of a registered parameter, what moves the estimates of a window by more than a per cent or so of themselves; where the
# obstacles are by themselves does, too.
WINDOW_SOURCES = (
    "poissons_ratio", "density_kg_m3", "plane_normal", "plane_offset_m", "contact_sharpness_per_m",
    "obstacle_shift_m", "obstacle_turn_rad",
)  # fmt: skip
_SIZE = ("shape_scale", "the size of the shape", "measure a length of the body")


@dataclass(frozen=True, eq=False)
class SeenFrame:
    """A frame at the estimate: node positions (N, 3) [m] and velocities (N, 3) [m/s] at its time, what is predicted of
    it, and the change of its residuals with an offset of the surface, (n,) [1/m]."""

    time_s: float
    position_m: np.ndarray
    velocity_m_s: np.ndarray
    centre_m: np.ndarray
    prediction: Prediction
    by_offset: np.ndarray

    @classmethod
    def of(cls, body: Body, frame: Frame, state: FrameState, seen: Prediction, by_offset: np.ndarray) -> SeenFrame:
        position = body.node_position_m + state.u
        centre = body.node_volume_m3 @ position / body.volume_m3
        return cls(frame.time_s, position, state.v, centre, seen, by_offset)

    def moved(self, du: np.ndarray) -> np.ndarray:
        """Change of the residuals (n, k) with moves du (N, 3, k) [m] of the whole body, as cameras see it."""
        if isinstance(self.prediction, WrenchPrediction):
            return np.zeros((len(self.prediction.residual), du.shape[2]))
        return self.prediction.changes(_Moves(du))  # type: ignore[arg-type]

    def turned(self, sign: float) -> np.ndarray:
        """Turns of the whole body by one radian about the axes, (N, 3, 3)."""
        arm = self.position_m - self.centre_m
        return sign * np.stack([np.cross(axis, arm) for axis in np.eye(3)], axis=2)


class _Moves:
    """Changes of the displacement alone; a kind that also sees velocities or parameters finds none of theirs."""

    def __init__(self, du: np.ndarray) -> None:
        self.u = du
        self.v = np.zeros_like(du)
        self.parameters: Sequence[ParameterGradient] = [ParameterGradient.zero(1) for _ in range(du.shape[2])]


@dataclass(frozen=True, eq=False)
class Source:
    """One thing that is held fixed and may be wrong.

    Attributes:
        name: its key under estimate.known_to. title, remedy: for people: "the density", "weigh it".
        directions: change of the parameters with a standard deviation of each of its k components.
        seen: what a frame shows of it besides, (n, k). each_frame: its error is another one in every frame.
        offset_m: by how much it moves the surface outwards besides, where it has one component.
    """

    name: str
    title: str
    remedy: str
    directions: tuple[ParameterGradient, ...]
    seen: Callable[[SeenFrame], np.ndarray] | None = None
    each_frame: bool = False
    offset_m: float = 0.0


def sources_of(model: Model, estimated: Variables, parameters: Parameters, known: KnownToConfig) -> list[Source]:
    """Everything that is not estimated and not exact; parameters: where the columns are to be worked out."""
    made = (_parameter_source(model, estimated, parameters, known, name) for name in parameters)
    taken_up = {POSE_OF_HELD[v.name] for v in estimated.variables if v.beside and v.name in POSE_OF_HELD}
    seen = (source for source in _seen_sources(model, parameters, known) if source.name not in taken_up)
    return [*(source for source in made if source is not None), *seen]


def fixed_directions(sources: Sequence[Source]) -> list[ParameterGradient]:
    """Directions of all sources, one after another."""
    return [direction for source in sources for direction in source.directions]


def window_sources(
    model: Model,
    estimated: Variables,
    parameters: Parameters,
    known: KnownToConfig,
    kept: dict[str, tuple[bytes, Source | None]] | None = None,
) -> list[Source]:
    """What a sliding window carries along: each column costs it time with every step.

    Pose, motion and surface offset are variables of the window itself; they take up errors of camera and clock. The
    larger surface of a larger body is taken for an offset by as much as a ball of its volume would grow.

    kept: what was made for other values of the variables, by name: a parameter of the same value has the same source.
    """
    names = (*WINDOW_SOURCES, *(name for name in parameters if REGISTRY.numbered(name) is not None))
    kept = {} if kept is None else kept
    for name in names:
        value = np.asarray(parameters.values.get(name, ())).tobytes()
        if name in parameters and (name not in kept or kept[name][0] != value):
            kept[name] = value, _parameter_source(model, estimated, parameters, known, name)
    made = [kept[name][1] for name in names if name in parameters]
    out = [source for source in made if source is not None]
    if known.shape_scale > 0:
        radius_m = (3 * model.body.volume_m3 / (4 * np.pi)) ** (1 / 3)
        larger = _times(larger_body(model, parameters), known.shape_scale)
        out.append(Source(*_SIZE, (larger,), offset_m=known.shape_scale * radius_m))
    return out


def _parameter_source(
    model: Model, estimated: Variables, parameters: Parameters, known: KnownToConfig, name: str
) -> Source | None:
    fixed = _fixed_components(model, estimated, parameters, name)
    std = float(known.of(name) or 0.0)
    if not fixed or std == 0:
        return None
    variables = make_variables(parameters, fixed)
    directions = variables.directions(variables.start())
    scale = [_theta_std(v, t, std) for v, t in zip(variables.variables, variables.start())]
    kind = variables.variables[0].kind
    scaled = tuple(_times(d, s) for d, s in zip(directions, scale))
    return Source(name, f"the {kind.title[:1].lower()}{kind.title[1:]}", kind.remedy, scaled)


def _fixed_components(model: Model, estimated: Variables, parameters: Parameters, name: str) -> list[str]:
    """The components of a parameter that matter and are not estimated, by label."""
    if (REGISTRY[name].term == "contact" and model.contact is None) or not _can_vary(parameters, name):
        return []
    return [label for label in make_variables(parameters, [name]).labels if label not in estimated.labels]


def _can_vary(parameters: Parameters, name: str) -> bool:
    """Whether the parameter's transform takes its value: a damping of zero has no logarithm and no relative error."""
    return REGISTRY[name].transform not in ("log", "logit") or bool((np.asarray(getattr(parameters, name)) > 0).all())


def _theta_std(v: Variable, theta: float, std: float) -> float:
    """Deviation of θ; a ν near ½ is not known to lie beyond it, so no more than the usual prior's."""
    return min(std / natural_slope(v, theta), v.kind.prior_std) if v.transform == "logit" else std


def _times(direction: ParameterGradient, factor: float) -> ParameterGradient:
    return ParameterGradient({name: factor * value for name, value in direction.values.items()})


def _seen_sources(model: Model, parameters: Parameters, known: KnownToConfig) -> list[Source]:
    def still(count: int) -> tuple[ParameterGradient, ...]:
        return tuple(ParameterGradient.zero(parameters.regions) for _ in range(count))

    scale, rate = known.shape_scale, known.time_rate
    larger = _times(larger_body(model, parameters), scale)
    made = [
        (known.shape_offset_m, Source(
            "shape_offset_m", "the offset of the shape", "scan it again", still(1),
            lambda f: known.shape_offset_m * f.by_offset[:, None])),
        (scale, Source(
            *_SIZE, (larger,),
            lambda f: f.moved(scale * (f.position_m - model.body.centroid_m)[:, :, None]))),
        (known.camera_position_m, Source(
            "camera_position_m", "the position of the camera", "calibrate it", still(3),
            lambda f: f.moved(np.broadcast_to(-known.camera_position_m * np.eye(3), (len(f.position_m), 3, 3))))),
        (known.camera_rotation_rad, Source(
            "camera_rotation_rad", "the rotation of the camera", "calibrate it", still(3),
            lambda f: f.moved(f.turned(-known.camera_rotation_rad)))),
        (known.time_offset_s, Source(
            "time_offset_s", "the offset of the stamps", "find the moment of the release", still(1),
            lambda f: f.moved(known.time_offset_s * f.velocity_m_s[:, :, None]))),
        (rate, Source(
            "time_rate", "the rate of the clock", "compare the clocks", still(1),
            lambda f: f.moved(rate * f.time_s * f.velocity_m_s[:, :, None]))),
        (known.stamp_jitter_s, Source(
            "stamp_jitter_s", "the jitter of the stamps", "take stamps from the sensor", still(1),
            lambda f: f.moved(known.stamp_jitter_s * f.velocity_m_s[:, :, None]), each_frame=True)),
    ]  # fmt: skip
    return [source for std, source in made if std > 0]


def larger_body(model: Model, parameters: Parameters) -> ParameterGradient:
    """How the parameters change, seen from a body that is larger by a part s of itself, by s.

    In lengths of the body x = c + (1 + s)(ξ - c) the larger body has the shape of this one, and every number with a
    length to the power p in it is (1 + s)^-p times as large. c is the rest shape's centroid. Dead loads and driven
    supports, which are no parameters, are taken to grow with the body.
    """
    out = ParameterGradient.zero(parameters.regions)
    for name, value in parameters.values.items():
        power = _LENGTHS.get(REGISTRY[name].unit, 0)
        if power and name != "plane_offset_m":
            out.add(name, -power * np.asarray(value) if np.ndim(value) else -power * float(value))
    if "plane_offset_m" in parameters and model.contact is not None:
        height = parameters.plane_normal @ model.body.centroid_m + parameters.plane_offset_m
        out.add("plane_offset_m", -float(height))
    return out
