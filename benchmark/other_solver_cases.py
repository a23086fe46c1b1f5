"""The cases of `bench_other_solver.py`: what all draws of a case share, and the estimate of one draw."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from soft_estimator.estimation.fitting.discretisation import GRID, STEP, Refinement, without_discretisation_error
from soft_estimator.estimation.fitting.least_squares import LeastSquaresSettings, fit
from soft_estimator.estimation.fitting.uncertainty import posterior
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.estimation.runs import Run
from soft_estimator.estimation.variables import Variables, make_variables
from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

try:
    from reference_beam import DENSITY, LENGTH, THICKNESS, WIDTH, Beam, clamped_beam, released, set_off, shaken
except ModuleNotFoundError as missing:
    print(f"left out: no module {missing.name}; pip install -e '.[bench]'", file=sys.stderr)
    sys.exit(0)

YOUNG, POINTS, STEPS, FRAMES = 2e6, 3000, 100, 10
NAMES = ["youngs_modulus_pa", "poissons_ratio"]
GRAVITY = np.array([0.0, -0.8, 1.2])
SPIN = np.array([9.0, 0.0, 1.0])
SWING, TWIST, RATES = np.array([0.0, 4e-3, 0.0]), 0.08, (2 * np.pi * 2.5, 2 * np.pi * 15.0)


@dataclass(frozen=True)
class Case:
    """step_s: of our simulation. motion: u(t) of the reference, (T, n). gravity, spin: as our parameters have them."""

    step_s: float
    motion: Callable[[Beam, np.ndarray], np.ndarray]
    gravity_m_s2: np.ndarray
    spin_rad_s: np.ndarray
    base_moves: bool = False

    @property
    def times_s(self) -> np.ndarray:
        """Of the frames."""
        return self.step_s * np.linspace(STEPS / FRAMES, STEPS, FRAMES).round()


STILL = np.zeros(3)
CASES = {
    "released": Case(2e-3, lambda beam, t: released(beam, GRAVITY, t), GRAVITY, STILL),
    "shaken": Case(1.33e-3, lambda beam, t: shaken(beam, SWING, TWIST, RATES, t), STILL, STILL, True),
    "spun": Case(0.7e-3, lambda beam, t: set_off(beam, SPIN, t), STILL, SPIN),
}


@dataclass(frozen=True)
class Truth:
    """One case at one ν: what a draw of its noise needs, and where the folder keeps it for all of them."""

    folder: str
    name: str
    poissons_ratio: float
    cells: int

    @property
    def case(self) -> Case:
        return CASES[self.name]

    def file(self, part: str) -> Path:
        return Path(self.folder) / f"{self.name}_{self.poissons_ratio:g}_{part}.npy"

    @property
    def parameters(self) -> Parameters:
        case = self.case
        return Parameters(
            np.array([YOUNG]),
            self.poissons_ratio,
            DENSITY,
            gravity_m_s2=case.gravity_m_s2,
            angular_velocity_rad_s=case.spin_rad_s,
        )


def base_path(case: Case) -> RigidPath:
    """The base's motion at the steps of our simulation and half-way between them."""
    if not case.base_moves:
        return RigidPath()
    times = 0.5 * case.step_s * np.arange(2 * STEPS + 3)
    swing, twist = (0.5 * (1 - np.cos(rate * times))[:, None] for rate in RATES)
    return RigidPath(times, swing * SWING, twist * np.array([TWIST, 0.0, 0.0]))


@lru_cache(maxsize=4)
def our_beam(cells: int) -> tuple[Body, CarriedField]:
    body = build_body(sample(Box((LENGTH, THICKNESS, WIDTH)), THICKNESS / cells))
    return body, carry_field(body)


def model_of(case: Case, cells: int, step_s: float) -> Model:
    """Our beam of `cells` cells through the thickness."""
    root = Box((1e-6, 1.0, 1.0), (-LENGTH / 2, 0.0, 0.0))
    return build_model(
        our_beam(cells)[0],
        theta_scheme(step_s),
        fixed=[FixedRegion(root, "strong", base_path(case))],
        solver=SolverSettings(1e-6, 5000),
    )


def problem_of(truth: Truth, frames: list[ObservedFrame], *, searched: bool) -> Problem:
    """Our beam with E and ν to be found; unless it is to be searched in full, from motions simulated beforehand."""
    true, model = truth.parameters, model_of(truth.case, truth.cells, truth.case.step_s)
    guess = true.replace(youngs_modulus_pa=np.array([1.1 * YOUNG]), poissons_ratio=truth.poissons_ratio - 0.05)
    variables, field = make_variables(guess, NAMES), our_beam(truth.cells)[1]
    if searched:
        return Problem(model, variables, frames, field=field)
    return KnownMotion(model, variables, frames, truth, field)


