"""What the grid does to an estimate is found on the grid refined once, and taken off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from soft_estimator.camera.observing import surface_frame
from soft_estimator.estimation.fitting.grid_error import GRID, without_grid_error
from soft_estimator.estimation.fitting.least_squares import fit
from soft_estimator.estimation.fitting.uncertainty import posterior
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.variables import make_variables
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.finer import on_finer_grid
from soft_estimator.scene.scene import build_scene

HEIGHT_M, FRAMES = 0.02, (10, 15, 20, 25)
TRUTH = Parameters(8000.0, 0.3, 1000.0, stiffness_damping_s=0.01, gravity_m_s2=np.array([0.0, -4.0, 0.0]))


def beam(cells: float) -> Model:
    """A beam of 0.08 x 0.02 x 0.02 m, clamped at one end, with so many cells through its height."""
    body = build_body(sample(Box((0.08, HEIGHT_M, HEIGHT_M)), HEIGHT_M / cells))
    root = FixedRegion(Box((1e-6, 1.0, 1.0), (-0.04, 0.0, 0.0)), "strong")
    return build_model(body, theta_scheme(0.01), fixed=[root])


def test_the_error_of_two_cells_is_taken_off() -> None:
    """Clouds of the beam with six cells, E found with two: of the error, which is the grid's alone, at most a third is
    left, and the deviation stated for it covers that."""
    truth = beam(6)
    simulation, rng = Simulation(truth, TRUTH), np.random.default_rng(0)
    field, state, frames = carry_field(truth.body), simulation.initial_state(), []
    for k in range(1, max(FRAMES) + 1):
        state, _ = simulation.step(state)
        if k in FRAMES:
            frames.append(surface_frame(state.time_s, truth.body, field, state.u, 400, 1e-5, rng))
    coarse, finer = (Problem(beam(n), make_variables(TRUTH, ["youngs_modulus_pa"]), frames) for n in (2, 4))
    found = fit(coarse, coarse.variables.start())
    around = posterior(coarse, found.evaluation)
    answer = without_grid_error(coarse, found.evaluation, around, finer)
    before, after = (p.estimates[0].value / 8000.0 - 1 for p in (around, answer))
    assert abs(before) > 0.01
    assert abs(after) < abs(before) / 3
    assert answer.effects[-1].name == GRID[0]
    assert abs(after) * 8000.0 < 1.96 * answer.estimates[0].std
    assert answer.estimates[0].std > around.estimates[0].std


@pytest.mark.parametrize("detail", [1, 2])
def test_a_scene_on_half_its_spacing(tmp_path: Path, detail: int) -> None:
    """Half the spacing, the same body: its volume to 1 % (the finer one cuts the ball's corners less), its laws."""
    file = tmp_path / "ball.yaml"
    file.write_text(
        f"name: ball\nbody: {{shape: {{sphere: {{radius_m: 0.05}}}}, spacing_m: 0.02, detail: {detail}}}\n"
        "material: {youngs_modulus_pa: 8000}\ncontact: {offset_m: 0.06}\ntime: {step_s: 0.01, duration_s: 0.1}\n"
    )
    scene = build_scene(*read_scene(str(file)))
    fine = on_finer_grid(scene)
    assert fine.body.grid.spacing_m == pytest.approx(0.5 * scene.body.grid.spacing_m)
    assert fine.body.volume_m3 == pytest.approx(scene.body.volume_m3, rel=0.01)
    assert [type(law) for law in fine.model.laws] == [type(law) for law in scene.model.laws]
