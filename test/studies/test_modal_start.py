"""Bodies first seen in the middle of a motion: bent and swinging, nobody knows how (`start: {modes: {}}`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import soft_estimator as se
from soft_estimator.physics.step import Simulation
from soft_estimator.schema import ConfigError

FIRST_S, NOISE_M, YOUNG = 0.1, 3e-4, 600e3


def beam(spacing_m: float, step_s: float, **more: Any) -> dict[str, Any]:
    """A beam held at one end that gravity sets swinging."""
    return {
        "name": "swinging beam",
        "body": {"shape": {"box": {"size_m": [0.12, 0.03, 0.03]}}, "spacing_m": spacing_m},
        "material": {"youngs_modulus_pa": YOUNG, "poissons_ratio": 0.4, "stiffness_damping_s": 1e-3},
        "fixed": [{"low_m": [-0.07, -0.1, -0.1], "high_m": [-0.0599, 0.1, 0.1]}],
        "time": {"step_s": step_s, "duration_s": 0.3},
        **more,
    }


def clouds(count: int) -> list[tuple[float, np.ndarray, float]]:
    """What is seen of it from a tenth of a second on: simulated on a finer grid and with shorter steps."""
    scene, rng = se.read_scene(beam(0.0075, 0.002)), np.random.default_rng(0)
    simulation = Simulation(scene.model, scene.parameters)
    state, out = simulation.initial_state(), []
    faces = scene.body.surface.faces
    for k in range(1, round(FIRST_S / 0.002) + 10 * count + 1):
        state, _ = simulation.step(state)
        since_s = 0.002 * k - FIRST_S
        if since_s > 0 and k % 10 == 0:
            corner = scene.body.surface_positions_m(state.u)[faces]
            normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
            area = np.linalg.norm(normal, axis=1)
            face, share = rng.choice(len(faces), 400, p=area / area.sum()), rng.dirichlet(np.ones(3), 400)
            along = (normal / area[:, None])[face] * NOISE_M * rng.normal(size=(400, 1))
            out.append((since_s, np.einsum("pk,pki->pi", share, corner[face]) + along, NOISE_M))
    return out


@pytest.mark.slow
def test_a_beam_first_seen_in_mid_swing_tells_its_stiffness():
    """E within 2 % and inside its interval, from a start that is bent by millimetres and moves."""
    told = {
        "estimate": {
            "parameters": ["youngs_modulus_pa"],
            "guess": {"youngs_modulus_pa": 900e3},
            "known_to": {"density_kg_m3": 0.0, "poissons_ratio": 0.0, "gravity_m_s2": 0.0},
            "grid_error_nodes": 0,
        },
    }
    frames = clouds(6)
    found = se.estimate(beam(0.01, 0.005, start={"modes": {"count": 4}}, **told), frames, backend="cpu")
    e = found["youngs_modulus_pa"]
    assert e.value == pytest.approx(YOUNG, rel=0.02) and e.interval[0] < YOUNG < e.interval[1] and e.observable
    assert found.detail.posterior.verdict.fits
    assert np.abs(found.detail.parameters.modal_displacement_m).max() > 1e-3


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"start": {"modes": {}, "equilibrium": {}}}, "start.modes and start.equilibrium are both given; keep one"),
        ({"time": {"step_s": 0.005, "duration_s": 0.3, "integrator": "hht"}}, "set time.integrator to theta"),
        ({"start": {"modes": {"count": 41}}}, "start.modes.count = 41"),
        ({"start": {}, "estimate": {"parameters": ["modal_velocity_m_s[0]"]}}, "needs start.modes"),
    ],
)
def test_mistakes_are_one_line(changed, says):
    with pytest.raises(ConfigError) as caught:
        plain = {"start": {"modes": {}}, "estimate": {"parameters": ["youngs_modulus_pa"]}}
        se.estimate(beam(0.01, 0.005, **(plain | changed)))
    assert says in str(caught.value) and "\n" not in str(caught.value)
