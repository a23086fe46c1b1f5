"""Compile the loops that tests share, once and in one process each; they are kept on disk.

python test/warm_up.py            what most tests share: simulating, differentiating, recording, estimating
python test/warm_up.py --rarer    what some do: multigrid, nearly incompressible and neo-Hookean bodies, pictures

The second begins with what an object is found by, which needs no body: beside the first, each has half of the work.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmark"))

import numpy as np
from gradient_suite import RollOut, numbers_of
from perception_scenes import make_body, pose_trial
from tiny_ball import ball, scene_of

from soft_estimator.backends import choose_backend
from soft_estimator.camera.depth_sensor import DepthNoise
from soft_estimator.commands.doctor_self_test import fall_error, gradient_error
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.live.replay import replay_bag
from soft_estimator.live.replay_config import load_replay
from soft_estimator.physics.body import build_body
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.pictures.ground import Ground
from soft_estimator.pictures.renderer import SceneObject, auto_camera, render
from soft_estimator.recordings.record import record_scene


def main() -> None:
    """Simulate, differentiate, record and estimate."""
    fall_error()
    gradient_error()
    with tempfile.TemporaryDirectory() as folder:
        bag = Path(folder) / "bag"
        record_scene(scene_of(), choose_backend("cpu"), bag)
        replay_bag(bag, load_replay({"scene": ball()}, Path())[0], Path(), backend="cpu")
    view = auto_camera((-1.0, -1.0, -1.0), (1.0, 1.0, 1.0), width_px=4, height_px=3)
    DepthNoise().apply(np.ones((3, 4)), view, np.random.default_rng(0))


def rarer() -> None:
    """A ball found on a table; one step, there and back, of a cube so fine and stiff that multigrid is worth it, of a
    beam that is solved directly, of two other materials, and of a cube large enough for several threads; a picture."""
    seen = make_body("ball")
    pose_trial(seen, seen.grid, 0)
    for nodes_across, length_m, youngs_modulus_pa, poissons_ratio, material in (
        (13, 0.1, 2e6, 0.35, "corotated"),
        (5, 0.6, 2e6, 0.35, "corotated"),
        (5, 0.1, 2e4, 0.49, "corotated"),
        (5, 0.1, 2e4, 0.35, "neo_hookean"),
        (15, 0.1, 2e4, 0.35, "corotated"),
    ):
        body = build_body(sample(Box((length_m, 0.1, 0.1)), 0.1 / (nodes_across - 1)))
        model = build_model(body, theta_scheme(1 / 120), material=material)
        parameters = Parameters(youngs_modulus_pa, poissons_ratio, 1000.0, stiffness_damping_s=1e-3)
        steps = RollOut(lambda p, model=model: Simulation(model, p), 1)
        steps.adjoint(parameters)
        steps.tangent(parameters, [number.direction for number in numbers_of(parameters, ("youngs_modulus_pa",))])
    vertices = body.surface_positions_m()
    view = auto_camera(vertices.min(axis=0), vertices.max(axis=0), width_px=32, height_px=24)
    render([SceneObject(vertices, body.surface.faces)], view, Ground(offset_m=0.05))


if __name__ == "__main__":
    rarer() if "--rarer" in sys.argv[1:] else main()
