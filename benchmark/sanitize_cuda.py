"""Small scenes through every CUDA kernel, for compute-sanitizer; ends with 1 if a kernel was not launched.

compute-sanitizer --tool memcheck python benchmark/sanitize_cuda.py
compute-sanitizer --tool racecheck python benchmark/sanitize_cuda.py float32

A precision may be named to run its kernels alone: racecheck takes minutes for each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from typing import Any

import cupy
import numpy as np

from soft_estimator.backends.cuda import cells, kernels, linear, load_cuda_backend
from soft_estimator.backends.cuda.stepper import own_stepper
from soft_estimator.backends.interface import Array, Backend
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.carried_surface import CarriedSurface
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_observer import build_observer, watch
from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.geometry.shapes import Box, Sphere, Torus, sample
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.energy import balance
from soft_estimator.physics.fused import FusedBatch, FusedSimulation
from soft_estimator.physics.fused_tangent import Changes, FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solids import Field, HalfSpace, Round, SolidLaw
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent
from soft_estimator.physics.terms.contact import ContactLaw

Kernel = tuple[str, str, str]  # file, function, precision
PRECISIONS = {"float32": hht_scheme(0.005), "float64": theta_scheme(0.005)}
SOFT = Parameters(3e4, 0.35, 900.0, 0.4, 2e-3, plane_offset_m=0.055, velocity_m_s=np.array([0.1, -0.8, 0.2]))
STIFF = SOFT.replace(youngs_modulus_pa=np.array([3e6]))  # the coarse level comes in
DIRECTIONS = ("poissons_ratio", "plane_offset_m", "density_kg_m3", "mass_damping_per_s", "stiffness_damping_s")
INCOMPRESSIBLE = SOFT.replace(poissons_ratio=0.499)  # the pressures' preconditioner comes in
MATRIX = "conjugate_gradient_"
ALWAYS_DOUBLE = ("soft_depths", "soft_energies", "spread_columns", "sums")


def known_kernels() -> set[Kernel]:
    """All kernels of the .cu files, in the precisions in which the backend launches them."""
    out: set[Kernel] = set()
    for file in kernels.PARTS:
        text = (files("soft_estimator.backends.cuda") / f"{file}.cu").read_text(encoding="utf-8")
        for name in re.findall(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(", text):
            always_double = name in ALWAYS_DOUBLE or (file == "points" and name != "change_points")
            reals = ["float64"] if always_double else ["float32"] if name == "gather_double" else list(PRECISIONS)
            out |= {(file, name, real) for real in reals}
    return out


class Watched:
    """A kernel that notes that it was launched."""

    def __init__(self, function: Any, note: Callable[[], None]) -> None:
        self.__dict__.update(_function=function, _note=note)

    def __call__(self, *arguments: Any, **settings: Any) -> None:
        self._note()
        self._function(*arguments, **settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._function, name, value)


class WatchedModule:
    def __init__(self, module: Any, file: str, real: str, seen: dict[Kernel, int]) -> None:
        self.module, self.file, self.real, self.seen = module, file, real, seen

    def compile(self) -> None:
        self.module.compile()

    def get_function(self, name: str) -> Watched:
        key = (self.file, name, self.real)

        def note() -> None:
            self.seen[key] = self.seen.get(key, 0) + 1

        return Watched(self.module.get_function(name), note)


def watch_launches() -> dict[Kernel, int]:
    """How often each kernel is launched from now on; before the first one is loaded."""
    seen: dict[Kernel, int] = {}
    load = kernels._module

    def watched(file: str, real: str, *defines: str) -> WatchedModule:
        return WatchedModule(load(file, real, *defines), file, real, seen)

    vars(kernels).update(_module=watched)
    return seen


@contextmanager
def setting(module: Any, **values: Any) -> Iterator[None]:
    """Other constants of a module for a while, with solvers made anew."""
    before = {name: getattr(module, name) for name in values}
    linear._SOLVERS.clear()
    vars(module).update(values)
    yield
    vars(module).update(before)
    linear._SOLVERS.clear()


def main(precisions: Sequence[str] = ()) -> int:
    chosen = {name: PRECISIONS[name] for name in precisions or PRECISIONS}
    # Each array from the driver: within a pool's chunk, memcheck would see nothing of an index out of bounds.
    cupy.cuda.set_allocator(None)
    seen, backend = watch_launches(), load_cuda_backend()
    body = build_body(sample(Torus(0.08, 0.03, axis=(0.3, 1.0, 0.2)), 0.02))
    path = RigidPath(np.array([0.0, 0.1]), np.array([[0, 0, 0], [0.01, 0, 0]]), np.zeros((2, 3)))
    grip = FixedRegion(Box((0.04, 0.2, 0.2), (-0.1, 0.0, 0.0)), path=path)
    for precision, scheme in chosen.items():
        dtype, settings = np.dtype(precision).type, SolverSettings(1e-5, 500)
        law = ContactLaw(2e6, 800.0)
        model = build_model(body, scheme, fixed=[grip], contact=law, solver=settings, dtype=dtype)
        rubber = build_model(
            body, scheme, fixed=[grip], contact=law, solver=settings, dtype=dtype, material="neo_hookean"
        )
        free = build_model(body, scheme, solver=settings, dtype=dtype)
        rough, solids = replace(law, friction=0.4), things_to_touch()
        touching = build_model(body, scheme, contact=rough, solver=settings, dtype=dtype, obstacles=solids)
        weak = replace(grip, method="nitsche")
        states = loops(model, backend)
        loops(build_model(body, scheme, fixed=[weak], solver=settings, dtype=dtype), backend)
        loops(rubber, backend)
        look(model, states, backend)
        batch(model, 2, backend, MATRIX + "resident")
        batch(model, 5, backend, MATRIX + "cells")
        batch(free, 9, backend, MATRIX + "cells")
        batch(model, 33, backend, MATRIX + "cells")  # two launches
        batch(touching, 2, backend, MATRIX + "resident")
        single(touching, SOFT, backend, False)
        single(model, SOFT, backend, False)
        single(model, STIFF, backend, True)
        single(model, INCOMPRESSIBLE, backend, False, MATRIX + "resident_pressure")
        with setting(linear, _RESIDENT_SHARE=0.1, _LARGEST_ROOM=100):  # a part of the matrix in shared memory
            batch(model, 2, backend, MATRIX + "resident")
            single(model, STIFF, backend, True)
        with setting(linear, _RESIDENT_SHARE=1e9):
            batch(model, 2, backend, MATRIX + "streamed")
            single(model, STIFF, backend, True)
            single(model, INCOMPRESSIBLE, backend, False, MATRIX + "pressure")
        with setting(cells, LARGEST_SHARED=0):
            batch(model, 5, backend, MATRIX + "cells")
    return tell(seen, set(chosen))


def things_to_touch() -> list[ContactLaw]:
    """A rough obstacle of each kind around the ring, one of them led, one that may be turned."""
    path = PosePath(
        np.array([0.0, 0.1]), np.tile(np.eye(3), (2, 1, 1)), np.array([[-0.08, -0.05, 0], [-0.07, -0.05, 0]])
    )
    places = [
        SolidLaw(HalfSpace(), centre_m=np.array([0.0, 0.0, -0.11])),
        SolidLaw(Round((0.0, 0.0, 0.03), 0.02), path=path),
        SolidLaw(Round((0.02, 0.01, 0.03), 0.004), centre_m=np.array([0.0, -0.05, 0.08]), pivot_m=np.zeros(3)),
        SolidLaw(Field(sample(Sphere(0.03), 0.008, margin_cells=8)), centre_m=np.array([0.08, -0.06, 0.0])),
    ]
    return [ContactLaw(1e6, 800.0, obstacle=place, own=True, friction=0.3) for place in places]


def tell(seen: dict[Kernel, int], precisions: set[str]) -> int:
    every = known_kernels()
    known = {kernel for kernel in every if kernel[2] in precisions}
    for file in kernels.PARTS:
        names = sorted({name for f, name, _ in known if f == file})
        counts = ["/".join(str(seen.get((file, n, real), 0)) for real in PRECISIONS) for n in names]
        print(f"{file}: " + ", ".join(f"{n} {c}" for n, c in zip(names, counts)))
    missed, unknown = sorted(known - set(seen)), sorted(set(seen) - every)
    print(f"{len(known & set(seen))} of {len(known)} kernels launched (counts: float32/float64)")
    for title, some in (("not launched", missed), ("launched, but not expected", unknown)):
        if some:
            print(f"{title}: " + ", ".join(".".join(k) for k in some))
    return 1 if missed or unknown else 0


def sets(count: int) -> list[Parameters]:
    return [SOFT.replace(youngs_modulus_pa=SOFT.youngs_modulus_pa * f) for f in np.geomspace(0.7, 1.5, count)]


def batch(model: Model, systems: int, backend: Backend, kernel: str) -> None:
    """Two guarded steps of several systems and their gradients."""
    batch = FusedBatch(model, sets(systems), backend)
    plan = own_stepper(batch.stepper).solver.plan
    assert plan.function == kernel, (plan, kernel)
    roll = batch.roll(batch.initial(), 2)
    gradients, report = batch.roll_back(roll, lambda k: (roll.u[k], None, None))
    reports = np.concatenate([backend.to_host(x).reshape(-1, 3) for x in (roll.report, report)])
    assert (reports[:, 2] == 0).all() and np.isfinite(backend.to_host(roll.guard)).all()
    slope = gradients[0].youngs_modulus_pa[0]
    print(f"{systems} systems, {model.dtype.__name__}, {kernel}: {int(reports[:, 0].sum())} iterations, dE {slope:.3e}")


def single(
    model: Model, parameters: Parameters, backend: Backend, with_coarse_level: bool, pressures: str = ""
) -> None:
    """Steps and tangents of one system, with the coarse level or without, or with this kernel for pressures."""
    fused = FusedSimulation(model, parameters, backend)
    stepper = own_stepper(fused.batch.stepper)
    assert stepper.pressures is not None and stepper.pressures.used == bool(pressures)
    if pressures:
        assert stepper.pressures.solver.plan.function == pressures, stepper.pressures.solver.plan
    else:
        assert stepper.coarse is not None and stepper.coarse.used == with_coarse_level
    states, reports = fused.roll(fused.initial_state(), 2)
    columns = FusedTangent(fused, [ParameterGradient.unit(1, name) for name in DIRECTIONS])
    changes = columns.through(states, columns.initial())
    observe(model, states, changes, backend)
    levels = 2 if with_coarse_level else 1
    print(f"{model.dtype.__name__}, {levels} levels: {sum(r.iterations for r in reports)} iterations")


def loops(model: Model, backend: Backend) -> list[State]:
    """A step, its adjoint and its tangent loop by loop, and the energies; the states."""
    sim = Simulation(model, SOFT, backend)
    before = sim.initial_state()
    after, _, lin = sim.step_keeping(before)
    adjoint = Adjoint(sim)
    adjoint.step_back(before, after, adjoint.zero_state())
    tangent = Tangent(sim, [ParameterGradient.unit(1, name) for name in DIRECTIONS[:2]])
    tangent.step(before, after, lin, tangent.initial())
    assert np.isfinite(balance(sim, after).elastic_j)
    contact_loops(sim, after.u)
    return [before, after]


def contact_loops(sim: Simulation, u: Array) -> None:
    """The contact loops that a step asks for in one precision only, or not at all."""
    d, xp = sim.device, sim.xp
    depth, slope = (xp.empty(len(d.point_area)) for _ in range(2))
    place = xp.empty((len(depth), 3))
    d.backend.at_points(d.position + u, d.point_nodes, d.point_weight, place)
    distance = xp.ascontiguousarray(place[:, 1])
    d.backend.soft_depths(distance, 500.0, depth, slope)
    energy = xp.empty(len(distance))
    d.backend.soft_energies(distance, 500.0, energy)
    columns = xp.zeros((len(d.zero), 2))
    d.backend.spread_columns(xp.stack([depth, energy], axis=1), d.node_cells, d.point_start, d.point_weight, columns)
    assert bool(xp.isfinite(columns).all())
    assert np.isfinite(d.backend.sums([(columns, columns), (energy, None)])).all()


def points_of(model: Model, state: State, backend: Backend) -> np.ndarray:
    """Points near the surface of a state, and a few far off."""
    points = model.body.surface_positions_m(backend.to_host(state.u).astype(float))[::3]
    return np.concatenate([points + 0.004, points[:5] + 0.3])


def look(model: Model, states: list[State], backend: Backend) -> None:
    """Distances of points, one frame by itself."""
    points, u = points_of(model, states[1], backend), backend.to_host(states[1].u).astype(float)
    surface = CarriedSurface(carry_field(model.body), u, backend)
    assert np.isfinite(surface.measure(points, np.zeros(len(points))).value).all()


def observe(model: Model, states: list[State], changes: list[Changes], backend: Backend) -> None:
    """The point-cloud residual of two frames, its change and its pull-back."""
    field, frames = carry_field(model.body), []
    for k in (1, 2):
        points = points_of(model, states[k], backend)
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
    sys.exit(main(sys.argv[1:]))
