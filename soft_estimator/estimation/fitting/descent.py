"""Minimisers that need the adjoint gradient only: L-BFGS-B and Barzilai-Borwein; and several starts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from soft_estimator.estimation.fitting.gauss_newton import limit_reason
from soft_estimator.estimation.fitting.least_squares import Fit, LeastSquaresSettings, Progress, fit
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.physics.solver import SolverError

_BOUND_STDS = 6.0  # of the prior: beyond that a guess is a mistake, and the simulation may not bear it
# Barzilai-Borwein: the first step moves no variable by more than a tenth. The method is not monotone, which is how it
# gets along narrow valleys; a step must fall below the worst of the last few costs, or is cut to a quarter (Grippo's
# line search, as Raydan took it in 1997). Without that it went in circles where residuals pull with constant force.
_FIRST_STEP, _LAST_COSTS, _LEAST_FALL, _CUT, _MOST_CUTS = 0.1, 5, 1e-4, 0.25, 30
_LONGEST = 1.0  # step of any variable
_LBFGS_AT_LIMIT = 1  # SciPy's status of a search that was given no more iterations
# Where points change cells the cost has small steps, worth up to this part of it.
_CELL_STEPS = 1e-3


def fit_lbfgs(
    problem: Problem, theta: np.ndarray, *, max_iterations: int = 100, progress: Progress | None = None
) -> Fit:
    """SciPy's L-BFGS-B on the cost over all frames, within six prior standard deviations of the prior."""
    from scipy.optimize import minimize  # a fifth of a second that most estimates do not need

    v = problem.variables
    history: list[dict] = []
    found: list[Evaluation] = []  # each better than the one before
    failure: list[SolverError] = []

    def cost(at: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            evaluation = problem.evaluate(at, gradient=True)
        except SolverError as error:
            failure.append(error)
            return 1e300, np.zeros_like(at)
        history.append({"frames": len(problem.frames), "cost": evaluation.cost, "theta": at.copy()})
        if not found or evaluation.cost < found[-1].cost:
            found.append(evaluation)
        if progress:
            progress(len(history), len(problem.frames), evaluation)
        return evaluation.cost, evaluation.known_gradient

    bounds = list(zip(v.prior_mean - _BOUND_STDS * v.prior_std, v.prior_mean + _BOUND_STDS * v.prior_std))
    result = minimize(cost, theta, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": max_iterations})
    if not found:
        raise SolverError(f"no step of L-BFGS could be simulated, not even the first guess: {failure[-1]}")
    limit = result.status == _LBFGS_AT_LIMIT
    reason = limit_reason(max_iterations) if limit else str(result.message)
    return Fit(found[-1], reason, int(result.nit), history, reached_limit=limit)


def fit_barzilai_borwein(
    problem: Problem,
    theta: np.ndarray,
    *,
    max_iterations: int = 100,
    gradient_tolerance: float = 1e-6,
    progress: Progress | None = None,
) -> Fit:
    """Gradient descent with Barzilai-Borwein steps, each below the worst of the last few costs."""
    current = problem.evaluate(theta, gradient=True)
    first = current
    history: list[dict] = []
    best = current
    rate = _FIRST_STEP / max(np.abs(current.known_gradient).max(), 1e-300)
    reason = ""  # it stays so where the limit ends it
    for iteration in range(1, max_iterations + 1):
        history.append({"frames": len(problem.frames), "cost": current.cost, "theta": current.theta.copy()})
        if progress:
            progress(iteration, len(problem.frames), current)
        if np.abs(current.known_gradient).max() <= gradient_tolerance * max(np.abs(first.known_gradient).max(), 1e-300):
            reason = f"gradient below {gradient_tolerance:g} of the first one"
            # An iterate that fell into a small step of the cost is no better.
            best = current if current.cost <= (1 + _CELL_STEPS) * best.cost else best
            break
        worst = max(h["cost"] for h in history[-_LAST_COSTS:])
        trial, rate = _safe_step(problem, current, rate, worst)
        if trial is None:
            reason = "no further decrease"
            break
        step, change = trial.theta - current.theta, trial.known_gradient - current.known_gradient
        curvature = float(step @ change)
        rate = float(step @ step) / curvature if curvature > 0 else 2 * rate
        current = trial
        best = current if current.cost < best.cost else best
    return Fit(best, reason or limit_reason(max_iterations), len(history), history, reached_limit=not reason)


def _safe_step(problem: Problem, current: Evaluation, rate: float, worst: float) -> tuple[Evaluation | None, float]:
    for _ in range(_MOST_CUTS):
        step = np.clip(-rate * current.known_gradient, -_LONGEST, _LONGEST)
        try:
            trial = problem.evaluate(current.theta + step, gradient=True)
        except SolverError:
            trial = None
        if trial is not None and trial.cost <= worst + _LEAST_FALL * float(step @ current.known_gradient):
            return trial, rate
        rate *= _CUT
    return None, rate


def fit_from_several_starts(
    problem: Problem,
    starts: list[np.ndarray],
    *,
    settings: LeastSquaresSettings | None = None,
    progress: Callable[[int, Fit], None] | None = None,
) -> tuple[Fit, list[Fit]]:
    """Levenberg-Marquardt from every start: the best fit, and all of them."""
    fits = []
    for k, theta in enumerate(starts):
        fits.append(fit(problem, theta, settings=settings))
        if progress:
            progress(k, fits[-1])
    return min(fits, key=lambda f: f.evaluation.cost), fits


def random_starts(problem: Problem, count: int, seed: int, factor: float = 10.0) -> list[np.ndarray]:
    """Starts around the prior: Young's modulus within `factor` either way, the rest half a prior deviation."""
    v, rng = problem.variables, np.random.default_rng(seed)
    spread = [np.log(factor) if x.name == "youngs_modulus_pa" else 0.5 * x.prior_std for x in v.variables]
    return [v.prior_mean + rng.uniform(-1, 1, len(v)) * spread for _ in range(count)]
