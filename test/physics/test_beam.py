"""The cantilever of the project's brief: 0.2 x 0.02 x 0.03 m, E = 50 kPa, tip load 0.01 N across the 0.02 m side.

References: Timoshenko's beam at ν = 0; at ν = 0.3 a converged solid model (CalculiX) bends 1.07 % less than that,
because the clamped root cannot contract, and swings at 0.5707 Hz.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_bvp, trapezoid

from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.shapes import Box, Placed, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.matrices import assemble_matrices
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation

LENGTH, THICKNESS, WIDTH, YOUNG, LOAD = 0.2, 0.02, 0.03, 5e4, 0.01
INERTIA = WIDTH * THICKNESS**3 / 12
STRAIGHT = np.eye(3)
TILTED = rotation_matrix(np.array([0, 0, np.pi / 6])) @ rotation_matrix(np.array([np.pi / 6, 0, 0]))


def reference_deflection_m(poissons_ratio):
    """F L³/3EI + F L/(k A G) with Cowper's k = 10(1+ν)/(12+11ν), less 1.07 % at ν = 0.3."""
    shear = 0.5 * YOUNG / (1 + poissons_ratio)
    k = 10 * (1 + poissons_ratio) / (12 + 11 * poissons_ratio)
    timoshenko = LOAD * LENGTH**3 / (3 * YOUNG * INERTIA) + LOAD * LENGTH / (k * WIDTH * THICKNESS * shear)
    return timoshenko * (1 - 0.0107 if poissons_ratio == 0.3 else 1.0)


def cantilever(cells, poissons_ratio, method="nitsche", turn=STRAIGHT, load=LOAD):
    """A beam along x, turned in its grid, clamped at x = -L/2 and loaded over its other end."""
    h = THICKNESS / cells
    # The end faces lie on grid planes of the straight beam; cut through cells, the clamp and the load take the surface
    # within a part of a cell of the end.
    thin = 1e-6 if turn is STRAIGHT else 0.5 * h
    root = Placed(Box((thin, 1, 1), (-LENGTH / 2, 0, 0)), turn)
    tip = Placed(Box((0.6 * thin, 1, 1), (LENGTH / 2, 0, 0)), turn)
    body = build_body(sample(Placed(Box((LENGTH, THICKNESS, WIDTH)), turn), h))
    model = build_model(
        body, theta_scheme(0.01), fixed=[FixedRegion(root, method)], loads=[(tip, turn @ [0.0, -load, 0.0])]
    )
    return Simulation(model, Parameters(YOUNG, poissons_ratio, 1000.0, gravity_m_s2=np.zeros(3)))


def tip_deflection_m(simulation, turn=STRAIGHT):
    """Mean deflection of the surface points at the loaded end."""
    state, _ = solve_static(simulation, tolerance=1e-5)
    body = simulation.model.body
    rest = body.surface_positions_m()
    reach = 1e-6 if turn is STRAIGHT else 0.2 * body.grid.spacing_m
    tip = (rest @ turn)[:, 0] > LENGTH / 2 - reach
    return -float(((body.surface_positions_m(state.u) - rest) @ turn[:, 1])[tip].mean())


def relative_error(cells, poissons_ratio, method="nitsche", turn=STRAIGHT):
    """Of the deflection under a thousandth of the load: small enough for the linear theory of the reference."""
    simulation = cantilever(cells, poissons_ratio, method, turn, 1e-3 * LOAD)
    return 1e3 * tip_deflection_m(simulation, turn) / reference_deflection_m(poissons_ratio) - 1


@pytest.mark.parametrize("method", ["strong", "nitsche"])
def test_deflection_converges_to_timoshenko(method):
    """ν = 0: within 0.5 % at 8 cells through the thickness, second order (bending of trilinear cells errs with h²; held
    weakly, a softer root takes a part of that away at 2 cells: the fitted order over 2-8 cells must reach 1.7 and the
    last one 1.8)."""
    errors = np.abs([relative_error(n, 0.0, method) for n in (2, 4, 8)])
    assert errors[2] < 0.005
    orders = np.log2(errors[:-1] / errors[1:])
    assert orders.mean() > 1.7 and orders[1] > 1.8


@pytest.mark.parametrize("method", ["strong", "nitsche"])
def test_deflection_with_poissons_ratio(method):
    """ν = 0.3: within 1 % of the solid reference at 4 cells."""
    assert abs(relative_error(4, 0.3, method)) < 0.01


@pytest.mark.slow
def test_deflection_of_a_beam_turned_in_the_grid():
    """Turned by 30° about two axes, every surface cell is cut: within 5 % at 8 cells (ν = 0.3)."""
    assert abs(relative_error(8, 0.3, turn=TILTED)) < 0.05


@pytest.mark.parametrize("turn", [STRAIGHT, TILTED], ids=["straight", "tilted"])
def test_first_frequency(turn):
    """0.5707 Hz within 3 % at 4 cells through the thickness, from the assembled matrices (1 % along the grid; the bar
    that lies askew loses its edges here, where the shape is known on the grid alone)."""
    simulation = cantilever(4, 0.3, turn=turn)
    frequencies, shapes = assemble_matrices(simulation).modes(1)
    assert frequencies[0] == pytest.approx(0.5707, rel=0.01 if turn is STRAIGHT else 0.03)
    # it is the bending across the thin side
    mean = np.abs(shapes[:, 0].reshape(-1, 3) @ turn).mean(axis=0)
    assert mean[1] > 5 * mean[2]


def elastica_deflection_m(load):
    """Tip of the inextensible elastic line EI θ'' = -F cos θ, clamped at s = 0, free at s = L."""
    s = np.linspace(0, LENGTH, 50)
    solution = solve_bvp(
        lambda _, y: np.stack([y[1], -load / (YOUNG * INERTIA) * np.cos(y[0])]),
        lambda a, b: np.array([a[0], b[1]]),
        s,
        np.zeros((2, s.size)),
        tol=1e-8,
    )
    fine = np.linspace(0, LENGTH, 2001)
    return float(trapezoid(np.sin(solution.sol(fine)[0]), fine))


def test_large_deflection_follows_the_elastica():
    """Corotation: three times the load bends the beam by 0.3 L, where linear theory is 10 % off. The ratio to the same
    mesh's linear answer removes its bending error; 1 % is left for shear and for the softening of the coarse mesh."""
    load = 3 * LOAD
    large, small = (tip_deflection_m(cantilever(4, 0.0, load=f)) for f in (load, 1e-3 * load))
    ratio = large / (1e3 * small)
    linear = load * LENGTH**3 / (3 * YOUNG * INERTIA)
    expected = elastica_deflection_m(load) / linear
    assert expected < 0.9
    assert ratio == pytest.approx(expected, rel=0.01)
