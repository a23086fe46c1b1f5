"""The registry of parameters: every number of a simulation that may be estimated, declared once.

Scene files (guesses and priors), values and gradients of the simulation, the optimiser's variables, wording, ground
truth, metrics and messages are made from these lines. A physical term from outside the package declares its own
parameters with `register` and needs no other change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

# How a parameter is laid out: one number, three, one for each material region, a unit vector (3), or one for each mode
# of the body.
SHAPES = ("scalar", "vector", "regions", "direction", "modes")
NUMBER = "#"  # in the name of a parameter that every obstacle has one of: obstacle_#_shift_m
MOST_MODES = 40  # twice what a ball in the air after a bounce needs to be below a camera's noise
# What an optimiser moves: log p, log(p / (high - p)), p itself, or two small tilts of a direction.
TRANSFORMS = ("log", "logit", "linear", "tangent")


@dataclass(frozen=True)
class Parameter:
    """One parameter.

    Attributes:
        name: its key everywhere, with the unit at the end. With a # in it there is one for each obstacle, whose number
            stands there, in the texts, too. unit: of its value; of the tilts for a direction.
        title: for people. doc: one line for the scene reference. symbol: in formulas.
        shape: one of SHAPES. transform: one of TRANSFORMS. prior_std: default deviation of the transformed value.
        default: of a simulation that does not give it; None where it must be given or the owning term has a value.
        low, high: the value lies strictly between them, where given.
        term: the kind of term that it belongs to, and without which it means nothing: "contact", ...
        hidden: why motion may not show it. error_scale: what its error is measured by: "value", "body" (the body's
        size) or a number in its unit. linear_within: step of the transformed value within which a motion's
            linearisation holds to a small part of a standard deviation. truth: it is part of a scene's ground truth.
        known_std: default deviation of a value that is held fixed: relative for the log transform, else in its unit.
        remedy: what makes it better known.
    """

    name: str
    unit: str
    title: str
    doc: str
    symbol: str
    shape: str = "scalar"
    transform: str = "linear"
    prior_std: float = 1.0
    default: float | tuple[float, ...] | None = None
    low: float | None = None
    high: float | None = None
    term: str = ""
    hidden: str = "the motion hardly depends on it"
    error_scale: float | str = "value"
    linear_within: float = 0.02
    truth: bool = True
    known_std: float = 0.0
    remedy: str = "estimate it too"

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ValueError(f"parameter {self.name}: shape '{self.shape}' must be one of {', '.join(SHAPES)}")
        if self.transform not in TRANSFORMS:
            raise ValueError(
                f"parameter {self.name}: transform '{self.transform}' must be one of {', '.join(TRANSFORMS)}"
            )
        if (self.shape == "direction") != (self.transform == "tangent"):
            raise ValueError(f"parameter {self.name}: shape direction and transform tangent go together")
        if not self.prior_std > 0:
            raise ValueError(f"parameter {self.name}: prior_std = {self.prior_std} must be positive")
        if not self.known_std >= 0:
            raise ValueError(f"parameter {self.name}: known_std = {self.known_std} must not be negative")

    def size(self, regions: int = 1) -> int | None:
        """Numbers of its value, None for a scalar."""
        return {"scalar": None, "regions": regions, "modes": MOST_MODES}.get(self.shape, 3)

    def moves(self, regions: int = 1) -> int | None:
        """Numbers an optimiser moves it by, None for one without components."""
        return 2 if self.shape == "direction" else self.size(regions)

    def component_title(self, index: int) -> str:
        """Its title with the component that people know."""
        if self.shape == "direction":
            return f"{self.title.replace('Tilt', f'Tilt {index + 1}')}, from the guess"
        if self.shape == "regions":
            return f"{self.title}, region {index}"
        if self.shape == "modes":
            return f"{self.title}, mode {index + 1}"
        return f"{self.title}, {'xyz'[index]}"


class Registry:
    """Parameters by name, in the order of their declaration.

    Those that every obstacle has one of are known by any number, obstacle_3_shift_m, and are none of the list.
    """

    def __init__(self) -> None:
        self._known: dict[str, Parameter] = {}
        self._of_each: dict[str, Parameter] = {}

    def add(self, parameter: Parameter) -> Parameter:
        """Declare a parameter; the same declaration may be made again, another one of that name not."""
        known = self._of_each if NUMBER in parameter.name else self._known
        before = known.setdefault(parameter.name, parameter)
        if before != parameter:
            raise ValueError(f"parameter '{parameter.name}' is declared already, and differently; choose another name")
        return before

    def __getitem__(self, name: str) -> Parameter:
        numbered = self.numbered(name)
        if numbered is not None:
            kind, number = numbered
            return replace(kind, **{k: getattr(kind, k).replace(NUMBER, str(number)) for k in _NUMBERED})
        if name not in self._known:
            raise ValueError(f"there is no parameter '{name}'; choose from {', '.join(self._known)}")
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known or (isinstance(name, str) and self.numbered(name) is not None)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(tuple(self._known.values()))

    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    def of_each(self) -> tuple[Parameter, ...]:
        """What every obstacle has, under the names with a # in them."""
        return tuple(self._of_each.values())

    def numbered(self, name: str) -> tuple[Parameter, int] | None:
        """Which of those an obstacle's own parameter is, and the number of the obstacle; None of any other name."""
        match = re.fullmatch(r"([a-z]+_)(0|[1-9][0-9]{0,3})(_\w+)", name)
        kind = None if match is None else self._of_each.get(f"{match[1]}{NUMBER}{match[3]}")
        return None if match is None or kind is None else (kind, int(match[2]))


