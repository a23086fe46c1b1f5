"""What follows the search of an estimate, and may be ended as the search may: points that the grid does not resolve,
where it was led astray, how far the motion can be foretold, the pose, other stiffnesses, step and grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from soft_estimator.config_estimation import EstimateConfig
from soft_estimator.estimation.fitting.clock import with_sag_and_swing
from soft_estimator.estimation.fitting.discretisation import (
    on_half_the_spacing,
    with_half_the_step,
    with_longer_clamps,
    without_discretisation_error,
)
from soft_estimator.estimation.fitting.horizon import horizon_s
from soft_estimator.estimation.fitting.least_squares import Fit, LeastSquaresSettings, fit
from soft_estimator.estimation.fitting.one_by_one import is_astray, search_one_by_one
from soft_estimator.estimation.fitting.rivals import Rival, rivals_of
from soft_estimator.estimation.fitting.uncertainty import Posterior
from soft_estimator.estimation.held_pose import with_wider_pose
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.sharp_edges import without_sharp_edges
from soft_estimator.recordings.observed_frames import FrameSet, SetAside
from soft_estimator.scene.clamps import clamp_share, with_next_nodes_held
from soft_estimator.scene.finer import on_finer_grid
from soft_estimator.scene.scene import Scene
from soft_estimator.studies.estimate_setup import Progress, on_scene

MOST_CUTS = 3  # a better fit may not be foretold as far
LEAST_SHARE = 0.02  # of a cell: clamps that end so near to their nodes end there
BEYOND = "beyond what can be foretold of so soft a body's motion"


@dataclass(frozen=True)
class Found:
    """A fit, the problem and the frames that it is of, and the minima beside it that fit about as well."""

    problem: Problem
    best: Fit
    frames: FrameSet
    rivals: tuple[Rival, ...] = ()


def refined(
    found: Found, config: EstimateConfig, check: Callable[[], None], progress: Progress | None
) -> Iterator[Found]:
    """The fit after each part of what follows a search.

    check: called between simulations, raises where there is no time for another.
    """
    again = _Again(LeastSquaresSettings(max_iterations=config.max_iterations), check)
    parts: list[tuple[str, Callable[[Found], Found]]] = [
        ("points at edges", again.between_edges),
        ("whether it was led astray", again.not_astray),
        *MOST_CUTS * [("how far the motion can be foretold", again.within_the_horizon)],
        ("the pose", again.with_pose),
        ("other stiffnesses", again.with_rivals),
    ]
    for k, (what, part) in enumerate(parts):
        if progress is not None:
            progress("looking again", k, len(parts), what)
        found = part(found)
        yield found


def of_other_steps(
    scene: Scene, found: Found, around: Posterior, check: Callable[[], None], progress: Progress | None
) -> Posterior:
    """The posterior without what the scene's step and grid do to it; of the grid where a finer one is not too large."""
    config, problem, at = scene.config.estimate, found.problem, found.best.evaluation
    if config is None or config.grid_error_nodes == 0 or at.jacobian is None:
        return around
    # A grid of half the spacing has about eight times the nodes.
    parts = 2 if 8 * scene.body.node_count <= config.grid_error_nodes else 1
    if progress is not None:
        progress("refining", 0, parts, "what the step does to the answer")
    refinements = [with_half_the_step(problem, at)]
    share = clamp_share(scene)
    if share > LEAST_SHARE:
        check()
        longer = on_scene(with_next_nodes_held(scene), problem)
        refinements.append(with_longer_clamps(longer, at, share))
    if parts == 2:
        check()
        if progress is not None:
            progress("refining", 1, parts, "what the grid does to the answer")
        refinements.append(on_half_the_spacing(on_scene(on_finer_grid(scene), problem), at))
    around = without_discretisation_error(problem, at, around, refinements)
    return with_sag_and_swing(problem, at, around, [r.whole_change(at) for r in refinements])


@dataclass(frozen=True)
class _Again:
    """Fits gone on with, of problems that have changed a little."""

    settings: LeastSquaresSettings
    check: Callable[[], None]

    def __call__(self, problem: Problem, best: Fit) -> Fit:
        again = fit(
            problem,
            best.theta,
            windows=[len(problem.frames)],
            settings=self.settings,
            guess=problem.variables.start(),
            progress=lambda *_: self.check(),
        )
        return replace(again, history=[*best.history, *again.history])

    def between_edges(self, found: Found) -> Found:
        """The fit of a held body without the points at edges that its grid does not resolve."""
        smooth = without_sharp_edges(found.problem, found.best.theta)
        return found if smooth is found.problem else replace(found, problem=smooth, best=self(smooth, found.best))

    def not_astray(self, found: Found) -> Found:
        """The fit of a search that was led astray made anew, frame by frame; frames that it does not foretell are set
        aside."""
        problem, best = found.problem, found.best
        if best.evaluation.jacobian is None or not is_astray(problem, best.evaluation):
            return found
        anew = search_one_by_one(problem, best.theta, self.check)
        if anew is None:
            return found
        anew, count = replace(anew, history=[*best.history, *anew.history]), int(anew.evaluation.frame.max()) + 1
        if count < len(problem.frames):
            return replace(_before(found, problem.frames[count].time_s), best=anew)
        return replace(found, best=min(best, anew, key=lambda one: one.evaluation.cost))

    def within_the_horizon(self, found: Found) -> Found:
        """The fit of the frames up to where the motion can be foretold; later ones are set aside."""
        at = found.best.evaluation
        until_s = None if at.jacobian is None else horizon_s(found.problem, at)
        if until_s is None:
            return found
        cut = _before(found, until_s)
        return replace(cut, best=self(cut.problem, found.best))

    def with_pose(self, found: Found) -> Found:
        """The fit of a held body whose pose turned out further off than stated, without the pull of that statement."""
        wider = with_wider_pose(found.problem.variables, found.best.theta)
        if wider is None:
            return found
        problem = found.problem.with_variables(wider)
        return replace(found, problem=problem, best=self(problem, found.best))

    def with_rivals(self, found: Found) -> Found:
        """The likelier of the minima beside a fit, and the others."""
        best, rivals = rivals_of(found.problem, found.best, self.settings)
        return replace(found, best=best, rivals=rivals)


def _before(found: Found, time_s: float) -> Found:
    """The problem of the frames before a time; later ones are set aside."""
    problem, frames = found.problem, found.frames
    kept = [k for k, frame in enumerate(frames.frames) if frame.time_s < time_s]
    late = [SetAside(frames.names[k], f.time_s, BEYOND) for k, f in enumerate(frames.frames) if k not in kept]
    frames = replace(
        frames,
        frames=tuple(frames.frames[k] for k in kept),
        names=tuple(frames.names[k] for k in kept),
        set_aside=(*frames.set_aside, *late),
    )
    problem = problem.with_frames([frame for frame in problem.frames if frame.time_s < time_s])
    return replace(found, problem=problem, frames=frames)
