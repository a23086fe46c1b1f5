"""The estimation part of the scene configuration: who watches the motion, and what is to be found out from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soft_estimator.config_body import Vector
from soft_estimator.config_parameters import (
    NO_DIRECTION,
    GuessConfig,
    KnownToConfig,
    PriorConfig,
    name_problem,
)
from soft_estimator.parameters import MOST_MODES
from soft_estimator.schema import ConfigError, Section, choice, quantity, section, sections, setting, vector, words

_UP = (0.0, 1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class CameraConfig(Section):
    """A pinhole depth camera at a place, looking at a point."""

    eye_m: Vector = vector(unit="m", doc="where the camera is")
    target_m: Vector = vector(unit="m", doc="point in the middle of the image")
    up: Vector = vector(_UP, doc="direction that is up in the image")
    width_px: int = quantity(320, low=8, high=8192, doc="columns of the image")
    height_px: int = quantity(240, low=8, high=8192, doc="rows of the image")
    horizontal_fov_rad: float = quantity(1.2, unit="rad", low=0.01, high=3.0, doc="opening angle across the image")

    def check(self) -> None:
        _check_up(self.up)
        view = [t - e for t, e in zip(self.target_m, self.eye_m)]
        if max(map(abs, view)) < 1e-9:
            raise ConfigError(f"= {list(self.eye_m)} must differ from target_m; move the camera away", "eye_m")
        if _parallel(view, self.up):
            raise ConfigError(f"= {list(self.up)} points along the view; choose another direction", "up")


@dataclass(frozen=True, kw_only=True)
class RingConfig(Section):
    """Cameras evenly spaced on a circle around a point, all looking at it."""

    count: int = quantity(low=1, high=100, doc="number of cameras")
    target_m: Vector = vector((0.0, 0.0, 0.0), unit="m", doc="point they look at, on the circle's axis")
    radius_m: float = quantity(unit="m", low=0, low_open=True, doc="radius of the circle")
    height_m: float = quantity(0.0, unit="m", doc="height of the circle above the point, along `up`")
    up: Vector = vector(_UP, doc="axis of the circle, up in the images")
    first_angle_rad: float = quantity(0.0, unit="rad", doc="turn of the first camera about the axis")
    width_px: int = quantity(320, low=8, high=8192, doc="columns of an image")
    height_px: int = quantity(240, low=8, high=8192, doc="rows of an image")
    horizontal_fov_rad: float = quantity(1.2, unit="rad", low=0.01, high=3.0, doc="opening angle across an image")

    def check(self) -> None:
        _check_up(self.up)


@dataclass(frozen=True, kw_only=True)
class NoiseConfig(Section):
    """How far observed points lie off the surface. The numbers of depth_camera resemble an Intel RealSense D435."""

    kind: str = choice(
        "depth_camera",
        options=("none", "depth_camera", "isotropic"),
        doc="depth_camera errs along the view as a stereo sensor does, isotropic in all directions alike",
    )
    isotropic_std_m: float | None = quantity(None, unit="m", low=0, low_open=True, doc="isotropic: deviation per axis")
    isotropic_std_voxels: float | None = quantity(
        None, low=0, low_open=True, doc="isotropic: the same in edges of a grid cell, instead of isotropic_std_m"
    )
    axial_floor_m: float = quantity(0.0005, unit="m", low=0, doc="a in the depth's deviation a + b z²")
    axial_per_m: float = quantity(0.0025, unit="1/m", low=0, doc="b in the depth's deviation a + b z²")
    lateral_std_px: float = quantity(0.3, low=0, doc="deviation of where in the image a pixel looks, in pixels")
    baseline_m: float = quantity(0.05, unit="m", low=0, doc="distance of the two stereo eyes, for quantisation")
    disparity_steps_per_px: float = quantity(32.0, low=0, doc="levels of disparity a pixel; 0 for none")
    flying_probability: float = quantity(0.3, low=0, high=1, doc="chance that a pixel at a depth edge flies")
    edge_relative: float = quantity(0.02, low=0, doc="a step of more than this part of the depth is an edge")
    background_m: float = quantity(0.0, unit="m", low=0, doc="depth behind the body, for flying pixels; 0 for none")
    dropout_probability: float = quantity(0.01, low=0, high=1, doc="chance that a pixel seen head-on is lost")
    grazing_dropout_probability: float = quantity(0.8, low=0, high=1, doc="the same for a grazing view")
    min_range_m: float = quantity(0.1, unit="m", low=0, doc="nearer points are lost")
    max_range_m: float = quantity(10.0, unit="m", low=0, low_open=True, doc="farther points are lost")

    def check(self) -> None:
        given = [n for n in ("isotropic_std_m", "isotropic_std_voxels") if getattr(self, n) is not None]
        if self.kind == "isotropic" and len(given) != 1:
            raise ConfigError("isotropic needs exactly one of isotropic_std_m and isotropic_std_voxels", "kind")
        if self.kind != "isotropic" and given:
            raise ConfigError(f"is only used with kind isotropic, not {self.kind}; remove it", given[0])
        if self.max_range_m <= self.min_range_m:
            raise ConfigError(f"= {self.max_range_m} must exceed min_range_m ({self.min_range_m})", "max_range_m")

    def isotropic_m(self, spacing_m: float) -> float:
        """Deviation of isotropic noise [m] on a grid of this spacing [m]; 0 for the other kinds."""
        if self.isotropic_std_voxels is not None:
            return self.isotropic_std_voxels * spacing_m
        return self.isotropic_std_m or 0.0


@dataclass(frozen=True, kw_only=True)
class WrenchConfig(Section):
    """A force-torque sensor behind an obstacle: what the body does to it, in the frame of its path."""

    obstacle: int = quantity(0, low=0, doc="which of `obstacles`, counted from 0")
    force_std_n: float = quantity(0.02, unit="N", low=0, low_open=True, doc="deviation of each force")
    moment_std_nm: float = quantity(0.001, unit="N*m", low=0, low_open=True, doc="deviation of each moment")
    file: str | None = setting(
        None,
        doc="CSV file of readings, time_s,fx_n,fy_n,fz_n,tx_nm,ty_nm,tz_nm; simulated with the cameras if left out",
    )
    clock: str = choice(
        "start",
        options=("start", "stamps"),
        doc="what file counts its times from: the scene's start, or the clock of a recording's stamps (a robot's log)",
    )
    topic: str = setting(
        "",
        doc="topic of geometry_msgs/WrenchStamped, of a bag in replay and of the nodes; wrench if left out, wrench_2 "
        "of the second sensor",
    )

    def check(self) -> None:
        if self.clock == "stamps" and self.file is None:
            raise ConfigError("= stamps is about file, which is not given; give it, or leave this out", "clock")


@dataclass(frozen=True, kw_only=True)
class ObserveConfig(Section):
    """What watches the motion: depth cameras, how often they look, and how well they see."""

    cameras: tuple[CameraConfig, ...] = sections(doc="depth cameras")
    ring: RingConfig | None = section(None, doc="more of them on a circle; none if left out")
    every_steps: int | None = quantity(None, low=1, doc="a frame after every so many time steps")
    frame_rate_hz: float | None = quantity(
        None, unit="Hz", low=0, low_open=True, doc="frames a second, instead of every_steps; 30 if both are left out"
    )
    duration_s: float | None = quantity(
        None, unit="s", low=0, low_open=True, doc="time watched from the start; the scene's duration if left out"
    )
    points_per_frame: int = quantity(2000, low=1, doc="most points kept of a frame, drawn at random")
    noise: NoiseConfig = section(NoiseConfig, doc="sensor noise")
    wrenches: tuple[WrenchConfig, ...] = sections(doc="force-torque sensors behind obstacles")
    seed: int = quantity(0, low=0, doc="seed of the noise and of the points kept")

    def check(self) -> None:
        if self.every_steps is not None and self.frame_rate_hz is not None:
            raise ConfigError("and every_steps are both given; keep one", "frame_rate_hz")


@dataclass(frozen=True, kw_only=True)
class ModesConfig(Section):
    """A start in the middle of a motion: bent and swinging along the body's lowest modes, by amounts that an estimate
    finds beside the pose and the rigid motion."""

    count: int = quantity(20, low=1, high=MOST_MODES, doc="modes; more of them take longer and explain finer waves")


@dataclass(frozen=True, kw_only=True)
class LossConfig(Section):
    """How much a point far off may pull."""

    kind: str = choice(
        "huber", options=("squares", "huber", "tukey"), doc="beyond the threshold huber is linear, tukey flat"
    )
    threshold: float = quantity(2.0, low=0, low_open=True, doc="in standard deviations of a point")


@dataclass(frozen=True, kw_only=True)
class EstimateConfig(Section):
    """What is to be found out, from where the search starts, and how it goes."""

    parameters: tuple[str, ...] = words(
        doc="what is estimated, by the names under estimate.guess; of a vector also one component, as in "
        "gravity_m_s2[1]; an obstacle's own shift and turn as obstacle_0_shift_m, obstacle_0_turn_rad",
        advice="the name of a parameter",
    )
    guess: GuessConfig = section(GuessConfig, doc="first guesses")
    prior_std: PriorConfig = section(PriorConfig, doc="how far off the guesses may be")
    known_to: KnownToConfig = section(KnownToConfig, doc="how far off what is not estimated may be")
    method: str = choice(
        "levenberg_marquardt",
        options=("levenberg_marquardt", "lbfgs", "barzilai_borwein"),
        doc="Levenberg-Marquardt on a growing window of frames, or descent along the adjoint gradient of all; "
        "isotropic noise of half a cell or more is always fitted by the likelihood of whole clouds",
    )
    loss: LossConfig = section(LossConfig, doc="robust loss")
    starts: int = quantity(1, low=1, high=1000, doc="number of starts: the guess, then random ones around it")
    max_iterations: int = quantity(25, low=1, doc="most iterations of a start; for Levenberg-Marquardt on all frames")
    seed: int = quantity(0, low=0, doc="seed of the random starts")
    grid_error_nodes: int = quantity(
        60000,
        low=0,
        doc="what the grid does to the answer is looked for on a grid of half the spacing, and taken off, where that "
        "has at most this many nodes; what the time step does, with half the step, in any case. 0 for neither. Not for "
        "frames that the scene itself made, with this very grid and step",
    )

    def __post_init__(self) -> None:
        given: object = self.parameters
        if isinstance(given, str):  # one name, or several by comma
            object.__setattr__(self, "parameters", tuple(word.strip() for word in given.split(",") if word.strip()))
        super().__post_init__()

    @property
    def names(self) -> tuple[str, ...]:
        """What is estimated, name by name."""
        return self.parameters

    def asks_for(self, name: str) -> bool:
        """Whether a parameter that a model can do without is estimated, guessed, or not known exactly."""
        named = any(full.partition("[")[0] == name for full in self.names)
        return named or self.guess.of(name) is not None or self.known_to.of(name) > 0

    def check(self) -> None:
        if not self.names:
            raise ConfigError("is empty; name at least one, such as youngs_modulus_pa", "parameters")
        for i, name in enumerate(self.names):
            key, problem = f"parameters[{i}]", name_problem(name)
            if problem:
                raise ConfigError(f"= {name!r} {problem}", key)
            if name in self.names[:i] or (name.partition("[")[0] in self.names and "[" in name):
                raise ConfigError(f"= {name!r} is named twice; keep it once", key)


def _check_up(up: Vector) -> None:
    if max(map(abs, up)) < 1e-100:
        raise ConfigError(NO_DIRECTION, "up")


def _parallel(a: Sequence[float], b: Sequence[float]) -> bool:
    cross = (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    return max(map(abs, cross)) <= 1e-9 * max(map(abs, a)) * max(map(abs, b))
