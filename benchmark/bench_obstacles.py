"""What obstacles cost that nothing touches: a step of a ball on its plane, without others and with ever more spheres.

    python benchmark/bench_obstacles.py [--spacing 0.006] [--turns 5]

CPU time of a step, in turns, the median of them. A scene with ten obstacles should take at most 1.5 times as long as
one plane alone.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import process_time

import numpy as np

from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solids import Round, SolidLaw
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

BESIDE = (0, 1, 9)
STEPS = 20


def on_the_plane(body: Body, beside: int) -> Simulation:
    """A ball that touches its plane, and spheres in a ring about it, 2 cm away."""
    angles = 2 * np.pi * np.arange(beside) / max(beside, 1)
    places = 0.1 * np.stack([np.cos(angles), np.zeros(beside), np.sin(angles)], axis=1)
    laws = [
        ContactLaw(1e7, 2000.0, obstacle=SolidLaw(Round((0.0, 0.0, 0.0), 0.03), centre_m=place), own=True)
        for place in places
    ]
    model = build_model(body, theta_scheme(0.005), contact=ContactLaw(1e7, 2000.0), obstacles=laws)
    return Simulation(model, Parameters(5e4, 0.3, 1000.0, 0.0, 1e-3, plane_offset_m=0.05))


def step_s(simulation: Simulation) -> float:
    """CPU time of a step [s], after one to warm up."""
    state, _ = simulation.step(simulation.initial_state())
    begin = process_time()
    for _ in range(STEPS):
        state, _ = simulation.step(state)
    return (process_time() - begin) / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spacing", type=float, default=0.006, help="of the ball's cells [m] (0.006)")
    parser.add_argument("--turns", type=int, default=5, help="in which they are timed (5)")
    options = parser.parse_args()
    body = build_body(sample(Sphere(0.05), options.spacing))
    simulations = [on_the_plane(body, beside) for beside in BESIDE]
    turns = [[step_s(simulation) for simulation in simulations] for _ in range(options.turns)]
    alone = median(turn[0] for turn in turns)
    print(f"{body.cell_count} cells, {body.node_count} nodes")
    for k, beside in enumerate(BESIDE):
        took = median(turn[k] for turn in turns)
        print(f"plane and {beside} spheres  {1e3 * took:6.2f} ms a step  {took / alone:.2f} times")


if __name__ == "__main__":
    main()
