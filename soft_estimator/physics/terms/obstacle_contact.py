"""Contact with an obstacle of any shape: the plane's law (`terms.contact`) on the few points that are near it.

A point feels k A (s + σ gap) n with the smooth depth s, its slope σ and the normal n of the place x̃ that the guess
leads to, gap = c_k n·(guess - Δu): the Newton step from there, but for the turning of curved normals. Extrapolated
contact takes them at the step's start and gap = -c_k n·guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.interface import Assembly, Columns, Directions, Pulled, Stage, Term
from soft_estimator.physics.terms.patch import SHARPNESS, STIFFNESS, Patch

if TYPE_CHECKING:
    from soft_estimator.physics.terms.contact import ContactLaw


class ObstacleContact(Term["Patch | None"]):
    """The surface against one obstacle."""

    parameters: ClassVar[tuple[str, ...]] = (STIFFNESS, SHARPNESS)
    curved: ClassVar[bool] = True

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray, law: ContactLaw) -> None:
        super().__init__(device, values, start)
        self.law, self.touched = law, law.touched(device, values)
        self._last: tuple[State, Patch | None] | None = None

    def _implicit(self, stage: Stage) -> bool:
        """Whether contact's stiffness is in the system."""
        return self.law.implicit or stage.all_implicit

    def prepare(self, stage: Stage) -> Patch | None:
        if self._implicit(stage):
            return self.touched.near(stage.predicted, stage.balance_time_s)
        return self.touched.near(stage.state.u, stage.state.time_s)

    def add_blocks(self, stage: Stage, at: Patch | None, assembly: Assembly) -> None:
        if at is not None and self._implicit(stage):
            normal, stiff = self.device.host(at.normal), self.device.host(stage.scheme.c_k * at.factor * at.slope)
            at.add_blocks(stiff[:, None, None] * normal[:, :, None] * normal[:, None, :], assembly)

    def add_force(self, stage: Stage, at: Patch | None, rhs: Array) -> None:
        if at is not None:
            gap = (self._moved(stage, at, None) * at.normal).sum(axis=1)
            rhs += at.spread((at.factor * (at.depth + at.slope * gap))[:, None] * at.normal)

    def add_residual(self, stage: Stage, at: Patch | None, out: Array) -> None:
        if at is not None:
            out += at.spread(at.press[:, None] * at.normal)

    def potential_j(self, stage: Stage, at: Patch | None) -> Array:
        return self.device.xp.zeros(1) if at is None else self._energies_j(at) / stage.scheme.c_k

    def whole_slope(self, stage: Stage, at: Patch | None) -> bool:
        return at is None or self.touched.obstacle.curvature(at.x, at.time_s) is None  # A leaves the normals' turn out

    def _moved(self, stage: Stage, at: Patch, increment: Array | None) -> Array:
        """What the gap measures along the normal, (F, 3): c_k (guess - Δu), or minus c_k times the guess."""
        if not self._implicit(stage):
            return -stage.scheme.c_k * at.at(stage.guess)
        return stage.scheme.c_k * at.at(stage.guess if increment is None else stage.guess - increment)

    def push(
        self, stage: Stage, at: Patch | None, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        if at is None:
            return
        t, moved, ahead = self.touched, self._moved(stage, at, increment), stage.scheme.c_k * at.at(changes.guess)
        gap, dx = (moved * at.normal).sum(axis=1), at.at(changes.u)
        if self._implicit(stage):
            dx = dx + ahead
        else:
            ahead = -ahead
        dn = t.normal_push(at, dx, directions)
        dgap = (at.normal[:, :, None] * ahead).sum(axis=1)
        if dn is not None:
            dgap = dgap + (moved[:, :, None] * dn).sum(axis=1)
        value, by_distance = at.factor * (at.depth + at.slope * gap), self._by_distance(at, gap)
        change = by_distance[:, None] * t.distance_push(at, dx, directions) + (at.factor * at.slope)[:, None] * dgap
        change = change + t.numbers_push(value, self._by_sharpness(at, gap), directions)
        force = change[:, None, :] * at.normal[:, :, None]
        out += at.spread(force if dn is None else force + value[:, None, None] * dn)

    def _by_distance(self, at: Patch, gap: Array) -> Array:
        """Derivative of k A (s + σ gap) by δ, (F,)."""
        return -at.factor * at.slope * (1.0 + self.touched.sharpness * (1.0 - at.slope) * gap)

    def _by_sharpness(self, at: Patch, gap: Array) -> Array:
        """Derivative of k A (s + σ gap) by a, (F,)."""
        return at.factor * (self.touched.depth_by_sharpness(at) - at.distance * at.slope * (1.0 - at.slope) * gap)

    def pull(self, stage: Stage, at: Patch | None, increment: Array, lmbda: Array, out: Pulled) -> None:
        if at is None:
            return
        t, c_k, moved, pulled = self.touched, stage.scheme.c_k, self._moved(stage, at, increment), at.at(lmbda)
        gap, along = (moved * at.normal).sum(axis=1), (pulled * at.normal).sum(axis=1)
        value = at.factor * (at.depth + at.slope * gap)
        gap_bar = at.factor * at.slope * along
        t.numbers_pull(along, value, self._by_sharpness(at, gap), out.gradient)
        normal_bar = value[:, None] * pulled + gap_bar[:, None] * moved
        x_bar = at.spread(t.place_pull(at, self._by_distance(at, gap) * along, normal_bar, out.gradient))
        m_bar = at.spread(gap_bar[:, None] * at.normal)
        out.u += x_bar
        out.guess += c_k * (x_bar + m_bar) if self._implicit(stage) else -c_k * m_bar

    def energies_j(self, state: State, rotations: Array) -> Mapping[str, float]:
        at = self._touch_of(state)
        return {"contact_j": 0.0 if at is None else float(self._energies_j(at).sum())}

    def _energies_j(self, at: Patch) -> Array:
        """Energies of the points [J], (F,)."""
        out = self.device.xp.empty_like(at.distance)
        self.device.backend.soft_energies(at.distance, self.touched.sharpness, out)
        return at.factor * out

    def _touch_of(self, state: State) -> Patch | None:
        if self._last is None or self._last[0] is not state:
            self._last = (state, self.touched.near(state.u, state.time_s))
        return self._last[1]

    def force_n(self, state: State) -> np.ndarray:
        at = self._touch_of(state)
        return np.zeros(3) if at is None else self.device.host((at.press[:, None] * at.normal).sum(axis=0))

    def work_j(self, before: State, after: State) -> float:
        """What a moving obstacle does: contact's energy at given places, after the step less before it."""
        if self.touched.obstacle.motion(0.5 * (before.time_s + after.time_s)) is None:
            return 0.0
        found = 0.0
        for u in (before.u, after.u):
            for time_s, sign in ((after.time_s, 0.5), (before.time_s, -0.5)):
                at = self.touched.near(u, time_s)
                found += 0.0 if at is None else sign * float(self._energies_j(at).sum())
        return found

    def unsound(self, stage: Stage, at: Patch | None, after: State, blocks: Array) -> bool:
        """Whether extrapolated contact is stiffer than the system it pushes, at a point or for the body as a whole."""
        if at is None or self._implicit(stage):
            return False
        d, foreseen = self.device, at.distance - (self._moved(stage, at, None) * at.normal).sum(axis=1)
        depth, slope = d.xp.empty_like(foreseen), d.xp.empty_like(foreseen)
        d.backend.soft_depths(foreseen, self.touched.sharpness, depth, slope)
        centre, stiff = blocks[d.slot[:, 13]], at.factor * slope
        diagonal = (centre[:, 0] + centre[:, 4] + centre[:, 8]) / 3
        give = (at.weight**2 / diagonal[at.nodes]).sum(axis=1)
        inertia = stage.scheme.c_m * self.values.density_kg_m3 * float(d.volume.sum())
        return bool((stiff * give > 1.0).any()) or float(stiff.sum()) > inertia
