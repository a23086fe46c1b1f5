"""What a scene says that nobody can have meant: a wrong sign or a wrong unit, which simulates all the same."""

from __future__ import annotations

import numpy as np

from soft_estimator.physics.start import initial_displacement
from soft_estimator.scene.obstacles import DEEPEST_START
from soft_estimator.scene.scene import Scene

# A body's weight over its stiffness, ρ g L / E, from which on a unit is doubted. Of the scenes that come with the
# package the softest, the torus of Weiss' thesis, has 0.7; a jelly of 5 cm and 200 Pa 2.5.
DOUBTED_WEIGHT = 4.0


def doubts(scene: Scene) -> tuple[str, ...]:
    """A line for each doubt."""
    return (*_under_the_ground(scene), *_too_soft(scene))


def _under_the_ground(scene: Scene) -> list[str]:
    """The body begins deep in the ground, as it does where the sign of its offset is wrong."""
    p = scene.parameters
    if scene.config.contact is None or scene.config.start.equilibrium is not None:
        return []
    points = scene.body.surface_positions_m(initial_displacement(scene.body, p))
    depth_m = -float((points @ p.plane_normal).min() + p.plane_offset_m)
    if depth_m <= DEEPEST_START * _size_m(scene):
        return []
    return [
        f"the body begins {depth_m:.3g} m under the ground and is thrown out of it; lift it by initial.translation_m, "
        f"or lower the ground: it is {-p.plane_offset_m:.3g} m high, which is -contact.offset_m"
    ]


def _too_soft(scene: Scene) -> list[str]:
    """Its own weight would squash the body flat: Pa were meant to be kPa, or millimetres are taken for metres."""
    p, size_m = scene.parameters, _size_m(scene)
    softest_pa = float(np.min(p.youngs_modulus_pa))
    times = p.density_kg_m3 * float(np.linalg.norm(p.gravity_m_s2)) * size_m / softest_pa
    if times <= DOUBTED_WEIGHT:
        return []
    return [
        f"a body of {size_m:.3g} m and {softest_pa:g} Pa is squashed flat by its own weight, whose pressure is "
        f"{times:.2g} times its stiffness; check the units of material.youngs_modulus_pa and of the shape"
    ]


def _size_m(scene: Scene) -> float:
    """The body's longest side."""
    return float(np.ptp(scene.body.node_position_m, axis=0).max())
