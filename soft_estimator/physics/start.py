"""Where a motion starts: pose and rigid motion of the undeformed body, and their derivatives by the parameters."""

from __future__ import annotations

import numpy as np

from soft_estimator.geometry.rigid import left_jacobian, rotation_matrix
from soft_estimator.physics.body import Body
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters


def initial_displacement(body: Body, parameters: Parameters) -> np.ndarray:
    """u of the initial pose: rotation about the centroid, then translation."""
    arm = body.node_position_m - body.centroid_m
    turn = rotation_matrix(parameters.rotation_rad) - np.eye(3)
    return arm @ turn.T + parameters.translation_m


def initial_velocity(body: Body, parameters: Parameters, u: np.ndarray) -> np.ndarray:
    """v of the initial motion of the posed body: v₀ + ω × r."""
    arm = body.node_position_m + u - body.centroid_m - parameters.translation_m
    return parameters.velocity_m_s + np.cross(parameters.angular_velocity_rad_s, arm)


def start_push(body: Body, p: Parameters, d: ParameterGradient) -> tuple[np.ndarray, np.ndarray]:
    """Changes of the initial u and v along a direction of the parameters, (N, 3) each."""
    arm = (body.node_position_m - body.centroid_m) @ rotation_matrix(p.rotation_rad).T
    turn = np.cross(left_jacobian(p.rotation_rad) @ d.rotation_rad, arm)
    v = d.velocity_m_s + np.cross(d.angular_velocity_rad_s, arm) + np.cross(p.angular_velocity_rad_s, turn)
    return d.translation_m + turn, v


def start_pull(body: Body, p: Parameters, u_bar: np.ndarray, v_bar: np.ndarray, out: ParameterGradient) -> None:
    """Add the derivatives by pose and motion, given those by the initial u and v, (N, 3) each."""
    arm = (body.node_position_m - body.centroid_m) @ rotation_matrix(p.rotation_rad).T
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
