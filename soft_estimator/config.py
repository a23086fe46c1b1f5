"""The scene configuration: the only home of defaults, units and bounds.

Every key carries its SI unit as a suffix. Positions of `body`, `fixed`, `loads` and `material.regions` are body
coordinates: the rest pose, before `initial` moves it. `contact`, `gravity_m_s2`, `picture` and `observe` are world
coordinates. The world's y axis points up unless a scene sets another gravity. A rotation is an axis-angle vector: its
direction is the axis, its length the angle.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from soft_estimator.config_body import BodyConfig, Vector, check_box
from soft_estimator.config_contact import UP, ZERO, ContactConfig, ObstacleConfig, WaypointConfig, check_times
from soft_estimator.config_estimation import EstimateConfig, ModesConfig, ObserveConfig
from soft_estimator.schema import (
    ConfigError,
    Section,
    choice,
    load,
    quantity,
    read_yaml,
    section,
    sections,
    setting,
    vector,
)


@dataclass(frozen=True, kw_only=True)
class RegionConfig(Section):
    """A box of the body with a stiffness of its own."""

    low_m: Vector = vector(unit="m", doc="lowest corner of the box")
    high_m: Vector = vector(unit="m", doc="highest corner of the box")
    youngs_modulus_pa: float = quantity(unit="Pa", low=0, low_open=True, doc="Young's modulus E inside the box")

    def check(self) -> None:
        check_box(self.low_m, self.high_m)


@dataclass(frozen=True, kw_only=True)
class RelaxationConfig(Section):
    """Shear stress that fades: shear held for a time t answers with G (1 + g exp(-t/τ)), G being that of E and ν."""

    share: float = quantity(
        low=0, high=1, doc="what relaxes, as a part g of what stays; at once the body is 1 + g stiffer"
    )
    time_s: float = quantity(unit="s", low=0, low_open=True, doc="relaxation time τ")


@dataclass(frozen=True, kw_only=True)
class MaterialConfig(Section):
    """An elastic material with Rayleigh damping D = α₁ M + α₂ K."""

    law: str = choice(
        "corotated",
        options=("corotated", "neo_hookean"),
        doc="corotated: linear under large turns, for moderate strains; neo_hookean: for strains of any size, by "
        "Newton rounds at about twice the time",
    )
    youngs_modulus_pa: float = quantity(unit="Pa", low=0, low_open=True, doc="Young's modulus E, the stiffness")
    poissons_ratio: float = quantity(
        0.3,
        low=0,
        high=0.499,
        doc="Poisson's ratio ν, the shrinking across a pull",
        advice="a material at 0.5 is incompressible, its pressure unknown; rubber or flesh is well served by 0.45 to "
        "0.499",
    )
    density_kg_m3: float = quantity(1000.0, unit="kg/m^3", low=0, low_open=True, doc="mass density ρ")
    mass_damping_per_s: float = quantity(0.0, unit="1/s", low=0, doc="Rayleigh damping α₁, on the mass")
    stiffness_damping_s: float = quantity(0.0, unit="s", low=0, doc="Rayleigh damping α₂, on the stiffness")
    relaxation: RelaxationConfig | None = section(
        None, doc="stress that fades with time; E is what stays; none if left out"
    )
    regions: tuple[RegionConfig, ...] = sections(doc="boxes with another stiffness; where they overlap the last wins")


@dataclass(frozen=True, kw_only=True)
class InitialConfig(Section):
    """The body's pose and motion at time 0."""

    translation_m: Vector = vector(ZERO, unit="m", doc="shift of the rest pose, after the rotation")
    rotation_rad: Vector = vector(ZERO, unit="rad", doc="axis-angle rotation about the body's centroid")
    velocity_m_s: Vector = vector(ZERO, unit="m/s", doc="velocity of the centroid")
    angular_velocity_rad_s: Vector = vector(ZERO, unit="rad/s", doc="angular velocity about the centroid")


@dataclass(frozen=True, kw_only=True)
class EquilibriumConfig(Section):
    """A start at rest, hanging or sagging under gravity and loads."""


@dataclass(frozen=True, kw_only=True)
class StartConfig(Section):
    """What is known of the body's bend at time 0."""

    equilibrium: EquilibriumConfig | None = section(
        None, doc="it rests under its loads, held by `fixed` or lying on a level plane: {}; undeformed if left out"
    )
    modes: ModesConfig | None = section(
        None, doc="it is seen in the middle of a motion, bent and swinging: {}; undeformed if left out"
    )


