"""Several materials in one body: springs in series and side by side."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation

LENGTH, SIDE, SPACING = 0.16, 0.04, 0.01
PULL = 0.01  # N, small enough for linear theory
YOUNG = np.array([2000.0, 50000.0])


def pulled_bar(region_of, young=YOUNG):
    """A bar along x, ν = 0, held at one end and pulled at the other: mean u_x [m] of each cross-section of nodes."""
    body = build_body(sample(Box((LENGTH, SIDE, SIDE)), SPACING), region_of=region_of)
    end = Box((1e-6, 1, 1), (LENGTH / 2, 0, 0))
    root = FixedRegion(Box((1e-6, 1, 1), (-LENGTH / 2, 0, 0)))
    model = build_model(body, theta_scheme(0.01), fixed=[root], loads=[(end, np.array([PULL, 0.0, 0.0]))])
    simulation = Simulation(model, Parameters(young, 0.0, 1000.0, gravity_m_s2=np.zeros(3)))
    state, _ = solve_static(simulation, tolerance=1e-8)
    place = np.round((body.node_position_m[:, 0] + LENGTH / 2) / SPACING).astype(int)
    area = body.node_volume_m3  # the nodes of a section share it as they share volume
    return np.bincount(place, area * state.u[:, 0]) / np.bincount(place, area)


def test_two_materials_in_series():
    """u(x) = F/A Σ length/E: the strain in each half is F/(A E). The load enters through triangles, not quite evenly,
    so sections nearer than the bar's width to its end are left out (Saint-Venant); 0.1 % for the rest."""
    u = pulled_bar(lambda centre: (centre[:, 0] > 0).astype(int))
    stress = PULL / SIDE**2
    x = SPACING * np.arange(len(u))
    expected = stress * (np.minimum(x, LENGTH / 2) / YOUNG[0] + np.maximum(x - LENGTH / 2, 0) / YOUNG[1])
    inner = x <= LENGTH - SIDE
    np.testing.assert_allclose(u[inner], expected[inner], rtol=1e-3, atol=1e-9)


def test_two_materials_side_by_side():
    """Equal strain ε = 2F/(A (E₁ + E₂)) where the load is taken off both: with a bar split along its length the mean
    stretch of a symmetric sandwich follows the mean modulus; 1 % away from the pulled end."""
    young = np.array([2000.0, 4000.0])
    u = pulled_bar(lambda centre: (np.abs(centre[:, 1]) > SIDE / 4).astype(int), young)
    strain = PULL / SIDE**2 / young.mean()
    middle = (u[10] - u[4]) / (6 * SPACING)
    assert middle == pytest.approx(strain, rel=0.01)


def test_equal_materials_are_one_material():
    """Two regions of the same E give the numbers of one region, to the bit: E is only looked up."""
    split = pulled_bar(lambda centre: (centre[:, 0] > 0).astype(int), np.array([3000.0, 3000.0]))
    whole = pulled_bar(None, np.array([3000.0]))
    np.testing.assert_array_equal(split, whole)


def test_one_modulus_for_each_region():
    body = build_body(sample(Box((LENGTH, SIDE, SIDE)), 0.02), region_of=lambda c: (c[:, 0] > 0).astype(int))
    with pytest.raises(ValueError, match=r"youngs_modulus_pa holds 1 value\(s\) for 2 material region"):
        Simulation(build_model(body, theta_scheme(0.01)), Parameters(1000.0, 0.3, 1000.0))
