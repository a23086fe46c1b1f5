"""What is known when a window begins: a state, how it depends on the variables, and a quadratic prior of them.

Past frames are marginalised to a Gaussian. When the window slides, the variables of the start (pose and motion) are
replaced by a rigid correction of the state at the new start; the model may have left the true path a little by then,
which widens what is known of that correction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.problem import Evaluation
from soft_estimator.estimation.trajectory import Moment
from soft_estimator.physics.body import Body
from soft_estimator.physics.fused_tangent import Changes
from soft_estimator.physics.tangent import ColumnChanges

# Variables of the start, in the order in which corrections are counted.
POSE = ("translation_m", "rotation_rad", "velocity_m_s", "angular_velocity_rad_s")
# A correction that the variables of the start make by less than this part of the largest, in units of the drift, is
# rounding: how a body that lies in balance is tilted, and how fast it is, no variable of its start says.
_LEAST_REACHED = 1e-9
_HARDLY = 1e-3  # deviation of a correction that nothing makes, without drift: it stays where the balance has it


@dataclass(frozen=True, eq=False)
class Knowledge:
    """A Gaussian of the variables: mean (P,) and information (P, P), the inverse of its covariance.

    by_fixed: change of the mean with a standard deviation of each number that was held fixed, (P, K); what all frames
    took for granted no number of frames averages out.
    """

    mean: np.ndarray
    information: np.ndarray
    by_fixed: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if self.by_fixed.size == 0:
            object.__setattr__(self, "by_fixed", np.zeros((len(self.mean), self.by_fixed.shape[1])))

    def cost(self, z: np.ndarray) -> float:
        """-log of its density, up to a constant."""
        off = z - self.mean
        return 0.5 * float(off @ self.information @ off)

    def gradient(self, z: np.ndarray) -> np.ndarray:
        return self.information @ (z - self.mean)

    @property
    def covariance(self) -> np.ndarray:
        return inverse_of(self.information)

    def joined(self, z: np.ndarray, information: np.ndarray, gradient: np.ndarray, by_fixed: np.ndarray) -> Knowledge:
        """With a quadratic cost added whose gradient and curvature at z are given, and the gradient's change with what
        is held fixed, (P, K)."""
        total = self.information + information
        inverse = inverse_of(total)
        mean = z - inverse @ (self.gradient(z) + gradient)
        return Knowledge(mean, total, inverse @ (self.information @ self.by_fixed - by_fixed))

    def of(self, chosen: np.ndarray) -> Knowledge:
        """What is known of the chosen variables, whatever the others are."""
        information = inverse_of(self.covariance[np.ix_(chosen, chosen)])
        return Knowledge(self.mean[chosen], information, self.by_fixed[chosen])

    def faded(self, chosen: np.ndarray, part: float) -> Knowledge:
        """With the deviations of the chosen variables larger, by one over that part."""
        keep = np.ones(len(self.mean))
        keep[chosen] = part
        return replace(self, information=self.information * np.outer(keep, keep))


def inverse_of(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a symmetric positive matrix whose variables have different sizes."""
    size = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix / np.outer(size, size)
    out = np.linalg.inv(scaled + 1e-13 * np.eye(len(matrix))) / np.outer(size, size)
    return 0.5 * (out + out.T)


def rigid_modes(body: Body, moment: Moment, backend: Backend) -> np.ndarray:
    """Motions along and about the axes through the middle of a body, (N, 3, 6)."""
    place = body.node_position_m + backend.to_host(moment.state.u).astype(np.float64)
    arm = place - (body.node_volume_m3 / body.volume_m3) @ place
    modes = np.zeros((len(arm), 3, 6))
    for axis in range(3):
        after, last = (axis + 1) % 3, (axis + 2) % 3
        modes[:, axis, axis] = 1.0
        modes[:, after, 3 + axis], modes[:, last, 3 + axis] = -arm[:, last], arm[:, after]  # the axis × the arm
    return modes


def with_corrections(body: Body, moment: Moment, backend: Backend, made: np.ndarray, pose: np.ndarray) -> Moment:
    """A moment whose changes with the variables of the start have these rigid corrections (12, 12) added: a column for
    each variable of `pose`, in the order of `POSE`."""
    modes, changes = rigid_modes(body, moment, backend), list(moment.known_changes)
    for column, j in zip(made.T, pose):
        u, v = (backend.to_device(modes @ part, changes[j].u.dtype) for part in np.split(column, 2))
        changes[j] = replace(changes[j], u=changes[j].u + u, v=changes[j].v + v)
    if isinstance(moment.known_changes, Changes):
        return Moment(moment.state, Changes.stacked(changes, backend))
    return Moment(moment.state, ColumnChanges.of(changes, backend))