@dataclass(frozen=True, kw_only=True)
class FixedBoxConfig(Section):
    """The part of the body inside a box is held, or led along a path as a gripper would."""

    low_m: Vector = vector(unit="m", doc="lowest corner of the box")
    high_m: Vector = vector(unit="m", doc="highest corner of the box")
    method: str = choice(
        "strong",
        options=("strong", "nitsche"),
        doc="strong holds the nodes in the box, nitsche the surface in it, weakly",
    )
    path: tuple[WaypointConfig, ...] = sections(
        doc="waypoints at increasing times, joined by straight lines; before the first and after the last it rests"
    )

    def check(self) -> None:
        check_box(self.low_m, self.high_m)
        check_times(self.path)


@dataclass(frozen=True, kw_only=True)
class LoadConfig(Section):
    """A constant force, or a weight that rides on the body, on the part of it inside a box."""

    low_m: Vector = vector(unit="m", doc="lowest corner of the box")
    high_m: Vector = vector(unit="m", doc="highest corner of the box")
    force_n: Vector = vector(ZERO, unit="N", doc="total force, spread over what lies in the box")
    mass_kg: float = quantity(0.0, unit="kg", low=0, doc="mass of a weight there: it weighs, and has to be moved along")

    def check(self) -> None:
        check_box(self.low_m, self.high_m)
        if not any(self.force_n) and self.mass_kg == 0.0:
            raise ConfigError("= [0, 0, 0] and mass_kg = 0 load nothing; give one of them, or leave it out", "force_n")


@dataclass(frozen=True, kw_only=True)
class SupportConfig(Section):
    """Hands that carry the body's weight, and that of its loads, until they let go."""

    until_s: float = quantity(0.0, unit="s", doc="time at which they begin to give way")
    gone_within_s: float = quantity(0.01, unit="s", low=0, low_open=True, doc="time they take to be gone")


@dataclass(frozen=True, kw_only=True)
class TimeConfig(Section):
    """Time stepping."""

    step_s: float = quantity(0.005, unit="s", low=0, low_open=True, doc="time step Δt")
    duration_s: float = quantity(1.0, unit="s", low=0, low_open=True, doc="simulated time")
    integrator: str = choice("theta", options=("theta", "hht"), doc="the θ-scheme or HHT-α")
    theta: float = quantity(
        0.5,
        low=0.5,
        high=1.0,
        doc="θ of the θ-scheme; above 0.5 it damps on its own",
        advice="below 0.5 the scheme is unstable",
    )
    hht_alpha: float = quantity(
        -0.05,
        low=-1 / 3,
        high=0.0,
        doc="α of HHT; 0 adds no damping of its own, -1/3 the most",
        advice="the scheme is stable only from -1/3 to 0",
    )
    rotation: str = choice(
        "midpoint",
        options=("midpoint", "lagged"),
        doc="the cells' rotation is taken in the middle of a step, or from the end of the one before",
    )

    def check(self) -> None:
        if self.duration_s < self.step_s:
            problem = f"= {self.duration_s} must be at least step_s ({self.step_s}); lengthen it or shorten the step"
            raise ConfigError(problem, "duration_s")

    @property
    def steps(self) -> int:
        """The number of whole steps nearest to the duration."""
        return max(1, round(self.duration_s / self.step_s))


@dataclass(frozen=True, kw_only=True)
class SolverConfig(Section):
    """The linear solver of a step."""

    relative_tolerance: float = quantity(
        1e-6,
        low=0,
        high=1e-3,
        low_open=True,
        doc="residual at which conjugate gradients stop, relative to the start",
        advice="with more a body in free fall stretches by what its solves leave, and nothing tells",
    )
    max_iterations: int = quantity(2000, low=1, doc="iterations after which a step is reported as not converged")
    precision: str = choice(
        "float64",
        options=("float32", "float64"),
        doc="floating-point type of the hot loops on a GPU; the CPU computes in float64",
    )


@dataclass(frozen=True, kw_only=True)
class PictureConfig(Section):
    """The camera and size of the picture strip."""

    eye_m: Vector | None = vector(None, unit="m", doc="position of the eye; chosen to show the motion if left out")
    target_m: Vector | None = vector(None, unit="m", doc="point looked at; the middle of the motion if left out")
    up: Vector = vector(UP, doc="direction that is up in the picture")
    frames: int = quantity(8, low=1, high=1000, doc="number of moments shown, evenly spread over the duration")
    width_px: int = quantity(1600, low=64, high=16384, doc="width of the whole strip in pixels")

    def check(self) -> None:
        if max(map(abs, self.up)) < 1e-100:
            raise ConfigError("= [0, 0, 0] has no direction; give one such as [0, 1, 0]", "up")
        if self.eye_m is not None and self.eye_m == self.target_m:
            raise ConfigError(f"= {list(self.eye_m)} must differ from target_m; move the eye away", "eye_m")