@dataclass
class Seen:
    """A motion looked at: as `Run`, without a gradient, which least squares do not ask for."""

    residuals: list[np.ndarray]
    jacobian: np.ndarray | None
    far: int

    def gradient(self, residual_bar: np.ndarray) -> list[ParameterGradient]:
        raise NotImplementedError("a known motion has no adjoint")


class KnownMotion(Problem):
    """Our motions at the truth and with two other values of ν, and their change with E: u(θ) is a parabola through the
    three in θ_ν, linear in θ_E.

    Distances are taken from the surface so moved, not made linear. All draws of a case share the simulations.
    """

    def __init__(
        self, model: Model, variables: Variables, frames: list[ObservedFrame], truth: Truth, field: CarriedField
    ) -> None:
        super().__init__(model, variables, frames, field=field)
        self.motions = np.stack([prepared(truth.file(part)) for part in AROUND])
        self.slopes = np.stack([prepared(truth.file(f"{part}_slope")) for part in AROUND])
        self.true = make_variables(truth.parameters, NAMES).start()

    def run(self, theta: np.ndarray, frames: list[Any], *, jacobian: bool) -> Run:
        by_e, by_nu = theta - self.true
        share, slope = parabola(by_nu / ASIDE)
        at_nu = self.motions + by_e * self.slopes
        u, du = np.tensordot(share, at_nu, 1), np.tensordot(share, self.slopes, 1)
        changes = np.stack([du, np.tensordot(slope / ASIDE, at_nu, 1)], axis=-1)
        seen = [point_residuals(self.model.body, self.field, f, x) for f, x in zip(frames, u, strict=True)]
        rows = [at.changes(c) / f.std_m[:, None] for at, c, f in zip(seen, changes, frames, strict=True)]
        whitened = [at.value_m / frame.std_m for at, frame in zip(seen, frames, strict=True)]
        return Seen(whitened, np.concatenate(rows) if jacobian else None, sum(int(at.far.sum()) for at in seen))


