"""Stiffness damping α₂ K u̇, which elasticity and weakly held surfaces carry along with their stiffness.

Within a step a stiffness acts on u + z, z = (c_k + c_d α₂) Δu - α₂ known: elastic force and damping in one product.
"""

from __future__ import annotations

from soft_estimator.backends.interface import Array
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.terms.interface import Columns, Directions, Pulled, Stage


def matrix_scale(stage: Stage, values: Parameters) -> float:
    """Factor of K in the step's matrix."""
    return stage.scheme.c_k + stage.scheme.c_d * values.stiffness_damping_s


def pulled_by(stage: Stage, values: Parameters, increment: Array | None) -> Array:
    """z (N, 3) for an increment Δu; without one, what is known before the solve."""
    z = stage.device.zero if increment is None else matrix_scale(stage, values) * increment
    known = stage.known_velocity
    return z if known is None else z - values.stiffness_damping_s * known


def pulled_by_push(
    stage: Stage, values: Parameters, increment: Array, changes: Columns, directions: Directions
) -> Array:
    """Change of u + z at fixed Δu, (N, 3, width)."""
    moved, damping = changes.u, values.stiffness_damping_s
    if changes.known is not None:
        moved = moved - damping * changes.known
    if directions.any("stiffness_damping_s"):
        velocity = stage.scheme.c_d * increment
        if stage.known_velocity is not None:
            velocity = velocity - stage.known_velocity
        column = directions.on_device(directions.column("stiffness_damping_s"), velocity.dtype)
        moved = moved + velocity[:, :, None] * column
    return moved


def pulled_by_pull(stage: Stage, values: Parameters, increment: Array, bar: Array, out: Pulled) -> None:
    """Hand the derivative (N, 3) by u + z on to state and damping."""
    out.u += bar
    slope = float((bar * stage.scheme.c_d * increment).sum())
    if stage.known_velocity is not None:
        out.known -= values.stiffness_damping_s * bar
        slope -= float((bar * stage.known_velocity).sum())
    out.gradient.stiffness_damping_s += slope