@dataclass(frozen=True, kw_only=True)
class SceneConfig(Section):
    """A soft body, what holds and loads it, and how its motion is computed and shown."""

    name: str = setting(doc="short name of the scene")
    description: str = setting("", doc="one sentence about it")
    body: BodyConfig = section(doc="shape and grid")
    material: MaterialConfig = section(doc="stiffness, density and damping")
    gravity_m_s2: Vector = vector((0.0, -9.81, 0.0), unit="m/s^2", doc="acceleration of gravity")
    initial: InitialConfig = section(InitialConfig, doc="pose and motion at time 0")
    start: StartConfig = section(StartConfig, doc="whether the body is bent at time 0")
    fixed: tuple[FixedBoxConfig, ...] = sections(doc="boxes that hold or lead a part of the body")
    loads: tuple[LoadConfig, ...] = sections(doc="constant forces, and weights that ride on the body")
    support: SupportConfig | None = section(None, doc="what carries the body's weight at first; nothing if left out")
    contact: ContactConfig | None = section(None, doc="the ground plane; none if left out")
    obstacles: tuple[ObstacleConfig, ...] = sections(doc="rigid things beside the ground plane, at rest or led")
    time: TimeConfig = section(TimeConfig, doc="time stepping")
    solver: SolverConfig = section(SolverConfig, doc="linear solver")
    picture: PictureConfig = section(PictureConfig, doc="picture strip")
    observe: ObserveConfig | None = section(None, doc="cameras that watch the motion; `estimate` needs them")
    estimate: EstimateConfig | None = section(None, doc="what `estimate` is to find out from what they see")

    def check(self) -> None:
        self._check_start()
        felt = [wrench.obstacle for wrench in self.observe.wrenches] if self.observe is not None else []
        for k, number in enumerate(felt):
            if number >= len(self.obstacles):
                raise ConfigError(self._no_obstacle(number), f"observe.wrenches[{k}].obstacle")
            if number in felt[:k]:
                problem = f"= {number} has a sensor already; give the number of another, or take this one out"
                raise ConfigError(problem, f"observe.wrenches[{k}].obstacle")
        if self.estimate is not None:
            self._check_obstacles(self.estimate)
        if self.material.law != "neo_hookean":
            return
        for k, fixed in enumerate(self.fixed):
            if fixed.method != "strong":
                problem = f"= {fixed.method} knows the linear law alone; use strong, or material.law corotated"
                raise ConfigError(problem, f"fixed[{k}].method")
        if self.contact is not None and self.contact.method != "implicit":
            problem = f"= {self.contact.method} goes with the linear law; use implicit, or material.law corotated"
            raise ConfigError(problem, "contact.method")

    def _no_obstacle(self, number: int) -> str:
        return f"= {number} is none of the {len(self.obstacles)} obstacles; count them from 0"

    def _check_obstacles(self, estimate: EstimateConfig) -> None:
        """Refuse numbers of obstacles that the scene does not have."""
        told = {"guess": estimate.guess, "prior_std": estimate.prior_std, "known_to": estimate.known_to}
        for name, section_of in told.items():
            for k, one in enumerate(section_of.obstacles):
                if one.obstacle >= len(self.obstacles):
                    raise ConfigError(self._no_obstacle(one.obstacle), f"estimate.{name}.obstacles[{k}].obstacle")

    def _check_start(self) -> None:
        if self.start.modes is not None:
            if self.start.equilibrium is not None:
                raise ConfigError("and start.equilibrium are both given; keep one", "start.modes")
            if self.time.integrator != "theta":
                raise ConfigError("goes with the θ-scheme; set time.integrator to theta", "start.modes")
        if self.start.equilibrium is None:
            return
        if not self.fixed and self.contact is None:
            problem = "needs a part of the body that is held, or a plane that it lies on; add `fixed` or `contact`"
            raise ConfigError(problem, "start.equilibrium")
        if any(self.initial.velocity_m_s) or any(self.initial.angular_velocity_rad_s):
            problem = "is a start at rest, and initial gives a velocity; remove one of them"
            raise ConfigError(problem, "start.equilibrium")


def load_scene(path: Path | str) -> SceneConfig:
    """Read a scene file; every mistake in it is a ConfigError of one line."""
    data = read_yaml(path)
    if data is None:
        raise ConfigError("is empty; a scene needs at least name, body and material", str(path))
    return load(SceneConfig, data, name="scene")
