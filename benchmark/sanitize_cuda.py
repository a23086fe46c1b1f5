"""A small scene through every CUDA kernel, for compute-sanitizer.

compute-sanitizer --tool memcheck python benchmark/sanitize_cuda.py
compute-sanitizer --tool racecheck python benchmark/sanitize_cuda.py
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.backends.cuda import linear, load_cuda_backend
from soft_estimator.estimation.field import carry_field
from soft_estimator.estimation.observation import ObservedFrame
from soft_estimator.estimation.observer import build_observer, watch
from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.geometry.shapes import Box, Torus, sample
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.body import build_body
from soft_estimator.physics.contact import ContactLaw
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.fused import FusedBatch, FusedSimulation
from soft_estimator.physics.fused_tangent import FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent


def main() -> None:
    backend = load_cuda_backend()
    body = build_body(sample(Torus(0.08, 0.03, axis=(0.3, 1.0, 0.2)), 0.02))
    path = RigidPath(np.array([0.0, 0.1]), np.array([[0, 0, 0], [0.01, 0, 0]]), np.zeros((2, 3)))
    grip = FixedRegion(Box((0.04, 0.2, 0.2), (-0.1, 0.0, 0.0)), path=path)
    parameters = Parameters(3e4, 0.35, 900.0, 0.4, 2e-3, plane_offset_m=0.055, velocity_m_s=np.array([0.1, -0.8, 0.2]))
    for share in (linear._RESIDENT_SHARE, 1e9):  # the resident and the streamed solver
        linear._RESIDENT_SHARE = share
        linear._SOLVERS.clear()
        for scheme, dtype in ((hht_scheme(0.005), np.float32), (theta_scheme(0.005), np.float64)):
            law, settings = ContactLaw(2e6, 800.0), SolverSettings(1e-5, 500)
            model = build_model(body, scheme, fixed=[grip], contact=law, solver=settings, dtype=dtype)
            print(run(model, parameters, backend))


def run(model, parameters: Parameters, backend) -> str:
    batch = FusedBatch(model, [parameters, parameters], backend)
    roll = batch.roll(batch.initial(), 2)
    gradients, _ = batch.roll_back(roll, lambda k, u=roll.u: (u[k], None, None))
    sim = Simulation(model, parameters, backend)
    before = sim.initial_state()
    after, _, lin = sim.step_keeping(before)
    adjoint = Adjoint(sim)
    adjoint.step_back(before, after, adjoint.zero_state())
    tangent = Tangent(sim, [ParameterGradient.unit(1, "poissons_ratio"), ParameterGradient.unit(1, "plane_offset_m")])
    tangent.step(before, after, lin, tangent.initial())
    fused = FusedSimulation(model, parameters, backend)
    states, _ = fused.roll(fused.initial_state(), 2)
    columns = FusedTangent(fused, tangent.directions)
    changes = columns.through(states, columns.initial())
    look(model, states, changes, backend)
    iterations = backend.to_host(roll.report)[:, :, 0].astype(int).tolist()
    return f"{batch.stepper.solver.plan.function} iterations {iterations} dE {gradients[0].youngs_modulus_pa[0]:.3e}"


def look(model, states: list, changes: list, backend) -> None:
    """The point-cloud residual of two frames, its change and its pull-back."""
    field, frames = carry_field(model.body), []
    for k in (1, 2):
        points = model.body.surface_positions_m(backend.to_host(states[k].u).astype(float))[::3]
        points = np.concatenate([points + 0.004, points[:5] + 0.3])
        along = np.tile([0.0, 1.0, 0.0], (len(points), 1))
        frames.append(replace(ObservedFrame.of(0.005 * k, points, 1e-3), along=along))
    view = watch(build_observer(model.body, field, backend), frames)
    u = backend.xp.stack([states[k].u.astype(np.float64) for k in (1, 2)])
    value, rows = view.measure(u), backend.xp.zeros((len(view.points), len(changes[0])))
    for k in (0, 1):
        view.change(k, changes[k].u, changes[k + 1].u, 0.5, rows)
    view.pull_back(value)
    assert bool(backend.xp.isfinite(rows).all()) and bool(backend.xp.isfinite(value).all())


if __name__ == "__main__":
    main()
