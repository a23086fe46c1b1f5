"""The pose of a held body: refined beside what is asked for, for a clamp is never where a drawing has it.

Its prior is what camera and clamp are known to. A camera that is off shows the body moved the other way, so the pose
takes up the camera's errors, too.
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot

import numpy as np

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.model import Model

# Each part of the pose, and the camera's error that it takes up.
POSE_OF_HELD = {"translation_m": "camera_position_m", "rotation_rad": "camera_rotation_rad"}
# A pose so many stated deviations off was not known as well as stated, and its prior would pull at what it is estimated
# with. Further off than the second number the scene speaks of something else.
DOUBTED, REFUSED = 3.0, 30.0
# So many standard deviations of the answer must lie between the two, too. A ring turned about its axis looks alike.
_SURE = 5.0


def held_pose(model: Model, known: KnownToConfig) -> dict[str, float]:
    """Parameters of the pose that are refined, with the deviations of their priors; none of a body that nothing holds,
    whose pose is part of its motion, nor what is exact."""
    if not model.dirichlet.any:
        return {}
    std = {name: hypot(getattr(known, name), getattr(known, camera)) for name, camera in POSE_OF_HELD.items()}
    return {name: value for name, value in std.items() if value > 0}


def pose_off(variables: Variables, theta: np.ndarray) -> dict[str, float]:
    """How far the refined pose lies from the told one, by parameter [m, rad]."""
    by_name = {
        name: [j for j, v in enumerate(variables.variables) if v.name == name and v.beside] for name in POSE_OF_HELD
    }
    return {
        name: float(np.linalg.norm(theta[chosen] - variables.prior_mean[chosen]))
        for name, chosen in by_name.items()
        if chosen
    }


def with_wider_pose(variables: Variables, theta: np.ndarray) -> Variables | None:
    """The variables with wider priors of the pose, where that turned out to be further off than these allow; None where
    it did not. One calibration made both parts of it: where one is worse than stated, so is the other."""
    off = pose_off(variables, theta)
    times = max((off[v.name] / v.prior_std for v in variables.variables if v.beside and v.name in off), default=0.0)
    if times <= DOUBTED:
        return None
    changed = [replace(v, prior_std=times * v.prior_std) if v.beside else v for v in variables.variables]
    return Variables(variables.reference, changed)


def is_sure(variables: Variables, theta: np.ndarray, covariance: np.ndarray, name: str) -> bool:
    """Whether a part of the refined pose is known to lie off the told one: by so many of its deviations that way."""
    chosen = [j for j, v in enumerate(variables.variables) if v.name == name and v.beside]
    off = theta[chosen] - variables.prior_mean[chosen]
    return float(off @ off) > _SURE * float(np.sqrt(off @ covariance[np.ix_(chosen, chosen)] @ off))


def with_pose(
    verdict: FitVerdict,
    variables: Variables,
    theta: np.ndarray,
    covariance: np.ndarray,
    model: Model,
    known: KnownToConfig | None,
) -> FitVerdict:
    """The verdict on a fit that may have had to take the body somewhere else than it was said to be held.

    covariance: of θ, everything that may be wrong in it, (P, P).
    """
    off, stated = pose_off(variables, theta), {} if known is None else held_pose(model, known)
    shown = [name for name in off if name in stated and is_sure(variables, theta, covariance, name)]
    deviations = max((off[name] / stated[name] for name in shown), default=0.0)
    if not verdict.fits or deviations <= REFUSED:
        return verdict
    way = f"{1e3 * off.get('translation_m', 0.0):.2g} mm and {np.degrees(off.get('rotation_rad', 0.0)):.2g} degrees"
    reason = f"the body is held {way} from where the scene has it, {deviations:.0f} deviations: correct initial"
    return FitVerdict(False, reason, "pose", verdict.figures)
