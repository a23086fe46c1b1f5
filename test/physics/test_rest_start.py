"""A motion that starts at rest under its loads: it stays there, and its derivatives are those of the balance itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_suite import RollOut, Row, complaints, table

from soft_estimator.geometry.shapes import Box, Shape, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import Integrator, hht_scheme, theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

SHARP = SolverSettings(1e-13, 5000)
NO_MOTION = ("velocity_m_s", "angular_velocity_rad_s")
DAMPING = ("mass_damping_per_s", "stiffness_damping_s")


def beam(method: str = "strong", integrator: Integrator | None = None, length_m: float = 0.08, **more: object) -> Model:
    """A clamped beam of 2 x 2 cells of 1 cm, eight along it, that sags."""
    body = build_body(sample(Box((length_m, 0.02, 0.02)), 0.01, align="origin"))
    held = FixedRegion(Box((0.021, 0.03, 0.03), (-length_m / 2, 0, 0)), method)
    return build_model(
        body, integrator or theta_scheme(0.005), fixed=[held], solver=SHARP, rests=True, **more  # type: ignore[arg-type]
    )  # fmt: skip


def checked(
    model: Model,
    parameters: Parameters,
    steps: int,
    zero: tuple[str, ...],
    judge: tuple[str, ...] | None = None,
    rough: tuple[str, ...] = (),
    still: float = 1e-9,
) -> dict[str, float]:
    """Adjoint and tangent for all numbers, and differences for those to be judged, agree; dampings have no effect on
    what stands still, but for the rounding of it. The scaled derivatives by label.

    rough: labels whose adjoint and tangent agree to 1e-10 of the largest derivative alone. still: part of that which
    dampings may have.
    """
    cost = RollOut(lambda p: Simulation(model, p), steps)
    rows: list[Row] = table(cost, model.complete(parameters), zero=zero, judge=judge)
    damped = [row for row in rows if row.label in DAMPING]
    others = [row for row in rows if row.label not in DAMPING and row.label not in rough]
    assert not complaints(others, zero), "\n".join(complaints(others, zero))
    largest = max(abs(row.adjoint) for row in others)
    assert all(abs(row.adjoint) < still * largest and abs(row.tangent) < still * largest for row in damped)
    assert all(abs(row.adjoint - row.tangent) < 1e-10 * largest for row in rows if row.label in rough)
    return {row.label: row.adjoint for row in others}


JELLY = Parameters(2e4, 0.3, 1000.0, 0.5, 0.002, plane_offset_m=1.0)


def test_it_sags_and_stays() -> None:
    """Twenty steps from rest: nothing moves by more than the balance was sharp, to 1e-11 of the load."""
    simulation = Simulation(beam(), JELLY)
    first = state = simulation.initial_state()
    sag = float(-first.u[:, 1].min())
    # ρ g L⁴ / (8 E I/A) of an Euler beam of 0.07 m, with shear and coarse cells around it
    assert 0.6 < sag / (1000 * 9.81 * 0.07**4 / (8 * 2e4 * 0.02**2 / 12)) < 1.4
    for _ in range(20):
        state, _ = simulation.step(state)
    assert float(np.abs(state.u - first.u).max()) < 1e-8 * sag


@pytest.mark.parametrize(
    ("method", "scheme"),
    [("strong", theta_scheme(0.005)), ("nitsche", theta_scheme(0.005)), ("strong", hht_scheme(0.005, -0.1))],
)
def test_all_derivatives_of_a_sagging_beam(method: str, scheme: Integrator) -> None:
    """Adjoint, tangent and differences; three steps beyond rest, so that the motion's own derivatives join them. Weakly
    held, differences by what a support can feel. A beam of four cells, so soft that it sags by half of its length."""
    judge = None if method == "strong" else ("youngs_modulus_pa", "poissons_ratio", "density_kg_m3", "rotation_rad")
    model, soft = beam(method, scheme, length_m=0.04), JELLY.replace(youngs_modulus_pa=2e3)
    shown = checked(model, soft, 3, (*NO_MOTION, "plane_normal", "plane_offset_m"), judge)
    assert all(abs(shown[name]) > 0 for name in ("youngs_modulus_pa[0]", "poissons_ratio", "density_kg_m3"))


def test_derivatives_of_a_beam_that_hangs_down() -> None:
    """Half as stiff its tip hangs down by four fifths of its length: the rounds alone would run away there."""
    judge = ("youngs_modulus_pa", "poissons_ratio", "rotation_rad")
    zero = (*NO_MOTION, "plane_normal", "plane_offset_m")
    shown = checked(beam(length_m=0.04), JELLY.replace(youngs_modulus_pa=1e3), 1, zero, judge)
    assert abs(shown["youngs_modulus_pa[0]"]) > 0


def lying(shape: Shape, spacing_m: float = 0.01, contact: bool = True, **more: object) -> Model:
    """A body that nothing holds; its lowest point lies at y = 0."""
    body = build_body(sample(shape, spacing_m, align="origin"))
    law = ContactLaw(2e6, 2000.0) if contact else None
    return build_model(body, theta_scheme(0.005), contact=law, solver=SHARP, rests=True, **more)  # type: ignore[arg-type]


SOFT = Parameters(5e3, 0.3, 1000.0, 0.5, 0.002, plane_normal=np.array([0.0, 1.0, 0.0]), plane_offset_m=0.0)
BLOCK = Box((0.06, 0.04, 0.04), (0, 0.02, 0))


def test_a_body_that_lies_sags_and_stays() -> None:
    """A block of height H that does not widen (ν = 0): σ = ρ g (H - y), so that its top sinks by ρ g H² / 2E towards
    its bottom, however far the ground gives way. Nodes of cells have it exactly; but the ground presses on points, not
    quite evenly at the rim, by 0.1 mm of depth, which leaves a thousandth."""
    simulation = Simulation(lying(BLOCK), SOFT.replace(poissons_ratio=1e-9))
    first = state = simulation.initial_state()
    top = simulation.model.body.node_position_m[:, 1] > 0.0399
    bottom = simulation.model.body.node_position_m[:, 1] < 0.0001
    sunk = float(first.u[bottom, 1].mean() - first.u[top, 1].mean())
    assert sunk == pytest.approx(1000 * 9.81 * 0.04**2 / (2 * 5e3), rel=2e-3)
    for _ in range(20):
        state, _ = simulation.step(state)
    assert float(np.abs(state.u - first.u).max()) < 1e-7 * sunk
    # It lies where it was put: the mean of all nodes has not gone sideways.
    assert np.abs(simulation.device.host(simulation.mass) @ first.u[:, [0, 2]]).max() < 1e-12


def test_all_derivatives_of_a_body_that_lies() -> None:
    """Told a little askew and above the plane: height and tilt are the ground's, place and turn as they were told. What
    tilts the body is some 1e4 times softer than what bends its cells, and rounding of these shows as much larger. What
    friction takes at rest, some 1e-5 of the weight, it no longer does in the steps."""
    told = SOFT.replace(rotation_rad=np.array([0.01, 0.3, -0.02]), translation_m=np.array([0.01, 0.002, -0.02]))
    judge = ("youngs_modulus_pa", "poissons_ratio", "density_kg_m3", "translation_m", "rotation_rad", "plane_offset_m")
    tilts = ("rotation_rad[0]", "rotation_rad[2]")
    shown = checked(lying(BLOCK, 0.02), told, 2, NO_MOTION, (*judge, "plane_normal", "gravity_m_s2"), tilts, still=1e-5)
    assert all(abs(shown[name]) > 0 for name in ("youngs_modulus_pa[0]", "translation_m[0]", "plane_offset_m"))
    assert abs(shown["translation_m[1]"]) < 1e-6 * abs(shown["plane_offset_m"])


@pytest.mark.parametrize(("contact", "normal"), [(False, (0, 1, 0)), (True, (0.2, 1, 0))])
def test_a_body_that_neither_lies_nor_is_held_has_no_such_start(contact: bool, normal: tuple[float, ...]) -> None:
    """Nothing under it, or a plane so steep that the least friction does not hold it."""
    simulation = Simulation(lying(BLOCK, contact=contact), SOFT.replace(plane_normal=np.array(normal, dtype=float)))
    with pytest.raises(ValueError, match="needs a part of the body that is held, or a level plane that it lies on"):
        simulation.initial_state()


def test_only_e_over_density_is_seen_of_a_body_at_rest() -> None:
    """Twice as stiff and twice as dense sags alike: K and the load grow together."""
    model = beam()
    one = Simulation(model, JELLY).initial_state().u
    other = Simulation(model, replace(JELLY, youngs_modulus_pa=np.array([4e4]), density_kg_m3=2000.0)).initial_state().u
    np.testing.assert_allclose(one, other, atol=1e-9 * float(np.abs(one).max()))