def rigid_correction(body: Body, moment: Moment, backend: Backend) -> np.ndarray:
    """The rigid part of each column's change of a state: (12, P): shift, turn, and the same of the velocity.

    Weighted by volume, which is as good as mass for a body of one density.
    """
    modes, weight = rigid_modes(body, moment, backend), body.node_volume_m3 / body.volume_m3
    weighted = (weight[:, None, None] * modes).reshape(-1, 6)
    normal = weighted.T @ modes.reshape(-1, 6)
    there, parts, changes = backend.to_device(weighted), [], moment.known_changes
    for name in ("u", "v"):
        part = getattr(changes, name)
        flat = part.reshape(len(part), -1).T if isinstance(changes, Changes) else part.reshape(len(there), -1)
        along = backend.to_host(there.T @ flat.astype(np.float64, copy=False))[:, : len(changes)]
        parts.append(np.linalg.solve(normal, along))
    return np.concatenate(parts)


def marginalise(
    knowledge: Knowledge,
    information: np.ndarray,
    z: np.ndarray,
    frames: Iterable[tuple[Evaluation, np.ndarray]],
    trust: float,
) -> tuple[Knowledge, np.ndarray]:
    """Knowledge, and the information (P, P) of all frames in it, with these frames joined to both.

    frames: their rows at z (P,), and the change of the residuals with what is held fixed (n, K). trust: what part of
    their information counts.
    """
    for rows, by_fixed in frames:
        more, moved = trust * rows.information, trust * rows.weighted.T @ by_fixed
        knowledge = knowledge.joined(z, more, trust * rows.known_jacobian.T @ rows.slope, moved)
        information = information + more
    return knowledge, information


def begin_anew(
    knowledge: Knowledge, z: np.ndarray, correction: np.ndarray, pose: np.ndarray, drift: np.ndarray
) -> tuple[Knowledge, np.ndarray, np.ndarray | None]:
    """Replace the variables of the old start by a rigid correction at the new one.

    Args:
        knowledge: of the old variables, linearised at z (P,).
        correction: rigid correction that each old variable makes at the new start (12, P).
        pose: which variables are those of the start, (12,).
        drift: standard deviation of what the model missed since the last start, (12,).
    Returns:
        knowledge of the new variables, where those of the start are a correction around zero, and the mixing (P, P):
        old changes = mixing @ new changes. Corrections that no old variable makes change nothing by that; the part of
        each that is such a one, (12, 12), None where there is none.
    """
    forward = np.eye(len(z))
    forward[pose] = correction
    missed, left = np.zeros((len(pose), len(pose))), None
    reached = _reached(correction[:, pose], drift)
    if reached is None:
        mixing = np.linalg.inv(forward)
    else:
        onto, back = reached
        forward[pose] = onto @ correction
        mixing = np.eye(len(z))
        mixing[pose] = -back @ correction
        mixing[np.ix_(pose, pose)] = back
        left = np.eye(len(pose)) - onto
        missed = left * np.where(drift > 0, 0.0, _HARDLY)
    covariance = forward @ knowledge.covariance @ forward.T
    covariance[pose, pose] += drift**2
    covariance[np.ix_(pose, pose)] += missed @ missed.T
    centre = z.copy()
    centre[pose] = 0.0
    mean = centre + forward @ (knowledge.mean - z)
    return Knowledge(mean, inverse_of(covariance), forward @ knowledge.by_fixed), mixing, left


def _units(drift: np.ndarray) -> np.ndarray:
    """What corrections are counted in, (12,)."""
    return np.where(drift > 0, drift, 1.0)


def _reached(made: np.ndarray, drift: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Of the corrections (12, 12) that the variables of the old start make: the projection onto them, and their
    inverse there; None where they make every one."""
    units = _units(drift)
    left, size, right = np.linalg.svd(made * units / units[:, None])
    kept = size > _LEAST_REACHED * size[0]
    if kept.all():
        return None
    left, size, right = left[:, kept], size[kept], right[kept]
    scale = units[:, None] / units
    return scale * (left @ left.T), scale * ((right.T / size) @ left.T)