_NUMBERED = ("name", "title", "doc", "hidden")  # texts that a number is put into
REGISTRY = Registry()
register = REGISTRY.add

register(
    Parameter(
        "youngs_modulus_pa", "Pa", "Young's modulus", "Young's modulus E, of every region", "E", "regions", "log",
        prior_std=3.0, low=0.0, hidden="the body hardly deformed", known_std=0.1,
    )
)  # fmt: skip
register(
    Parameter(
        "poissons_ratio", "", "Poisson's ratio", "Poisson's ratio ν", "ν", transform="logit", prior_std=1.0, low=0.0,
        high=0.5, hidden="the body hardly moved sideways to its load", linear_within=0.1, known_std=0.07,
    )
)  # fmt: skip
register(
    Parameter(
        "density_kg_m3", "kg/m^3", "Density", "mass density ρ", "ρ", transform="log", prior_std=1.0, low=0.0,
        known_std=0.03, remedy="weigh it",
    )
)  # fmt: skip
register(
    Parameter(
        "mass_damping_per_s", "1/s", "Mass damping", "Rayleigh damping α₁", "α₁", transform="log", prior_std=2.0,
        default=0.0, low=0.0, hidden="nothing moved long enough to lose energy",
        linear_within=0.05, known_std=0.2,
    )
)  # fmt: skip
register(
    Parameter(
        "stiffness_damping_s", "s", "Stiffness damping", "Rayleigh damping α₂", "α₂", transform="log", prior_std=2.0,
        default=0.0, low=0.0, hidden="nothing swung long enough to lose energy",
        linear_within=0.05, known_std=0.2,
    )
)  # fmt: skip
register(
    Parameter(
        "gravity_m_s2", "m/s^2", "Gravity", "acceleration of gravity", "g", "vector", prior_std=5.0,
        default=(0.0, -9.81, 0.0), error_scale=9.81, linear_within=0.1, known_std=0.03, remedy="level the world frame",
    )
)  # fmt: skip
register(
    Parameter(
        "plane_normal", "rad", "Tilt of the plane", "direction n of the contact plane, of any length but zero", "n",
        "direction", "tangent", prior_std=0.5, default=(0.0, 1.0, 0.0), term="contact",
        hidden="the body never touched the plane", error_scale=1.0, linear_within=0.005, known_std=0.005,
    )
)  # fmt: skip
register(
    Parameter(
        "plane_offset_m", "m", "Offset of the plane", "offset d of the contact plane", "d", prior_std=0.05,
        default=0.0, term="contact", hidden="the body never touched the plane", error_scale="body",
        linear_within=0.0005, known_std=0.0015,
    )
)  # fmt: skip
register(
    Parameter(
        "translation_m", "m", "Initial position", "initial shift", "t", "vector", prior_std=0.02,
        default=(0.0, 0.0, 0.0), error_scale="body", linear_within=0.0005, truth=False, known_std=0.0005,
    )
)  # fmt: skip
register(
    Parameter(
        "rotation_rad", "rad", "Initial rotation", "initial rotation, axis-angle", "θ", "vector", prior_std=0.2,
        default=(0.0, 0.0, 0.0), error_scale=1.0, linear_within=0.03, truth=False, known_std=0.003,
    )
)  # fmt: skip
register(
    Parameter(
        "velocity_m_s", "m/s", "Initial velocity", "initial velocity", "v", "vector", prior_std=1.0,
        default=(0.0, 0.0, 0.0), error_scale=1.0, linear_within=0.03, truth=False, known_std=0.005,
    )
)  # fmt: skip
register(
    Parameter(
        "angular_velocity_rad_s", "rad/s", "Initial angular velocity", "initial angular velocity", "ω", "vector",
        prior_std=5.0, default=(0.0, 0.0, 0.0), error_scale=1.0, linear_within=0.2, truth=False, known_std=0.02,
    )
)  # fmt: skip
register(
    Parameter(
        "modal_displacement_m", "m", "Bend at the start", "how far each mode of the body is bent at time 0, root mean "
        "square; for mode k times f₁/f_k", "a", "modes", prior_std=0.005, term="modes", error_scale="body",
        hidden="no frame shows the body near the start", linear_within=0.0005, truth=False,
    )
)  # fmt: skip
register(
    Parameter(
        "modal_velocity_m_s", "m/s", "Swing at the start", "how fast each mode of the body moves at time 0, root mean "
        "square", "ȧ", "modes", prior_std=0.2, term="modes", error_scale=1.0,
        hidden="no frames show the body move near the start", linear_within=0.03, truth=False,
    )
)  # fmt: skip
register(
    Parameter(
        "contact_stiffness_pa_per_m", "Pa/m", "Contact stiffness", "pressure of the contact per depth", "k",
        transform="log", prior_std=2.0, low=0.0, term="contact", hidden="the contact is too stiff to show how stiff",
        known_std=0.5,
    )
)  # fmt: skip
register(
    Parameter(
        "contact_sharpness_per_m", "1/m", "Contact sharpness", "sharpness a of the contact's onset, 1/a its width",
        "a", transform="log", prior_std=1.0, low=0.0, term="contact",
        hidden="the onset of the contact is too sharp to show", known_std=0.3,
    )
)  # fmt: skip
register(
    Parameter(
        "friction_coefficient", "", "Friction coefficient", "Coulomb's friction coefficient μ of the plane", "μ_f",
        transform="log", prior_std=0.7, low=0.0, term="friction", hidden="nothing slid along the plane",
        known_std=0.3,
    )
)  # fmt: skip
register(
    Parameter(
        "obstacle_shift_m", "m", "Shift of the obstacles", "shift of all obstacles from where the scene has them", "s",
        "vector", prior_std=0.005, term="obstacle", hidden="the body never touched an obstacle", error_scale="body",
        linear_within=0.0005, truth=False, known_std=0.0003, remedy="calibrate the camera against the tool",
    )
)  # fmt: skip
register(
    Parameter(
        "obstacle_turn_rad", "rad", "Turn of the obstacles", "turn of all obstacles that rest, about their middle", "ϑ",
        "vector", prior_std=0.05, term="obstacle", hidden="the body never touched an obstacle that rests",
        error_scale=1.0, linear_within=0.01, truth=False, remedy="measure how the obstacle stands",
    )
)  # fmt: skip
register(
    Parameter(
        "obstacle_#_shift_m", "m", "Shift of obstacle #", "shift of this obstacle, beside that of all", "s",
        "vector", prior_std=0.005, term="obstacle", hidden="the body never touched obstacle #", error_scale="body",
        linear_within=0.0005, truth=False, remedy="measure where the obstacle stands",
    )
)  # fmt: skip
register(
    Parameter(
        "obstacle_#_turn_rad", "rad", "Turn of obstacle #", "turn of this obstacle about its centre, if it rests",
        "ϑ", "vector", prior_std=0.05, term="obstacle", hidden="the body never touched obstacle #", error_scale=1.0,
        linear_within=0.01, truth=False, remedy="measure how the obstacle stands",
    )
)  # fmt: skip
register(
    Parameter(
        "relaxation_share", "", "Relaxation share", "shear stress that relaxes, as a part g of what stays", "g",
        transform="logit", prior_std=1.0, low=0.0, high=1, term="relaxation",
        hidden="nothing was held, or swung, long enough to relax",
    )
)  # fmt: skip
register(
    Parameter(
        "relaxation_time_s", "s", "Relaxation time", "time τ after which 1/e of that stress is left", "τ",
        transform="log", prior_std=1.5, low=0.0, term="relaxation",
        hidden="the motion is much shorter or much longer than it, or hardly anything relaxes",
    )
)  # fmt: skip
register(
    Parameter(
        "support_until_s", "s", "Release", "time t₀ at which the support begins to give way", "t₀", prior_std=0.02,
        term="support", hidden="nothing was seen of the release", error_scale=1.0, linear_within=0.002,
    )
)  # fmt: skip
register(
    Parameter(
        "support_gone_within_s", "s", "Duration of the release", "time T within which the support is gone", "T",
        transform="log", prior_std=1.0, low=0.0, term="support", hidden="nothing was seen of the release",
        error_scale=1.0,
    )
)  # fmt: skip
