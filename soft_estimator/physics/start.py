"""Where a motion starts: the body's pose and rigid motion, bent along its modes where it has any, and the derivatives
by the parameters.

With the rotation R, the shift t and the arms r of the nodes from the centroid, bent by b = Σ a_k φ_k:
u = R (r + b) - r + t and v = v₀ + ω × R (r + b) + R Σ ȧ_k ψ_k.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.geometry.rigid import left_jacobian, rotation_matrix
from soft_estimator.physics.body import Body
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.modes import Modes
from soft_estimator.physics.parameters import Parameters


def initial_displacement(body: Body, parameters: Parameters, modes: Modes | None = None) -> np.ndarray:
    """u of the initial pose: rotation about the centroid, then translation."""
    arm = body.node_position_m - body.centroid_m
    turn = rotation_matrix(parameters.rotation_rad)
    bend = 0.0 if modes is None else modes.bent(parameters) @ turn.T
    return arm @ (turn - np.eye(3)).T + bend + parameters.translation_m


def initial_velocity(body: Body, parameters: Parameters, u: np.ndarray, modes: Modes | None = None) -> np.ndarray:
    """v of the initial motion of the posed body: v₀ + ω × r, and that of its modes."""
    arm = body.node_position_m + u - body.centroid_m - parameters.translation_m
    swing = 0.0 if modes is None else modes.swung(parameters) @ rotation_matrix(parameters.rotation_rad).T
    return parameters.velocity_m_s + np.cross(parameters.angular_velocity_rad_s, arm) + swing


def start_push(
    body: Body, p: Parameters, d: ParameterGradient, modes: Modes | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Changes of the initial u and v along a direction of the parameters, (N, 3) each."""
    moves = (d.translation_m, d.rotation_rad, d.velocity_m_s, d.angular_velocity_rad_s)
    if modes is None and not any(np.any(part) for part in moves):  # material, plane: half of a window's directions
        return np.zeros_like(body.node_position_m), np.zeros_like(body.node_position_m)
    rotation, by = rotation_matrix(p.rotation_rad), left_jacobian(p.rotation_rad) @ d.rotation_rad
    arm = _arms(body, p, modes) @ rotation.T
    turn, v = np.cross(by, arm), d.velocity_m_s + np.cross(d.angular_velocity_rad_s, arm)
    if modes is not None:
        turn = turn + modes.bent(d) @ rotation.T
        v = v + modes.swung(d) @ rotation.T + np.cross(by, modes.swung(p) @ rotation.T)
    return d.translation_m + turn, v + np.cross(p.angular_velocity_rad_s, turn)


def _arms(body: Body, p: Parameters, modes: Modes | None) -> np.ndarray:
    """The nodes from the centroid, bent but not turned."""
    arm = body.node_position_m - body.centroid_m
    return arm if modes is None else arm + modes.bent(p)


def start_pull(
    body: Body,
    p: Parameters,
    u_bar: np.ndarray,
    v_bar: np.ndarray,
    out: ParameterGradient,
    modes: Modes | None = None,
) -> None:
    """Add the derivatives by pose and motion, given those by the initial u and v, (N, 3) each."""
    rotation = rotation_matrix(p.rotation_rad)
    arm = _arms(body, p, modes) @ rotation.T
    if modes is not None:
        felt = u_bar + np.cross(v_bar, p.angular_velocity_rad_s)
        modes.pull(felt @ rotation, v_bar @ rotation, out)
        swing = np.cross(modes.swung(p) @ rotation.T, v_bar).sum(axis=0)
        out.rotation_rad += left_jacobian(p.rotation_rad).T @ swing
    # Sums along contiguous rows: a batch comes here once for each of its systems.
    arms, places, velocities = (np.ascontiguousarray(x.T) for x in (arm, u_bar, v_bar))
    out.translation_m += places.sum(axis=1)
    out.velocity_m_s += velocities.sum(axis=1)
    by_velocity = np.einsum("an,bn->ab", arms, velocities)
    out.angular_velocity_rad_s += _moment(by_velocity)
    turned = by_velocity @ np.cross(np.eye(3), p.angular_velocity_rad_s)  # Σ arm (v × ω)ᵀ
    by_place = np.einsum("an,bn->ab", arms, places) + turned
    out.rotation_rad += left_jacobian(p.rotation_rad).T @ _moment(by_place)


def _moment(products: np.ndarray) -> np.ndarray:
    """Σ a × b from Σ a bᵀ (3, 3)."""
    return (products - products.T)[[1, 2, 0], [2, 0, 1]]