def parabola(x: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares, and their slopes, of the values at 0, -1 and 1 in that of the parabola through them at x, (3,) each."""
    return np.array([1 - x * x, 0.5 * x * (x - 1), 0.5 * x * (x + 1)]), np.array([-2 * x, x - 0.5, x + 0.5])


# What all draws of a case share, each part (resolution, steps a step) a task of its own.
REFINED = {"coarse": (1, 1), "finer": (2, 1), "shorter": (1, 2)}
# Motions on our own grid, and how far their ν is from the truth in θ: .24 and .36 about ν = .3, .42 and .47 about .45.
ASIDE = 0.5
AROUND = {"coarse": 0.0, "less": -ASIDE, "more": ASIDE}


def prepare(item: tuple[tuple[Truth, ...], str]) -> float:
    """Write a part of what all draws share; the seconds it took.

    "reference": of several cases with one beam, the other solver's points, their normals (world frame, (T, P, 3) each)
    and areas; else one of REFINED or AROUND: u of our own simulation at the truth, or with another ν, in all frames,
    (T, N, 3), and of those AROUND it their slopes by θ_E, (T, N, 3), too.
    """
    truths, part = item
    clock = perf_counter()
    if part == "reference":
        beam = clamped_beam(YOUNG, truths[0].poissons_ratio)
        for truth in truths:
            write_reference(truth, beam)
    else:
        write_motion(truths[0], part)
    return perf_counter() - clock


def write_reference(truth: Truth, beam: Beam) -> None:
    case, path = truth.case, base_path(truth.case)
    body_frame = beam.points_m + beam.at_points(case.motion(beam, case.times_s))
    posed = [path.at(time) for time in case.times_s]
    points = np.stack([at @ turn.T + shift for at, (turn, shift) in zip(body_frame, posed, strict=True)])
    np.save(truth.file("points"), points)
    np.save(truth.file("normals"), np.stack([beam.normals @ turn.T for turn, _ in posed]))
    np.save(truth.file("areas"), beam.area_m2)


def write_motion(truth: Truth, part: str) -> None:
    case, (finer, shorter) = truth.case, REFINED.get(part, (1, 1))
    variables = make_variables(truth.parameters, NAMES)
    theta = variables.start() + np.array([0.0, AROUND.get(part, 0.0)])
    model = model_of(case, finer * truth.cells, case.step_s / shorter)
    simulation = Simulation(model, variables.parameters(theta))
    tangent = Tangent(simulation, variables.directions(theta)[:1]) if part in AROUND else None
    state, motion, slopes = simulation.initial_state(), [], []
    changes = None if tangent is None else tangent.initial()
    for step in range(1, shorter * STEPS + 1):
        after, _, linearised = simulation.step_keeping(state)
        if tangent is not None and changes is not None:
            changes = tangent.step(state, after, linearised, changes)[0]
        state = after
        if step % (shorter * STEPS // FRAMES) == 0:
            motion.append(state.u)
            if changes is not None:
                slopes.append(changes.u[:, :, 0])
    np.save(truth.file(part), np.stack(motion))
    if slopes:
        np.save(truth.file(f"{part}_slope"), np.stack(slopes))


@lru_cache(maxsize=12)
def prepared(file: Path) -> np.ndarray:
    return np.load(file)


def frames_of(truth: Truth, noise_m: float, seed: int) -> list[ObservedFrame]:
    """Noisy clouds of the reference's surface."""
    rng, out = np.random.default_rng(seed), []
    points, normals, areas = (prepared(truth.file(part)) for part in ("points", "normals", "areas"))
    full = np.full(POINTS, noise_m)
    for time, at, normal in zip(truth.case.times_s, points, normals, strict=True):
        chosen = rng.choice(len(at), POINTS, replace=False, p=areas / areas.sum())
        noisy = at[chosen] + noise_m * rng.normal(size=(POINTS, 1)) * normal[chosen]
        out.append(ObservedFrame(float(time), noisy, full, np.zeros(POINTS), normal[chosen]))
    return out


def residuals_of(truth: Truth, part: str, frames: list[ObservedFrame]) -> np.ndarray:
    """Whitened distances of the frames' points from our simulation at the truth, (n,)."""
    body, field = our_beam(REFINED[part][0] * truth.cells)
    motion = prepared(truth.file(part))
    each = [point_residuals(body, field, f, u).value_m / f.std_m for f, u in zip(frames, motion, strict=True)]
    return np.concatenate(each)


@dataclass(frozen=True)
class Answer:
    """Of one draw: values of E and ν, their stated deviations and intervals (2,) each, the values with the errors of
    grid and step in them, the mean squared whitened residual, simulations with tangents and seconds it took."""

    value: list[float]
    std: list[float]
    low: list[float]
    high: list[float]
    uncorrected: list[float]
    misfit: float
    simulations: int
    seconds: float


def trial(item: tuple[Truth, float, int, bool]) -> Answer:
    """One draw of the noise, estimated; with the whole search where that is asked for."""
    truth, noise_m, seed, searched = item
    clock, frames = perf_counter(), frames_of(truth, noise_m, seed)
    problem = problem_of(truth, frames, searched=searched)
    start = make_variables(truth.parameters, NAMES).start()
    found = fit(problem, start, windows=[FRAMES], settings=LeastSquaresSettings(step_tolerance=1e-3))
    around, here = posterior(problem, found.evaluation), residuals_of(truth, "coarse", frames)
    refinements = [
        Refinement.halved(source, 2, found.evaluation.residual + residuals_of(truth, part, frames) - here)
        for source, part in ((STEP, "shorter"), (GRID, "finer"))
    ]
    answer = without_discretisation_error(problem, found.evaluation, around, refinements).estimates
    return Answer(
        value=[e.value for e in answer],
        std=[e.std for e in answer],
        low=[e.low for e in answer],
        high=[e.high for e in answer],
        uncorrected=[e.value for e in around.estimates],
        misfit=float((found.evaluation.residual**2).mean()),
        simulations=problem.simulations,
        seconds=perf_counter() - clock,
    )


def compile_loops() -> None:
    """Run every loop once, on a small beam, so that no worker has to compile it."""
    truth = Truth("", "released", 0.3, 2)
    vertices = our_beam(2)[0].surface_positions_m()
    frame = ObservedFrame.of(truth.case.step_s, vertices, 1e-3)
    frames = [frame, replace(frame, along=np.tile([0.0, 1.0, 0.0], (len(vertices), 1)))]
    problem_of(truth, frames, searched=True).evaluate(make_variables(truth.parameters, NAMES).start(), jacobian=True)
