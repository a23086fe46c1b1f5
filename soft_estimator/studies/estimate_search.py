"""The search of an estimate: from all starts, in the way that the scene names, kept as it goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from soft_estimator.config_estimation import EstimateConfig
from soft_estimator.estimation.fitting.descent import fit_barzilai_borwein, fit_lbfgs, random_starts
from soft_estimator.estimation.fitting.least_squares import Fit, LeastSquaresSettings, fit, growing_windows
from soft_estimator.estimation.fitting.modal_start import RIGID_FRAMES, is_thrown, rigid_start
from soft_estimator.estimation.fitting.uncertainty import Posterior
from soft_estimator.estimation.fitting.whole_clouds import CloudAnswer, fit_clouds
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.solver import SolverError
from soft_estimator.scene.variables import shown_labels
from soft_estimator.studies.estimate_keeping import Keeper, KeptStart
from soft_estimator.studies.estimate_setup import Progress

WHOLE_CLOUDS = "whole_clouds"  # the method where isotropic noise is too wide for distances, whatever the scene names
INTERRUPTED = "interrupted"  # begins the reason of a fit that was ended before its time

T = TypeVar("T")


def fit_all(
    problem: Problem, config: EstimateConfig, progress: Progress | None = None, keeper: Keeper | None = None
) -> tuple[Fit, list[Fit]]:
    """Fit distances from the guess and from random starts around it: the best fit and all of them."""
    keeper = keeper or Keeper()

    def one(k: int, theta: np.ndarray) -> Fit:
        kept = keeper.starts[k] if k < len(keeper.starts) else None
        if kept is not None and kept.reason:  # it had ended before the search was interrupted
            theta = np.array(kept.theta)
            found = problem.evaluate(theta, jacobian=True)
            history = [_entry(found, len(problem.frames))]
            return Fit(found, kept.reason, kept.steps, history, kept.reached_limit)
        report = _Reporter(problem, config.method, config, k, progress, keeper)
        return _fit_one(problem, config, theta, report, kept)

    fits = _from_all_starts(problem, config, one, lambda fit: fit, keeper)
    return min(fits, key=lambda f: f.evaluation.cost), fits


def fit_wide(
    problem: Problem, config: EstimateConfig, progress: Progress | None = None, keeper: Keeper | None = None
) -> tuple[Fit, list[Fit], Posterior]:
    """The same for clouds as a whole, with the posterior of the most likely one; see `whole_clouds`. A search that is
    interrupted begins anew."""
    keeper = keeper or Keeper()

    def one(k: int, theta: np.ndarray) -> CloudAnswer:
        tell = _Reporter(problem, WHOLE_CLOUDS, config, k, progress, Keeper()).tell
        return fit_clouds(problem, theta, tell, config.max_iterations)

    answers = _from_all_starts(problem, config, one, lambda answer: answer.fit, keeper)
    best = max(answers, key=lambda a: a.likelihood)
    return best.fit, [a.fit for a in answers], best.posterior


def _from_all_starts(
    problem: Problem,
    config: EstimateConfig,
    fit_one: Callable[[int, np.ndarray], T],
    fit_of: Callable[[T], Fit],
    keeper: Keeper,
) -> list[T]:
    starts = [problem.variables.start(), *random_starts(problem, config.starts - 1, config.seed)]
    fits: list[T] = []
    failure = None
    for k, theta in enumerate(starts):
        try:
            fits.append(fit_one(k, theta))
        except SolverError as error:  # a wild start may not be simulable; the others go on
            failure = error
            continue
        ended = fit_of(fits[-1])
        keeper.ended(k, ended.reason, ended.reached_limit)
    if not fits:
        raise failure or SolverError("no start could be simulated; give a better guess")
    return fits


def best_so_far(problem: Problem, keeper: Keeper, why: str) -> Fit | None:
    """The best of what an interrupted search has, over all frames; None where it has nothing."""
    known = [kept for kept in keeper.starts if np.isfinite(kept.cost)]
    if not known:
        return None
    # Costs of fewer frames are no measure; the start that got furthest is.
    best = max(known, key=lambda kept: (bool(kept.reason), kept.frames, -kept.cost))
    found = problem.evaluate(np.array(best.theta), jacobian=True)
    reason = f"{INTERRUPTED} ({why}) with {best.frames} of {len(problem.frames)} frames fitted"
    return Fit(found, reason, best.steps, [_entry(found, len(problem.frames))])


def _entry(found: Evaluation, frames: int) -> dict[str, Any]:
    return {"frames": frames, "cost": found.cost, "theta": found.theta.copy()}


def _fit_one(
    problem: Problem, config: EstimateConfig, guess: np.ndarray, report: _Reporter, kept: KeptStart | None
) -> Fit:
    theta = guess if kept is None else np.array(kept.theta)
    limit: dict[str, Any] = {"max_iterations": config.max_iterations, "progress": report}
    if config.method == "lbfgs":
        return fit_lbfgs(problem, theta, **limit)
    if config.method == "barzilai_borwein":
        return fit_barzilai_borwein(problem, theta, **limit)
    settings = LeastSquaresSettings(max_iterations=config.max_iterations)
    first = 1
    if kept is not None:
        first = kept.frames
    elif is_thrown(problem):
        theta, first = rigid_start(problem, theta), min(RIGID_FRAMES, len(problem.frames))
    windows = [count for count in growing_windows(len(problem.frames)) if count >= first]
    return fit(problem, theta, windows=windows, settings=settings, progress=report, guess=guess)


class _Reporter:
    """Tells and keeps the progress of one start: the window's place for methods that grow it, else iterations."""

    def __init__(
        self,
        problem: Problem,
        method: str,
        config: EstimateConfig,
        start: int,
        progress: Progress | None,
        keeper: Keeper,
    ) -> None:
        self.problem, self.progress, self.start, self.starts = problem, progress, start, config.starts
        self.keeper = keeper
        grows = method in ("levenberg_marquardt", WHOLE_CLOUDS)
        self.windows = growing_windows(len(problem.frames)) if grows else None
        self.length = len(self.windows) if self.windows else config.max_iterations

    def __call__(self, iteration: int, frames: int, evaluation: Evaluation) -> None:
        done = self.windows.index(frames) if self.windows else min(iteration, self.length)
        self._report(done, f"cost {evaluation.cost:.4g}", evaluation.theta)
        values = dict(
            zip(shown_labels(self.problem.variables), self.problem.variables.natural(evaluation.theta).tolist())
        )
        self.keeper.note(self.start, evaluation.theta, frames, evaluation.cost, values)

    def tell(self, frames: int, theta: np.ndarray, likelihood: float) -> None:
        """The same for clouds as a whole, which are not kept."""
        self._report(self.windows.index(frames) if self.windows else 0, f"log-likelihood {likelihood:.1f}", theta)

    def _report(self, done: int, note: str, theta: np.ndarray) -> None:
        if self.progress is not None:
            note = f"{note}, " + describe_values(self.problem.variables, theta)
            self.progress("fitting", self.start * self.length + done, self.starts * self.length, note)


def describe_values(variables: Variables, theta: np.ndarray) -> str:
    """ "youngs_modulus_pa 2013, poissons_ratio 0.301" """
    return ", ".join(f"{name} {value:.4g}" for name, value in zip(shown_labels(variables), variables.natural(theta)))


__all__ = ["INTERRUPTED", "WHOLE_CLOUDS", "best_so_far", "fit_all", "fit_wide"]
