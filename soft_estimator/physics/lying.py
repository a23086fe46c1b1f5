"""A body that nothing holds and that lies on the contact plane: where on the plane is not a matter of forces.

Without friction it may be shifted along the plane and turned about its normal n; the least friction keeps it where it
was put. So of a state of rest u the mean shift along the plane and the mean turn about n, seen from the told pose u₀,
are zero: Φᵀ W (u - u₀) = 0, with the columns t₁, t₂ and n × R r of Φ, the arms r of the nodes and their masses W. What
the forces would do along them friction takes: f - W Φ λ = 0 with λ = G⁻¹ Φᵀ f, G = Φᵀ W Φ, next to nothing on a level
plane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.geometry.rigid import left_jacobian, rotation_matrix
from soft_estimator.physics.gradient import ParameterGradient

if TYPE_CHECKING:
    from soft_estimator.physics.step import Simulation

# Steeper than this, by the angle between gravity and normal [rad], friction is not what a body lies by.
STEEPEST_RAD = 0.1


class Lying:
    """The motions of a simulation's body that friction keeps it from, Φ (3, N, 3), about its told pose."""

    def __init__(self, simulation: Simulation) -> None:
        s, p = simulation, simulation.parameters
        self.s, self.length = s, float(np.linalg.norm(p.plane_normal))
        self.n = np.asarray(p.plane_normal) / self.length
        side = np.eye(3)[np.argmin(np.abs(self.n))]
        first = np.cross(self.n, side) / np.linalg.norm(np.cross(self.n, side))
        self.along = np.stack([first, np.cross(self.n, first)])
        body = s.model.body
        self.arm = (body.node_position_m - body.centroid_m) @ rotation_matrix(p.rotation_rad).T
        self.mass = s.device.host(s.mass).astype(np.float64)
        shifts = np.broadcast_to(self.along[:, None, :], (2, *self.arm.shape))
        self.modes = np.concatenate([shifts, np.cross(self.n, self.arm)[None]])
        self.inverse = np.linalg.inv(np.einsum("kni,n,lni->kl", self.modes, self.mass, self.modes))

    def held_force(self, force: Array) -> Array:
        """A force (N, 3) or (N, 3, K) [N] without what friction takes."""
        f = self.s.device.host(force)
        given = np.tensordot(self.inverse, np.einsum("kni,ni...->k...", self.modes, f), 1)
        return self.s.device.up(f - np.einsum("kni,n,k...->ni...", self.modes, self.mass, given))

    def held_motion(self, motion: Array) -> Array:
        """A motion (N, 3) or (N, 3, K) [m] without what friction keeps the body from: the transpose of `held_force`."""
        u = self.s.device.host(motion)
        given = np.tensordot(self.inverse, np.einsum("kni,n,ni...->k...", self.modes, self.mass, u), 1)
        return self.s.device.up(u - np.einsum("kni,k...->ni...", self.modes, given))

    def reaction(self, force: Array) -> np.ndarray:
        """What friction takes of a force (N, 3) [N], for each of Φ: λ in f = W Φ λ, (3,). Not quite zero on a level
        plane: forces of corotated cells turn a bent body by some 1e-3 of its weight."""
        return self.inverse @ np.einsum("kni,ni->k", self.modes, self.s.device.host(force))

    def push(self, d: ParameterGradient, u: Array) -> np.ndarray:
        """Motion (N, 3) [m] at rest at u by which Φᵀ W (u - u₀) stays zero where Φ changes along a direction."""
        change = -np.array([float((way * self._way(u)).sum()) for way in self._turned(d)])
        return np.einsum("kni,k->ni", self.modes, self.inverse @ change)

    def pull(self, u_bar: np.ndarray, u: Array, out: ParameterGradient) -> None:
        """The transpose of `push`: derivatives by normal and rotation, given those by the motion, (N, 3)."""
        bar = self.inverse @ np.einsum("kni,ni->k", self.modes, u_bar)
        self._turned_adjoint(-bar, self._way(u), out)

    def push_force(self, d: ParameterGradient, reaction: np.ndarray) -> np.ndarray:
        """Force (N, 3) [N] that a reaction leaves out of balance where Φ changes along a direction."""
        return -self.mass[:, None] * np.tensordot(reaction, self._turned(d), 1)

    def pull_force(self, force_bar: np.ndarray, reaction: np.ndarray, out: ParameterGradient) -> None:
        """The transpose of `push_force`."""
        self._turned_adjoint(-reaction, self.mass[:, None] * force_bar, out)

    def _way(self, u: Array) -> np.ndarray:
        """W (u - u₀), (N, 3)."""
        return np.asarray((self.s.device.host(u) - self.s.start) * self.mass[:, None])

    def _turned(self, d: ParameterGradient) -> np.ndarray:
        """Change of Φ, (3, N, 3), along a direction of the parameters; of the shifts what leaves the plane."""
        normal = (d.plane_normal - self.n * (self.n @ d.plane_normal)) / self.length
        by = left_jacobian(self.s.parameters.rotation_rad) @ d.rotation_rad
        shifts = np.broadcast_to(-np.outer(self.along @ normal, self.n)[:, None, :], (2, *self.arm.shape))
        turn = np.cross(normal, self.arm) + np.cross(self.n, np.cross(by, self.arm))
        return np.concatenate([shifts, turn[None]])

    def _turned_adjoint(self, weight: np.ndarray, x: np.ndarray, out: ParameterGradient) -> None:
        """Add the derivatives of Σ_k weight_k x · dΦ_k, x (N, 3)."""
        normal = -float(x.sum(axis=0) @ self.n) * (weight[:2] @ self.along)
        normal = (normal + weight[2] * np.cross(self.arm, x).sum(axis=0)) / self.length
        out.plane_normal += normal - self.n * (self.n @ normal)
        about = weight[2] * np.cross(self.arm, np.cross(x, self.n)).sum(axis=0)
        out.rotation_rad += left_jacobian(self.s.parameters.rotation_rad).T @ about


def lying(simulation: Simulation) -> Lying | None:
    """Of a body that only lies on the plane; None for one that is held, or lies elsewhere."""
    model, p = simulation.model, simulation.parameters
    if model.dirichlet.any or model.contact is None:
        return None
    gravity, normal = np.asarray(p.gravity_m_s2), np.asarray(p.plane_normal)
    sizes = float(np.linalg.norm(gravity) * np.linalg.norm(normal))
    steep = np.arccos(np.clip(-float(gravity @ normal) / sizes, -1, 1)) if sizes > 0 else np.pi
    return Lying(simulation) if steep <= STEEPEST_RAD else None
