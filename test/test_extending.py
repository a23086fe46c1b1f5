"""docs/extending.md, followed word for word: its files are written out, and pass the gradient suite from outside."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Registering parameters is for good: a process of its own keeps them out of the other tests.
PROGRAM = """
import numpy as np
from gradient_suite import check_simulation
from ball import BallLaw
from fibres import FibresLaw
from marker import Marker, MarkerFrame
from spring import SpringLaw
from soft_estimator.backends import choose_backend
from soft_estimator.estimation.fitting.least_squares import fit
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.variables import make_variables
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.energy import balance
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

body = build_body(sample(Box((0.04, 0.04, 0.04)), 0.02, align="origin"))
given = Parameters(8000.0, 0.3, 1000.0, 0.4, 0.003, velocity_m_s=np.array([0.2, -0.3, 0.1]),
                   angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]), ball_radius_m=0.05)
spring = SpringLaw(np.array([0.02, 0.02, 0.02]), np.array([0.05, 0.06, 0.0]), 30.0)
backend = choose_backend("{backend}")
# Loops in plain NumPy take long: differences by what the page adds, and by what its terms stand beside.
judge = None if backend.name == "cpu" else (
    "spring_stiffness_n_per_m", "ball_radius_m", "fibre_stiffness_pa", "youngs_modulus_pa", "velocity_m_s")

# The shared gradient suite: a spring and its stiffness, a curved obstacle and its radius, two schemes, both contacts.
no_plane = ("plane_normal", "plane_offset_m")
for scheme, implicit in ((theta_scheme(0.005), True), (hht_scheme(0.005, -0.1), False)):
    ball = ContactLaw(2e6, 800.0, implicit, BallLaw(np.array([0.003, -0.071, 0.002])))
    model = build_model(body, scheme, contact=ball, more=[spring], solver=SolverSettings(1e-13, 3000))
    rows = check_simulation(lambda p: Simulation(model, p, backend), model.complete(given), 2,
                            zero=no_plane, judge=judge)
    shown = {row.label: row.adjoint for row in rows}
    assert shown["spring_stiffness_n_per_m"] != 0 and shown["ball_radius_m"] != 0, shown

# A material: fibres beside the neo-Hookean law, in Newton steps; turning as a whole stretches nothing.
fibres = FibresLaw(np.array([0.6, 0.8, 0.0]), 20000.0)
model = build_model(body, theta_scheme(0.005), more=[fibres, spring], material="neo_hookean",
                    solver=SolverSettings(1e-13, 3000, rounds=30, round_tolerance=1e-13))
rows = check_simulation(lambda p: Simulation(model, p, backend), model.complete(given), 2,
                        zero=(*no_plane, "ball_radius_m"), judge=judge)
shown = {row.label: row.adjoint for row in rows}
assert shown["fibre_stiffness_pa"] != 0, shown
simulation = Simulation(model, given, backend)
turned = simulation.device.up(body.node_position_m @ (np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1.0]]) - np.eye(3)).T)
term = next(t for t in simulation.terms if type(t).__name__ == "Fibres")
zero = simulation.initial_state()
assert abs(term.energies_j(type(zero)(turned, zero.v, zero.a, 0.0), None)["elastic_j"]) < 1e-12

# Energy: an undamped, nearly rigid body on the spring alone keeps what it has, to the order of the scheme.
free = build_model(body, theta_scheme(0.001), more=[spring], solver=SolverSettings(1e-12, 3000))
still = given.replace(mass_damping_per_s=0.0, stiffness_damping_s=0.0, youngs_modulus_pa=1e6)
simulation = Simulation(free, still, backend)
state = simulation.initial_state()
before = balance(simulation, state)
for _ in range(40):
    state, report = simulation.step(state)
    assert not report.retaken_parts
after = balance(simulation, state)
assert abs(after.total_j - before.total_j) < 2e-3 * max(after.kinetic_j, after.elastic_j), (before, after)

# The spring's stiffness and E, from one marker: exact places, so the truth is the minimum.
free = build_model(body, theta_scheme(0.004), more=[spring], solver=SolverSettings(1e-12, 3000))
marker = Marker(body, np.array([0.02, 0.02, 0.02]), 1e-4)
truth, frames = Simulation(free, given, backend), []
state = truth.initial_state()
for k in range(12):
    state, _ = truth.step(state)
    if k % 2:
        frames.append(MarkerFrame(state.time_s, marker.position_m(backend.to_host(state.u))))
variables = make_variables(free.complete(given).replace(spring_stiffness_n_per_m=45.0, youngs_modulus_pa=6000.0),
                           ["spring_stiffness_n_per_m", "youngs_modulus_pa"])
problem = Problem(free, variables, frames, backend=backend, residual=marker)
found = variables.natural(fit(problem, variables.start()).theta)
assert abs(found[0] / 30.0 - 1) < 1e-3 and abs(found[1] / 8000.0 - 1) < 1e-2, found
print("found", found)
"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_page_works_word_for_word(tmp_path: Path, backend: str) -> None:
    """A term, a material, a parameter, an obstacle and a residual from outside: derivatives to 1e-6
    (`gradient_suite`), energy kept, and both stiffnesses found. The prior pulls E, which one marker shows faintly, by
    less than a hundredth."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, flags=re.S)
    assert [name for name, _ in blocks] == ["spring.py", "fibres.py", "ball.py", "marker.py"]
    for name, code in blocks:
        (tmp_path / name).write_text(code, encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM.replace("{backend}", backend), encoding="utf-8")
    path = ":".join(map(str, (tmp_path, ROOT, ROOT / "test")))
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=900,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "NUMBA_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_package_does_not_know_them() -> None:
    """Nothing of the page is in the package: names registered there would make the test above prove little."""
    assert importlib.util.find_spec("soft_estimator") is not None
    names = "spring_stiffness|fibre_stiffness|ball_radius_m"
    found = subprocess.run(
        ["grep", "-rlE", names, str(ROOT / "soft_estimator")], capture_output=True, text=True
    ).stdout.split()
    assert [name for name in found if name.endswith(".py")] == []
