"""What outlasts an episode of frames: knowledge of the material, of the plane, and of the surface's offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from soft_estimator.estimation.fitting.parameter_posterior import ParameterPosterior
from soft_estimator.estimation.variables import Variables, make_variables
from soft_estimator.estimation.window.arrival import Knowledge, inverse_of
from soft_estimator.estimation.window.window_fit import Answer
from soft_estimator.physics.parameters import Parameters

PLANE = ("plane_normal", "plane_offset_m")


@dataclass(frozen=True, eq=False)
class Learnt:
    """Knowledge of the lasting variables, and the information of all data in it, (P, P)."""

    knowledge: Knowledge
    information: np.ndarray


@dataclass(frozen=True)
class SeenPlane:
    """A plane n·x + d = 0 as a camera sees it, and how much it may be off."""

    normal: np.ndarray
    offset_m: float
    tilt_std_rad: float
    offset_std_m: float

    def repeats(self, other: SeenPlane | None) -> bool:
        """Whether it is another one within its deviations."""
        if other is None:
            return False
        turned = float(np.linalg.norm(self.normal - other.normal))
        return turned < self.tilt_std_rad and abs(self.offset_m - other.offset_m) < self.offset_std_m


class Lasting:
    """The lasting variables: material and plane, then the offset of the surface from its model.

    A sensor's bias and the shape's error stay the same from episode to episode, so their offset is carried along: no
    number of episodes averages it out.

    Args:
        reference: first guesses, and everything that is not estimated. names: parameters to estimate.
        prior_std: of the variables, instead of the usual ones. offset_std_m: of the offset before any frame.
        beside: more parameters that were not asked for: the pose of a held body, which its clamp keeps.
    """

    def __init__(
        self,
        reference: Parameters,
        names: list[str],
        prior_std: dict[str, float],
        offset_std_m: float,
        beside: Sequence[str] = (),
    ) -> None:
        self.reference, self.names, self.prior_std, self.offset_std_m = reference, names, prior_std, offset_std_m
        self.beside = tuple(beside)
        self.fixed = 0  # how many numbers that may be wrong are held fixed
        self._plane: SeenPlane | None = None  # the newest one
        self._waiting = False  # whether it waits for the next episode
        self.variables: Variables = make_variables(reference, names, prior_std, self.beside)
        self.forget()

    def hold_fixed(self, count: int) -> None:
        """So many numbers that may be wrong are held fixed: knowledge then says how it depends on them. Forgets."""
        self.fixed = count
        self.forget()

    def forget(self) -> None:
        """Back to the prior."""
        count = len(self.variables)
        self.learnt = Learnt(self._prior(), np.zeros((count, count)))
        self.touched = False

    def _prior(self) -> Knowledge:
        v = self.variables
        std = np.append(v.prior_std, self.offset_std_m)
        return Knowledge(np.append(v.prior_mean, 0.0), np.diag(std**-2.0), np.zeros((len(std), self.fixed)))

    @property
    def has_plane(self) -> bool:
        return self._plane is not None

    def note_plane(self, plane: SeenPlane) -> bool:
        """Take note of a plane for the next episode: whether it is another one; the same once more changes nothing."""
        other = not plane.repeats(self._plane)
        if other:
            self._plane, self._waiting = plane, True
        return other

    def begin_episode(self) -> None:
        """Take over a plane that was seen since the last start. Its normal's variables are steps from the plane they
        were made for: knowledge of the old ones means nothing for the new."""
        if self._plane is None or not self._waiting:
            return
        plane, before = self._plane, self.learnt
        planes = np.array([v.name in PLANE for v in self.variables.variables])
        self.reference = self.reference.replace(plane_normal=plane.normal, plane_offset_m=plane.offset_m)
        self.prior_std = {**self.prior_std, "plane_normal": plane.tilt_std_rad, "plane_offset_m": plane.offset_std_m}
        self.variables = make_variables(self.reference, self.names, self.prior_std, self.beside)
        fresh, others = self._prior(), np.flatnonzero(~np.append(planes, False))
        kept = before.knowledge.of(others)
        fresh.mean[others], fresh.by_fixed[others] = kept.mean, kept.by_fixed
        fresh.information[np.ix_(others, others)] = kept.information
        information = before.information.copy()
        information[planes, :] = information[:, planes] = 0.0
        self.learnt, self._waiting = Learnt(fresh, information), False

    def prior_of(self, variables: Variables) -> Knowledge:
        """Knowledge of an episode's variables, the lasting ones first, and of the offset, before its first frame."""
        mean = np.append(variables.prior_mean, 0.0)
        information = np.diag(np.append(variables.prior_std, 1.0) ** -2.0)
        lasting, by_fixed = self.places(len(mean)), np.zeros((len(mean), self.fixed))
        mean[lasting], by_fixed[lasting] = self.learnt.knowledge.mean, self.learnt.knowledge.by_fixed
        information[np.ix_(lasting, lasting)] = self.learnt.knowledge.information
        return Knowledge(mean, information, by_fixed)

    def same_plane(self, reference: Parameters) -> bool:
        """Whether variables around another reference count from the same plane as these."""
        own = self.reference
        return bool(
            np.array_equal(own.plane_normal, reference.plane_normal) and own.plane_offset_m == reference.plane_offset_m
        )

    @property
    def begun(self) -> bool:
        """Whether any frame has told anything yet."""
        return bool(self.learnt.information.any())

    def asked_for(self, theta: np.ndarray, covariance: np.ndarray) -> ParameterPosterior:
        """What is known of the variables that were asked for, around the others where they are found: θ (P,) and its
        covariance (P, P) are of all."""
        chosen = self.chosen
        if len(chosen) == len(self.variables):
            return ParameterPosterior(self.variables, theta, covariance)
        found = self.variables.parameters(theta)
        reference = self.variables.reference.replace(**{name: getattr(found, name) for name in self.beside})
        asked = Variables(reference, [self.variables.variables[j] for j in chosen])
        return ParameterPosterior(asked, theta[chosen], covariance[np.ix_(chosen, chosen)])

    @property
    def chosen(self) -> list[int]:
        """Which of the variables were asked for."""
        return [j for j, v in enumerate(self.variables.variables) if not v.beside]

    def places(self, total: int) -> np.ndarray:
        """Which of an episode's variables and offset are the lasting ones."""
        return np.append(np.arange(len(self.variables)), total - 1)

    def of_answer(self, answer: Answer, more_variance: np.ndarray) -> Learnt:
        """What an episode's answer says of the lasting variables; more_variance: of what it must not claim, (P,)."""
        chosen, count = self.places(len(answer.z)), len(self.variables)
        covariance = answer.covariance[np.ix_(chosen, chosen)]
        covariance[:count, :count] += np.diag(more_variance)
        knowledge = Knowledge(answer.z[chosen], inverse_of(covariance), answer.by_fixed[chosen])
        return Learnt(knowledge, answer.information[:count, :count])
